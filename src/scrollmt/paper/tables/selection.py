"""Which runs count: validation selects one run for each corpus, arm and seed.

A records frame has one row for each run: corpus, arm, backbone, seed, setting, the sums that
validation selects by, and the test metrics. A corpus that is drawn several times has as many times
the seeds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from scrollmt.paper.arena.probes import COST, DEFAULT, PREFIX
from scrollmt.paper.data.published import GRIDS
from scrollmt.paper.protocol import DRAWS, draws_of

RESULT = ("corpus", "arm", "seed")
# Seed s on draw k of a corpus becomes seed s + k times this.
DRAW_STRIDE = 1000


def select(
    frame: pd.DataFrame, by: str = "valid_nats", keys: Sequence[str] = RESULT
) -> pd.DataFrame:
    """The run with the lowest `by` for each corpus, arm and seed, over backbones and settings.

    `valid_nats` is the fair criterion, for every arm; `valid_mixed` selects among the same runs
    in mixed units. A run whose criterion is not a finite number comes last. Ties go by backbone
    and setting, so that the order of the records does not matter.
    """
    need_columns(frame, [*keys, "backbone", "setting", by])
    frame = frame.reset_index(drop=True)
    criterion = frame[by].where(np.isfinite(frame[by]), np.inf)
    order = frame.assign(**{by: criterion}).sort_values([*keys, by, "backbone", "setting"])
    return frame.loc[order.drop_duplicates([*keys]).index].reset_index(drop=True)


def together(frame: pd.DataFrame) -> pd.DataFrame:
    """All draws of a corpus as one corpus with distinct seeds; probes keep the draw in their id."""
    found = frame.copy()
    trained = ~frame["arm"].str.startswith(PREFIX) | (frame["arm"] == DEFAULT)
    for corpus in DRAWS:
        for k, drawn in enumerate(draws_of(corpus)):
            mine = trained & (frame["corpus"] == drawn)
            found.loc[mine, "seed"] += DRAW_STRIDE * k
            found.loc[mine, "corpus"] = corpus
    return found


def first_draws(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of every corpus on its first draw alone; what probes read on others stays."""
    further = [drawn for corpus in DRAWS for drawn in draws_of(corpus)[1:]]
    probes = frame["arm"].str.startswith(PREFIX) & (frame["arm"] != DEFAULT)
    return frame[probes | ~frame["corpus"].isin(further)]


def drop_unselected(frame: pd.DataFrame) -> pd.DataFrame:
    """Drop the runs of the weight grids on further draws that no criterion selects.

    No table reads them, and they would take more space than all other runs on those draws.
    """
    further = [drawn for corpus in DRAWS for drawn in draws_of(corpus)[1:]]
    grids = frame[frame["corpus"].isin(further) & frame["arm"].isin(GRIDS)]
    if grids.empty:
        return frame
    keys = [*RESULT, "backbone"]
    numbered = grids.assign(row=grids.index)
    chosen = [select(numbered, by, keys)["row"] for by in ("valid_nats", "valid_mixed")]
    return frame.drop(grids.index.difference(pd.concat(chosen)))


def arm_seconds(frame: pd.DataFrame) -> pd.DataFrame:
    """Seconds an arm takes at each seed, its backbones added up with all settings and members.

    They come from the jobs that do nothing but take times (`probe-cost`): in a sweep several jobs
    share a machine. Columns: corpus, arm, seed, device, time_s, and compile_s for what the first
    fit of each kind takes longer.
    """
    need_columns(frame, [*RESULT, "backbone"])
    timed = frame[frame["arm"] == COST]
    if timed.empty:
        return pd.DataFrame(columns=[*RESULT, "device", "time_s", "compile_s"])
    timed = timed.assign(
        arm=timed["backbone"],
        device=timed["device"] + ", " + timed["cores"].map("{:.0f} cores".format),
        time_s=timed["fit_seconds"],
        compile_s=timed["first_seconds"] - timed["fit_seconds"],
    )
    keys = [*RESULT, "device"]
    return timed.groupby(keys, sort=False)[["time_s", "compile_s"]].sum().reset_index()


def need_columns(frame: pd.DataFrame, columns: Sequence[str]) -> None:
    missing = [c for c in columns if c not in frame]
    if missing:
        raise ValueError(f"the records frame lacks the columns {missing}; it has {[*frame]}")
