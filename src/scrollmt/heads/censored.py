r"""Values that are not recorded beyond a limit: a Gaussian seen through a detector.

The value $x = a + \sigma_\text{obs}\varepsilon$ is known where it lies between the limits, and
known only to lie beyond one of them elsewhere. A label is a pair of bounds, equal where the value
is known; with $V = \sigma_\text{obs}^2 + \text{var}$ the belief integrates out in closed form,

$$m(\text{lo}, \text{hi}) = \begin{cases}
  \mathcal{N}(\text{lo};\, \text{mean}, V) & \text{lo} = \text{hi},\\
  \Phi\bigl((\text{hi} - \text{mean})/\sqrt V\bigr) -
  \Phi\bigl((\text{lo} - \text{mean})/\sqrt V\bigr)
  & \text{lo} < \text{hi}. \end{cases}$$

Pairs go through a change of units as they are, infinite bounds included, and every row may have
limits of its own. Shapes: labels `(N, 2)`.
"""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from scrollmt._numerics.graph import Value
from scrollmt._numerics.normal import log_bucket_mass
from scrollmt.heads.base import AbstractHead, mean_and_sd
from scrollmt.heads.exported import ExportedNormal
from scrollmt.heads.gaussian import Gaussian
from scrollmt.laws.censored import CensoredLaw, read_bounds


class Censored(AbstractHead):
    r"""A Gaussian value that is only recorded between detection limits.

    Labels at or below `lower` count as somewhere below, those at or above `upper` as somewhere
    above; leave a limit out where there is none. Limits are in the units of the labels. For
    limits that differ from row to row give `(N, 2)` labels: lower and upper bound, equal where the
    value is known, infinite on the side that is open.
    """

    gaussian: Gaussian
    lower: float | None = eqx.field(static=True)
    upper: float | None = eqx.field(static=True)

    def __init__(
        self, lower: float | None = None, upper: float | None = None, *, sigma_obs: float = 1.0
    ):
        for name, limit in (("lower", lower), ("upper", upper)):
            if limit is not None and not math.isfinite(limit):
                raise ValueError(f"{name} = {limit} is no limit; leave it out where there is none")
        if lower is not None and upper is not None and not lower < upper:
            raise ValueError(f"lower = {lower} must be below upper = {upper}")
        self.gaussian = Gaussian(sigma_obs)
        self.lower = None if lower is None else float(lower)
        self.upper = None if upper is None else float(upper)

    @property
    def line_noise(self) -> Float[Array, ""]:
        return self.gaussian.line_noise

    @property
    def sigma_obs(self) -> Float[Array, ""]:
        return self.gaussian.sigma_obs

    @property
    def description(self) -> str:
        return f"a value with detection limits: {self!r}"

    @property
    def takes_bounds(self) -> bool:
        return True

    @property
    def limits(self) -> tuple[float, float]:
        """Both limits, infinite where there is none."""
        lower = -math.inf if self.lower is None else self.lower
        return lower, math.inf if self.upper is None else self.upper

    def read_labels(self, name: str, values: Any) -> tuple[np.ndarray, np.ndarray]:
        pairs = read_bounds(values, len(values), *self.limits, f"task {name!r}")
        seen = ~np.isnan(pairs[:, 0])
        return np.where(seen[:, None], pairs, 0.0), seen

    def target_scale(self, labels: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
        # A censored label counts as its limit: too near, but of the right order.
        values = np.where(np.isfinite(labels[:, 0]), labels[:, 0], labels[:, 1])
        return mean_and_sd(values, weight)

    def log_predictive(self, y: Float[Array, "... 2"], mean: Array, var: Array) -> Array:
        lo, hi = y[..., 0], y[..., 1]
        known = lo == hi
        density = self.gaussian.log_predictive(jnp.where(known, lo, 0.0), mean, var)
        sd = jnp.sqrt(self.gaussian.predictive_var(var))

        def edge(bound: Array, other: float) -> Array:
            # Only finite bounds are differentiated; a known value has some other bucket here.
            finite = jnp.isfinite(bound) & ~known
            at = (jnp.where(finite, bound, 0.0) - mean) / sd
            return jnp.where(finite, at, jnp.where(known, other, bound))

        return jnp.where(known, density, log_bucket_mass(edge(lo, -jnp.inf), edge(hi, jnp.inf)))

    def law(self, mean: np.ndarray, var: np.ndarray) -> CensoredLaw:
        return self.rescaled_law(mean, var, 0.0, 1.0)

    def rescaled_law(
        self, mean: np.ndarray, var: np.ndarray, offset: float, scale: float
    ) -> CensoredLaw:
        # The limits are in the user's units already.
        latent = self.gaussian.law(mean, var).affine(offset, scale)
        return CensoredLaw(latent, *self.limits)

    def onnx_outputs(self, mean: Value, var: Value, offset: float, scale: float) -> ExportedNormal:
        latent = self.gaussian.onnx_outputs(mean, var, offset, scale)
        return ExportedNormal(latent.mean, latent.var, prefix="latent_")

    def __repr__(self) -> str:
        given = {"lower": self.lower, "upper": self.upper}
        shown = ", ".join(f"{k}={v:g}" for k, v in given.items() if v is not None)
        return f"Censored({shown})"
