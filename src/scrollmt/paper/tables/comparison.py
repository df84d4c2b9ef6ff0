"""From records to the comparison's tables: average selected runs over seeds, mark, compare.

An arm's result at a seed is the run that validation selects among its backbones and settings (see
`selection`); a cell is its mean over seeds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from scrollmt.paper.data import published
from scrollmt.paper.data.published import BETTER, CORPORA, METRICS, NLLS, NOT_IN_BODY
from scrollmt.paper.tables.layout import Cell, Column, Row, Table
from scrollmt.paper.tables.selection import RESULT, arm_seconds, need_columns, select
from scrollmt.paper.tables.statistics import estimate, marks
from scrollmt.paper.tables.verdicts import OWN_CLAIM, agrees, column_of

TITLES = {"ou": "OU", "lorenz63": "Lorenz-63", "pm25": "PM2.5"}
COLUMNS = {
    "reg_nll": Column("reg_nll", "NLL", "state"),
    "reg_calerr": Column("reg_calerr", "coverage error", "state"),
    "evt_nll": Column("evt_nll", "NLL", "event"),
    "evt_acc_pct": Column("evt_acc_pct", "accuracy, %", "event", decimals=1),
    "ord_nll": Column("ord_nll", "NLL", "regime"),
    "time_s": Column("time_s", "seconds", "cost", decimals=None),
}
NOTES = (
    "Means over seeds ± standard error. Bold: best mean of the column. Italic: a one-sided paired "
    "t-test over seeds does not find the arm worse than the best (p >= 0.05).",
    "In brackets: the paper's value, with ! where ours is outside the tolerance of its claim.",
)

Cells = dict[tuple[str, str], dict[str, Cell]]


def compare_cells(
    selected: pd.DataFrame,
    full: pd.DataFrame | None = None,
    claims: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Ours beside the paper's full table, one row per cell, judged by the claim about it.

    Columns: corpus, arm, metric, paper, ours, se, difference, tolerance, within, claim, run. A
    cell that was not run has no value of ours and no `within`. A cell with a claim of its own
    (see `OWN_CLAIM`) is judged by that one.
    """
    need_columns(selected, [*RESULT, *METRICS])
    _one_a_seed(selected)
    full = published.table("full") if full is None else full
    claims = published.claims() if claims is None else claims
    rules = {row["id"]: row for row in claims.to_dict("records")}
    columns = {column_of(rule["paper_value"]): id for id, rule in rules.items()}
    ours = dict(iter(selected.groupby(["corpus", "arm"])))
    rows: list[dict[str, Any]] = []
    for printed in full.to_dict("records"):
        corpus, arm = printed["corpus"], printed["arm"]
        runs = ours.get((corpus, arm))
        for metric in METRICS:
            claim = OWN_CLAIM.get((corpus, arm, metric)) or columns["full", metric, corpus]
            rule, paper = rules[claim], printed[metric]
            row = {"corpus": corpus, "arm": arm, "metric": metric, "paper": paper}
            row |= {"ours": np.nan, "se": np.nan, "difference": np.nan}
            row |= {"tolerance": rule["tolerance"], "within": None, "claim": claim, "run": False}
            if runs is not None:
                found = estimate(runs[metric])
                within = agrees(rule["check"], found.mean, paper, rule["tolerance"])
                row |= {"ours": found.mean, "se": found.se, "difference": found.mean - paper}
                row |= {"within": within, "run": True}
            rows.append(row)
    return pd.DataFrame(rows).astype({"within": "boolean"})


def main_table(
    frame: pd.DataFrame,
    *,
    arms: Sequence[str] | None = None,
    compete: Collection[str] | None = None,
    beside_paper: bool = True,
) -> Table:
    """The body's table from a records frame: three NLLs on each corpus side by side.

    `arms` are the rows, in order; by default the paper's 14, as far as they were run, then all
    others in the frame. `compete` are the arms that marks are given among, by default all rows:
    name the paper's arms there to keep one that the paper does not have from taking the bold.
    """
    rows = [a for a in _rows(frame, arms) if arms is not None or a not in NOT_IN_BODY]
    cells = _cells(frame, rows, NLLS, compete, beside_paper)
    corpora = _corpora(frame)
    columns = [
        replace(COLUMNS[m], key=f"{c}_{m}", label=f"{COLUMNS[m].group} NLL", group=TITLES[c])
        for c in corpora
        for m in NLLS
    ]
    lines = [
        Row(arm, {f"{c}_{m}": v for c in corpora for m, v in cells.get((c, arm), {}).items()})
        for arm in rows
    ]
    return Table("Test NLL in nats by head", columns, lines, NOTES[: 1 + beside_paper])


