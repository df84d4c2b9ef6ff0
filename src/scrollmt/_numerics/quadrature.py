r"""A likelihood with the belief integrated out where no closed form exists.

$$\log m(y) = \log \int p(y \mid a)\, \mathcal{N}(a;\, \text{mean}, \text{var})\, da$$

by Gauss-Hermite quadrature, centred where the integrand is: with
$a = \text{mean} + \sqrt{\text{var}}\,z$, $z_0$ the mode of $\log p(y \mid a) - z^2/2$ and $\rho$
the width there,

$$m(y) \approx \sum_i \omega_i\, \rho\, e^{t_i^2/2 - z_i^2/2}\, p(y \mid a_i),
  \qquad z_i = z_0 + \rho\, t_i,$$

all in logarithms. The derivatives are those of the integral, not of the sum: with E the mean
under the weights of the sum (the law of $a$ given $y$) and $\ell = \log p(y \mid a)$,

$$\frac{\partial \log m}{\partial\,\text{mean}} = E[\ell'] = \frac{E[z]}{\sqrt{\text{var}}}, \qquad
  \frac{\partial \log m}{\partial\,\text{var}} = \tfrac12 E[\ell'' + \ell'^2]
  = \frac{E[z^2] - 1}{2\,\text{var}}.$$

The left forms hold at zero variance, the right ones where the likelihood is much narrower than
the belief; each serves where the other cancels. Everything is elementwise over windows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

# Chosen from the error against adaptive integration over counts from 0 to 10^6, which is below
# 1e-8 nats for a belief of unit variance and 1e-5 at a variance of four
# (docs/guide/own-likelihood.md has the table).
NODES = 32
# The mode is looked for this many belief sds out, in steps of four, then by safeguarded Newton.
_REACH = tuple(4.0**k for k in range(-1, 8))
_NEWTON_STEPS = 20

LogLikelihood = Callable[[Any, Array], Array]


def log_expected(
    log_likelihood: LogLikelihood, y: Any, mean: Float[Array, "..."], var: Float[Array, "..."]
) -> Float[Array, "..."]:
    r"""$\log E\,[p(y \mid a)]$ over $a \sim \mathcal{N}(\text{mean}, \text{var})$, in nats.

    `log_likelihood(y, a)` is elementwise in `a`, which comes with one more axis in front of the
    shape of `mean`, and best concave in `a`: with several modes only one is centred on. What it
    depends on has to come in through `y` or as the parameters of a module whose bound method it
    is; then it is differentiated by them too.
    """
    mean, var = jnp.broadcast_arrays(mean, var)
    expected: Array = _log_expected(log_likelihood, y, mean, var)
    return expected


def expected(
    log_likelihood: LogLikelihood, y: Any, mean: Float[Array, "*s"], var: Float[Array, "*s"]
) -> Float[Array, "*s"]:
    r"""$E\,[\log p(y \mid a)]$ over $a \sim \mathcal{N}(\text{mean}, \text{var})$, in nats.

    By Gauss-Hermite nodes about the mean. A log likelihood grows no faster than a polynomial or an
    exponential, so that the belief decides where the integrand is. Gradients are those of the sum.
    """
    mean, var = jnp.broadcast_arrays(mean, var)
    positive = var > 0.0
    sd = jnp.where(positive, jnp.sqrt(jnp.where(positive, var, 1.0)), 0.0)
    z, weight = np.polynomial.hermite_e.hermegauss(NODES)
    weight = weight / weight.sum()

    def at(z: Array) -> Array:
        return log_likelihood(y, mean + sd * z)

    values = jax.vmap(at)(jnp.asarray(z, mean.dtype))
    return jnp.tensordot(jnp.asarray(weight, mean.dtype), values, 1)


class _Rule(NamedTuple):
    """Nodes z about a centre in units of the belief's sd; log weights that hold the belief."""

    centre: Array
    z: Array
    log_weight: Array
    sd: Array
    narrow: Array


def _derivatives(log_likelihood: LogLikelihood, y: Any, a: Array) -> tuple[Array, Array, Array]:
    """Value, slope and curvature in `a`, elementwise."""

    def slope(at: Array) -> tuple[Array, Array]:
        return jax.jvp(lambda b: log_likelihood(y, b), (at,), (jnp.ones_like(at),))

    (value, first), (_, second) = jax.jvp(slope, (a,), (jnp.ones_like(a),))
    return value, first, second


