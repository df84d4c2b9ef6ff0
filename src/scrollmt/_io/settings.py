"""The settings of a `Forecaster`, checked when it is fitted and not before, as in scikit-learn."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import optax

from scrollmt._io.arguments import is_whole, shown
from scrollmt.beliefs import read_beliefs
from scrollmt.fit import Optimizer
from scrollmt.heads import AbstractHead

# Between the seeds of an ensemble's members, so that ensembles of nearby seeds share none.
MEMBER_STRIDE = 1000
RECALIBRATIONS = ("none", "isotonic", "conformal")


def read_heads(tasks: Any, belief: Any) -> dict[str, AbstractHead]:
    """Heads by task; a choice of beliefs that does not suit them is refused."""
    if not isinstance(tasks, Mapping) or not tasks:
        raise ValueError(
            "tasks must be a non-empty mapping of name to head, "
            "such as {'state': Gaussian(), 'event': Event()}"
        )
    for name, head in tasks.items():
        if not isinstance(name, str) or not isinstance(head, AbstractHead):
            raise ValueError(
                f"task {name!r}: expected a text name and a head such as Gaussian(), got {head!r}"
            )
        if head.asked_of is not None and head.asked_of.of == name:
            raise ValueError(
                f"task {name!r}: {head!r} is asked of itself; give the task another name than its "
                "number"
            )
    read_beliefs(belief, tasks)
    return dict(tasks)


def read_optimizer(optimizer: Any) -> Optimizer | None:
    """An optimiser of the user's own; None for "adam", the one of the preset."""
    if isinstance(optimizer, optax.GradientTransformation) or callable(optimizer):
        return optimizer
    if not isinstance(optimizer, str) or optimizer != "adam":
        raise ValueError(
            "optimizer must be 'adam', an optax.GradientTransformation, or a function from a "
            f"learning-rate schedule to one such as optax.lion, got {shown(optimizer)}; a model "
            "folder stores no optimizer of your own: set it before you fit a loaded model anew"
        )
    return None


def read_calibrate(calibrate: Any, joint: Any) -> str:
    """How laws are recalibrated; tasks with a joint law keep theirs."""
    if not isinstance(calibrate, str) or calibrate not in RECALIBRATIONS:
        raise ValueError(
            f"calibrate must be one of {', '.join(map(repr, RECALIBRATIONS))}, "
            f"got {shown(calibrate)}"
        )
    if calibrate != "none" and joint is not None:
        raise ValueError(
            f"calibrate={calibrate!r} changes the law of each task alone, and joint= needs them "
            "Gaussian together; leave out one of the two"
        )
    return calibrate


def warn_of_shared_start(backbone: Any, members: int) -> None:
    """A module may be trained already: it is not drawn anew, so that members start alike."""
    if members > 1 and isinstance(backbone, eqx.Module):
        warnings.warn(
            f"all {members} members start from the weights of the one backbone given; pass "
            "a function or class that takes a key and makes it, so that they start apart",
            UserWarning,
            stacklevel=3,
        )


def read_seeds(seed: Any, ensemble: Any, seeds: Any) -> list[int]:
    """One seed a member of the ensemble."""
    if not is_whole(ensemble) or ensemble < 1:
        raise ValueError(f"ensemble must be a whole number from 1 on, got {shown(ensemble)}")
    if seeds is not None:
        try:
            members: list[Any] = list(seeds)
        except TypeError:
            raise ValueError(
                f"seeds must be a list with one seed a member, such as [1, 2, 3], got "
                f"{shown(seeds)}; ensemble=M chooses M seeds by itself"
            ) from None
        if not members or ensemble != 1:
            raise ValueError("give either ensemble=M or a non-empty seeds=[...], not both")
    else:
        members = []
    for one in (seed, *members):
        if not is_whole(one) or not 0 <= one < 2**32:
            raise ValueError(f"seed must be a whole number from 0 to 2**32 - 1, got {shown(one)}")
    if members:
        return [int(one) for one in members]
    return [int(seed) + MEMBER_STRIDE * k for k in range(ensemble)]
