"""Beliefs in a description: scrollmt's own by the name of their family, others by their fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from scrollmt._io.store.custom import Classes, fields_of, from_fields
from scrollmt._io.store.folder import ModelFolderError
from scrollmt.beliefs import (
    BELIEFS,
    AbstractBelief,
    Choices,
    Diag,
    Full,
    LowRank,
    Maker,
    read_belief,
)
from scrollmt.routing import Fixed

# The name of a belief that was computed and not trained.
FIXED = "fixed"


def describe(name: str, belief: AbstractBelief) -> dict[str, Any]:
    """A belief by the name of its family, or a user's own by its fields."""
    if type(belief) is Fixed:
        return {"belief": FIXED, "cov_floor": 0.0, "rank": belief.root.shape[-2]}
    family = next((f for f, kind in BELIEFS.items() if type(belief) is kind), None)
    if family is None:
        try:
            return {"belief": {"type": type(belief).__name__, "fields": fields_of(belief)}}
        except TypeError as error:
            raise ValueError(f"task {name!r}: the belief cannot be saved: {error}") from None
    floor = belief.cov_floor if isinstance(belief, Diag | Full | LowRank) else 0.0
    rank = {"rank": belief.factor.shape[-2]} if isinstance(belief, LowRank) else {}
    return {"belief": family, "cov_floor": floor, **rank}


def from_description(
    name: str, stored: dict[str, Any], features: int, rows: int, custom: Classes
) -> AbstractBelief:
    """A belief whose arrays are shapes alone."""
    match stored["belief"]:
        case str(family) if family == FIXED:
            computed: AbstractBelief = eqx.filter_eval_shape(_zeros, features, stored["rank"])
            return computed
        case str(family):
            rank = {"rank": stored["rank"]} if BELIEFS[family] is LowRank else {}
            floor = stored["cov_floor"]
            make = BELIEFS[family].of(**rank)
            key = jax.random.key(0)
            shapes: AbstractBelief = eqx.filter_eval_shape(
                make, features, key, rows=rows, cov_floor=floor
            )
            return shapes
        case {"type": str(kind), "fields": dict(fields)}:
            if issubclass(custom.get(kind, object), AbstractBelief):
                own: AbstractBelief = from_fields(custom[kind], fields, custom)
                return own
            raise ModelFolderError(
                f"task {name!r}: the belief is a {kind}, which is not part of scrollmt; pass its "
                f"class: load(path, custom=[{kind}])"
            )
    raise ModelFolderError(f"task {name!r}: unknown belief {stored['belief']!r:.60}")


def _zeros(features: int, rank: int) -> Fixed:
    return Fixed(jnp.zeros(features), jnp.zeros((rank, features)))


def choices_to_json(given: Choices) -> Any:
    """The setting `belief` of an estimator: a name as it is, classes by name, by task."""
    if isinstance(given, str):
        return given
    if isinstance(given, Mapping):
        return {"by_task": {name: choices_to_json(one) for name, one in given.items()}}
    kind = read_belief(given).kind
    family = next((f for f, own in BELIEFS.items() if kind is own), None)
    named = {"type": kind.__name__} if family is None else {"family": family}
    return {**named, "options": dict(given.options)} if isinstance(given, Maker) else named


def choices_from_json(stored: Any, custom: Classes) -> Any:
    """The setting `belief` of `choices_to_json`."""
    match stored:
        case str():
            return stored
        case {"by_task": dict(each)}:
            return {name: choices_from_json(one, custom) for name, one in each.items()}
        case {"family": str(family)}:
            kind: Any = BELIEFS[family]
        case {"type": str(name)}:
            kind = custom[name]
        case _:
            raise ModelFolderError(f"belief is {stored!r:.60}")
    return kind.of(**stored["options"]) if "options" in stored else kind


def probe(belief: AbstractBelief) -> np.ndarray:
    """Means and variances at fixed features: a fingerprint of a belief."""
    size = belief.mu.shape[-1]
    psi = np.sin(np.arange(1.0, 1.0 + 4 * size)).reshape(4, size)
    with jax.default_matmul_precision("highest"):
        mean, var = belief.project(jnp.asarray(psi, belief.mu.dtype))
    return np.concatenate([np.ravel(mean), np.ravel(var)])
