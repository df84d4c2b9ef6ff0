"""Summaries of weighted rows, in NumPy float64: a row of weight two counts as that row twice.

Shapes: values `(N,)` or `(N, D)`, weights `(N,)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

# A spread below this share of the values is rounding noise, not a signal.
ROUNDING = 1e-14


def is_constant(values: np.ndarray) -> np.ndarray:
    """Whether each column differs by no more than rounding."""
    low, high = values.min(axis=0), values.max(axis=0)
    # Halves, since the difference of two huge values may not fit a float.
    return np.asarray(high / 2 - low / 2 <= ROUNDING * np.maximum(np.abs(low), np.abs(high)))


def weighted_moments(values: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weighted mean and sd over the first axis, sd zero where only rounding differs.

    Rows of weight zero do not count. Shares and relative deviations, so that neither sum nor
    square leaves the range of a float where the result does not.
    """
    kept = weight > 0
    values, share = values[kept], weight[kept] / weight[kept].sum()
    constant = is_constant(values)
    mean = np.where(constant, values[0], share @ values)
    centred = values - mean
    reach = np.where(constant, 1.0, np.abs(centred).max(axis=0))
    sd = reach * np.sqrt(share @ (centred / reach) ** 2)
    return mean, np.where(constant, 0.0, sd)


class Moments(NamedTuple):
    """The total weight, mean and sd of some rows, `()` or `(D,)`; those of two parts merge exactly.

    mean = m_a + s (m_b - m_a),  sd^2 = (1 - s) sd_a^2 + s sd_b^2 + s (1 - s) (m_b - m_a)^2

    with s the second part's share of the weight (Chan, Golub and LeVeque): no sum of squares is
    ever taken around another point than a mean.
    """

    weight: float
    mean: np.ndarray
    sd: np.ndarray

    def merged(self, other: Moments) -> Moments:
        total = self.weight + other.weight
        share = other.weight / total
        gap = other.mean - self.mean
        within = np.hypot(np.sqrt(1.0 - share) * self.sd, np.sqrt(share) * other.sd)
        sd = np.hypot(within, np.sqrt(share * (1.0 - share)) * np.abs(gap))
        return Moments(total, np.asarray(self.mean + share * gap), np.asarray(sd))


def weighted_quantiles(
    values: Float[np.ndarray, " N"], weight: Float[np.ndarray, " N"], p: Sequence[float]
) -> Float[np.ndarray, " P"]:
    """Quantiles of the rows with positive weight, each at the middle of its share of the mass."""
    kept = weight > 0
    order = np.argsort(values[kept])
    ordered, share = values[kept][order], weight[kept][order]
    middle = (np.cumsum(share) - 0.5 * share) / share.sum()
    return np.asarray(np.interp(p, middle, ordered))
