r"""A value with skew and tails of its own: Gaussian after a learned increasing map.

$$w = \sinh(\delta\,\text{arcsinh}\,y - \epsilon), \qquad w \sim \mathcal{N}(\text{mean}, V_n),
  \quad V_n = \sigma_\text{obs}^2 + \text{var},$$

$$\log m_n(y) = \log\mathcal{N}(w;\, \text{mean}, V_n) + \log\delta
  + \log\cosh(\delta\,\text{arcsinh}\,y - \epsilon) - \tfrac12\log(1 + y^2).$$

It is the sinh-arcsinh family of Jones and Pewsey (2009). Elementwise over windows.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from scrollmt._numerics.graph import Value
from scrollmt._numerics.normal import LOG_SQRT_2PI
from scrollmt.heads.base import AbstractHead, mean_and_sd
from scrollmt.heads.exported import ExportedLatent
from scrollmt.laws import SinhArcsinhLaw


class SinhArcsinh(AbstractHead):
    r"""A value with skew and heavy or light tails: $\sinh(\delta\,\text{arcsinh}\,y - \epsilon)$ is
    Gaussian.

    Learned are the noise sd on that scale, $\epsilon$ (positive values lean to the right) and
    $\delta$ (below one: heavy tails, above: light ones). At the start, $\epsilon = 0$ and
    $\delta = 1$, the head is a Gaussian one.
    """

    log_sigma_obs: Float[Array, ""]
    epsilon: Float[Array, ""]
    log_delta: Float[Array, ""]

    def __init__(self, epsilon: float = 0.0, delta: float = 1.0, sigma_obs: float = 1.0):
        if not (math.isfinite(epsilon) and 0.0 < delta < math.inf and 0.0 < sigma_obs < math.inf):
            raise ValueError(
                "SinhArcsinh needs a finite epsilon, and delta and sigma_obs that are > 0 and "
                f"finite; got epsilon {epsilon}, delta {delta}, sigma_obs {sigma_obs}"
            )
        self.log_sigma_obs = jnp.log(jnp.asarray(sigma_obs, dtype=float))
        self.epsilon = jnp.asarray(epsilon, dtype=float)
        self.log_delta = jnp.log(jnp.asarray(delta, dtype=float))

    @property
    def description(self) -> str:
        return "a value with skew and tails: sinh-arcsinh"

    @property
    def delta(self) -> Float[Array, ""]:
        """Below one the tails are heavier than Gaussian ones, above one lighter."""
        return jnp.exp(self.log_delta)

    @property
    def line_noise(self) -> Float[Array, ""]:
        return jnp.exp(2.0 * self.log_sigma_obs)

    @property
    def sigma_obs(self) -> Float[Array, ""]:
        return jnp.exp(self.log_sigma_obs)

    def target_scale(self, labels: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
        return mean_and_sd(labels, weight)

    def predictive_var(self, var: Array) -> Array:
        return jnp.exp(2.0 * self.log_sigma_obs) + var

    def half_information(self, mean: Array, var: Array) -> Array:
        return 0.5 / self.predictive_var(var)

    def log_predictive(self, y: Array, mean: Array, var: Array) -> Array:
        t = jnp.arcsinh(y)
        u = self.delta * t - self.epsilon
        total = self.predictive_var(var)
        residual = jnp.sinh(u) - mean
        log_normal = -LOG_SQRT_2PI - 0.5 * jnp.log(total) - 0.5 * residual * residual / total
        # log cosh, whose constants cancel: no square of a label that is far out.
        log_slope = self.log_delta + jnp.logaddexp(u, -u) - jnp.logaddexp(t, -t)
        return log_normal + log_slope

    def _numbers(self) -> tuple[float, float, float]:
        """Noise sd, epsilon and delta in float64."""
        given = (self.log_sigma_obs, self.epsilon, self.log_delta)
        log_sigma, epsilon, log_delta = (float(np.float64(a)) for a in given)
        return math.exp(log_sigma), epsilon, math.exp(log_delta)

    def law(self, mean: np.ndarray, var: np.ndarray) -> SinhArcsinhLaw:
        sigma, epsilon, delta = self._numbers()
        sd = np.sqrt(sigma**2 + np.asarray(var, np.float64))
        return SinhArcsinhLaw(mean, sd, epsilon, delta)

    def onnx_outputs(self, mean: Value, var: Value, offset: float, scale: float) -> ExportedLatent:
        sigma, epsilon, delta = self._numbers()
        learned = {"sigma_obs": sigma, "epsilon": epsilon, "delta": delta}
        units = {"offset": offset, "scale": scale}
        return ExportedLatent(mean.cast(np.float64), var.cast(np.float64), {**learned, **units})

    def __repr__(self) -> str:
        return "SinhArcsinh()"
