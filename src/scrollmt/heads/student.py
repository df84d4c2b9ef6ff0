r"""Values with heavy tails: Student-t noise around the latent line.

A t is a normal of random precision, $y = a + s\,\varepsilon/\sqrt\lambda$ with
$\lambda \sim \text{Gamma}(\nu/2, \nu/2)$, so that the belief integrates out in closed form and only
the precision is left, in $u = \log\lambda$:

$$m(y) = \int g_\nu(u)\, \mathcal{N}\bigl(y;\, \text{mean},\, \text{var} + s^2 e^{-u}\bigr)\, du,
  \qquad \log g_\nu(u) = -k\,(e^u - 1 - u) + \tfrac12\log\frac{k}{2\pi} - \delta(k),
  \quad k = \nu/2,$$

with $\delta$ the error of Stirling's formula. The integrand is analytic and dies out on both sides,
where the trapezoid rule converges exponentially. On the latent line itself it may have two
modes (the label is an outlier, or the belief is wrong) that no single rule can be centred on.

Elementwise over windows.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float
from scipy.special import ndtri

from scrollmt._numerics.graph import Value
from scrollmt._numerics.normal import LOG_SQRT_2PI
from scrollmt._numerics.special import exp_rest, stirling_error
from scrollmt._numerics.weighted import weighted_quantiles
from scrollmt.heads.base import AbstractHead, mean_and_sd
from scrollmt.heads.exported import ExportedLatent
from scrollmt.laws.student import StudentTLaw, log_precision_step, log_precision_top

# With these nodes the error is below 1e-6 nats for 2 < df <= 300, labels up to 10^12 scales out and
# belief variances up to 10^6 squared scales (tests/test_extra_heads.py).
NODES = 64
# exp(-CUT) relative to the integral is negligible in either precision.
_CUT = 30.0
# The interquartile range of a standard normal.
_IQR = 2.0 * float(ndtri(0.75))


class StudentT(AbstractHead):
    r"""A value with heavy-tailed noise: $(y - a)/s$ is Student-t with $\nu$ degrees of freedom.

    `df` is $\nu > 2$; `scale_obs` is $s$, and the noise has sd $s\sqrt{\nu/(\nu - 2)}$. Both are
    learned. Targets are shifted and scaled by median and interquartile range, which
    outliers do not move.
    """

    log_scale_obs: Float[Array, ""]
    log_df_excess: Float[Array, ""]

    def __init__(self, df: float = 4.0, scale_obs: float = 1.0):
        if not 2.0 < df < math.inf:
            raise ValueError(f"df must be > 2, so that there is a variance, and finite; got {df}")
        if not 0.0 < scale_obs < math.inf:
            raise ValueError(f"scale_obs must be > 0 and finite, got {scale_obs}")
        self.log_scale_obs = jnp.log(jnp.asarray(scale_obs, dtype=float))
        self.log_df_excess = jnp.log(jnp.asarray(df - 2.0, dtype=float))

    @property
    def description(self) -> str:
        return "a value with heavy tails: Student-t"

    @property
    def df(self) -> Float[Array, ""]:
        """Degrees of freedom; the fewer, the heavier the tails."""
        return 2.0 + jnp.exp(self.log_df_excess)

    @property
    def scale_obs(self) -> Float[Array, ""]:
        return jnp.exp(self.log_scale_obs)

    def target_scale(self, labels: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
        low, median, high = weighted_quantiles(labels, weight, (0.25, 0.5, 0.75))
        centre, spread = float(median), float(high - low) / _IQR
        # More than half of the labels may be one and the same.
        return (centre, spread) if spread > 0.0 else mean_and_sd(labels, weight)

    def log_predictive(self, y: Array, mean: Array, var: Array) -> Array:
        df, noise = self.df, jnp.exp(2.0 * self.log_scale_obs)
        square = (y - mean) ** 2
        u = self._nodes(*jax.lax.stop_gradient((square, var, df, noise)))
        # By way of the logarithm, since the square of a variance that large is no float32.
        log_total = jnp.log(var + noise * jnp.exp(-u))
        half = 0.5 * df
        log_weight = -half * exp_rest(u) + 0.5 * jnp.log(half) - stirling_error(half)
        terms = log_weight - 0.5 * log_total - 0.5 * square * jnp.exp(-log_total)
        step = jax.lax.stop_gradient(log_precision_step(df, jnp.sqrt))
        return logsumexp(terms, axis=0) + jnp.log(step) - 2.0 * LOG_SQRT_2PI

    def _nodes(self, square: Array, var: Array, df: Array, noise: Array) -> Array:
        """Log precisions, downwards from where the integrand begins, along a new first axis."""
        top = log_precision_top(df, jnp.sqrt, jnp.log1p)
        # Far out the noise alone can explain a label, by log1p(..) nats: a total variance under
        # which the label would cost CUT nats more than that adds nothing.
        least = square / ((df + 1.0) * jnp.log1p(square / (df * noise)) + 2.0 * _CUT)
        spare = least > var
        lower = jnp.log(noise / jnp.where(spare, least - var, noise))
        top = jnp.where(spare, jnp.minimum(top, lower), top)
        down = jnp.arange(NODES, dtype=top.dtype).reshape(-1, *(1,) * top.ndim)
        step: Array = log_precision_step(df, jnp.sqrt)
        return top - step * down

    def law(self, mean: np.ndarray, var: np.ndarray) -> StudentTLaw:
        scale, excess = (np.exp(np.float64(x)) for x in (self.log_scale_obs, self.log_df_excess))
        return StudentTLaw(mean, var, scale, 2.0 + excess)

    def onnx_outputs(self, mean: Value, var: Value, offset: float, scale: float) -> ExportedLatent:
        noise = scale * float(np.exp(np.float64(self.log_scale_obs)))
        df = 2.0 + float(np.exp(np.float64(self.log_df_excess)))
        line = offset + scale * mean.cast(np.float64), scale**2 * var.cast(np.float64)
        return ExportedLatent(*line, {"scale_obs": noise, "df": df})

    def __repr__(self) -> str:
        return "StudentT()"
