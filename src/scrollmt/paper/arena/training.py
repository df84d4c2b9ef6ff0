"""Training of a job's runs: its windows as the objective wants them, starting values, one batch.

Probes that train in a way of their own use the same parts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from scrollmt._data.reading import Rows, read_rows
from scrollmt._data.scaling import Scales
from scrollmt.backbone import PAPER_WIDTH, paper_backbone
from scrollmt.combining import Combine
from scrollmt.fit import Fits, Objective, Schedule, Score, fit, stack
from scrollmt.heads import Gaussian
from scrollmt.laws import Law, moment_matched
from scrollmt.model import Model, build, start_keys
from scrollmt.objective import Data, composed_objective, validation_nll
from scrollmt.paper.arena.problems import Problem
from scrollmt.paper.arms import Arm, Fold, Forecasts, OwnArm
from scrollmt.paper.arms.base import Heads, map_runs, one_run
from scrollmt.paper.arms.ensembles import MEMBER_STRIDE
from scrollmt.paper.arms.weighted import MEANS_L2
from scrollmt.paper.protocol import Protocol


@dataclass(frozen=True)
class Part:
    """One seed's training and validation windows as they are trained on, and their scales."""

    train: Data
    valid: Data
    scales: Scales


def read_part(of: Problem, seed: int, heads: Heads, factor: float | None = None) -> Part:
    """The windows of a seed; the scaled target times `factor`, by default as the corpus says."""
    split = of.split(seed)
    times = of.target_factor(split) if factor is None else factor
    train, valid = (read_windows(of, index, heads, times) for index in (split.train, split.valid))
    scales = Scales.of(train, heads, scale_targets=False)
    return Part(scales.data(train, heads), scales.data(valid, heads), scales)


def read_windows(of: Problem, index: np.ndarray, heads: Heads, factor: float) -> Rows:
    X, Y = of.part(index, factor)
    return read_rows(X, {name: Y[name] for name in heads}, None, heads)


def stacked(parts: Sequence[Data], repeat: int = 1) -> Data:
    """The windows of several seeds with a leading axis of runs, `repeat` of them for each seed."""
    found: Data = jax.tree.map(lambda *a: jnp.repeat(jnp.stack(a), repeat, axis=0), *parts)
    return found


def start_heads(heads: Heads, train: Data, protocol: Protocol) -> Heads:
    """The heads at the values that training starts from, given the training labels.

    Only the noise of a Gaussian head can start at the spread of its targets. That of the learned
    task weights is their scale.
    """
    begun = {name: head.started(train.y[name], train.weight[name]) for name, head in heads.items()}
    if protocol.initial_noise == "targets":
        for name, head in begun.items():
            if isinstance(head, Gaussian):
                begun[name], _ = head.constant(train.y[name], train.weight[name])
    return begun


def start_model(
    heads: Heads, belief: str, backbone: str, inputs: int, seed: int, protocol: Protocol
) -> tuple[Model, PRNGKeyArray]:
    """A model at the starting values of a seed, and the key of its runs.

    They are those that a `Forecaster` with the paper's preset gives this seed.
    """
    ((net_key, task_key, run_key),) = start_keys(jax.random.key(seed), backbone)
    uniform = protocol.initial_uniform
    model = build(
        paper_backbone(backbone, inputs, net_key, uniform=uniform, gpu_kernel=True),
        heads,
        features=PAPER_WIDTH,
        belief=belief,
        key=task_key,
        cov_floor=protocol.cov_floor,
        start=protocol.start(),
    )
    return model, run_key


def fit_runs(
    models: Sequence[Any],
    train: Data,
    valid: Data,
    protocol: Protocol,
    *,
    objective: Objective = composed_objective,
    score: Score = validation_nll,
    hyper: Mapping[str, Array] | None = None,
    schedule: Schedule | None = None,
    keys: Array | None = None,
    trainable: Any = None,
    combine: Combine | None = None,
) -> Fits:
    """Train one run for each model as one batch, with the protocol's constants."""
    count = len(models)
    constants = {
        "learning_rate": jnp.full(count, protocol.learning_rate),
        "backbone_l2": jnp.full(count, protocol.backbone_l2),
        MEANS_L2: jnp.full(count, protocol.penalty_beside_means * protocol.backbone_l2),
    }
    return fit(
        stack([*models]),
        train,
        valid,
        objective=objective,
        score=score,
        hyper=constants | dict(hyper or {}),
        schedule=protocol.schedule() if schedule is None else schedule,
        # Batches are full: without a rule no run draws anything, and the keys do not matter.
        keys=jax.random.split(jax.random.key(0), count) if keys is None else keys,
        trainable=trainable,
        combine=combine,
    )


