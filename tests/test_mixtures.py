"""Mixtures of laws against SciPy's integrals, sums and roots, written out for one forecast."""

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
from scipy import integrate, optimize, stats

from scrollmt import GaussianLaw, frozen, mix
from scrollmt.heads import Poisson
from scrollmt.laws import (
    CategoricalLaw,
    CensoredLaw,
    CountLaw,
    GaussianMixtureLaw,
    HeadLaw,
    MixtureLaw,
    RealLaw,
    StudentTLaw,
    moment_matched,
)
from scrollmt.laws.joint import JointLaw
from scrollmt.laws.transformed import TransformedLaw
from scrollmt.transforms import Transform

# Two peaks, a narrow one on a wide one, two that merge, and one far from zero.
MEANS = np.array([[-2.0, 1.5, 0.0], [0.0, 0.1, 0.2], [-0.5, 0.5, 0.0], [1e6, 1e6 + 3.0, 1e6 - 4.0]])
SDS = np.array([[0.5, 0.7, 2.0], [3.0, 0.05, 1.0], [1.0, 1.0, 1.2], [0.5, 1.0, 0.3]])
SHARES = np.array([[0.5, 0.3, 0.2], [0.6, 0.3, 0.1], [0.4, 0.4, 0.2], [0.2, 0.7, 0.1]])
MEMBERS = [GaussianLaw(m, s, 0.25 * s**2) for m, s in zip(MEANS.T, SDS.T, strict=True)]
LAW = GaussianMixtureLaw(MEANS, SDS, SHARES)
# The same through the general class, which knows nothing of normals.
GENERAL = MixtureLaw(MEMBERS, SHARES.T)
BOTH = pytest.mark.parametrize("law", [LAW, GENERAL], ids=["gaussian", "general"])


def density(n: int) -> Callable[[Any], Any]:
    return lambda y: np.sum(
        SHARES[n] * stats.norm.pdf(np.asarray(y)[..., None], MEANS[n], SDS[n]), -1
    )


def cdf(n: int) -> Callable[[Any], Any]:
    return lambda y: np.sum(
        SHARES[n] * stats.norm.cdf(np.asarray(y)[..., None], MEANS[n], SDS[n]), -1
    )


def spans(n: int) -> np.ndarray:
    """Ends of pieces on which the functions of forecast n are smooth for a quadrature."""
    return np.unique(MEANS[n][:, None] + SDS[n][:, None] * np.linspace(-9.0, 9.0, 19))


def integral(f: Callable[[Any], Any], ends: np.ndarray) -> float:
    pieces = itertools.pairwise(ends)
    return sum(integrate.quad(f, a, b, epsabs=1e-13, epsrel=1e-12)[0] for a, b in pieces)


@BOTH
def test_densities_and_shares_are_weighted_sums(law: RealLaw) -> None:
    for offset in (-6.0, -0.3, 0.0, 0.9, 30.0):
        y = MEANS[:, 0] + offset
        with np.errstate(divide="ignore"):
            want = [np.log(density(n)(y[n])) for n in range(4)]
        finite = np.isfinite(want)
        np.testing.assert_allclose(law.log_prob(y)[finite], np.array(want)[finite], rtol=1e-9)
        np.testing.assert_allclose(law.cdf(y), [cdf(n)(y[n]) for n in range(4)], rtol=1e-12)
        np.testing.assert_allclose(law.sf(y) + law.cdf(y), 1.0, rtol=1e-14)
    # Far out a float holds no density, and the logarithm goes on.
    assert law.log_prob(MEANS[:, 0] + 300.0) == pytest.approx(
        [
            max(
                math.log(w) + stats.norm.logpdf(MEANS[n, 0] + 300.0, m, s)
                for w, m, s in zip(SHARES[n], MEANS[n], SDS[n], strict=True)
            )
            for n in range(4)
        ],
        rel=1e-9,
    )
    assert (law.sf(MEANS.max(axis=1) + 12.0) > 0.0).all()
    assert np.isnan(law.log_prob([np.nan, 0.0, 0.0, 0.0])).tolist() == [True, False, False, False]


@BOTH
def test_moments_are_integrals_over_the_density(law: RealLaw) -> None:
    for n in range(4):
        centre, ends = float(SHARES[n] @ MEANS[n]), spans(n)

        def power(y: float, k: int, n: int = n, centre: float = centre) -> float:
            return float((y - centre) ** k * density(n)(y))

        first, second = (integral(partial(power, k=k), ends) for k in (1, 2))
        assert law.mean[n] == pytest.approx(centre + first, rel=1e-12, abs=1e-9)
        assert law.sd[n] == pytest.approx(math.sqrt(second - first**2), rel=1e-8)


