r"""Laws made of other laws: equal-weight mixtures, and a change of units.

    F_mixture(y) = mean_m F_m(y),    F_{offset + scale Y}(y) = F((y - offset) / scale)

They are what `mix` and `affine` give for any `RealLaw` without forms of its own.
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


@final
class AffineLaw(RealLaw):
    """The law of `offset + scale * y`, for scale > 0, given the law of y."""

    def __init__(self, law: RealLaw, offset: float, scale: float) -> None:
        if not scale > 0.0:
            raise ValueError(f"AffineLaw: scale must be > 0, got {scale}")
        self.law, self.offset, self.scale = law, offset, scale

    def _inside(self, y: Numbers) -> np.ndarray:
        return (np.asarray(y, dtype=np.float64) - self.offset) / self.scale

    def _outside(self, y: np.ndarray) -> np.ndarray:
        return self.offset + self.scale * y

    def __len__(self) -> int:
        return len(self.law)

    def _rows(self, rows: np.ndarray) -> Self:
        return type(self)(self.law[rows], self.offset, self.scale)

    @classmethod
    def _mix(cls, laws: Sequence[Any]) -> Any:
        units = {(law.offset, law.scale) for law in laws}
        if len(units) > 1:
            return super()._mix(laws)
        return mix([law.law for law in laws]).affine(*units.pop())

    @property
    def atoms(self) -> Atoms:
        # Whole numbers are whole no more.
        return "none" if self.law.atoms == "none" else "some"

    @property
    def normal(self) -> bool:
        return self.law.normal

    @property
    def metrics(self) -> tuple[str, ...]:
        return self.law.metrics

    @property
    def mean(self) -> Vector:
        return self._outside(self.law.mean)

    @property
    def sd(self) -> Vector:
        return self.scale * self.law.sd

    def is_atom(self, y: Numbers) -> np.ndarray:
        return self.law.is_atom(self._inside(y))

    def log_prob(self, y: Numbers) -> Vector:
        inside = self._inside(y)
        density = self.law.log_prob(inside) - math.log(self.scale)
        return np.where(self.law.is_atom(inside), self.law.log_prob(inside), density)

    def cdf(self, y: Numbers) -> Vector:
        return self.law.cdf(self._inside(y))

    def sf(self, y: Numbers) -> Vector:
        return self.law.sf(self._inside(y))

    def cdf_pair(self, y: Numbers) -> tuple[Vector, Vector]:
        return self.law.cdf_pair(self._inside(y))

    def recorded(self, y: Numbers) -> np.ndarray:
        return self._outside(self.law.recorded(self._inside(y)))

    def crps(self, y: Numbers) -> Vector:
        return self.scale * self.law.crps(self._inside(y))

    def _quantile(self, p: float) -> Vector:
        return self._outside(self.law.quantile(p))

    def _sample(self, key: PRNGKeyArray, n: int) -> Float[np.ndarray, "n N"]:
        return self._outside(self.law._sample(key, n))


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
