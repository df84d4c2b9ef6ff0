r"""The compiled part of training: Adam on one vector per run, scored and kept, many runs at once.

$$\theta \leftarrow \theta - \gamma_t\, \hat m / (\sqrt{\hat v} + \epsilon), \qquad
  \theta^\star = \arg\min_t \text{score}(\theta_t)$$

Within the program a run's parameters are one vector `(P,)`, so that an update is a handful
of kernels whatever the model. A run that has ended stays as it is. A score may be a vector of J
criteria; each then keeps its own best parameters, a run goes on while one of them improves, and
the history shows the last of them.

Another optimiser may take Adam's place, and a rule may combine the gradients of several losses;
both work on trees in the model's own shapes, since some treat layers or tasks differently.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Protocol, TypeAlias, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from scrollmt._fitting.vectors import Tree, check_like, flattened, shaped, shaped_on_host
from scrollmt._io.arguments import check_number, check_whole
from scrollmt._numerics.compiling import RUNS_ONCE
from scrollmt.combining.base import Combine, as_rule, by_task
from scrollmt.objective import Data

Hyper = dict[str, Any]
# One loss, or one loss per task by name.
Losses = Float[Array, ""] | Mapping[str, Float[Array, ""]]
Objective = Callable[[Tree, Data, Hyper, float | Array], Losses]
Score = Callable[[Tree, Data], Float[Array, "*J"]]
# An optimiser, or a function that makes one from a schedule of the learning rate.
Optimizer: TypeAlias = (
    optax.GradientTransformation
    | Callable[[Callable[[Array], Array]], optax.GradientTransformation]
)
# The model as a training step sees it, made from the model and a key of that step.
InTraining = Callable[[Tree, Key[Array, ""]], Tree]

# Sets the keys of training steps apart from those that a round splits off for its minibatches.
_STEP_KEYS = 0x57E9

STOP_REASONS = ("running", "steps", "patience", "nonfinite", "interrupted")
RUNNING, STEPS, PATIENCE, NONFINITE, INTERRUPTED = range(len(STOP_REASONS))


@runtime_checkable
class Stream(Protocol):
    """Training windows that are read from elsewhere, some minibatches at a time."""

    def __len__(self) -> int:
        """How many windows one pass holds."""

    def minibatches(self, key: Key[Array, ""], steps: int, batch: int) -> Iterator[Data]:
        """Without end: data whose leaves begin with the axes `(steps, batch)`."""


@dataclass(frozen=True)
class Schedule:
    """How long and how a run is trained; part of the compiled program.

    `learning_rate` itself is numeric and differs by run (`hyper["learning_rate"]`).
    The rate rises linearly over `warmup` steps and then follows a half cosine down to
    `final_rate` times itself; 1.0 keeps it constant. `average` is the decay of an
    exponential moving average of the parameters, which is then what is scored and kept.
    A run's gradient that is longer than `clip` is cut to that length.
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
    clip: float | None = None

    def __post_init__(self) -> None:
        whole = {"steps": 1, "eval_every": 1, "patience": 1, "warmup": 0}
        whole |= {} if self.batch_size is None else {"batch_size": 1}
        for name, least in whole.items():
            check_whole(f"Schedule: {name}", getattr(self, name), least)
        check_number("Schedule: final_rate", self.final_rate, 0.0)
        check_number("Schedule: eps", self.eps, 0.0)
        for name in ("average", "b1", "b2"):
            check_number(f"Schedule: {name}", getattr(self, name), 0.0, 1.0)
        if self.clip is not None and not (isinstance(self.clip, Real) and self.clip > 0.0):
            raise ValueError(
                f"clip is the longest gradient that is let through and must be > 0, "
                f"got {self.clip}; None lets every gradient through"
            )

    def rate(self, step: Array) -> Array:
        """The share of the learning rate at a step."""
        rise = jnp.minimum(1.0, (step + 1.0) / max(1, self.warmup))
        progress = jnp.clip((step - self.warmup) / max(1, self.steps - self.warmup), 0.0, 1.0)
        cosine = 0.5 * (1.0 + jnp.cos(jnp.pi * progress))
        return rise * (self.final_rate + (1.0 - self.final_rate) * cosine)


