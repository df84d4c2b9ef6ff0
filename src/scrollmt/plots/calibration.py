r"""Calibration: PIT, coverage, reliability, spread against error.

Bands show where the marks of a calibrated law lie with probability `confidence`, bin by bin,
for independent windows:

    PIT histogram   Binomial(N, 1/B) / (N / B)             of B bins
    coverage        Binomial(N, level) / N
    reliability     Binomial(n_b, mean p in bin b) / n_b
    spread          s_g sqrt(chi2_{n_g} / n_g)             with s_g the root mean V of group g

Windows whose targets overlap are not independent, and their marks stray further than this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from scrollmt import scores
from scrollmt.laws import Law, OrderedLaw, RealLaw
from scrollmt.plots import canvas
from scrollmt.scores import pit_bounds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BAR_ALPHA = 0.4


def pit_histogram(law: Law, y: Any, bins: int = 10) -> np.ndarray:
    """(bins,) shares of the PIT: for ordered classes the exact mean over its randomisation.

    (Czado, Gneiting and Held, 2009.) A calibrated law has 1 / bins in each, on average.
    """
    lower, upper = pit_bounds(law, y)
    seen = ~np.isnan(lower)
    canvas.need_labels(seen, "pit")
    edges = np.linspace(0.0, 1.0, bins + 1)
    low, high = lower[seen, None], upper[seen, None]
    width = np.where(high > low, high - low, 1.0)
    # F(u) of a uniform between low and high; where they meet, a step at that place.
    spread = np.clip((edges - low) / width, 0.0, 1.0)
    cdf = np.where(high > low, spread, (edges > low) | (edges == 1.0))
    return np.asarray(np.diff(cdf, axis=1).mean(axis=0))


def pit(
    law: Law, y: Any, *, bins: int = 10, confidence: float = 0.95, ax: Axes | None = None
) -> Axes:
    """PIT histogram: flat when calibrated, a bowl when too sure, a hill when too cautious.

    For laws of a value and ordered classes (events too), by `pit_histogram`.
    """
    shares = pit_histogram(law, y, bins)
    count = canvas.need_labels(~np.isnan(pit_bounds(law, y)[0]), "pit")
    ax = canvas.axes(ax)
    low, high = np.asarray(stats.binom.interval(confidence, count, 1.0 / bins)) / count * bins
    canvas.area(ax, [0.0, 1.0], [low, low], [high, high], _calibrated(confidence))
    ax.axhline(1.0, color=canvas.GREY, linewidth=1)
    edges = np.linspace(0.0, 1.0, bins + 1)
    ax.stairs(
        bins * shares,
        edges,
        baseline=None,
        color=canvas.BLUE,
        linewidth=1.8,
        label=f"{count} labels",
    )
    ax.set_xlim(0, 1)
    ax.set_ylim(0, None)
    return canvas.finish(ax, "probability below what came true (PIT)", "density")


def coverage(
    law: Law,
    y: Any,
    *,
    levels: Sequence[float] = scores.COVERAGE_LEVELS,
    confidence: float = 0.95,
    ax: Axes | None = None,
) -> Axes:
    """Share of labels inside each central interval, against the share that was promised."""
    asked = np.asarray(levels, dtype=float)
    share = scores.coverage(law, y, asked)
    count = canvas.need_labels(~np.isnan(scores.covered(law, y, 0.5)), "coverage")
    ax = canvas.axes(ax)
    fine = np.linspace(0.0, 1.0, 101)
    low, high = np.asarray(stats.binom.interval(confidence, count, fine)) / count
    canvas.area(ax, fine, low, high, _calibrated(confidence))
    canvas.identity(ax)
    ax.plot(asked, share, "o-", color=canvas.BLUE, markersize=3.5, label=f"{count} labels")
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)
    return canvas.finish(
        ax, "promised share (level of the interval)", "share that came true inside"
    )


def reliability(
    law: Law,
    y: Any,
    *,
    at_least: int = 1,
    bins: int = 10,
    confidence: float = 0.95,
    ax: Axes | None = None,
) -> Axes:
    """How often an event happened, by the probability it was given; numbers count the labels.

    For ordered classes the event is "class `at_least` or above".
    """
    if not isinstance(law, OrderedLaw):
        raise TypeError(f"a {type(law).__name__} gives no probability of an ordered class")
    if not 1 <= at_least < law.num_classes:
        raise ValueError(f"at_least = {at_least} must lie between 1 and {law.num_classes - 1}")
    labels = law.labels(y)
    seen = labels >= 0
    canvas.need_labels(seen, "reliability")
    p = law.probs[:, at_least:].sum(axis=1)[seen]
    happened = labels[seen] >= at_least
    number = np.minimum((p * bins).astype(int), bins - 1)
    count = np.bincount(number, minlength=bins)
    full = count > 0
    said = np.bincount(number, p, minlength=bins)[full] / count[full]
    came = np.bincount(number, happened, minlength=bins)[full] / count[full]
    low, high = np.asarray(stats.binom.interval(confidence, count[full], said)) / count[full]
    ax = canvas.axes(ax)
    canvas.identity(ax)
    ax.vlines(
        said,
        low,
        high,
        color=canvas.GREY,
        alpha=BAR_ALPHA,
        linewidth=7,
        label=f"{confidence:.0%} of calibrated forecasts",
    )
    ax.plot(said, came, "o-", color=canvas.BLUE, markersize=5, linewidth=1.2, label="came true")
    for where, n in zip(said, count[full], strict=True):
        # In a row of their own above the frame of the diagram's unit square.
        ax.text(where, 1.03, str(n), ha="center", va="bottom", fontsize="x-small")
    ax.set_xlim(-0.03, 1.03)
    ax.set_ylim(-0.03, 1.12)
    ax.set_yticks(np.linspace(0, 1, 6))
    event = "the event" if law.num_classes == 2 else f"class {at_least} or above"
    return canvas.finish(ax, f"probability given to {event}", "how often it happened")


def spread_error(
    law: Law,
    y: Any,
    *,
    groups: int = 8,
    confidence: float = 0.95,
    points: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Predicted sd against absolute residual; squares are root mean squares of equal groups.

    Where the sd is right, the squares follow the diagonal. `points` thins the cloud.
    """
    if not isinstance(law, RealLaw) or not (law.normal or law.normals is not None):
        raise TypeError(f"spread_error needs a normal law or a mixture, got a {type(law).__name__}")
    residual = np.sqrt(scores.squared_error(law, y))
    seen = np.flatnonzero(~np.isnan(residual))
    canvas.need_labels(~np.isnan(residual), "spread_error")
    sd, residual = law.sd[seen], residual[seen]
    shown = canvas.thin(sd, points)
    ax = canvas.axes(ax)
    ax.plot(
        sd[shown],
        residual[shown],
        ".",
        color=canvas.BLUE,
        markersize=3,
        alpha=0.45,
        label="windows" if len(shown) == len(sd) else f"{len(shown)} of {len(sd)} windows",
    )
    parts = np.array_split(np.argsort(sd, kind="stable"), min(groups, len(sd)))
    size = np.array([len(part) for part in parts])
    said = np.array([np.sqrt(np.mean(sd[part] ** 2)) for part in parts])
    came = np.array([np.sqrt(np.mean(residual[part] ** 2)) for part in parts])
    low, high = said * np.sqrt(np.asarray(stats.chi2.interval(confidence, size)) / size)
    ax.vlines(said, low, high, color=canvas.GREY, alpha=BAR_ALPHA, linewidth=7)
    ax.plot(said, came, "s", color=canvas.RED, markersize=5, label="root mean square")
    canvas.identity(ax, sd.min(), sd.max())
    canvas.plain_log(ax, "x")
    canvas.plain_log(ax, "y")
    # Residuals of nearly zero would stretch a logarithmic axis without end.
    ax.set_ylim(bottom=0.03 * sd.min())
    return canvas.finish(ax, "predicted sd", "absolute residual")


def _calibrated(confidence: float) -> str:
    return f"{confidence:.0%} of calibrated laws"
