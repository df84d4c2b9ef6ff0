"""New rows as the heads of a fitted model read them: standardised inputs, labels of every head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from scrollmt._data import edges, numbers, reading
from scrollmt._data.frames import check_aligned
from scrollmt._scoring.judging import where
from scrollmt.heads import AbstractHead
from scrollmt.windows import Windows


class NewRows(NamedTuple):
    """Inputs (N, D) in standard units; labels and weights by task, and by head in its own units."""

    x: np.ndarray
    tasks: reading.Rows
    y: dict[str, np.ndarray]
    weight: dict[str, np.ndarray]
    index: pd.Index
    # How far outside the training range each row lies, and a sentence on those that are far out.
    extrapolation: np.ndarray | None
    far_out: str | None
    # By task, how many labels are known when each row is predicted, in their order.
    known: dict[str, np.ndarray]
    # How many rows ago each of them was, where they have passed already.
    age: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.x)


def read(model: Any, X: Any, Y: Any, sample_weight: Any = None, age: Any = None) -> NewRows:
    """Rows for a fitted `model`; columns are matched by name, labels may be missing."""
    behind: Mapping[str, numbers.Number] = {}
    if isinstance(X, Windows):
        if Y is not None:
            raise ValueError("Windows hold their labels; call update(windows) without Y")
        part = edges.labelled(X, model.recipe_)
        _, behind = numbers.of_windows(part)
        Y = part.Y
    elif Y is None:
        raise ValueError("update needs labels: give Y, with NaN where a label is not known yet")
    values, names = model._read(X)
    check_aligned(X.t if isinstance(X, Windows) else X, {"Y": Y, "sample_weight": sample_weight})
    rows = reading.read_rows(values, Y, sample_weight, model.tasks_)
    if not isinstance(X, Windows):
        columns = reading.read_columns(Y, model.tasks_, "Y")
        asked = {
            name: head
            for name, head in model.tasks_.items()
            if head.asked_of is not None and head.asked_of.of in columns
        }
        if asked:
            others = {n: h for n, h in model.tasks_.items() if h.asked_of is None}
            _, behind = numbers.of_table(columns, {**others, **asked}, len(values))
    x = model.scales_.inputs(values, names=names)
    y, weight = _by_head(model, rows, behind)
    return NewRows(
        x,
        rows,
        y,
        weight,
        where(X),
        model.scales_.extrapolation(values),
        model.scales_.far_out(values, names),
        _known(model, X, len(x)),
        _ages(age, len(x)),
    )


def _known(model: Any, X: Any, rows: int) -> dict[str, np.ndarray]:
    """A plain row is predicted when the labels of all rows before it are known. A window is
    predicted at its origin, when those are known whose own windows have ended by then."""
    if not isinstance(X, Windows):
        return dict.fromkeys(model.tasks_, np.arange(rows))
    times, ends = pd.Index(X.t), X.target_times
    if not times.is_monotonic_increasing or not times.is_unique:
        row = int(np.flatnonzero(np.asarray(times[1:] <= times[:-1]))[0]) + 1
        raise ValueError(
            f"windows are learned from in the order of time, and row {row} at {times[row]} does "
            f"not come after row {row - 1} at {times[row - 1]}; sort them, and leave out repeats"
        )
    return {task: np.searchsorted(ends[task], times, side="right") for task in model.tasks_}


def _ages(age: Any, rows: int) -> np.ndarray | None:
    if age is None:
        return None
    given = np.asarray(age)
    if given.dtype.kind not in "iu" or given.shape not in ((), (rows,)) or (given < 0).any():
        raise ValueError(
            f"age is how many rows ago each row was: a whole number of at least 0, or {rows} of "
            f"them, got {age!r:.60}"
        )
    return np.broadcast_to(given, (rows,)).astype(float)


def _by_head(
    model: Any, rows: reading.Rows, behind: Mapping[str, numbers.Number]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    labels: dict[str, np.ndarray] = {}
    weights: dict[str, np.ndarray] = {}
    for name, head in heads_of(model).items():
        task = task_of(model, name)
        if task is not None:
            given, weight = rows.labels[task], rows.weights[task]
        elif name in behind:
            given = behind[name].values
            weight = rows.weights[behind[name].task] * ~np.isnan(given)
        else:
            # Labels of classes came without the number behind them, which then learns nothing.
            given, weight = np.full(len(rows.x), head.missing_fill), np.zeros(len(rows.x))
        kept = (weight > 0).reshape(-1, *(1,) * (given.ndim - 1))
        labels[name] = np.where(kept, given, np.asarray(head.missing_fill, given.dtype))
        weights[name] = weight
    filled = rows._replace(labels=labels, weights=weights)
    scaled = model.scales_.targets(filled, heads_of(model))
    return {name: np.asarray(values) for name, values in scaled.items()}, weights


def heads_of(model: Any) -> dict[str, AbstractHead]:
    """All trained heads by name; their parameters are those of one of the members."""
    return {name: task.head for member in model.members_ for name, task in member.tasks.items()}


def task_of(model: Any, head: str) -> str | None:
    """The task whose labels are those of a head."""
    if head in model.tasks_:
        return head
    for task, answers in (model.answers_ or {}).items():
        if any(one.head == head and one.cut is None for one in answers):
            return str(task)
    return None


def asked_by(model: Any, head: str) -> str:
    """A task that is answered by a head, whose labels are known when the head's are."""
    own = task_of(model, head)
    if own is not None:
        return own
    answers = (model.answers_ or {}).items()
    return next(str(task) for task, said in answers if any(one.head == head for one in said))
