"""A table of scores by task, for the records of any corpus.

The columns of the records are `<task>.<metric>` (see `scoring.BY_TASK`). An arm's result at a seed
is the run that validation selects among its backbones and settings, as in the paper's tables.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from scrollmt.paper.arms import ARMS
from scrollmt.paper.data.published import Better
from scrollmt.paper.tables.comparison import NOTES
from scrollmt.paper.tables.layout import Cell, Column, Row, Table
from scrollmt.paper.tables.selection import select
from scrollmt.paper.tables.statistics import estimate, marks

# Of these more is better. Coverage is good near its level, so it has no best.
HIGHER = ("accuracy",)
NO_BEST = ("coverage_50", "coverage_90")


def score_table(frame: pd.DataFrame, corpus: str, metrics: Sequence[str] = ("nll",)) -> Table:
    """One row an arm, one column per task and metric, from a records frame.

    `corpus` is the id that its jobs have. A cell is empty where an arm has no law for a task, or
    where a metric does not suit it.
    """
    runs = frame[frame["corpus"] == corpus]
    if runs.empty:
        raise ValueError(
            f"no records of corpus {corpus!r}; there are {sorted(frame['corpus'].unique())}"
        )
    chosen = pd.concat(
        select(mine, ARMS[arm].select if arm in ARMS else "valid_nats")
        for arm, mine in runs.groupby("arm", sort=False)
    )
    columns = [
        Column(f"{task}.{metric}", metric, task)
        for task in _tasks(frame)
        for metric in metrics
        if f"{task}.{metric}" in chosen and chosen[f"{task}.{metric}"].notna().any()
    ]
    if not columns:
        raise ValueError(
            f"the records of corpus {corpus!r} have no column <task>.<metric> for the metrics "
            f"{[*metrics]}; they have {[name for name in chosen if '.' in name]}"
        )
    cells: dict[str, dict[str, Cell]] = {arm: {} for arm in chosen["arm"].unique()}
    for column in columns:
        scores = {
            arm: mine.set_index("seed")[column.key]
            for arm, mine in chosen.groupby("arm", sort=False)
            if mine[column.key].notna().any()
        }
        better: Better = "higher" if column.label in HIGHER else "lower"
        given = {} if column.label in NO_BEST else marks(scores, better)
        for arm, values in scores.items():
            found = estimate(values)
            cells[arm][column.key] = Cell(found.mean, found.se, given.get(arm, ""))
    rows = [Row(arm, its) for arm, its in cells.items()]
    return Table(f"Scores by task on {corpus}", columns, rows, NOTES[:1])


def _tasks(frame: pd.DataFrame) -> list[str]:
    """Every task has an NLL."""
    scored = [name for name in frame if name.endswith(".nll") and not name.startswith("valid.")]
    return [name.removesuffix(".nll") for name in scored]
