"""The sinh-arcsinh head and law against SciPy: a numerical change of variables, and integrals."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import norm

from scrollmt.heads import Gaussian, SinhArcsinh
from scrollmt.laws import MixtureLaw, SinhArcsinhLaw, mix

SHAPES = [(0.0, 1.0), (0.4, 0.7), (-0.8, 1.5), (0.2, 0.3)]
MEAN, SD = np.array([-0.7, 0.3, 2.0]), np.array([0.5, 1.2, 0.8])


def inverse(w: np.ndarray | float, epsilon: float, delta: float) -> np.ndarray:
    """y from w, by its definition with logarithms and powers."""
    root = (w + np.sqrt(np.square(w) + 1.0)) ** (1.0 / delta) * math.exp(epsilon / delta)
    return np.asarray(0.5 * (root - 1.0 / root))


@pytest.mark.parametrize(("epsilon", "delta"), SHAPES)
def test_the_density_is_that_of_a_changed_variable(epsilon: float, delta: float) -> None:
    """p(y) = p(w) / (dy/dw), with the slope by differences of the inverse map."""
    law = SinhArcsinhLaw(MEAN, SD, epsilon, delta)
    for z in (-2.5, -0.4, 0.0, 1.1, 3.0):
        w, h = MEAN + z * SD, 1e-3
        near = inverse(w + h, epsilon, delta) - inverse(w - h, epsilon, delta)
        far = inverse(w + 2 * h, epsilon, delta) - inverse(w - 2 * h, epsilon, delta)
        slope = (8.0 * near - far) / (12.0 * h)
        y = inverse(w, epsilon, delta)
        np.testing.assert_allclose(
            law.log_prob(y), norm.logpdf(w, MEAN, SD) - np.log(slope), rtol=1e-8, atol=1e-8
        )
        np.testing.assert_allclose(law.cdf(y), ndtr(z), rtol=1e-9)
        np.testing.assert_allclose(law.sf(y), ndtr(-z), rtol=1e-9)
        np.testing.assert_allclose(law.quantile(ndtr(z)), y, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(("epsilon", "delta"), SHAPES)
def test_density_integrates_to_the_distribution_function(epsilon: float, delta: float) -> None:
    law = SinhArcsinhLaw([0.5], [0.9], epsilon, delta)

    def at(x: float) -> float:
        """The density in x = arcsinh y, where its tails are short."""
        return float(np.exp(law.log_prob(math.sinh(x)))[0] * math.cosh(x))

    ends = np.arcsinh(law.quantile([1e-14, 1.0 - 1e-14]))[0]
    assert quad(at, *ends, epsabs=1e-12, limit=200)[0] == pytest.approx(1.0, abs=1e-9)
    for y in (-1.0, 0.2, 3.0):
        below = quad(at, ends[0], math.asinh(y), epsabs=1e-12, limit=200)[0]
        assert float(law.cdf(y)[0]) == pytest.approx(below, abs=1e-9)


@pytest.mark.parametrize(("epsilon", "delta"), [*SHAPES, (0.5, 0.2)])
@pytest.mark.parametrize("sd", [0.1, 1.0, 10.0])
def test_moments_agree_with_integrals(epsilon: float, delta: float, sd: float) -> None:
    law = SinhArcsinhLaw([0.7], [sd], epsilon, delta)

    def moment(power: int, centre: float) -> float:
        def integrand(z: float) -> float:
            value = float(inverse(0.7 + sd * z, epsilon, delta))
            return (value - centre) ** power * norm.pdf(z)

        bumps = [-0.7 / sd, 0.0]
        return quad(integrand, -13.0, 13.0, points=bumps, epsabs=0.0, epsrel=1e-12, limit=500)[0]

    mean = moment(1, 0.0)
    spread = math.sqrt(moment(2, mean))
    assert abs(float(law.mean[0]) - mean) < 1e-9 * spread
    assert float(law.sd[0]) == pytest.approx(spread, rel=1e-9)


def test_draws_have_the_law() -> None:
    """Kolmogorov's distance of 20 000 draws; it would be passed in 1 of 10 000 runs by chance."""
    law = SinhArcsinhLaw([0.5], [0.9], 0.4, 0.7)
    repeated = law[np.zeros(20_000, int)]
    levels = np.sort(repeated.cdf(law.sample(20_000, seed=3)[:, 0]))
    steps = np.arange(1, 20_001) / 20_000
    assert np.abs(levels - steps).max() < 2.23 / math.sqrt(20_000)


