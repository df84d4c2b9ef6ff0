"""The scale map in practice: how far a fit of scaled targets ends from the mapped solution.

The paragraph continues the sweep over target scales, which is on tanh and tanh+ln, and names no
other backbone: a claim holds if it does on both. The other two are computed to be shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from scrollmt.backbone import PAPER_BACKBONES
from scrollmt.paper.data import published
from scrollmt.paper.studies.base import Study, sweep
from scrollmt.paper.studies.evidence import (
    TOTAL,
    Answer,
    Evidence,
    Measured,
    NotRecorded,
    less,
    order,
    paired,
)
from scrollmt.paper.studies.probes import equivariance as probe
from scrollmt.paper.tables.statistics import Estimate, estimate
from scrollmt.paper.tables.verdicts import judge

CORPUS = "lorenz63"
JUDGED = ("tanh", "tanh+ln")
Measure = Callable[[Evidence, str], Estimate]


def variant(e: Evidence, backbone: str, column: str, factor: float, name: str) -> pd.Series:
    setting = {"factor": factor, "variant": name}
    return e.column(column, CORPUS, probe.NAME, backbone, setting=setting)


def gaps(e: Evidence, backbone: str, factor: float, name: str) -> pd.Series:
    """Total less the total at c = 1, seed by seed, log c taken off by the evidence."""
    scaled, base = paired(
        variant(e, backbone, TOTAL, factor, name), variant(e, backbone, TOTAL, 1.0, probe.COLD)
    )
    return scaled - base


def gap(e: Evidence, backbone: str, *, factor: float, name: str) -> Estimate:
    return estimate(gaps(e, backbone, factor, name))


def closed(e: Evidence, backbone: str, *, name: str) -> Estimate:
    """Percent of the cold gap at c = 8 that a variant closes; the error is of the difference."""
    cold, other = (gaps(e, backbone, probe.UP, each) for each in (probe.COLD, name))
    difference = less(cold, other)
    size = float(cold.mean())
    return Estimate(
        100.0 * difference.mean / size, 100.0 * difference.se / abs(size), difference.count
    )


def decades_off(e: Evidence, backbone: str) -> Estimate:
    """Decades between the fitted and the mapped prior precision, the median over seeds."""
    scaled, base = paired(
        *(variant(e, backbone, "alpha_state", c, probe.COLD) for c in (probe.UP, 1.0))
    )
    decades = np.log10(probe.UP**2 * scaled / base)
    return Estimate(float(decades.median()), float("nan"), len(decades))


def compared(found: dict[str, Estimate]) -> Measured:
    return Measured(
        {name: v.mean for name, v in found.items()}, tuple(v.se for v in found.values())
    )


def decades_apart(found: dict[str, Estimate]) -> Measured:
    note = "log10 of fitted over mapped, the median over seeds"
    return order(all(abs(v.mean) >= 1.0 for v in found.values()), found, note)


def on_both(
    id: str, measure: Measure, told: Callable[[dict[str, Estimate]], Measured] = compared
) -> Answer:
    """An answer on both backbones.

    One that is recorded can show that a claim differs, and not that it holds.
    """

    claim = published.claim(id)

    def answer(e: Evidence) -> Measured:
        found: dict[str, Estimate] = {}
        lacking = None
        for backbone in JUDGED:
            try:
                found[backbone] = measure(e, backbone)
            except NotRecorded as error:
                lacking = error
        if not found:
            assert lacking is not None
            raise lacking
        measured = told(found)
        if lacking is None:
            return measured
        if judge(claim, measured.value, numbers=measured.numbers).verdict == "holds":
            shown = ", ".join(f"{v.mean:.3g} on {name}" for name, v in found.items())
            raise NotRecorded(f"{lacking}; {shown} is as printed")
        note = f"{measured.note}; " if measured.note else ""
        return replace(measured, note=f"{note}not recorded: {lacking}")

    return answer


STUDY = Study(
    "equivariance",
    "fits of scaled targets against the mapped solution",
    [partial(sweep, [CORPUS], [probe.NAME], backbones=PAPER_BACKBONES)],
    {
        id: on_both(id, measure)
        for id, measure in {
            "C091": partial(gap, factor=probe.UP, name=probe.COLD),
            "C092": partial(gap, factor=probe.DOWN, name=probe.COLD),
            "C093": partial(gap, factor=probe.UP, name=probe.WARM),
            "C094": partial(closed, name=probe.MAPPED),
            "C095": partial(closed, name=probe.LONG),
            "C096": partial(closed, name=probe.BOTH),
            "C097": partial(closed, name=probe.FLOOR),
        }.items()
    }
    | {"C098": on_both("C098", decades_off, decades_apart)},
)
