r"""Special functions without the large terms that cancel in every density.

$$e^x - 1 - x, \qquad \delta(x) = \log\Gamma(x) - (x - \tfrac12)\log x + x - \tfrac12\log 2\pi$$

A Poisson or gamma log density relative to its own maximum is made of these two alone. Elementwise
over arrays of any shape.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

from scrollmt._numerics.normal import LOG_SQRT_2PI


@jax.custom_jvp
def exp_rest(x: Float[Array, "*s"]) -> Float[Array, "*s"]:
    r"""$e^x - 1 - x$ without the cancellation around zero."""
    small = jnp.abs(x) < 0.5
    near = jnp.where(small, x, 0.0)
    series = jnp.ones_like(near)
    for k in range(15 if x.dtype == jnp.float64 else 8, 2, -1):
        series = 1.0 + near / k * series
    return jnp.where(small, 0.5 * near * near * series, jnp.expm1(x) - x)


@exp_rest.defjvp
def _exp_rest_jvp(primals, tangents):  # type: ignore[no-untyped-def]
    (x,), (d_x,) = primals, tangents
    return exp_rest(x), jnp.expm1(x) * d_x


def stirling_error(x: Float[Array, "*s"]) -> Float[Array, "*s"]:
    r"""$\log\Gamma(x) - (x - \tfrac12)\log x + x - \tfrac12\log 2\pi$ for $x > 0$."""
    # From here on four terms of the asymptotic series are good to the last digit.
    large = x >= (10.0 if x.dtype == jnp.float64 else 3.0)
    inverse = 1.0 / jnp.where(large, x, 10.0)
    square = inverse * inverse
    tail = 1.0 / 360.0 - square * (1.0 / 1260.0 - square / 1680.0)
    series = inverse * (1.0 / 12.0 - square * tail)
    near = jnp.where(large, 1.0, x)
    direct = gammaln(near) - (near - 0.5) * jnp.log(near) + near - LOG_SQRT_2PI
    return jnp.where(large, series, direct)
