r"""A law in other units: F_{offset + scale Y}(y) = F((y - offset) / scale).

It is what `affine` gives for any `RealLaw` without a form of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self, final

import numpy as np
from jaxtyping import Float, PRNGKeyArray

from scrollmt.laws.base import MemberWeights, Numbers, Vector
from scrollmt.laws.mixture import mix
from scrollmt.laws.real import Atoms, RealLaw


@final
class AffineLaw(RealLaw):
    """The law of `offset + scale * y`, for scale > 0, given the law of y."""

    def __init__(self, law: RealLaw, offset: float, scale: float) -> None:
        if not scale > 0.0:
            raise ValueError(f"AffineLaw: scale must be > 0, got {scale}")
        self.law, self.offset, self.scale = law, offset, scale

    def _inside(self, y: Numbers) -> np.ndarray:
        return np.asarray((np.asarray(y, dtype=np.float64) - self.offset) / self.scale)

    def _outside(self, y: np.ndarray) -> np.ndarray:
        return self.offset + self.scale * y

    def __len__(self) -> int:
        return len(self.law)

    def _rows(self, rows: np.ndarray) -> Self:
        return type(self)(self.law[rows], self.offset, self.scale)

    @classmethod
    def _mix(cls, laws: Sequence[Any], weights: MemberWeights | None) -> Any:
        units = {(law.offset, law.scale) for law in laws}
        if len(units) > 1:
            return super()._mix(laws, weights)
        return mix([law.law for law in laws], weights).affine(*units.pop())

    @property
    def atoms(self) -> Atoms:
        # Whole numbers are whole no more.
        return "none" if self.law.atoms == "none" else "some"

    @property
    def normal(self) -> bool:
        return self.law.normal

    @property
    def metrics(self) -> tuple[str, ...]:
        return self.law.metrics

    @property
    def mean(self) -> Vector:
        return self._outside(self.law.mean)

    @property
    def sd(self) -> Vector:
        return self.scale * self.law.sd

    def is_atom(self, y: Numbers) -> np.ndarray:
        return self.law.is_atom(self._inside(y))

    def log_prob(self, y: Numbers) -> Vector:
        inside = self._inside(y)
        density = self.law.log_prob(inside) - math.log(self.scale)
        return np.where(self.law.is_atom(inside), self.law.log_prob(inside), density)

    def cdf(self, y: Numbers) -> Vector:
        return self.law.cdf(self._inside(y))

    def sf(self, y: Numbers) -> Vector:
        return self.law.sf(self._inside(y))

    def cdf_pair(self, y: Numbers) -> tuple[Vector, Vector]:
        return self.law.cdf_pair(self._inside(y))

    def recorded(self, y: Numbers) -> np.ndarray:
        return self._outside(self.law.recorded(self._inside(y)))

    def crps(self, y: Numbers) -> Vector:
        return self.scale * self.law.crps(self._inside(y))

    def _quantile(self, p: float) -> Vector:
        return self._outside(self.law.quantile(p))

    def _sample(self, key: PRNGKeyArray, n: int) -> Float[np.ndarray, "n N"]:
        return self._outside(self.law._sample(key, n))
