"""Lorenz on tanh+ln alone: what layer norm mends without a belief, and what it does not."""

from __future__ import annotations

from functools import partial

from scrollmt.paper.jobs import Job
from scrollmt.paper.protocol import Protocol
from scrollmt.paper.statistics import Estimate, estimate
from scrollmt.paper.studies.base import study, sweep
from scrollmt.paper.studies.evidence import Evidence, Measured, answered, paired, smallest

NAME = "layer-norm-interaction"
CORPUS, BACKBONE = "lorenz63", "tanh+ln"
SQUARED = ("map-ce", "map-ce-grid", "map-probit", "map-probit-grid")
KENDALL = ("kendall-ce", "kendall-probit")
SPREAD_HEADS = ("mle-sigma-ce", "mle-sigma-probit")


def of_diag(e: Evidence, *, column: str) -> Estimate:
    return e.mean(column, CORPUS, "scroll-diag", BACKBONE)


def best_squared(e: Evidence, *, column: str) -> Measured:
    return smallest(e.means(column, CORPUS, SQUARED, BACKBONE))


def pooled(e: Evidence, *, column: str, arms: tuple[str, str]) -> Measured:
    """The mean over both head types, seed by seed."""
    ce, probit = paired(*(e.column(column, CORPUS, arm, BACKBONE) for arm in arms))
    found = estimate(0.5 * (ce + probit))
    return Measured(found.mean, found.se, note=f"CE {ce.mean():.3f}, probit {probit.mean():.3f}")


def jobs(protocol: Protocol) -> list[Job]:
    arms = ["scroll-diag", *SQUARED, *KENDALL, *SPREAD_HEADS]
    return sweep([CORPUS], arms, protocol, [BACKBONE])


study(NAME, "Lorenz on the layer-norm backbone alone", jobs)(
    answered(
        NAME,
        {
            "C149": partial(of_diag, column="reg_nll"),
            "C150": partial(of_diag, column="reg_calerr"),
            "C151": partial(best_squared, column="reg_nll"),
            "C152": partial(best_squared, column="reg_calerr"),
            "C153": partial(pooled, column="reg_calerr", arms=KENDALL),
            "C154": partial(pooled, column="reg_nll", arms=KENDALL),
            "C155": partial(pooled, column="reg_calerr", arms=SPREAD_HEADS),
            "C156": partial(pooled, column="reg_nll", arms=SPREAD_HEADS),
        },
    )
)
