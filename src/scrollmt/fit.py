"""Many runs as one program: Adam on a given objective, validation, best parameters kept.

`fit` knows no model and no loss. It takes a batch of runs along a leading axis, a scalar
`objective(model, data, hyper, data_scale)` and a scalar `score(model, data)` to watch,
and moves every run by the same compiled program. A run ends when its budget is spent,
when its score has not improved for `patience` evaluations, or when a value stops being
finite; its best-scoring parameters are always finite and are what is returned. Between
calls of the program, runs that have ended leave the batch as soon as the time that a batch of
half the size saves is longer than its compilation.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Key

from scrollmt._fitting.memory import clear_jit_cache, cut, live_bytes, worth_compiling
from scrollmt._fitting.outcome import Fits, together
from scrollmt._fitting.step import (
    INTERRUPTED,
    RUNNING,
    STOP_REASONS,
    Hyper,
    InTraining,
    Objective,
    Optimizer,
    Program,
    Run,
    Schedule,
    Score,
    Stream,
    advance,
    data_axis,
    finish,
    start,
)
from scrollmt._fitting.vectors import Tree, template_of
from scrollmt._numerics.compiling import stacked, taken
from scrollmt.combining import Combine
from scrollmt.objective import Data, validation_nll

__all__ = [
    "STOP_REASONS",
    "Combine",
    "Fits",
    "Hyper",
    "InTraining",
    "Objective",
    "Optimizer",
    "Schedule",
    "Score",
    "Stream",
    "fit",
    "stack",
]

Progress = Callable[[int, int, np.ndarray], None]
_PROGRESS_UPDATES = 25


def stack(models: list[Tree]) -> Tree:
    """Models of one structure as one batch with a leading run axis."""
    return stacked(models)


def _pick_data(data: Any, places: np.ndarray) -> Any:
    """Data of the picked runs; what serves all runs stays as it is."""
    if not isinstance(data, Data) or data_axis(data) is None:
        return data
    return jax.tree.map(lambda a: a[places], data)


def _replicated(tree: Any, data: Data) -> Any:
    """The tree on every device that holds a share of the data."""
    sharding = getattr(data.x, "sharding", None)
    if not isinstance(sharding, NamedSharding) or len(sharding.device_set) == 1:
        return tree
    everywhere = NamedSharding(sharding.mesh, PartitionSpec())

    def place(leaf: Any) -> Any:
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            kind = jax.random.key_impl(leaf)
            return jax.random.wrap_key_data(place(jax.random.key_data(leaf)), impl=kind)
        # From the host, since an array of this process cannot be moved to another's device.
        return jax.device_put(np.asarray(leaf), everywhere)

    return jax.tree.map(place, tree)


def _key_like() -> Any:
    return jax.eval_shape(lambda: jax.random.key(0))


@functools.lru_cache(maxsize=64)
def _run_bytes(program: Program, structure: Any, *leaves: jax.ShapeDtypeStruct) -> int:
    """An estimate of the memory that one run takes, from the shapes of what it reads.

    Cached, because it traces a step and a batch needs it after every few rounds.
    """
    fixed, train, valid, hyper = jax.tree.unflatten(structure, leaves)
    flat = program.flat_like()
    state = jax.eval_shape(program.rule_state)
    size: int = flat.size * flat.dtype.itemsize
    return 6 * size + max(
        live_bytes(program.slope, flat, fixed, train, hyper, _key_like(), state),
        live_bytes(program.value, flat, fixed, valid),
    )


@dataclass(frozen=True)
class Batch:
    """Runs that are trained together, and what they are trained on."""

    program: Program
    params: Tree
    fixed: Tree
    train: Data | Stream
    valid: Data
    hyper: Hyper
    keys: Key[Array, " B"]

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, places: np.ndarray) -> Batch:
        return replace(
            self,
            params=taken(self.params, places),
            fixed=taken(self.fixed, places),
            train=_pick_data(self.train, places),
            valid=_pick_data(self.valid, places),
            hyper=taken(self.hyper, places),
            keys=self.keys[places],
        )

    @property
    def windows(self) -> int:
        """How many windows all runs hold in one step."""
        judged = self.hyper["valid_rows"].shape[1] if self.program.folds else len(self.valid)
        return len(self) * ((self.program.batch or self.program.windows) + judged)

    def shapes(self) -> tuple[Tree, Data, Data, Hyper]:
        """The shapes of what one run reads: what is fixed, windows, validation, numbers."""

        def windows(data: Data, rows: int) -> Any:
            """The shapes of so many windows of one run."""
            axes = 1 if data_axis(data) is None else 2
            return jax.tree.map(
                lambda a: jax.ShapeDtypeStruct((rows, *a.shape[axes:]), a.dtype), data
            )

        program, valid = self.program, self.valid
        train = self.train if isinstance(self.train, Data) else valid
        judged = self.hyper["valid_rows"].shape[1] if program.folds else len(valid)
        return (
            template_of(self.fixed),
            windows(train, program.batch or program.windows),
            windows(valid, judged),
            template_of(self.hyper),
        )

    def run_bytes(self) -> int:
        """An estimate of the memory that one run takes."""
        leaves, structure = jax.tree.flatten(self.shapes())
        return _run_bytes(self.program, structure, *leaves)

    def with_loss_names(self) -> Batch:
        """The same, with the names of the objective's losses in the program."""
        program = self.program
        fixed, train, _, hyper = self.shapes()
        losses = jax.eval_shape(
            program.by_task, program.flat_like(), fixed, train, hyper, _key_like()
        )
        return replace(self, program=replace(program, loss_names=tuple(sorted(losses))))

    def outcome(self, runs: Run, history: np.ndarray, interrupted: bool) -> Fits:
        status = np.asarray(runs.status)
        if interrupted:
            status = np.where(status == RUNNING, INTERRUPTED, status)
        return Fits(
            models=eqx.combine(*finish(self.program, runs, self.fixed), self.program.static),
            best_score=np.asarray(runs.best_score),
            best_step=np.asarray(runs.best_step),
            steps=np.asarray(runs.step),
            stop_reason=tuple(STOP_REASONS[s] for s in status),
            history={"train_objective": history[0], "validation": history[1]},
        )


