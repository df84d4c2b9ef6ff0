r"""Laws of classes: events, ordered classes, classes without an order.

R buckets, kept as log masses so that far tails survive:

    P(y_n = r) = exp(log_probs[n, r]),    r = 0 .. R-1,    sum_r P(y_n = r) = 1

An ensemble (``mix``) averages the masses. Shapes: ``probs``, ``log_probs`` are (N, R). A missing
label (NaN, None or any negative number) gives NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, final

import jax
import numpy as np
import pandas as pd
from jaxtyping import Float, Int, PRNGKeyArray
from scipy.special import logsumexp

from scrollmt.laws.base import (
    Calibrated,
    IntVector,
    Law,
    MemberWeights,
    Numbers,
    Vector,
    class_labels,
    probabilities,
    set_array,
)

# Masses computed in float32 miss a sum of one by about 1e-6; more than this is another mistake.
MASS_TOLERANCE = 1e-4

Matrix = Float[np.ndarray, "N R"]


@dataclass(frozen=True, eq=False, repr=False, init=False)
class DiscreteLaw(Law):
    """R buckets with log masses; what holds whether or not the buckets are ordered."""

    _answers: ClassVar[str] = "law.probs, law.mode"
    log_probs: Matrix

    @property
    def is_event(self) -> bool:
        """Whether there are two classes, of which the second means that an event happens."""
        return False

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes; None where they are numbers."""
        return None

    @property
    def metrics(self) -> tuple[str, ...]:
        return ("accuracy",)

    @property
    def calibrated_by(self) -> Calibrated | None:
        return "unordered"

    def __init__(self, log_probs: Numbers) -> None:
        table = set_array(self, "log_probs", log_probs, 2)
        name = type(self).__name__
        if table.shape[1] < 2:
            raise ValueError(f"{name}: log_probs has shape {table.shape}, need R >= 2 columns")
        with np.errstate(over="ignore"):  # numbers that large are no log masses and fail below
            total = np.exp(table).sum(axis=1)
        bad = ~(np.abs(total - 1.0) <= MASS_TOLERANCE)
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise ValueError(
                f"{name}: the masses of row {row} sum to {total[row]:.6g}, not 1; "
                f"log_probs are log-probabilities, not probabilities or logits"
            )

    def __len__(self) -> int:
        return len(self.log_probs)

    def _rows(self, rows: np.ndarray) -> Self:
        return type(self)(self.log_probs[rows])

    @classmethod
    def _mix(cls, laws: Sequence[Any], weights: MemberWeights | None) -> Self:
        widths = {law.num_classes for law in laws}
        if len(widths) > 1:
            raise ValueError(f"mix: the laws have different numbers of classes: {sorted(widths)}")
        tables = np.stack([law.log_probs for law in laws])
        if weights is None:
            return cls(logsumexp(tables, axis=0) - math.log(len(laws)))
        return cls(logsumexp(tables, axis=0, b=weights[:, :, None]))

    @property
    def num_classes(self) -> int:
        """R."""
        return int(self.log_probs.shape[1])

    @property
    def probs(self) -> Matrix:
        """(N, R) class probabilities."""
        return np.asarray(np.exp(self.log_probs))

    @property
    def mode(self) -> IntVector:
        """The likeliest class; of equal ones the lowest."""
        return np.asarray(np.argmax(self.log_probs, axis=1))

    def labels(self, y: Numbers) -> IntVector:
        """`y` as classes of this law, -1 where missing."""
        return class_labels(y, len(self), self.num_classes)

    def log_prob(self, y: Numbers) -> Vector:
        return self._pick(self.log_probs, self.labels(y))

    def _pick(self, table: Matrix, labels: IntVector) -> Vector:
        """table[n, labels[n]], NaN where the label is missing."""
        picked = np.take_along_axis(table, np.maximum(labels, 0)[:, None], axis=1)[:, 0]
        return np.where(labels >= 0, picked, np.nan)

    def _sample(self, key: PRNGKeyArray, n: int) -> Int[np.ndarray, "n N"]:
        shape = (n, len(self))
        # JAX's default Gumbel noise is too coarse in float32 for classes rarer than about 1e-7.
        draws = jax.random.categorical(key, self.log_probs, shape=shape, mode="high")
        return np.asarray(draws, dtype=np.int64)

    def columns(self, quantiles: Sequence[float], *, wide: bool = False) -> dict[str, np.ndarray]:
        return {f"prob_{r}": self.probs[:, r] for r in range(self.num_classes)}

    def to_frame(self) -> pd.DataFrame:
        """Columns prob_0 .. prob_{R-1}, and mode."""
        return self._table({**self.columns(()), "mode": self.mode})

    def _point(self) -> IntVector:
        return self.mode


