"""Two Gaussian tasks with correlated noise: a full noise covariance against a diagonal one."""

from __future__ import annotations

from functools import partial

import pandas as pd

from scrollmt.paper.studies.base import Study, sweep
from scrollmt.paper.studies.evidence import (
    Evidence,
    Measured,
    NotRecorded,
    each,
    less,
    settings,
    size,
)
from scrollmt.paper.studies.probes import coupling as probe
from scrollmt.paper.tables.statistics import Estimate, estimate

NONE, STRONG = probe.CORRELATIONS


def at(e: Evidence, rho: float) -> pd.DataFrame:
    """One row per seed at a true noise correlation."""
    rows = e.rows(probe.CORPUS, probe.NAME)
    found = rows[settings(rows, "rho")["rho"] == rho]
    if found.empty:
        raise NotRecorded(f"{probe.NAME} at rho = {rho:g}")
    return found.set_index("seed")


def correlation(e: Evidence, rho: float) -> Estimate:
    return estimate(at(e, rho)["correlation"])


def realised(e: Evidence) -> Measured:
    runs = at(e, STRONG)
    share = estimate(runs["gain"] / runs["available"])
    held = estimate(runs["belief_share"])
    return Measured(
        share.mean, share.se, note=f"beliefs hold {held.mean:.0%} of the predictive variance"
    )


def marginals(e: Evidence) -> Measured:
    runs = at(e, STRONG)
    gaps = {n: less(runs[f"nll_{n}_full"], runs[f"nll_{n}_diagonal"]) for n in ("a", "b")}
    return each({name: size(gap) for name, gap in gaps.items()})


def cost_of_nothing(e: Evidence) -> Estimate:
    runs = at(e, NONE)
    return less(runs["joint_nll_full"], runs["joint_nll_diagonal"])


STUDY = Study(
    "joint-observation-probe",
    "two Gaussian tasks: full against diagonal noise",
    [partial(sweep, [probe.CORPUS], [probe.NAME], backbones=[probe.BACKBONE])],
    {
        "C240": lambda e: correlation(e, STRONG),
        "C241": lambda e: estimate(at(e, STRONG)["gain"]),
        "C242": realised,
        "C243": marginals,
        "C244": lambda e: correlation(e, NONE),
        "C245": cost_of_nothing,
    },
)
