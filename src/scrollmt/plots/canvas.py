"""What all pictures share: where they are drawn, and colours that hold on white and on black.

The data colours are four of the Okabe-Ito set, which stay apart under every common colour
blindness; each has a contrast of at least 3 to 1 to white and to a nearly black page. Text, ticks
and frames have matplotlib's text colour, so that a style sheet, or a page, sets them for all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, RED, GREEN, PINK = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
CYCLE = (BLUE, RED, GREEN, PINK)
# Shape repeats what colour says, for print without colour.
MARKERS = ("o", "^", "s", "D")
GREY = "#808080"
# A band under marks: light enough to leave them readable on either page.
BAND_ALPHA = 0.3
FIGURE_SIZE = (4.8, 3.3)
ROW_HEIGHT = 0.22
# Longer names would leave a small picture no room.
LONGEST_NAME = 32


def axes(ax: Axes | None, rows: int = 0) -> Axes:
    """The axes given, or those of a new figure (`ax.figure`).

    A picture with so many named `rows` is as high as they need.
    """
    if ax is not None:
        return ax
    # Imported here so that the library loads without matplotlib.
    from matplotlib.figure import Figure

    width, height = FIGURE_SIZE
    size = (width, max(height, 1.1 + ROW_HEIGHT * rows))
    return Figure(figsize=size, layout="constrained").subplots()


def words(text: object) -> str:
    """A name as matplotlib shall print it: one short line in which a dollar starts no formula."""
    line = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    if len(line) > LONGEST_NAME:
        line = line[: LONGEST_NAME - 1].rstrip() + "…"
    # A legend would leave a name out that begins with an underscore.
    return ("\u200a" + line if line.startswith("_") else line).replace("$", r"\$")


def legend(ax: Axes) -> None:
    """A legend above the picture, where it covers nothing, no wider than a small picture."""
    handles, labels = ax.get_legend_handles_labels()
    if labels:
        columns = next(n for n in range(len(labels), 0, -1) if n == 1 or _width(labels, n) <= 54)
        ax.legend(
            handles,
            labels,
            frameon=False,
            fontsize="small",
            ncols=columns,
            loc="lower left",
            bbox_to_anchor=(0.0, 1.0),
            borderaxespad=0.2,
            columnspacing=1.0,
            handletextpad=0.4,
            handlelength=1.4,
        )


def _width(labels: Sequence[str], columns: int) -> int:
    """How many letters wide a legend gets; matplotlib fills it column by column."""
    rows = -(-len(labels) // columns)
    parts = [labels[start : start + rows] for start in range(0, len(labels), rows)]
    return sum(4 + max(map(len, part)) for part in parts)


def finish(ax: Axes, xlabel: str | None = None, ylabel: str | None = None) -> Axes:
    """The axes with their labels and legend; a label that is None stays as it is."""
    if xlabel is not None:
        ax.set_xlabel(xlabel)
    if ylabel is not None:
        ax.set_ylabel(ylabel)
    legend(ax)
    return ax


def area(
    ax: Axes,
    x: Any,
    low: Any,
    high: Any,
    label: str,
    *,
    color: Any = GREY,
    alpha: float = BAND_ALPHA,
    step: Literal["pre", "post", "mid"] | None = None,
) -> None:
    """A filled area without a border; by default a grey band."""
    ax.fill_between(x, low, high, color=color, alpha=alpha, linewidth=0, step=step, label=label)


def identity(ax: Axes, low: float = 0.0, high: float = 1.0) -> None:
    """The line on which both axes agree."""
    ax.plot([low, high], [low, high], color=GREY, linewidth=1)


def plain_log(ax: Axes, which: Literal["x", "y"]) -> None:
    """A logarithmic axis with ticks in plain digits, few enough not to touch; call it last.

    Without a positive number to show the axis stays as it is.
    """
    from matplotlib.ticker import LogLocator, NullLocator

    axis = ax.xaxis if which == "x" else ax.yaxis
    if not np.isfinite(axis.get_minpos()):
        return
    if which == "x":
        ax.set_xscale("log")
    else:
        ax.set_yscale("log")
    low, high = ax.get_xlim() if which == "x" else ax.get_ylim()
    decades = np.log10(high) - np.log10(low)
    subs: tuple[float, ...] = (1.0, 2.0, 5.0) if decades < 2.5 else (1.0,)
    if decades < 0.5:
        subs = (1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)
    axis.set_major_locator(LogLocator(subs=subs, numticks=8))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter("{x:g}")


def positions(law: Sized, x: Any) -> np.ndarray:
    """Where each forecast stands on the horizontal axis: its number, or `x` (times, values)."""
    if x is None:
        return np.arange(len(law))
    place = on_axis(x)
    if place.shape != (len(law),):
        raise ValueError(
            f"x has shape {place.shape}, but the law holds {len(law)} forecasts: pass one place "
            f"each, shape ({len(law)},)"
        )
    return place


def finite(numbers: Callable[[float], Any], at: float) -> np.ndarray:
    """What a law says at `at`, with NaN, which is not drawn, where it is beyond all floats."""
    with np.errstate(over="ignore"):
        values = np.asarray(numbers(at), dtype=float)
    return np.where(np.isfinite(values), values, np.nan)


def on_axis(x: Any) -> np.ndarray:
    """Places as matplotlib takes them: numbers as they are, times without their zone."""
    index = pd.Index(x)
    if isinstance(index, pd.DatetimeIndex):
        # The clock of the series' own time zone is what its reader expects on the axis.
        index = index.tz_localize(None)
    return np.asarray(index.to_numpy())


def date_axis(ax: Axes, place: np.ndarray) -> None:
    """Short dates where the horizontal axis is time."""
    if place.dtype.kind == "M":
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        # Few enough not to touch, and far enough apart that some interval fits every span.
        locator = AutoDateLocator(minticks=3, maxticks=8)  # type: ignore[no-untyped-call]
        ax.xaxis.set_major_locator(locator)
        ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]


def task_rows(ax: Axes, names: Sequence[object]) -> None:
    """One row a task, the first on top."""
    ax.set_yticks(np.arange(len(names)), [words(name) for name in names])
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.grid(axis="x", color=GREY, alpha=0.25, linewidth=0.8)
    ax.set_axisbelow(True)


def need_labels(observed: np.ndarray, picture: str) -> int:
    """How many labels are observed; an error where none is."""
    count = int(np.count_nonzero(observed))
    if count == 0:
        raise ValueError(
            f"{picture}: all {observed.size} labels are missing, so there is nothing to draw; "
            "pass windows whose outcome is known"
        )
    return count


def thin(values: np.ndarray, points: int | None) -> np.ndarray:
    """At most `points` row numbers, evenly spread over the ranks of `values`, ends included."""
    order = np.argsort(values, kind="stable")
    if points is None or len(order) <= points:
        return np.sort(order)
    return np.sort(order[np.linspace(0, len(order) - 1, points).round().astype(int)])


def class_names(names: Sequence[str] | None, classes: int) -> list[str]:
    """One name a class; their numbers where none are given."""
    if names is None:
        return [str(r) for r in range(classes)]
    if len(names) != classes:
        raise ValueError(f"names has {len(names)} entries, but the law has {classes} classes")
    return [words(name) for name in names]
