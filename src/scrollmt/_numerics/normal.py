r"""Every stability trick, once: bucket masses in the far tails, and a safe Cholesky.

$$\log\bigl[\Phi(b) - \Phi(a)\bigr], \qquad a < b, \quad a, b \in [-\infty, \infty]$$

is the data term of every probit head (`app:scroll`, data and prior terms). Subtracting
the two distribution functions loses everything in the tails, so the mass is written
relative to the density at the edge nearer to zero, where all factors are of order one:

$$\frac{\Phi(b) - \Phi(a)}{\phi(x_1)} = M(x_1) - e^{-\delta} M(x_2), \qquad
  \delta = \tfrac12 (x_2 - x_1)(x_2 + x_1),$$

with $x_1, x_2$ the edges mirrored into the upper tail and $M = (1 - \Phi)/\phi$ the
Mills ratio. The same quantity gives both derivatives without a second cancellation.
All functions are elementwise over arrays of any shape.
"""

from __future__ import annotations

import functools

import jax
import jax.custom_batching
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import erfcx

LOG_SQRT_2PI = float(0.5 * np.log(2.0 * np.pi))

# M(x) (1 + x) is smooth on [0, inf] in t = (x - k) / (x + k): one polynomial serves the
# body and the whole tail. The centre k = 4 keeps the series short in both precisions.
MILLS_CENTRE = 4.0


@functools.cache
def mills_series(dtype: np.dtype) -> tuple[float, ...]:
    """Chebyshev coefficients of (1 + x) M(x) in t, interpolated from SciPy's erfcx."""
    degree = 30 if dtype == np.float64 else 11

    def target(t: np.ndarray) -> np.ndarray:
        x = MILLS_CENTRE * (1.0 + t) / (1.0 - t)
        scaled: np.ndarray = (1.0 + x) * np.sqrt(np.pi / 2.0) * erfcx(x / np.sqrt(2.0))
        return scaled

    series = np.polynomial.chebyshev.Chebyshev.interpolate(target, degree)
    return tuple(float(c) for c in series.coef)


def mills_ratio(x: Float[Array, "*s"]) -> Float[Array, "*s"]:
    r"""The Mills ratio $M(x) = (1 - \Phi(x)) / \phi(x)$ for $x \ge 0$, infinity included.

    Relative error about 3e-7 in float32 and 1e-14 in float64.
    """
    coefficients = mills_series(np.dtype(x.dtype))
    # Written with 1 / (x + k) so that x = inf gives t = 1 and not inf / inf.
    t = 1.0 - 2.0 * MILLS_CENTRE / (x + MILLS_CENTRE)
    twice_t = 2.0 * t
    ahead = jnp.zeros_like(t)
    here = jnp.zeros_like(t) + coefficients[-1]
    for c in coefficients[-2:0:-1]:
        here, ahead = twice_t * here - ahead + c, here
    return (t * here - ahead + coefficients[0]) / (1.0 + x)


def narrow_bucket(dtype: np.dtype) -> float:
    """Bucket width, in units of the local decay length, under which a series is better."""
    return 1e-3 if dtype == np.float64 else 5e-2


