"""The training of a `Forecaster`: its settings read, and one selection for each of its seeds.

`model` is the Forecaster; these are the parts of its `fit` that train.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scrollmt._data import holdout
from scrollmt._fitting import crossfit, large, selection
from scrollmt._fitting.batches import Factory
from scrollmt._fitting.fold_runs import Setting
from scrollmt._fitting.progress import ProgressLine
from scrollmt._fitting.selection import Selection
from scrollmt._io import settings
from scrollmt.beliefs import read_beliefs
from scrollmt.couplings import read_groups
from scrollmt.heads import AbstractHead
from scrollmt.model import Backbone
from scrollmt.objective import Data
from scrollmt.presets import Large, Preset, get_preset
from scrollmt.routing import read_routing
from scrollmt.streams import ArrayStream


def settings_of(
    model: Any,
) -> tuple[dict[str, AbstractHead], Preset, Backbone | Factory | None]:
    """Heads, preset and a backbone of the user's own, in JAX's current precision."""
    given = settings.read_heads(model.tasks, model.belief)
    settings.read_calibrate(model.calibrate, model.joint)
    beliefs, joint = read_beliefs(model.belief, given), read_groups(model.joint, given)
    read_routing(model.routing).check(given, beliefs, joint)
    heads = {name: holdout.in_current_precision(head) for name, head in given.items()}
    preset = get_preset(model.preset).with_schedule(model.steps, model.patience)
    if isinstance(model.backbone, str):
        return heads, preset.with_backbone(model.backbone), None
    return heads, preset, holdout.in_current_precision(model.backbone)


def validation_of(model: Any, rows: int) -> Any:
    """How a Forecaster validates so many rows: as it says itself, or as its preset does."""
    if model.validation is not None:
        return model.validation
    return get_preset(model.preset).validation_for(rows)


def trained(model: Any, ready: holdout.Ready, seeds: Sequence[int]) -> list[Selection]:
    """One selection a seed, by folds or by the part that was held out."""
    if ready.folds is not None:
        return _cross_fitted(model, ready, seeds)
    preset = get_preset(model.preset)
    rule = preset.large_for(len(ready.fitted.x)) if ready.stored is None else preset.large
    if rule is not None:
        return _on_many_rows(model, ready, seeds, rule)
    _check_refit(model)
    everything = ready.everything if model.refit else None
    return held_out(model, ready.heads, ready.train, ready.valid, seeds, ready.nats, everything)


def _check_refit(model: Any) -> None:
    routing = read_routing(model.routing)
    if model.refit and routing.point:
        raise ValueError(
            f"routing={routing.name!r} chooses prior precisions on the part that is held out, and "
            "refit=True trains on it; leave out refit"
        )


def held_out(
    model: Any,
    heads: Mapping[str, AbstractHead],
    fitted: Data,
    judged: Data,
    seeds: Sequence[int],
    nats: float,
    everything: Data | None = None,
) -> list[Selection]:
    """One selection a seed; data with a leading axis holds one part for each of them."""
    _, preset, backbone = settings_of(model)
    progress = ProgressLine(model.verbose, nats)
    try:
        return selection.train(
            preset,
            heads,
            belief=model.belief,
            joint=read_groups(model.joint, heads),
            train=fitted,
            valid=judged,
            keys=[jax.random.key(seed) for seed in seeds],
            backbone=backbone,
            optimizer=settings.read_optimizer(model.optimizer),
            everything=everything,
            report=progress,
            routing=read_routing(model.routing),
        )
    finally:
        progress.close()


def _on_many_rows(
    model: Any, ready: holdout.Ready, seeds: Sequence[int], rule: Large
) -> list[Selection]:
    """One selection a seed, from a race on some rows and runs on all of them."""
    _, preset, backbone = settings_of(model)
    routing = read_routing(model.routing)
    if routing.all_rows:
        raise ValueError(
            f"routing={routing.name!r} needs all training rows at once, and a fit on more than "
            f"{rule.above:,} rows reads some at a time; fit fewer rows, or take routing='free', "
            "'elbo' or 'ppgpr'"
        )
    progress = ProgressLine(model.verbose, ready.nats)
    train, valid = ready.train, ready.valid
    setting = large.Setting(
        preset,
        rule,
        ready.heads,
        belief=model.belief,
        joint=read_groups(model.joint, ready.heads),
        sample=_some(train, rule.race_rows, model.seed),
        rows=_stream(train) if ready.stored is None else ready.stored.train,
        valid=_some(valid, rule.held_out, model.seed),
        watched=_some(valid, rule.watched, model.seed),
        backbone=backbone,
        optimizer=settings.read_optimizer(model.optimizer),
        routing=routing,
    )
    everything = None
    if model.refit:
        stored = ready.stored
        everything = _stream(ready.everything) if stored is None else stored.everything
    try:
        return large.train(setting, [jax.random.key(seed) for seed in seeds], everything, progress)
    finally:
        progress.close()


def _some(data: Data, count: int, seed: int) -> Data:
    """Random rows, at most so many, in their order."""
    if len(data) <= count:
        return data
    rows = np.random.default_rng(seed).choice(len(data), count, replace=False)
    return data.take(jnp.asarray(np.sort(rows)))


def _stream(data: Data) -> ArrayStream:
    return ArrayStream(jax.tree.map(np.asarray, data))


def _cross_fitted(model: Any, ready: holdout.Ready, seeds: Sequence[int]) -> list[Selection]:
    """One selection a seed, until an interrupt."""
    assert ready.folds is not None
    _, preset, backbone = settings_of(model)
    progress = ProgressLine(model.verbose, ready.nats)
    shared = Setting(
        # One start for each fold: folds start apart from each other already.
        replace(preset, starts=1),
        ready.plan,
        ready.scales,
        belief=ready.plan.by_head(model.belief),
        joint=read_groups(model.joint, ready.heads),
        data=ready.train,
        folds=ready.folds,
        backbone=backbone,
        optimizer=settings.read_optimizer(model.optimizer),
        routing=read_routing(model.routing),
    )
    found: list[Selection] = []
    try:
        for seed in seeds:
            found.append(crossfit.cross_fit(shared, jax.random.key(seed), progress))
            if found[-1].interrupted:
                break
    finally:
        progress.close()
    return found
