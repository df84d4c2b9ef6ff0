"""What a fit costs: seconds per seed, the four backbones and all tuning counted.

Times are taken of one arm after the other with nothing beside it, compilation left out.
"""

from __future__ import annotations

from dataclasses import replace

from scrollmt.paper.arena.jobs import Job, make_job
from scrollmt.paper.data import published
from scrollmt.paper.data.published import CORPORA, GRIDS
from scrollmt.paper.protocol import Protocol
from scrollmt.paper.studies.base import Study
from scrollmt.paper.studies.evidence import (
    SCROLLS,
    Evidence,
    Measured,
    NotRecorded,
    extent,
    order,
)
from scrollmt.paper.studies.probes import cost as probe
from scrollmt.paper.tables.selection import arm_seconds
from scrollmt.paper.tables.statistics import Estimate, estimate

STANDARDISED = "lorenz63-std"


def seconds(e: Evidence, corpus: str, arm: str) -> tuple[Estimate, set[str]]:
    """Seconds a seed of one arm, and the devices that they were taken on.

    All seeds of a job are timed together, so that they have no spread of their own.
    """
    taken = arm_seconds(e.rows(corpus, probe.NAME, arm))
    return replace(estimate(taken["time_s"]), se=float("nan")), set(taken["device"])


def timed_alike(*devices: set[str]) -> str:
    """A note on where the times were taken, which has to be one kind of device."""
    used = set().union(*devices)
    if len(used) > 1:
        raise NotRecorded(f"times on one kind of device, but {', '.join(sorted(used))} mixed")
    return f"on {used.pop()}, where all runs of a job train together" if used else ""


def ratio(top: Estimate, bottom: Estimate) -> Estimate:
    return Estimate(top.mean / bottom.mean, float("nan"), bottom.count)


def grids_over(e: Evidence, corpora: tuple[str, ...], arms: tuple[str, ...]) -> Measured:
    """Seconds of each grid over seconds of each arm: the smallest and the largest ratio."""
    found, devices = {}, set()
    for corpus in corpora:
        for grid in GRIDS:
            for arm in arms:
                (top, one), (bottom, other) = seconds(e, corpus, grid), seconds(e, corpus, arm)
                found[f"{grid} over {arm}, {corpus}"] = ratio(top, bottom)
                devices |= one | other
    return extent(found, timed_alike(devices))


def diag_is_cheaper(e: Evidence) -> Measured:
    shown: dict[str, Estimate] = {}
    notes = []
    holds = True
    for corpus in CORPORA:
        diag, on = seconds(e, corpus, "scroll-diag")
        full, too = seconds(e, corpus, "scroll-full")
        notes.append(timed_alike(on, too))
        holds &= diag.mean < full.mean
        shown |= {f"{corpus} diag": diag, f"{corpus} full": full}
    return order(holds, shown, "; ".join(dict.fromkeys(filter(None, notes))))


def timed(protocol: Protocol) -> list[Job]:
    arms = {corpus: published.arms() for corpus in CORPORA} | {STANDARDISED: [*SCROLLS, *GRIDS]}
    # A grid is forty-nine runs per seed and backbone, and is timed at a single seed.
    return [
        make_job(
            corpus, probe.NAME, arm, protocol, protocol.seeds[: 1 if arm in GRIDS else probe.SEEDS]
        )
        for corpus, its in arms.items()
        for arm in its
    ]


STUDY = Study(
    "cost",
    "seconds a seed, grids against one fit",
    [timed],
    {
        "C048": lambda e: grids_over(e, ("ou", "lorenz63"), ("scroll-diag",)),
        "C049": diag_is_cheaper,
        "C084": lambda e: grids_over(e, (STANDARDISED,), SCROLLS),
    },
)