@dataclass(frozen=True, eq=False, repr=False, init=False)
class OrderedLaw(DiscreteLaw):
    """Buckets with an order, hence with a distribution function."""

    @property
    def metrics(self) -> tuple[str, ...]:
        return "accuracy", "rps"

    @property
    def calibrated_by(self) -> Calibrated | None:
        return "ordered"

    @property
    def cdfs(self) -> Matrix:
        """(N, R) table of P(Y_n <= r); the last column is one by definition, not by rounding."""
        table = np.cumsum(self.probs, axis=1)
        table[:, -1] = 1.0
        return table

    def cdf(self, r: Numbers) -> Vector:
        """P(Y_n <= r_n) for a class r, scalar or (N,)."""
        return self._pick(self.cdfs, self.labels(r))

    def cdf_pair(self, r: Numbers) -> tuple[Vector, Vector]:
        """P(Y_n < r_n) and P(Y_n <= r_n)."""
        labels, table = self.labels(r), np.pad(self.cdfs, ((0, 0), (1, 0)))
        return self._pick(table[:, :-1], labels), self._pick(table[:, 1:], labels)

    def sf(self, r: Numbers) -> Vector:
        """P(Y_n > r_n) for a class r, scalar or (N,): the masses above it, added up."""
        above = np.cumsum(self.probs[:, :0:-1], axis=1)[:, ::-1]
        return self._pick(np.pad(above, ((0, 0), (0, 1))), self.labels(r))

    def quantile(self, p: Numbers) -> np.ndarray:
        """Smallest class with cdf >= p: (N,) for a scalar `p`, (N, len(p)) for a 1-d one."""
        levels = probabilities(p, "p")
        below = self.cdfs[:, :-1, None] < np.atleast_1d(levels)
        classes = below.sum(axis=1)
        return np.asarray(classes if levels.ndim else classes[:, 0])


@final
@dataclass(frozen=True, eq=False, repr=False, init=False)
class OrdinalLaw(OrderedLaw):
    """R ordered classes, log_probs (N, R)."""


@final
@dataclass(frozen=True, eq=False, repr=False, init=False)
class EventLaw(OrderedLaw):
    """The two-bucket case, log_probs (N, 2): class 1 means that the event happens."""

    def __init__(self, log_probs: Numbers) -> None:
        super().__init__(log_probs)
        if self.num_classes != 2:
            raise ValueError(f"EventLaw: log_probs has shape {self.log_probs.shape}, need (N, 2)")

    @property
    def is_event(self) -> bool:
        return True

    @property
    def class_names(self) -> tuple[str, ...]:
        return "no", "yes"

    @property
    def metrics(self) -> tuple[str, ...]:
        return "accuracy", "brier"

    @property
    def prob(self) -> Vector:
        """Chance that the event happens."""
        return np.asarray(np.exp(self.log_probs[:, 1]))

    def columns(self, quantiles: Sequence[float], *, wide: bool = False) -> dict[str, np.ndarray]:
        # In a table of its own columns an event has one; in one that it shares with other classes,
        # theirs.
        return {"prob": self.prob} if wide else super().columns(quantiles)

    def to_frame(self) -> pd.DataFrame:
        """Columns prob (the chance that the event happens) and mode."""
        return self._table({"prob": self.prob, "mode": self.mode})


@final
@dataclass(frozen=True, eq=False, repr=False, init=False)
class CategoricalLaw(DiscreteLaw):
    """R classes without an order, log_probs (N, R)."""