def _mode(log_likelihood: LogLikelihood, y: Any, mean: Array, sd: Array) -> tuple[Array, Array]:
    """Where log p(y | mean + sd z) - z^2 / 2 has its mode in z, and how narrow it is there."""

    def pull(z: Array) -> tuple[Array, Array]:
        """Slope and (negative) curvature; the former falls by at least one a unit."""
        _, first, second = _derivatives(log_likelihood, y, mean + sd * z)
        return sd * first - z, 1.0 + sd * sd * jnp.maximum(-second, 0.0)

    slope, curvature = pull(jnp.zeros_like(mean))
    side = jnp.where(slope < 0.0, -1.0, 1.0).astype(mean.dtype)
    steps = jnp.asarray(_REACH, mean.dtype).reshape(-1, *(1,) * mean.ndim)
    # Where the likelihood overflows the slope is no number, and the mode has been passed.
    passed = ~(side * pull(side * steps)[0] > 0.0)
    hi = jnp.min(jnp.where(passed, steps, _REACH[-1]), axis=0)
    lo = jnp.max(jnp.where(passed, 0.0, steps), axis=0)

    def step(_: Any, state: tuple[Array, ...]) -> tuple[Array, ...]:
        lo, hi, at, moved = state
        slope, curvature = pull(side * at)
        ahead = side * slope > 0.0
        lo, hi = jnp.where(ahead, at, lo), jnp.where(ahead, hi, at)
        newton = at + side * slope / curvature
        # On the steep side of an exponential Newton creeps by equal steps: then halve instead.
        good = (newton >= lo) & (newton <= hi) & (jnp.abs(newton - at) <= 0.5 * moved)
        new = jnp.where(good, newton, 0.5 * (lo + hi))
        return lo, hi, new, jnp.abs(new - at)

    guess = jnp.abs(slope) / curvature
    start = jnp.where((guess >= lo) & (guess <= hi), guess, 0.5 * (lo + hi))
    at = jax.lax.fori_loop(0, _NEWTON_STEPS, step, (lo, hi, start, hi - lo))[2]
    return side * at, pull(side * at)[1]


def _rule(log_likelihood: LogLikelihood, y: Any, mean: Array, var: Array) -> _Rule:
    positive = var > 0.0
    sd = jnp.where(positive, jnp.sqrt(jnp.where(positive, var, 1.0)), 0.0)
    # Where the nodes lie is a choice, not a function of the parameters.
    held = jax.tree.map(
        lambda leaf: jax.lax.stop_gradient(leaf) if eqx.is_array(leaf) else leaf,
        (log_likelihood, y, mean, sd),
    )
    centre, curvature = _mode(*held)
    width = jax.lax.rsqrt(curvature)
    t, weight = np.polynomial.hermite_e.hermegauss(NODES)
    shape = (-1, *(1,) * mean.ndim)
    nodes = jnp.asarray(t, mean.dtype).reshape(shape)
    log_weight = np.log(weight / weight.sum()) + 0.5 * t**2
    z = centre + width * nodes
    return _Rule(
        centre=centre,
        z=z,
        log_weight=jnp.asarray(log_weight, mean.dtype).reshape(shape)
        + jnp.log(width)
        - 0.5 * z * z,
        sd=sd,
        narrow=curvature > 2.0,
    )


@eqx.filter_custom_jvp
def _log_expected(log_likelihood: LogLikelihood, y: Any, mean: Array, var: Array) -> Array:
    rule = _rule(log_likelihood, y, mean, var)
    return logsumexp(rule.log_weight + log_likelihood(y, mean + rule.sd * rule.z), axis=0)


def _log_expected_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    log_likelihood, y, mean, var = primals
    d_likelihood, d_y, d_mean, d_var = tangents
    rule = _rule(log_likelihood, y, mean, var)
    a = mean + rule.sd * rule.z
    value, first, second = _derivatives(log_likelihood, y, a)
    terms = rule.log_weight + value
    total = logsumexp(terms, axis=0)
    # Normalised by their own sum: far out, the rounding of `total` alone is felt.
    share = jax.nn.softmax(terms, axis=0)

    def expected(quantity: Array) -> Array:
        # A node without weight may lie where the likelihood overflows.
        return jnp.sum(share * jnp.where(share > 0.0, quantity, 0.0), axis=0)

    sd = jnp.where(rule.narrow, rule.sd, 1.0)
    out = jnp.zeros_like(total)
    if d_mean is not None:
        by_mean = jnp.where(rule.narrow, expected(rule.z) / sd, expected(first))
        out = out + by_mean * d_mean
    if d_var is not None:
        by_var = jnp.where(
            rule.narrow,
            (expected(rule.z * rule.z) - 1.0) / (2.0 * sd * sd),
            0.5 * expected(second + first * first),
        )
        out = out + by_var * d_var
    if jax.tree.leaves((d_likelihood, d_y)):
        # Nor may such a node be differentiated: no weight times an infinite slope is no number.
        safe = jnp.where(share > 0.0, a, mean + rule.sd * rule.centre)
        _, d_value = eqx.filter_jvp(
            lambda f, labels: f(labels, safe), (log_likelihood, y), (d_likelihood, d_y)
        )
        out = out if d_value is None else out + expected(d_value)
    return total, out


_log_expected.def_jvp(_log_expected_jvp)
