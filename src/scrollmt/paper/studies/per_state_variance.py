"""Lorenz: do predicted variances follow those of re-simulation, state by state?"""

from __future__ import annotations

from functools import partial

import pandas as pd

from scrollmt.paper.studies.base import Study, sweep
from scrollmt.paper.studies.evidence import Evidence, Measured, order, size
from scrollmt.paper.tables.statistics import Estimate, estimate
from scrollmt.paper.tables.verdicts import ordered

CORPUS, BACKBONE = "lorenz63", "tanh+ln"
ROUTES = {"full": "scroll-full", "diag": "scroll-diag", "closed": "closed"}


def tracking(e: Evidence, *, column: str, arm: str, backbone: str = BACKBONE) -> Estimate:
    return e.mean(column, CORPUS, arm, backbone)


def order_of_routes(e: Evidence) -> Measured:
    shown: dict[str, Estimate] = {}
    holds = True
    for column in ("pearson", "spearman"):
        found = [tracking(e, column=column, arm=arm) for arm in ROUTES.values()]
        holds &= ordered(*(-v.mean for v in found))
        shown |= {f"{route} {column}": v for route, v in zip(ROUTES, found, strict=True)}
    return order(holds, shown)


def ranks_narrow(e: Evidence) -> Measured:
    found = {
        column: e.less(column, CORPUS, "scroll-diag", "closed", BACKBONE)
        for column in ("spearman", "pearson")
    }
    return order(ordered(*(v.mean for v in found.values())), found, "diag less closed")


def calibration(e: Evidence, arm: str) -> Estimate:
    """Mean V_n over mean squared residual, less one; seed by seed."""
    return estimate(ratio(e, arm, "mean_var", "residual_var") - 1.0)


def ratio(e: Evidence, arm: str, top: str, bottom: str) -> pd.Series:
    above, below = (e.column(name, CORPUS, arm, BACKBONE) for name in (top, bottom))
    return above / below


def above_the_simulator(e: Evidence) -> Measured:
    found = {
        arm: estimate(ratio(e, arm, "mean_var", "mean_true_var"))
        for arm in ("scroll-diag", "scroll-full")
    }
    return order(all(v.mean > 1.0 for v in found.values()), found)


def noise_share(e: Evidence) -> Measured:
    noise, total = (
        e.column(name, CORPUS, "scroll-diag", BACKBONE) for name in ("sigma_obs", "mean_var")
    )
    share = estimate(noise**2 / total)
    return order(share.mean < 0.5, {"share": share})


def diag_falls_short(e: Evidence) -> Estimate:
    found = calibration(e, "scroll-diag")
    return Estimate(-found.mean, found.se, found.count)


_pearson, _spearman = (partial(tracking, column=c) for c in ("pearson", "spearman"))
STUDY = Study(
    "per-state-variance",
    "Lorenz: predicted variances against re-simulation, by state",
    [partial(sweep, [CORPUS], ROUTES.values())],
    {
        "C113": partial(_pearson, arm="scroll-diag"),
        "C114": partial(_pearson, arm="scroll-full", backbone="tanh"),
        "C115": partial(_pearson, arm="scroll-full"),
        "C116": partial(_pearson, arm="closed"),
        "C117": partial(_spearman, arm="scroll-diag"),
        "C118": partial(_spearman, arm="scroll-full"),
        "C119": partial(_spearman, arm="closed"),
        "C120": order_of_routes,
        "C121": ranks_narrow,
        "C123": lambda e: e.var_range(CORPUS, "closed", BACKBONE),
        "C124": lambda e: size(calibration(e, "scroll-full")),
        "C125": diag_falls_short,
        "C126": above_the_simulator,
        "C127": noise_share,
    },
)
