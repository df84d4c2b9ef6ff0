"""Full against Diag: where a richer belief pays and where it costs."""

from __future__ import annotations

from functools import partial

from scrollmt.paper.data import published
from scrollmt.paper.studies.base import Study, sweep
from scrollmt.paper.studies.evidence import ENSEMBLES, HEADS, Evidence, Measured, order
from scrollmt.paper.tables.statistics import Estimate

FULL, DIAG = "scroll-full", "scroll-diag"
REFERENCE = "map-ce-grid"
SINGLE = tuple(a for a in published.arms() if a not in ENSEMBLES)
SLACK = 0.005


def full_less_diag(e: Evidence, corpus: str, metric: str) -> Estimate:
    return e.less(metric, corpus, FULL, DIAG)


def worse_on_all(e: Evidence) -> Measured:
    found = {head: full_less_diag(e, "pm25", metric) for head, metric in HEADS.items()}
    return order(all(v.mean >= -SLACK for v in found.values()), found)


def only_full_matches(e: Evidence) -> Measured:
    """Single arms that no head finds worse than the fair CE grid."""

    def matches(arm: str) -> bool:
        return all(e.not_worse(metric, "lorenz63", arm, REFERENCE) for metric in HEADS.values())

    matching = [arm for arm in SINGLE if arm != REFERENCE and matches(arm)]
    p = {h: e.p_worse(m, "lorenz63", FULL, REFERENCE) for h, m in HEADS.items()}
    note = f"matching: {', '.join(matching) or 'none'}; p of scroll-full by head"
    return order(matching == [FULL], p, note)


STUDY = Study(
    "family-choice",
    "full against diagonal beliefs",
    [partial(sweep, ["lorenz63"], SINGLE), partial(sweep, ["pm25"], [FULL, DIAG])],
    {
        "C157": lambda e: full_less_diag(e, "lorenz63", "reg_nll"),
        "C158": lambda e: full_less_diag(e, "lorenz63", "ord_nll"),
        "C159": worse_on_all,
        "C160": lambda e: full_less_diag(e, "pm25", "evt_nll"),
        "C162": only_full_matches,
    },
)
