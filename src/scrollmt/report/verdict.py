r"""Calibration in words.

Two numbers decide. For a value, moments of the PIT u:

    E u = 1/2            above: the forecasts lie too low
    12 Var u = 1         above: too sure, below: too cautious

A Gaussian law whose sd is s times too small has 12 Var u = (6 / pi) arcsin(s^2 / (1 + s^2)), which
turns the second number into one about the spread; it is taken after the mean error, in sds, is
removed, since a shifted law would pass for a cautious one. For ordered classes, over all
events {Y >= r} with probability p and indicator o that are seen often enough on both sides:

    E (o - p) = 0                            above: the forecasts lie too low
    slope = 1 + sum_r cov(o - p, p) / sum_r Var p = 1     below: too sure, above: too cautious

the slope of a straight line through the reliability diagram. Intervals of both numbers (95
percent) tell a departure from chance; its size tells a small one from a large one. Where labels are
few, or windows overlap so much that few of them are independent, there is no verdict.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scrollmt import scores
from scrollmt._scoring.uncertainty import interval, left_out, stretches
from scrollmt.laws import DiscreteLaw, GaussianLaw, Law, NumberLaw, OrderedLaw, RealLaw
from scrollmt.plots import pit_bounds

MIN_LABELS = 50
MIN_PER_CLASS = 10
MIN_STRETCHES = 5
CONFIDENCE = 0.95
# Beyond these a departure matters in practice. Values: a mean that is off by a tenth of an sd
# moves E u by 0.028, an sd that is off by a tenth moves 12 Var u by 0.11. Classes: three points
# of probability, a tenth of the slope. A departure below `TELLING` of that does not count.
LARGE_FOR_VALUES = (0.028, 0.11)
LARGE_FOR_CLASSES = (0.03, 0.1)
TELLING = 0.3


@dataclass(frozen=True)
class Verdict:
    """`kind` is "good", "fair", "bad" or "plain"; `word` names it, `sentences` explain it."""

    kind: str
    word: str
    sentences: str


def judge(law: Law, y: np.ndarray, overlap: int = 1) -> Verdict:
    """The verdict on one task, given what came true (N,) and how many neighbours overlap."""
    if not isinstance(law, NumberLaw | DiscreteLaw):
        return Verdict("plain", "not judged", f"A {type(law).__name__} makes no promise to check.")
    said = _numbers(law, y)
    few = _too_few(law, y, overlap)
    if few is not None:
        return Verdict("plain", "too few to judge", f"Too few to judge: {few}. {said}")
    if isinstance(law, DiscreteLaw) and not isinstance(law, OrderedLaw):
        return _judge_likeliest(law, y, said, overlap)
    # The first row leaves nothing out: the numbers themselves.
    weights = np.vstack([np.ones((1, len(law))), left_out(~np.isnan(y), overlap)])
    if isinstance(law, OrderedLaw):
        found, *without = class_moments(law, y, weights, judged_cuts(law, y))
        sure, large = found[1] < 1.0, LARGE_FOR_CLASSES
    else:
        found, *without = pit_moments(law, y, weights)
        sure, large = found[1] > 1.0, LARGE_FOR_VALUES
    low, high = interval(found, np.array(without), CONFIDENCE)
    right = np.array([0.0, 1.0])
    size = np.abs(found - right) / large
    wrong = ((low > right) | (high < right)) & (size > TELLING)
    level, spread = zip(found, low, high, strict=True)
    told = [_level(law, *level), _spread(law, *spread)]
    if not wrong.any():
        return Verdict("good", "calibrated", f"No departure of note. {said} {' '.join(told)}")
    names = (
        f"forecasts lie too {'low' if found[0] > 0.0 else 'high'}",
        "too sure" if sure else "too cautious",
    )
    word = " and ".join(name for name, is_wrong in zip(names, wrong, strict=True) if is_wrong)
    decided = " ".join(one for one, is_wrong in zip(told, wrong, strict=True) if is_wrong)
    kind, name = ("bad", "clear") if (wrong & (size > 1.0)).any() else ("fair", "slight")
    return Verdict(kind, word, f"A {name} departure from calibration: {decided} {said}")


def _too_few(law: Law, y: np.ndarray, overlap: int) -> str | None:
    """Why there is no verdict, in words; None where there is one."""
    seen = ~np.isnan(y)
    n = int(np.count_nonzero(seen))
    if isinstance(law, DiscreteLaw) and law.is_event:
        happened = int(np.sum(y[seen]))
        if min(happened, n - happened) < MIN_PER_CLASS:
            return f"{happened} events in {n} labels, and {MIN_PER_CLASS} of each kind are needed"
    elif isinstance(law, OrderedLaw) and not judged_cuts(law, y).any():
        return f"no edge has {MIN_PER_CLASS} of the {n} labels on either side"
    if n < MIN_LABELS:
        return f"{n} labels, and {MIN_LABELS} are needed"
    groups = stretches(seen, overlap)
    if groups < MIN_STRETCHES:
        return (
            f"{n} windows, of which {overlap} in a row overlap, so that only about "
            f"{n // overlap} are independent"
        )
    return None


def judged_cuts(law: OrderedLaw, y: np.ndarray) -> np.ndarray:
    """(R-1,) which events {Y >= r} are seen often enough on both sides."""
    labels = law.labels(y)
    above = (labels[labels >= 0, None] > np.arange(law.num_classes - 1)).sum(axis=0)
    return np.asarray(np.minimum(above, np.count_nonzero(labels >= 0) - above) >= MIN_PER_CLASS)


def _shares(weights: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Weights (B, N) of the labels that are seen, as shares that add up to one in each B."""
    mine = weights[:, seen]
    return np.asarray(mine / mine.sum(axis=1, keepdims=True))


