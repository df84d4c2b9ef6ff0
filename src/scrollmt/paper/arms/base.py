"""What an arm of the comparison is, and a registry that any table reads.

There are two kinds. An `Arm` is a composition: it names its heads and beliefs, the objective it
minimises, the score that stops it and what is done to a fitted model; the arena trains it. An
`OwnArm` (see `own`) trains in any way it likes and hands back laws. Neither scores itself: the
arena computes every metric from laws, for all arms alike.
"""

from __future__ import annotations

import abc
import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from scrollmt.backbone import PAPER_BACKBONES
from scrollmt.combining import Combine
from scrollmt.fit import Hyper, Objective, Score
from scrollmt.heads import AbstractHead, Event, Gaussian, Ordinal
from scrollmt.model import AbstractModel, Model
from scrollmt.objective import Data, backbone_penalty, composed_objective, validation_nll

Setting = Mapping[str, float]
Start = Callable[[Any, Data, Setting], Any]
Finish = Callable[[Any, Data, Data], Model]
Heads = Mapping[str, AbstractHead]

STATE, EVENT, REGIME = "state", "event", "regime"


def questions() -> dict[str, AbstractHead]:
    """The three observables of the paper's corpora, with threshold likelihoods."""
    return {STATE: Gaussian(), EVENT: Event(), REGIME: Ordinal(4)}


def penalised(model: AbstractModel, loss: Array, hyper: Hyper) -> Float[Array, ""]:
    """Every arm's objective carries the same penalty on the backbone's weights."""
    penalty: Array = hyper["backbone_l2"] * backbone_penalty(model)
    return loss + penalty


def as_built(model: Model, train: Data, setting: Setting) -> Model:
    return model


def as_fitted(models: Model, train: Data, valid: Data) -> Model:
    return models


@dataclass(frozen=True)
class AbstractArm(abc.ABC):
    """One row of the comparison.

    - `settings`: numeric hyperparameters, one run each.
    - `members`: how many runs from other starting values are mixed into one forecast.
    - `select`: the column of the records that chooses among settings and backbones.
    - `runs_of`: the arm whose runs this one only selects from: it has none of its own.
    - `backbones`: the names that its jobs may give as backbone.
    - `packages`: distributions that it needs beside those of scrollmt itself.
    """

    name: str
    summary: str
    settings: tuple[Setting, ...] = field(default=({},), hash=False, kw_only=True)
    members: int = field(default=1, kw_only=True)
    select: str = field(default="valid_nats", kw_only=True)
    runs_of: str | None = field(default=None, kw_only=True)
    backbones: tuple[str, ...] = field(default=PAPER_BACKBONES, kw_only=True)
    packages: tuple[str, ...] = field(default=(), kw_only=True)

    def missing_packages(self) -> list[str]:
        """Those of its packages that are not installed; nothing is imported."""
        return [package for package in self.packages if not _installed(package)]

    def setting_texts(self) -> list[str]:
        """Its settings as the records have them."""
        return [json.dumps(dict(setting), sort_keys=True) for setting in self.settings]

    @abc.abstractmethod
    def heads_on(self, tasks: Heads) -> Heads:
        """The heads of the tasks that the arm has laws for, on a corpus that has `tasks`."""

    @abc.abstractmethod
    def describe(self, tasks: Heads | None = None) -> dict[str, Any]:
        """All that determines the arm's results on a corpus with these tasks, as plain values."""

    @abc.abstractmethod
    def modules(self) -> set[str]:
        """The modules of its functions, which a worker process imports to know the arm."""


