"""Forecasts beside what came true: values with intervals, class probabilities, confusion.

And beside each other: two answers to one question.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from scrollmt.laws import DiscreteLaw, Law, NumberLaw, RealLaw, real_labels
from scrollmt.plots import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Dots over coloured areas keep one colour on a light and on a dark page: the areas do too.
DOT, RIM = "#111111", "#fafafa"


def forecasts(
    law: Law,
    y: Any = None,
    *,
    x: Any = None,
    levels: Sequence[float] = (0.5, 0.9),
    ax: Axes | None = None,
) -> Axes:
    """Centres with nested central intervals, and what came true where `y` is given.

    `law` is any law with intervals, in model or in original units; `y` in the same units. `x`
    places the forecasts: at the time that they are for, `windows.target_times[task]`.
    """
    if not isinstance(law, NumberLaw):
        raise TypeError(
            f"a {type(law).__name__} has no intervals; draw its probabilities with plots.regimes"
        )
    ax = canvas.axes(ax)
    place = canvas.positions(law, x)
    # Bars touch but do not overlap in a picture of ordinary width.
    width = min(5.0, 300.0 / max(len(law), 1))
    for level in sorted(levels, reverse=True):
        lower, upper = canvas.finite(law.interval, level)
        ax.vlines(
            place,
            lower,
            upper,
            color=canvas.BLUE,
            alpha=0.2 + 0.5 * (1.0 - level),
            linewidth=width,
            label=f"{level:.0%} interval",
        )
    name, centre = "median", canvas.finite(law.quantile, 0.5)
    if isinstance(law, RealLaw):
        name, centre = "mean", law.mean
    ax.plot(
        place,
        centre,
        "_",
        color=canvas.BLUE,
        markersize=1.2 * width,
        markeredgewidth=1.6,
        label=name,
    )
    if y is not None:
        truth = real_labels(y, len(law))
        ax.plot(place, truth, "o", color=canvas.RED, markersize=2.8, label="came true")
    canvas.date_axis(ax, place)
    return canvas.finish(ax)


def regimes(
    law: Law,
    y: Any = None,
    *,
    x: Any = None,
    names: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Class probabilities stacked over the windows; a dot sits in the class that came true.

    The height of an area is its probability, so a dot in a thin sliver is a surprise. Events are
    the case of two classes, "no" and "yes". Areas change half way between places `x`.
    """
    if not isinstance(law, DiscreteLaw):
        raise TypeError(f"a {type(law).__name__} has no classes; draw it with plots.forecasts")
    names = law.class_names if names is None else names
    labels = canvas.class_names(names, law.num_classes)
    ax = canvas.axes(ax)
    place = canvas.positions(law, x)
    order = np.argsort(place, kind="stable")
    edges = np.pad(np.cumsum(law.probs, axis=1), ((0, 0), (1, 0)))
    ends = _half_way(place[order])
    for r, (color, alpha) in enumerate(_shades(law)):
        low, high = (np.append(e[order], e[order[-1]]) for e in (edges[:, r], edges[:, r + 1]))
        canvas.area(ax, ends, low, high, labels[r], color=color, alpha=alpha, step="post")
    if y is not None:
        seen = law.labels(y)
        known = order[seen[order] >= 0]
        height = (edges[known, seen[known]] + edges[known, seen[known] + 1]) / 2
        ax.plot(
            place[known],
            height,
            "o",
            color=DOT,
            markeredgecolor=RIM,
            markeredgewidth=0.6,
            markersize=4.5,
            label="came true",
        )
    ax.set_ylim(0, 1)
    ax.margins(x=0)
    canvas.date_axis(ax, place)
    return canvas.finish(ax, ylabel="probability")


