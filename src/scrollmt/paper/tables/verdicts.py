"""From a claim and what was computed for it to a verdict: holds, differs or not checkable.

A claim's `paper_value` is a number, a range `lo..hi` (its ends are compared with the smallest
and the largest computed value), a count `n of m`, several numbers separated by `;`, a column of
a table (`full.csv reg_nll where corpus=ou`, compared cell by cell), or, for an ordering, words.
With p the paper's number, v ours and tol the claim's tolerance,

    approx, exact, count: |v - p| <= tol      at-most: v <= p + tol      at-least: v >= p - tol
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd

from scrollmt.paper.data.published import KEYS, Check, Claim, table
from scrollmt.paper.tables.samples import NO_RUNS, Sample
from scrollmt.paper.tables.statistics import Values

Verdict = Literal["holds", "differs", "not checkable"]
Number: TypeAlias = float | np.number
Numbers: TypeAlias = Number | Values | Mapping[str, Number]

_NUMBER = r"[+-]?\d+(?:\.\d+)?"
_RANGE = re.compile(rf"({_NUMBER})(?:\.\.({_NUMBER}))?(?: of (\d+))?")
_CELLS = re.compile(r"(\w+)\.csv (\w+)(?: where corpus=([\w-]+))?")
# Printed decimals are not binary fractions: 1.234 - 1.204 exceeds 0.03 by 3e-17. Records that
# were exported have eight digits, and must give the verdicts of those that were not.
_ROUNDING = 1e-7
# One cell failed in the paper so badly that it has a claim, and a tolerance, of its own.
OWN_CLAIM = {("pm25", "mle-sigma-probit", "reg_nll"): "C040"}


@dataclass(frozen=True)
class Finding:
    """What was found for one claim.

    `value` is our value as text, `numbers` the numbers in it, `uncertainty` their standard
    errors where there are any; `note` says what else a reader should know. `sample` is what was
    read for it.
    """

    claim: str
    value: str
    numbers: tuple[float, ...]
    uncertainty: tuple[float, ...]
    verdict: Verdict
    study: str
    note: str = ""
    sample: Sample = NO_RUNS


@dataclass(frozen=True)
class Target:
    """A `paper_value` as numbers: one, several in order, or the two ends of a range."""

    numbers: tuple[float, ...]
    is_range: bool = False
    total: int | None = None


def target(claim: Claim) -> Target:
    """Read the numbers of a claim; an ordering and a column of a table have none here."""
    parts = [_RANGE.fullmatch(part.strip()) for part in claim.paper_value.split(";")]
    found = [match.groups() for match in parts if match]
    if len(found) < len(parts) or (len(parts) > 1 and any(g[1] or g[2] for g in found)):
        raise ValueError(f"{claim.id}: no numbers to compare with in {claim.paper_value!r}")
    if len(found) > 1:
        return Target(tuple(float(low) for low, _, _ in found))
    low, high, total = found[0]
    ends = (float(low),) if high is None else (float(low), float(high))
    return Target(ends, high is not None, int(total) if total else None)


def agrees(check: Check, value: float, paper: float, tolerance: float) -> bool:
    """Whether one number passes a check against one number of the paper."""
    slack = tolerance + max(_ROUNDING * abs(paper), 1e-12)
    if check == "at-most":
        return value <= paper + slack
    if check == "at-least":
        return value >= paper - slack
    if check == "ordering":
        raise ValueError("an ordering is judged by whether it holds, not by a number")
    return abs(value - paper) <= slack


def ordered(*values: float, slack: float = 0.0) -> bool:
    """Whether each value is below the next; with a slack, at most that far above it."""
    return all(a <= b + slack if slack > 0.0 else a < b for a, b in pairwise(values))


def column_of(paper_value: str) -> tuple[str, str, str | None] | None:
    """The table, the column and the corpus that a `paper_value` points to, if it does."""
    match = _CELLS.fullmatch(paper_value)
    return (match[1], match[2], match[3]) if match else None


def cells(claim: Claim, ours: Mapping[Any, Number]) -> pd.DataFrame:
    """The cells that a claim points to, with ours beside them, for `judge`.

    `ours` is keyed as the rows are, less what the claim fixes: by arm for `full.csv ... where
    corpus=ou`, by (backbone, route) for `routing.csv`. So is the frame; its columns are paper,
    ours and run (whether there is a value of ours). A cell with a claim of its own is left out.
    """
    pointer = column_of(claim.paper_value)
    if pointer is None:
        raise ValueError(f"{claim.id}: {claim.paper_value!r} points to no column of a table")
    name, column, corpus = pointer
    rows = table(name)
    keys = [*KEYS[name]]
    own: set[str] = set()
    if corpus is not None:
        keys.remove("corpus")
        own = {arm for place, arm, metric in OWN_CLAIM if (place, metric) == (corpus, column)}
        rows = rows[(rows["corpus"] == corpus) & ~rows["arm"].isin(own)]
    # A cell that the paper leaves empty claims nothing.
    paper = rows[rows[column].notna()].set_index(keys)[column]
    strange = [label for label in ours if label not in paper.index and label not in own]
    if strange:
        raise ValueError(
            f"{claim.id}: no cells {strange} in {claim.paper_value!r}, whose rows are keyed by "
            f"{[*paper.index.names]}"
        )
    values = [float(ours.get(label, np.nan)) for label in paper.index]
    run = [label in ours for label in paper.index]
    return pd.DataFrame({"paper": paper, "ours": values, "run": run})


def judge(
    claim: Claim,
    value: bool | np.bool_ | Numbers | pd.DataFrame | None,
    *,
    uncertainty: Numbers = (),
    numbers: Numbers = (),
    total: int | None = None,
    note: str = "",
) -> Finding:
    """The finding for one claim.

    - A number, or several: where the paper has one number each of ours is compared with it;
      where it has several they are compared in order; where it has a range, give all values or
      the smallest and the largest.
    - A bool for an ordering, with the `numbers` that show it.
    - A frame with columns paper and ours (see `cells`): it holds if every cell agrees.
    - None where nothing can be computed; the note says why.

    `total` is what a count is out of. Counts out of another total than the paper's, and tables
    with cells that were not run, are not checkable.
    """
    errors = _numbers(uncertainty)
    blank = Finding(claim.id, "", (), errors, "not checkable", claim.study, note)
    if value is None:
        if not note:
            raise ValueError(
                f"{claim.id}: a claim that cannot be checked needs a note that says why"
            )
        return blank
    if isinstance(value, pd.DataFrame):
        return _judge_cells(claim, value, blank)
    if isinstance(value, bool | np.bool_) or claim.check == "ordering":
        return _judge_order(claim, value, numbers, blank)
    ours = _numbers(value)
    aim = target(claim)
    found = replace(blank, value=_text(value, aim.is_range, total), numbers=ours)
    if claim.check == "count" and any(v != round(v) for v in ours):
        raise ValueError(f"{claim.id} counts, but {ours} are not all whole numbers")
    if total is not None and aim.total is not None and total != aim.total:
        why = f"counted over {total}, the paper over {aim.total}"
        return replace(found, note=_joined(note, why))
    return replace(found, verdict=_verdict(_meets(claim, aim, ours)))


def _meets(claim: Claim, aim: Target, ours: tuple[float, ...]) -> bool:
    if not ours:
        raise ValueError(f"{claim.id}: no value given; give None and a note if there is none")
    pairs: list[tuple[float, float]]
    if aim.is_range:
        low, high = aim.numbers
        if claim.check == "at-least":
            pairs = [(v, low) for v in ours]
        elif claim.check == "at-most":
            pairs = [(v, high) for v in ours]
        elif len(ours) < 2:
            raise ValueError(
                f"{claim.id} has the range {claim.paper_value}; give the smallest and the largest "
                f"value, not {ours[0]} alone"
            )
        else:
            # min and max would lose a NaN, which must fail.
            pairs = [(float(np.min(ours)), low), (float(np.max(ours)), high)]
    elif len(aim.numbers) > 1:
        if len(ours) != len(aim.numbers):
            raise ValueError(
                f"{claim.id} compares {len(aim.numbers)} numbers in order "
                f"({claim.paper_value}), got {len(ours)}"
            )
        pairs = [*zip(ours, aim.numbers, strict=True)]
    else:
        pairs = [(v, aim.numbers[0]) for v in ours]
    return all(agrees(claim.check, v, p, claim.tolerance) for v, p in pairs)


def _judge_order(claim: Claim, value: Any, numbers: Numbers, blank: Finding) -> Finding:
    if not (isinstance(value, bool | np.bool_) and claim.check == "ordering"):
        raise ValueError(
            f"{claim.id} is checked by {claim.check!r}; an ordering takes a bool and `numbers`, "
            f"all else takes numbers, not {value!r}"
        )
    shown = _numbers(numbers)
    if not shown:
        raise ValueError(f"{claim.id}: give the `numbers` that show the order")
    return replace(blank, value=_text(numbers), numbers=shown, verdict=_verdict(bool(value)))


def _judge_cells(claim: Claim, frame: pd.DataFrame, blank: Finding) -> Finding:
    missing = [c for c in ("paper", "ours") if c not in frame]
    if missing or frame.empty:
        raise ValueError(
            f"{claim.id}: cells need rows and the columns paper and ours; got columns "
            f"{[*frame.columns]} and {len(frame)} rows; build them with cells()"
        )
    run = frame["run"].to_numpy(dtype=bool) if "run" in frame else np.ones(len(frame), dtype=bool)
    done = frame[run]
    outside = [
        f"{_label(key)} {_short(float(v))} against {_short(float(p))}"
        for key, v, p in zip(done.index, done["ours"], done["paper"], strict=True)
        if not agrees(claim.check, float(v), float(p), claim.tolerance)
    ]
    agreeing, absent = len(done) - len(outside), len(frame) - len(done)
    notes = [
        blank.note,
        f"{absent} of {len(frame)} cells not run" if absent else "",
        f"outside: {', '.join(outside)}" if outside else "",
    ]
    return replace(
        blank,
        value=f"{agreeing} of {len(done)} cells agree",
        numbers=(float(agreeing), float(len(done))),
        verdict="not checkable" if absent else _verdict(not outside),
        note=_joined(*notes),
    )


def _label(key: Any) -> str:
    return " ".join(map(str, key)) if isinstance(key, tuple) else str(key)


def _verdict(agreed: bool) -> Verdict:
    return "holds" if agreed else "differs"


def _joined(*notes: str) -> str:
    return "; ".join(note for note in notes if note)


def _numbers(value: Numbers) -> tuple[float, ...]:
    if isinstance(value, Mapping):
        return tuple(float(v) for v in value.values())
    return tuple(float(v) for v in np.atleast_1d(np.asarray(value, dtype=float)))


def _text(value: Numbers, is_range: bool = False, total: int | None = None) -> str:
    if isinstance(value, Mapping):
        text = "; ".join(f"{name} {_short(float(v))}" for name, v in value.items())
    else:
        ours = _numbers(value)
        if is_range and len(ours) > 1:
            text = f"{_short(float(np.min(ours)))}..{_short(float(np.max(ours)))}"
        else:
            text = "; ".join(map(_short, ours))
    return text if total is None else f"{text} of {total}"


def _short(v: float) -> str:
    """Four digits, whole numbers whole."""
    if not np.isfinite(v):
        return str(v)
    return f"{v:.0f}" if v == round(v) or abs(v) >= 1e4 else f"{v:.4g}"
