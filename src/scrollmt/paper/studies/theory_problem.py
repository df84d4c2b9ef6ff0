"""A small random problem in double precision, and what the library says of it."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from scrollmt.backbone import Dense
from scrollmt.beliefs import Diag
from scrollmt.heads import AbstractHead, Event, Gaussian, Ordinal
from scrollmt.model import Model, Task
from scrollmt.objective import Data, composed, data_terms, shared_cavity

N, D, H = 12, 3, 5
CLASSES = 4


@cache
def problem() -> tuple[Model, Data]:
    """Three tasks with diagonal beliefs on one tanh layer, at random parameters, no floor."""
    rng = np.random.default_rng(0)
    heads: dict[str, AbstractHead] = {
        "state": Gaussian(0.6),
        "event": Event(0.3),
        "regime": Ordinal(CLASSES),
    }
    tasks = {}
    for name, head in heads.items():
        mu, log_sd = rng.normal(size=H), rng.normal(-1.0, 0.2, size=H)
        belief = Diag(jnp.asarray(mu), jnp.asarray(log_sd), cov_floor=0.0)
        tasks[name] = Task(head, belief, jnp.asarray(rng.normal()))
    labels = {
        "state": jnp.asarray(rng.normal(size=N)),
        "event": jnp.asarray(rng.integers(0, 2, size=N)),
        "regime": jnp.asarray(rng.integers(0, CLASSES, size=N)),
    }
    net = Dense(D, (H,), activation="tanh", bias=False, norm=True, key=jax.random.key(0))
    x = jnp.asarray(rng.normal(size=(N, D)))
    model = jax.tree.map(lambda a: jnp.asarray(a, float), Model(net, tasks))
    return model, Data(x, labels, {name: jnp.ones(N) for name in labels})


class Energies(NamedTuple):
    """What the library says of a model: F_MT, F_SC by task, terms, lines, the backbone's slope."""

    composed: Array
    shared_cavity: dict[str, Array]
    terms: dict[str, Array]
    lines: dict[str, tuple[Array, Array]]
    slope: Array


total = eqx.filter_jit(composed)


@eqx.filter_jit
def energies(model: Model, data: Data) -> Energies:
    value, slope = eqx.filter_value_and_grad(composed)(model, data)
    return Energies(
        value,
        {name: shared_cavity(model, data, name) for name in model.tasks},
        data_terms(model, data),
        model.project(data.x),
        jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(slope.backbone)]),
    )


def difference(a: object, b: object) -> float:
    return float(np.max(np.abs(np.asarray(a) - np.asarray(b))))
