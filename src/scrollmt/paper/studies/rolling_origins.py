"""PM2.5 at five rolling origins; uncertainty is taken between them, not between seeds."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd

from scrollmt.paper.protocol import ORIGINS
from scrollmt.paper.studies.base import Study, sweep
from scrollmt.paper.studies.evidence import (
    HEADS,
    Evidence,
    Measured,
    extent,
    order,
    paired,
)
from scrollmt.paper.studies.interference import ALONE
from scrollmt.paper.tables.statistics import Estimate, Interval, between_groups
from scrollmt.splits import rolling_origins

CORPORA = tuple(f"pm25/{origin}" for origin in range(ORIGINS))
WINDOWS = 1680
DIAG = "scroll-diag"
WEIGHTED = (
    "map-ce",
    "map-ce-grid",
    "kendall-ce",
    "map-probit",
    "map-probit-grid",
    "kendall-probit",
)


def differences(e: Evidence, metric: str, arm: str, other: str) -> pd.Series:
    """One arm less another at every origin and seed, indexed by both."""
    found = {}
    for corpus in CORPORA:
        mine, its = paired(e.column(metric, corpus, arm), e.column(metric, corpus, other))
        found[corpus] = mine - its
    return pd.concat(found)


def between(e: Evidence, metric: str, arm: str, other: str) -> Interval:
    gaps = differences(e, metric, arm, other)
    return between_groups(gaps, gaps.index.get_level_values(0))


def as_estimate(found: Interval) -> Estimate:
    return Estimate(found.mean, found.se, found.count)


def leads(e: Evidence, metric: str, arms: tuple[str, ...]) -> dict[str, Estimate]:
    return {arm: as_estimate(between(e, metric, DIAG, arm)) for arm in arms}


def in_standard_errors(e: Evidence) -> Measured:
    found = leads(e, "reg_nll", WEIGHTED)
    wide = {arm: abs(v.mean) / v.se for arm, v in found.items()}
    arm = min(wide, key=wide.__getitem__)
    return Measured(wide[arm], note=f"smallest at {arm}")


def event_ties(e: Evidence) -> Measured:
    found = {arm: between(e, "evt_nll", DIAG, arm) for arm in WEIGHTED}
    apart = [arm for arm, v in found.items() if not v.covers(0.0)]
    note = f"0 outside for {', '.join(apart)}" if apart else ""
    return order(not apart, {arm: as_estimate(v) for arm, v in found.items()}, note)


def sharing(e: Evidence, *, head: str) -> Measured:
    """Joint less alone; the claim also has 0 inside the interval."""
    found = between(e, HEADS[head], DIAG, ALONE[head])
    note = f"95 percent interval {found.low:.3f} to {found.high:.3f}"
    return Measured(found.mean, found.se, note=note, provided=found.covers(0.0))


def agreeing_origins(e: Evidence) -> Measured:
    counts = {}
    for head, metric in HEADS.items():
        means = differences(e, metric, DIAG, ALONE[head]).groupby(level=0).mean()
        counts[head] = int((means < 0.0).sum())
    return Measured(counts, total=ORIGINS)


def training_shares(e: Evidence) -> Measured:
    splits = rolling_origins(WINDOWS, ORIGINS)
    shares = [len(split.train) / WINDOWS for split in splits]
    blocks = np.array([[len(split.valid), len(split.test)] for split in splits])
    return Measured(
        (shares[0], shares[-1]),
        note="validation and test blocks of a tenth each follow",
        provided=bool((blocks == WINDOWS // 10).all()),
    )


def full_behind(e: Evidence) -> Estimate:
    return as_estimate(between(e, "evt_nll", "scroll-full", DIAG))


STUDY = Study(
    "rolling-origins",
    "PM2.5 at five rolling origins",
    [partial(sweep, CORPORA, [DIAG, "scroll-full", *WEIGHTED, *ALONE.values()])],
    {
        "C161": full_behind,
        "C187": lambda e: extent(leads(e, "reg_nll", WEIGHTED)),
        "C188": in_standard_errors,
        "C189": lambda e: extent(
            leads(e, "ord_nll", tuple(a for a in WEIGHTED if a != "kendall-ce"))
        ),
        "C190": lambda e: as_estimate(between(e, "ord_nll", DIAG, "kendall-ce")),
        "C191": event_ties,
        "C192": partial(sharing, head="state"),
        "C193": partial(sharing, head="event"),
        "C194": partial(sharing, head="regime"),
        "C195": agreeing_origins,
        "C196": training_shares,
    },
)
