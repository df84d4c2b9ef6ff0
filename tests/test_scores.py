"""The scores against quadrature, brute-force sums and their own propriety."""

import math
from collections.abc import Callable

import jax
import numpy as np
import pytest
from scipy import integrate, stats

from scrollmt import scores
from scrollmt.laws import CategoricalLaw, EventLaw, GaussianLaw, Law, OrdinalLaw

N, R = 9, 4
RNG = np.random.default_rng(7)
MEAN = RNG.normal(size=N) * 2.0
SD = np.exp(RNG.normal(size=N))
PROBS = RNG.dirichlet(np.ones(R), size=N)
GAUSSIAN = GaussianLaw(MEAN, SD)
ORDINAL = OrdinalLaw(np.log(PROBS))
CATEGORICAL = CategoricalLaw(np.log(PROBS))
EVENT = EventLaw(np.log(np.stack([1.0 - PROBS[:, 0], PROBS[:, 0]], axis=1)))
Y_REAL = MEAN + SD * np.linspace(-6.0, 6.0, N)
Y_CLASS = np.arange(N) % R
Y_EVENT = np.arange(N) % 2
CASES: dict[str, tuple[Law, np.ndarray]] = {
    "gaussian": (GAUSSIAN, Y_REAL),
    "event": (EVENT, Y_EVENT),
    "ordinal": (ORDINAL, Y_CLASS),
    "categorical": (CATEGORICAL, Y_CLASS),
}
ELEMENTWISE: list[tuple[str, Callable]] = [
    ("gaussian", scores.nll),
    ("gaussian", scores.crps),
    ("gaussian", scores.squared_error),
    ("gaussian", scores.pit),
    ("gaussian", lambda law, y: scores.covered(law, y, 0.7)),
    ("event", scores.nll),
    ("event", scores.brier),
    ("event", scores.rps),
    ("event", scores.accuracy),
    ("event", lambda law, y: scores.pit(law, y, jax.random.key(0))),
    ("ordinal", scores.nll),
    ("ordinal", scores.rps),
    ("ordinal", scores.accuracy),
    ("ordinal", lambda law, y: scores.pit(law, y, jax.random.key(0))),
    ("categorical", scores.nll),
    ("categorical", scores.accuracy),
]
METRICS = {
    "gaussian": ["nll", "coverage_error", "coverage_50", "coverage_90", "crps", "rmse", "mae"],
    "event": ["nll", "accuracy", "brier"],
    "ordinal": ["nll", "accuracy", "rps"],
    "categorical": ["nll", "accuracy"],
}


# Each score against its definition


def test_the_old_name_of_the_nll_warns() -> None:
    with pytest.warns(DeprecationWarning, match=r"it is scores\.nll now"):
        old = scores.log_score(GAUSSIAN, Y_REAL)
    np.testing.assert_array_equal(old, scores.nll(GAUSSIAN, Y_REAL))


def test_nll_is_the_negative_log_density_in_nats() -> None:
    expected = -stats.norm.logpdf(Y_REAL, MEAN, SD)
    np.testing.assert_allclose(scores.nll(GAUSSIAN, Y_REAL), expected, rtol=1e-12)
    expected = [-math.log(PROBS[n, Y_CLASS[n]]) for n in range(N)]
    np.testing.assert_allclose(scores.nll(ORDINAL, Y_CLASS), expected, rtol=1e-12)
    far = GaussianLaw([0.0], [1.0])
    assert scores.nll(far, [1e5])[0] == pytest.approx(5e9 + 0.5 * math.log(2 * math.pi))


def test_crps_against_quadrature() -> None:
    """The integral of (F - 1{y <= t})^2 splits at y into two tails, both smooth."""
    got = scores.crps(GAUSSIAN, Y_REAL)
    for n in range(N):
        law = stats.norm(MEAN[n], SD[n])
        ends = min(Y_REAL[n], MEAN[n]) - 12 * SD[n], max(Y_REAL[n], MEAN[n]) + 12 * SD[n]
        options = {"epsabs": 1e-12, "epsrel": 1e-12, "limit": 200}
        below, _ = integrate.quad(lambda t: law.cdf(t) ** 2, ends[0], Y_REAL[n], **options)  # noqa: B023
        above, _ = integrate.quad(lambda t: law.sf(t) ** 2, Y_REAL[n], ends[1], **options)  # noqa: B023
        assert got[n] == pytest.approx(below + above, rel=1e-8, abs=1e-8)


