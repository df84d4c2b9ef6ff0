r"""The arrays of windows: inputs at the origins, values of the questions, what is missing and why.

For origins at rows r_n of a series, with gaps already filled in ``numbers`` (column -> (rows,)):

    X[n] = inputs at r_n                                   (N, D)
    values[task][n] = observable of rows r_n .. r_n + lead  (N,)

NaN marks what cannot be known; nothing is dropped here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from scrollmt._data.series import GapRule, Series, fill_gaps
from scrollmt.inputs import Input
from scrollmt.observables import Observable


class Question(NamedTuple):
    """What one task asks: an observable, and how many rows ahead."""

    observable: Observable
    lead: int


def tasks_of(
    questions: Mapping[str, Observable], leads: Sequence[int] | None, lead: int
) -> dict[str, Question]:
    """One task a question at ``lead``; where ``leads`` are given, one a question and lead."""
    if not isinstance(questions, Mapping):
        raise ValueError(
            f"Questions are a mapping from names, such as {{'state': at_lead('x')}}, not a "
            f"{type(questions).__name__}."
        )
    if not questions:
        raise ValueError("At least one question is needed, such as {'state': at_lead('x')}.")
    for name, asked in questions.items():
        if not isinstance(asked, Observable):
            raise ValueError(
                f"Question {name!r} is a {type(asked).__name__}, not an observable. Use "
                "at_lead(column), or over_window(column) with .mean(), .max(), .min(), .sum()."
            )
    if leads is None:
        return {name: Question(asked, lead) for name, asked in questions.items()}
    return {
        f"{name}@{one}": Question(asked, one) for name, asked in questions.items() for one in leads
    }


def filled_numbers(
    series: Series, columns: Iterable[str], limit: int, rule: GapRule
) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """The numeric columns with their gaps filled, and how many rows of each were filled."""
    numbers, filled = {}, {}
    for column in dict.fromkeys(columns):
        raw = series.numbers(column)
        numbers[column] = fill_gaps(raw, limit, rule)
        count = int(np.sum(np.isnan(raw)) - np.sum(np.isnan(numbers[column])))
        if count:
            filled[column] = count
    return numbers, filled


def build_inputs(
    inputs: Sequence[Input],
    series: Series,
    numbers: Mapping[str, np.ndarray],
    rows: np.ndarray,
    history: int,
) -> tuple[np.ndarray, list[set[str]]]:
    """X (N, D), and for each origin the columns of which an input is missing."""
    blocks = []
    lacking: list[set[str]] = [set() for _ in rows]
    for one in inputs:
        block = one.build(series, numbers, rows, history)
        blocks.append(block)
        for n in np.flatnonzero(np.isnan(block).any(axis=1)):
            wide = np.isnan(block[n])
            names = np.array(one.sources(history))
            lacking[n].update(names[wide].tolist())
    return np.concatenate(blocks, axis=1), lacking


def last_complete(
    inputs: Sequence[Input],
    series: Series,
    numbers: Mapping[str, np.ndarray],
    rows: np.ndarray,
    history: int,
) -> tuple[np.ndarray, list[set[str]]]:
    """As ``build_inputs``, from the last of ``rows`` back to the first one that is complete.

    Rows are read one by one, since the last one is nearly always complete.
    """
    lacking: list[set[str]] = []
    blocks = []
    for row in rows[::-1]:
        X, lost = build_inputs(inputs, series, numbers, np.array([row]), history)
        blocks.append(X)
        lacking += lost
        if not lost[0]:
            break
    return np.concatenate(blocks), lacking


def build_values(
    tasks: Mapping[str, Question],
    numbers: Mapping[str, np.ndarray],
    rows: np.ndarray,
    back: Mapping[str, int] | None = None,
) -> dict[str, np.ndarray]:
    """The number behind each label: before thresholds and bands.

    `back` moves each task's origins so many rows back, to NaN where the series begins later.
    """
    values = {}
    for task, (asked, lead) in tasks.items():
        origins = rows if back is None else rows - back[task]
        span = np.maximum(origins, 0)[:, None] + np.arange(lead + 1)
        paths = {column: numbers[column][span] for column in asked.columns()}
        values[task] = np.where(origins >= 0, asked.values(paths), np.nan)
    return values


def missing_targets(
    tasks: Mapping[str, Question], values: Mapping[str, np.ndarray], keep_partial: bool
) -> list[set[str]]:
    """For each origin the columns whose missing cells cost it its place.

    With ``keep_partial`` a window stays as long as one of its labels is known.
    """
    columns = {task: question.observable.columns() for task, question in tasks.items()}
    unknown = {task: np.isnan(value) for task, value in values.items()}
    every = np.stack(list(unknown.values()))
    incomplete = np.all(every, axis=0) if keep_partial else np.any(every, axis=0)
    return [
        {name for task, lost in unknown.items() if lost[n] for name in columns[task]}
        if out
        else set()
        for n, out in enumerate(incomplete)
    ]


def dropped_table(
    times: pd.Index, inputs: Sequence[set[str]], targets: Sequence[set[str]]
) -> pd.DataFrame:
    """One row a dropped window, under its number: the origin, what is missing, which columns.

    An error where no window is left.
    """
    table: dict[int, tuple[Any, str, str]] = {}
    for n, (known, asked) in enumerate(zip(inputs, targets, strict=True)):
        parts = [name for name, lost in (("inputs", known), ("targets", asked)) if lost]
        if parts:
            table[n] = times[n], " and ".join(parts), ", ".join(sorted(known | asked))
    names = ["t", "part", "columns"]
    dropped = pd.DataFrame(list(table.values()), index=list(table), columns=names)
    if len(dropped) == len(times):
        why = dropped.groupby(names[1:]).size().to_dict()
        raise ValueError(f"None of {len(times)} windows is complete; missing are {why}.")
    return dropped