def _half_way(at: np.ndarray) -> np.ndarray:
    """(N + 1,) ends of the stretches that belong to N sorted places."""
    if len(at) == 1:
        half = np.timedelta64(30, "m") if at.dtype.kind in "mM" else 0.5
        return np.array([at[0] - half, at[0] + half])
    half_gaps = (at[1:] - at[:-1]) / 2
    return np.concatenate([at[:1] - half_gaps[:1], at[:-1] + half_gaps, at[-1:] + half_gaps[-1:]])


def _shades(law: DiscreteLaw) -> list[tuple[Any, float]]:
    """Colour and opacity of each class: events stand out; classes go from dark to light.

    The ladder of classes is one that every kind of colour vision sees as a ladder.
    """
    if law.is_event:
        return [(canvas.GREY, 0.25), (canvas.BLUE, 0.7)]
    from matplotlib import colormaps

    return [(colormaps["cividis"](v), 1.0) for v in np.linspace(0.25, 0.95, law.num_classes)]


def confusion(
    law: Law, y: Any, *, names: Sequence[str] | None = None, ax: Axes | None = None
) -> Axes:
    """How often each class was the likeliest, by the class that came true, as counts.

    A cell is as dark as its share of the row.
    """
    if not isinstance(law, DiscreteLaw):
        raise TypeError(f"a {type(law).__name__} has no classes to confuse")
    seen = law.labels(y)
    canvas.need_labels(seen >= 0, "confusion")
    names = law.class_names if names is None else names
    labels = canvas.class_names(names, law.num_classes)
    counts = np.zeros((law.num_classes, law.num_classes), dtype=int)
    np.add.at(counts, (seen[seen >= 0], law.mode[seen >= 0]), 1)
    ax = canvas.axes(ax)
    from matplotlib.patches import Rectangle

    for true, row in enumerate(counts):
        for said, count in enumerate(row):
            # Never quite opaque: the count stays readable in black and in white.
            shade = 0.6 * count / max(row.sum(), 1)
            ax.add_patch(
                Rectangle((said - 0.5, true - 0.5), 1, 1, color=canvas.BLUE, alpha=shade, lw=0)
            )
            ax.text(said, true, str(count), ha="center", va="center")
    ticks = np.arange(law.num_classes)
    # Names that would touch each other are slanted.
    close = sum(map(len, labels)) > 36
    ax.set_xticks(ticks, labels, rotation=30 * close, ha="right" if close else "center")
    ax.set_yticks(ticks, labels)
    ax.set_xlim(-0.5, law.num_classes - 0.5)
    ax.set_ylim(law.num_classes - 0.5, -0.5)
    return canvas.finish(ax, "likeliest class", "came true")


def agreement(
    own: Any, read: Any, *, far: float = 0.2, points: int | None = None, ax: Axes | None = None
) -> Axes:
    """Two probabilities of one event, window by window, with those that differ by over `far`.

    `own` (N,) comes from the event's own law, `read` (N,) from the law of the value that the event
    is about (`scrollmt.agreement`). `points` thins the cloud; the largest differences stay.
    """
    said, other = np.asarray(own, dtype=float), np.asarray(read, dtype=float)
    if said.shape != other.shape or said.ndim != 1:
        raise ValueError(f"own has shape {said.shape}, read {other.shape}: need (N,) both")
    ax = canvas.axes(ax)
    ends = np.array([0.0, 1.0])
    canvas.area(ax, ends, ends - far, ends + far, f"within {far:g}")
    canvas.identity(ax)
    gap = np.abs(said - other)
    shown = canvas.thin(gap, points)
    apart = gap[shown] > far
    for chosen, color, marker, name in (
        (shown[~apart], canvas.BLUE, "o", "windows"),
        (shown[apart], canvas.RED, "^", f"apart by over {far:g}"),
    ):
        if len(chosen):
            ax.plot(
                other[chosen],
                said[chosen],
                marker,
                color=color,
                markersize=3,
                markeredgewidth=0,
                alpha=0.6,
                label=name,
            )
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)
    return canvas.finish(ax, "probability read off the value's law", "probability of its own law")