class Run(eqx.Module):
    """Everything that moves; each leaf has a leading axis of runs outside of `_advance`."""

    params: Float[Array, "*B P"]
    optimiser: Any
    averaged: Float[Array, "*B P"]
    best: Float[Array, "*BJ P"]
    best_score: Array
    best_step: Array
    step: Array
    waited: Array
    status: Array
    key: Key[Array, "*B"]
    # The state of the rule that combines gradients.
    rule: Any = ()


def _adam(schedule: Schedule) -> optax.GradientTransformation:
    adam = optax.scale_by_adam(b1=schedule.b1, b2=schedule.b2, eps=schedule.eps)
    if schedule.clip is None:
        return adam
    return optax.chain(optax.clip_by_global_norm(schedule.clip), adam)


def _minibatch_indices(key: Key[Array, "*B"], windows: int, count: int, batch: int) -> Array:
    """Window numbers of `count` minibatches: shuffled passes, each window once per pass."""
    passes = math.ceil(count * batch / windows)
    keys = jax.random.split(key, passes)
    order = jax.vmap(lambda k: jax.random.permutation(k, windows))(keys)
    return order.reshape(-1)[: count * batch].reshape(count, batch)


@dataclass(frozen=True)
class Program:
    """What is compiled: everything of `fit` that is not a number."""

    static: Tree
    template: Tree
    objective: Objective
    score: Score
    schedule: Schedule
    rounds: int
    windows: int
    streamed: bool
    # Keep the parameters of given steps, `hyper["keep_at"]`, instead of the best-scoring ones.
    replay: bool = False
    # Runs share one set of windows and train on rows of their own, `hyper["train_rows"]`; what
    # they are scored on are other rows of it, `hyper["valid_rows"]`.
    folds: bool = False
    # None is Adam as the schedule describes it, on the flat vector of parameters.
    optimizer: Optimizer | None = None
    # None adds the losses up, which takes one backward pass however many there are.
    combine: Combine | None = None
    in_training: InTraining | None = None
    # The names of the losses, for the state of that rule.
    loss_names: tuple[str, ...] = ()

    def __hash__(self) -> int:
        return hash((self.objective, self.score, self.schedule, self.rounds, self.windows))

    @property
    def batch(self) -> int | None:
        size = self.schedule.batch_size
        return None if size is None else min(size, self.windows)

    def model(self, flat: Float[Array, " P"], fixed: Tree) -> Tree:
        return eqx.combine(shaped(flat, self.template), fixed, self.static)

    def flat_like(self) -> jax.ShapeDtypeStruct:
        """The shape and type of one run's parameters as a vector."""
        shape: jax.ShapeDtypeStruct = jax.eval_shape(flattened, self.template)
        return shape

    def feed(self, stream: Stream, key: Key[Array, ""]) -> Iterator[Data]:
        """Minibatches for one round after the other."""
        assert self.batch is not None
        return stream.minibatches(key, self.schedule.eval_every, self.batch)

    def value(self, flat: Array, fixed: Tree, data: Data) -> Array:
        return self.score(self.model(flat, fixed), data)

    def watched(self, flat: Array, fixed: Tree, data: Data, hyper: Hyper, step: Array) -> Array:
        """What is lowest where parameters are kept."""
        if self.replay:
            return jnp.abs(hyper["keep_at"] - step).astype(flat.dtype)
        return self.value(flat, fixed, data)

    def judged(self, valid: Data, hyper: Hyper) -> Data:
        """The windows that a run is scored on."""
        return valid.take(hyper["valid_rows"]) if self.folds else valid

    def last_step(self, hyper: Hyper) -> int | Array:
        return jnp.max(hyper["keep_at"]) if self.replay else self.schedule.steps

    def losses(
        self, flat: Array, fixed: Tree, data: Data, hyper: Hyper, key: Key[Array, ""]
    ) -> Losses:
        data_scale = 1.0 if self.batch is None else self.windows / self.batch
        model = self.model(flat, fixed)
        if self.in_training is not None:
            model = self.in_training(model, key)
        return self.objective(model, data, hyper, data_scale)

    def loss(
        self, flat: Array, fixed: Tree, data: Data, hyper: Hyper, key: Key[Array, ""]
    ) -> Array:
        losses = self.losses(flat, fixed, data, hyper, key)
        return _total(losses) if isinstance(losses, Mapping) else losses

    def by_task(
        self, flat: Array, fixed: Tree, data: Data, hyper: Hyper, key: Key[Array, ""]
    ) -> dict[str, Array]:
        return by_task(self.losses(flat, fixed, data, hyper, key))

    def slope(
        self, flat: Array, fixed: Tree, data: Data, hyper: Hyper, key: Key[Array, ""], state: Any
    ) -> tuple[Array, Float[Array, " P"], Any]:
        """The sum of the losses, their gradient, and the state of the rule after this step.

        A rule makes the gradient of those of the tasks, which costs one backward pass per task.
        """
        if self.combine is None:
            return *jax.value_and_grad(self.loss)(flat, fixed, data, hyper, key), state
        seen, drawn = jax.random.split(key)

        def twice(flat: Array) -> tuple[dict[str, Array], dict[str, Array]]:
            losses = self.by_task(flat, fixed, data, hyper, seen)
            return losses, losses

        rows, losses = jax.jacrev(twice, has_aux=True)(flat)
        gradients = {name: shaped(row, self.template) for name, row in rows.items()}
        combined, state = as_rule(self.combine).update(gradients, losses, state, hyper, drawn)
        check_like(self.template, combined, "combine= returned")
        return _total(losses), flattened(combined), state

    def rule_state(self) -> Any:
        """The rule's state at the start."""
        return () if self.combine is None else as_rule(self.combine).init(self.loss_names)

    def own_optimiser(self, hyper: Hyper) -> optax.GradientTransformationExtraArgs:
        """The optimiser that was given, with the learning rate of this run where it takes one."""
        given = self.optimizer
        if not isinstance(given, optax.GradientTransformation):
            assert given is not None
            rate, share = hyper["learning_rate"], self.schedule.rate
            given = given(lambda count: rate * share(count))
            if not isinstance(given, optax.GradientTransformation):
                raise ValueError(
                    "optimizer= must be an optax.GradientTransformation, or a function from a "
                    f"learning-rate schedule to one, and this function returned {given!r:.80}"
                )
        return optax.with_extra_args_support(given)

    def begun(self, flat: Float[Array, " P"], hyper: Hyper) -> Any:
        """The optimiser's state at the start."""
        if self.optimizer is None:
            return _adam(self.schedule).init(flat)
        return self.own_optimiser(hyper).init(shaped(flat, self.template))

    def moved(
        self, run: Run, grads: Array, loss: Array, loss_at: Callable[[Array], Array], hyper: Hyper
    ) -> tuple[Float[Array, " P"], Any]:
        """Parameters and state of the optimiser after one update."""
        if self.optimizer is None:
            direction, state = _adam(self.schedule).update(grads, run.optimiser)
            rate = hyper["learning_rate"] * self.schedule.rate(run.step)
            return run.params - (rate * direction).astype(run.params.dtype), state
        gradient = shaped(grads, self.template)
        # Line searches and rates that follow the loss need these; others ignore them.
        extra = {"value": loss, "grad": gradient, "value_fn": lambda tree: loss_at(flattened(tree))}
        updates, state = self.own_optimiser(hyper).update(
            gradient, run.optimiser, shaped(run.params, self.template), **extra
        )
        check_like(self.template, updates, "optimizer= returned updates")
        return run.params + flattened(updates).astype(run.params.dtype), state


