r"""Monotone changes of scale with their inverses, so that answers return in original units.

A law on ``y = T(x)`` with T increasing has, on the scale of x,

    quantile_x(p) = T^{-1}(quantile_y(p)),    cdf_x(x) = cdf_y(T(x)),
    log p_x(x) = log p_y(T(x)) + log T'(x).

``Transform`` is a chain of named steps, applied left to right. Shapes: elementwise, any shape,
in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike


class _Step(NamedTuple):
    forward: Callable[[np.ndarray], np.ndarray]
    inverse: Callable[[np.ndarray], np.ndarray]
    log_slope: Callable[[np.ndarray], np.ndarray]
    lowest: float
    lowest_allowed: bool


def _log(x: np.ndarray) -> np.ndarray:
    """log x, and -inf below zero, where an increasing continuation has to stay."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.maximum(x, 0.0)))


def _log1p(x: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log1p(np.maximum(x, -1.0)))


# A law can leave mass outside the range of T. There both directions continue T monotonically
# (expm1 below zero, the signed square and root), so that quantiles keep their order and the
# distribution function stays one; `checked` refuses such values as data.
_STEPS: dict[str, _Step] = {
    "log1p": _Step(_log1p, np.expm1, lambda x: -_log1p(x), -1.0, lowest_allowed=False),
    "log": _Step(_log, np.exp, lambda x: -_log(x), 0.0, lowest_allowed=False),
    "sqrt": _Step(
        lambda x: np.sign(x) * np.sqrt(np.abs(x)),
        lambda y: np.sign(y) * np.square(y),
        lambda x: -0.5 * _log(np.abs(x)) - np.log(2.0),
        0.0,
        lowest_allowed=True,
    ),
}


@dataclass(frozen=True)
class Transform:
    """A chain of increasing maps; ``Transform()`` is the identity."""

    steps: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for step in self.steps:
            if step not in _STEPS:
                raise ValueError(f"Unknown transform {step!r}; there are {sorted(_STEPS)}.")

    def then(self, step: str) -> Transform:
        return Transform((*self.steps, step))

    def forward(self, x: ArrayLike) -> np.ndarray:
        """T(x), continued outside the domain (``checked`` refuses it there); NaN stays NaN."""
        x = np.asarray(x)
        for step in self.steps:
            x = _STEPS[step].forward(x)
        return x

    def inverse(self, y: ArrayLike) -> np.ndarray:
        """The x in original units with T(x) = y."""
        y = np.asarray(y)
        for step in reversed(self.steps):
            y = _STEPS[step].inverse(y)
        return y

    def log_slope(self, x: ArrayLike) -> np.ndarray:
        """log T'(x) at x in original units: what a log density gains on the way back."""
        x = np.asarray(x)
        total = np.zeros(x.shape)
        for step in self.steps:
            total = total + _STEPS[step].log_slope(x)
            x = _STEPS[step].forward(x)
        return total

    def checked(self, x: np.ndarray, what: str) -> np.ndarray:
        """T(x) with a ``ValueError`` where a value lies outside the domain.

        A logarithm of zero would otherwise be an infinite target and that of a negative value
        would pass for a missing one.
        """
        for step in self.steps:
            rule = _STEPS[step]
            bad = x < rule.lowest if rule.lowest_allowed else x <= rule.lowest
            if np.any(bad):
                sign = ">=" if rule.lowest_allowed else ">"
                raise ValueError(
                    f"{what}: {step} needs values {sign} {rule.lowest:g}, and {int(np.sum(bad))} "
                    f"are not (the smallest is {np.nanmin(x):g}). Use another transform, or mark "
                    "those values as missing (NaN) before."
                )
            x = rule.forward(x)
        return x

    def describe(self, name: str) -> str:
        for step in self.steps:
            name = f"{step}({name})"
        return name


class Transformable:
    """Gives ``.log1p()``, ``.log()`` and ``.sqrt()`` to whatever can take one more step."""

    def _then(self, step: str) -> Self:
        raise NotImplementedError

    def log1p(self) -> Self:
        return self._then("log1p")

    def log(self) -> Self:
        return self._then("log")

    def sqrt(self) -> Self:
        return self._then("sqrt")
