"""Bucket masses against quadrature of an integrand that cannot cancel, far into both tails."""

import math
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import erfcx

from helpers import central_gradient
from scrollmt._numerics.normal import log_bucket_mass, mills_ratio, padded_size

NODES, WEIGHTS = np.polynomial.legendre.leggauss(24)


def integral(f: Callable[[np.ndarray], np.ndarray], length: float, panels: int = 24) -> float:
    """Gauss-Legendre over (0, length), panel by panel; every term is positive."""
    edges = np.linspace(0.0, length, panels + 1)
    half = 0.5 * np.diff(edges)[:, None]
    t = edges[:-1, None] + half * (NODES + 1.0)
    return math.fsum((half * WEIGHTS * f(t)).ravel())


def oracle(lo: float, hi: float) -> tuple[float, float, float]:
    """Log mass of (lo, hi) and its derivatives by both edges, good to about 1e-13."""
    x1, x2 = (lo, hi) if lo + hi > 0.0 else (-hi, -lo)
    if x1 >= 0.0:
        # Beyond the cut the integrand is under exp(-50).
        length = min(x2 - x1, 10.0, 50.0 / max(x1, 1e-300))
        scaled = integral(lambda t: np.exp(-x1 * t - 0.5 * t * t), length)
        value = -0.5 * x1 * x1 - 0.5 * math.log(2.0 * math.pi) + math.log(scaled)
    else:
        outside = 0.5 * math.erfc(-x1 / math.sqrt(2.0)) + 0.5 * math.erfc(x2 / math.sqrt(2.0))
        if outside < 0.5:
            value = math.log1p(-outside)
        else:
            inside = integral(lambda t: np.exp(-0.5 * (x1 + t) ** 2), x2 - x1)
            value = math.log(inside) - 0.5 * math.log(2.0 * math.pi)

    def density_over_mass(x: float) -> float:
        exponent = -0.5 * x * x - 0.5 * math.log(2.0 * math.pi) - value
        return math.exp(exponent) if exponent > -745.0 else 0.0

    return value, -density_over_mass(lo), density_over_mass(hi)


def buckets(dtype: type) -> tuple[np.ndarray, np.ndarray]:
    """Edges out to 30 on either side, widths from 1e-5 to infinite, as that precision has them."""
    starts = [0.0, 1e-3, 0.03, 0.3, 0.9, 1.1, 2.0, 3.7, 5.5, 8.0, 13.0, 21.0, 29.9]
    widths = [1e-5, 1e-4, 9e-4, 2e-3, 0.02, 0.04, 0.06, 0.3, 1.0, 4.0, 25.0, np.inf]
    tail = [(a, a + w) for a in starts for w in widths if a + w <= 30.0 or np.isinf(w)]
    # Zero inside, off centre, among them some of which one side is nearly empty.
    lefts = [1e-6, 1e-3, 0.01, 0.2, 1.0, 3.0, 8.0, 30.0]
    rights = [2e-6, 1e-3, 0.02, 0.5, 1.3, 5.0, 30.0, np.inf]
    straddling = [(-a, b) for a in lefts for b in rights]
    edges: np.ndarray = np.array([*tail, *straddling], dtype=dtype)
    edges = edges[edges[:, 0] < edges[:, 1]]
    both = np.concatenate([edges, -edges[:, ::-1]])
    return both[:, 0], both[:, 1]


log_mass = jax.jit(log_bucket_mass)
with_slopes = jax.jit(jax.vmap(jax.value_and_grad(log_bucket_mass, argnums=(0, 1))))


