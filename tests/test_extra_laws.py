"""Laws of heavy tails, counts and detection limits against SciPy, sums and integrals."""

import math
from collections.abc import Callable

import jax
import numpy as np
import pytest
import scoringrules
from jaxtyping import TypeCheckError
from scipy import integrate, stats
from scipy.special import gammainc, logsumexp

from scrollmt import GaussianLaw, at_lead, mix, original_units
from scrollmt import scores as scoring
from scrollmt.heads import Poisson
from scrollmt.laws import (
    CensoredLaw,
    CountLaw,
    HeadLaw,
    PitMap,
    RealLaw,
    RecalibratedLaw,
    StudentTLaw,
)
from scrollmt.laws.transformed import TransformedLaw

INF = math.inf
PIT_MAP = PitMap((-1.0, 0.1, 1.2), (-0.8, 0.2, 1.0))


def latent(mean: list[float], sd: list[float]) -> GaussianLaw:
    return GaussianLaw(mean, sd)


LAWS: dict[str, Callable[[int], RealLaw]] = {
    "student": lambda n: StudentTLaw(np.linspace(-1, 1, n), np.full(n, 0.4), 0.7, 3.5),
    "two students": lambda n: mix(
        [
            StudentTLaw(np.linspace(-1, 1, n), np.full(n, 0.4), 0.7, 3.5),
            StudentTLaw(np.linspace(2, 1, n), np.full(n, 0.1), 0.3, 9.0),
        ]
    ),
    "count": lambda n: CountLaw(np.linspace(0, 3, n), np.full(n, 0.2), 0.3),
    "poisson": lambda n: CountLaw(np.linspace(0, 3, n), np.full(n, 0.2)),
    "two counts": lambda n: mix(
        [
            CountLaw(np.linspace(0, 3, n), np.full(n, 0.2), 0.3),
            CountLaw(np.linspace(1, 2, n), np.full(n, 0.02), 1.5),
        ]
    ),
    "censored": lambda n: CensoredLaw(
        GaussianLaw(np.linspace(-2, 2, n), np.full(n, 1.3)), -0.5, 1.5
    ),
    "recalibrated": lambda n: RecalibratedLaw(
        GaussianLaw(np.linspace(-2, 2, n), np.full(n, 1.3)), PIT_MAP
    ),
}


# What holds for all of them


@pytest.mark.parametrize("name", LAWS)
def test_draws_agree_with_moments_and_distribution_function(name: str) -> None:
    """40 000 draws of six forecasts: all means, spreads and shares within 4.5 standard errors.

    Over the 90 statements here one run in 1500 would fail by chance; the key is fixed.
    """
    law, n = LAWS[name](6), 40_000
    draws = law.sample(jax.random.key(3), n)
    assert draws.shape == (n, 6)
    if name != "student":  # of which the fourth moment does not exist
        np.testing.assert_array_less(np.abs(draws.mean(0) - law.mean), 4.5 * law.sd / math.sqrt(n))
        fourth = ((draws - law.mean) ** 4).mean(0)
        error = np.sqrt((fourth - law.sd**4) / n)
        np.testing.assert_array_less(np.abs(draws.var(0) - law.sd**2), 4.5 * error)
    for p in (0.1, 0.5, 0.9):
        at = law.quantile(p)
        low, high = law.cdf_pair(at)
        assert ((low <= p + 1e-9) & (p - 1e-9 <= high)).all()
        np.testing.assert_allclose(law.cdf(at), high, rtol=1e-12)
        for shares, chance in ((draws <= at, high), (draws < at, low)):
            spread = np.sqrt(np.maximum(chance * (1.0 - chance), 1e-4) / n)
            np.testing.assert_array_less(np.abs(shares.mean(0) - chance), 4.5 * spread)


@pytest.mark.parametrize("name", LAWS)
def test_what_lies_above_is_the_rest(name: str) -> None:
    law = LAWS[name](6)
    for y in (*law.quantile([0.01, 0.5, 0.99]).T, np.full(6, -30.0), np.full(6, 1e9)):
        np.testing.assert_allclose(law.sf(y), 1.0 - law.cdf(y), rtol=0, atol=1e-8)
    assert law.sf(np.inf).tolist() == [0.0] * 6
    assert law.sf(-np.inf).tolist() == [1.0] * 6
    assert np.isnan(law.sf([None, 0, 0, 0, 0, 0])[0])


