r"""How far to trust a score: leave out each stretch of neighbouring windows in turn.

Neighbouring windows resemble each other, the more so where they overlap, so that the windows of
one stretch count as one. With the labels in G stretches of equal length and \(\theta_{-g}\) the
score without stretch g,

    se^2 = (G - 1) / G  sum_g (theta_{-g} - mean_g theta_{-g})^2,    theta -+ t_{G-1} se

(the jackknife with groups; it serves means and smooth functions of means alike). A stretch is at
least twice as long as windows overlap. Shapes: labels (N,), weights (G, N).
"""

from __future__ import annotations

import numpy as np
from scipy import stats

from scrollmt.scores import average

STRETCHES = 20
# With fewer there is no telling how far stretches differ.
FEWEST_STRETCHES = 4


def stretches(seen: np.ndarray, overlap: int = 1) -> int:
    """In how many stretches the labels are left out: 20, or fewer if these would be too short.

    `overlap` is how many neighbouring windows share target rows.
    """
    return min(STRETCHES, int(np.count_nonzero(seen)) // (2 * overlap))


def left_out(seen: np.ndarray, overlap: int = 1) -> np.ndarray:
    """(G, N) weights, zero for the labels of one stretch in each row."""
    rows = np.flatnonzero(seen)
    groups = max(2, stretches(seen, overlap))
    weights = np.ones((groups, len(seen)))
    for weight, stretch in zip(weights, np.array_split(rows, groups), strict=True):
        weight[stretch] = 0.0
    return weights


def standard_error(without: np.ndarray) -> np.ndarray:
    """Of a score, given its values without one stretch, (G, ...)."""
    return np.asarray(np.sqrt((len(without) - 1) * np.var(without, axis=0)))


def interval(
    value: np.ndarray | float, without: np.ndarray, level: float
) -> tuple[np.ndarray, np.ndarray]:
    """The ends of the interval at `level`, given the values without one stretch, (G, ...)."""
    half = stats.t.ppf(0.5 * (1.0 + level), len(without) - 1) * standard_error(without)
    return np.asarray(value - half), np.asarray(value + half)


def error_of_mean(values: np.ndarray, weight: np.ndarray, overlap: int = 1) -> float:
    """Standard error of a weighted mean over the values that are there; NaN where these are few."""
    seen = ~np.isnan(values) & (weight > 0)
    if stretches(seen, overlap) < FEWEST_STRETCHES:
        return float("nan")
    kept = weight * left_out(seen, overlap)
    return float(standard_error(np.array([average(values, one) for one in kept])))
