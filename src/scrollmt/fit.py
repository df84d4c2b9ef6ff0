r"""Many runs as one program: Adam on a given objective, validation, best parameters kept.

`fit` knows no model and no loss. It takes a batch of runs along a leading axis, a scalar
`objective(model, data, hyper, data_scale)` and a scalar `score(model, data)` to watch,
and moves every run by the same compiled program. A run ends when its budget is spent,
when its score has not improved for `patience` evaluations, or when a value stops being
finite; its best-scoring parameters are always finite and are what is returned.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from scrollmt.model import Model
from scrollmt.objective import Data, validation_nll

Hyper = dict[str, Any]
Objective = Callable[[Model, Data, Hyper, float | Array], Float[Array, ""]]
Score = Callable[[Model, Data], Float[Array, ""]]
Progress = Callable[[int, int, np.ndarray], None]

STOP_REASONS = ("running", "steps", "patience", "nonfinite", "interrupted")
_RUNNING, _STEPS, _PATIENCE, _NONFINITE, _INTERRUPTED = range(len(STOP_REASONS))
_PROGRESS_UPDATES = 25


@dataclass(frozen=True)
class Schedule:
    """How long and how a run is trained; part of the compiled program.

    `learning_rate` itself is numeric and differs by run (`hyper["learning_rate"]`).
    The rate rises linearly over `warmup` steps and then follows a half cosine down to
    `final_rate` times itself; 1.0 keeps it constant. `average` is the decay of an
    exponential moving average of the parameters, which is then what is scored and kept.
    """

    steps: int = 5000
    batch_size: int | None = None
    eval_every: int = 1
    patience: int = 300
    warmup: int = 0
    final_rate: float = 1.0
    average: float = 0.0
    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-8

    def rate(self, step: Array) -> Array:
        """The share of the learning rate at a step."""
        rise = jnp.minimum(1.0, (step + 1.0) / max(1, self.warmup))
        progress = jnp.clip((step - self.warmup) / max(1, self.steps - self.warmup), 0.0, 1.0)
        cosine = 0.5 * (1.0 + jnp.cos(jnp.pi * progress))
        return rise * (self.final_rate + (1.0 - self.final_rate) * cosine)


class _Run(eqx.Module):
    """Everything that moves; each leaf has a leading axis of runs outside of `_advance`."""

    params: Model
    optimiser: Any
    averaged: Model
    best: Model
    best_score: Array
    best_step: Array
    step: Array
    waited: Array
    status: Array
    key: PRNGKeyArray


@dataclass(frozen=True)
class Fits:
    """The outcome of a batch of runs; every array has the run axis first."""

    models: Model
    best_score: np.ndarray
    best_step: np.ndarray
    steps: np.ndarray
    stop_reason: tuple[str, ...]
    history: dict[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.best_score)

    @property
    def interrupted(self) -> bool:
        return "interrupted" in self.stop_reason

    def model(self, run: int) -> Model:
        """The best model of one run."""
        return jax.tree.map(lambda a: a[run] if eqx.is_array(a) else a, self.models)


def stack(models: list[Model]) -> Model:
    """Models of one structure as one batch with a leading run axis."""
    return jax.tree.map(lambda *a: jnp.stack(a) if eqx.is_array(a[0]) else a[0], *models)


def _optimiser(schedule: Schedule) -> optax.GradientTransformation:
    return optax.scale_by_adam(b1=schedule.b1, b2=schedule.b2, eps=schedule.eps)


def _all_finite(tree: Any) -> Array:
    # A sum of squares is non-finite exactly when a term is, or when the step is hopeless.
    return jnp.isfinite(sum(jnp.sum(leaf * leaf) for leaf in jax.tree.leaves(tree)))


def _where(condition: Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda n, o: jnp.where(condition, n, o), new, old)


def _rows(key: PRNGKeyArray, windows: int, count: int, batch: int) -> Array:
    """Row numbers of `count` minibatches: shuffled passes, each window once a pass."""
    passes = math.ceil(count * batch / windows)
    keys = jax.random.split(key, passes)
    order = jax.vmap(lambda k: jax.random.permutation(k, windows))(keys)
    return order.reshape(-1)[: count * batch].reshape(count, batch)


def _advance_one(
    run: _Run,
    fixed: Model,
    train: Data,
    valid: Data,
    hyper: Hyper,
    *,
    static: Model,
    objective: Objective,
    score: Score,
    schedule: Schedule,
    rounds: int,
) -> tuple[_Run, tuple[Array, Array]]:
    """One run `rounds` evaluations further; a run that has ended stays as it is."""
    optimiser = _optimiser(schedule)
    windows = len(train)
    batch = None if schedule.batch_size is None else min(schedule.batch_size, windows)
    data_scale = 1.0 if batch is None else windows / batch

    def loss_at(params: Model, data: Data) -> Array:
        return objective(eqx.combine(params, fixed, static), data, hyper, data_scale)

    def step(run: _Run, rows: Array | None) -> tuple[_Run, Array]:
        data = train if rows is None else train.take(rows)
        loss, grads = jax.value_and_grad(loss_at)(run.params, data)
        direction, moments = optimiser.update(grads, run.optimiser)
        rate = -hyper["learning_rate"] * schedule.rate(run.step)
        params = optax.apply_updates(run.params, jax.tree.map(lambda d: rate * d, direction))
        averaged = params
        if schedule.average:
            # A young average forgets faster, so the starting values do not linger in it.
            keep = jnp.minimum(schedule.average, (1.0 + run.step) / (10.0 + run.step))
            averaged = jax.tree.map(lambda a, p: keep * a + (1.0 - keep) * p, run.averaged, params)
        moved = replace(run, params=params, optimiser=moments, averaged=averaged, step=run.step + 1)
        going = run.status == _RUNNING
        finite = jnp.isfinite(loss) & _all_finite(grads)
        kept = _where(going & finite, moved, run)
        return replace(kept, status=jnp.where(going & ~finite, _NONFINITE, run.status)), loss

    def one_round(run: _Run, _: None) -> tuple[_Run, tuple[Array, Array]]:
        going = run.status == _RUNNING
        rows, key = None, run.key
        if batch is not None:
            key, draw = jax.random.split(run.key)
            rows = _rows(draw, windows, schedule.eval_every, batch)
        run, losses = jax.lax.scan(step, run, rows, length=schedule.eval_every)
        # A run that broke within the round stands at its last finite parameters: score those.
        value = score(eqx.combine(run.averaged, fixed, static), valid)
        better = going & (value < run.best_score)
        waited = jnp.where(better, 0, run.waited + going)
        status = run.status
        for ended, reason in (
            (~jnp.isfinite(value), _NONFINITE),
            (waited >= schedule.patience, _PATIENCE),
            (run.step >= schedule.steps, _STEPS),
        ):
            status = jnp.where((status == _RUNNING) & ended, reason, status)
        run = replace(
            run,
            best=_where(better, run.averaged, run.best),
            best_score=jnp.where(better, value, run.best_score),
            best_step=jnp.where(better, run.step, run.best_step),
            waited=waited,
            status=status,
            key=key,
        )
        return run, (jnp.where(going, losses[-1], jnp.nan), jnp.where(going, value, jnp.nan))

    return jax.lax.scan(one_round, run, None, length=rounds)


@eqx.filter_jit
def _advance(
    runs: _Run,
    fixed: Model,
    train: Data,
    valid: Data,
    hyper: Hyper,
    static: Model,
    options: dict[str, Any],
) -> tuple[_Run, tuple[Array, Array]]:
    """All runs a few rounds further; data with two axes of `x` serves every run."""

    def one(run: _Run, fixed: Model, train: Data, valid: Data, hyper: Hyper) -> Any:
        return _advance_one(run, fixed, train, valid, hyper, static=static, **options)

    axes = (0, 0, _data_axis(train), _data_axis(valid), 0)
    return jax.vmap(one, in_axes=axes)(runs, fixed, train, valid, hyper)


@eqx.filter_jit
def _start(
    params: Model,
    fixed: Model,
    valid: Data,
    keys: PRNGKeyArray,
    static: Model,
    score: Score,
    schedule: Schedule,
) -> _Run:
    def one(params: Model, fixed: Model, valid: Data, key: PRNGKeyArray) -> _Run:
        value = score(eqx.combine(params, fixed, static), valid)
        zero = jnp.zeros((), jnp.int32)
        status = jnp.where(jnp.isfinite(value), zero + _RUNNING, zero + _NONFINITE)
        moments = _optimiser(schedule).init(params)
        return _Run(params, moments, params, params, value, zero, zero, zero, status, key)

    # Weakly typed leaves would turn strong after the first step and compile it all again.
    params = jax.tree.map(lambda a: jnp.array(a, a.dtype), params)
    return jax.vmap(one, in_axes=(0, 0, _data_axis(valid), 0))(params, fixed, valid, keys)


def _data_axis(data: Data) -> int | None:
    return 0 if data.x.ndim == 3 else None


def fit(
    models: Model,
    train: Data,
    valid: Data,
    *,
    objective: Objective,
    hyper: Hyper,
    schedule: Schedule,
    keys: PRNGKeyArray,
    score: Score = validation_nll,
    trainable: Callable[[Model], Any] | None = None,
    progress: Progress | None = None,
) -> Fits:
    """Train a batch of runs and return the best-scoring parameters of each.

    `models`, `hyper` and `keys` carry the run axis first; so does `data` where runs have
    data of their own. `trainable` maps a model to a tree of booleans for its leaves; by
    default every inexact array is trained. An interrupt from the keyboard ends the loop
    with what has been found so far and marks the runs `interrupted`.
    """
    wanted = eqx.is_inexact_array if trainable is None else trainable(models)
    params, frozen = eqx.partition(models, wanted)
    fixed, static = eqx.partition(frozen, eqx.is_array)
    total = math.ceil(schedule.steps / schedule.eval_every)
    rounds = max(1, math.ceil(total / _PROGRESS_UPDATES))
    options = {"objective": objective, "score": score, "schedule": schedule, "rounds": rounds}
    history: list[tuple[np.ndarray, np.ndarray]] = []
    with jax.default_matmul_precision("highest"):
        runs = _start(params, fixed, valid, keys, static, score, schedule)
        interrupted = False
        try:
            while bool(jnp.any(runs.status == _RUNNING)):
                runs, (loss, value) = _advance(runs, fixed, train, valid, hyper, static, options)
                history.append((np.asarray(loss), np.asarray(value)))
                if progress is not None:
                    progress(int(runs.step.max()), schedule.steps, np.asarray(runs.best_score))
        except KeyboardInterrupt:
            interrupted = True
    status = np.asarray(runs.status)
    if interrupted:
        status = np.where(status == _RUNNING, _INTERRUPTED, status)
    columns = zip(*history, strict=True) if history else ((), ())
    loss_rows, value_rows = ([*c] for c in columns)
    return Fits(
        models=eqx.combine(runs.best, fixed, static),
        best_score=np.asarray(runs.best_score),
        best_step=np.asarray(runs.best_step),
        steps=np.asarray(runs.step),
        stop_reason=tuple(STOP_REASONS[s] for s in status),
        history={
            "train_objective": _joined(loss_rows, len(status)),
            "validation": _joined(value_rows, len(status)),
        },
    )


def _joined(blocks: list[np.ndarray], runs: int) -> np.ndarray:
    return np.concatenate(blocks, axis=1) if blocks else np.zeros((runs, 0))