def _bucket(
    lo: Float[Array, "*s"], hi: Float[Array, "*s"]
) -> tuple[Float[Array, "*s"], Float[Array, "*s"], Float[Array, "*s"]]:
    """Log mass of (lo, hi) and the density at each edge divided by that mass."""
    flip = lo + hi > 0.0
    x1 = jnp.where(flip, lo, -hi)  # the edge nearer to zero, mirrored to the upper tail
    x2 = jnp.where(flip, hi, -lo)
    width = x2 - x1
    # phi(x2) / phi(x1); the sum of edges would be inf - inf for the whole line.
    decay = jnp.exp(-0.5 * width * jnp.where(jnp.isinf(x2), jnp.inf, x2 + x1))
    m1, m2 = mills_ratio(jnp.abs(x1)), mills_ratio(x2)
    log_density = -0.5 * x1 * x1 - LOG_SQRT_2PI

    # Both edges on one side of zero: everything relative to the density at x1.
    tail = m1 - decay * m2
    tail_log_mass = log_density + jnp.log(tail)

    # Zero inside the bucket: both tails are at most one half, so 1 - sum is safe unless
    # the bucket is narrow, which the series below takes care of.
    density = jnp.exp(log_density)
    outside = density * (m1 + decay * m2)
    straddle_log_mass = jnp.log1p(-outside)
    straddle = (1.0 - outside) / density

    # Narrow bucket: two terms of the Hermite series about the midpoint.
    mid = 0.5 * (x1 + x2)
    series = width * (1.0 + (mid * mid - 1.0) * width * width / 24.0)
    narrow = series * jnp.exp(-0.25 * width * (mid + x1))  # phi(mid) / phi(x1)
    narrow_log_mass = jnp.log(series) - 0.5 * mid * mid - LOG_SQRT_2PI

    is_narrow = width * jnp.maximum(1.0, x2) < narrow_bucket(x1.dtype)
    is_tail = x1 >= 0.0
    log_mass = jnp.where(
        is_narrow, narrow_log_mass, jnp.where(is_tail, tail_log_mass, straddle_log_mass)
    )
    # For reversed edges the series may change sign and would pass for a mass.
    log_mass = jnp.where(width < 0.0, jnp.nan, log_mass)
    relative = jnp.where(is_narrow, narrow, jnp.where(is_tail, tail, straddle))
    near = 1.0 / relative
    far = decay / relative
    # Far inside a wide bucket the density underflows and `straddle` is inf: hazards are 0.
    return log_mass, jnp.where(flip, near, far), jnp.where(flip, far, near)


@jax.custom_jvp
def _hazards(
    lo: Float[Array, "*s"], hi: Float[Array, "*s"]
) -> tuple[Float[Array, "*s"], Float[Array, "*s"]]:
    """Densities at the two edges divided by the mass between them."""
    _, at_lo, at_hi = _bucket(lo, hi)
    return at_lo, at_hi


@_hazards.defjvp
def _hazards_jvp(primals, tangents):  # type: ignore[no-untyped-def]
    lo, hi = primals
    d_lo, d_hi = tangents
    at_lo, at_hi = _hazards(lo, hi)
    d_log_mass = at_hi * d_hi - at_lo * d_lo
    # An infinite edge carries no density and does not move.
    slope_lo = jnp.where(jnp.isinf(lo), 0.0, lo) * d_lo
    slope_hi = jnp.where(jnp.isinf(hi), 0.0, hi) * d_hi
    return (at_lo, at_hi), (-at_lo * (slope_lo + d_log_mass), -at_hi * (slope_hi + d_log_mass))


@jax.custom_jvp
def _log_bucket_mass(lo: Float[Array, "*s"], hi: Float[Array, "*s"]) -> Float[Array, "*s"]:
    return _bucket(lo, hi)[0]


@_log_bucket_mass.defjvp
def _log_bucket_mass_jvp(primals, tangents):  # type: ignore[no-untyped-def]
    lo, hi = primals
    d_lo, d_hi = tangents
    at_lo, at_hi = _hazards(lo, hi)
    return _log_bucket_mass(lo, hi), at_hi * d_hi - at_lo * d_lo


