"""A question at several leads: one section with pictures over leads, details folded away."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from scrollmt import plots
from scrollmt._scoring import references
from scrollmt.laws import DiscreteLaw, NumberLaw
from scrollmt.observables import Bands, Value
from scrollmt.plots.canvas import words
from scrollmt.report import gallery, pages
from scrollmt.report.assessment import Assessment
from scrollmt.report.groups import Group, ahead
from scrollmt.report.pages import Html, Section

# The past is drawn so many times as long as the forecast reaches ahead.
PAST = 1.5


def section(assessment: Assessment, group: Group) -> Section:
    """All pictures of one question; those of one task where it has one lead only."""
    if len(group.tasks) == 1:
        return gallery.task_section(assessment, group.tasks[0])
    asked = assessment.asked(group.tasks[0])
    assert asked is not None, "several leads come from a recipe"
    if isinstance(asked, Bands) and asked.probs is not None:
        # Edges that were learned differ from lead to lead.
        asked = replace(asked, edges=None)
    said = (
        f"Asked: {asked.sentence()}, at {len(group.tasks)} leads from "
        f"{ahead(assessment, group.tasks[0])} to {ahead(assessment, group.tasks[-1])}."
    )
    over = pages.pictures(_over_leads(assessment, group))
    folded = Html("").join(
        pages.tag("h3", f"{ahead(assessment, task)} ahead")
        + pages.pictures(gallery.of_task(assessment, task))
        for task in group.shown
    )
    about = ", ".join(ahead(assessment, task) for task in group.shown)
    more = pages.details(f"All pictures at {about} ahead", folded)
    return Section(f"Question: {group.name}", pages.paragraph(said) + over + more)


def _axis(assessment: Assessment, group: Group) -> tuple[list[Any], str]:
    """The leads as numbers, and their unit; in rows where steps are shorter than a second."""
    recipe = assessment.recipe
    assert recipe is not None, "several leads come from a recipe"
    step = recipe.step
    if isinstance(step, pd.Timedelta) and step < pd.Timedelta(1, "s"):
        return [recipe.tasks[task].lead for task in group.tasks], "lead (rows)"
    words = [ahead(assessment, task).partition(" ") for task in group.tasks]
    units = words[0][2]
    return [float(number) for number, _, _ in words], f"lead ({units})" if units else "lead"


def _over_leads(assessment: Assessment, group: Group) -> Iterator[Html]:
    """What suits the laws at all leads, which may have heads of their own."""
    laws = [assessment.laws[task] for task in group.tasks]
    classes = all(isinstance(law, DiscreteLaw) for law in laws)
    if classes or all(isinstance(law, NumberLaw) for law in laws):
        yield _newest(assessment, group)
    yield _nll(assessment, group)
    if all(isinstance(law, NumberLaw) for law in laws):
        yield _coverage(assessment, group)
    elif classes:
        yield _accuracy(assessment, group)


def _beside_references(assessment: Assessment, group: Group, score: str) -> dict[str, list[float]]:
    """A score over leads, and those of the reference forecasts that all leads have."""
    compared = [assessment.compared[task] for task in group.tasks]
    lines = {"model": [one.means[score] for one in compared]}
    for kind in references.NAMES:
        if all(kind in one.references for one in compared):
            lines[kind] = [one.reference_means[kind][score] for one in compared]
    return lines


def _ends(values: list[float]) -> str:
    return f"{values[0]:.3g} at the shortest lead, {values[-1]:.3g} at the longest"


def _lines(
    assessment: Assessment,
    group: Group,
    lines: dict[str, list[float]],
    ylabel: str,
    promised: dict[str, float] | None = None,
) -> Any:
    leads, xlabel = _axis(assessment, group)
    ax = plots.over_leads(leads, lines, promised=promised)
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    return ax


def _nll(assessment: Assessment, group: Group) -> Html:
    lines = _beside_references(assessment, group, "nll")
    beaten = "".join(
        f" {name.capitalize()}: {_ends(values)}."
        for name, values in lines.items()
        if name != "model"
    )
    return pages.picture(
        _lines(assessment, group, lines, "NLL (nats)"),
        alt=f"NLL of {group.name} over leads: {_ends(lines['model'])}.{beaten}",
        caption="Lower is better. Where the model meets the climatology, the inputs say nothing "
        "about so long a lead.",
    )


def _coverage(assessment: Assessment, group: Group) -> Html:
    levels = {"50% interval": 0.5, "90% interval": 0.9}
    compared = [assessment.compared[task] for task in group.tasks]
    lines = {
        name: [one.means[f"coverage_{100 * level:.0f}"] for one in compared]
        for name, level in levels.items()
    }
    told = "; ".join(f"{name}s hold {_ends(values)}" for name, values in lines.items())
    ax = _lines(assessment, group, lines, "share that came true inside", promised=levels)
    ax.set_ylim(0, 1)
    return pages.picture(
        ax,
        alt=f"Coverage of {group.name} over leads: {told}.",
        caption="Dotted: the share that was promised. Above it intervals are wider than they need "
        "be, below it too narrow.",
    )


def _accuracy(assessment: Assessment, group: Group) -> Html:
    lines = _beside_references(assessment, group, "accuracy")
    ax = _lines(assessment, group, lines, "likeliest class came true")
    ax.set_ylim(0, 1)
    return pages.picture(
        ax,
        alt=f"Accuracy of {group.name} over leads: {_ends(lines['model'])}.",
        caption="How often the likeliest class came true. Climatology always says the most "
        "frequent one.",
    )


def _newest(assessment: Assessment, group: Group) -> Html:
    """The newest forecast over all of its leads, at the times that it is for."""
    windows = assessment.windows
    row = len(assessment) - 1 if windows is None else int(np.argmax(windows.t))
    law = assessment.laws[group.tasks[0]]
    x, xlabel = _axis(assessment, group)
    since = ""
    if windows is not None:
        x, xlabel = list(windows.target_times[list(group.tasks)].iloc[row]), ""
        since = f", from {windows.t[row]}"
    if isinstance(law, DiscreteLaw):
        y = np.array([assessment.labels[task][row] for task in group.tasks])
        table = np.stack([_log_probs(assessment, task)[row] for task in group.tasks])
        ax = plots.regimes(type(law)(table), y, x=x, names=_names(assessment, group))
    else:
        one = [assessment.original(task) for task in group.tasks]
        ax = plots.fan(
            [law[row] for law, _, _ in one],
            np.array([y[row] for _, y, _ in one]),
            x=x,
            past=_past(assessment, group, row),
        )
        ax.set_ylabel(words(one[0][2]))
    ax.set_xlabel(xlabel)
    return pages.picture(
        ax,
        alt=f"The newest forecast of {group.name} over {len(group.tasks)} leads{since}, with what "
        "came true where it is known.",
        caption=f"The newest forecast{since}.",
    )


def _log_probs(assessment: Assessment, task: str) -> np.ndarray:
    law = assessment.laws[task]
    assert isinstance(law, DiscreteLaw), "leads of one question have laws of one kind"
    return law.log_probs


def _names(assessment: Assessment, group: Group) -> list[str] | None:
    """Names of the classes, where they are the same at every lead."""
    each = [assessment.names(task) for task in group.tasks]
    first = each[0]
    if first is None:
        return None
    if all(names == first for names in each):
        return list(first)
    return [f"band {r}" for r in range(1, len(first) + 1)]


def _past(assessment: Assessment, group: Group, row: int) -> tuple[pd.Index, np.ndarray] | None:
    """What was observed up to the origin of a window: labels of the windows before it.

    Only of a value at t + lead: a mean or maximum over the lead is another quantity at every lead.
    """
    windows, asked = assessment.windows, assessment.asked(group.tasks[0])
    if windows is None or not isinstance(asked, Value) or asked.reducer is not None:
        return None
    ends, origin = windows.target_times, windows.t[row]
    reach = PAST * (ends[group.tasks[-1]].iloc[row] - origin)
    known = {
        when: value
        for task in group.tasks
        for when, value in zip(ends[task], assessment.original(task)[1], strict=True)
        if origin - reach <= when <= origin and not np.isnan(value)
    }
    times = sorted(known)
    return pd.Index(times), np.array([known[when] for when in times])
