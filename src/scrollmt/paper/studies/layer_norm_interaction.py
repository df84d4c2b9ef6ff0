"""Lorenz on tanh+ln alone: what layer norm mends without a belief, and what it does not."""

from __future__ import annotations

from functools import partial

from scrollmt.paper.studies.base import Study, sweep
from scrollmt.paper.studies.evidence import Evidence, Measured, paired, smallest
from scrollmt.paper.tables.statistics import Estimate, estimate

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


STUDY = Study(
    "layer-norm-interaction",
    "Lorenz on the layer-norm backbone alone",
    [
        partial(
            sweep,
            [CORPUS],
            ["scroll-diag", *SQUARED, *KENDALL, *SPREAD_HEADS],
            backbones=[BACKBONE],
        )
    ],
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