def full_table(
    frame: pd.DataFrame,
    *,
    arms: Sequence[str] | None = None,
    compete: Collection[str] | None = None,
    beside_paper: bool = True,
    seconds: pd.DataFrame | None = None,
) -> Table:
    """The appendix's table from a records frame: all metrics and the time, corpus by corpus.

    Arguments as for `main_table`, and the times as `arm_seconds` gives them. Times have no marks
    and no tolerance: the machines differ.
    """
    rows = _rows(frame, arms)
    cells = _cells(frame, rows, METRICS, compete, beside_paper)
    paper = published.table("full").set_index(["corpus", "arm"])["time_s"] if beside_paper else {}
    timed = arm_seconds(frame) if seconds is None else seconds
    for key, taken in timed.groupby(["corpus", "arm"])["time_s"]:
        if key in cells:
            # Seeds share a batch and its time evenly: there is no spread to report.
            cells[key]["time_s"] = Cell(float(taken.mean()), paper=paper.get(key))
    lines = [
        Row(arm, cells[corpus, arm], group=TITLES[corpus])
        for corpus in _corpora(frame)
        for arm in rows
        if (corpus, arm) in cells
    ]
    title = "All metrics on the test windows"
    heads = ("corpus", "arm")
    return Table(title, [*COLUMNS.values()], lines, NOTES[: 1 + beside_paper], heads)


def _cells(
    frame: pd.DataFrame,
    arms: Sequence[str],
    metrics: Sequence[str],
    compete: Collection[str] | None,
    beside_paper: bool,
) -> Cells:
    selected = select(frame[frame["arm"].isin(arms) & frame["corpus"].isin(CORPORA)])
    need_columns(selected, metrics)
    printed: Mapping[Any, Any] = {}
    if beside_paper:
        compared = compare_cells(selected)
        printed = {
            (row["corpus"], row["arm"], row["metric"]): row
            for row in compared[compared["run"]].to_dict("records")
        }
    cells: Cells = {}
    for corpus, runs in selected.groupby("corpus"):
        by_arm = {arm: group.set_index("seed") for arm, group in runs.groupby("arm")}
        for metric in metrics:
            rivals = {a: g[metric] for a, g in by_arm.items() if compete is None or a in compete}
            given = marks(rivals, BETTER[metric])
            for arm, group in by_arm.items():
                found = estimate(group[metric])
                beside = printed.get((corpus, arm, metric), {})
                cells.setdefault((corpus, arm), {})[metric] = Cell(
                    found.mean,
                    found.se,
                    given.get(arm, ""),
                    beside.get("paper"),
                    bool(beside["within"]) if beside else None,
                )
    return cells


def _rows(frame: pd.DataFrame, arms: Sequence[str] | None) -> list[str]:
    need_columns(frame, ["arm"])
    present = [*frame["arm"].unique()]
    if arms is None:
        paper = published.arms()
        return [a for a in paper if a in present] + [a for a in present if a not in paper]
    absent = [arm for arm in arms if arm not in present]
    if absent:
        raise ValueError(f"no records of the arms {absent}; there are {sorted(present)}")
    return [*arms]


def _corpora(frame: pd.DataFrame) -> list[str]:
    need_columns(frame, ["corpus"])
    found = [corpus for corpus in CORPORA if corpus in set(frame["corpus"])]
    if not found:
        raise ValueError(
            f"column 'corpus' has none of {list(CORPORA)}, only {sorted(frame['corpus'].unique())}"
        )
    return found


def _one_a_seed(selected: pd.DataFrame) -> None:
    repeated = selected[selected.duplicated([*RESULT])]
    if not repeated.empty:
        first = tuple(repeated.iloc[0][[*RESULT]])
        raise ValueError(f"several runs of {first}; pass the frame through select() first")