def _train(batch: Batch, progress: Progress | None, skip: bool) -> Fits:
    """Advance all runs of a batch to their ends, or until an interrupt."""
    program = batch.program
    everyone = start(program, batch.params, batch.fixed, batch.valid, batch.hyper, batch.keys)
    # The runs that have not ended, and their places in the whole batch.
    moving, places, runs = batch, np.arange(len(batch)), everyone
    feed = None if isinstance(batch.train, Data) else program.feed(batch.train, batch.keys[0])
    blocks: list[np.ndarray] = []
    interrupted = skip
    try:
        while not skip and (np.asarray(runs.status) == RUNNING).any():
            data = moving.train if feed is None else next(feed)
            runs, record = advance(program, runs, moving.fixed, data, moving.valid, moving.hyper)
            block = np.full((2, len(batch), program.rounds), np.nan)
            block[:, places] = np.asarray(record)
            blocks.append(block)
            if progress is not None:
                best = np.array(everyone.best_score)
                best[places] = np.asarray(runs.best_score)
                progress(int(np.asarray(runs.step).max()), program.schedule.steps, best)
            stay = _survivors(moving, runs)
            if stay is not None:
                everyone = _settled(everyone, places, runs)
                moving, places, runs = moving.take(stay), places[stay], taken(runs, stay)
    except KeyboardInterrupt:
        interrupted = True
    history = np.concatenate(blocks, axis=2) if blocks else np.zeros((2, len(batch), 0))
    return batch.outcome(_settled(everyone, places, runs), history, interrupted)


def _survivors(batch: Batch, runs: Run) -> np.ndarray | None:
    """Which runs make up a batch of half the size, a quarter or less, if that is worth compiling.

    Runs that have ended fill the places that are left, so that few sizes are ever compiled.
    """
    status = np.asarray(runs.status)
    running = np.flatnonzero(status == RUNNING)
    size = len(batch)
    while len(running) <= (size + 1) // 2 < size:
        size = (size + 1) // 2
    if size == len(batch) or not running.size:
        return None
    steps_left = batch.program.schedule.steps - int(np.asarray(runs.step)[running].min())
    if not worth_compiling((len(batch) - size) * steps_left * batch.run_bytes()):
        return None
    ended = np.flatnonzero(status != RUNNING)
    return np.sort(np.concatenate([running, ended[: size - len(running)]]))


def _settled(everyone: Run, places: np.ndarray, runs: Run) -> Run:
    if len(places) == len(everyone.status):
        return runs
    settled: Run = jax.tree.map(lambda a, b: a.at[places].set(b), everyone, runs)
    return settled


def _check_optimizer(optimizer: Any, schedule: Schedule) -> None:
    if not callable(optimizer) and not isinstance(optimizer, optax.GradientTransformation):
        raise ValueError(
            "optimizer must be an optax.GradientTransformation such as optax.sgd(0.1), or a "
            f"function from a learning-rate schedule to one such as optax.sgd, got {optimizer!r}"
        )
    usual = Schedule()
    of_adam = [n for n in ("b1", "b2", "eps", "clip") if getattr(schedule, n) != getattr(usual, n)]
    if of_adam:
        raise ValueError(
            f"Schedule: {', '.join(of_adam)} belong to the built-in Adam and have no effect on "
            "optimizer=...; give them to that optimizer instead"
        )


