r"""A value with additive Gaussian noise around the latent line.

$$m_n(y) = \mathcal{N}(y;\, \text{mean}, V_n),
  \qquad V_n = \sigma_\text{obs}^2 + \psi_n^\top\Sigma\psi_n.$$

Elementwise over windows.
"""

from __future__ import annotations

from typing import Self

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from scrollmt._numerics.compiling import on_device
from scrollmt._numerics.graph import Value
from scrollmt._numerics.normal import LOG_SQRT_2PI
from scrollmt.heads.base import AbstractHead, mean_and_sd
from scrollmt.heads.exported import ExportedNormal
from scrollmt.laws import GaussianLaw


class Gaussian(AbstractHead):
    r"""A value with additive noise: $V_n = \sigma_\text{obs}^2 + \psi_n^\top\Sigma\psi_n$."""

    log_sigma_obs: Float[Array, ""]

    def __init__(self, sigma_obs: float = 1.0):
        if not sigma_obs > 0.0:
            raise ValueError(f"sigma_obs is a standard deviation and must be > 0, got {sigma_obs}")
        self.log_sigma_obs = on_device(np.log(sigma_obs))

    @property
    def sigma_obs(self) -> Float[Array, ""]:
        return jnp.exp(self.log_sigma_obs)

    @property
    def line_noise(self) -> Float[Array, ""]:
        return jnp.exp(2.0 * self.log_sigma_obs)

    def predictive_var(self, var: Array) -> Array:
        return jnp.exp(2.0 * self.log_sigma_obs) + var

    @property
    def description(self) -> str:
        return "a value: Gaussian"

    def half_information(self, mean: Array, var: Array) -> Array:
        return 0.5 / self.predictive_var(var)

    def target_scale(self, labels: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
        return mean_and_sd(labels, weight)

    def constant(self, y: Array, weight: Array) -> tuple[Self, Array]:
        mean, sd = mean_and_sd(np.asarray(y, np.float64), np.asarray(weight, np.float64))
        dtype = self.log_sigma_obs.dtype
        fitted: Self = eqx.tree_at(lambda h: h.log_sigma_obs, self, on_device(np.log(sd), dtype))
        return fitted, on_device(mean, dtype)

    def log_predictive(self, y: Array, mean: Array, var: Array) -> Array:
        total = self.predictive_var(var)
        residual = y - mean
        return -LOG_SQRT_2PI - 0.5 * jnp.log(total) - 0.5 * residual * residual / total

    def expected_log_lik(self, y: Array, mean: Array, var: Array) -> Array:
        residual = y - mean
        misfit = (residual * residual + var) * jnp.exp(-2.0 * self.log_sigma_obs)
        return -LOG_SQRT_2PI - self.log_sigma_obs - 0.5 * misfit

    def law(self, mean: np.ndarray, var: np.ndarray) -> GaussianLaw:
        noise = np.exp(2.0 * np.float64(self.log_sigma_obs))
        total = noise + np.asarray(var, np.float64)
        # After updates a variance may be below zero: then less noise is left than was fitted.
        return GaussianLaw(mean, np.sqrt(total), noise_var=np.minimum(noise, total))

    def onnx_outputs(self, mean: Value, var: Value, offset: float, scale: float) -> ExportedNormal:
        noise = float(np.exp(2.0 * np.float64(self.log_sigma_obs)))
        total = scale**2 * (var.cast(np.float64) + noise)
        return ExportedNormal(offset + scale * mean.cast(np.float64), total)

    def scaled(self, factor: float | Array) -> Self:
        log_sigma = self.log_sigma_obs + jnp.log(factor)
        scaled: Self = eqx.tree_at(lambda h: h.log_sigma_obs, self, log_sigma)
        return scaled

    def __repr__(self) -> str:
        return "Gaussian()"