def _total(losses: Mapping[str, Array]) -> Array:
    return sum(losses.values(), start=jnp.zeros(()))


def _advance_one(
    run: Run, fixed: Tree, train: Data, valid: Data, hyper: Hyper, *, program: Program
) -> tuple[Run, tuple[Array, Array]]:
    """One run `rounds` evaluations further; a run that has ended stays as it is."""
    schedule, batch = program.schedule, program.batch

    def step(run: Run, drawn: Any) -> tuple[Run, Array]:
        """One update on all windows (None), on a minibatch, or on the windows of these numbers."""
        data = train if drawn is None else drawn if isinstance(drawn, Data) else train.take(drawn)
        key = jax.random.fold_in(jax.random.fold_in(run.key, _STEP_KEYS), run.step)
        loss, grads, rule = program.slope(run.params, fixed, data, hyper, key, run.rule)
        params, moments = program.moved(
            run, grads, loss, lambda at: program.loss(at, fixed, data, hyper, key), hyper
        )
        averaged = params
        if schedule.average:
            # A smaller decay in the first steps removes the starting values from the average.
            keep = jnp.minimum(schedule.average, (1.0 + run.step) / (10.0 + run.step))
            averaged = keep * run.averaged + (1.0 - keep) * params
        moved = replace(
            run, params=params, optimiser=moments, averaged=averaged, step=run.step + 1, rule=rule
        )
        going = run.status == RUNNING
        # A sum of squares is non-finite exactly when a term is, or when the sum overflows.
        finite = jnp.isfinite(loss) & jnp.isfinite(jnp.sum(grads * grads))
        kept = jax.tree.map(lambda n, o: jnp.where(going & finite, n, o), moved, run)
        return replace(kept, status=jnp.where(going & ~finite, NONFINITE, run.status)), loss

    def one_round(run: Run, _: None) -> tuple[Run, tuple[Array, Array]]:
        going = run.status == RUNNING
        drawn: Any = None
        key = run.key
        if program.streamed:
            drawn = train
        elif batch is not None:
            key, draw = jax.random.split(run.key)
            drawn = _minibatch_indices(draw, program.windows, schedule.eval_every, batch)
        if program.folds:
            own = hyper["train_rows"]
            drawn = own[drawn] if batch is not None else jnp.tile(own, (schedule.eval_every, 1))
        run, losses = jax.lax.scan(step, run, drawn, length=schedule.eval_every)
        # A run that became non-finite within the round keeps its last finite parameters.
        judged = program.judged(valid, hyper)
        value = program.watched(run.averaged, fixed, judged, hyper, run.step)
        better = going & (value < run.best_score)
        waited = jnp.where(better, 0, run.waited + going)
        status = run.status
        for ended, reason in (
            (~jnp.isfinite(value).all(), NONFINITE),
            ((waited >= schedule.patience).all(), PATIENCE),
            (run.step >= program.last_step(hyper), STEPS),
        ):
            status = jnp.where((status == RUNNING) & ended, reason, status)
        run = replace(
            run,
            best=jnp.where(better[..., None], run.averaged, run.best),
            best_score=jnp.where(better, value, run.best_score),
            best_step=jnp.where(better, run.step, run.best_step),
            waited=waited,
            status=status,
            key=key,
        )
        shown = value if value.ndim == 0 else value[-1]
        return run, (jnp.where(going, losses[-1], jnp.nan), jnp.where(going, shown, jnp.nan))

    return jax.lax.scan(one_round, run, None, length=program.rounds)


