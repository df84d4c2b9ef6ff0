"""The page of the comparators, written from records: scores, cost, paired tests, routings.

An arm's result at a seed is the run that validation selects among its backbones and settings, as in
the main comparison. With $d_s$ the arm's NLL less that of a reference at seed s, a paired t-test
over the n seeds that both have asks whether the mean of d is zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from scrollmt.paper.arms import ARMS
from scrollmt.paper.beyond.base import with_selections
from scrollmt.paper.data.published import BETTER, CORPORA, METRICS, NLLS
from scrollmt.paper.tables.comparison import COLUMNS, TITLES
from scrollmt.paper.tables.layout import Cell, Column, Row, Table
from scrollmt.paper.tables.markdown import escaped, pipe_table
from scrollmt.paper.tables.selection import select
from scrollmt.paper.tables.statistics import LEVEL, estimate, marks, p_worse

REFERENCES = ("scroll-diag", "scroll-full")
HEADS = {metric: COLUMNS[metric].group for metric in NLLS}
# The arm of each routing and belief. `closed` and `binding-map` hold the state head at its
# conjugate posterior, whose covariance is full, beside diagonal beliefs of the other heads.
ROUTES: dict[str, dict[str, str]] = {
    "free": {"diag": "scroll-diag", "full": "scroll-full"},
    "elbo": {"diag": "elbo-diag", "full": "elbo-full"},
    "ppgpr": {"diag": "ppgpr-diag", "full": "ppgpr-full"},
    "laplace": {"diag": "laplace-diag-probit", "full": "laplace-full-probit"},
    "closed": {"diag": "closed"},
    "binding-map": {"diag": "binding-map"},
}
ONE_SPLIT = (
    "Its seeds share one split by time: they differ in the starting values alone, so that p says "
    "nothing about other windows."
)

Scores = dict[str, pd.Series]


@dataclass(frozen=True)
class Paired:
    """A paired test: the mean difference (below zero: better), two-sided p, and n seeds."""

    difference: float
    p: float
    count: int

    @property
    def better(self) -> bool:
        return self.difference < 0.0 and self.p < LEVEL

    def __str__(self) -> str:
        p = "" if np.isnan(self.p) else ", p < 0.001" if self.p < 1e-3 else f", p = {self.p:.3f}"
        return f"{self.difference:+.3f}{p}"


def paired(arm: pd.Series, reference: pd.Series) -> Paired:
    seeds = arm.index.intersection(reference.index)
    ours, theirs = arm.loc[seeds], reference.loc[seeds]
    one_sided = p_worse(ours, theirs)
    difference = float(np.mean(ours.to_numpy(float) - theirs.to_numpy(float)))
    return Paired(difference, 2.0 * min(one_sided, 1.0 - one_sided), len(seeds))


def page(frame: pd.DataFrame, arms: Sequence[str], skipped: Mapping[str, str], command: str) -> str:
    """The page as text; `arms` gives the order of rows, arms that it does not name come last."""
    every = with_selections(frame)
    every = every[every["arm"].isin(arms) | ~every["arm"].isin(ARMS)]
    places = {arm: place for place, arm in enumerate(arms)}
    order = select(every)["arm"].map(places).fillna(len(places))
    chosen = select(every).iloc[np.argsort(order.to_numpy(), kind="stable")]
    seeds = chosen.groupby("corpus")["seed"].nunique()
    devices = ", ".join(sorted(frame["device"].unique()))
    parts = [
        "# Comparators",
        f"Written by `{command}` from the records in beyond/comparators beside this page. "
        f"Devices: {devices}. Seeds: "
        + ", ".join(f"{TITLES[c]} {seeds[c]}" for c in CORPORA if c in seeds)
        + ". The first draw of each corpus.",
        "Every arm has the same windows, splits and validation parts, and is scored by the arena. "
        "Validation selects among the backbones and settings of an arm, as in the "
        "[main comparison](main.md). `R-probit` is a rule R on mean losses, `R-scroll-diag` the "
        "same rule on the nats of the composed objective.",
        *_absences(skipped),
        "## Where another arm is better",
    ]
    parts += [_better(chosen, corpus) for corpus in CORPORA if corpus in seeds]
    tests = len(NLLS) * (chosen["arm"].nunique() - 1)
    parts.append(
        f"At p < {LEVEL} by two-sided paired t-tests that are not corrected for their number, up "
        f"to {tests} for each corpus and reference."
    )
    for corpus in CORPORA:
        if corpus in seeds:
            mine = every[every["corpus"] == corpus]
            parts += [f"## {TITLES[corpus]}", _scores(chosen, mine, corpus).markdown().rstrip()]
            parts += [_tests(chosen, corpus), *([ONE_SPLIT] if corpus == "pm25" else [])]
            parts += _nonfinite(mine)
    parts += ["## Routing by belief", _routes(chosen).markdown().rstrip()]
    return "\n\n".join(parts) + "\n"


def _absences(skipped: Mapping[str, str]) -> list[str]:
    if not skipped:
        return []
    reasons: dict[str, list[str]] = {}
    for arm, why in skipped.items():
        reasons.setdefault(why, []).append(f"`{arm}`")
    told = "; ".join(f"{', '.join(arms)} ({escaped(why)})" for why, arms in reasons.items())
    return [f"Not run: {told}."]


def _by_arm(chosen: pd.DataFrame, corpus: str, metric: str) -> Scores:
    mine = chosen[chosen["corpus"] == corpus]
    return {
        arm: runs.set_index("seed")[metric]
        for arm, runs in mine.groupby("arm", sort=False)
        if runs[metric].notna().any()
    }


def _better(chosen: pd.DataFrame, corpus: str) -> str:
    """One line for each reference: the cells in which an arm is better than it."""
    lines = []
    for reference in REFERENCES:
        cells = []
        for metric in NLLS:
            scores = _by_arm(chosen, corpus, metric)
            if reference not in scores:
                continue
            for arm, values in scores.items():
                if arm == reference:
                    continue
                found = paired(values, scores[reference])
                if found.better:
                    cells.append(f"{arm} on {HEADS[metric]} ({found.difference:+.3f})")
        ran = reference in {*chosen.loc[chosen["corpus"] == corpus, "arm"]}
        told = (", ".join(cells) or "no arm") if ran else "not run"
        lines.append(f"- {TITLES[corpus]}, better than {reference}: {told}.")
    return "\n".join(lines)


def _scores(chosen: pd.DataFrame, runs: pd.DataFrame, corpus: str) -> Table:
    """NLLs, calibration and cost of every arm."""
    arms = [*chosen.loc[chosen["corpus"] == corpus, "arm"].unique()]
    cells: dict[str, dict[str, Cell]] = {arm: {} for arm in arms}
    for metric in METRICS:
        scores = _by_arm(chosen, corpus, metric)
        given = marks(scores, BETTER[metric])
        for arm, values in scores.items():
            found = estimate(values)
            cells[arm][metric] = Cell(found.mean, found.se, given[arm])
    for arm in arms:
        fits = ARMS[arm].members * len(ARMS[arm].settings) if arm in ARMS else 1
        mine = runs[runs["arm"] == arm]
        behind = ARMS[arm].runs_of if arm in ARMS else None
        timed = ARMS[behind].members * len(ARMS[behind].settings) if behind in ARMS else fits
        each = mine.drop_duplicates(["backbone", "seed"])["seconds"] / timed
        cells[arm]["runs"] = Cell(float(fits * mine["backbone"].nunique()))
        cells[arm]["seconds"] = Cell(float(each.mean()))
    columns = [COLUMNS[metric] for metric in METRICS]
    columns += [Column("runs", "runs a seed", "cost", decimals=0)]
    columns += [Column("seconds", "seconds a run", "cost", decimals=None)]
    notes = (
        "Means over seeds ± standard error on the test windows. Bold: best mean of the column. "
        "Italic: a one-sided paired t-test does not find the arm worse than the best (p >= 0.05). "
        "Seconds are a run's share of its job, compilation included, in a sweep whose jobs may "
        "share a machine.",
    )
    rows = [Row(arm, cells[arm]) for arm in arms]
    return Table(f"Scores on {TITLES[corpus]}", columns, rows, notes)


def _tests(chosen: pd.DataFrame, corpus: str) -> str:
    """Differences from the references, each with its p and the number of seeds."""
    scores = {metric: _by_arm(chosen, corpus, metric) for metric in NLLS}
    header = ["arm", "n"]
    present = [r for r in REFERENCES if any(r in scores[m] for m in NLLS)]
    header += [f"{HEADS[metric]} less {r}" for r in present for metric in NLLS]
    lines = []
    for arm in chosen.loc[chosen["corpus"] == corpus, "arm"].unique():
        line, counts = [], set()
        for reference in present:
            for metric in NLLS:
                both = arm in scores[metric] and reference in scores[metric]
                if arm == reference or not both:
                    line.append("")
                    continue
                found = paired(scores[metric][arm], scores[metric][reference])
                counts.add(found.count)
                line.append(str(found))
        lines.append([escaped(arm), "/".join(map(str, sorted(counts))), *line])
    rule = f"| --- | {' | '.join(['---:'] * (len(header) - 1))} |"
    title = f"**NLL less that of a reference on {TITLES[corpus]}, by seed**"
    note = "Below zero the arm is better. p is of a two-sided paired t-test over the n seeds."
    return "\n\n".join([title, pipe_table(map(escaped, header), rule, lines), note])


def _nonfinite(runs: pd.DataFrame) -> list[str]:
    """Which arms have runs that ended with a value that is not finite."""
    if "stop_reason" not in runs:
        return []
    broken = runs[runs["stop_reason"].astype(str).str.contains("nonfinite")]
    if broken.empty:
        return []
    whole = runs.groupby("arm").size()
    counts = broken.groupby("arm").size()
    told = ", ".join(f"{arm} {counts[arm]} of {whole[arm]}" for arm in counts.index)
    return [f"Runs that ended non-finite and kept their last finite parameters: {told}."]


def _routes(chosen: pd.DataFrame) -> Table:
    """The same heads, features and prior under every routing, by belief and corpus."""
    columns = [
        Column(f"{metric}-{belief}", belief, f"{HEADS[metric]} NLL")
        for metric in NLLS
        for belief in ("diag", "full")
    ]
    rows = []
    for corpus in (c for c in CORPORA if c in {*chosen["corpus"]}):
        cells: dict[str, dict[str, Cell]] = {route: {} for route in ROUTES}
        for metric in NLLS:
            every = _by_arm(chosen, corpus, metric)
            used = {arm for by_belief in ROUTES.values() for arm in by_belief.values()}
            scores = {arm: values for arm, values in every.items() if arm in used}
            given = marks(scores)
            for route, by_belief in ROUTES.items():
                for belief, arm in by_belief.items():
                    if arm in scores:
                        found = estimate(scores[arm])
                        cell = Cell(found.mean, found.se, given[arm])
                        cells[route][f"{metric}-{belief}"] = cell
        rows += [Row(route, its, TITLES[corpus]) for route, its in cells.items() if its]
    notes = (
        "Marks are among all routings and beliefs of a corpus and head. closed and binding-map "
        "hold the state head at its conjugate posterior, whose covariance is full; their other "
        "heads have diagonal beliefs.",
    )
    return Table("Test NLL by routing and belief", columns, rows, notes, ("corpus", "routing"))
