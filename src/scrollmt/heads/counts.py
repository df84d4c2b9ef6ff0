r"""Counts: a Poisson or negative binomial whose log rate is the latent line.

$$y \mid a \sim \text{NB}\bigl(\text{mean } \mu,\; \text{variance } \mu + \alpha\mu^2\bigr),
  \qquad \mu = e^{a_0 + a},$$

with a base rate $e^{a_0}$ and a dispersion $\alpha$ that are learned; the Poisson is
$\alpha = 0$. A belief about $a$ spreads the rate further. Masses are written relative to the
count's own maximum at $\mu = y$, with $b = \log\mu - \log y$ and $\delta$ the error of Stirling's
formula (as in Loader's saddle-point form),

$$\log p_0(y \mid a) = -y\,(e^b - 1 - b) - \tfrac12\log 2\pi y - \delta(y),$$

$$\log p_\alpha(y \mid a) = -\tfrac{1 + \alpha y}{\alpha}\, K(b, q) - \tfrac12\log 2\pi y
  - \tfrac12\log(1 + \alpha y) + \delta(y + \tfrac1\alpha) - \delta(\tfrac1\alpha) - \delta(y),$$

where $q = \alpha y/(1 + \alpha y)$ and $K(b, q) = \log(1 - q + q e^b) - q b = K(-b, 1 - q)$: terms
of the size of the count itself, which would cancel, do not occur. Elementwise over windows.
"""

from __future__ import annotations

import abc
import math
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from scrollmt._numerics.graph import Value
from scrollmt._numerics.normal import LOG_SQRT_2PI
from scrollmt._numerics.quadrature import log_expected
from scrollmt._numerics.special import exp_rest, stirling_error
from scrollmt.heads.base import AbstractQuadrature
from scrollmt.heads.exported import ExportedLatent
from scrollmt.laws import CountLaw, real_labels

# Below, the exponential is a float of either precision; above, all that matters is linear.
_FAR = 80.0


@jax.custom_jvp
def _odds(c: Array, p: Array) -> Array:
    r"""$W = (e^c - 1)/(1 + p\,(e^c - 1))$ for $0 < p \le \tfrac12$."""
    x = jnp.expm1(jnp.minimum(c, _FAR))
    return x / (1.0 + p * x)


@_odds.defjvp
def _odds_jvp(primals, tangents):  # type: ignore[no-untyped-def]
    (c, p), (d_c, d_p) = primals, tangents
    w = _odds(c, p)
    return w, (1.0 + (1.0 - p) * w) * (1.0 - p * w) * d_c - w * w * d_p


@jax.custom_jvp
def _gap(c: Array, p: Array) -> Array:
    r"""$K(c, p) = \log(1 - p + p e^c) - p c$ for $0 < p \le \tfrac12$, without overflow."""
    near = jnp.minimum(c, _FAR)
    return jnp.log1p(p * jnp.expm1(near)) + (c - near) - p * c


@_gap.defjvp
def _gap_jvp(primals, tangents):  # type: ignore[no-untyped-def]
    (c, p), (d_c, d_p) = primals, tangents
    w = _odds(c, p)
    return _gap(c, p), p * (1.0 - p) * w * d_c + (w - c) * d_p


class AbstractCount(AbstractQuadrature):
    """Counts 0, 1, 2, ...; the base rate starts at the mean of the training labels."""

    log_rate: eqx.AbstractVar[Float[Array, ""]]

    @abc.abstractmethod
    def log_mass(self, y: Array, log_mean: Array) -> Array:
        """log P(y) of a count with a given log mean."""

    def log_likelihood(self, y: Array, a: Array) -> Array:
        return self.log_mass(y, self.log_rate + a)

    def log_predictive(self, y: Array, mean: Array, var: Array) -> Array:
        return log_expected(self.log_mass, y, self.log_rate + mean, var)

    def _exported(self, mean: Value, var: Value, dispersion: float) -> ExportedLatent:
        line = float(self.log_rate) + mean.cast(np.float64)
        return ExportedLatent(line, var.cast(np.float64), {"dispersion": dispersion})

    def read_labels(self, name: str, values: Any) -> tuple[np.ndarray, np.ndarray]:
        y = real_labels(values, len(values), f"task {name!r}")
        seen = ~np.isnan(y)
        bad = seen & ~((y >= 0.0) & (y == np.floor(y)) & np.isfinite(y))
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise ValueError(
                f"task {name!r}: row {row} is {y[row]:g} ({int(bad.sum())} such rows), but counts "
                "are 0, 1, 2, ..., and NaN where missing; use Gaussian() or StudentT() for others"
            )
        return np.where(seen, y, 0.0), seen

    def started(self, y: Array, weight: Array) -> Self:
        counts, shares = np.asarray(y, np.float64), np.asarray(weight, np.float64)
        rate = float(np.sum(shares * counts) / np.sum(shares)) if shares.any() else 0.0
        if not rate > 0.0:
            return self
        start = jnp.asarray(math.log(rate), self.log_rate.dtype)
        started: Self = eqx.tree_at(lambda head: head.log_rate, self, start)
        return started


