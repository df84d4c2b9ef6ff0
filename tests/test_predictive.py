"""The laws against oracles: SciPy, the C library, brute-force sums and direct moments."""

import copy
import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from scrollmt.laws import (
    CategoricalLaw,
    DiscreteLaw,
    EventLaw,
    GaussianLaw,
    Law,
    OrdinalLaw,
    class_labels,
    mix,
    moment_matched,
    real_labels,
)

N, R = 7, 4
RNG = np.random.default_rng(20)
MEAN = RNG.normal(size=N) * 3.0
SD = np.exp(RNG.normal(size=N))
PROBS = RNG.dirichlet(np.full(R, 0.7), size=N)
GAUSSIAN = GaussianLaw(MEAN, SD, noise_var=0.3 * SD**2)
ORDINAL = OrdinalLaw(np.log(PROBS))
EVENT = EventLaw(np.log(np.stack([1.0 - PROBS[:, 0], PROBS[:, 0]], axis=1)))
CATEGORICAL = CategoricalLaw(np.log(PROBS))
LAWS: list[Law] = [GAUSSIAN, ORDINAL, EVENT, CATEGORICAL]
DISCRETE: list[DiscreteLaw] = [ORDINAL, EVENT, CATEGORICAL]


def kind(law: Law) -> str:
    return type(law).__name__


def fields(law: Any) -> dict[str, np.ndarray]:
    values = {f.name: getattr(law, f.name) for f in dataclasses.fields(law)}
    return {name: value for name, value in values.items() if value is not None}


# Gaussian


def test_gaussian_agrees_with_scipy() -> None:
    y = MEAN + np.linspace(-8.0, 8.0, N) * SD
    law, oracle = GAUSSIAN, stats.norm(MEAN, SD)
    np.testing.assert_allclose(law.log_prob(y), stats.norm.logpdf(y, MEAN, SD), rtol=1e-12)
    np.testing.assert_allclose(law.cdf(y), oracle.cdf(y), rtol=1e-12)
    np.testing.assert_allclose(law.quantile(0.9), oracle.ppf(0.9), rtol=1e-12)
    for level in (0.05, 0.5, 0.9, 0.999999):
        np.testing.assert_allclose(law.interval(level), oracle.interval(level), rtol=1e-9)
    np.testing.assert_allclose(law.var, oracle.var(), rtol=1e-14)


def test_gaussian_tails_are_right_where_naive_forms_give_zero() -> None:
    z = np.array([-37.0, -30.0, -12.0, -8.5])
    law = GaussianLaw(np.zeros(4), np.ones(4))
    np.testing.assert_allclose(law.cdf(z), [0.5 * math.erfc(-t / math.sqrt(2)) for t in z], 1e-11)
    assert law.cdf(-30.0)[0] == pytest.approx(4.906713927148187e-198, rel=1e-12)
    np.testing.assert_allclose(law.log_prob(1e6 * z), -0.5 * 1e12 * z**2, rtol=1e-11)
    assert law.log_prob(1e6 * z).min() < -1e14
    np.testing.assert_allclose(law.quantile(law.cdf(z)).diagonal(), z, rtol=1e-12)


def test_what_lies_above_keeps_its_digits_where_one_minus_the_cdf_has_none() -> None:
    z = np.array([-2.0, 0.0, 8.5, 12.0, 37.0])
    law = GaussianLaw(np.full(5, 1.0), np.full(5, 2.0))
    above = law.sf(1.0 + 2.0 * z)
    np.testing.assert_allclose(above, [0.5 * math.erfc(t / math.sqrt(2)) for t in z], 1e-11)
    assert (above > 0.0).all()
    assert np.isnan(law.sf([1.0, np.nan, 2.0, 3.0, 4.0])[1])
    tail = np.log([1.0, 1e-30, 1e-40])
    ordinal = OrdinalLaw(np.stack([tail, tail]))
    np.testing.assert_allclose(ordinal.sf(0), 1e-30 + 1e-40, rtol=1e-14)
    np.testing.assert_allclose(ordinal.sf([1, 2]), [1e-40, 0.0], rtol=1e-14)
    assert EventLaw(np.log([[1.0 - 1e-12, 1e-12]])).sf(0)[0] == pytest.approx(1e-12, rel=1e-13)
    for law_ in (ORDINAL, EVENT):
        for r in range(law_.num_classes):
            np.testing.assert_allclose(law_.sf(r) + law_.cdf(r), 1.0, rtol=1e-12)
    assert np.isnan(ORDINAL.sf(-1)).all()


