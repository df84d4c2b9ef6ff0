"""The scale map in practice: how far a fit of scaled targets ends from the mapped solution."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd

from scrollmt.paper.studies.base import Study, sweep
from scrollmt.paper.studies.evidence import (
    TOTAL,
    Evidence,
    Measured,
    less,
    order,
    paired,
)
from scrollmt.paper.studies.probes import equivariance as probe
from scrollmt.paper.tables.statistics import Estimate, estimate

# The paper names no backbone; this one comes nearest to its figures (docs/results/open-choices.md).
CORPUS, BACKBONE = "lorenz63", "relu"


def variant(e: Evidence, column: str, factor: float, name: str) -> pd.Series:
    setting = {"factor": factor, "variant": name}
    return e.column(column, CORPUS, probe.NAME, BACKBONE, setting=setting)


def gaps(e: Evidence, factor: float, name: str) -> pd.Series:
    """Total less the total at c = 1, seed by seed, log c taken off by the evidence."""
    scaled, base = paired(variant(e, TOTAL, factor, name), variant(e, TOTAL, 1.0, probe.COLD))
    return scaled - base


def gap(e: Evidence, *, factor: float, name: str) -> Estimate:
    return estimate(gaps(e, factor, name))


def closed(e: Evidence, *, name: str) -> Measured:
    """Percent of the cold gap at c = 8 that a variant closes."""
    cold, other = gaps(e, probe.UP, probe.COLD), gaps(e, probe.UP, name)
    difference = less(cold, other)
    size = float(cold.mean())
    return Measured(
        100.0 * difference.mean / size,
        100.0 * difference.se / abs(size),
        note=f"gap {other.mean():.3f} against {size:.3f}; error of the difference alone",
    )


def precision_off(e: Evidence) -> Measured:
    """Decades between the fitted and the mapped prior precision, the median over seeds."""
    scaled, base = paired(
        *(variant(e, "alpha_state", factor, probe.COLD) for factor in (probe.UP, 1.0))
    )
    decades = np.log10(probe.UP**2 * scaled / base)
    return order(
        decades.abs().median() >= 1.0,
        {"median": decades.median(), "least": decades.min(), "most": decades.max()},
        "log10 of fitted over mapped",
    )


STUDY = Study(
    "equivariance",
    "fits of scaled targets against the mapped solution",
    [partial(sweep, [CORPUS], [probe.NAME], backbones=[BACKBONE])],
    {
        "C091": partial(gap, factor=probe.UP, name=probe.COLD),
        "C092": partial(gap, factor=probe.DOWN, name=probe.COLD),
        "C093": partial(gap, factor=probe.UP, name=probe.WARM),
        "C094": partial(closed, name=probe.MAPPED),
        "C095": partial(closed, name=probe.LONG),
        "C096": partial(closed, name=probe.BOTH),
        "C097": partial(closed, name=probe.FLOOR),
        "C098": precision_off,
    },
)
