"""Means over seeds, paired tests and the marks of a column.

With $v_s$ the score of seed s among n, and $d_s$ an arm's score minus the best arm's, signed so
that positive is worse,

    mean = sum_s v_s / n,      se = sd(v) / sqrt(n),      t = mean(d) / se(d)

and p = P(T > t) for Student's T with n - 1 degrees of freedom. The best mean is bold; an arm
that the test does not find worse (p >= 0.05) is italic.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import pandas as pd
from scipy.stats import t as student

from scrollmt.paper.data.published import Better

Mark = Literal["bold", "italic", ""]
Values: TypeAlias = Sequence[float | np.number] | np.ndarray | pd.Series
LEVEL = 0.05


@dataclass(frozen=True)
class Estimate:
    """A mean, its standard error (NaN for one value) and how many values they come from."""

    mean: float
    se: float
    count: int


@dataclass(frozen=True)
class Interval:
    """A mean over groups with its standard error and its t interval (NaN for one group)."""

    mean: float
    se: float
    low: float
    high: float
    count: int

    def covers(self, value: float) -> bool:
        return self.low <= value <= self.high


def estimate(values: Values) -> Estimate:
    """Mean and standard error of one value per seed; NaN is not left out."""
    x = np.asarray(values, dtype=float)
    if x.ndim != 1 or x.size == 0:
        raise ValueError(f"expected one value a seed, got an array of shape {x.shape}")
    # A failed run scores inf, and inf - inf has no spread.
    with np.errstate(invalid="ignore"):
        se = float(x.std(ddof=1) / np.sqrt(x.size)) if x.size > 1 else float("nan")
    return Estimate(float(x.mean()), se, x.size)


def geometric(ratios: Values) -> Estimate:
    """Mean of one ratio per seed, taken of its logarithm, and its error to first order."""
    logs = estimate(np.log(np.asarray(ratios, dtype=float)))
    mean = float(np.exp(logs.mean))
    return Estimate(mean, mean * logs.se, logs.count)


def p_worse(arm: Values, best: Values, better: Better = "lower") -> float:
    """One-sided paired t-test over seeds: small when `arm` is worse than `best`.

    - Equal at every seed: p = 0.5, the value at t = 0; there is no evidence either way.
    - One constant gap: its sign decides, p = 0 (worse) or 1 (better).
    - One seed, or a score that is not finite: NaN; there is nothing to test.
    """
    a, b = np.asarray(arm, dtype=float), np.asarray(best, dtype=float)
    if a.shape != b.shape or a.ndim != 1:
        raise ValueError(
            f"a paired test needs one score a seed from both arms; got {a.shape} and {b.shape}"
        )
    if a.size < 2 or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return float("nan")
    gap = estimate(a - b if better == "lower" else b - a)
    if gap.se == 0.0:
        return 0.5 if gap.mean == 0.0 else float(gap.mean < 0.0)
    return float(student.sf(gap.mean / gap.se, gap.count - 1))


def marks(
    scores: Mapping[str, pd.Series], better: Better = "lower", level: float = LEVEL
) -> dict[str, Mark]:
    """The mark of each arm in one column; `scores` holds, by arm, a series indexed by seed.

    Tests pair the seeds that an arm shares with the best one. An arm whose mean is not finite
    is never best and has no mark.
    """
    repeated = [arm for arm, column in scores.items() if column.index.has_duplicates]
    if repeated:
        raise ValueError(f"several scores for one seed in {repeated}; select one run a seed first")
    means = {arm: float(np.mean(column.to_numpy(dtype=float))) for arm, column in scores.items()}
    finite = {arm: mean for arm, mean in means.items() if np.isfinite(mean)}
    if not finite:
        return dict.fromkeys(scores, "")
    best = (min if better == "lower" else max)(finite, key=finite.__getitem__)
    found: dict[str, Mark] = {}
    for arm, column in scores.items():
        if means[arm] == means[best]:
            found[arm] = "bold"
            continue
        seeds = column.index.intersection(scores[best].index)
        p = p_worse(column.loc[seeds], scores[best].loc[seeds], better)
        found[arm] = "italic" if p >= level else ""
    return found


def between_groups(
    values: Values, groups: Iterable[Hashable], confidence: float = 0.95
) -> Interval:
    """Mean over group means with a t interval between groups.

    Seeds within a rolling origin share its windows, so only the origins are counted:
    with G groups, mean +- t_{G-1, (1 + confidence) / 2} se of the G group means.
    """
    scores, labels = np.asarray(values, dtype=float), [*groups]
    if scores.shape != (len(labels),):
        raise ValueError(
            f"values of shape {scores.shape} but {len(labels)} group labels; give one to each"
        )
    means = pd.Series(scores).groupby(labels, sort=False).mean(skipna=False)
    found = estimate(means)
    degrees = max(found.count - 1, 1)
    half = float(student.ppf(0.5 + 0.5 * confidence, degrees)) * found.se
    return Interval(found.mean, found.se, found.mean - half, found.mean + half, found.count)