def test_quantile_and_interval_follow_the_shape_of_the_level() -> None:
    p = np.array([0.1, 0.5, 0.9])
    table = GAUSSIAN.quantile(p)
    assert table.shape == (N, 3)
    assert GAUSSIAN.quantile(0.1).shape == (N,)
    for j, level in enumerate(p):
        np.testing.assert_array_equal(table[:, j], GAUSSIAN.quantile(level))
        np.testing.assert_allclose(GAUSSIAN.cdf(table[:, j]), level, rtol=1e-12)
    np.testing.assert_array_equal(table[:, 1], MEAN)
    lower, upper = GAUSSIAN.interval(p)
    assert lower.shape == upper.shape == (N, 3)
    np.testing.assert_allclose(upper[:, 2], GAUSSIAN.quantile(0.95), rtol=1e-12)
    np.testing.assert_allclose(lower[:, 2], GAUSSIAN.quantile(0.05), rtol=1e-12)
    assert np.isneginf(GAUSSIAN.quantile(0.0)).all()
    assert np.isposinf(GAUSSIAN.quantile(1.0)).all()


@pytest.mark.parametrize("p", [-0.1, 1.1, np.nan, [0.5, 2.0], [[0.5]]])
@pytest.mark.parametrize("ask", [GAUSSIAN.quantile, GAUSSIAN.interval, ORDINAL.quantile])
def test_impossible_levels_are_refused(ask: Callable, p: Any) -> None:
    with pytest.raises(ValueError, match=r"between 0 and 1|1-d array"):
        ask(p)


def test_variance_splits_into_noise_and_belief() -> None:
    assert GAUSSIAN.noise_var is not None
    assert GAUSSIAN.belief_var is not None
    np.testing.assert_allclose(GAUSSIAN.noise_var + GAUSSIAN.belief_var, GAUSSIAN.var, rtol=1e-14)
    np.testing.assert_allclose(GAUSSIAN.belief_var, 0.7 * SD**2, rtol=1e-12)
    assert GaussianLaw(MEAN, SD).noise_var is None
    assert GaussianLaw(MEAN, SD).belief_var is None


def test_a_point_estimate_has_no_belief_variance_whatever_the_rounding() -> None:
    noise_var = np.exp(np.linspace(-20.0, 20.0, 400, dtype=np.float32))
    sd = np.sqrt(noise_var)
    assert (sd.astype(float) ** 2 < noise_var).any(), "no row where rounding goes below zero"
    belief_var = GaussianLaw(np.zeros(400), sd, noise_var=noise_var).belief_var
    assert belief_var is not None
    assert (belief_var >= 0.0).all()
    np.testing.assert_array_less(belief_var, 1e-6 * noise_var)


def test_effective_weight_is_the_coefficient_of_the_squared_error() -> None:
    step = np.linspace(0.5, 3.0, N)
    rise = GAUSSIAN.log_prob(MEAN) - GAUSSIAN.log_prob(MEAN + step)
    np.testing.assert_allclose(GAUSSIAN.effective_weight * step**2, rise, rtol=1e-12)