@BOTH
@pytest.mark.parametrize("p", [1e-12, 1e-4, 0.05, 0.5, 0.77, 0.95, 1.0 - 1e-9])
def test_quantiles_are_roots_of_the_distribution_function(law: RealLaw, p: float) -> None:
    for n in range(4):
        low, high = spans(n)[[0, -1]]
        want = optimize.brentq(lambda y, n=n: cdf(n)(y) - p, low, high, xtol=1e-15, rtol=1e-14)
        # Far to the right the distribution function itself is only known to 1e-16.
        slack = 1e-8 + 1e-15 / density(n)(want) / law.sd[n]
        assert abs(law.quantile(p)[n] - want) <= slack * law.sd[n]


def test_quantiles_keep_their_shapes_and_ends() -> None:
    assert LAW.quantile([0.1, 0.5, 0.9]).shape == (4, 3)
    assert LAW.quantile([0.0, 1.0])[0].tolist() == [-np.inf, np.inf]
    lower, upper = LAW.interval(0.9)
    np.testing.assert_allclose(LAW.cdf(upper) - LAW.cdf(lower), 0.9, rtol=1e-9)
    np.testing.assert_array_equal(LAW.median, LAW.quantile(0.5))
    same = mix([MEMBERS[0]] * 5)
    np.testing.assert_allclose(
        same.quantile([0.01, 0.6]), MEMBERS[0].quantile([0.01, 0.6]), rtol=1e-12
    )
    far = 10.0 ** np.arange(-300.0, -10.0, 40.0)
    np.testing.assert_allclose(same.quantile(far), MEMBERS[0].quantile(far), rtol=1e-9)


@pytest.mark.slow
@BOTH
def test_the_crps_is_the_integral_of_squared_gaps(law: RealLaw) -> None:
    for offset in (-7.0, 0.0, 0.4, 15.0):
        y = MEANS[:, 0] + offset
        for n in range(4):
            ends = np.unique(np.append(spans(n), y[n]))
            gap = lambda x, n=n, at=y[n]: (cdf(n)(x) - (x >= at)) ** 2  # noqa: E731
            tolerance = 1e-7 if law is LAW else 1e-4
            assert law.crps(y)[n] == pytest.approx(integral(gap, ends), rel=tolerance)
    assert np.isnan(law.crps([0.0, np.nan, 0.0, 0.0]))[1]


@BOTH
def test_modes_are_the_local_maxima(law: GaussianMixtureLaw | MixtureLaw) -> None:
    found = law.modes
    for n in range(4):
        low, high = spans(n)[[0, -1]]
        grid = np.linspace(low, high, 400_001)
        height = density(n)(grid)
        top = np.flatnonzero((height[1:-1] > height[:-2]) & (height[1:-1] >= height[2:])) + 1
        step = grid[1] - grid[0]
        mine = found[n][~np.isnan(found[n])]
        assert len(mine) == len(top)
        np.testing.assert_allclose(mine, grid[top], atol=2.0 * step)
        # No neighbour is higher: the maximum itself, not a place beside it.
        for x in mine:
            width = 1e-3 * SDS[n].min()
            assert density(n)(x) >= max(density(n)(x - width), density(n)(x + width))
    assert (~np.isnan(found)).sum(axis=1).tolist() == [2, 1, 1, 3]


def test_modes_of_equal_and_of_distant_components() -> None:
    same = GaussianMixtureLaw([[2.0, 2.0]], [[1.0, 3.0]])
    np.testing.assert_allclose(same.modes, [[2.0]], atol=1e-12)
    apart = GaussianMixtureLaw([[-500.0, 500.0]], [[1.0, 1.0]], [0.999, 0.001])
    np.testing.assert_allclose(apart.modes, [[-500.0, 500.0]], atol=1e-9)
    # Two normals of one sd have two modes from two sds on.
    assert GaussianMixtureLaw([[0.0, 1.98]], [[1.0, 1.0]]).modes.shape == (1, 1)
    assert GaussianMixtureLaw([[0.0, 2.05]], [[1.0, 1.0]]).modes.shape == (1, 2)
    assert LAW[:0].modes.shape[0] == 0


@BOTH
def test_draws_follow_the_weights(law: RealLaw) -> None:
    draws = law.sample(20_000, seed=4)
    assert draws.shape == (20_000, 4)
    # Fails by chance once in a thousand keys, and this key is fixed.
    for n in range(4):
        assert stats.kstest(draws[:, n], cdf(n)).pvalue > 1e-3 / 4.0
    np.testing.assert_array_equal(draws[:3], law.sample(20_000, key=jax.random.key(4))[:3])