def test_at_the_start_it_is_a_gaussian() -> None:
    y, mean, var = np.linspace(-9.0, 9.0, 7), np.linspace(1.0, -1.0, 7), np.linspace(0.0, 2.0, 7)
    with jax.enable_x64(True):
        arguments = [jnp.asarray(a) for a in (y, mean, var)]
        got = SinhArcsinh(sigma_obs=0.5).log_predictive(*arguments)
        want = Gaussian(0.5).log_predictive(*arguments)
    np.testing.assert_allclose(got, want, rtol=1e-12)
    law, plain = SinhArcsinh().law(mean, var), Gaussian().law(mean, var)
    np.testing.assert_allclose(law.mean, plain.mean, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(law.sd, plain.sd, rtol=1e-9)
    np.testing.assert_allclose(law.crps(y), plain.crps(y), rtol=1e-3)


def test_labels_far_out_have_finite_scores_and_slopes() -> None:
    """Up to 1e15 in float32, where the square of a label is no float."""
    y = jnp.asarray([1e15, -1e15, 3e6, 0.0])
    head = SinhArcsinh(0.2, 0.4)

    def total(both: tuple[SinhArcsinh, jax.Array]) -> jax.Array:
        return jnp.sum(both[0].log_predictive(y, both[1], jnp.zeros(4)))

    got, slopes = jax.value_and_grad(total)((head, jnp.zeros(4)))
    assert np.isfinite(float(got))
    assert all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(slopes))
    law = head.law(np.zeros(4), np.zeros(4))
    single = np.asarray(head.log_predictive(y, jnp.zeros(4), jnp.zeros(4)))
    np.testing.assert_allclose(law.log_prob(np.asarray(y)), single, rtol=1e-4)
    assert np.isneginf(SinhArcsinhLaw([0.0], [1.0], 0.0, 2.0).log_prob(1e300)).all()


def test_members_are_mixed_exactly_and_units_change() -> None:
    laws = [SinhArcsinhLaw(MEAN, SD, 0.2, 0.8), SinhArcsinhLaw(MEAN + 1.0, SD, -0.1, 1.1)]
    both = mix([law.affine(10.0, 4.0) for law in laws])
    y = np.array([8.0, 12.0, 25.0])
    inner = [law.cdf((y - 10.0) / 4.0) for law in laws]
    np.testing.assert_allclose(both.cdf(y), np.mean(inner, axis=0), rtol=1e-12)
    assert isinstance(mix(laws), MixtureLaw)
    assert np.isnan(both.log_prob([np.nan, 1.0, 2.0])[0])


def test_bad_parameters_are_refused() -> None:
    for bad in ({"delta": 0.0}, {"delta": -1.0}, {"sigma_obs": 0.0}, {"epsilon": math.nan}):
        with pytest.raises(ValueError, match="SinhArcsinh needs a finite epsilon"):
            SinhArcsinh(**bad)
    with pytest.raises(ValueError, match=r"latent_mean has shape \(2,\), latent_sd has shape \(1"):
        SinhArcsinhLaw([0.0, 1.0], [1.0], 0.0, 1.0)
    with pytest.raises(ValueError, match=r"a finite delta > 0, got 0\.0, -1\.0"):
        SinhArcsinhLaw([0.0], [1.0], 0.0, -1.0)
    assert repr(SinhArcsinh(0.3)) == "SinhArcsinh()"
