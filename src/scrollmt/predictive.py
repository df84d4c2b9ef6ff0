r"""The laws a model returns: one immutable object per task, holding N forecasts.

Gaussian task (eq. of V_n, and the weight of ``cor:weights``):

    y_n ~ N(m_n, V_n),    V_n = sigma_obs^2 + psi_n' Sigma psi_n,    weight_n = 1 / (2 V_n)

Discrete task with R buckets, kept as log masses so that far tails survive:

    P(y_n = r) = exp(log_probs[n, r]),    r = 0 .. R-1,    sum_r P(y_n = r) = 1

Ensembles (``mix``): a Gaussian mixture is summarised by its first two moments,
m = mean_k m_k and V = mean_k V_k + var_k m_k; class masses are averaged.

Shapes: ``mean``, ``sd``, ``var`` are (N,); ``probs``, ``log_probs`` are (N, R). Whatever comes
in, laws compute in NumPy float64. A label ``y`` is a scalar (the same for all forecasts) or
(N,). A missing label (NaN or None; for a discrete law any negative number too) gives NaN.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, final

import jax
import numpy as np
import pandas as pd
import scoringrules
from jaxtyping import Float, Int, PRNGKeyArray
from scipy.special import logsumexp, ndtr, ndtri

from scrollmt.laws.base import (
    IntVector,
    Law,
    LawT,
    Numbers,
    Vector,
    class_labels,
    probabilities,
    real_labels,
)
from scrollmt.laws.derived import mix
from scrollmt.laws.real import RealLaw

__all__ = [
    "CategoricalLaw",
    "DiscreteLaw",
    "EventLaw",
    "GaussianLaw",
    "IntVector",
    "Law",
    "LawT",
    "Matrix",
    "Numbers",
    "OrderedLaw",
    "OrdinalLaw",
    "Vector",
    "central_z",
    "class_labels",
    "mix",
    "probabilities",
    "real_labels",
]

# Masses computed in float32 miss a sum of one by about 1e-6; more than this is another mistake.
MASS_TOLERANCE = 1e-4
# sd given in float32 makes sd**2 round by about 2e-7, relatively.
VARIANCE_TOLERANCE = 1e-6

Matrix = Float[np.ndarray, "N R"]


def _set(law: Any, name: str, value: Numbers, ndim: int) -> np.ndarray:
    """A private, read-only float64 copy of a constructor argument, set on a frozen law."""
    array = np.array(value, dtype=np.float64)
    if array.ndim != ndim:
        wanted = "(N,)" if ndim == 1 else "(N, R)"
        raise ValueError(f"{type(law).__name__}: {name} has shape {array.shape}, need {wanted}")
    if np.isnan(array).any():
        row = int(np.argwhere(np.isnan(array))[0][0])
        raise ValueError(f"{type(law).__name__}: {name} is NaN, first in row {row}")
    array.setflags(write=False)
    object.__setattr__(law, name, array)
    return array


@final
@dataclass(frozen=True, eq=False, repr=False, init=False)
class GaussianLaw(RealLaw):
    """y_n ~ N(mean_n, sd_n^2); `noise_var` (sigma_obs^2, scalar or (N,)) splits the variance."""

    # Fields, in the place of the properties that other laws of a number have; set by `__init__`.
    mean: Vector = None  # type: ignore[assignment]
    sd: Vector = None  # type: ignore[assignment]
    noise_var: Vector | None = None

    def __init__(self, mean: Numbers, sd: Numbers, noise_var: Numbers = None) -> None:
        m = _set(self, "mean", mean, 1)
        s = _set(self, "sd", sd, 1)
        if s.shape != m.shape:
            raise ValueError(f"GaussianLaw: mean has shape {m.shape}, sd has shape {s.shape}")
        bad = ~(np.isfinite(m) & np.isfinite(s) & (s > 0.0))
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise ValueError(
                f"GaussianLaw: need a finite mean and a finite sd > 0, "
                f"row {row} has mean {m[row]:g}, sd {s[row]:g}"
            )
        object.__setattr__(self, "noise_var", None)
        if noise_var is None:
            return
        noise = np.asarray(noise_var, dtype=np.float64)
        if noise.shape not in ((), m.shape):
            raise ValueError(
                f"GaussianLaw: noise_var has shape {noise.shape}, need a scalar or {m.shape}"
            )
        noise = _set(self, "noise_var", np.broadcast_to(noise, m.shape), 1)
        bad = (noise < 0.0) | (noise > s**2 * (1.0 + VARIANCE_TOLERANCE))
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise ValueError(
                f"GaussianLaw: noise_var must lie between 0 and sd^2, "
                f"row {row} has noise_var {noise[row]:g}, sd^2 {s[row] ** 2:g}"
            )

    def __len__(self) -> int:
        return len(self.mean)

    def _rows(self, rows: np.ndarray) -> Self:
        noise = None if self.noise_var is None else self.noise_var[rows]
        return type(self)(self.mean[rows], self.sd[rows], noise)

    @classmethod
    def _mix(cls, laws: Sequence[Any]) -> Self:
        means = np.stack([law.mean for law in laws])
        # Equal to mean(V + m^2) - mean(m)^2, without the cancellation when |m| >> sd.
        var = np.mean([law.var for law in laws], axis=0) + means.var(axis=0)
        noises = [law.noise_var for law in laws if law.noise_var is not None]
        noise = np.mean(noises, axis=0) if len(noises) == len(laws) else None
        return cls(means.mean(axis=0), np.sqrt(var), noise)

    @property
    def normal(self) -> bool:
        return True

    @property
    def belief_var(self) -> Vector | None:
        """V_n - sigma_obs^2, what the belief adds; None where the noise was not given."""
        if self.noise_var is None:
            return None
        # The constructor has refused all but rounding, which alone can make this negative.
        return np.maximum(self.var - self.noise_var, 0.0)

    @property
    def effective_weight(self) -> Vector:
        """1 / (2 V_n): the coefficient of the squared error in nats (``cor:weights``)."""
        return 0.5 / self.var

    def affine(self, offset: float, scale: float) -> Self:
        """The law of `offset + scale * y`, for scale > 0."""
        noise = None if self.noise_var is None else scale**2 * self.noise_var
        law = type(self)(offset + scale * self.mean, scale * self.sd, noise)
        return law._at_index(self.index)

    def standardise(self, y: Numbers) -> Vector:
        """(y_n - mean_n) / sd_n."""
        return (real_labels(y, len(self)) - self.mean) / self.sd

    def log_prob(self, y: Numbers) -> Vector:
        return -0.5 * self.standardise(y) ** 2 - np.log(self.sd) - 0.5 * math.log(2.0 * math.pi)

    def cdf(self, y: Numbers) -> Vector:
        """P(Y_n <= y_n)."""
        return ndtr(self.standardise(y))

    def sf(self, y: Numbers) -> Vector:
        """P(Y_n > y_n), with all digits far to the right, where 1 - cdf has none."""
        return ndtr(-self.standardise(y))

    def quantile(self, p: Numbers) -> np.ndarray:
        """(N,) for a scalar `p`, (N, len(p)) for a 1-d one; infinite at p = 0 and 1."""
        return self._at(ndtri(probabilities(p, "p")))

    def interval(self, level: Numbers) -> tuple[np.ndarray, np.ndarray]:
        """Central interval mean -+ z sd, z = z_{(1+level)/2}, as (lower, upper) like `quantile`."""
        z = central_z(level)
        return self._at(-z), self._at(z)

    def _quantile(self, p: float) -> Vector:
        return self._at(ndtri(p))

    def covered(self, y: Numbers, levels: Numbers) -> np.ndarray:
        distance = np.abs(self.standardise(y))
        z = central_z(levels)
        distance = distance if z.ndim == 0 else distance[:, None]
        return np.where(np.isnan(distance), np.nan, distance <= z)

    def crps(self, y: Numbers) -> Vector:
        labels = real_labels(y, len(self))
        return np.asarray(scoringrules.crps_normal(labels, self.mean, self.sd, backend="numpy"))

    def _at(self, z: Numbers) -> np.ndarray:
        if np.ndim(z) == 0:
            return self.mean + self.sd * z
        return self.mean[:, None] + self.sd[:, None] * z

    def _sample(self, key: PRNGKeyArray, n: int) -> Float[np.ndarray, "n N"]:
        return self.mean + self.sd * np.asarray(jax.random.normal(key, (n, len(self))), np.float64)


def central_z(level: Numbers) -> np.ndarray:
    """z with P(|Z| <= z) = level for a standard normal Z, from the left tail for accuracy."""
    return np.asarray(-ndtri(0.5 * (1.0 - probabilities(level, "level"))))


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

    def __init__(self, log_probs: Numbers) -> None:
        table = _set(self, "log_probs", log_probs, 2)
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
    def _mix(cls, laws: Sequence[Any]) -> Self:
        widths = {law.num_classes for law in laws}
        if len(widths) > 1:
            raise ValueError(f"mix: the laws have different numbers of classes: {sorted(widths)}")
        return cls(logsumexp([law.log_probs for law in laws], axis=0) - math.log(len(laws)))

    @property
    def num_classes(self) -> int:
        """R."""
        return self.log_probs.shape[1]

    @property
    def probs(self) -> Matrix:
        """(N, R) class probabilities."""
        return np.exp(self.log_probs)

    @property
    def mode(self) -> IntVector:
        """The likeliest class; of equal ones the lowest."""
        return np.argmax(self.log_probs, axis=1)

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
        return classes if levels.ndim else classes[:, 0]


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
        return np.exp(self.log_probs[:, 1])

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
