r"""Many rows: candidates race on some of them, and the best few train on all of them.

    race      all candidates     some training rows    scored on the validation rows
    final     best candidates    all training rows     scored on the validation rows
    law of a task:  sum_m w_m law of run m,  w from the validation log scores (`stacking`)

A fit by folds trains each candidate several times. With many rows a row that validates is not
missed in training, and candidates differ little. The runs on all rows share one stream of
minibatches, from memory or from a disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, PRNGKeyArray

from scrollmt._fitting import selection
from scrollmt._fitting.batches import Batch, Factory, Report, start_batch, together
from scrollmt._fitting.selection import Selection, best_in_turn, by_architecture
from scrollmt._fitting.stacking import stacked
from scrollmt.beliefs import Choices
from scrollmt.couplings import Groups
from scrollmt.fit import Optimizer, Stream
from scrollmt.heads import AbstractHead
from scrollmt.model import Backbone, Model
from scrollmt.objective import Data, data_terms
from scrollmt.presets import Candidate, Large, Preset, large_schedule
from scrollmt.routing import FREE, Routing


@dataclass(frozen=True)
class Setting:
    """What all runs on many rows share.

    `sample` are training rows in memory, for the race and for starting values; `rows` are all
    training rows; `watched` are the validation rows that stop and choose, `valid` those that weigh.
    """

    preset: Preset
    large: Large
    heads: Mapping[str, AbstractHead]
    belief: Choices
    joint: Groups
    sample: Data
    rows: Stream
    valid: Data
    watched: Data
    backbone: Backbone | Factory | None
    optimizer: Optimizer | None
    routing: Routing = FREE

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The questions that are weighed by themselves: coupled tasks are one of them."""
        return together(self.heads, self.joint)


def train(
    setting: Setting,
    keys: Sequence[PRNGKeyArray],
    everything: Stream | None,
    report: Report | None,
) -> list[Selection]:
    """One selection a key. The race is run with the first key, and its result serves them all.

    The chosen runs are trained again on `everything`, where it is given. An interrupt keeps the
    best of what has been trained so far.
    """
    candidates = list(setting.preset.candidates)
    race = None
    if len(candidates) > setting.large.finalists:
        race = _raced(setting, keys[0], report)
        if race.interrupted:
            return [race]
        candidates = _finalists(setting, race)
    batches: list[Batch] = []
    interrupted = False
    try:
        for alike in by_architecture(candidates, setting.backbone):
            batches.append(_started(setting, alike, keys).trained(report))
            interrupted = batches[-1].interrupted
            if interrupted:
                break
    except KeyboardInterrupt:
        if not batches and race is None:
            raise
        interrupted = True
    if not batches:
        assert race is not None
        return [replace(race, interrupted=True)]
    committee = len(candidates) * setting.large.starts
    every = batches[0].schedule.eval_every
    chosen = [
        selection.choose(batches, owner, committee, every, interrupted)
        for owner in range(len(keys))
    ]
    if everything is None or interrupted:
        found = [one.selection for one in chosen]
    else:
        found = selection.refitted(batches, chosen, everything, report)
    return [_with_race(setting, _weighed(setting, one), race) for one in found]


def _raced(setting: Setting, key: PRNGKeyArray, report: Report | None) -> Selection:
    """All candidates on the sample, which each question judges for itself."""
    preset = setting.preset
    (found,) = selection.train(
        replace(preset, starts=1, committee=preset.committee or 1),
        setting.heads,
        belief=setting.belief,
        joint=setting.joint,
        train=setting.sample,
        valid=setting.watched,
        keys=[key],
        backbone=setting.backbone,
        optimizer=setting.optimizer,
        report=report,
        routing=setting.routing,
    )
    return found


def _finalists(setting: Setting, race: Selection) -> list[Candidate]:
    ordered = [
        candidate
        for alike in by_architecture(setting.preset.candidates, setting.backbone)
        for candidate in alike
    ]
    finite = race.table.where(np.isfinite(race.table["validation_nll"]))
    labelled = [
        group
        for group in setting.groups
        if any(bool(jnp.any(setting.watched.weight[name] > 0)) for name in group)
    ]
    means = pd.DataFrame(
        {
            group[0]: finite[[f"{name}_nll" for name in group]].sum(axis=1, skipna=False)
            for group in labelled
        }
    )
    return [ordered[number] for number in best_in_turn(means, setting.large.finalists)]


def _started(setting: Setting, alike: list[Candidate], keys: Sequence[PRNGKeyArray]) -> Batch:
    """The runs of finalists of one architecture on all rows, at their starting values."""
    preset, large = setting.preset, setting.large
    batch = start_batch(
        replace(preset, starts=large.starts, committee=large.starts),
        setting.heads,
        setting.belief,
        setting.joint,
        setting.sample,
        setting.watched,
        jnp.stack(keys),
        setting.backbone,
        alike,
        large_schedule(preset, large, len(setting.rows)),
        setting.optimizer,
        routing=setting.routing,
    )
    return replace(batch, train=setting.rows)


def _weighed(setting: Setting, found: Selection) -> Selection:
    """The selection with weights by task, from the validation scores of its members."""
    seen = {name: (w > 0).astype(w.dtype) for name, w in setting.valid.weight.items()}
    valid = Data(setting.valid.x, setting.valid.y, seen)
    scores = {
        number: _log_scores(found.validated[number], valid)
        for number in sorted({m for own in found.committee.values() for m in own})
    }
    committee: dict[str, tuple[int, ...]] = {}
    weights: dict[str, tuple[float, ...]] = {}
    for group in setting.groups:
        own = found.committee[group[0]]
        summed = np.stack(
            [np.sum([scores[m][name] for name in group], axis=0, dtype=np.float64) for m in own]
        )
        given = np.max([np.asarray(setting.valid.weight[name]) for name in group], axis=0)
        shares = stacked(summed, given.astype(np.float64))
        kept = np.flatnonzero(shares > 0.0)
        for name in group:
            committee[name] = tuple(own[k] for k in kept)
            weights[name] = tuple(float(shares[k]) for k in kept)
    return replace(found, committee=committee, weights=weights)


@eqx.filter_jit
def _log_scores(model: Model, data: Data) -> dict[str, Float[Array, " N"]]:
    return {name: -terms for name, terms in data_terms(model, data).items()}


def _with_race(setting: Setting, found: Selection, race: Selection | None) -> Selection:
    """The table of all runs: those on all rows first, then those of the race."""
    table = found.table.assign(rows=len(setting.rows))
    if race is not None:
        tried = race.table.assign(rows=len(setting.sample), chosen=False, speaks_for="")
        table = pd.concat([table, tried], ignore_index=True)
    return replace(found, table=table)