def _fit(
    arm: Arm,
    tasks: Heads,
    backbone: str,
    seeds: Sequence[int],
    parts: Sequence[Part],
    protocol: Protocol,
) -> tuple[Fits, Data, Data]:
    """All seeds, members and settings of an arm as one batch, in this order."""
    models: list[Any] = []
    keys: list[Any] = []
    for seed, part in zip(seeds, parts, strict=True):
        train = part.train
        heads = start_heads(tasks, train, protocol)
        for member in range(arm.members):
            start = seed + MEMBER_STRIDE * member
            inputs = train.x.shape[-1]
            built, key = start_model(heads, arm.belief, backbone, inputs, start, protocol)
            models += [arm.start(built, train, setting) for setting in arm.settings]
            keys += [*jax.random.split(key, len(arm.settings))]
    each = arm.members * len(arm.settings)
    train = stacked([p.train for p in parts], each)
    valid = stacked([p.valid for p in parts], each)
    repeats = len(models) // len(arm.settings)
    hyper = {
        name: jnp.asarray([s[name] for s in arm.settings] * repeats, float)
        for name in sorted(arm.settings[0])
    }
    fits = fit_runs(
        models,
        train,
        valid,
        protocol,
        objective=arm.objective,
        score=arm.score,
        hyper=hyper,
        keys=jnp.stack(keys),
        trainable=arm.trainable,
        combine=arm.combine,
    )
    return fits, train, valid


def _laws(model: Model, lines: Any, scales: Scales) -> dict[str, Law]:
    laws: dict[str, Law] = {}
    for name, (mean, var) in lines.items():
        head, line = model.tasks[name].head, (np.asarray(mean), np.asarray(var))
        laws[name] = (
            head.rescaled_law(*line, scales.offset[name], scales.scale[name])
            if name in scales.offset
            else head.law(*line)
        )
    return laws


def _project(model: Model, x: Array) -> dict[str, tuple[Array, Array]]:
    return model.project(x)


@dataclass(frozen=True)
class Trained:
    """What an arm hands back: forecasts by seed and setting, and the seconds of training."""

    forecasts: dict[int, list[Forecasts]]
    seconds: float


def train_composed(
    arm: Arm, backbone: str, seeds: Sequence[int], of: Problem, protocol: Protocol
) -> Trained:
    """All runs of a composition as one batch."""
    tasks = arm.heads_on(of.source.tasks())
    # The corpus's heads read the labels, whatever heads the arm has for them.
    reading = {name: head for name, head in of.source.tasks().items() if name in tasks}
    parts = [read_part(of, seed, reading) for seed in seeds]
    began = time.perf_counter()
    fits, train, valid = _fit(arm, tasks, backbone, seeds, parts, protocol)
    models = arm.finish(fits.models, train, valid)
    jax.block_until_ready(models)
    seconds = time.perf_counter() - began
    each = arm.members * len(arm.settings)
    test = [of.X[of.split(seed).test] for seed in seeds]
    scaled = [part.scales.inputs(x) for part, x in zip(parts, test, strict=True)]
    test_x = jnp.asarray(np.stack(scaled), train.x.dtype)
    lines = {
        "valid": map_runs(_project, models, valid.x),
        "test": map_runs(_project, models, jnp.repeat(test_x, each, axis=0)),
    }
    lines = jax.tree.map(np.asarray, lines)
    models = jax.tree.map(lambda a: np.asarray(a) if isinstance(a, jax.Array) else a, models)
    forecasts: dict[int, list[Forecasts]] = {seed: [] for seed in seeds}
    for place, (seed, part) in enumerate(zip(seeds, parts, strict=True)):
        for at in range(len(arm.settings)):
            runs = [place * each + member * len(arm.settings) + at for member in range(arm.members)]
            members = [one_run(models, run) for run in runs]
            laws: dict[str, dict[str, Law]] = {}
            for kind, read in lines.items():
                of_members = [
                    _laws(m, one_run(read, r), part.scales)
                    for m, r in zip(members, runs, strict=True)
                ]
                laws[kind] = {
                    name: moment_matched([law[name] for law in of_members]) for name in tasks
                }
            facts: dict[str, Any] = {}
            if arm.members == 1:
                facts |= of.source.scoring.fitted(members[0], laws["test"])
            facts["steps"] = float(np.mean(fits.steps[runs]))
            facts["best_step"] = float(np.mean(fits.best_step[runs]))
            facts["stop_reason"] = "+".join(sorted({fits.stop_reason[r] for r in runs}))
            forecasts[seed].append(Forecasts(laws["valid"], laws["test"], facts))
    return Trained(forecasts, seconds)


def train_own(arm: OwnArm, backbone: str, seeds: Sequence[int], of: Problem) -> Trained:
    """One call of the arm for each seed and setting."""
    began = time.perf_counter()
    forecasts = {
        # Each call has arrays of its own, so that a change of them reaches no other call.
        seed: [arm.forecast(_fold(of, arm, backbone, seed), each) for each in arm.settings]
        for seed in seeds
    }
    return Trained(forecasts, time.perf_counter() - began)


def _fold(of: Problem, arm: OwnArm, backbone: str, seed: int) -> Fold:
    """What an arm may see of a seed: everything but the labels of the test windows."""
    split = of.split(seed)
    factor = of.target_factor(split)
    tasks = arm.heads_on(of.source.tasks())
    (X, Y), (X_valid, Y_valid) = (of.part(rows, factor) for rows in (split.train, split.valid))
    return Fold(
        seed,
        backbone,
        tasks,
        X,
        {name: Y[name] for name in tasks},
        X_valid,
        {name: Y_valid[name] for name in tasks},
        of.X[split.test],
    )