@dataclass(frozen=True)
class Arm(AbstractArm):
    """A composition, which the arena trains.

    - `heads`, `belief`: what is built, by task name. With `any_tasks` the corpus's own heads take
      the place of `heads`, however many there are.
    - `objective`, `score`: what is minimised, and what stops a run and keeps its best step.
      Settings reach the objective as `hyper`.
    - `combine`: a rule for the gradients of an objective that returns one loss per task.
    - `start(model, train, setting)`: one run's model before training.
    - `trainable(models)`: which leaves move, as `fit` takes it; all by default.
    - `finish(models, train, valid)`: the fitted batch as the models whose laws are scored.
    """

    heads: Callable[[], Heads] = questions
    belief: str = "none"
    objective: Objective = composed_objective
    score: Score = validation_nll
    start: Start = as_built
    trainable: Callable[[Any], Any] | None = None
    finish: Finish = as_fitted
    any_tasks: bool = False
    combine: Combine | None = None

    def heads_on(self, tasks: Heads) -> Heads:
        if self.any_tasks:
            return tasks
        heads = self.heads()
        if lacking := sorted(set(heads) - set(tasks)):
            raise ValueError(
                f"arm {self.name!r} has heads for {lacking}, but the corpus has the tasks "
                f"{[*tasks]}; choose an arm with any_tasks=True, such as scroll-diag"
            )
        return heads

    def describe(self, tasks: Heads | None = None) -> dict[str, Any]:
        heads = self.heads() if tasks is None else self.heads_on(tasks)
        # Without a rule there is no entry: records of such arms stay those of their jobs.
        rule = {} if self.combine is None else {"combine": name_of(self.combine)}
        return rule | {
            "heads": describe_heads(heads),
            "belief": self.belief,
            "objective": name_of(self.objective),
            "score": name_of(self.score),
            "settings": [dict(setting) for setting in self.settings],
            "start": name_of(self.start),
            "trainable": None if self.trainable is None else name_of(self.trainable),
            "finish": name_of(self.finish),
            "members": self.members,
        }

    def modules(self) -> set[str]:
        parts = (self.heads, self.objective, self.score, self.start, self.finish)
        maybe = (self.trainable, self.combine)
        return {module_of(part) for part in (*parts, *maybe) if part is not None}


def _installed(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def describe_heads(heads: Heads) -> dict[str, Any]:
    return {task: _values_of(head) for task, head in sorted(heads.items())}


def _values_of(head: AbstractHead) -> list[Any]:
    """A head by its name and the values that it starts from, which a repr may not show.

    Five digits: the last ones of a logarithm differ between devices.
    """
    leaves = (np.asarray(leaf, float).ravel() for leaf in jax.tree.leaves(head))
    return [repr(head), *([float(f"{v:.5g}") for v in values] for values in leaves)]


def name_of(part: Any) -> str:
    """A function by its name; a partial application with what it applies, and to which values.

    A rule, which is no function, goes by the name of its class and the values of its fields.
    """
    inner = getattr(part, "func", part)
    values: list[tuple[str | None, Any]] = [(None, v) for v in getattr(part, "args", ())]
    values += sorted(getattr(part, "keywords", {}).items())
    if dataclasses.is_dataclass(part) and not callable(part):
        inner = type(part)
        values = [(f.name, getattr(part, f.name)) for f in dataclasses.fields(part)]
    if not hasattr(inner, "__qualname__"):
        raise ValueError(
            f"{part!r:.80} has no name that would tell it from others of its kind; pass a function "
            "or a functools.partial of one, and a rule as a dataclass"
        )
    shown = [
        ("" if key is None else f"{key}=") + (name_of(v) if callable(v) else str(v))
        for key, v in values
    ]
    return f"{inner.__module__}.{inner.__qualname__}({','.join(shown)})"


def module_of(part: Any) -> str:
    """Where a function, or the function of a partial application, was written."""
    return str(getattr(part, "func", part).__module__)


ARMS: dict[str, AbstractArm] = {}
ArmT = TypeVar("ArmT", bound=AbstractArm)


def register(arm: ArmT) -> ArmT:
    """Add an arm to the comparison; every study and table then knows it by its name."""
    if arm.name in ARMS:
        raise ValueError(f"an arm named {arm.name!r} is registered already; choose another name")
    if arm.runs_of is not None and arm.runs_of not in ARMS:
        raise ValueError(
            f"arm {arm.name!r} selects from the runs of {arm.runs_of!r}, which is not registered"
        )
    if len({frozenset(setting) for setting in arm.settings}) != 1:
        raise ValueError(f"arm {arm.name!r}: every setting gives a number to the same names")
    json.dumps(arm.describe())
    ARMS[arm.name] = arm
    return arm


def get_arm(name: str) -> AbstractArm:
    if name not in ARMS:
        raise ValueError(f"unknown arm {name!r}; choose from {', '.join(sorted(ARMS))}")
    return ARMS[name]


@eqx.filter_jit
def map_runs(function: Callable[..., Any], *batched: Any) -> Any:
    """A function of one run's trees, over the run axis of all of them.

    It is compiled once for a function of a module, and each time for one made on the spot.
    """
    return eqx.filter_vmap(function)(*batched)


def one_run(batch: Any, run: int) -> Any:
    """One run of a tree with a leading run axis."""
    return jax.tree.map(lambda a: a[run] if isinstance(a, jax.Array | np.ndarray) else a, batch)


def root_mean_square(values: Array, weight: Array) -> Array:
    return jnp.sqrt(jnp.sum(weight * values * values) / jnp.sum(weight))