def test_the_right_tail_keeps_its_digits() -> None:
    """Against SciPy where a belief of no width leaves its own law, and by symmetry elsewhere."""
    t = StudentTLaw(np.zeros(4), np.zeros(4), 1.0, 4.0)
    y = np.array([3.0, 1e3, 1e6, 1e10])
    np.testing.assert_allclose(t.sf(y), stats.t.sf(y, 4.0), rtol=1e-6)
    # The left tail is the mirror image, digit by digit.
    np.testing.assert_allclose(t.cdf(-np.asarray(y)), stats.t.cdf(-np.asarray(y), 4.0), rtol=1e-6)
    wide = StudentTLaw([0.5], [0.4], 0.7, 3.5)
    far, _ = integrate.quad(lambda u: np.exp(wide.log_prob(u)[0]), 1e4, np.inf, epsabs=0.0)
    np.testing.assert_allclose(wide.sf(1e4), far, rtol=1e-6)
    count = CountLaw(np.zeros(3), np.zeros(3))
    np.testing.assert_allclose(count.sf([3, 20, 60]), stats.poisson.sf([3, 20, 60], 1.0), 1e-12)
    spread = CountLaw(np.zeros(2), np.zeros(2), 0.5)
    want = stats.nbinom.sf([10, 90], 2.0, 1.0 / 1.5)
    np.testing.assert_allclose(spread.sf([10, 90]), want, rtol=1e-12)
    censored = CensoredLaw(latent([0.0] * 6, [1.0] * 6), -1.0, 20.0)
    found = censored.sf([-1.5, -1.0, 12.0, 19.9, 20.0, 25.0])
    want = [1.0, *stats.norm.sf([-1.0, 12.0, 19.9]), 0.0, 0.0]
    np.testing.assert_allclose(found, want, rtol=1e-11)
    np.testing.assert_allclose(censored[:1].sf([[1.0, 12.0]]), stats.norm.sf(12.0), rtol=1e-11)