def test_float32_goes_in_and_float64_is_computed() -> None:
    mean, sd = MEAN.astype(np.float32), SD.astype(np.float32)
    law = GaussianLaw(jnp.asarray(mean), jnp.asarray(sd))
    oracle = stats.norm.logpdf(0.25, mean.astype(float), sd.astype(float))
    np.testing.assert_allclose(law.log_prob(0.25), oracle, rtol=1e-14)
    assert law.mean.dtype == law.cdf(jnp.float32(0.25)).dtype == np.float64
    assert OrdinalLaw(np.log(PROBS).astype(np.float32)).probs.dtype == np.float64


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((MEAN, SD[:3]), r"\(7,\), sd has shape \(3,\)"),
        ((MEAN[:, None], SD), r"mean has shape \(7, 1\), need \(N,\)"),
        ((1.0, 2.0), r"shape \(\), need \(N,\)"),
        (([0.0, 1.0], [1.0, 0.0]), r"row 1 has mean 1, sd 0"),
        (([0.0], [-1.0]), r"sd -1"),
        (([0.0], [np.inf]), r"finite sd"),
        (([np.inf], [1.0]), r"finite mean"),
        (([0.0, np.nan], [1.0, 1.0]), r"mean is NaN, first in row 1"),
        (([0.0], [1.0], 1.01), r"noise_var 1.01, sd\^2 1"),
        (([0.0], [1.0], -0.1), r"noise_var -0.1"),
        (([0.0], [1.0], [0.5, 0.5]), r"noise_var has shape \(2,\), need a scalar or \(1,\)"),
        (([0.0], [1.0], np.nan), r"noise_var is NaN"),
    ],
)
def test_impossible_gaussians_are_refused(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GaussianLaw(*arguments)


# Discrete


@pytest.mark.parametrize("law", DISCRETE, ids=kind)
def test_discrete_masses_are_read_class_by_class(law: DiscreteLaw) -> None:
    y = np.arange(N) % law.num_classes
    table = np.exp(law.log_probs)
    np.testing.assert_allclose(law.probs, table, rtol=1e-15)
    for n in range(N):
        assert law.log_prob(y)[n] == law.log_probs[n, y[n]]
        assert law.log_prob(1)[n] == law.log_probs[n, 1]
        assert law.mode[n] == max(range(law.num_classes), key=lambda r: table[n, r])


@pytest.mark.parametrize("law", [ORDINAL, EVENT], ids=kind)
def test_ordered_cdf_and_quantile_against_brute_force(law: OrdinalLaw | EventLaw) -> None:
    classes = range(law.num_classes)
    for r in classes:
        expected = [sum(row[: r + 1]) for row in law.probs]
        np.testing.assert_allclose(law.cdf(r), expected, rtol=1e-14)
    assert (law.cdf(law.num_classes - 1) == 1.0).all()
    levels = np.array([0.0, 0.013, 0.31, 0.5, 0.77, 0.9991, 1.0])
    table = law.quantile(levels)
    assert table.shape == (N, len(levels))
    for n in range(N):
        cdf = [law.cdf(r)[n] for r in classes]
        for j, p in enumerate(levels):
            assert table[n, j] == next(r for r in classes if cdf[r] >= p)
    np.testing.assert_array_equal(law.quantile(0.5), table[:, 3])


def test_a_quantile_at_a_jump_is_the_class_that_reaches_it() -> None:
    law = OrdinalLaw(np.log([[0.25, 0.25, 0.5]]))
    assert law.cdf(0)[0] == 0.25, "the tie must be exact"
    assert law.quantile([0.25, np.nextafter(0.25, 1.0)]).tolist() == [[0, 1]]


def test_event_prob_is_the_mass_of_class_one() -> None:
    np.testing.assert_allclose(EVENT.prob, PROBS[:, 0], rtol=1e-14)
    np.testing.assert_array_equal(EVENT.log_prob(np.full(N, True)), EVENT.log_prob(1))
    np.testing.assert_allclose(EVENT.cdf(0), 1.0 - EVENT.prob, rtol=1e-12)


def test_log_masses_survive_where_probabilities_vanish() -> None:
    law = OrdinalLaw([[-1000.0, -2000.0, 0.0], [-np.inf, math.log(0.5), math.log(0.5)]])
    np.testing.assert_array_equal(law.log_prob([1, 0]), [-2000.0, -np.inf])
    assert law.probs[0, 1] == 0.0
    assert mix([law, law]).log_prob([1, 0]).tolist() == [-2000.0, -np.inf]


@pytest.mark.parametrize(
    ("build", "log_probs", "message"),
    [
        (OrdinalLaw, PROBS, "sum to .*, not 1; log_probs are log-probabilities"),
        (OrdinalLaw, np.log(PROBS[0]), r"shape \(4,\), need \(N, R\)"),
        (OrdinalLaw, np.zeros((3, 1)), r"shape \(3, 1\), need R >= 2"),
        (CategoricalLaw, np.full((2, 3), np.nan), "log_probs is NaN, first in row 0"),
        (CategoricalLaw, np.full((2, 3), -np.inf), "sum to 0, not 1"),
        (EventLaw, np.log(PROBS), r"shape \(7, 4\), need \(N, 2\)"),
    ],
)
def test_impossible_masses_are_refused(build: type, log_probs: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(log_probs)


# Labels


MISSING_REAL = [
    np.array([0.5, np.nan, 1.5]),
    np.array([0.5, None, 1.5], dtype=object),
    [0.5, None, 1.5],
    pd.Series([0.5, None, 1.5]),
    pd.Series([0.5, pd.NA, 1.5], dtype="Float64"),
]
MISSING_CLASS = [
    np.array([0, -1, 2]),
    np.array([0, -7, 2], dtype=np.int8),
    np.array([0.0, np.nan, 2.0]),
    [0, None, 2],
    pd.Series([0, pd.NA, 2], dtype="Int64"),
    pd.Series([0, None, 2], index=[5, 3, 9]),
    jnp.array([0, -1, 2]),
]


@pytest.mark.parametrize("y", MISSING_REAL)
def test_a_missing_value_is_nan_and_leaves_the_others_alone(y: Any) -> None:
    law = GAUSSIAN[:3]
    whole = np.array([0.5, 0.0, 1.5])
    for ask in (law.log_prob, law.cdf):
        got, expected = ask(y), ask(whole)
        assert np.isnan(got).tolist() == [False, True, False]
        np.testing.assert_array_equal(got[[0, 2]], expected[[0, 2]])


@pytest.mark.parametrize("y", MISSING_CLASS)
def test_a_missing_class_is_nan_and_leaves_the_others_alone(y: Any) -> None:
    law = ORDINAL[:3]
    for ask in (law.log_prob, law.cdf):
        got, expected = ask(y), ask([0, 1, 2])
        assert np.isnan(got).tolist() == [False, True, False]
        np.testing.assert_array_equal(got[[0, 2]], expected[[0, 2]])


def test_all_labels_may_be_missing() -> None:
    assert np.isnan(GAUSSIAN.log_prob([None] * N)).all()
    assert np.isnan(GAUSSIAN.log_prob(np.nan)).all()
    assert np.isnan(EVENT.log_prob([None] * N)).all()
    assert np.isnan(EVENT.log_prob(-1)).all()


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([0, 1, 4, 9, 0, 0, 0], r"y\[2\] = 4 is no class \(2 of 7 rows.*integers 0 to 3"),
        ([0, 1, 0.5, 0, 0, 0, 0], r"y\[2\] = 0.5 is no class"),
        ([0, np.inf, 0, 0, 0, 0, 0], r"y\[1\] = inf is no class"),
        (["low"] * 7, "must hold numbers"),
        (np.array(["1"] * 7, dtype=object), "must hold numbers, got string"),
        (np.zeros(3), r"shape \(3,\), but the law holds 7 forecasts"),
        (np.zeros((7, 1)), r"shape \(7, 1\).*shape \(7,\), such as one column"),
    ],
)
def test_labels_that_are_no_class_are_refused(y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ORDINAL.log_prob(y)


@pytest.mark.parametrize("y", [np.zeros(3), np.zeros((7, 1)), np.zeros((1, 7))])
def test_values_of_another_shape_are_refused(y: np.ndarray) -> None:
    for ask in (GAUSSIAN.log_prob, GAUSSIAN.cdf):
        with pytest.raises(ValueError, match="but the law holds 7 forecasts"):
            ask(y)


def test_label_readers_name_the_column() -> None:
    with pytest.raises(ValueError, match=r"regime\[0\] = 5 is no class"):
        class_labels([5], 1, 3, name="regime")
    with pytest.raises(ValueError, match=r"state has shape \(2,\)"):
        real_labels([5.0, 1.0], 1, name="state")


# What every law does


@pytest.mark.parametrize("law", LAWS, ids=kind)
@pytest.mark.parametrize(
    "index",
    [slice(2, 5), slice(None, None, -2), np.array([4, 4, 0]), [1, 2], np.arange(N) > 3, -1, []],
    ids=str,
)
def test_slicing_picks_rows_of_every_field(law: Law, index: Any) -> None:
    part = law[index]
    rows = np.atleast_1d(np.arange(N)[index])
    assert type(part) is type(law)
    assert len(part) == len(rows)
    for name, value in fields(law).items():
        np.testing.assert_array_equal(fields(part)[name], value[rows])


def test_masks_of_other_libraries_are_understood() -> None:
    mask = np.arange(N) % 2 == 0
    for index in (pd.Series(mask), jnp.asarray(mask), mask.tolist()):
        np.testing.assert_array_equal(GAUSSIAN[index].mean, MEAN[mask])


@pytest.mark.parametrize("law", LAWS, ids=kind)
def test_indexing_ends_where_the_law_ends(law: Any) -> None:
    assert len([*law]) == N
    for bad in (N, 0.5, None, (0, 0), np.zeros(N + 1, dtype=bool), np.zeros((2, 2), dtype=int)):
        with pytest.raises(IndexError):
            law[bad]


@pytest.mark.parametrize("law", LAWS, ids=kind)
def test_laws_are_immutable_and_own_their_numbers(law: Law) -> None:
    for name, value in fields(law).items():
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(law, name, value)
        with pytest.raises(ValueError, match="read-only"):
            value[0] = 0.0
    mean = np.zeros(2)
    own = GaussianLaw(mean, np.ones(2))
    mean[0] = 5.0
    assert own.mean[0] == 0.0
    twin = copy.deepcopy(law)
    for name, value in fields(law).items():
        np.testing.assert_array_equal(fields(twin)[name], value)


@pytest.mark.parametrize("law", LAWS, ids=kind)
def test_an_empty_law_answers_emptily(law: Law) -> None:
    empty = law[:0]
    assert len(empty) == len(empty.to_frame()) == 0
    assert empty.log_prob(np.zeros(0)).shape == (0,)
    assert empty.sample(jax.random.key(0), 3).shape == (3, 0)


def test_frames_have_one_row_a_forecast() -> None:
    frame = GAUSSIAN.to_frame()
    assert [*frame] == ["mean", "sd", "lower", "upper"]
    np.testing.assert_array_equal(frame["upper"], GAUSSIAN.interval(0.9)[1])
    np.testing.assert_array_equal(GAUSSIAN.to_frame(level=0.5)["lower"], GAUSSIAN.interval(0.5)[0])
    frame = ORDINAL.to_frame()
    assert [*frame] == ["prob_0", "prob_1", "prob_2", "prob_3", "mode"]
    np.testing.assert_array_equal(frame.iloc[:, :R], ORDINAL.probs)
    np.testing.assert_array_equal(frame["mode"], ORDINAL.mode)
    assert [*EVENT.to_frame()] == ["prob", "mode"]
    np.testing.assert_array_equal(EVENT.to_frame()["prob"], EVENT.prob)


@pytest.mark.parametrize("law", LAWS, ids=kind)
def test_a_law_is_no_array(law: Law) -> None:
    what = "law.mean, law.quantile(p)" if law is GAUSSIAN else "law.probs, law.mode"
    for ask in (np.asarray, np.array, lambda law: np.asarray(law, dtype=float)):
        with pytest.raises(TypeError) as caught:
            ask(law)
        assert str(caught.value) == (
            f"a {kind(law)} holds 7 distributions, which are no array: ask for {what}, "
            "law.sample(n, seed=0) or law.to_frame()"
        )


@pytest.mark.parametrize("law", LAWS, ids=kind)
def test_a_table_has_the_index_that_the_law_was_given(law: Any) -> None:
    assert law.index is None
    assert isinstance(law.to_frame().index, pd.RangeIndex)
    when = pd.date_range("2024-01-01", periods=N, freq="h", name="when")
    placed = law._at_index(when)
    assert law.index is None
    assert placed.to_frame().index is when
    for index in (slice(2, 5), [3, 1], 4, np.arange(N) > 3):
        part = placed[index]
        np.testing.assert_array_equal(part.to_frame().index, np.atleast_1d(when[index]))
        np.testing.assert_array_equal(part.to_frame(), law[index].to_frame())
    np.testing.assert_array_equal(mix([placed, placed]).index, when)
    assert mix([placed, law]).index is None


@pytest.mark.parametrize("law", LAWS, ids=kind)
def test_a_law_keeps_the_distance_of_its_inputs(law: Any) -> None:
    assert law.extrapolation is None
    distance = np.arange(N) / 2.0
    placed = law._at_inputs(None, distance)
    assert law.extrapolation is None
    assert law[1:].extrapolation is None
    for index in (slice(2, 5), [3, 1], 4, np.arange(N) > 3):
        np.testing.assert_array_equal(placed[index].extrapolation, np.atleast_1d(distance[index]))
    # A mixture is as far out as the farthest of its laws that knows.
    farther = law._at_inputs(None, distance[::-1])
    for mixed in (mix, moment_matched):
        both = mixed([placed, law, farther]).extrapolation
        np.testing.assert_array_equal(both, np.maximum(distance, distance[::-1]))
        assert mixed([law, law]).extrapolation is None
    if isinstance(law, GaussianLaw):
        np.testing.assert_array_equal(placed.affine(1.0, 2.0).extrapolation, distance)


@pytest.mark.parametrize(("sign", "digits"), [(1, 401), (-1, 401), (1, 5001)])
def test_an_integer_that_no_float_holds_is_refused_by_its_place(sign: int, digits: int) -> None:
    huge = sign * 10 ** (digits - 1)
    y: Any = [0.0, 1, huge, None, 0, 0, 0]
    with pytest.raises(ValueError, match=f"y has a whole number of {digits} digits at position 2"):
        GAUSSIAN.log_prob(y)
    with pytest.raises(ValueError, match="which no float holds"):
        class_labels(huge, N, R)


def test_repr_is_short() -> None:
    assert [repr(law) for law in LAWS[:2]] == ["GaussianLaw(N=7)", "OrdinalLaw(N=7)"]


# Samples


@pytest.mark.parametrize("x64", [False, True])
def test_gaussian_samples_follow_the_cdf(x64: bool) -> None:
    """Kolmogorov-Smirnov per column; with a fresh key it would fail with chance 1e-3 in all."""
    with jax.enable_x64(x64):
        draws = GAUSSIAN.sample(jax.random.key(3), 4000)
        again = GAUSSIAN.sample(jax.random.key(3), 4000)
    assert draws.shape == (4000, N)
    np.testing.assert_array_equal(draws, again)
    for n in range(N):
        column = GAUSSIAN[np.full(4000, n)]
        assert stats.kstest(column.cdf(draws[:, n]), "uniform").pvalue > 1e-3 / N
    columns = np.corrcoef(draws.T) - np.eye(N)
    # Five standard errors of a correlation, 21 pairs: chance below 2e-5.
    assert np.abs(columns).max() < 5.0 / math.sqrt(4000)


@pytest.mark.parametrize("law", DISCRETE, ids=kind)
def test_discrete_samples_follow_the_masses(law: DiscreteLaw) -> None:
    """Chi-square over all cells; with a fresh key it would fail with chance 1e-3 per law."""
    n = 4000
    draws = law.sample(jax.random.key(4), n)
    assert draws.shape == (n, N)
    counts = np.stack([(draws == r).sum(axis=0) for r in range(law.num_classes)], axis=1)
    expected = n * law.probs
    assert expected.min() > 5.0, "too rare a class for the chi-square approximation"
    statistic = np.sum((counts - expected) ** 2 / expected)
    assert stats.chi2.sf(statistic, N * (law.num_classes - 1)) > 1e-3
    assert set(np.unique(draws)) <= set(range(law.num_classes))


@pytest.mark.parametrize("law", LAWS, ids=kind)
def test_draws_come_from_a_seed_or_a_key(law: Law) -> None:
    key = jax.random.key(5)
    want = law.sample(key, 3)  # the call of version 0.1
    assert want.shape == (3, N)
    for found in (
        law.sample(3, key=key),
        law.sample(key, n=3),
        law.sample(n=3, key=key),
        law.sample(3, seed=5),
        law.sample(3, 5),
        law.sample(n=3, seed=5),
        law.sample(jax.random.PRNGKey(5), 3),
    ):
        np.testing.assert_array_equal(found, want)
    whole: Any = np.int64(3)
    np.testing.assert_array_equal(law.sample(whole), law.sample(3, seed=0))
    assert (law.sample(20, seed=1) != law.sample(20, seed=2)).any()


def test_the_draws_of_a_key_are_those_of_version_one() -> None:
    key = jax.random.key(7)
    noise = np.asarray(jax.random.normal(key, (4, N)), np.float64)
    np.testing.assert_array_equal(GAUSSIAN.sample(key, 4), MEAN + SD * noise)
    classes = jax.random.categorical(key, np.log(PROBS), shape=(4, N), mode="high")
    np.testing.assert_array_equal(CATEGORICAL.sample(key, 4), classes)


@pytest.mark.parametrize(
    ("given", "named", "says"),
    [
        ((), {}, "n must be a number of draws >= 0, got None"),
        ((2.5,), {}, "n must be a number of draws >= 0, got 2.5"),
        ((-1,), {}, "got -1"),
        ((True,), {}, "got True"),
        ((3,), {"seed": -1}, r"seed must be a whole number from 0 to 2\*\*32 - 1, got -1"),
        ((3,), {"seed": None}, "seed must be a whole number"),
        ((3, np.random.default_rng(0)), {}, "seed must be a whole number"),
        ((3,), {"key": 5}, "key must be one key of jax.random, got 5"),
        ((jax.random.split(jax.random.key(0), 2), 3), {}, "n must be a number of draws"),
        ((3,), {"seed": 1, "key": jax.random.key(0)}, "a seed and a key"),
        ((jax.random.key(0),), {}, "n must be a number of draws"),
        ((3, 4, 5), {}, "3 arguments"),
        ((3,), {"n": 3}, r"1 arguments and \['n'\] by name"),
        ((3,), {"random_state": 3}, r"\['random_state'\] by name"),
    ],
)
def test_wrong_arguments_of_sample_are_told_in_one_sentence(
    given: tuple, named: dict, says: str
) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        GAUSSIAN.sample(*given, **named)
    assert "sample(n, seed=0)" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_impossible_classes_are_never_drawn() -> None:
    law = OrdinalLaw([[-np.inf, math.log(0.5), math.log(0.5)]])
    assert set(np.unique(law.sample(jax.random.key(1), 500))) == {1, 2}


# Ensembles


def test_one_gaussian_law_matches_the_moments_of_the_mixture() -> None:
    members = [
        GaussianLaw(m, s, noise_var=0.5 * s**2)
        for m, s in zip(RNG.normal(size=(5, N)), np.exp(RNG.normal(size=(5, N))), strict=True)
    ]
    mixed = moment_matched(members)
    means = np.stack([law.mean for law in members])
    second = np.mean([law.var + law.mean**2 for law in members], axis=0)
    np.testing.assert_allclose(mixed.mean, means.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(mixed.var, second - means.mean(axis=0) ** 2, rtol=1e-12)
    assert mixed.noise_var is not None
    np.testing.assert_allclose(mixed.noise_var, np.mean([m.var for m in members], axis=0) / 2)
    assert moment_matched([members[0], GaussianLaw(MEAN, SD)]).noise_var is None


def test_mixing_gaussians_far_from_zero_loses_nothing() -> None:
    mixed = moment_matched([GaussianLaw([1e9 - 1e-3], [1e-3]), GaussianLaw([1e9 + 1e-3], [1e-3])])
    gap = (1e9 + 1e-3) - (1e9 - 1e-3)
    # The second-moment form gives 0 or worse here: 1e18 has a spacing of 128.
    assert mixed.var[0] == pytest.approx(1e-6 + gap**2 / 4, rel=1e-3)


@pytest.mark.parametrize("law", DISCRETE, ids=kind)
def test_mixing_classes_averages_their_probabilities(law: DiscreteLaw) -> None:
    others = RNG.dirichlet(np.ones(law.num_classes), size=(3, N))
    members = [law, *(type(law)(np.log(p)) for p in others)]
    expected = (law.probs + others.sum(axis=0)) / 4.0
    np.testing.assert_allclose(mix(members).probs, expected, rtol=1e-12)
    assert type(mix(members)) is type(law)


@pytest.mark.parametrize("law", LAWS, ids=kind)
def test_mixing_a_law_with_itself_changes_nothing(law: Law) -> None:
    for name, value in fields(mix([law])).items():
        np.testing.assert_array_equal(value, fields(law)[name])
    for name, value in fields(moment_matched([law] * 5)).items():
        np.testing.assert_allclose(value, fields(law)[name], rtol=1e-13)


@pytest.mark.parametrize(
    ("laws", "message"),
    [
        ([], "at least one"),
        ([GAUSSIAN, ORDINAL], r"different kinds: \['GaussianLaw', 'OrdinalLaw'\]"),
        ([ORDINAL, CATEGORICAL], "different kinds"),
        ([GAUSSIAN, GAUSSIAN[:3]], r"different numbers of forecasts: \[7, 3\]"),
        ([ORDINAL, OrdinalLaw(EVENT.log_probs)], r"numbers of classes: \[2, 4\]"),
    ],
)
def test_laws_that_do_not_match_are_not_mixed(laws: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mix(laws)
