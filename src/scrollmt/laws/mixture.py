r"""Equal-weight mixtures: F_mixture(y) = mean_m F_m(y).

`MixtureLaw` is what `mix` gives for any `RealLaw` without a form of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self, final

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray
from scipy.special import logsumexp

from scrollmt.laws.base import LawT, Numbers, Vector
from scrollmt.laws.real import Atoms, RealLaw, bisected


@final
class MixtureLaw(RealLaw):
    """The equal-weight mixture of laws of a number over the same N forecasts, exactly."""

    def __init__(self, components: Sequence[RealLaw]) -> None:
        self.components = tuple(components)
        sizes = [len(law) for law in self.components]
        if len(set(sizes)) != 1:
            raise ValueError(f"MixtureLaw: components of one length are needed, got {sizes}")

    def __len__(self) -> int:
        return len(self.components[0])

    def _rows(self, rows: np.ndarray) -> Self:
        return type(self)([law[rows] for law in self.components])

    def affine(self, offset: float, scale: float) -> Self:
        law = type(self)([one.affine(offset, scale) for one in self.components])
        return law._at_index(self.index)

    @property
    def atoms(self) -> Atoms:
        kinds = {law.atoms for law in self.components}
        return kinds.pop() if len(kinds) == 1 else "some"

    @property
    def metrics(self) -> tuple[str, ...]:
        shared = set.intersection(*(set(law.metrics) for law in self.components))
        return tuple(name for name in super().metrics if name in shared)

    @property
    def mean(self) -> Vector:
        return np.mean([law.mean for law in self.components], axis=0)

    @property
    def sd(self) -> Vector:
        within = np.mean([law.var for law in self.components], axis=0)
        return np.sqrt(within + np.var([law.mean for law in self.components], axis=0))

    def is_atom(self, y: Numbers) -> np.ndarray:
        return np.any([law.is_atom(y) for law in self.components], axis=0)

    def log_prob(self, y: Numbers) -> Vector:
        terms = np.stack([law.log_prob(y) for law in self.components])
        atom = np.stack([law.is_atom(y) for law in self.components])
        # Beside a mass, a density has no share.
        terms = np.where(atom.any(axis=0) & ~atom & ~np.isnan(terms), -np.inf, terms)
        return np.asarray(logsumexp(terms, axis=0)) - math.log(len(terms))

    def cdf(self, y: Numbers) -> Vector:
        return np.mean([law.cdf(y) for law in self.components], axis=0)

    def sf(self, y: Numbers) -> Vector:
        return np.mean([law.sf(y) for law in self.components], axis=0)

    def cdf_pair(self, y: Numbers) -> tuple[Vector, Vector]:
        low, high = np.mean([law.cdf_pair(y) for law in self.components], axis=0)
        return low, high

    def recorded(self, y: Numbers) -> np.ndarray:
        return self.components[0].recorded(y)

    def _quantile(self, p: float) -> Vector:
        # The quantile of a mixture lies between those of its components.
        each = [law.quantile(p) for law in self.components]
        low, high = np.min(each, axis=0), np.max(each, axis=0)
        if p in (0.0, 1.0):
            return low if p == 0.0 else high
        return np.where(self.cdf(low) >= p, low, bisected(self.cdf, p, low, high))

    def _sample(self, key: PRNGKeyArray, n: int) -> Float[np.ndarray, "n N"]:
        which, *keys = jax.random.split(key, 1 + len(self.components))
        draws = np.stack([law._sample(k, n) for law, k in zip(self.components, keys, strict=True)])
        chosen = np.asarray(jax.random.randint(which, (n, len(self)), 0, len(draws)))
        return np.take_along_axis(draws, chosen[None], axis=0)[0]


def mix(laws: Sequence[LawT]) -> LawT:
    """Equal-weight ensemble of laws over the same N forecasts.

    Laws of a number may be of different classes; the ensemble is their exact mixture then.
    """
    members = list(laws)
    if not members:
        raise ValueError("mix: need at least one law")
    kinds = sorted({type(law).__name__ for law in members})
    together = all(isinstance(law, RealLaw) for law in members)
    if len(kinds) > 1 and not together:
        raise ValueError(f"mix: the laws are of different kinds: {kinds}")
    sizes = [len(law) for law in members]
    if len(set(sizes)) > 1:
        raise ValueError(f"mix: the laws hold different numbers of forecasts: {sizes}")
    if len(members) == 1:
        return members[0]
    first, *others = (law.index for law in members)
    agree = first is not None and all(one is not None and first.equals(one) for one in others)
    kind: Any = type(members[0]) if len(kinds) == 1 else RealLaw
    return kind._mix(members)._at_index(first if agree else None)
