"""What an arm of the comparison is: a composition, and a registry that any table reads.

An arm names its heads and beliefs, the objective it minimises, the score that stops it, the
numeric settings it tries and what is done to a fitted model. It owns no training loop and
never scores itself; the arena does both for all arms alike.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from scrollmt.fit import Hyper, Objective, Score
from scrollmt.heads import AbstractHead, Event, Gaussian, Ordinal
from scrollmt.model import AbstractModel, Model
from scrollmt.objective import Data, backbone_penalty, composed_objective, validation_nll

Setting = Mapping[str, float]
Start = Callable[[Any, Data, Setting], Any]
Finish = Callable[[Any, Data, Data], Model]

STATE, EVENT, REGIME = "state", "event", "regime"


def questions() -> dict[str, AbstractHead]:
    """The three observables of the paper's corpora, with threshold likelihoods."""
    return {STATE: Gaussian(), EVENT: Event(), REGIME: Ordinal(4)}


def penalised(model: AbstractModel, loss: Array, hyper: Hyper) -> Float[Array, ""]:
    """Every arm's objective carries the same penalty on the backbone's weights."""
    return loss + hyper["backbone_l2"] * backbone_penalty(model)


def as_built(model: Model, train: Data, setting: Setting) -> Model:
    return model


def as_fitted(models: Model, train: Data, valid: Data) -> Model:
    return models


@dataclass(frozen=True)
class Arm:
    """One row of the comparison.

    - `heads`, `belief`: what is built, by task name.
    - `objective`, `score`: what is minimised, and what stops a run and keeps its best step.
    - `settings`: numeric hyperparameters, one run each; they reach the objective as `hyper`.
    - `start(model, train, setting)`: one run's model before training.
    - `trainable(models)`: which leaves move, as `fit` takes it; all by default.
    - `finish(models, train, valid)`: the fitted batch as the models whose laws are scored.
    - `members`: how many runs from other starting values are mixed into one forecast.
    - `select`: the column of the records that chooses among settings and backbones.
    """

    name: str
    summary: str
    heads: Callable[[], Mapping[str, AbstractHead]] = questions
    belief: str = "none"
    objective: Objective = composed_objective
    score: Score = validation_nll
    settings: tuple[Setting, ...] = field(default=({},), hash=False)
    start: Start = as_built
    trainable: Callable[[Any], Any] | None = None
    finish: Finish = as_fitted
    members: int = 1
    select: str = "valid_nats"
    runs_of: str | None = None

    def describe(self) -> dict[str, Any]:
        """All that determines the arm's results, as plain values.

        `runs_of` names the arm whose runs this one only selects from: it has none of its own.
        """
        return {
            "heads": {task: _values_of(head) for task, head in sorted(self.heads().items())},
            "belief": self.belief,
            "objective": _name_of(self.objective),
            "score": _name_of(self.score),
            "settings": [dict(setting) for setting in self.settings],
            "start": _name_of(self.start),
            "trainable": None if self.trainable is None else _name_of(self.trainable),
            "finish": _name_of(self.finish),
            "members": self.members,
        }


def _values_of(head: AbstractHead) -> list[Any]:
    """A head by its name and the values that it starts from, which a repr may not show.

    Five digits: the last ones of a logarithm differ between devices.
    """
    leaves = (np.asarray(leaf, float).ravel() for leaf in jax.tree.leaves(head))
    return [repr(head), *([float(f"{v:.5g}") for v in values] for values in leaves)]


def _name_of(part: Any) -> str:
    """A function by its name; a partial application with what it applies, and to which values."""
    inner = getattr(part, "func", part)
    if not hasattr(inner, "__qualname__"):
        raise ValueError(
            f"{part!r:.80} has no name that would tell it from others of its kind; pass a function "
            "or a functools.partial of one"
        )
    values = [(None, v) for v in getattr(part, "args", ())]
    values += sorted(getattr(part, "keywords", {}).items())
    shown = [
        ("" if key is None else f"{key}=") + (_name_of(v) if callable(v) else str(v))
        for key, v in values
    ]
    return f"{inner.__module__}.{inner.__qualname__}({','.join(shown)})"


ARMS: dict[str, Arm] = {}


def register(arm: Arm) -> Arm:
    """Add an arm to the comparison; every study and table then knows it by its name."""
    if arm.name in ARMS:
        raise ValueError(f"an arm named {arm.name!r} is registered already; choose another name")
    if arm.runs_of is not None and arm.runs_of not in ARMS:
        raise ValueError(
            f"arm {arm.name!r} selects from the runs of {arm.runs_of!r}, which is not registered"
        )
    unasked = sorted(set(arm.heads()) - set(questions()))
    if unasked:
        raise ValueError(
            f"arm {arm.name!r} has heads for {unasked}, but the corpora ask for {[*questions()]}"
        )
    if len({frozenset(setting) for setting in arm.settings}) != 1:
        raise ValueError(f"arm {arm.name!r}: every setting gives a number to the same names")
    json.dumps(arm.describe())
    ARMS[arm.name] = arm
    return arm


def get_arm(name: str) -> Arm:
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