def test_crps_far_out_is_the_distance_less_a_constant() -> None:
    law = GaussianLaw([0.0, 0.0], [2.0, 2.0])
    y = np.array([1e4, -1e8])
    np.testing.assert_allclose(scores.crps(law, y), np.abs(y) - 2.0 / math.sqrt(math.pi), 1e-14)


def test_brier_is_one_squared_difference() -> None:
    expected = [(EVENT.prob[n] - Y_EVENT[n]) ** 2 for n in range(N)]
    np.testing.assert_allclose(scores.brier(EVENT, Y_EVENT), expected, rtol=1e-13)


def test_rps_against_brute_force() -> None:
    expected = [
        sum((PROBS[n, : r + 1].sum() - float(Y_CLASS[n] <= r)) ** 2 for r in range(R - 1))
        for n in range(N)
    ]
    np.testing.assert_allclose(scores.rps(ORDINAL, Y_CLASS), expected, rtol=1e-12)
    worst = OrdinalLaw([[0.0, -np.inf, -np.inf, -np.inf]])
    assert scores.rps(worst, [3])[0] == R - 1
    assert scores.rps(worst, [0])[0] == 0.0


def test_rps_of_two_buckets_is_the_brier_score() -> None:
    np.testing.assert_allclose(
        scores.rps(EVENT, Y_EVENT), scores.brier(EVENT, Y_EVENT), rtol=1e-12, atol=1e-15
    )


def test_accuracy_asks_for_the_likeliest_class() -> None:
    expected = [float(np.argmax(PROBS[n]) == Y_CLASS[n]) for n in range(N)]
    for law in (ORDINAL, CATEGORICAL):
        np.testing.assert_array_equal(scores.accuracy(law, Y_CLASS), expected)
    np.testing.assert_array_equal(scores.accuracy(EVENT, Y_EVENT), (EVENT.prob > 0.5) == Y_EVENT)


@pytest.mark.parametrize("score", [scores.nll, scores.rps])
def test_the_truth_scores_best_in_expectation(score: Callable) -> None:
    def expected_score(law: OrdinalLaw) -> np.ndarray:
        return np.sum([PROBS[:, r] * score(law, r) for r in range(R)], axis=0)

    for other in RNG.dirichlet(np.ones(R), size=(20, N)):
        assert (expected_score(OrdinalLaw(np.log(other))) > expected_score(ORDINAL)).all()


# Coverage


def test_coverage_counts_labels_between_the_quantiles() -> None:
    levels = np.array([0.1, 0.5, 0.9, 0.999])
    got = scores.coverage(GAUSSIAN, Y_REAL, levels)
    for share, level in zip(got, levels, strict=True):
        low, high = stats.norm(MEAN, SD).interval(level)
        assert share == pytest.approx(np.mean(np.clip(Y_REAL, low, high) == Y_REAL))
        assert scores.coverage(GAUSSIAN, Y_REAL, level) == share
    assert 0.0 < got[1] < got[3] < 1.0
    assert scores.covered(GAUSSIAN, Y_REAL, levels).shape == (N, 4)


def test_coverage_error_against_its_definition() -> None:
    levels = [5 * k / 100 for k in range(1, 20)]
    gaps = []
    for a in levels:
        z = stats.norm.ppf((1 + a) / 2)
        inside = [abs(Y_REAL[n] - MEAN[n]) <= z * SD[n] for n in range(N)]
        gaps.append(abs(sum(inside) / N - a))
    assert scores.coverage_error(GAUSSIAN, Y_REAL) == pytest.approx(sum(gaps) / 19, rel=1e-12)
    np.testing.assert_array_equal(scores.COVERAGE_LEVELS, levels)


