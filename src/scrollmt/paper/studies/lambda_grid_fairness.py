"""The weight grids: what tuning gains, and how much the unit of the selection criterion matters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pandas as pd

from scrollmt.paper.arms import get_arm
from scrollmt.paper.arms.weighted import GRID
from scrollmt.paper.data.published import CORPORA, GRIDS
from scrollmt.paper.studies.base import Study, sweep
from scrollmt.paper.studies.evidence import (
    TOTAL,
    Evidence,
    Measured,
    each,
    largest,
    less,
    size,
)
from scrollmt.paper.tables.selection import DRAW_STRIDE
from scrollmt.paper.tables.statistics import Estimate

KINDS = ("ce", "probit")
FLAT = ("ou", "pm25")


def tuning_gain(e: Evidence, corpus: str, kind: str) -> Estimate:
    """Total at weights of one less total of the fairly selected grid."""
    return e.less(TOTAL, corpus, f"map-{kind}", f"map-{kind}-grid")


def by_unit(e: Evidence, metric: str, corpus: str, kind: str) -> tuple[pd.Series, pd.Series]:
    """A column of one grid, selected in mixed units and in nats."""
    mixed, nats = (
        e.column(metric, corpus, f"map-{kind}-grid", by=by) for by in ("valid_mixed", "valid_nats")
    )
    return mixed, nats


def worth_of_nats(e: Evidence, corpus: str, kind: str) -> Estimate:
    """Total selected in mixed units less total selected in nats."""
    return less(*by_unit(e, TOTAL, corpus, kind))


def same_run(e: Evidence, corpus: str, kind: str) -> tuple[int, int]:
    """Seeds at which both criteria select the same run, and all seeds, on one draw of a corpus."""
    chosen = [
        e.runs(corpus, f"map-{kind}-grid", by=by)[["backbone", "setting"]]
        for by in ("valid_mixed", "valid_nats")
    ]
    same = (chosen[0] == chosen[1]).all(axis=1)
    same = same[same.index < DRAW_STRIDE]
    e.asked.append((corpus, same.index.tolist()))
    return int(same.sum()), len(same)


def coincide(e: Evidence, *, corpora: tuple[str, ...]) -> Measured:
    counts = [same_run(e, corpus, kind) for corpus in corpora for kind in KINDS]
    agreed, seeds = map(sum, zip(*counts, strict=True))
    note = "OU on its first draw" if "ou" in corpora else ""
    return Measured(agreed, total=seeds, note=note)


def over(
    measure: Callable[[Evidence, str, str], Estimate], e: Evidence, corpora: tuple[str, ...]
) -> dict[str, Estimate]:
    """A measure of a corpus and a kind of heads, over all of both."""
    return {f"{corpus} {kind}": measure(e, corpus, kind) for corpus in corpora for kind in KINDS}


def harm(e: Evidence) -> Measured:
    """The other sign of the gain: what tuning costs on PM2.5 where it costs most."""
    found = over(tuning_gain, e, ("pm25",))
    return largest({name: replace(v, mean=-v.mean) for name, v in found.items()})


def unit_hardly_matters(e: Evidence) -> Measured:
    return largest({name: size(v) for name, v in over(worth_of_nats, e, FLAT).items()})


def price_on_the_state(e: Evidence) -> Measured:
    """State NLL selected in nats less state NLL selected in mixed units."""
    columns = {kind: by_unit(e, "reg_nll", "lorenz63", kind) for kind in KINDS}
    return each({kind: less(nats, mixed) for kind, (mixed, nats) in columns.items()})


def tuned_anew(e: Evidence) -> Measured:
    """Runs of the mixed-unit arms that the fair arms do not have: the arms are compared."""
    different = 0
    for kind in KINDS:
        fair, mixed = (get_arm(f"map-{kind}-grid{end}") for end in ("", "-mixed"))
        shared = mixed.runs_of == fair.name and mixed.describe() == fair.describe()
        different += 0 if shared else len(mixed.settings)
    return Measured(different, note="both arms are described alike and share one set of records")


STUDY = Study(
    "lambda-grid-fairness",
    "weight grids: what tuning gains, in nats and in mixed units",
    [partial(sweep, CORPORA, ["map-ce", "map-probit", *GRIDS])],
    {
        "C057": lambda e: len({tuple(sorted(setting.items())) for setting in GRID}),
        "C058": lambda e: largest(over(tuning_gain, e, FLAT)),
        "C059": harm,
        "C060": lambda e: tuning_gain(e, "lorenz63", "ce"),
        "C061": lambda e: tuning_gain(e, "lorenz63", "probit"),
        "C062": unit_hardly_matters,
        "C063": partial(coincide, corpora=FLAT),
        "C064": partial(coincide, corpora=("lorenz63",)),
        "C065": lambda e: worth_of_nats(e, "lorenz63", "ce"),
        "C066": lambda e: worth_of_nats(e, "lorenz63", "probit"),
        "C067": lambda e: e.mean("ord_nll", "lorenz63", "map-ce-grid", by="valid_mixed"),
        "C068": lambda e: e.mean("ord_nll", "lorenz63", "map-probit-grid", by="valid_mixed"),
        "C069": price_on_the_state,
        "C070": tuned_anew,
    },
)