class Poisson(AbstractCount):
    """Counts whose variance is their mean, but for what the belief about the rate adds."""

    log_rate: Float[Array, ""]

    def __init__(self) -> None:
        self.log_rate = jnp.zeros((), dtype=float)

    @property
    def description(self) -> str:
        return "a count: Poisson"

    def log_mass(self, y: Array, log_mean: Array) -> Array:
        y = jnp.asarray(y, log_mean.dtype)
        some = jnp.where(y > 0.0, y, 1.0)
        top = -0.5 * jnp.log(some) - LOG_SQRT_2PI - stirling_error(some)
        fit = some * exp_rest(log_mean - jnp.log(some))
        return jnp.where(y > 0.0, top - fit, -jnp.exp(log_mean))

    def law(self, mean: np.ndarray, var: np.ndarray) -> CountLaw:
        return CountLaw(float(self.log_rate) + np.asarray(mean, np.float64), var)

    def onnx_outputs(self, mean: Value, var: Value, offset: float, scale: float) -> ExportedLatent:
        return self._exported(mean, var, 0.0)

    def __repr__(self) -> str:
        return "Poisson()"


class Count(AbstractCount):
    r"""Counts with more variance than a Poisson: $\text{Var}[y \mid a] = \mu + \alpha\mu^2$.

    The negative binomial with learned `dispersion` $\alpha$ (NB2, where statsmodels says `alpha`);
    its size, `n` in SciPy, is $1/\alpha$.
    """

    log_rate: Float[Array, ""]
    log_dispersion: Float[Array, ""]

    def __init__(self, dispersion: float = 0.5):
        if not 0.0 < dispersion < math.inf:
            raise ValueError(
                f"dispersion must be > 0 and finite, got {dispersion}; use Poisson() for none"
            )
        self.log_rate = jnp.zeros((), dtype=float)
        self.log_dispersion = jnp.log(jnp.asarray(dispersion, dtype=float))

    @property
    def description(self) -> str:
        return "a count: negative binomial"

    @property
    def dispersion(self) -> Float[Array, ""]:
        return jnp.exp(self.log_dispersion)

    def log_mass(self, y: Array, log_mean: Array) -> Array:
        y = jnp.asarray(y, log_mean.dtype)
        some = jnp.where(y > 0.0, y, 1.0)
        size = jnp.exp(-self.log_dispersion)
        excess = self.dispersion * some
        b = log_mean - jnp.log(some)
        # K of the smaller of q and 1 - q.
        flip = excess > 1.0
        smaller = jnp.where(flip, 1.0, excess) / (1.0 + excess)
        fit = size * (1.0 + excess) * _gap(jnp.where(flip, -b, b), smaller)
        top = stirling_error(some + size) - stirling_error(size) - stirling_error(some)
        top = top - 0.5 * jnp.log(some) - 0.5 * jnp.log1p(excess) - LOG_SQRT_2PI
        none = -size * jax.nn.softplus(log_mean + self.log_dispersion)
        return jnp.where(y > 0.0, top - fit, none)

    def law(self, mean: np.ndarray, var: np.ndarray) -> CountLaw:
        line = float(self.log_rate) + np.asarray(mean, np.float64)
        return CountLaw(line, var, np.exp(np.float64(self.log_dispersion)))

    def onnx_outputs(self, mean: Value, var: Value, offset: float, scale: float) -> ExportedLatent:
        return self._exported(mean, var, float(np.exp(np.float64(self.log_dispersion))))

    def __repr__(self) -> str:
        return "Count()"
