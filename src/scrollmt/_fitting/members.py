"""Laws at new windows: the ensemble members selected for a task, mixed, in the user's units.

    x ──▶ (mean, var) by member ──▶ laws of offset + scale * y by member ──▶ mixed by task

The members of coupled tasks are the same for all of them, and their joint law goes the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from scrollmt._data.answers import Answer
from scrollmt._data.scaling import Scales
from scrollmt._io.store import ENABLE_X64
from scrollmt._numerics.normal import padded_size
from scrollmt.heads import AbstractHead
from scrollmt.laws import Law, LawT, mix, moment_matched
from scrollmt.laws.joint import JointLaw, Laws
from scrollmt.model import Model

T = TypeVar("T")
Line: TypeAlias = tuple[np.ndarray, np.ndarray]
# More windows than this go through in several parts: they stay in the caches, and only the last one
# is padded.
_AT_ONCE = 4**6


@dataclass(frozen=True)
class Mixing:
    """How the laws of a task's members become one.

    `committee` has the members by task; `weights` and `answers` go along with it. Without weights
    members are weighed equally; without answers a task is answered by its own head. With
    `moments`, Gaussian laws become one with their mixture's two moments, as in the paper; such
    members are weighed equally.
    """

    committee: Mapping[str, Sequence[int]]
    weights: Mapping[str, Sequence[float]] | None = None
    moments: bool = False
    answers: Mapping[str, Sequence[Answer]] | None = None

    def only(self, numbers: Sequence[int]) -> Mixing:
        """The mixing of some members; tasks that have none of them are left out."""
        kept = {
            name: [place for place, number in enumerate(own) if number in numbers]
            for name, own in self.committee.items()
        }
        kept = {name: places for name, places in kept.items() if places}
        return Mixing(
            {name: [self.committee[name][k] for k in own] for name, own in kept.items()},
            _at(self.weights, kept),
            self.moments,
            _at(self.answers, kept),
        )

    def places(self, name: str) -> list[tuple[int, Answer]]:
        """The members of a task, each with the answer that is read off it."""
        members = self.committee[name]
        own = [Answer(name)] * len(members) if self.answers is None else self.answers[name]
        return list(zip(members, own, strict=True))

    def mixed(self, name: str, laws: Sequence[LawT]) -> LawT:
        """One law of a task, from those of its members in their order."""
        if self.moments:
            return moment_matched(laws)
        return mix(laws, None if self.weights is None else self.weights[name])


def _at(
    values: Mapping[str, Sequence[T]] | None, places: Mapping[str, Sequence[int]]
) -> dict[str, list[T]] | None:
    if values is None:
        return None
    return {name: [values[name][k] for k in own] for name, own in places.items()}


def laws(
    tasks: Iterable[str],
    members: Sequence[Model],
    mixing: Mixing,
    scales: Scales,
    x: np.ndarray,
) -> Laws:
    """The law of every task at standardised inputs `(N, D)`, mixed over its selected members."""
    wanted = {name: mixing.places(name) for name in tasks}
    used = {(number, answer.head) for own in wanted.values() for number, answer in own}
    read: dict[tuple[int, str], Law] = {}
    coupled: dict[tuple[str, ...], list[JointLaw]] = {}
    for number, member in enumerate(members):
        names = [name for name in member.tasks if (number, name) in used]
        latent = project(member, x) if names else {}
        # Cut to size only afterwards: the head's arithmetic is compiled for padded sizes.
        for name in names:
            read[number, name] = law(member.tasks[name].head, latent[name], name, scales)[: len(x)]
        heads = {name: task.head for name, task in member.tasks.items()}
        for coupling in member.couplings:
            if coupling.names[0] in names:
                joint = coupling.law(heads, latent)[: len(x)]
                coupled.setdefault(coupling.names, []).append(joint)
    mixed = {
        name: mixing.mixed(name, [answer.law(read[number, answer.head]) for number, answer in own])
        for name, own in wanted.items()
    }
    return Laws(
        mixed,
        (
            mixing.mixed(names[0], said).affine(
                [scales.offset[n] for n in names], [scales.scale[n] for n in names]
            )
            for names, said in coupled.items()
        ),
    )


def law(head: AbstractHead, line: Line, name: str, scales: Scales) -> Law:
    """The law of a head in the user's units."""
    if name in scales.offset:
        return head.rescaled_law(*line, scales.offset[name], scales.scale[name])
    return head.law(*line)


def project(model: Model, x: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """`(mean, var)` by task, padded with average windows so that few programs serve every N.

    In the precision of the fit, whatever JAX is set to now.
    """
    dtype = next(iter(model.tasks.values())).belief.mu.dtype
    if dtype == np.float64 and jnp.result_type(float) != np.float64:
        raise ValueError(f"the model was fitted in float64 and JAX is set to float32; {ENABLE_X64}")
    pieces = []
    for start in range(0, len(x), _AT_ONCE):
        part = x[start : start + _AT_ONCE]
        size = _AT_ONCE if start else padded_size(len(part))
        padded = np.zeros((size, x.shape[1]), dtype)
        padded[: len(part)] = part
        with jax.default_matmul_precision("highest"):
            pieces.append(_project(model, jnp.asarray(padded)))
    lines: dict[str, tuple[np.ndarray, np.ndarray]]
    lines = jax.tree.map(lambda *a: np.concatenate(a), *pieces)
    return lines


@eqx.filter_jit
def _project(model: Model, x: Float[Array, "N D"]) -> dict[str, tuple[Array, Array]]:
    return model.project(x)
