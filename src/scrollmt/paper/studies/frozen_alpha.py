"""Prior precisions frozen at one of seven values, chosen by validation, or fitted."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd

from scrollmt.paper.arms.composition import FROZEN_PRECISIONS
from scrollmt.paper.data.published import CORPORA
from scrollmt.paper.studies.base import Study, sweep
from scrollmt.paper.studies.evidence import (
    HEADS,
    Answer,
    Evidence,
    Measured,
    largest,
    less,
    order,
    settings,
    size,
    table_cells,
)
from scrollmt.paper.studies.kernel_recovery import true_sd
from scrollmt.paper.tables.statistics import Estimate, estimate

FITTED, GRID = "self-tuned", "grid"
FROZEN = {f"fixed-{alpha:g}": alpha for alpha in FROZEN_PRECISIONS}
STRONG = [row for row, alpha in FROZEN.items() if alpha >= 100.0]
# Selected precisions count as scattered if they reach into the outer decades at both ends.
OUTER = (0.1, 1000.0)


def column(e: Evidence, metric: str, corpus: str, row: str) -> pd.Series:
    """One row of the table: fitted, selected over all, or selected at one frozen value."""
    if row == FITTED:
        return e.column(metric, corpus, "scroll-diag")
    if row == GRID:
        return e.column(metric, corpus, "frozen-alpha")
    setting = {"prior_precision": FROZEN[row]}
    return e.column(metric, corpus, "frozen-alpha", setting=setting)


def alpha_cells(e: Evidence, *, id: str) -> Measured:
    """Every cell of one column of the table on one corpus."""
    rows = (FITTED, GRID, *FROZEN)
    return table_cells(id, rows, lambda *cell: float(column(e, *cell).mean()))


def apart(e: Evidence, corpus: str, metric: str) -> Estimate:
    """The fitted run less the validated one."""
    return less(column(e, metric, corpus, FITTED), column(e, metric, corpus, GRID))


def fitted_is_close(e: Evidence, *, heads: tuple[str, ...]) -> Measured:
    found = {f"{c} {head}": size(apart(e, c, HEADS[head])) for c in CORPORA for head in heads}
    return largest(found)


def strong_coverage(e: Evidence) -> Measured:
    base = column(e, "reg_calerr", "lorenz63", FITTED).mean()
    ratios = {row: column(e, "reg_calerr", "lorenz63", row).mean() / base for row in STRONG}
    row = min(ratios, key=ratios.__getitem__)
    return Measured(ratios[row], note=f"smallest at {row}")


def strong_price(e: Evidence, *, metric: str) -> Estimate:
    columns = pd.concat([column(e, metric, "lorenz63", row) for row in STRONG], axis=1)
    return less(columns.mean(axis=1, skipna=False), column(e, metric, "lorenz63", FITTED))


def total_sd(e: Evidence) -> Measured:
    found = {}
    for row in FROZEN:
        sd = estimate(column(e, "mean_sd", "ou", row))
        miss = Estimate(sd.mean / true_sd(0.5) - 1.0, sd.se / true_sd(0.5), sd.count)
        found[row] = size(miss)
    return largest(found)


def coverage_bought(e: Evidence) -> Estimate:
    return apart(e, "pm25", "reg_calerr")


def selected_precisions(e: Evidence) -> Measured:
    chosen = settings(e.runs("pm25", "frozen-alpha"), "prior_precision")["prior_precision"]
    low, high = OUTER
    return order(
        chosen.min() <= low and chosen.max() >= high,
        {"smallest": chosen.min(), "largest": chosen.max()},
        f"scattered means from {low:g} or less to {high:g} or more",
    )


def weak_is_enough(e: Evidence) -> Measured:
    found = {
        f"{corpus} {head}": less(
            column(e, HEADS[head], corpus, "fixed-0.01"), column(e, HEADS[head], corpus, FITTED)
        )
        for corpus in CORPORA
        for head in ("state", "regime")
    }
    low = min(found, key=lambda name: found[name].mean)
    return largest(found, f"smallest {found[low].mean:.3f} at {low}")


ANSWERS: dict[str, Answer] = {f"C{n}": partial(alpha_cells, id=f"C{n}") for n in range(197, 206)}
ANSWERS |= {
    "C206": partial(fitted_is_close, heads=("state",)),
    "C207": partial(fitted_is_close, heads=tuple(HEADS)),
    "C208": strong_coverage,
    "C209": partial(strong_price, metric="ord_nll"),
    "C210": partial(strong_price, metric="reg_nll"),
    "C211": total_sd,
    "C212": coverage_bought,
    "C213": selected_precisions,
    "C214": weak_is_enough,
    "C215": lambda e: int(np.prod([len(FROZEN_PRECISIONS)] * len(HEADS))),
}
STUDY = Study(
    "frozen-alpha",
    "prior precisions frozen at seven values, against fitted ones",
    [partial(sweep, CORPORA, ["scroll-diag", "frozen-alpha"])],
    ANSWERS,
)
