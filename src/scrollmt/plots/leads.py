"""One question at several leads: scores over leads, and a forecast as a fan into the future."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from scrollmt.laws import NumberLaw, real_labels
from scrollmt.plots import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def over_leads(
    leads: Any,
    lines: Mapping[str, Any],
    *,
    promised: Mapping[str, float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Numbers (L,) over leads (L,), one line a name; NaN leaves a gap.

    `promised` has what a line should be at every lead, drawn dotted in its colour: the level of an
    interval whose coverage is drawn.
    """
    at = np.asarray(leads, dtype=float)
    if not lines:
        raise ValueError("over_leads: no lines to draw; pass numbers by name")
    rows = {name: np.asarray(values, dtype=float) for name, values in lines.items()}
    wrong = {name: values.shape for name, values in rows.items() if values.shape != at.shape}
    if wrong:
        raise ValueError(f"over_leads: leads have shape {at.shape}, but the lines have {wrong}")
    levels = {} if promised is None else dict(promised)
    unknown = [name for name in levels if name not in rows]
    if unknown:
        raise ValueError(f"over_leads: nothing is drawn under the names {unknown} of `promised`")
    ax = canvas.axes(ax)
    for number, (name, values) in enumerate(rows.items()):
        color = canvas.CYCLE[number % len(canvas.CYCLE)]
        marker = canvas.MARKERS[number % len(canvas.MARKERS)]
        if name in levels:
            ax.axhline(levels[name], color=color, linewidth=1.2, linestyle=":")
        ax.plot(
            at,
            values,
            marker=marker,
            color=color,
            markersize=4,
            linewidth=1.3,
            label=canvas.words(name),
        )
    return canvas.finish(ax, "lead")


def fan(
    laws: Sequence[Any],
    y: Any = None,
    *,
    x: Any = None,
    past: tuple[Any, Any] | None = None,
    levels: Sequence[float] = (0.5, 0.9),
    ax: Axes | None = None,
) -> Axes:
    """One forecast over leads: medians with nested intervals, the recent past, what came true.

    `laws` holds one law of one forecast for each lead, in the same units. `x` places the leads:
    the times that they are for. `y` (L,) came true, NaN where it is not known. `past` is what was
    observed before, as places and values.
    """
    laws = list(laws)
    if not laws or any(len(law) != 1 for law in laws):
        raise ValueError(
            f"fan: pass a law of one forecast for each lead, got {[len(law) for law in laws]}"
        )
    wrong = sorted({type(law).__name__ for law in laws if not isinstance(law, NumberLaw)})
    if wrong:
        raise TypeError(f"fan: {wrong} have no intervals; draw classes with plots.regimes")
    place = np.arange(1, len(laws) + 1) if x is None else canvas.on_axis(x)
    if place.shape != (len(laws),):
        raise ValueError(f"fan: x has shape {place.shape}, but there are {len(laws)} leads")
    ax = canvas.axes(ax)
    order = np.argsort(place, kind="stable")
    for level in sorted(levels, reverse=True):
        ends = [canvas.finite(law.interval, level) for law in laws]
        lower, upper = np.array(ends).reshape(-1, 2)[order].T
        name, alpha = f"{level:.0%} interval", 0.2 + 0.4 * (1.0 - level)
        canvas.area(ax, place[order], lower, upper, name, color=canvas.BLUE, alpha=alpha)
    median = np.array([canvas.finite(law.quantile, 0.5)[0] for law in laws])
    ax.plot(
        place[order], median[order], ".-", color=canvas.BLUE, markersize=4, lw=1.2, label="median"
    )
    if past is not None and len(past[0]):
        then = canvas.on_axis(past[0])
        # In the text colour of the axes, which is readable on a light and on a dark page.
        color = ax.xaxis.label.get_color()
        ax.plot(then, np.asarray(past[1], dtype=float), color=color, linewidth=1.2, label="past")
    if y is not None:
        truth = real_labels(y, len(laws))
        ax.plot(place, truth, "o", color=canvas.RED, markersize=3.2, label="came true")
    canvas.date_axis(ax, place)
    return canvas.finish(ax)
