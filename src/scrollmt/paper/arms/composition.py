"""SCROLL-MT itself: the composed objective under the three belief families, and its probes.

`scroll-none`, `scroll-diag` and `scroll-full` differ in the belief alone. The probes freeze
the prior precisions (`frozen-alpha`), or train one head by itself (`alone-state`, ...).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from scrollmt.heads import AbstractHead
from scrollmt.model import Model
from scrollmt.objective import Data
from scrollmt.paper.arms.base import EVENT, REGIME, STATE, Arm, Setting, questions, register

FROZEN_PRECISIONS = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0, 10000.0)

for family, words in (
    ("none", "no belief, a fitted noise scale only"),
    ("diag", "diagonal beliefs"),
    ("full", "unrestricted beliefs"),
):
    register(Arm(f"scroll-{family}", f"composed objective, {words}", belief=family, any_tasks=True))


def _precisions(model: Model) -> list[Any]:
    return [task.log_prior_precision for task in model.tasks.values()]


def start_frozen(model: Model, train: Data, setting: Setting) -> Model:
    """All prior precisions at the setting's one value."""
    value = jnp.log(jnp.asarray(setting["prior_precision"], dtype=float))
    frozen: Model = eqx.tree_at(_precisions, model, [value] * len(model.tasks))
    return frozen


def without_precisions(models: Model) -> Model:
    wanted = jax.tree.map(eqx.is_inexact_array, models)
    others: Model = eqx.tree_at(_precisions, wanted, [False] * len(models.tasks))
    return others


register(
    Arm(
        "frozen-alpha",
        "diagonal beliefs, all prior precisions frozen at one of seven values",
        belief="diag",
        settings=tuple({"prior_precision": value} for value in FROZEN_PRECISIONS),
        start=start_frozen,
        trainable=without_precisions,
        any_tasks=True,
    )
)


def one_question(task: str) -> dict[str, AbstractHead]:
    return {task: questions()[task]}


for task in (STATE, EVENT, REGIME):
    register(
        Arm(
            f"alone-{task}",
            f"diagonal belief, the {task} head by itself",
            heads=partial(one_question, task=task),
            belief="diag",
        )
    )
