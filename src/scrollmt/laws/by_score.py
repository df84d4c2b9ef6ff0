"""The law that any head has: it knows no more than its head does, log p(y).

It is what a head of your own returns until you write a law for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, Self, final, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, PRNGKeyArray
from scipy.special import logsumexp

from scrollmt._numerics.normal import padded_size
from scrollmt.laws.base import Law, MemberWeights, Numbers, Vector, averaged


@runtime_checkable
class Scored(Protocol):
    """What a `HeadLaw` asks of a head."""

    def read_labels(self, name: str, values: Any) -> tuple[np.ndarray, np.ndarray]: ...

    def log_predictive(self, y: Array, mean: Array, var: Array) -> Array: ...


class _Member(NamedTuple):
    head: Scored
    mean: np.ndarray
    var: np.ndarray


@final
class HeadLaw(Law):
    """N forecasts that are known by their log density (or mass) alone.

    Of `offset + scale * y`, where the head is one of y. `latent_mean` and `latent_sd` are those
    of the latent line, averaged over the members of a mixture.
    """

    _answers: ClassVar[str] = "law.log_prob(y), law.latent_mean"

    def __init__(self, head: Scored, mean: Numbers, var: Numbers) -> None:
        self._members: tuple[_Member, ...] = (_Member(head, np.asarray(mean), np.asarray(var)),)
        self._weights: MemberWeights = np.ones((1, len(self)))
        self.offset, self.scale = 0.0, 1.0

    @classmethod
    def _of(
        cls, given: Sequence[_Member], weights: MemberWeights, offset: float, scale: float
    ) -> Self:
        law = cls(*given[0])
        law._members, law._weights = tuple(given), weights
        law.offset, law.scale = offset, scale
        return law

    def __len__(self) -> int:
        return len(self._members[0].mean)

    def _rows(self, rows: np.ndarray) -> Self:
        kept = [_Member(m.head, m.mean[rows], m.var[rows]) for m in self._members]
        return self._of(kept, self._weights[:, rows], self.offset, self.scale)

    @classmethod
    def _mix(cls, laws: Sequence[Any], weights: MemberWeights | None) -> Self:
        units = {(law.offset, law.scale) for law in laws}
        if len(units) > 1:
            raise ValueError(
                f"mix: the laws have different units, (offset, scale): {sorted(units)}"
            )
        shares = np.full((len(laws), len(laws[0])), 1.0 / len(laws)) if weights is None else weights
        each = [share * law._weights for share, law in zip(shares, laws, strict=True)]
        given = [member for law in laws for member in law._members]
        return cls._of(given, np.concatenate(each), *units.pop())

    def affine(self, offset: float, scale: float) -> Self:
        """The law of `offset + scale * y`, for scale > 0."""
        units = offset + scale * self.offset, scale * self.scale
        law = self._of(self._members, self._weights, *units)
        return law._at_inputs_of(self)

    @property
    def latent_mean(self) -> np.ndarray:
        return averaged([m.mean for m in self._members], self._weights)

    @property
    def latent_sd(self) -> np.ndarray:
        centre = self.latent_mean
        square = [m.var + (m.mean - centre) ** 2 for m in self._members]
        return np.asarray(np.sqrt(averaged(square, self._weights)))

    def log_prob(self, y: Numbers) -> Vector:
        """Log density (or log mass) in nats, NaN where missing; in JAX's current precision."""
        given = np.asarray(y)
        given = np.broadcast_to(given, (len(self), *given.shape[1:])) if given.ndim == 0 else given
        labels, seen = self._members[0].head.read_labels("y", given)
        if (self.offset, self.scale) != (0.0, 1.0):
            labels = (labels - self.offset) / self.scale
        terms = [_log_predictive(m, labels) for m in self._members]
        total = logsumexp(terms, axis=0, b=self._weights) - math.log(self.scale)
        return np.where(seen, total, np.nan)

    def _sample(self, key: PRNGKeyArray, n: int) -> np.ndarray:
        raise TypeError(self._unknown("draws"))

    def to_frame(self) -> pd.DataFrame:
        """Columns latent_mean, latent_sd."""
        return self._table({"latent_mean": self.latent_mean, "latent_sd": self.latent_sd})

    def _unknown(self, what: str) -> str:
        name = type(self._members[0].head).__name__
        return f"{name} gives log scores but no {what}: let {name}.law return a law that has them"


@eqx.filter_jit
def _compiled(head: Scored, y: Array, mean: Array, var: Array) -> Array:
    return head.log_predictive(y, mean, var)


def _log_predictive(member: _Member, labels: np.ndarray) -> np.ndarray:
    """Log scores by the head, padded to a power of four so that few programs serve every N."""
    count = len(labels)
    size = padded_size(count)

    def padded(array: np.ndarray) -> Array:
        return jnp.asarray(np.concatenate([array, np.repeat(array[:1], size - count, axis=0)]))

    if count == 0:
        return np.zeros(0)
    out = _compiled(member.head, padded(labels), padded(member.mean), padded(member.var))
    return np.asarray(out, np.float64)[:count]
