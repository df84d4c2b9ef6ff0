"""Do composed fits fail, how small does their noise get, and what layer norm holds fixed."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd

from scrollmt.paper.arms import get_arm, questions
from scrollmt.paper.data.published import CORPORA
from scrollmt.paper.studies.base import Study, sweep
from scrollmt.paper.studies.evidence import (
    HEADS,
    SCROLLS,
    Evidence,
    Measured,
    NotRecorded,
    recorded,
)
from scrollmt.paper.studies.probes import equivariance as probe

SHORT = ("lorenz63@0.1", "ou@0.1")
# One with layer norm, whose fits at targets times one are asked for the norm of their features.
BACKBONE = "tanh+ln"
BELIEFS = ("scroll-diag", "scroll-full")
COMPOSED = (*SCROLLS, "frozen-alpha", "alone-state", "alone-event", "alone-regime")


def composed_runs(e: Evidence) -> dict[tuple[str, str], pd.DataFrame]:
    """Every run of the composed objective in the records, by corpus and arm."""
    found = {key: rows for key, rows in e.groups.items() if key[1] in COMPOSED}
    if not found:
        raise NotRecorded("any composed fit")
    return found


def failures(e: Evidence) -> Measured:
    """Runs that ended in a value that is no number, or with a score that is none."""
    failed = total = 0
    for (_, arm), runs in composed_runs(e).items():
        scores = runs.reindex(columns=[HEADS[head] for head in get_arm(arm).heads_on(questions())])
        bad = ~np.isfinite(scores).all(axis=1) | runs["stop_reason"].str.contains("nonfinite")
        failed, total = failed + int(bad.sum()), total + len(runs)
    return Measured(failed, note=f"of {total} runs in the records, none left out")


def least(runs: pd.DataFrame) -> Measured:
    """The smallest noise sd of some runs in raw units, and whose it is."""
    noise = (recorded(runs, "sigma_obs") / recorded(runs, "target_factor")).to_numpy()
    at = runs.iloc[int(np.nanargmin(noise))]
    place = f"{at['arm']} on {at['corpus']}, {at['backbone']}, seed {at['seed']}"
    return Measured(float(np.nanmin(noise)), note=place)


def smallest_noise(e: Evidence) -> Measured:
    """Over all corpora; without the shortest lead there is nothing to say."""
    e.rows(SHORT[0], "scroll-diag")
    return least(pd.concat(composed_runs(e).values()))


def smallest_on_ou(e: Evidence) -> Measured:
    return least(pd.concat([e.rows(SHORT[1], arm) for arm in BELIEFS]))


def feature_norms(e: Evidence) -> Measured:
    """Sum of squared features over test windows of the fitted Lorenz runs."""
    setting = {"factor": 1.0, "variant": probe.COLD}
    low, high = (
        e.column(f"psi_norm_{end}", "lorenz63", probe.NAME, BACKBONE, setting=setting)
        for end in ("min", "max")
    )
    note = "on Lorenz; an input of zero has no features to normalise, so its norm is 0"
    return Measured({"smallest": low.min(), "largest": high.max()}, note=note)


STUDY = Study(
    "stability",
    "failures, the smallest noise, and the norm of the features",
    [
        partial(sweep, CORPORA, COMPOSED),
        partial(sweep, SHORT, BELIEFS),
        partial(sweep, ["lorenz63"], [probe.NAME], backbones=[BACKBONE]),
    ],
    {
        "C216": failures,
        "C217": smallest_noise,
        "C218": smallest_on_ou,
        "C219": feature_norms,
    },
)