def test_a_count_far_above_keeps_its_chance_under_a_wide_belief() -> None:
    """A huge count is a huge rate, many sds of the belief away: against a dense rule in logs."""
    mean, k = np.array([0.0, -10.0, -10.0]), np.array([5.0, 1e3, 1e4])
    broad = CountLaw(mean, np.full(3, 1.5))
    z = np.linspace(-10.0, 30.0, 100_001)
    with np.errstate(divide="ignore"):
        given = np.log(gammainc(k[:, None] + 1.0, np.exp(mean[:, None] + np.sqrt(1.5) * z)))
    want = logsumexp(given + stats.norm.logpdf(z), axis=1) + np.log(z[1] - z[0])
    assert want[2] < -80.0
    np.testing.assert_allclose(np.log(broad.sf(k)), want, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", LAWS)
def test_draws_of_a_seed_are_those_of_its_key(name: str) -> None:
    law = LAWS[name](6)
    np.testing.assert_array_equal(law.sample(4, seed=3), law.sample(jax.random.key(3), 4))


@pytest.mark.parametrize("name", LAWS)
def test_cuts_missing_labels_and_tables(name: str) -> None:
    law = LAWS[name](5)
    y = law.quantile(0.3)
    holes = np.where(np.arange(5) == 2, np.nan, y)
    for values in (law.log_prob(holes), law.cdf(holes), scoring.crps(law, holes)):
        np.testing.assert_array_equal(np.isnan(values), np.arange(5) == 2)
    part = law[1:4]
    assert type(part) is type(law)
    np.testing.assert_array_equal(part.log_prob(y[1:4]), law.log_prob(y)[1:4])
    np.testing.assert_array_equal(part.mean, law.mean[1:4])
    frame = law.to_frame(level=0.8)
    assert list(frame) == ["mean", "sd", "lower", "upper"]
    np.testing.assert_allclose(frame["lower"], law.quantile(0.1), rtol=1e-12)
    np.testing.assert_array_equal(np.stack(law.interval([0.5, 0.8]))[:, :, 1].T, frame.iloc[:, 2:])
    assert law.quantile([]).shape == (5, 0)
    with pytest.raises(ValueError, match="must lie between 0 and 1"):
        law.quantile(1.5)
    same = mix([law, law])
    np.testing.assert_allclose(same.log_prob(y), law.log_prob(y), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(same.quantile(0.7), law.quantile(0.7), rtol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAWS)
def test_calibration_scores_of_the_true_law(name: str) -> None:
    """PIT and coverage of 3000 labels drawn from the law itself, atoms and all.

    The largest of 19 coverage gaps and the Kolmogorov distance stay under their 1e-4 quantiles.
    """
    n = 3000
    law = LAWS[name](n)
    y = law.sample(jax.random.key(11), 1)[0]
    pit = scoring.pit(law, y, jax.random.key(12))
    assert stats.kstest(pit, "uniform").pvalue > 1e-4
    levels = np.asarray(scoring.COVERAGE_LEVELS)
    gap = np.abs(scoring.coverage(law, y, levels) - levels)
    assert gap.max() < 4.5 * 0.5 / math.sqrt(n)
    summary = scoring.summarise(law, y)
    assert summary["nll"] == pytest.approx(-law.log_prob(y).mean())
    assert summary["coverage_90"] == pytest.approx(0.9, abs=0.03)
    assert ("rmse" in summary) == (name != "censored")


def test_a_pit_needs_a_key_only_where_there_is_a_mass() -> None:
    law = LAWS["censored"](3)
    inside = np.array([0.0, 0.1, 1.0])
    np.testing.assert_array_equal(scoring.pit(law, inside), law.latent.cdf(inside))
    with pytest.raises(ValueError, match="pass key="):
        scoring.pit(law, np.array([0.0, 0.1, 1.5]))
    with pytest.raises(ValueError, match="pass key="):
        scoring.pit(LAWS["count"](3), np.ones(3))


# Student-t


@pytest.mark.parametrize("df", [2.1, 3.0, 12.0, 250.0])
def test_a_t_without_belief_is_scipys(df: float) -> None:
    y = np.array([-2000.0, -30.0, -2.0, 0.0, 0.4, 7.0, 1e5])
    law = StudentTLaw(np.full(7, 0.2), np.zeros(7), 1.5, df)
    truth = stats.t(df, 0.2, 1.5)
    np.testing.assert_allclose(law.log_prob(y), truth.logpdf(y), rtol=1e-9, atol=2e-7)
    np.testing.assert_allclose(law.cdf(y), truth.cdf(y), rtol=1e-6, atol=1e-8)
    p = [1e-6, 0.01, 0.5, 0.9, 1.0 - 1e-6]
    np.testing.assert_allclose(law.quantile(p)[0], truth.ppf(p), rtol=1e-6, atol=1e-7)
    assert law.quantile(0.0)[0] == -INF
    np.testing.assert_allclose(law.sd, truth.std(), rtol=1e-12)
    want = 1.5 * scoringrules.crps_t((y - 0.2) / 1.5, df)
    np.testing.assert_allclose(scoring.crps(law, y), want, rtol=1e-6)


def test_a_t_with_belief_is_a_convolution() -> None:
    law = StudentTLaw([0.5], [2.0], 0.6, 2.8)
    for y in (-8.0, 0.0, 0.5, 3.0):
        for f, got in ((stats.t.cdf, law.cdf(y)), (stats.t.pdf, np.exp(law.log_prob(y)))):
            want = integrate.quad(
                lambda a, f=f, y=y: f(y, 2.8, a, 0.6) * stats.norm.pdf(a, 0.5, math.sqrt(2.0)),
                -12.0,
                13.0,
                points=[0.5, y],
                epsabs=1e-12,
            )[0]
            assert float(got[0]) == pytest.approx(want, abs=1e-7)
    assert law.var[0] == pytest.approx(2.0 + 0.36 * 2.8 / 0.8)
    assert law.noise_var[0] + law.belief_var[0] == law.var[0]
    moved = law.affine(10.0, 3.0)
    np.testing.assert_allclose(moved.quantile(0.2), 10.0 + 3.0 * law.quantile(0.2), rtol=1e-9)
    np.testing.assert_allclose(moved.log_prob(7.0), law.log_prob(-1.0) - math.log(3.0), rtol=1e-9)


def test_bad_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match=r"need scale_obs > 0 and df > 2"):
        StudentTLaw([0.0], [1.0], 1.0, 2.0)
    with pytest.raises(ValueError, match=r"latent_mean has shape \(2, 1\), latent_var has shape"):
        StudentTLaw([0.0, 1.0], [1.0], 1.0, 3.0)
    with pytest.raises(ValueError, match="variances are not negative"):
        CountLaw([0.0], [-1.0])
    with pytest.raises(ValueError, match=r"latent_mean is .*nan"):
        CountLaw([np.nan], [1.0])
    with pytest.raises(ValueError, match="dispersion must be finite"):
        CountLaw([0.0], [1.0], -0.1)
    with pytest.raises(ValueError, match="different limits"):
        mix([CensoredLaw(latent([0.0], [1.0]), 0.0), CensoredLaw(latent([0.0], [1.0]), 1.0)])


# Counts


@pytest.mark.parametrize("dispersion", [0.0, 0.05, 0.7, 6.0])
def test_counts_without_belief_are_scipys(dispersion: float) -> None:
    rate = np.array([0.2, 4.0, 30.0, 2000.0])
    law = CountLaw(np.log(rate), np.zeros(4), dispersion)
    truth = (
        stats.poisson(rate)
        if dispersion == 0.0
        else stats.nbinom(1.0 / dispersion, 1.0 / (1.0 + dispersion * rate))
    )
    for y in (0, 1, 7, 2100):
        np.testing.assert_allclose(law.log_prob(y), truth.logpmf(y), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(law.cdf(y), truth.cdf(y), rtol=1e-9)
    np.testing.assert_allclose(law.mean, truth.mean(), rtol=1e-12)
    np.testing.assert_allclose(law.sd, truth.std(), rtol=1e-12)
    for p in (0.0, 1e-5, 0.3, 0.5, 0.99):
        np.testing.assert_array_equal(law.quantile(p), np.maximum(truth.ppf(p), 0.0))
    assert np.isposinf(law.quantile(1.0)).all()
    labels = np.array([0.0, 6.0, 20.0, 1500.0])
    want = [
        sum((float(F) - (k >= label)) ** 2 for k, F in enumerate(column))
        for label, column in zip(labels, truth.cdf(np.arange(60_000)[:, None]).T, strict=True)
    ]
    np.testing.assert_allclose(scoring.crps(law, labels), want, rtol=1e-4)


def test_the_masses_of_a_count_add_up_to_its_distribution_function() -> None:
    law = mix([CountLaw([1.2], [0.6], 0.4), CountLaw([0.3], [0.01])])
    counts = np.arange(200.0)
    many = law[np.zeros(200, dtype=int)]
    np.testing.assert_allclose(np.cumsum(many.pmf(counts)), many.cdf(counts), atol=1e-6)
    np.testing.assert_array_equal(many.log_prob(counts + 0.5), -INF)
    np.testing.assert_array_equal(many.log_prob(-1.0), -INF)
    np.testing.assert_array_equal(many.cdf(-0.5), 0.0)
    np.testing.assert_array_equal(many.cdf(counts + 0.5), many.cdf(counts))
    for y in (0.0, 2.0, 40.0):
        want = np.sum((many.cdf(counts) - (counts >= y)) ** 2)
        np.testing.assert_allclose(scoring.crps(law, y), want, rtol=1e-6)


def test_the_crps_of_a_count_beyond_the_last_is_how_far_it_lies() -> None:
    law = CountLaw([0.5, 9.0], [0.1, 0.1], 0.2)
    far = scoring.crps(law, [900.0, 3e6])
    farther = scoring.crps(law, [1900.0, 4e6])
    np.testing.assert_allclose(farther - far, [1000.0, 1e6], rtol=1e-9)


# Detection limits


def test_what_a_detector_records() -> None:
    law = CensoredLaw(latent([0.0, 0.6, -3.0], [1.0, 2.0, 0.5]), -1.0, 2.0)
    x = np.linspace(-40.0, 40.0, 400_001)
    for i in range(3):
        density = stats.norm.pdf(x, law.latent.mean[i], law.latent.sd[i]) * (x[1] - x[0])
        shown = np.clip(x, -1.0, 2.0)
        mean = float(density @ shown)
        assert law.mean[i] == pytest.approx(mean, abs=1e-8)
        assert law.sd[i] == pytest.approx(math.sqrt(density @ (shown - mean) ** 2), abs=1e-6)
    np.testing.assert_allclose(law.below, law.latent.cdf(-1.0))
    np.testing.assert_allclose(law.above, 1.0 - law.latent.cdf(2.0), rtol=1e-9, atol=1e-15)
    # at a limit the mass beyond, between them the density
    np.testing.assert_allclose(law.log_prob(-1.0), np.log(law.below), rtol=1e-12)
    np.testing.assert_allclose(law.log_prob(-7.0), np.log(law.below), rtol=1e-12)
    np.testing.assert_allclose(law.log_prob(5.0)[:2], np.log(law.above)[:2], rtol=1e-12)
    np.testing.assert_array_equal(law.log_prob(0.3), law.latent.log_prob(0.3))
    np.testing.assert_array_equal(law.is_atom([-1.0, 0.0, 2.0]), [True, False, True])
    for y, pair in ((-2.0, (0, 0)), (3.0, (1, 1))):
        np.testing.assert_array_equal(law.cdf_pair(y), np.repeat([pair], 3, axis=0).T)
    np.testing.assert_array_equal(law.cdf_pair(-1.0)[0], 0.0)
    np.testing.assert_array_equal(law.cdf_pair(2.0)[1], 1.0)
    # bounds of a row's own
    pairs = np.array([[-INF, 0.4], [0.1, 0.7], [np.nan, 1.0]])
    got = law.log_prob(pairs)
    np.testing.assert_allclose(got[0], np.log(law.latent.cdf(0.4)[0]))
    np.testing.assert_allclose(
        got[1], np.log(law.latent.cdf(0.7)[1] - law.latent.cdf(0.1)[1]), rtol=1e-9
    )
    assert np.isnan(got[2])
    np.testing.assert_array_equal(law.recorded(pairs), [np.nan] * 3)
    moved = law.affine(10.0, 2.0)
    assert (moved.lower, moved.upper) == (8.0, 14.0)
    np.testing.assert_allclose(moved.mean, 10.0 + 2.0 * law.mean)


@pytest.mark.parametrize("limits", [(-1.0, 2.0), (-INF, 0.5), (0.3, INF), (-INF, INF)])
def test_the_crps_of_a_censored_law(limits: tuple[float, float]) -> None:
    rng = np.random.default_rng(0)
    law = CensoredLaw(GaussianLaw(rng.normal(size=20), rng.uniform(0.3, 2.0, size=20)), *limits)
    y = np.clip(rng.normal(size=20) * 2.0, *limits)
    want = scoringrules.crps_cnormal(y, law.latent.mean, law.latent.sd, *limits)
    np.testing.assert_allclose(scoring.crps(law, y), want, rtol=1e-12, atol=1e-14)


def test_a_value_far_beyond_its_limit_is_no_surprise() -> None:
    law = CensoredLaw(latent([-50.0], [1.0]), 0.0)
    assert scoring.crps(law, 0.0)[0] == 0.0
    assert law.log_prob(0.0)[0] == 0.0
    assert law.log_prob(1.0)[0] < -1000.0
    assert law.sd[0] == 0.0


# Laws in original units, and laws of heads without one


def test_masses_have_no_slope_in_other_units() -> None:
    asked = at_lead("x").log1p()
    law = original_units(CensoredLaw(latent([0.5, 0.5], [1.0, 1.0]), math.log1p(0.2)), asked)
    assert isinstance(law, TransformedLaw)
    at = law.log_prob([0.2, 3.0])
    assert at[0] == pytest.approx(math.log(law.law.below[0]))
    assert at[1] == pytest.approx(float(stats.norm.logpdf(math.log1p(3.0), 0.5)) - math.log(4.0))
    np.testing.assert_allclose(law.quantile(1e-6), 0.2, rtol=1e-12)
    heavy = original_units(StudentTLaw([0.5], [0.1], 0.3, 3.0), asked)
    np.testing.assert_allclose(heavy.median, np.expm1(0.5), rtol=1e-6)
    assert original_units(LAWS["count"](2), at_lead("x")).mean.shape == (2,)


def test_a_head_without_a_law_of_its_own_still_scores() -> None:
    head = Poisson()
    law = HeadLaw(head, np.array([0.3, 1.0, 2.0]), np.array([0.1, 0.2, 0.0]))
    want = head.law(law.latent_mean, law.latent_sd**2)
    y = np.array([0.0, 4.0, 9.0])
    np.testing.assert_allclose(law.log_prob(y), want.log_prob(y), rtol=1e-5)
    np.testing.assert_allclose(law[1:].log_prob(y[1:]), want.log_prob(y)[1:], rtol=1e-5)
    assert np.isnan(law.log_prob([np.nan, 4.0, 9.0])[0])
    assert scoring.summarise(law, y) == {"nll": pytest.approx(-want.log_prob(y).mean(), rel=1e-5)}
    both = mix([law, HeadLaw(head, np.array([0.0, 0.0, 0.0]), np.zeros(3))])
    assert both.to_frame()["latent_mean"].tolist() == pytest.approx([0.15, 0.5, 1.0])
    exact = mix([want, head.law(np.zeros(3), np.zeros(3))])
    np.testing.assert_allclose(both.log_prob(y), exact.log_prob(y), rtol=1e-5)
    with pytest.raises(TypeError, match=r"let Poisson.law return"):
        law.sample(jax.random.key(0), 2)
    with pytest.raises(TypeError, match="crps is not defined for a HeadLaw"):
        scoring.crps(law, y)
    with pytest.raises((TypeError, TypeCheckError)):
        scoring.coverage(law, y, 0.5)
