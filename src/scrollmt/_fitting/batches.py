"""Runs of one architecture as one batch: its candidates from several starts, for several keys."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PRNGKeyArray

from scrollmt._numerics.compiling import RUNS_ONCE, on_device, runs_once, taken
from scrollmt.adapters import at_rest, in_training, makes_backbones, takes_key
from scrollmt.beliefs import Choices, Maker, read_beliefs
from scrollmt.couplings import Groups
from scrollmt.fit import Fits, Optimizer, Schedule, Score, Stream, fit, stack
from scrollmt.heads import AbstractHead
from scrollmt.model import Backbone, Model, build, start_keys
from scrollmt.objective import Data, TaskScores, validation_nll
from scrollmt.presets import Architecture, Candidate, Preset
from scrollmt.routing import FREE, Routing
from scrollmt.splits import Folds

Report = Callable[[str, int, int, float], None]
# Makes a backbone from a key, so that every start and every member has weights of its own.
Factory = Callable[..., Backbone]


def _name_of(backbone: Backbone | Factory) -> str:
    named = inspect.isclass(backbone) or inspect.isfunction(backbone)
    return str((backbone if named else type(backbone)).__name__)


def made(backbone: Backbone | Factory, key: PRNGKeyArray) -> Backbone:
    """The backbone as it is outside of training steps."""
    net: Backbone = at_rest(backbone(key=key) if makes_backbones(backbone) else backbone)
    return net


def features_of(backbone: Backbone, in_size: int) -> int:
    """How many features a backbone makes of one point; a clear error when it cannot."""
    point = jax.ShapeDtypeStruct((in_size,), jnp.result_type(float))
    try:
        out = eqx.filter_eval_shape(backbone, point)
    except Exception as error:
        raise ValueError(
            f"the backbone does not accept one point of shape ({in_size},): {error}; "
            "it must map (D,) to (H,), batching happens outside"
        ) from error
    if not isinstance(out, jax.ShapeDtypeStruct) or len(out.shape) != 1:
        shape = out.shape if isinstance(out, jax.ShapeDtypeStruct) else type(out).__name__
        raise ValueError(
            f"the backbone maps ({in_size},) to {shape}, expected features of shape (H,)"
        )
    return int(out.shape[0])


@dataclass(frozen=True)
class Batch:
    """All runs of the candidates of one architecture: first by key, then start, then candidate."""

    label: str
    candidates: list[Candidate]
    starts: Model
    keys: Key[Array, " B"]
    train: Data | Stream
    # None where runs are scored on rows of the training data, `hyper["valid_rows"]`.
    valid: Data | None
    hyper: dict[str, Array]
    schedule: Schedule
    score: Score
    owners: int
    optimizer: Optimizer | None = None
    # Whether the backbone draws random numbers in training.
    draws: bool = False
    routing: Routing = FREE
    # The beliefs that were asked for, by head; those that are trained may be others.
    beliefs: Mapping[str, Maker] = field(default_factory=dict)
    fits: Fits | None = None
    seconds: float = 0.0

    @property
    def interrupted(self) -> bool:
        return self.fits is not None and self.fits.interrupted

    def trained(self, report: Report | None) -> Batch:
        def progress(step: int, steps: int, best: np.ndarray) -> None:
            if report is not None:
                report(self.label, step, steps, float(best.min(axis=0).ravel()[-1]))

        began = time.perf_counter()
        fits = fit(
            self._begun(),
            self.train,
            self.valid,
            objective=self.routing.objective,
            hyper=self.hyper,
            schedule=self.schedule,
            keys=self.keys,
            score=self.score,
            trainable=self.routing.trainable,
            optimizer=self.optimizer,
            in_training=in_training if self.draws else None,
            progress=progress,
        )
        fits = self._finished(fits)
        return replace(self, fits=fits, seconds=time.perf_counter() - began)

    def _begun(self) -> Any:
        """The models as the routing trains them."""
        start = self.routing.start
        if start is None:
            return self.starts
        runs = range(len(self.keys))
        return stack([start(taken(self.starts, run), self._windows(run)[0]) for run in runs])

    def _finished(self, fits: Fits) -> Fits:
        """The outcome with plain models, and the scores of these, where the routing changes them.

        One after the other: each needs the features of all its training windows.
        """
        finish = self.routing.finish
        if finish is None:
            return fits
        models, scores = [], np.array(fits.best_score)
        for run in range(len(fits)):
            train, valid = self._windows(run)
            for place in np.ndindex(scores.shape[1:]):
                with jax.default_matmul_precision("highest"):
                    model = finish(fits.model(run, *place), train, valid, self.beliefs)
                    score = np.asarray(_score(self.score, model, valid))
                models.append(model)
                scores[run, *place] = score[place]
        shape = scores.shape
        joined: Any = jax.tree.map(
            lambda a: a.reshape(*shape, *a.shape[1:]) if eqx.is_array(a) else a, stack(models)
        )
        return replace(fits, models=joined, best_score=scores)

    def _windows(self, run: int) -> tuple[Data, Data]:
        """The training and the validation windows of one run."""
        train, valid = self.train, self.valid
        assert isinstance(train, Data)
        if valid is None:
            rows = (np.asarray(self.hyper[name][run]) for name in ("train_rows", "valid_rows"))
            own = [_at(train, one) for one in rows]
            return own[0], own[1]
        own = [_at(data, ... if data.x.ndim == 2 else run) for data in (train, valid)]
        return own[0], own[1]

    def again(self, runs: np.ndarray, data: Data | Stream) -> Batch:
        """Some of the runs on other data, up to the steps at which they were best."""
        assert self.fits is not None
        return replace(
            self,
            label=f"{self.label}, all rows",
            starts=taken(self.starts, runs),
            train=data,
            hyper=taken(self.hyper, runs)
            | {"keep_at": on_device(self.fits.best_step[runs], np.int32)},
            keys=self.keys[runs],
            schedule=replace(self.schedule, patience=self.schedule.steps),
        )


def _at(data: Data, places: Any) -> Data:
    """Data at some places of the first axis."""
    found: Data = jax.tree.map(lambda a: on_device(np.asarray(a)[places], a.dtype), data)
    return found


@runs_once
def _score(score: Score, model: Model, valid: Data) -> Array:
    return score(model, valid)


def start_batch(
    preset: Preset,
    heads: Mapping[str, AbstractHead],
    belief: Choices,
    joint: Groups,
    train: Data,
    valid: Data | None,
    keys: Key[Array, " K"],
    backbone: Backbone | Factory | None,
    candidates: list[Candidate],
    schedule: Schedule,
    optimizer: Optimizer | None = None,
    folds: Folds | None = None,
    part: range | None = None,
    routing: Routing = FREE,
) -> Batch:
    """The runs of the candidates of one architecture, at their starting values.

    With `folds` there is one key a fold, and no `valid`. With `part` only the keys of these numbers
    get runs. All keys are drawn even so, since another number of them is another program.
    """
    in_size = train.x.shape[-1]
    label = candidates[0].name if backbone is None else _name_of(backbone)
    owners = range(len(keys)) if part is None else part
    net_keys, task_keys, run_keys = _keys(keys, label, preset.starts, len(candidates), owners)
    heads_by_key = [_started(heads, train, place, folds) for place in range(len(keys))]

    trained = routing.trained_belief(belief)
    given: dict[str, Any] = {
        "belief": dict(trained) if isinstance(trained, Mapping) else trained,
        "cov_floor": preset.cov_floor,
        "joint": joint,
        "start": preset.begin,
    }
    draws = False
    begun = [heads for heads in heads_by_key for _ in range(preset.starts)]
    # The starts of the keys that get runs.
    places = np.arange(owners.start * preset.starts, owners.stop * preset.starts)
    if backbone is None:
        shape = candidates[0].architecture
        drawn = _drawn(shape, in_size, stack(begun), net_keys, task_keys, given)
        models = taken(drawn, places)
    else:
        nets = [made(backbone, net_keys[place]) for place in places]
        draws = takes_key(nets[-1])
        size = features_of(nets[-1], in_size)
        models = stack(
            [
                build(net, begun[place], features=size, key=task_keys[place], **given)
                for net, place in zip(nets, places, strict=True)
            ]
        )
    if draws and routing.start is not None:
        raise ValueError(
            f"routing={routing.name!r} sets beliefs from the features of all training windows, and "
            f"the backbone {label} draws random numbers in training; take routing='free'"
        )
    # Candidates of one start begin alike.
    starts = taken(models, np.repeat(np.arange(len(places)), len(candidates)))
    each = preset.starts * len(candidates)
    hyper = {
        name: on_device(
            np.tile([getattr(c, name) for c in candidates], len(owners) * preset.starts),
            train.x.dtype,
        )
        for name in ("learning_rate", "backbone_l2")
    }
    if folds is not None:
        hyper |= {
            "train_rows": on_device(np.repeat(folds.train[owners], each, axis=0), np.int32),
            "valid_rows": on_device(np.repeat(folds.valid[owners], each, axis=0), np.int32),
        }
    score: Score = validation_nll
    if preset.committee is not None or folds is not None:
        score = TaskScores(together(heads, joint), preset.score_bound)
    return Batch(
        label=label,
        candidates=candidates,
        starts=starts,
        keys=run_keys,
        train=_repeated(train, each),
        valid=None if valid is None else _repeated(valid, each),
        hyper=hyper,
        schedule=schedule,
        score=score,
        owners=len(owners),
        optimizer=optimizer,
        draws=draws,
        routing=routing,
        beliefs=read_beliefs(belief, heads),
    )


@functools.partial(jax.jit, static_argnums=(1, 2, 3, 4), compiler_options=RUNS_ONCE)
def _keys(
    keys: Key[Array, " K"], label: str, starts: int, candidates: int, owners: range
) -> tuple[Key[Array, " S"], Key[Array, " S"], Key[Array, " B"]]:
    """The keys of the backbone and of the beliefs of every start, and those of the owners' runs."""
    net, task, run = jnp.moveaxis(
        jax.vmap(lambda key: jnp.stack(start_keys(key, label, starts)))(keys), -1, 0
    )
    of_runs = jax.vmap(lambda key: jax.random.split(key, candidates))(
        run[owners.start : owners.stop].ravel()
    )
    return net.ravel(), task.ravel(), of_runs.ravel()