def fit(
    models: Tree,
    train: Data | Stream,
    valid: Data | None,
    *,
    objective: Objective,
    hyper: Hyper,
    schedule: Schedule,
    keys: Key[Array, " B"],
    score: Score = validation_nll,
    trainable: Callable[[Tree], Any] | None = None,
    optimizer: Optimizer | None = None,
    combine: Combine | None = None,
    in_training: InTraining | None = None,
    progress: Progress | None = None,
    memory_budget: float | None = None,
) -> Fits:
    """Train a batch of runs and return the best-scoring parameters of each.

    `models`, `hyper` and `keys` carry the run axis first; so does `data` where runs have
    data of their own. Training windows may come from a `Stream` instead, which then serves
    all runs. `trainable` maps a model to a tree of booleans for its leaves; by
    default every inexact array is trained. An interrupt from the keyboard ends the loop
    with what has been found so far and marks the runs `interrupted`. A batch that would
    take more than `memory_budget` bytes is cut into equal parts that are trained one after
    the other; by default that is half of the device's memory, and on a CPU what its caches
    hold, where runs do not share a stream. With `hyper["keep_at"]` the score is ignored: each
    run, or each of its criteria, keeps the parameters of that step. With `valid=None` all runs
    share the windows of `train`: run b trains on the rows `hyper["train_rows"][b]` and is scored
    on the rows `hyper["valid_rows"][b]`, as the folds of a cross-validation are.

    `optimizer` takes the place of Adam: an `optax.GradientTransformation`, which is used as it is
    and has its own learning rate, or a function such as `optax.lion` that makes one from a
    learning-rate schedule, which is then that of the run and of `schedule`. It sees gradients and
    parameters in the shape of the model.

    The objective may return a mapping of task to loss instead of one loss. Their sum is trained
    on, or what `combine(gradients, losses, hyper, key)` makes of the gradients by task: it gets
    and returns gradients in the shape of the model (None where a leaf is not trained), at the cost
    of one backward pass per task. A rule that needs a state has `init` and `update` instead; see
    `scrollmt.combining`, which has such rules ready. `in_training(model, key)` makes the model as
    one training step sees it, with dropout for example; the score sees the model itself. Both get
    a fresh key in every step.
    """
    streamed = not isinstance(train, Data)
    folds = valid is None
    if valid is None:
        if not isinstance(train, Data) or not {"train_rows", "valid_rows"} <= set(hyper):
            raise ValueError(
                "fit: valid=None needs windows in memory and the rows of every run, "
                'hyper["train_rows"] and hyper["valid_rows"]'
            )
        valid = train
    if streamed and schedule.batch_size is None:
        raise ValueError("a stream of windows is trained on minibatches: set Schedule.batch_size")
    if optimizer is not None:
        _check_optimizer(optimizer, schedule)
    clear_jit_cache()
    wanted = eqx.is_inexact_array if trainable is None else trainable(models)
    params, frozen = eqx.partition(models, wanted)
    fixed, static = eqx.partition(frozen, eqx.is_array)
    rounds = math.ceil(math.ceil(schedule.steps / schedule.eval_every) / _PROGRESS_UPDATES)
    program = Program(
        static,
        template_of(params),
        objective,
        score,
        schedule,
        rounds=1 if streamed else max(1, rounds),
        windows=hyper["train_rows"].shape[1] if folds else len(train),
        streamed=streamed,
        folds=folds,
        replay="keep_at" in hyper,
        optimizer=optimizer,
        combine=combine,
        in_training=in_training,
    )
    params, fixed, hyper, keys = _replicated((params, fixed, hyper, keys), valid)
    batch = Batch(program, params, fixed, train, valid, hyper, keys)
    if combine is not None:
        batch = batch.with_loss_names()
    with jax.default_matmul_precision("highest"):
        pieces = cut(len(batch), memory_budget, batch.windows, batch.run_bytes, shared=streamed)
        if len(pieces) == 1:
            return _train(batch, progress, skip=False)
        parts: list[Fits] = []
        for places in pieces:
            interrupted = any(part.interrupted for part in parts)
            parts.append(_train(batch.take(places), progress, skip=interrupted))
    # The last part was filled up to the size of the others with runs it repeats.
    return together(parts).first(len(batch))