def test_a_component_without_weight_has_no_part() -> None:
    law = mix(MEMBERS, [1.0, 0.0, 0.0])
    y = MEANS[:, 0] + 0.3
    for name in ("log_prob", "cdf", "sf", "crps"):
        np.testing.assert_allclose(getattr(law, name)(y), getattr(MEMBERS[0], name)(y), rtol=1e-10)
    general = MixtureLaw([StudentTLaw([0.0], [1.0], 1.0, 4.0), GaussianLaw([50.0], [1.0])], [1, 0])
    np.testing.assert_allclose(general.quantile(0.3), general.components[0].quantile(0.3))
    # Weights are those of laws, and of forecasts where there are as many.
    table = np.array([[1.0, 0.0, 0.0, 2.0], [0.0, 3.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]])
    chosen = mix(MEMBERS, table)
    np.testing.assert_allclose(chosen.mean, MEANS[np.arange(4), [0, 1, 2, 0]])


def test_mixing_gaussian_laws_gives_arrays() -> None:
    law = mix(MEMBERS, SHARES.T)
    assert isinstance(law, GaussianMixtureLaw)
    np.testing.assert_allclose(law.weights, SHARES)
    equal = mix(MEMBERS)
    np.testing.assert_allclose(equal.mean, MEANS.mean(axis=1))
    # A mixture of mixtures is one mixture, and the weights multiply.
    again = mix([law, MEMBERS[0]], [0.25, 0.75])
    assert isinstance(again, GaussianMixtureLaw)
    np.testing.assert_allclose(again.weights, np.column_stack([0.25 * SHARES, np.full(4, 0.75)]))
    y = MEANS[:, 0] - 0.2
    want = np.log(0.25 * np.exp(law.log_prob(y)) + 0.75 * np.exp(MEMBERS[0].log_prob(y)))
    np.testing.assert_allclose(again.log_prob(y), want, rtol=1e-12)
    assert not law.normal


def test_the_variance_is_split_into_noise_and_belief() -> None:
    for law in (mix(MEMBERS, SHARES.T), GENERAL):
        noise = np.sum(SHARES * 0.25 * SDS**2, axis=1)
        np.testing.assert_allclose(law.noise_var, noise, rtol=1e-12)
        np.testing.assert_allclose(law.belief_var, law.var - noise, rtol=1e-9)
    np.testing.assert_allclose(mix(MEMBERS).effective_weight, 0.5 / mix(MEMBERS).var)
    unknown = mix([MEMBERS[0], GaussianLaw(MEANS[:, 1], SDS[:, 1])])
    assert unknown.noise_var is None
    assert unknown.belief_var is None


@BOTH
def test_units_rows_tables_and_scipy_names(law: RealLaw) -> None:
    moved = law.affine(10.0, 3.0)
    y = MEANS[:, 0] + 0.7
    np.testing.assert_allclose(
        moved.log_prob(10.0 + 3.0 * y), law.log_prob(y) - math.log(3.0), rtol=1e-7
    )
    np.testing.assert_allclose(moved.sd, 3.0 * law.sd)
    assert moved.noise_var is None or law.noise_var is not None
    np.testing.assert_allclose(law[[2, 0]].cdf(0.3), law.cdf(0.3)[[2, 0]])
    placed = law._at_index(pd.Index([*"abcd"]))
    assert list(placed.to_frame()) == ["mean", "sd", "lower", "upper"]
    assert list(placed[1:].to_frame().index) == [*"bcd"]
    far = law._at_inputs(None, np.arange(4.0)).affine(1.0, 2.0)[1:]
    assert list(far.extrapolation) == [1.0, 2.0, 3.0]  # type: ignore[arg-type]
    view = frozen(law)
    np.testing.assert_allclose(view.pdf(y), np.exp(law.log_prob(y)))
    np.testing.assert_allclose(view.ppf(0.2), law.quantile(0.2))


def test_one_gaussian_law_for_several_and_for_what_lies_behind() -> None:
    one = moment_matched(MEMBERS)
    assert isinstance(one, GaussianLaw)
    exact = mix(MEMBERS)
    np.testing.assert_allclose([one.mean, one.sd], [exact.mean, exact.sd], rtol=1e-12)
    limited = [CensoredLaw(law, 0.0) for law in MEMBERS]
    np.testing.assert_allclose(moment_matched(limited).latent.sd, one.sd)
    scaled = [TransformedLaw(law, Transform(("log",))) for law in MEMBERS[:2]]
    matched = moment_matched(scaled).law
    np.testing.assert_allclose(matched.median, moment_matched(MEMBERS[:2]).mean)
    np.testing.assert_allclose(mix(scaled).law.median, mix(MEMBERS[:2]).median)
    counts = [CountLaw([0.3], [0.1]), CountLaw([1.3], [0.1])]
    np.testing.assert_array_equal(moment_matched(counts).log_prob(2), mix(counts).log_prob(2))


