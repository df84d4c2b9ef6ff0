"""OU event: what a cross-entropy head loses without an offset, and gains back with one."""

from __future__ import annotations

from functools import partial

from scrollmt.paper.arms import event_bias
from scrollmt.paper.data import published
from scrollmt.paper.studies.base import Study, sweep
from scrollmt.paper.studies.evidence import (
    Evidence,
    Measured,
    each,
    extent,
    order,
)
from scrollmt.paper.studies.probes import corpus
from scrollmt.paper.tables.statistics import estimate

THRESHOLD = tuple(a for a in published.arms() if "probit" in a or a.startswith("scroll-"))
CROSS_ENTROPY = ("map-ce", "map-ce-grid", "kendall-ce", "mle-sigma-ce", "map-ce-ens5")


def accuracy(e: Evidence) -> Measured:
    """The mean of the five arms, seed by seed, and how far they are apart."""
    columns = [e.column("evt_acc_pct", "ou", arm) for arm in CROSS_ENTROPY]
    found = estimate(sum(columns[1:], start=columns[0]) / len(columns))
    ends = [c.mean() for c in columns]
    return Measured(
        found.mean, found.se, note=f"arms from {min(ends):.1f} to {max(ends):.1f} percent"
    )


def fact(e: Evidence, column: str) -> float:
    """A fact of the corpus, which no seed changes."""
    return e.fact(column, "ou", corpus.NAME)


def below_majority(e: Evidence) -> Measured:
    found = e.means("evt_acc_pct", "ou", CROSS_ENTROPY[:3])
    best = max(found, key=lambda arm: found[arm].mean)
    rate = fact(e, "majority_pct")
    return order(found[best].mean < rate, {best: found[best], "majority": rate})


STUDY = Study(
    "ce-bias",
    "OU event: cross-entropy without and with an offset",
    [
        partial(sweep, ["ou"], [*THRESHOLD, *CROSS_ENTROPY, event_bias.NAME]),
        partial(sweep, ["ou"], [corpus.NAME], backbones=[corpus.BACKBONE]),
    ],
    {
        "C050": accuracy,
        "C051": lambda e: fact(e, "majority_pct"),
        "C052": lambda e: fact(e, "sign_rule_pct"),
        "C053": lambda e: e.mean("evt_acc_pct", "ou", event_bias.NAME),
        "C054": lambda e: extent(e.means("evt_nll", "ou", THRESHOLD)),
        "C055": lambda e: each(e.means("evt_nll", "ou", CROSS_ENTROPY[:4])),
        "C056": below_majority,
    },
)
