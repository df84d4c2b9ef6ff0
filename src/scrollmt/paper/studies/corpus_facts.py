"""What the corpora are: sizes, shares, variances, and the simulator's own spread."""

from __future__ import annotations

from functools import partial

from scrollmt.paper.data.published import CORPORA
from scrollmt.paper.protocol import LEADS
from scrollmt.paper.studies.base import Study, sweep
from scrollmt.paper.studies.evidence import Evidence, Measured, recorded
from scrollmt.paper.studies.kernel_recovery import true_sd
from scrollmt.paper.studies.probes import corpus as probe
from scrollmt.paper.tables.statistics import Estimate, estimate, geometric

SIMULATED = ("ou", "lorenz63")
LONGEST = f"lorenz63@{LEADS['lorenz63'][-1]:g}"


def one(e: Evidence, *, column: str, corpus: str) -> float:
    """A fact that no seed changes."""
    return e.fact(column, corpus, probe.NAME)


def over_splits(e: Evidence, *, column: str, corpus: str) -> Estimate:
    """A fact of each seed's split, averaged."""
    return estimate(recorded(e.rows(corpus, probe.NAME), column))


def both(e: Evidence, *, columns: tuple[str, ...], corpora: tuple[str, ...]) -> Measured:
    """Some facts of some corpora, each of which the claim is about."""
    return Measured(
        {f"{c} {name}": e.fact(name, c, probe.NAME) for c in corpora for name in columns}
    )


def true_vars(e: Evidence) -> Measured:
    return Measured({f"lead {lead:g}": true_sd(lead) ** 2 for lead in LEADS["ou"]})


def chains(e: Evidence) -> Measured:
    columns = ("chains", "windows_per_chain")
    return Measured({name: e.fact(name, "lorenz63", probe.NAME) for name in columns})


_SHARES = tuple(f"regime_share_{r}" for r in range(4))
STUDY = Study(
    "corpus-facts",
    "sizes, shares and spreads of the corpora",
    [partial(sweep, [*CORPORA, LONGEST], [probe.NAME], backbones=[probe.BACKBONE])],
    {
        "C080": partial(over_splits, column="train_target_var", corpus="lorenz63"),
        "C122": lambda e: geometric(recorded(e.rows("lorenz63", probe.NAME), "true_var_range")),
        "C220": partial(both, columns=("input_var", "target_var"), corpora=("ou",)),
        "C221": true_vars,
        "C222": partial(both, columns=("windows",), corpora=SIMULATED),
        "C223": chains,
        "C224": partial(one, column="spread_sd_p10", corpus=LONGEST),
        "C225": partial(one, column="spread_sd_p90", corpus=LONGEST),
        "C226": partial(both, columns=_SHARES, corpora=SIMULATED),
        "C227": partial(one, column="windows", corpus="pm25"),
        "C228": partial(one, column="inputs", corpus="pm25"),
        "C229": partial(one, column="event_is_sign_of_state", corpus="lorenz63"),
        "C230": partial(one, column="regime_is_band_of_state", corpus="pm25"),
    },
)
