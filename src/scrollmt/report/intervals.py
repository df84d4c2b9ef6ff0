r"""How far to trust a score: leave out each stretch of neighbouring windows in turn.

Neighbouring windows resemble each other, so that the windows of one stretch count as one. With the
labels in G stretches of equal length and \(\theta_{-g}\) the score without stretch g,

    se^2 = (G - 1) / G  sum_g (theta_{-g} - mean_g theta_{-g})^2,    theta -+ t_{G-1} se

(the jackknife with groups; it serves means and smooth functions of means alike). Shapes: labels
(N,), weights (G, N).
"""

from __future__ import annotations

import numpy as np
from scipy import stats

STRETCHES = 20


def left_out(seen: np.ndarray) -> np.ndarray:
    """(G, N) weights, zero for the labels of one stretch in each row; G is 20, or N / 2 if less."""
    rows = np.flatnonzero(seen)
    groups = max(2, min(STRETCHES, len(rows) // 2))
    weights = np.ones((groups, len(seen)))
    for weight, stretch in zip(weights, np.array_split(rows, groups), strict=True):
        weight[stretch] = 0.0
    return weights


def interval(
    value: np.ndarray | float, without: np.ndarray, level: float
) -> tuple[np.ndarray, np.ndarray]:
    """The ends of the interval at `level`, given the values without one stretch, (G, ...)."""
    groups = len(without)
    se = np.sqrt((groups - 1) * np.var(without, axis=0))
    half = stats.t.ppf(0.5 * (1.0 + level), groups - 1) * se
    return np.asarray(value - half), np.asarray(value + half)
