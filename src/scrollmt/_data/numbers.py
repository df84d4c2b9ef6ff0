"""Labels of classes that are cut from a number, and the numbers behind them.

A task such as `Event(of="level", above=110)` takes its labels from the column `level` of Y. That
column may be a task, or a further one that only such questions need. Windows know the numbers
behind their events and bands: `at_lead("z").quantile_bands(4)` cuts z.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from scrollmt._data.frames import as_array
from scrollmt.heads import AbstractHead, Source
from scrollmt.laws import Cut, real_labels
from scrollmt.observables import Bands, Condition, Value
from scrollmt.transforms import Transform
from scrollmt.windows import Windows

# Which side of the threshold holds it, and whether the event is the lower side.
_COMPARED: dict[str, Cut] = {
    ">": Cut((0.0,), "right", falling=False, event=True),
    ">=": Cut((0.0,), "left", falling=False, event=True),
    "<": Cut((0.0,), "left", falling=True, event=True),
    "<=": Cut((0.0,), "right", falling=True, event=True),
}


class Number(NamedTuple):
    """The numbers behind the classes of a task, where these are no task's labels, (N,)."""

    task: str
    values: np.ndarray


def with_labels(
    columns: Mapping[str, Any], heads: Mapping[str, AbstractHead], rows: int, what: str
) -> dict[str, Any]:
    """Targets with the labels that numbers determine; labels that are given too have to agree."""
    out = dict(columns)
    for name, head in heads.items():
        source = head.asked_of
        if source is None or (source.of not in columns and name in columns):
            continue
        if source.of not in columns:
            raise ValueError(
                f"{what}: task {name!r} is asked of {source.of!r}, and {what} has neither; add the "
                f"column {source.of!r} to {what}"
            )
        values = _number(columns[source.of], source.of, rows, what)
        derived = source.cut.labels(values)
        if name in columns:
            given, seen = head.read_labels(name, as_array(columns[name], f"{what}: task {name!r}"))
            if given.shape != (rows,):
                continue
            other = np.flatnonzero(seen & ~np.isnan(derived) & (given != derived))
            if len(other):
                row = int(other[0])
                raise ValueError(
                    f"{what}: task {name!r} is {given[row]} at row {row}, where {source.of!r} is "
                    f"{values[row]:g} and {head!r} makes it {derived[row]:g}; leave out the column "
                    f"{name!r}, or correct one of the two"
                )
            derived = np.where(np.isnan(derived) & seen, given, derived)
        texts = head.class_names
        out[name] = (
            derived
            if texts is None
            else np.array([None if np.isnan(r) else texts[int(r)] for r in derived], object)
        )
    return out


def _number(values: Any, name: str, rows: int, what: str) -> np.ndarray:
    array = as_array(values, f"{what}: column {name!r}")
    if array.shape != (rows,):
        raise ValueError(
            f"{what}: column {name!r} has shape {array.shape}, but X has {rows} rows, so "
            f"({rows},) is expected"
        )
    numbers = real_labels(array, rows, f"{what}: column {name!r}")
    if np.isinf(numbers).any():
        row = int(np.flatnonzero(np.isinf(numbers))[0])
        raise ValueError(
            f"{what}: column {name!r} is infinite at row {row}; use NaN for a missing number"
        )
    return numbers


def of_table(
    columns: Mapping[str, Any], heads: Mapping[str, AbstractHead], rows: int, what: str = "Y"
) -> tuple[dict[str, Source], dict[str, Number]]:
    """The numbers that tasks are asked of, and the values of those that are no tasks."""
    sources: dict[str, Source] = {}
    numbers: dict[str, Number] = {}
    for name, head in heads.items():
        if head.asked_of is None:
            continue
        of = head.asked_of.of
        if of not in columns:
            raise ValueError(
                f"{what}: task {name!r} is asked of {of!r}, and {what} has no such column; add it, "
                f"or use {type(head).__name__} without of="
            )
        sources[name] = head.asked_of
        if of not in {*heads, *numbers}:
            numbers[of] = Number(name, _number(columns[of], of, rows, what))
    return sources, numbers


def of_windows(windows: Windows) -> tuple[dict[str, Source], dict[str, Number]]:
    """The numbers behind the events and bands of windows whose edges are known.

    A number that a task asks for itself is that task, on whatever increasing scale it is asked.
    """
    known: dict[tuple[Value, int], tuple[str, Transform]] = {}
    sources: dict[str, Source] = {}
    numbers: dict[str, Number] = {}
    asked = windows.recipe.tasks
    for task, (question, lead) in asked.items():
        if isinstance(question, Value):
            known.setdefault((_unscaled(question), lead), (task, question.after))
    for task, (question, lead) in asked.items():
        if not isinstance(question, Condition | Bands):
            continue
        key = _unscaled(question.value), lead
        if key not in known:
            name = f"{task}|number"
            known[key] = name, question.value.after
            numbers[name] = Number(task, np.asarray(windows.values[task], np.float64))
        of, scale = known[key]
        sources[task] = Source(of, _cut(question, scale))
    return sources, numbers


def _unscaled(value: Value) -> Value:
    return replace(value, after=Transform(), units=None)


def _cut(question: Condition | Bands, scale: Transform) -> Cut:
    """The edges of a question on another scale of its value."""
    if isinstance(question, Condition):
        cut = replace(_COMPARED[question.comparison], edges=(question.threshold,))
    else:
        cut = Cut(question.edges or ())
    if scale == question.value.after:
        return cut
    edges = scale.forward(question.value.after.inverse(np.asarray(cut.edges)))
    return replace(cut, edges=tuple(edges.tolist()))
