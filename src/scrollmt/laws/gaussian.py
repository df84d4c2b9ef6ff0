r"""The law of a value with Gaussian noise (eq. of V_n, and the weight of ``cor:weights``).

    y_n ~ N(m_n, V_n),    V_n = sigma_obs^2 + psi_n' Sigma psi_n,    weight_n = 1 / (2 V_n)

``mix`` gives the exact mixture of such laws, a `GaussianMixtureLaw`; ``moment_matched`` one
Gaussian law with its first two moments. Shapes: ``mean``, ``sd``, ``var`` are (N,).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, final

import jax
import numpy as np
import scoringrules
from jaxtyping import Float, PRNGKeyArray
from scipy.special import ndtr, ndtri

from scrollmt.laws.base import Numbers, Vector, probabilities, real_labels, set_array
from scrollmt.laws.normals import Normals
from scrollmt.laws.real import RealLaw

# sd given in float32 makes sd**2 round by about 2e-7, relatively.
VARIANCE_TOLERANCE = 1e-6


@final
@dataclass(frozen=True, eq=False, repr=False, init=False)
class GaussianLaw(RealLaw):
    """y_n ~ N(mean_n, sd_n^2); `noise_var` (sigma_obs^2, scalar or (N,)) splits the variance."""

    # Fields, in the place of the properties that other laws of a number have; set by `__init__`.
    mean: Vector = None  # type: ignore[assignment]
    sd: Vector = None  # type: ignore[assignment]
    noise_var: Vector | None = None

    def __init__(self, mean: Numbers, sd: Numbers, noise_var: Numbers = None) -> None:
        m = set_array(self, "mean", mean, 1)
        s = set_array(self, "sd", sd, 1)
        if s.shape != m.shape:
            raise ValueError(f"GaussianLaw: mean has shape {m.shape}, sd has shape {s.shape}")
        bad = ~(np.isfinite(m) & np.isfinite(s) & (s > 0.0))
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise ValueError(
                f"GaussianLaw: need a finite mean and a finite sd > 0, "
                f"row {row} has mean {m[row]:g}, sd {s[row]:g}"
            )
        object.__setattr__(self, "noise_var", None)
        if noise_var is None:
            return
        noise = np.asarray(noise_var, dtype=np.float64)
        if noise.shape not in ((), m.shape):
            raise ValueError(
                f"GaussianLaw: noise_var has shape {noise.shape}, need a scalar or {m.shape}"
            )
        noise = set_array(self, "noise_var", np.broadcast_to(noise, m.shape), 1)
        bad = (noise < 0.0) | (noise > s**2 * (1.0 + VARIANCE_TOLERANCE))
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise ValueError(
                f"GaussianLaw: noise_var must lie between 0 and sd^2, "
                f"row {row} has noise_var {noise[row]:g}, sd^2 {s[row] ** 2:g}"
            )

    def __len__(self) -> int:
        return len(self.mean)

    def _rows(self, rows: np.ndarray) -> Self:
        noise = None if self.noise_var is None else self.noise_var[rows]
        return type(self)(self.mean[rows], self.sd[rows], noise)

    @classmethod
    def _moment_matched(cls, laws: Sequence[Any]) -> Self:
        means = np.stack([law.mean for law in laws])
        # Equal to mean(V + m^2) - mean(m)^2, without the cancellation when |m| >> sd.
        var = np.mean([law.var for law in laws], axis=0) + means.var(axis=0)
        noises = [law.noise_var for law in laws if law.noise_var is not None]
        noise = np.mean(noises, axis=0) if len(noises) == len(laws) else None
        return cls(means.mean(axis=0), np.sqrt(var), noise)

    @property
    def normal(self) -> bool:
        return True

    @property
    def normals(self) -> Normals:
        one = np.ones((len(self), 1))
        return Normals(self.mean[:, None], self.sd[:, None], one)

    @property
    def belief_var(self) -> Vector | None:
        """V_n - sigma_obs^2, what the belief adds; None where the noise was not given."""
        if self.noise_var is None:
            return None
        # The constructor has refused all but rounding, which alone can make this negative.
        return np.asarray(np.maximum(self.var - self.noise_var, 0.0))

    @property
    def effective_weight(self) -> Vector:
        """1 / (2 V_n): the coefficient of the squared error in nats (``cor:weights``)."""
        return 0.5 / self.var

    def affine(self, offset: float, scale: float) -> Self:
        """The law of `offset + scale * y`, for scale > 0."""
        noise = None if self.noise_var is None else scale**2 * self.noise_var
        law = type(self)(offset + scale * self.mean, scale * self.sd, noise)
        return law._at_inputs_of(self)

    def standardise(self, y: Numbers) -> Vector:
        """(y_n - mean_n) / sd_n."""
        return np.asarray((real_labels(y, len(self)) - self.mean) / self.sd)

    def log_prob(self, y: Numbers) -> Vector:
        density = -0.5 * self.standardise(y) ** 2 - np.log(self.sd)
        return np.asarray(density - 0.5 * math.log(2.0 * math.pi))

    def cdf(self, y: Numbers) -> Vector:
        """P(Y_n <= y_n)."""
        return np.asarray(ndtr(self.standardise(y)))

    def sf(self, y: Numbers) -> Vector:
        """P(Y_n > y_n), with all digits far to the right, where 1 - cdf has none."""
        return np.asarray(ndtr(-self.standardise(y)))

    def quantile(self, p: Numbers) -> np.ndarray:
        """(N,) for a scalar `p`, (N, len(p)) for a 1-d one; infinite at p = 0 and 1."""
        return self._at(ndtri(probabilities(p, "p")))

    def interval(self, level: Numbers) -> tuple[np.ndarray, np.ndarray]:
        """Central interval mean -+ z sd, z = z_{(1+level)/2}, as (lower, upper) like `quantile`."""
        z = central_z(level)
        return self._at(-z), self._at(z)

    def _quantile(self, p: float) -> Vector:
        return self._at(ndtri(p))

    def covered(self, y: Numbers, levels: Numbers) -> np.ndarray:
        distance = np.abs(self.standardise(y))
        z = central_z(levels)
        distance = distance if z.ndim == 0 else distance[:, None]
        return np.where(np.isnan(distance), np.nan, distance <= z)

    def crps(self, y: Numbers) -> Vector:
        labels = real_labels(y, len(self))
        return np.asarray(scoringrules.crps_normal(labels, self.mean, self.sd, backend="numpy"))

    def _at(self, z: Numbers) -> np.ndarray:
        if np.ndim(z) == 0:
            return np.asarray(self.mean + self.sd * z)
        return np.asarray(self.mean[:, None] + self.sd[:, None] * z)

    def _sample(self, key: PRNGKeyArray, n: int) -> Float[np.ndarray, "n N"]:
        z = np.asarray(jax.random.normal(key, (n, len(self))), np.float64)
        return np.asarray(self.mean + self.sd * z)


def central_z(level: Numbers) -> np.ndarray:
    """z with P(|Z| <= z) = level for a standard normal Z, from the left tail for accuracy."""
    return np.asarray(-ndtri(0.5 * (1.0 - probabilities(level, "level"))))