def test_coverage_error_is_near_zero_at_the_exact_quantiles_and_half_when_all_miss() -> None:
    n = 1000
    law = GaussianLaw(np.zeros(n), np.ones(n))
    even = stats.norm.ppf((np.arange(n) + 0.5) / n)
    assert scores.coverage_error(law, even) < 1.0 / n
    table = scores.summarise(law, even)
    assert (table["coverage_50"], table["coverage_90"]) == (0.5, 0.9)
    assert scores.coverage_error(law, np.full(n, 50.0)) == pytest.approx(0.5)
    assert scores.coverage_error(law, np.zeros(n)) == pytest.approx(0.5)


# PIT


def test_pit_of_a_gaussian_is_its_cdf() -> None:
    np.testing.assert_allclose(scores.pit(GAUSSIAN, Y_REAL), stats.norm(MEAN, SD).cdf(Y_REAL))


@pytest.mark.parametrize("case", ["event", "ordinal"])
def test_randomised_pit_is_uniform_when_the_law_is_the_truth(case: str) -> None:
    """Kolmogorov-Smirnov; with fresh keys each case would fail with chance 1e-3."""
    law = CASES[case][0][np.arange(4500) % N]
    label_key, pit_key = jax.random.split(jax.random.key(11))
    y = law.sample(label_key, 1)[0]
    values = scores.pit(law, y, pit_key)
    assert stats.kstest(values, "uniform").pvalue > 1e-3
    np.testing.assert_array_equal(values, scores.pit(law, y, pit_key))


def test_randomised_pit_stays_between_the_cdf_values_of_its_class() -> None:
    values = scores.pit(ORDINAL, Y_CLASS, jax.random.key(2))
    upper = ORDINAL.cdf(Y_CLASS)
    lower = upper - np.exp(ORDINAL.log_prob(Y_CLASS))
    assert ((values >= lower - 1e-15) & (values <= upper)).all()


def test_pit_of_a_discrete_law_needs_a_key() -> None:
    with pytest.raises(ValueError, match=r"pass key=jax\.random\.key"):
        scores.pit(ORDINAL, Y_CLASS)


# Missing labels, weights, summaries


@pytest.mark.parametrize(("case", "score"), ELEMENTWISE)
def test_a_missing_label_scores_nan_and_leaves_the_others_alone(case: str, score: Callable) -> None:
    law, y = CASES[case]
    holes = y.astype(float)
    holes[[2, 5]] = np.nan
    got, whole = score(law, holes), score(law, y)
    assert got.shape == whole.shape == (N,)
    assert np.isnan(got).nonzero()[0].tolist() == [2, 5]
    assert not np.isnan(whole).any()
    kept = ~np.isnan(holes)
    np.testing.assert_array_equal(got[kept], whole[kept])


@pytest.mark.parametrize(("case", "score"), ELEMENTWISE)
def test_labels_of_another_length_are_refused(case: str, score: Callable) -> None:
    law, y = CASES[case]
    with pytest.raises(ValueError, match=r"shape \(8,\), but the law holds 9 forecasts"):
        score(law, y[:-1])
    with pytest.raises(ValueError, match=r"shape \(9, 1\)"):
        score(law, y[:, None])


@pytest.mark.parametrize(
    "score", [scores.brier, scores.rps, scores.accuracy, scores.nll], ids=lambda f: f.__name__
)
def test_labels_out_of_range_are_refused_and_not_scored(score: Callable) -> None:
    with pytest.raises(ValueError, match=r"y\[3\] = 2 is no class.*integers 0 to 1"):
        score(EVENT, [0, 1, 0, 2, 0, 0, 0, 0, 0])