def test_a_mixture_of_censored_laws_is_exact() -> None:
    laws = [CensoredLaw(law, -1.0, 2.0) for law in MEMBERS[:2]]
    law = mix([one[:1] for one in laws], [0.3, 0.7])
    # The same as the general mixture, which knows of no limits.
    general = MixtureLaw([one[:1] for one in laws], [0.3, 0.7])
    for found, expected in ((law.mean, general.mean), (law.sd, general.sd)):
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(law.quantile([0.1, 0.9]), general.quantile([0.1, 0.9]))
    np.testing.assert_allclose(law.crps(0.3), general.crps(0.3), rtol=1e-3)
    assert isinstance(law, CensoredLaw)
    np.testing.assert_allclose([law.below, law.above], [law.cdf(-1.0), 1.0 - law.latent.cdf(2.0)])
    below = [stats.norm.cdf(-1.0, MEANS[0, m], SDS[0, m]) for m in (0, 1)]
    assert law.log_prob(-1.0)[0] == pytest.approx(math.log(0.3 * below[0] + 0.7 * below[1]))
    pair = np.array([[-np.inf, 0.5]])
    upto = [stats.norm.cdf(0.5, MEANS[0, m], SDS[0, m]) for m in (0, 1)]
    assert law.log_prob(pair)[0] == pytest.approx(math.log(0.3 * upto[0] + 0.7 * upto[1]))

    def share(x: float) -> float:
        return float(np.array([0.3, 0.7]) @ stats.norm.cdf(x, MEANS[0, :2], SDS[0, :2]))

    want = integral(lambda x: (share(x) - (x >= 0.4)) ** 2, np.array([-1.0, 0.4, 2.0]))
    assert law.crps([0.4])[0] == pytest.approx(want, rel=1e-4)
    with pytest.raises(ValueError, match="modes are those of a density"):
        general.modes  # noqa: B018


def test_weights_reach_every_kind_of_law() -> None:
    weights, y = [0.2, 0.8], [1, 0]
    table = np.log([[0.1, 0.9], [0.6, 0.4]])
    classes = mix([CategoricalLaw(table), CategoricalLaw(table[::-1])], weights)
    want = 0.2 * np.exp(table) + 0.8 * np.exp(table[::-1])
    np.testing.assert_allclose(classes.probs, want)
    for laws in (
        [CountLaw([0.1, 0.2], [0.3, 0.1]), CountLaw([1.0, 2.0], [0.1, 0.1], 0.4)],
        [
            StudentTLaw([0.1, 0.2], [0.3, 0.1], 1.0, 4.0),
            StudentTLaw([1.0, 2.0], [0.1, 0.1], 0.4, 9.0),
        ],
        [HeadLaw(Poisson(), [0.1, 0.2], [0.3, 0.1]), HeadLaw(Poisson(), [1.0, 2.0], [0.1, 0.1])],
    ):
        mixed = mix(laws, weights)
        parts = [np.exp(law.log_prob(y)) for law in laws]
        np.testing.assert_allclose(np.exp(mixed.log_prob(y)), 0.2 * parts[0] + 0.8 * parts[1])
        unequal = mix([mix(laws), laws[0]])
        np.testing.assert_allclose(np.exp(unequal.log_prob(y)), 0.75 * parts[0] + 0.25 * parts[1])
    joint = [JointLaw(["a", "b"], np.full((1, 2), m), [np.eye(2)]) for m in (0.0, 1.0)]
    both = mix(joint, weights)
    np.testing.assert_allclose(both.mean, [[0.8, 0.8]])
    np.testing.assert_allclose(both.cov, [np.eye(2) + 0.16])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mix(MEMBERS, [0.5, 0.5]), r"weights has shape \(2,\), need \(3,\), one per law"),
        (lambda: mix(MEMBERS, [1.0, -1.0, 1.0]), "finite and >= 0"),
        (lambda: mix(MEMBERS, [0.0, 0.0, 0.0]), "sum > 0"),
        (lambda: MixtureLaw([MEMBERS[0], MEMBERS[1][:2]]), "one length"),
        (lambda: GaussianMixtureLaw(MEANS, SDS[:, :2]), r"means has shape \(4, 3\), sds"),
        (lambda: GaussianMixtureLaw(MEANS, -SDS), "need sds > 0, row 0"),
        (lambda: GaussianMixtureLaw(MEANS, SDS, np.ones(4)), r"weights has shape \(4,\)"),
    ],
)
def test_what_is_no_mixture_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_the_entropy_of_a_frozen_mixture() -> None:
    law = GaussianLaw(np.array([0.0, 1.0]), np.array([1.0, 0.2]))
    expected = stats.norm(law.mean, law.sd).entropy()
    np.testing.assert_allclose(frozen(mix([law, law])).entropy(), expected, atol=2e-4)
