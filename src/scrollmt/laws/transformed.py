r"""Laws in original units: what the law of a number ``y = T(x)`` says about x itself.

For the increasing maps T of ``scrollmt.transforms`` (the identity included),

    cdf_x(x) = cdf_y(T(x)),    sf_x(x) = sf_y(T(x)),    quantile_x(p) = T^{-1}(quantile_y(p)),
    log p_x(x) = log p_y(T(x)) + log T'(x),    x_n = T^{-1}(y_n) for draws.

Where y has a mass (a detection limit, a count) so has x, and no slope belongs to it. The median
and central intervals go over as quantiles do. The mean does not (it is not the
inverse of the mean), and is not offered. Shapes as in ``scrollmt.laws``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, final

import numpy as np
from jaxtyping import Float, PRNGKeyArray

from scrollmt.laws import Law, MemberWeights, NumberLaw, Numbers, mix, moment_matched, real_labels
from scrollmt.laws.real import Atoms
from scrollmt.observables import Observable, Value
from scrollmt.transforms import Transform

Vector = Float[np.ndarray, " N"]
_TAIL = 1e-12
_LEGENDRE = np.polynomial.legendre.leggauss(64)


@final
@dataclass(frozen=True, eq=False, repr=False)
class TransformedLaw(NumberLaw):
    """N forecasts of x, given the law of ``transform(x)``."""

    _answers: ClassVar[str] = "law.median, law.quantile(p)"
    law: NumberLaw
    transform: Transform

    def __post_init__(self) -> None:
        object.__setattr__(self, "index", self.law.index)
        object.__setattr__(self, "extrapolation", self.law.extrapolation)

    def __len__(self) -> int:
        return len(self.law)

    def _rows(self, rows: np.ndarray) -> Self:
        return type(self)(self.law[rows], self.transform)

    @classmethod
    def _mix(cls, laws: Sequence[Any], weights: MemberWeights | None) -> Self:
        return cls(mix([one.law for one in laws], weights), cls._transform(laws))

    @classmethod
    def _moment_matched(cls, laws: Sequence[Any]) -> Self:
        return cls(moment_matched([one.law for one in laws]), cls._transform(laws))

    @staticmethod
    def _transform(laws: Sequence[Any]) -> Transform:
        """The one that all laws come from."""
        transforms: set[Transform] = {one.transform for one in laws}
        if len(transforms) > 1:
            raise ValueError(
                "mix: the laws come from different transforms: "
                f"{sorted(one.describe('x') for one in transforms)}"
            )
        return transforms.pop()

    @property
    def atoms(self) -> Atoms:
        # Whole numbers are whole no more.
        return "none" if self.law.atoms == "none" else "some"

    @property
    def metrics(self) -> tuple[str, ...]:
        # Tails heavier than those of a normal law may have no mean on the other scale, and no CRPS.
        light = self.law.normal or self.law.normals is not None
        return ("coverage", "crps", "mae") if light else ("coverage", "mae")

    def quantile(self, p: Numbers) -> np.ndarray:
        """(N,) for a scalar `p`, (N, len(p)) for a 1-d one."""
        return self.transform.inverse(self.law.quantile(p))

    def _quantile(self, p: float) -> Vector:
        return self.quantile(p)

    def interval(self, level: Numbers) -> tuple[np.ndarray, np.ndarray]:
        """The central interval as (lower, upper): as much mass below it as above."""
        lower, upper = self.law.interval(level)
        return self.transform.inverse(lower), self.transform.inverse(upper)

    def cdf(self, x: Numbers) -> Vector:
        """P(X_n <= x_n)."""
        return self.law.cdf(self._forward(x))

    def cdf_pair(self, x: Numbers) -> tuple[Vector, Vector]:
        """P(X_n < x_n) and P(X_n <= x_n)."""
        return self.law.cdf_pair(self._forward(x))

    def is_atom(self, x: Numbers) -> np.ndarray:
        return self.law.is_atom(self._forward(x))

    def covered(self, x: Numbers, levels: Numbers) -> np.ndarray:
        # Intervals go over with the change of scale, and so does what lies in them.
        return self.law.covered(self._forward(x), levels)

    def _forward(self, x: Numbers) -> Vector:
        return self.transform.forward(real_labels(x, len(self), "x"))

    def sf(self, x: Numbers) -> Vector:
        """P(X_n > x_n)."""
        return self.law.sf(self._forward(x))

    def log_prob(self, x: Numbers) -> Vector:
        """Log density per original unit; -inf where x cannot occur, NaN where it is missing."""
        x = real_labels(x, len(self), "x")
        y = self.transform.forward(x)
        score = self.law.log_prob(y)
        # At the end of T's domain the slope is infinite, and the density of the law zero.
        as_it_is = np.isneginf(score) | self.law.is_atom(y)
        with np.errstate(invalid="ignore"):
            return np.where(as_it_is, score, score + self.transform.log_slope(x))

    def crps(self, x: Numbers) -> Vector:
        r"""Continuous ranked probability score in original units, by quadrature.

        $$\int_{-\infty}^{T(x)} F^2(y)\,dT^{-1}(y) + \int_{T(x)}^{\infty} (1 - F(y))^2\,dT^{-1}(y)$$

        with F the law of y. Beyond a tail mass of 1e-12 either factor is a constant.
        """
        x = real_labels(x, len(self), "x")
        low, high = self.law.quantile(_TAIL), self.law.quantile(1.0 - _TAIL)
        y = self.transform.forward(x)
        at = np.clip(y, low, high)
        total = np.maximum(self.transform.inverse(low) - x, 0.0)
        total = total + np.maximum(x - self.transform.inverse(high), 0.0)
        for node, weight in zip(*_LEGENDRE, strict=True):
            for start, stop, below in ((low, at, True), (at, high, False)):
                point = start + (stop - start) * 0.5 * (1.0 + node)
                share = self.law.cdf(point) if below else 1.0 - self.law.cdf(point)
                slope = np.exp(-self.transform.log_slope(self.transform.inverse(point)))
                total = total + 0.5 * (stop - start) * weight * share**2 * slope
        return np.where(np.isnan(x), np.nan, total)

    def _sample(self, key: PRNGKeyArray, n: int) -> Float[np.ndarray, "n N"]:
        return self.transform.inverse(self.law._sample(key, n))


def in_original_units(law: Law, asked: Observable, y: np.ndarray) -> tuple[Law, np.ndarray]:
    """A law and its labels without the change of scale of their question."""
    if not isinstance(asked, Value) or not asked.after.steps:
        return law, y
    return original_units(law, asked), asked.inverse(y)


def original_units(law: Law, asked: Observable) -> Law:
    """The law of a question's answer without the question's change of scale.

    ``original_units(model.predict(X)["state"], windows.questions["state"])`` turns a law of
    log1p(x) into one of x. A law that is in original units already comes back as it is.
    """
    if not isinstance(asked, Value):
        return law
    if not isinstance(law, NumberLaw):
        raise ValueError(
            f"'{asked}' is answered by the law of a number, got a {type(law).__name__}: "
            "pass the law of the same task"
        )
    return TransformedLaw(law, asked.after) if asked.after.steps else law
