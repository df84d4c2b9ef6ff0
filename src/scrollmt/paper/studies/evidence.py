"""What the records say: runs by seed, means and paired differences with their standard errors.

An answer is a function of the evidence that gives a claim its value. What an answer asks for and
the records lack makes its claim not checkable, never an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from scrollmt.backbone import PAPER_BACKBONES
from scrollmt.paper.data import published
from scrollmt.paper.data.published import BETTER, GRIDS, NLLS, Claim
from scrollmt.paper.tables.samples import sample
from scrollmt.paper.tables.selection import select, together
from scrollmt.paper.tables.statistics import Estimate, estimate, geometric, p_worse
from scrollmt.paper.tables.verdicts import Finding, Numbers, cells, column_of, judge

ENSEMBLES = ("scroll-diag-ens5", "map-ce-ens5", "map-probit-ens5")
SCROLLS = ("scroll-none", "scroll-diag", "scroll-full")
HEADS = {"state": "reg_nll", "event": "evt_nll", "regime": "ord_nll"}
# Read in raw units and added up, head by head.
TOTAL = "total"


class NotRecorded(LookupError):
    """The records lack what an answer needs; the message names it."""


@dataclass(frozen=True)
class Measured:
    """A value with all that `judge` wants to know about it.

    `provided` is what a claim asks for beside its number: where it is false, the claim does
    not hold whatever the number.
    """

    value: Any
    uncertainty: Numbers = ()
    numbers: Numbers = ()
    total: int | None = None
    note: str = ""
    provided: bool = True


Answer = Callable[["Evidence"], Measured | Estimate | float]
Found = Mapping[str, Estimate]
Row = TypeVar("Row")


class Evidence:
    """A records frame that is asked by corpus and arm.

    State NLLs are in raw units: of a target times c, log c is taken off. All draws of a corpus
    are one corpus with as many times the seeds. `asked` collects the seeds that were read, by
    corpus.
    """

    def __init__(self, frame: pd.DataFrame):
        self.asked: list[tuple[str, list[int]]] = []
        self._selected: dict[Any, pd.DataFrame] = {}
        self.groups: dict[Any, pd.DataFrame] = {}
        if not frame.empty:
            found = _in_raw_units(together(frame))
            self.groups = dict(iter(found.groupby(["corpus", "arm"], sort=False)))

    def rows(self, corpus: str, arm: str, backbone: str | None = None) -> pd.DataFrame:
        """All rows of an arm on a corpus, nothing selected."""
        found = self._rows(corpus, arm, backbone)
        self.asked.append((corpus, found["seed"].unique().tolist()))
        return found

    def _rows(self, corpus: str, arm: str, backbone: str | None = None) -> pd.DataFrame:
        found = self.groups.get((corpus, arm), pd.DataFrame())
        if backbone is not None and not found.empty:
            found = found[found["backbone"] == backbone]
        if found.empty:
            raise NotRecorded(_name(corpus, arm, backbone))
        return found

    def runs(
        self,
        corpus: str,
        arm: str,
        backbone: str | None = None,
        *,
        setting: Mapping[str, Any] | None = None,
        by: str = "valid_nats",
    ) -> pd.DataFrame:
        """One run per seed, indexed by it: the one that validation selects.

        Among all four backbones, or on the one named; among all settings, or with the one given.
        Seeds at which a backbone is missing do not count.
        """
        wanted = None if setting is None else json.dumps(dict(setting), sort_keys=True)
        key = (corpus, arm, backbone, wanted, by)
        if key not in self._selected:
            self._selected[key] = self._select(corpus, arm, backbone, wanted, by)
        found = self._selected[key]
        self.asked.append((corpus, found.index.tolist()))
        return found

    def _select(
        self, corpus: str, arm: str, backbone: str | None, setting: str | None, by: str
    ) -> pd.DataFrame:
        found = self._rows(corpus, arm, backbone)
        if setting is not None:
            found = found[found["setting"] == setting]
        if backbone is None:
            on = found[found["backbone"].isin(PAPER_BACKBONES)].groupby("seed")["backbone"]
            complete = on.nunique() == len(PAPER_BACKBONES)
            found = found[found["seed"].isin(complete.index[complete])]
        if found.empty:
            raise NotRecorded(_name(corpus, arm, backbone))
        return select(found, by=by).set_index("seed")

    def column(self, metric: str, corpus: str, arm: str, *args: Any, **which: Any) -> pd.Series:
        """One number per seed; the other arguments are those of `runs`."""
        return recorded(self.runs(corpus, arm, *args, **which), metric)

    def fact(self, column: str, corpus: str, arm: str) -> float:
        """A number that no seed changes."""
        return float(recorded(self._rows(corpus, arm), column).iloc[0])

    def mean(self, metric: str, corpus: str, arm: str, *args: Any, **which: Any) -> Estimate:
        return estimate(self.column(metric, corpus, arm, *args, **which))

    def var_range(self, corpus: str, arm: str, backbone: str) -> Estimate:
        """Largest over smallest predictive variance; a ratio of extremes has a long tail."""
        return geometric(self.column("var_range", corpus, arm, backbone))

    def means(
        self, metric: str, corpus: str, arms: Iterable[str], *args: Any, **which: Any
    ) -> dict[str, Estimate]:
        return {arm: self.mean(metric, corpus, arm, *args, **which) for arm in arms}

    def less(
        self, metric: str, corpus: str, arm: str, other: str, *args: Any, **which: Any
    ) -> Estimate:
        """One arm's number less another's, paired over seeds."""
        return less(
            self.column(metric, corpus, arm, *args, **which),
            self.column(metric, corpus, other, *args, **which),
        )

    def p_worse(self, metric: str, corpus: str, arm: str, other: str) -> float:
        """One-sided paired test: small when `arm` is worse than `other`."""
        a, b = paired(*(self.column(metric, corpus, name) for name in (arm, other)))
        return p_worse(a, b, BETTER[metric])

    def not_worse(self, metric: str, corpus: str, arm: str, other: str) -> bool:
        """Whether the paper would call the two tied, or `arm` ahead."""
        return arm == other or self.p_worse(metric, corpus, arm, other) >= 0.05

    def leader(self, metric: str, corpus: str, arms: Iterable[str]) -> str:
        """The arm with the best mean."""
        found = {a: e.mean for a, e in self.means(metric, corpus, arms).items()}
        sign = 1.0 if BETTER[metric] == "lower" else -1.0
        return min(found, key=lambda arm: np.nan_to_num(sign * found[arm], nan=np.inf))

    def better_grid(self, corpus: str) -> str:
        """The weight grid with the lower total."""
        found = self.means(TOTAL, corpus, GRIDS)
        return min(found, key=lambda arm: found[arm].mean)


def recorded(rows: pd.DataFrame, column: str) -> pd.Series:
    """A column of some rows of one arm, if any of them has it."""
    if column not in rows or rows[column].isna().all():
        at = rows.iloc[0]
        raise NotRecorded(f"{column} of {_name(at['corpus'], at['arm'], None)}")
    return rows[column]


def settings(rows: pd.DataFrame, *names: str) -> pd.DataFrame:
    """Numbers of the settings by name, NaN where a setting does not have one."""
    parsed = [json.loads(text) for text in rows["setting"]]
    found = pd.DataFrame(parsed, index=rows.index).reindex(columns=[*names])
    if found.isna().all(axis=None):
        at = rows.iloc[0]
        raise NotRecorded(f"settings {', '.join(names)} of {_name(at['corpus'], at['arm'], None)}")
    return found


def paired(a: pd.Series, b: pd.Series) -> tuple[pd.Series, pd.Series]:
    """Two columns at the seeds that both have; a value that is not a number stays seen."""
    seeds = a.index.intersection(b.index)
    if seeds.empty:
        raise NotRecorded("a seed that both arms have")
    return a.loc[seeds], b.loc[seeds]


def less(a: pd.Series, b: pd.Series) -> Estimate:
    """Mean of a paired difference over seeds, with its standard error."""
    a, b = paired(a, b)
    return estimate(a - b)


def size(found: Estimate) -> Estimate:
    return replace(found, mean=abs(found.mean))


def largest(found: Found, note: str = "") -> Measured:
    """The largest of some estimates, with where it was found."""
    at = max(found, key=lambda name: _last_if_nan(found[name].mean))
    return Measured(found[at].mean, found[at].se, note=_notes(note, f"largest at {at}"))


def smallest(found: Found, note: str = "") -> Measured:
    at = min(found, key=lambda name: -_last_if_nan(-found[name].mean))
    return Measured(found[at].mean, found[at].se, note=_notes(note, f"smallest at {at}"))


def extent(found: Found, note: str = "") -> Measured:
    """The smallest and the largest of some estimates."""
    ends = (smallest(found), largest(found))
    return Measured(
        tuple(end.value for end in ends),
        tuple(float(end.uncertainty) for end in ends),  # type: ignore[arg-type]
        note=_notes(note, *(end.note for end in ends)),
    )


def spread(found: Found, note: str = "") -> Measured:
    """The largest less the smallest of some estimates."""
    ends = extent(found, note)
    low, high = ends.value
    return Measured(high - low, note=ends.note)


def each(found: Found, **more: Any) -> Measured:
    """Several estimates, each compared with the paper's number."""
    return Measured(
        {name: e.mean for name, e in found.items()}, tuple(e.se for e in found.values()), **more
    )


