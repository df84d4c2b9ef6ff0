r"""What laws of a number have in common, and the law that any head has.

A law with a distribution function F (``RealLaw``) may have atoms, values of positive mass such as
counts or a detection limit; P(Y < y) and P(Y <= y) differ there and nowhere else. All scores of
such laws need only

    cdf_pair(y) = (P(Y < y), P(Y <= y)),    quantile(p) = inf{y : F(y) >= p},    mean, sd.

A ``HeadLaw`` knows no more than its head does: log p(y). It is what a head of your own returns
until you write a law for it.

Ensembles (``mix``) of these laws are exact mixtures: densities, masses and distribution functions
are averaged. Shapes as in ``scrollmt.predictive``; members of a mixture stand along a last axis M.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, Self, final, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.special import logsumexp

from scrollmt.predictive import Law, Numbers, probabilities

Vector = Float[np.ndarray, " N"]
Members = Float[np.ndarray, "N M"]


def members(value: Numbers, law: str, name: str) -> Members:
    """A parameter as a private, read-only float64 array (N, M); (N,) is a single member."""
    array = np.array(value, dtype=np.float64)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2:
        raise ValueError(f"{law}: {name} has shape {array.shape}, need (N,) or (N, M)")
    if not np.isfinite(array).all():
        row = int(np.argwhere(~np.isfinite(array))[0][0])
        raise ValueError(f"{law}: {name} is {array[row]} in row {row}, need finite numbers")
    array.setflags(write=False)
    return array


class RealLaw(Law):
    """N forecasts of a number, each with a distribution function."""

    @property
    @abc.abstractmethod
    def mean(self) -> Vector:
        """E[Y_n]."""

    @property
    @abc.abstractmethod
    def sd(self) -> Vector:
        """Standard deviation of Y_n."""

    @abc.abstractmethod
    def cdf(self, y: Numbers) -> Vector:
        """P(Y_n <= y_n)."""

    @abc.abstractmethod
    def _quantile(self, p: float) -> Vector:
        """Smallest y with P(Y_n <= y) >= p."""

    def cdf_pair(self, y: Numbers) -> tuple[Vector, Vector]:
        """P(Y_n < y_n) and P(Y_n <= y_n); the same where y_n is no atom."""
        upto = self.cdf(y)
        return upto, upto

    def is_atom(self, y: Numbers) -> np.ndarray:
        """Where `log_prob` is the logarithm of a mass, not of a density."""
        return np.zeros(len(self), dtype=bool)

    @property
    def median(self) -> Vector:
        """The value that is exceeded at most half of the time."""
        return self._quantile(0.5)

    def quantile(self, p: Numbers) -> np.ndarray:
        """Smallest y with cdf >= p: (N,) for a scalar `p`, (N, len(p)) for a 1-d one."""
        levels = probabilities(p, "p")
        if levels.ndim == 0:
            return self._quantile(float(levels))
        if levels.size == 0:
            return np.zeros((len(self), 0))
        return np.stack([self._quantile(float(one)) for one in levels], axis=1)

    def interval(self, level: Numbers) -> tuple[np.ndarray, np.ndarray]:
        """The central interval as (lower, upper), like `quantile`: no more than half of the
        remaining mass lies to either side."""
        levels = probabilities(level, "level")
        return self.quantile(0.5 * (1.0 - levels)), self.quantile(0.5 * (1.0 + levels))

    def to_frame(self, level: float = 0.9) -> pd.DataFrame:
        """Columns mean, sd, lower, upper (the central interval at `level`)."""
        lower, upper = self.interval(level)
        return pd.DataFrame({"mean": self.mean, "sd": self.sd, "lower": lower, "upper": upper})


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

    Of `offset + scale * y`, where the head speaks of y. `latent_mean` and `latent_sd` are those
    of the latent line, averaged over the members of a mixture.
    """

    def __init__(self, head: Scored, mean: Numbers, var: Numbers) -> None:
        self._members: tuple[_Member, ...] = (_Member(head, np.asarray(mean), np.asarray(var)),)
        self.offset, self.scale = 0.0, 1.0

    @classmethod
    def _of(cls, given: Sequence[_Member], offset: float, scale: float) -> Self:
        law = cls(*given[0])
        law._members = tuple(given)
        law.offset, law.scale = offset, scale
        return law

    def __len__(self) -> int:
        return len(self._members[0].mean)

    def _rows(self, rows: np.ndarray) -> Self:
        kept = [_Member(m.head, m.mean[rows], m.var[rows]) for m in self._members]
        return self._of(kept, self.offset, self.scale)

    @classmethod
    def _mix(cls, laws: Sequence[Any]) -> Self:
        units = {(law.offset, law.scale) for law in laws}
        counts = {len(law._members) for law in laws}
        if len(units) > 1 or len(counts) > 1:
            raise ValueError("mix: the laws differ in their units or numbers of members")
        return cls._of([m for law in laws for m in law._members], laws[0].offset, laws[0].scale)

    def affine(self, offset: float, scale: float) -> Self:
        """The law of `offset + scale * y`, for scale > 0."""
        return self._of(self._members, offset + scale * self.offset, scale * self.scale)

    @property
    def latent_mean(self) -> np.ndarray:
        return np.asarray(np.mean([m.mean for m in self._members], axis=0, dtype=np.float64))

    @property
    def latent_sd(self) -> np.ndarray:
        within = np.mean([m.var for m in self._members], axis=0, dtype=np.float64)
        return np.sqrt(within + np.var([m.mean for m in self._members], axis=0, dtype=np.float64))

    def log_prob(self, y: Numbers) -> Vector:
        """Log density (or log mass) in nats, NaN where missing; in JAX's current precision."""
        given = np.asarray(y)
        given = np.broadcast_to(given, (len(self), *given.shape[1:])) if given.ndim == 0 else given
        labels, seen = self._members[0].head.read_labels("y", given)
        if (self.offset, self.scale) != (0.0, 1.0):
            labels = (labels - self.offset) / self.scale
        terms = [_log_predictive(m, labels) for m in self._members]
        total = logsumexp(terms, axis=0) - math.log(len(terms)) - math.log(self.scale)
        return np.where(seen, total, np.nan)

    def sample(self, key: PRNGKeyArray, n: int) -> np.ndarray:
        raise TypeError(self._unknown("draws"))

    def to_frame(self) -> pd.DataFrame:
        """Columns latent_mean, latent_sd."""
        return pd.DataFrame({"latent_mean": self.latent_mean, "latent_sd": self.latent_sd})

    def _unknown(self, what: str) -> str:
        name = type(self._members[0].head).__name__
        return f"{name} gives log scores but no {what}: let {name}.law return a law that has them"


@eqx.filter_jit
def _compiled(head: Scored, y: Array, mean: Array, var: Array) -> Array:
    return head.log_predictive(y, mean, var)


def _log_predictive(member: _Member, labels: np.ndarray) -> np.ndarray:
    """Log scores by the head, padded to a power of four so that few programs serve every N."""
    count = len(labels)
    size = 4 ** math.ceil(math.log(max(count, 1), 4))

    def padded(array: np.ndarray) -> Array:
        return jnp.asarray(np.concatenate([array, np.repeat(array[:1], size - count, axis=0)]))

    if count == 0:
        return np.zeros(0)
    out = _compiled(member.head, padded(labels), padded(member.mean), padded(member.var))
    return np.asarray(out, np.float64)[:count]