def pit_moments(law: Law, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """`(E u - 1/2, 12 Var u)` of the PIT, (B, 2), for weights (B, N) of the windows.

    Missing labels are left out.
    """
    seen = ~np.isnan(y)
    share = _shares(weights, seen)
    mean, _ = _pit_mean_and_square(law, y, seen, share)
    if isinstance(law, RealLaw) and law.normal:
        error = np.nanmean((y - law.mean) / law.sd)
        law = GaussianLaw(law.mean + error * law.sd, law.sd)
    centre, square = _pit_mean_and_square(law, y, seen, share)
    return np.stack([mean - 0.5, 12.0 * (square - centre**2)], axis=1)


def _pit_mean_and_square(
    law: Law, y: np.ndarray, seen: np.ndarray, share: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """E u and E u^2, where u is uniform between P(Y < y) and P(Y <= y)."""
    low, high = (bound[seen] for bound in pit_bounds(law, y))
    square = (low * low + low * high + high * high) / 3.0
    return share @ ((low + high) / 2.0), share @ square


def class_moments(
    law: OrderedLaw, y: np.ndarray, weights: np.ndarray, cuts: np.ndarray | None = None
) -> np.ndarray:
    """`(E (o - p), slope)` over the events {Y >= r} of some cuts, (B, 2), for weights (B, N)."""
    labels = law.labels(y)
    seen = labels >= 0
    share = _shares(weights, seen)
    chosen = np.arange(law.num_classes - 1) if cuts is None else np.flatnonzero(cuts)
    p = 1.0 - law.cdfs[seen][:, chosen]
    error = (labels[seen, None] > chosen) - p
    mean_error, mean_p = share @ error, share @ p
    joint = (share @ (error * p) - mean_error * mean_p).sum(axis=1)
    var = (share @ (p * p) - mean_p**2).sum(axis=1)
    # Forecasts that never vary have no slope; the right one stands in.
    slope = 1.0 + np.divide(joint, var, out=np.zeros_like(joint), where=var > 1e-12)
    return np.stack([mean_error.mean(axis=1), slope], axis=1)


def spread_factor(dispersion: float) -> float:
    """How many times too small a Gaussian law's sd is, given 12 Var u; infinite from 3 on."""
    ratio = np.sin(np.pi / 6.0 * np.clip(dispersion, 0.0, 3.0))
    return float(np.sqrt(ratio / (1.0 - ratio))) if ratio < 1.0 else float("inf")


def _level(law: Law, value: float, low: float, high: float) -> str:
    """Whether forecasts lie too low or too high, as a sentence with its interval."""
    if isinstance(law, OrderedLaw):
        return (
            f"Outcomes came {100 * value:+.1f} points more often than they were given "
            f"({CONFIDENCE:.0%} interval {100 * low:+.1f} to {100 * high:+.1f}; 0 is right)."
        )
    return (
        f"The mean PIT is {0.5 + value:.3f} ({CONFIDENCE:.0%} interval {0.5 + low:.3f} to "
        f"{0.5 + high:.3f}; 0.5 is right)."
    )


def _spread(law: Law, value: float, low: float, high: float) -> str:
    """Whether forecasts are too sure or too cautious, as a sentence with its interval."""
    if isinstance(law, OrderedLaw):
        return (
            f"Where a law says 10 points more, the outcome comes {10 * value:.1f} points more "
            f"often ({CONFIDENCE:.0%} interval {10 * low:.1f} to {10 * high:.1f}; 10 is right)."
        )
    if isinstance(law, RealLaw) and law.normal:
        factor, least, most = (spread_factor(d) for d in (value, low, high))
        return (
            f"Residuals are {factor:.2f} times as large as the predicted sds say "
            f"({CONFIDENCE:.0%} interval {least:.2f} to {most:.2f}; 1 is right)."
        )
    return (
        f"The variance of the PIT is {value:.2f} times that of a calibrated law "
        f"({CONFIDENCE:.0%} interval {low:.2f} to {high:.2f}; 1 is right)."
    )


def _numbers(law: Law, y: np.ndarray) -> str:
    """What was promised and what happened."""
    seen = ~np.isnan(y)
    if isinstance(law, DiscreteLaw) and law.is_event:
        return (
            f"The event was given {law.probs[seen, 1].mean():.0%} on average and happened in "
            f"{y[seen].mean():.0%} of the windows."
        )
    if isinstance(law, DiscreteLaw):
        return (
            f"The likeliest class was given {law.probs.max(axis=1)[seen].mean():.0%} on average "
            f"and came true in {scores.average(scores.accuracy(law, y)):.0%} of the windows."
        )
    half, most = scores.coverage(law, y, [0.5, 0.9])
    return (
        f"Intervals of 50 percent held {half:.0%} of what came true, and those of 90 percent "
        f"{most:.0%}."
    )


def _judge_likeliest(law: DiscreteLaw, y: np.ndarray, said: str, overlap: int) -> Verdict:
    """Classes without an order: is the likeliest class right as often as promised?"""
    gap = law.probs.max(axis=1) - scores.accuracy(law, y)
    mean = float(scores.average(gap))
    without = np.array([scores.average(gap, weight) for weight in left_out(~np.isnan(y), overlap)])
    low, high = interval(mean, without, CONFIDENCE)
    told = (
        f"It was given {100 * mean:+.1f} points more than it came true ({CONFIDENCE:.0%} interval "
        f"{100 * float(low):+.1f} to {100 * float(high):+.1f}; 0 is right)."
    )
    if low <= 0.0 <= high:
        return Verdict("good", "calibrated", f"No departure of note. {said} {told}")
    kind = "bad" if abs(mean) > LARGE_FOR_CLASSES[0] else "fair"
    return Verdict(kind, "too sure" if mean > 0.0 else "too cautious", f"{told} {said}")
