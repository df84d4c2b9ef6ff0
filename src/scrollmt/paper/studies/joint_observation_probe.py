"""Two Gaussian tasks with correlated noise: a full noise covariance against a diagonal one."""

from __future__ import annotations

import pandas as pd

from scrollmt.paper.jobs import Job
from scrollmt.paper.probes import coupling as probe
from scrollmt.paper.protocol import Protocol
from scrollmt.paper.statistics import Estimate, estimate
from scrollmt.paper.studies.base import study, sweep
from scrollmt.paper.studies.evidence import (
    Evidence,
    Measured,
    NotRecorded,
    answered,
    each,
    less,
    settings,
    size,
)

NAME = "joint-observation-probe"
NONE, STRONG = probe.CORRELATIONS


def at(e: Evidence, rho: float) -> pd.DataFrame:
    """One row a seed at a true noise correlation."""
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


def jobs(protocol: Protocol) -> list[Job]:
    return sweep([probe.CORPUS], [probe.NAME], protocol, [probe.BACKBONE])


study(NAME, "two Gaussian tasks: full against diagonal noise", jobs)(
    answered(
        NAME,
        {
            "C240": lambda e: correlation(e, STRONG),
            "C241": lambda e: estimate(at(e, STRONG)["gain"]),
            "C242": realised,
            "C243": marginals,
            "C244": lambda e: correlation(e, NONE),
            "C245": cost_of_nothing,
        },
    )
)