@functools.partial(jax.jit, static_argnums=0)
def advance(
    program: Program, runs: Run, fixed: Tree, train: Data, valid: Data, hyper: Hyper
) -> tuple[Run, tuple[Array, Array]]:
    """All runs a few rounds further; data with two axes of `x` serves every run."""
    axes = (0, 0, None if program.streamed else data_axis(train), data_axis(valid), 0)
    one = functools.partial(_advance_one, program=program)
    return jax.vmap(one, in_axes=axes)(runs, fixed, train, valid, hyper)


@functools.partial(jax.jit, static_argnums=0, compiler_options=RUNS_ONCE)
def start(
    program: Program, params: Tree, fixed: Tree, valid: Data, hyper: Hyper, keys: Key[Array, " B"]
) -> Run:
    def one(params: Tree, fixed: Tree, valid: Data, hyper: Hyper, key: Key[Array, "*B"]) -> Run:
        flat = flattened(params)
        zero = jnp.zeros((), jnp.int32)
        value = program.watched(flat, fixed, program.judged(valid, hyper), hyper, zero)
        zeros = jnp.zeros(value.shape, jnp.int32)
        status = jnp.where(jnp.isfinite(value).all(), zero + RUNNING, zero + NONFINITE)
        moments = program.begun(flat, hyper)
        best = jnp.broadcast_to(flat, (*value.shape, *flat.shape))
        rule = program.rule_state()
        return Run(flat, moments, flat, best, value, zeros, zero, zeros, status, key, rule)

    axes = (0, 0, data_axis(valid), 0, 0)
    return jax.vmap(one, in_axes=axes)(params, fixed, valid, hyper, keys)


def finish(program: Program, runs: Run, fixed: Tree) -> tuple[Tree, Tree]:
    """The best parameters of every run, and what is fixed, with an axis of criteria if any."""
    best = shaped_on_host(runs.best, program.template)
    if runs.best.ndim == 2:
        return best, fixed
    return best, jax.tree.map(lambda a: jnp.repeat(a[:, None], runs.best.shape[1], axis=1), fixed)


def data_axis(data: Data) -> int | None:
    return 0 if data.x.ndim == 3 else None