def value_and_slopes(
    lo: np.ndarray, hi: np.ndarray
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    value, slopes = with_slopes(jnp.asarray(lo), jnp.asarray(hi))
    return np.asarray(value), (np.asarray(slopes[0]), np.asarray(slopes[1]))


def check(dtype: type, rtol: float, tiny: float) -> None:
    lo, hi = buckets(dtype)
    want = np.array([oracle(float(a), float(b)) for a, b in zip(lo, hi, strict=True)])
    value, (by_lo, by_hi) = value_and_slopes(lo, hi)
    assert value.dtype == dtype
    # A log mass or a slope smaller than the smallest normal number may come out as zero.
    np.testing.assert_allclose(value, want[:, 0], rtol=rtol, atol=tiny)
    np.testing.assert_allclose(by_lo, want[:, 1], rtol=rtol, atol=tiny)
    np.testing.assert_allclose(by_hi, want[:, 2], rtol=rtol, atol=tiny)


def test_log_bucket_mass_and_slopes_in_float32_out_to_30() -> None:
    check(np.float32, rtol=2e-5, tiny=1e-37)


def test_log_bucket_mass_and_slopes_in_float64_out_to_30() -> None:
    with jax.enable_x64(True):
        check(np.float64, rtol=1e-10, tiny=1e-300)


def test_the_oracle_agrees_with_known_values() -> None:
    # Phi(1) - Phi(-1) and the mean of a normal beyond 2, from tables.
    assert oracle(-1.0, 1.0)[0] == pytest.approx(math.log(0.6826894921370859), rel=1e-14)
    assert -oracle(2.0, np.inf)[1] == pytest.approx(2.3732155328228, rel=1e-13)


def test_the_trap_of_subtracting_two_distribution_functions() -> None:
    value = log_mass(jnp.float32(5.5), jnp.float32(6.5))
    assert value.dtype == jnp.float32
    assert float(value) == pytest.approx(-17.78149343836637, rel=1e-6)


@pytest.mark.parametrize(("x64", "rtol"), [(False, 5e-7), (True, 1e-13)])
def test_mills_ratio_agrees_with_scipy(x64: bool, rtol: float) -> None:
    with jax.enable_x64(x64):
        x = np.concatenate([np.linspace(0.0, 12.0, 401), np.geomspace(12.0, 1e12, 60)])
        x = x.astype(np.float64 if x64 else np.float32)
        got = np.asarray(jax.jit(mills_ratio)(jnp.asarray(x)))
        exact = x.astype(np.float64)
        np.testing.assert_allclose(
            got, math.sqrt(math.pi / 2.0) * erfcx(exact / math.sqrt(2.0)), rtol=rtol
        )
        assert float(mills_ratio(jnp.asarray(np.inf))) == 0.0


@pytest.mark.parametrize("x64", [False, True])
def test_infinite_edges_carry_no_density(x64: bool) -> None:
    with jax.enable_x64(x64):
        lo = np.array([-np.inf, -np.inf, 3.0, -3.0])
        hi = np.array([np.inf, 1.5, np.inf, np.inf])
        value, (by_lo, by_hi) = value_and_slopes(lo, hi)
        assert value[0] == 0.0
        np.testing.assert_array_equal(by_lo[:2], 0.0)
        np.testing.assert_array_equal(by_hi[[0, 2, 3]], 0.0)
        assert np.isfinite(value).all()
        assert (by_lo[2:] < 0.0).all()
        assert by_hi[1] > 0.0


def test_second_derivatives_agree_with_differences_of_the_first() -> None:
    with jax.enable_x64(True):
        slopes = jax.jit(jax.grad(lambda e: log_bucket_mass(e[0], e[1])))

        def one_slope(i: int, edges: np.ndarray) -> float:
            return float(slopes(jnp.asarray(edges))[i])

        hessian = jax.jit(jax.hessian(lambda e: log_bucket_mass(e[0], e[1])))
        # One bucket of every branch: tail, straddling, narrow, far, both mirrored.
        for edges in ([0.5, 1.5], [-0.4, 1.1], [2.0, 2.0005], [12.0, 14.0], [-9.0, -7.5]):
            at = np.array(edges)
            step = 1e-3 * min(1.0, at[1] - at[0])
            got = np.asarray(hessian(jnp.asarray(at)))
            for i in range(2):
                want = central_gradient(partial(one_slope, i), at, step)
                noise = 1e-9 * np.abs(want).max()  # of the differences
                np.testing.assert_allclose(got[i], want, rtol=1e-7, atol=noise, err_msg=f"{edges}")
        # One open edge: the curvature is that of a single log Phi, and nothing is NaN.
        one_sided = np.asarray(hessian(jnp.array([2.0, jnp.inf])))
        hazard = -oracle(2.0, np.inf)[1]
        want = np.diag([hazard * (2.0 - hazard), 0.0])
        np.testing.assert_allclose(one_sided, want, rtol=1e-10)


@pytest.mark.parametrize(("x64", "atol"), [(False, 5e-7), (True, 1e-14)])
def test_masses_of_a_partition_sum_to_one(x64: bool, atol: float) -> None:
    with jax.enable_x64(x64):
        cuts = np.array([-9.0, -2.0, -1.99, -0.3, 0.1, 0.2, 4.0, 4.5, 11.0])
        for shift in (-6.0, 0.0, 0.15, 7.0):
            edges = jnp.asarray(np.concatenate([[-np.inf], cuts - shift, [np.inf]]))
            masses = np.exp(np.asarray(log_mass(edges[:-1], edges[1:]), np.float64))
            assert masses.sum() == pytest.approx(1.0, abs=atol)


@pytest.mark.parametrize("x64", [False, True])
def test_an_empty_bucket_is_not_hidden(x64: bool) -> None:
    empty = [(1.0, 1.0), (-40.0, -40.0), (0.0, 0.0)]
    reversed_ = [(2.0, 1.0), (-1.0, -2.0), (3.0, -3.0), (0.3, -20.0), (9.0, -1.0), (1.0, 0.9999)]
    with jax.enable_x64(x64):
        lo, hi = jnp.asarray(np.array(empty + reversed_).T)
        values = np.asarray(log_mass(lo, hi))
    np.testing.assert_array_equal(values[: len(empty)], -np.inf)
    assert np.isnan(values[len(empty) :]).all()


def test_edges_broadcast() -> None:
    table = log_mass(jnp.array([[-1.0], [0.0]]), jnp.array([1.0, 2.0, 3.0]))
    assert table.shape == (2, 3)
    assert table.dtype == jnp.float32
    assert float(table[0, 0]) == pytest.approx(math.log(0.6826894921370859), rel=1e-6)


def test_sizes_are_padded_to_the_next_power_of_four() -> None:
    assert [padded_size(n) for n in (0, 1, 2, 4, 5, 16, 17, 64, 65)] == [
        1,
        1,
        4,
        4,
        16,
        16,
        64,
        64,
        256,
    ]
    assert all(padded_size(4**k) == 4**k < padded_size(4**k + 1) == 4 ** (k + 1) for k in range(15))