def log_bucket_mass(lo: Float[Array, "..."], hi: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""$\log[\Phi(\text{hi}) - \Phi(\text{lo})]$, elementwise, with exact derivatives.

    Edges may be infinite. Where `lo >= hi` the result is `-inf` or NaN: an empty bucket
    has no mass, and nothing is clamped to hide it. First and second derivatives are
    closed forms, so gradients stay right where the mass itself underflows.
    """
    lo, hi = jnp.broadcast_arrays(*jax.tree.map(jnp.asarray, (lo, hi)))
    dtype = jnp.result_type(lo, hi, float)
    return _log_bucket_mass(lo.astype(dtype), hi.astype(dtype))


@jax.custom_batching.custom_vmap
def _cholesky(matrix: Float[Array, "H H"]) -> Float[Array, "H H"]:
    lower: Array = jnp.linalg.cholesky(matrix)
    return lower


@_cholesky.def_vmap
def _cholesky_batch(axis_size: int, in_batched: list[bool], matrices: Array) -> tuple[Array, bool]:
    # Two LAPACK calls over a batch at the same time can take every thread of a CPU's pool and
    # wait for each other without end (jaxlib 0.10.2); one matrix at a time never waits.
    del axis_size, in_batched
    roots = jax.lax.platform_dependent(
        matrices, cpu=lambda a: jax.lax.map(_cholesky, a), default=jnp.linalg.cholesky
    )
    return roots, True


def _lower_inverse(root: Float[Array, "H H"]) -> Float[Array, "H H"]:
    """Inverse of a lower triangular matrix by products alone, doubling the blocks on the diagonal.

    A triangular solve would go to a threaded BLAS, which competes with XLA for the cores.
    """
    size = root.shape[0]
    padded = power_of_two(size)
    extra = (0, padded - size)
    # Ones on the padded diagonal: the inverse of the padding is itself.
    diagonal = jnp.pad(jnp.diagonal(root), extra, constant_values=1.0)
    root = jnp.pad(root, (extra, extra))
    inverse = (1.0 / diagonal)[:, None, None]
    for half in (1 << level for level in range(padded.bit_length() - 1)):
        pairs = jnp.arange(padded // (2 * half))
        blocks = root.reshape(len(pairs), 2 * half, len(pairs), 2 * half)
        below = blocks[pairs, half:, pairs, :half]
        upper, lower = inverse[::2], inverse[1::2]
        corner = -(lower @ below @ upper)
        inverse = jnp.concatenate(
            [
                jnp.concatenate([upper, jnp.zeros_like(upper)], axis=2),
                jnp.concatenate([corner, lower], axis=2),
            ],
            axis=1,
        )
    return inverse[0, :size, :size]


@jax.custom_vjp
def normal_energy(x: Float[Array, " H"], cov: Float[Array, "H H"]) -> Float[Array, ""]:
    r"""$-\log\mathcal{N}(x;\, 0, \text{cov})$ for a positive definite matrix."""
    return _normal_energy_fwd(x, cov)[0]


def _normal_energy_fwd(x: Array, cov: Array) -> tuple[Array, tuple[Array, Array]]:
    inverse_root = _lower_inverse(_cholesky(cov))
    white = inverse_root @ x
    logs = jnp.log(jnp.diagonal(inverse_root))
    return jnp.sum(LOG_SQRT_2PI - logs + 0.5 * white * white), (inverse_root, white)


def _normal_energy_bwd(kept: tuple[Array, Array], cotangent: Array) -> tuple[Array, Array]:
    inverse_root, white = kept
    pull = white @ inverse_root
    precision = inverse_root.T @ inverse_root
    return cotangent * pull, 0.5 * cotangent * (precision - jnp.outer(pull, pull))


normal_energy.defvjp(_normal_energy_fwd, _normal_energy_bwd)


@jax.custom_vjp
def inverse_root(matrix: Float[Array, "H H"]) -> Float[Array, "H H"]:
    r"""Lower triangular $W$ with $W^\top W = A^{-1}$, for a positive definite $A$.

    $\log|A| = -2\sum_h \log W_{hh}$. The derivative is exact and made of products alone:
    $dW = -\Phi(W\,dA\,W^\top)\,W$ with $\Phi$ the lower triangle and half the diagonal.
    """
    return _lower_inverse(_cholesky(matrix))


def _inverse_root_fwd(matrix: Array) -> tuple[Array, Array]:
    root = _lower_inverse(_cholesky(matrix))
    return root, root


def _inverse_root_bwd(root: Array, cotangent: Array) -> tuple[Array]:
    lower = jnp.tril(cotangent @ root.T)
    lower = lower - 0.5 * jnp.diag(jnp.diagonal(lower))
    pulled = -(root.T @ lower @ root)
    return (0.5 * (pulled + pulled.T),)


inverse_root.defvjp(_inverse_root_fwd, _inverse_root_bwd)


def power_of_two(count: int) -> int:
    """The least power of two from `count` on."""
    return 1 << (max(count, 1) - 1).bit_length()


def padded_size(count: int) -> int:
    """The next power of four, to pad arrays to: few sizes, so few compilations, serve any count."""
    size = power_of_two(count)
    return size if size.bit_length() % 2 else 2 * size