@pytest.mark.parametrize(
    ("score", "law"),
    [
        (scores.crps, ORDINAL),
        (scores.squared_error, EVENT),
        (scores.coverage_error, EVENT),
        (scores.brier, ORDINAL),
        (scores.rps, CATEGORICAL),
        (scores.accuracy, GAUSSIAN),
        (scores.pit, CATEGORICAL),
    ],
)
def test_scores_say_which_laws_they_serve(score: Callable, law: Law) -> None:
    with pytest.raises(TypeError, match=f"is not defined for a {type(law).__name__}: "):
        score(law, np.zeros(N))


@pytest.mark.parametrize("case", CASES)
def test_summary_has_the_metrics_of_its_kind(case: str) -> None:
    law, y = CASES[case]
    table = scores.summarise(law, y)
    assert [*table] == METRICS[case]
    assert all(type(value) is float for value in table.values())
    assert table["nll"] == pytest.approx(-np.mean(law.log_prob(y)))
    if case == "gaussian":
        assert table["rmse"] == pytest.approx(np.sqrt(np.mean((Y_REAL - MEAN) ** 2)))
        assert table["crps"] == pytest.approx(np.mean(scores.crps(GAUSSIAN, y)))
        assert table["coverage_50"] == pytest.approx(float(scores.coverage(GAUSSIAN, y, 0.5)))
        assert table["coverage_90"] == pytest.approx(float(scores.coverage(GAUSSIAN, y, 0.9)))
        assert table["coverage_error"] == scores.coverage_error(GAUSSIAN, y)
    else:
        assert table["accuracy"] == pytest.approx(np.mean(scores.accuracy(law, y)))
    if case == "event":
        assert table["brier"] == pytest.approx(np.mean(scores.brier(EVENT, y)))
    if case == "ordinal":
        assert table["rps"] == pytest.approx(np.mean(scores.rps(ORDINAL, y)))


@pytest.mark.parametrize("case", CASES)
def test_a_row_of_weight_two_equals_that_row_twice(case: str) -> None:
    law, y = CASES[case]
    weight = np.ones(N)
    weight[[1, 6]] = 2.0, 3.0
    rows = np.repeat(np.arange(N), weight.astype(int))
    weighted, repeated = scores.summarise(law, y, weight), scores.summarise(law[rows], y[rows])
    assert weighted == pytest.approx(repeated, rel=1e-12)
    assert weighted != pytest.approx(scores.summarise(law, y), rel=1e-6)
    assert scores.summarise(law, y, 5.0 * weight) == pytest.approx(weighted, rel=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_rows_without_label_or_weight_are_left_out(case: str) -> None:
    law, y = CASES[case]
    holes = y.astype(float)
    holes[[0, 4]] = np.nan
    kept = ~np.isnan(holes)
    expected = scores.summarise(law[kept], y[kept])
    assert scores.summarise(law, holes) == pytest.approx(expected, rel=1e-12)
    assert scores.summarise(law, y, kept.astype(float)) == pytest.approx(expected, rel=1e-12)


def test_an_infinite_score_counts_only_with_weight() -> None:
    law = EventLaw([[-np.inf, 0.0], [math.log(0.5), math.log(0.5)]])
    assert scores.summarise(law, [0, 1])["nll"] == math.inf
    assert scores.summarise(law, [0, 1], [0.0, 1.0])["nll"] == pytest.approx(math.log(2.0))


@pytest.mark.parametrize("case", CASES)
def test_a_summary_of_nothing_is_nan(case: str) -> None:
    law, y = CASES[case]
    for table in (
        scores.summarise(law, np.full(N, np.nan)),
        scores.summarise(law, y, np.zeros(N)),
        scores.summarise(law[:0], y[:0]),
    ):
        assert [*table] == METRICS[case]
        assert all(math.isnan(value) for value in table.values())


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.array([1.0] * 8 + [-1.0]), r"weight\[8\] = -1: weights are finite and >= 0"),
        (np.array([np.nan] + [1.0] * 8), r"weight\[0\] = nan"),
        (np.array([np.inf] + [1.0] * 8), r"weight\[0\] = inf"),
        (np.ones(4), r"weight has shape \(4,\)"),
    ],
)
def test_impossible_weights_are_refused(weight: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        scores.summarise(GAUSSIAN, Y_REAL, weight)
