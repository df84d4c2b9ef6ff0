"""Five members mixed: what they add to one Diag run, and to point estimates."""

from __future__ import annotations

from functools import partial

import numpy as np

from scrollmt.laws import GaussianLaw, moment_matched
from scrollmt.paper.data import published
from scrollmt.paper.data.published import METRICS
from scrollmt.paper.studies.base import Study, sweep
from scrollmt.paper.studies.evidence import ENSEMBLES, Evidence, Measured, each, order
from scrollmt.paper.tables.statistics import Estimate

ARMS = published.arms()
DIAG, FIVE = "scroll-diag", "scroll-diag-ens5"
POINTS = tuple(arm for arm in ENSEMBLES if arm != FIVE)
NOISY = ("lorenz63", "pm25")


def leads_three(e: Evidence) -> Measured:
    shown, others = {}, []
    for metric in ("reg_nll", "ord_nll", "evt_acc_pct"):
        leader = e.leader(metric, "pm25", ARMS)
        others += [f"{leader} leads {metric}"] if leader != FIVE else []
        shown[metric] = e.mean(metric, "pm25", FIVE)
    return order(not others, shown, "; ".join(others))


def nowhere_beaten(e: Evidence) -> Measured:
    shown, behind = {}, []
    for metric in METRICS:
        leader = e.leader(metric, "pm25", ARMS)
        shown[metric] = 1.0 if leader == FIVE else e.p_worse(metric, "pm25", FIVE, leader)
        behind += [] if shown[metric] >= 0.05 else [f"{leader} is ahead in {metric}"]
    return order(not behind, shown, "; ".join(["p against the leader, 1 where it leads", *behind]))


def below_point_ensembles(e: Evidence, arm: str, metrics: tuple[str, ...]) -> Measured:
    """Whether an arm is below both ensembles of point estimates."""
    shown: dict[str, Estimate] = {}
    holds = True
    for corpus in NOISY:
        for metric in metrics:
            rival = e.leader(metric, corpus, POINTS)
            found = e.means(metric, corpus, (arm, rival))
            holds &= found[arm].mean < found[rival].mean
            shown |= {f"{corpus} {name} {metric}": v for name, v in found.items()}
    return order(holds, shown)


def what_five_change(e: Evidence) -> Measured:
    return each({m: e.less(m, "lorenz63", FIVE, DIAG) for m in ("reg_nll", "reg_calerr")})


def moments_of_a_mixture(e: Evidence) -> float:
    """The reported mean and variance less integrals over the mixture's density."""
    rng = np.random.default_rng(0)
    members = [GaussianLaw(rng.normal(size=4), rng.uniform(0.3, 1.5, size=4)) for _ in range(5)]
    mixed = moment_matched(members)
    y = np.linspace(-20.0, 20.0, 40_001)[:, None]
    density = np.mean(
        [np.exp(-0.5 * ((y - m.mean) / m.sd) ** 2) / (m.sd * np.sqrt(2 * np.pi)) for m in members],
        axis=0,
    )
    # The trapezoid rule is exact to rounding on a density this smooth.
    mean = np.trapezoid(y * density, y, axis=0)
    var = np.trapezoid((y - mean) ** 2 * density, y, axis=0)
    return float(max(np.abs(mixed.mean - mean).max(), np.abs(mixed.sd**2 - var).max()))


STUDY = Study(
    "ensembles",
    "five members mixed, against one run and against each other",
    [partial(sweep, ["pm25"], ARMS), partial(sweep, ["lorenz63"], [DIAG, *ENSEMBLES])],
    {
        "C022": leads_three,
        "C024": nowhere_beaten,
        "C171": lambda e: below_point_ensembles(e, DIAG, ("reg_nll",)),
        "C172": lambda e: below_point_ensembles(e, FIVE, ("reg_nll", "ord_nll")),
        "C173": what_five_change,
        "C174": moments_of_a_mixture,
    },
)
