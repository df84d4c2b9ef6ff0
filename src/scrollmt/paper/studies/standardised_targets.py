"""Lorenz with the state target over its training sd: which of the margins come from units."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pandas as pd

from scrollmt import scores
from scrollmt.laws import GaussianLaw
from scrollmt.paper.data.published import GRIDS
from scrollmt.paper.studies.base import Study, sweep
from scrollmt.paper.studies.evidence import (
    SCROLLS,
    TOTAL,
    Evidence,
    Measured,
    order,
    paired,
    settings,
)
from scrollmt.paper.studies.lambda_grid_fairness import KINDS, same_run, tuning_gain, worth_of_nats
from scrollmt.paper.studies.main_comparison import margin
from scrollmt.paper.tables.statistics import Estimate, estimate
from scrollmt.paper.tables.verdicts import ordered

RAW, STD = "lorenz63", "lorenz63-std"
CORNER = 30.0
# The paper's event weights are three decades apart; one less still is scattered.
SCATTERED = 100.0


def shift_of_a_fit(e: Evidence) -> float:
    """One set of laws, scored in both units."""
    rng = np.random.default_rng(0)
    s = math.sqrt(63.0)
    law = GaussianLaw(rng.normal(size=500), rng.uniform(0.2, 2.0, size=500))
    y = law.mean + law.sd * rng.normal(size=500)
    scaled = np.mean(scores.nll(law, y))
    raw = np.mean(scores.nll(law.affine(1.5, s), 1.5 + s * y))
    return float(raw - scaled - math.log(s))


def criteria_agree(e: Evidence) -> Measured:
    counts = {kind: same_run(e, STD, kind) for kind in KINDS}
    seeds = min(total for _, total in counts.values())
    return Measured({kind: same for kind, (same, _) in counts.items()}, total=seeds)


def chosen(e: Evidence, corpus: str) -> pd.DataFrame:
    """The event and the regime weight that the CE grid selects at each seed."""
    return settings(e.runs(corpus, "map-ce-grid"), "event_weight", "regime_weight")


def scattered_weights(e: Evidence) -> Measured:
    weights = chosen(e, RAW)["event_weight"]
    at_edge = int((weights == CORNER).sum())
    return order(
        weights.max() / weights.min() >= SCATTERED,
        {"smallest": weights.min(), "largest": weights.max()},
        f"{at_edge} of {len(weights)} seeds at the upper edge; two decades count as scattered",
    )


def in_the_corner(e: Evidence) -> Measured:
    weights = chosen(e, STD)
    return Measured(int((weights == CORNER).all(axis=1).sum()), total=len(weights))


def weight_ratio(e: Evidence) -> Measured:
    """How much more a squared error counts when the target is divided by its sd."""

    def ratio(metric: str, power: float) -> Estimate:
        std, raw = paired(*(e.column(metric, corpus, "scroll-diag") for corpus in (STD, RAW)))
        return estimate((std / raw) ** power)

    found, noise = ratio("mean_weight", 1.0), ratio("sigma_obs", -2.0)
    return Measured(
        found.mean, found.se, note=f"sigma_obs^2 changes by a factor of {noise.mean:.1f}"
    )


def margins_stay(e: Evidence) -> Measured:
    found = {
        f"{arm} {corpus}": margin(e, arm=arm, corpus=corpus).value
        for arm in ("scroll-diag", "scroll-full")
        for corpus in (STD, RAW)
    }
    diag_std, diag_raw, full_std, full_raw = found.values()
    slack = 0.03
    holds = ordered(diag_std, diag_raw, slack=slack) and ordered(full_std, full_raw, slack=slack)
    return order(holds, found)


def grid_coverage(e: Evidence) -> Measured:
    grid = e.better_grid(STD)
    found = e.mean("reg_calerr", STD, grid)
    return Measured(found.mean, found.se, note=f"the better grid is {grid}")


STUDY = Study(
    "standardised-targets",
    "Lorenz with standardised targets, both selection criteria",
    [
        partial(sweep, [STD], [*SCROLLS, "map-ce", "map-probit", *GRIDS]),
        partial(sweep, [RAW], [*SCROLLS, *GRIDS]),
    ],
    {
        "C071": shift_of_a_fit,
        "C072": criteria_agree,
        "C073": lambda e: worth_of_nats(e, STD, "ce"),
        "C074": lambda e: worth_of_nats(e, STD, "probit"),
        "C075": lambda e: tuning_gain(e, STD, "ce"),
        "C076": lambda e: tuning_gain(e, STD, "probit"),
        "C077": scattered_weights,
        "C078": in_the_corner,
        "C079": weight_ratio,
        "C081": lambda e: margin(e, arm="scroll-diag", corpus=STD),
        "C082": lambda e: margin(e, arm="scroll-full", corpus=STD),
        "C083": margins_stay,
        "C085": lambda e: e.mean("reg_calerr", STD, "scroll-diag"),
        "C086": grid_coverage,
        "C087": lambda e: e.less(TOTAL, STD, "scroll-none", "map-ce-grid"),
    },
)
