r"""What laws of a number have in common.

A law with a distribution function F may have atoms, values of positive mass such as counts or a
detection limit; P(Y < y) and P(Y <= y) differ there and nowhere else. All scores of such laws
need only

    cdf_pair(y) = (P(Y < y), P(Y <= y)),    quantile(p) = inf{y : F(y) >= p},    mean, sd.
"""

from __future__ import annotations

import abc

import numpy as np
import pandas as pd
from jaxtyping import Float

from scrollmt.laws.base import Law, Numbers, Vector, probabilities

Members = Float[np.ndarray, "N M"]


def members(value: Numbers, law: str, name: str) -> Members:
    """A parameter as a private, read-only float64 array (N, M); (N,) is a single member."""
    array = np.array(value, dtype=np.float64)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2:
        raise ValueError(f"{law}: {name} has shape {array.shape}, need (N,) or (N, M)")
    if not np.isfinite(array).all():
        row = int(np.argwhere(~np.isfinite(array))[0][0])
        raise ValueError(f"{law}: {name} is {array[row]} in row {row}, need finite numbers")
    array.setflags(write=False)
    return array


class RealLaw(Law):
    """N forecasts of a number, each with a distribution function."""

    @property
    @abc.abstractmethod
    def mean(self) -> Vector:
        """E[Y_n]."""

    @property
    @abc.abstractmethod
    def sd(self) -> Vector:
        """Standard deviation of Y_n."""

    @abc.abstractmethod
    def cdf(self, y: Numbers) -> Vector:
        """P(Y_n <= y_n)."""

    def sf(self, y: Numbers) -> Vector:
        """P(Y_n > y_n). Laws of scrollmt keep all digits far to the right, where this is small."""
        return 1.0 - self.cdf(y)

    @abc.abstractmethod
    def _quantile(self, p: float) -> Vector:
        """Smallest y with P(Y_n <= y) >= p."""

    def cdf_pair(self, y: Numbers) -> tuple[Vector, Vector]:
        """P(Y_n < y_n) and P(Y_n <= y_n); the same where y_n is no atom."""
        upto = self.cdf(y)
        return upto, upto

    def is_atom(self, y: Numbers) -> np.ndarray:
        """Where `log_prob` is the logarithm of a mass, not of a density."""
        return np.zeros(len(self), dtype=bool)

    @property
    def median(self) -> Vector:
        """The value that is exceeded at most half of the time."""
        return self._quantile(0.5)

    def quantile(self, p: Numbers) -> np.ndarray:
        """Smallest y with cdf >= p: (N,) for a scalar `p`, (N, len(p)) for a 1-d one."""
        levels = probabilities(p, "p")
        if levels.ndim == 0:
            return self._quantile(float(levels))
        if levels.size == 0:
            return np.zeros((len(self), 0))
        return np.stack([self._quantile(float(one)) for one in levels], axis=1)

    def interval(self, level: Numbers) -> tuple[np.ndarray, np.ndarray]:
        """The central interval as (lower, upper), like `quantile`: no more than half of the
        remaining mass lies to either side."""
        levels = probabilities(level, "level")
        return self.quantile(0.5 * (1.0 - levels)), self.quantile(0.5 * (1.0 + levels))

    def to_frame(self, level: float = 0.9) -> pd.DataFrame:
        """Columns mean, sd, lower, upper (the central interval at `level`)."""
        lower, upper = self.interval(level)
        return self._table({"mean": self.mean, "sd": self.sd, "lower": lower, "upper": upper})

    def _point(self) -> Vector:
        return self.mean