@runs_once
def _drawn(
    shape: Architecture,
    in_size: int,
    heads: Mapping[str, AbstractHead],
    net_keys: Key[Array, " S"],
    task_keys: Key[Array, " S"],
    given: dict[str, Any],
) -> Model:
    """Models at their starting values, stacked: one program in the place of one an operation."""

    def one(heads: Mapping[str, AbstractHead], net_key: Array, task_key: Array) -> Model:
        net = shape.build(in_size, net_key, uniform=given["start"].uniform)
        return build(net, heads, features=features_of(net, in_size), key=task_key, **given)

    models: Model = eqx.filter_vmap(one)(heads, net_keys, task_keys)
    return models


def _started(
    heads: Mapping[str, AbstractHead], train: Data, place: int, folds: Folds | None
) -> dict[str, AbstractHead]:
    """Heads at their starting values, from the training labels of one key and no others."""

    def mine(values: Any) -> Array:
        own = np.asarray(values) if train.x.ndim == 2 else np.asarray(values)[place]
        own = own if folds is None else own[folds.train[place]]
        return on_device(own, own.dtype)

    return {n: head.started(mine(train.y[n]), mine(train.weight[n])) for n, head in heads.items()}


def together(heads: Mapping[str, AbstractHead], joint: Groups) -> tuple[tuple[str, ...], ...]:
    """The questions that are scored and chosen by themselves: coupled tasks are one of them."""
    coupled = {name: group for group in joint for name in group}
    return tuple(dict.fromkeys(coupled.get(name, (name,)) for name in heads))


def _repeated(data: Data, times: int) -> Data:
    """Data of their own for every run of a candidate batch; shared data stays shared."""
    if data.x.ndim == 2:
        return data
    repeated: Data = jax.tree.map(lambda a: jnp.repeat(a, times, axis=0), data)
    return repeated