def order(holds: bool | np.bool_, numbers: Mapping[str, Any], note: str = "") -> Measured:
    """Whether an order holds, with the numbers that show it."""
    shown = {n: v.mean if isinstance(v, Estimate) else float(v) for n, v in numbers.items()}
    errors = [v.se if isinstance(v, Estimate) else np.nan for v in numbers.values()]
    known = errors if np.isfinite(errors).any() else []
    return Measured(bool(holds), known, numbers=shown, note=note)


def table_cells(id: str, rows: Iterable[Row], ours: Callable[[str, str, Row], float]) -> Measured:
    """The cells that a claim points to, beside `ours(metric, corpus, row)` where recorded."""
    claim = published.claim(id)
    pointer = column_of(claim.paper_value)
    assert pointer is not None
    _, metric, corpus = pointer
    found: dict[Row, float] = {}
    lacking = None
    for row in rows:
        try:
            found[row] = ours(metric, corpus or "", row)
        except NotRecorded as error:
            lacking = error
    if lacking is not None and not found:
        raise lacking
    return Measured(cells(claim, found))


def judged(claim: Claim, answer: Answer, evidence: Evidence) -> Finding:
    """The finding for a claim: its answer, compared with what the paper has."""
    evidence.asked.clear()
    try:
        found = answer(evidence)
    except NotRecorded as lacking:
        return judge(claim, None, note=f"not recorded: {lacking}")
    if isinstance(found, Estimate):
        found = Measured(found.mean, found.se)
    if not isinstance(found, Measured):
        found = Measured(found)
    finding = judge(
        claim,
        found.value,
        uncertainty=found.uncertainty,
        numbers=found.numbers,
        total=found.total,
        note=found.note,
    )
    if not found.provided and finding.verdict == "holds":
        finding = replace(finding, verdict="differs")
    return replace(finding, sample=sample(evidence.asked))


def _in_raw_units(frame: pd.DataFrame) -> pd.DataFrame:
    out = frame.copy()
    if "reg_nll" in out and "target_factor" in out:
        out["reg_nll"] -= np.log(out["target_factor"].fillna(1.0))
    if all(metric in out for metric in NLLS):
        out[TOTAL] = sum(out[metric] for metric in NLLS)
    return out


def _name(corpus: str, arm: str, backbone: str | None) -> str:
    return f"{arm} on {corpus}" + (f", {backbone}" if backbone else "")


def _last_if_nan(value: float) -> float:
    """A failed run is an extreme, and must be seen."""
    return np.inf if np.isnan(value) else value


def _notes(*notes: str) -> str:
    return "; ".join(note for note in notes if note)
