"""Tables that the ledger prints beside the claims of a study, ours with the paper's in brackets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pandas as pd

from scrollmt.backbone import PAPER_BACKBONES
from scrollmt.paper.data import published
from scrollmt.paper.data.published import CORPORA, KEYS
from scrollmt.paper.studies import equivariance, frozen_alpha, routing_across_backbones
from scrollmt.paper.studies.evidence import HEADS, Evidence, NotRecorded
from scrollmt.paper.studies.probes import equivariance as probe
from scrollmt.paper.studies.stability import BELIEFS
from scrollmt.paper.tables.comparison import TITLES
from scrollmt.paper.tables.markdown import escaped, pipe_table
from scrollmt.paper.tables.statistics import Estimate, estimate

# A precision beyond this no longer moves: its prior term has lost its gradient.
RUNAWAY = 1e5
Rows = Iterable[Sequence[str]]


def precisions(e: Evidence) -> str:
    """The table of frozen, validated and fitted precisions."""
    rows = []
    for corpus in CORPORA:
        for row in (frozen_alpha.FITTED, frozen_alpha.GRID, *frozen_alpha.FROZEN):
            columns = {
                m: estimate(frozen_alpha.column(e, m, corpus, row))
                for m in ("reg_nll", "reg_calerr", *[HEADS[h] for h in ("event", "regime")])
            }
            cells = [_cell(v, _printed("alpha", (corpus, row), m)) for m, v in columns.items()]
            rows.append([TITLES[corpus], row, *cells])
    heads = ["corpus", "precision", "state NLL", "coverage error", "event NLL", "regime NLL"]
    return "Ours, with the paper's in brackets; it has no column for the event.\n\n" + _table(
        heads, rows
    )


def routes(e: Evidence) -> str:
    """The table of routes by backbone on Lorenz-63."""
    rows = []
    for backbone in PAPER_BACKBONES:
        for route, arm in routing_across_backbones.ROUTES.items():
            cells = []
            for name, column in (("reg_nll", "reg_nll"), ("pearson_r", "pearson")):
                printed = _printed("routing", (backbone, route), name)
                # Without a belief all variances are equal, and correlate with nothing.
                varies = column == "reg_nll" or np.isfinite(printed)
                found = e.mean(column, "lorenz63", arm, backbone) if varies else None
                cells.append("" if found is None else _cell(found, printed))
            rows.append([backbone, route, *cells])
    heads = ["backbone", "route", "state NLL", "Pearson r of V and V\\*"]
    return "Ours, with the paper's in brackets.\n\n" + _table(heads, rows)


def scaled_fits(e: Evidence) -> str:
    """Gaps of scaled fits on all four backbones; the claims are judged on two of them."""
    known = published.table("equivariance").set_index("backbone")
    shares = (probe.MAPPED, probe.LONG, probe.BOTH, probe.FLOOR, probe.WARM)
    rows = []
    for backbone in PAPER_BACKBONES:
        try:
            up, down = (
                equivariance.gap(e, backbone, factor=c, name=probe.COLD)
                for c in (probe.UP, probe.DOWN)
            )
            found = [f"{equivariance.closed(e, backbone, name=n).mean:.0f}" for n in shares]
            rows.append([backbone, _cell(up), _cell(down), *found, f"{up.count} seeds"])
        except NotRecorded:
            if backbone in known.index:
                before = known.loc[backbone]
                found = [f"{before[name]:.0f}" for name in shares]
                rows.append([backbone, f"{before['gap']:.3f}", "", *found, before["n"]])
    if not any("(" not in row[-1] for row in rows):
        raise NotRecorded("scaled fits")
    rows.append(["paper", "0.216 ± 0.013", "0.074", "39", "24", "76", "0", "100", "10 seeds"])
    heads = ["backbone", "gap at c = 8", "gap at c = 1/8", "mapped start", "20,000 steps"]
    heads += ["both", "mapped floor", "start at the mapped solution", "n"]
    told = (
        "The gap to the mapped solution in nats on Lorenz-63, and the share of that at c = 8 that "
        "each remedy closes, in percent. The claims are judged on "
        f"{' and '.join(equivariance.JUDGED)}, the backbones of the sweep that the paragraph "
        "continues; a claim that is not recorded on one of them can differ and cannot hold."
    )
    return f"{told}\n\n{_table(heads, rows)}"


def ended_early(e: Evidence) -> str:
    """Runs that met a value that is not finite, and precisions that ran away."""
    lost = []
    for (corpus, arm), runs in e.groups.items():
        if "stop_reason" in runs:
            for at in runs[runs["stop_reason"].astype(str).str.contains("nonfinite")].itertuples():
                steps = (f"{int(at.steps)}", f"{int(at.best_step)}", f"{at.reg_nll:.3f}")
                lost.append([corpus, arm, str(at.backbone), str(at.seed), *steps])
    told = [
        f"Runs that ended because a loss or a gradient was not finite: {len(lost)}. Each kept its "
        "best parameters until then, and is counted like any other. C216 is about the composed "
        "fits, which these are not."
    ]
    if lost:
        heads = ["corpus", "arm", "backbone", "seed", "last step", "best step", "state NLL"]
        told.append(_table(heads, lost))
    return "\n\n".join([*told, *_runaways(e)])


def _runaways(e: Evidence) -> Iterator[str]:
    alphas = [f"alpha_{head}" for head in HEADS]
    rows, over, total = [], 0, 0
    for (corpus, arm), runs in e.groups.items():
        if arm in BELIEFS and set(alphas) <= set(runs):
            away = int((runs[alphas].max(axis=1) > RUNAWAY).sum())
            over, total = over + away, total + len(runs)
            if away:
                rows.append([corpus, arm, f"{away} of {len(runs)}"])
    if total:
        yield (
            f"Runs of {' and '.join(BELIEFS)} that ended with a prior precision over {RUNAWAY:.0e} "
            f"on some head: {over} of {total} ({over / total:.1%}). Such a precision does not come "
            "back, because its prior term has no gradient there."
        )
        if rows:
            yield _table(["corpus", "arm", "runs"], sorted(rows))


TABLES: dict[str, Callable[[Evidence], str]] = {
    "equivariance": scaled_fits,
    "routing-across-backbones": routes,
    "frozen-alpha": precisions,
    "stability": ended_early,
}


def tables_beside(frame: pd.DataFrame, studies: Iterable[str] = tuple(TABLES)) -> dict[str, str]:
    """Markdown by study, of what the records have."""
    evidence = Evidence(frame)
    found = {}
    for name in studies:
        if name in TABLES:
            try:
                found[name] = TABLES[name](evidence)
            except NotRecorded:
                continue
    return found


def _printed(name: str, row: tuple[str, str], column: str) -> float:
    table = published.table(name).set_index([*KEYS[name]])
    return float(table.loc[row, column]) if column in table else float("nan")


def _cell(ours: Estimate, paper: float = float("nan")) -> str:
    bracket = f" [{paper:.3f}]" if np.isfinite(paper) else ""
    return f"{ours.mean:.3f} ± {ours.se:.3f}{bracket}"


def _table(heads: Sequence[str], rows: Rows) -> str:
    lines = ([escaped(cell, "|*_") for cell in row] for row in rows)
    return pipe_table(heads, "|" + "---|" * len(heads), lines)
