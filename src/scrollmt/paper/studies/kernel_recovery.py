"""OU over leads: does the predictive law become the true transition kernel?"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from scrollmt.paper.data import published
from scrollmt.paper.protocol import LEADS
from scrollmt.paper.studies.base import Study, sweep
from scrollmt.paper.studies.evidence import (
    Evidence,
    Measured,
    extent,
    largest,
    order,
    size,
)
from scrollmt.paper.tables.statistics import Estimate

ARMS = published.arms()
ROUTES = ("scroll-none", "closed", "binding-map", "scroll-diag", "scroll-full")
# At the headline lead the runs are those of the headline corpus.
CORPORA = {lead: "ou" if lead == 0.5 else f"ou@{lead:g}" for lead in LEADS["ou"]}


def true_sd(lead: float) -> float:
    return math.sqrt(-math.expm1(-2.0 * lead))


def excess(e: Evidence, *, leads: tuple[float, ...]) -> Measured:
    """State NLL above the entropy floor 0.5 log(2 pi e V*), in percent of it."""
    found = {}
    for lead in leads:
        floor = 0.5 * math.log(2.0 * math.pi * math.e * true_sd(lead) ** 2)
        for arm, nll in e.means("reg_nll", CORPORA[lead], ARMS).items():
            percent = 100.0 * (nll.mean / floor - 1.0)
            found[f"{arm}, lead {lead:g}"] = Estimate(percent, 100.0 * nll.se / floor, nll.count)
    return largest(found)


def off_the_true_sd(e: Evidence, *, column: str) -> Measured:
    """The largest relative miss of a mean sd over leads."""
    found = {}
    for lead, corpus in CORPORA.items():
        sd = e.mean(column, corpus, "scroll-diag")
        miss = Estimate(sd.mean / true_sd(lead) - 1.0, sd.se / true_sd(lead), sd.count)
        found[f"lead {lead:g}"] = size(miss)
    return largest(found)


def decades(e: Evidence, corpus: str) -> float:
    """log10 of the median fitted prior precision of the state head."""
    return float(np.log10(e.column("alpha_state", corpus, "scroll-diag").median()))


def belief_share(e: Evidence) -> Measured:
    share = e.mean("belief_share", "ou", "scroll-diag")
    return order(share.mean < 0.5, {"share": share})


STUDY = Study(
    "kernel-recovery",
    "OU at five leads against the true transition kernel",
    [
        partial(sweep, CORPORA.values(), ARMS),
        partial(sweep, ["ou"], ROUTES),
        partial(sweep, ["lorenz63"], ["scroll-diag"]),
    ],
    {
        "C099": partial(excess, leads=LEADS["ou"][1:]),
        "C100": partial(excess, leads=LEADS["ou"][:1]),
        "C101": partial(off_the_true_sd, column="mean_sd"),
        "C102": partial(off_the_true_sd, column="sigma_obs"),
        "C103": partial(decades, corpus="ou"),
        "C104": partial(decades, corpus="lorenz63"),
        "C105": lambda e: decades(e, "ou") - decades(e, "lorenz63"),
        "C106": belief_share,
        "C107": lambda e: extent(e.means("reg_nll", "ou", ROUTES)),
        "C108": lambda e: extent(e.means("mean_sd", "ou", ROUTES)),
        "C109": lambda e: true_sd(0.5),
    },
)
