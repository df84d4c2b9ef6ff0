"""Lorenz over leads: the average predictive spread beside the simulator's."""

from __future__ import annotations

from functools import partial

import numpy as np

from scrollmt.paper.protocol import LEADS
from scrollmt.paper.studies.base import Study, sweep
from scrollmt.paper.studies.evidence import Evidence, Measured, order
from scrollmt.paper.studies.probes import corpus as probe

CORPORA = {lead: "lorenz63" if lead == 0.5 else f"lorenz63@{lead:g}" for lead in LEADS["lorenz63"]}
# The paper prints no number: "near" is taken as this share.
NEAR = 0.25


def true_sd(e: Evidence, corpus: str) -> float:
    """sqrt(mean V*) over attractor states."""
    return float(np.sqrt(e.fact("spread_mean_var", corpus, probe.NAME)))


def mean_sd(e: Evidence, corpus: str, arm: str, column: str = "mean_var") -> float:
    """sqrt(mean V_n) over test windows, averaged over seeds."""
    values = e.column(column, corpus, arm)
    return float(np.sqrt(values).mean() if column == "mean_var" else values.mean())


def ratios(e: Evidence, arm: str = "scroll-diag", column: str = "mean_var") -> dict[float, float]:
    return {
        lead: mean_sd(e, corpus, arm, column) / true_sd(e, corpus)
        for lead, corpus in CORPORA.items()
    }


def grows_as_the_truth(e: Evidence) -> Measured:
    truth = [true_sd(e, corpus) for corpus in CORPORA.values()]
    ours = [mean_sd(e, corpus, "scroll-diag") for corpus in CORPORA.values()]
    found = ratios(e)
    longest = max(found)
    holds = (np.diff(truth) > 0).all() and (np.diff(ours) > 0).all()
    return order(
        holds and abs(found[longest] - 1.0) <= NEAR,
        {f"ratio at {lead:g}": r for lead, r in found.items()},
        f"near means within {NEAR:.0%} at the longest lead",
    )


def excess_when_short(e: Evidence) -> Measured:
    found = ratios(e)
    short, long = min(found), max(found)
    return order(
        found[short] > found[long], {f"ratio at {lead:g}": found[lead] for lead in (short, long)}
    )


def no_belief_follows(e: Evidence) -> Measured:
    diag, none = ratios(e), ratios(e, "scroll-none", "sigma_obs")
    apart = max(abs(none[lead] / diag[lead] - 1.0) for lead in diag)
    shown = {f"ratio at {lead:g}": r for lead, r in none.items()}
    note = f"at most {apart:.1%} from scroll-diag; near means within {NEAR:.0%}"
    return order(apart <= NEAR, shown, note)


STUDY = Study(
    "averaged-spread",
    "Lorenz at four leads: average spread against the simulator's",
    [
        partial(sweep, CORPORA.values(), ["scroll-diag", "scroll-none"]),
        partial(sweep, CORPORA.values(), [probe.NAME], backbones=[probe.BACKBONE]),
    ],
    {"C110": grows_as_the_truth, "C111": excess_when_short, "C112": no_belief_follows},
)
