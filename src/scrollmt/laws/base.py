r"""What every law has: N forecasts that are picked by row, drawn from, put into a table, mixed.

A law is written with `_rows`, `_mix`, `log_prob`, `_sample` and `to_frame`; those of a number and
of classes are subclasses of `RealLaw` and `DiscreteLaw`, which bring all but a few of them. Scores,
pictures and tables ask a law for what they need, and never look at its class. Indexing, reading
arguments and keeping the index of the inputs are here, once. Shapes as in ``scrollmt.laws``.
"""

from __future__ import annotations

import abc
import copy
import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self, TypeAlias, TypeVar, overload

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Float, Int, PRNGKeyArray

from scrollmt._io.arguments import is_whole, shown

Vector = Float[np.ndarray, " N"]
IntVector = Int[np.ndarray, " N"]
MemberWeights = Float[np.ndarray, "M N"]
# What NumPy can read as numbers. Its own ArrayLike leaves out None, which a label may be, and
# plain floats under a run-time checker.
Numbers: TypeAlias = Any
# What recalibration maps: normal scores of a number, log odds of ordered classes, log masses.
Calibrated: TypeAlias = Literal["number", "ordered", "unordered"]
# A record high is no news; an input as far outside its range as the range is wide is.
FAR_OUT = 1.0


def real_labels(y: Numbers, n: int, name: str = "y") -> Vector:
    """`y` as float64 of shape (n,); None and pandas' NA become NaN; a scalar is repeated."""
    array = np.asarray(y)
    if array.dtype == object:
        kind = pd.api.types.infer_dtype(array.ravel(), skipna=True)
        if kind not in ("integer", "floating", "mixed-integer-float", "boolean", "empty"):
            raise ValueError(f"{name} must hold numbers, got {kind} values; encode them first")
        array = np.where(pd.isna(array), np.nan, array)
    if array.dtype.kind not in "biufO":
        raise ValueError(f"{name} must hold numbers, got dtype {array.dtype}; encode them first")
    if array.ndim > 0 and array.shape != (n,):
        raise ValueError(
            f"{name} has shape {array.shape}, but the law holds {n} forecasts: "
            f"pass a scalar or shape ({n},), such as one column of a table"
        )
    try:
        return np.broadcast_to(array.astype(np.float64), (n,))
    except OverflowError:
        place, digits = _too_large(array)
        raise ValueError(
            f"{name} has a whole number of {digits} digits at position {place}, which no float "
            "holds; give NaN where a value is missing, or change its units"
        ) from None


def _too_large(array: np.ndarray) -> tuple[int, int]:
    """Where the largest integer of an array of objects stands, and how many digits it has."""
    sizes = [abs(one) if isinstance(one, int) else 0 for one in array.ravel()]
    place = max(range(len(sizes)), key=sizes.__getitem__)
    # Python refuses to print integers of more than a few thousand digits.
    return place, int(sizes[place].bit_length() * math.log10(2)) + 1


def class_labels(y: Numbers, n: int, num_classes: int, name: str = "y") -> IntVector:
    """`y` as classes 0 .. num_classes-1 of shape (n,), with -1 for every missing label."""
    values = real_labels(y, n, name)
    wrong = (values >= num_classes) | ((values >= 0.0) & (values != np.floor(values)))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise ValueError(
            f"{name}[{row}] = {values[row]:g} is no class ({int(wrong.sum())} of {n} rows are "
            f"none): classes are the integers 0 to {num_classes - 1}, not continuous values, and a "
            "missing label is NaN, None or negative"
        )
    return np.where(values >= 0.0, values, -1.0).astype(np.int64)


def probabilities(p: Numbers, name: str) -> np.ndarray:
    try:
        array = np.asarray(p, dtype=np.float64)
    except (ValueError, TypeError, OverflowError):
        raise ValueError(
            f"{name} = {shown(p)} must be a number between 0 and 1, or a list of them"
        ) from None
    if array.ndim > 1:
        raise ValueError(f"{name} has shape {array.shape}: pass a scalar or a 1-d array")
    if not np.all((array >= 0.0) & (array <= 1.0)):
        raise ValueError(f"{name} = {array} must lie between 0 and 1")
    return array


class Law(abc.ABC):
    """N forecasts of one task.

    ``index`` says where each forecast is, as that of the inputs did; None where nobody said so.
    ``extrapolation`` says how far the inputs of each forecast lie outside their training range, in
    widths of that range, (N,); 0 inside, None for a law that no model predicted.
    """

    index: pd.Index | None = None
    extrapolation: Vector | None = None
    # What to ask for in the place of an array, for the error message.
    _answers: ClassVar[str] = "law.mean, law.quantile(p)"

    @abc.abstractmethod
    def __len__(self) -> int:
        """N."""

    @abc.abstractmethod
    def _rows(self, rows: np.ndarray) -> Self: ...

    @classmethod
    @abc.abstractmethod
    def _mix(cls, laws: Sequence[Any], weights: MemberWeights | None) -> Any:
        """The mixture of laws of this class; with equal weights where they are None."""

    @classmethod
    def _moment_matched(cls, laws: Sequence[Any]) -> Any:
        """One law with the moments of the mixture; the mixture itself for most laws."""
        return cls._mix(laws, None)

    @abc.abstractmethod
    def log_prob(self, y: Numbers) -> Vector:
        """Log density (or log mass) of each label in nats; NaN where the label is missing."""

    @abc.abstractmethod
    def to_frame(self) -> pd.DataFrame:
        """One row a forecast."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Which of "coverage", "crps", "rmse", "mae", "accuracy", "brier", "rps" suit the law."""
        return ()

    @property
    def calibrated_by(self) -> Calibrated | None:
        """Which kind of map recalibrates the law; None where it has no distribution function."""
        return None

    def columns(self, quantiles: Sequence[float], *, wide: bool = False) -> dict[str, np.ndarray]:
        """What a table of several tasks shows of the law, by column, each (N,)."""
        return {}

    def recorded(self, y: Numbers) -> np.ndarray:
        """Labels (N,) for pictures and verdicts: as they are, unless they can be bounds."""
        return np.asarray(y)

    def affine(self, offset: float, scale: float) -> Law:
        """The law of `offset + scale * y`, for scale > 0."""
        raise TypeError(
            f"a {type(self).__name__} has no other units: write its method affine(offset, scale), "
            "or leave out the target_scale of its head"
        )

    def _sample(self, key: PRNGKeyArray, n: int) -> np.ndarray:
        """(n, N) draws."""
        raise TypeError(f"a {type(self).__name__} has no draws: write its method _sample(key, n)")

    def _point(self) -> np.ndarray:
        """(N,): each forecast as one number or class, for tools that know no laws."""
        raise TypeError(self._no_array())

    @overload
    def sample(self, n: int, seed: int = 0) -> np.ndarray: ...
    @overload
    def sample(self, n: int, *, key: PRNGKeyArray) -> np.ndarray: ...
    @overload
    def sample(self, key: PRNGKeyArray, n: int) -> np.ndarray: ...

    def sample(self, *given: Any, **named: Any) -> np.ndarray:
        """(n, N) draws: `sample(n, seed=0)`, or `sample(n, key=key)` with a key of `jax.random`.

        The same seed gives the same draws, in the precision that JAX is set to. Draws of two laws
        with one seed are not independent: give each law a seed of its own. `sample(key, n)` is
        accepted too.
        """
        return self._sample(*_key_and_count(given, named))

    def __getitem__(self, index: Any) -> Self:
        """The law of some forecasts: an integer, slice, mask or array of rows; always a law."""
        # Indexing the row numbers keeps NumPy's own rules and errors for every kind of index.
        rows = np.asarray(np.arange(len(self))[index])
        if rows.ndim > 1:
            raise IndexError(f"a law has one axis, got an index of {rows.ndim} axes")
        rows = np.atleast_1d(rows)
        return self._rows(rows)._at_inputs(
            None if self.index is None else self.index[rows],
            None if self.extrapolation is None else self.extrapolation[rows],
        )

    def _at_inputs(self, index: pd.Index | None, extrapolation: Vector | None) -> Self:
        """The same law, at inputs of this index and distance."""
        if index is self.index and extrapolation is self.extrapolation:
            return self
        law = copy.copy(self)
        # Laws are frozen for their users.
        object.__setattr__(law, "index", index)
        object.__setattr__(law, "extrapolation", extrapolation)
        return law

    def _at_index(self, index: pd.Index | None) -> Self:
        """The same law with another index."""
        return self._at_inputs(index, self.extrapolation)

    def _at_inputs_of(self, other: Law) -> Self:
        """The same law, at the inputs of another one."""
        return self._at_inputs(other.index, other.extrapolation)

    def _table(self, columns: Mapping[str, np.ndarray]) -> pd.DataFrame:
        return pd.DataFrame(columns, index=self.index)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise TypeError(self._no_array())

    def _no_array(self) -> str:
        return (
            f"a {type(self).__name__} holds {len(self)} distributions, which are no array: ask for "
            f"{self._answers}, law.sample(n, seed=0) or law.to_frame()"
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}(N={len(self)})"


LawT = TypeVar("LawT", bound=Law)


def averaged(values: Sequence[np.ndarray], weights: MemberWeights | None) -> np.ndarray:
    """The average of M arrays (N, ...), with weights that sum to one for each forecast."""
    stacked = np.stack(values)
    if weights is None:
        return np.asarray(stacked.mean(axis=0))
    return np.asarray(np.einsum("mn,mn...->n...", weights, stacked))


def set_array(law: Law, name: str, value: Numbers, ndim: int) -> np.ndarray:
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


def _is_key(value: Any) -> bool:
    """Whether a value is one key of `jax.random`, of the new kind or the old one."""
    if not isinstance(value, jax.Array | np.ndarray):
        return False
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return value.ndim == 0
    return value.dtype == np.uint32 and value.ndim == 1


def _key_and_count(given: tuple[Any, ...], named: dict[str, Any]) -> tuple[PRNGKeyArray, int]:
    """What `sample` was called with, in any of its forms."""
    usage = "call sample(n, seed=0), or sample(n, key=key) with a key of jax.random"
    key_first = bool(given) and _is_key(given[0])
    order = ("key", "n") if key_first else ("n", "seed")
    asked: dict[str, Any] = dict(zip(order, given, strict=False))
    if len(given) > 2 or asked.keys() & named.keys() or not named.keys() <= {"n", "seed", "key"}:
        raise ValueError(f"sample got {len(given)} arguments and {sorted(named)} by name; {usage}")
    asked |= named
    n: Any = asked.get("n")
    seed, key = asked.get("seed"), asked.get("key")
    if key is not None and seed is not None:
        raise ValueError(f"sample got a seed and a key; give one of them: {usage}")
    if not is_whole(n) or n < 0:
        raise ValueError(f"sample: n must be a number of draws >= 0, got {shown(n)}; {usage}")
    if key is None:
        seed = asked.get("seed", 0)
        if not is_whole(seed) or not 0 <= seed < 2**32:
            raise ValueError(
                "sample: seed must be a whole number from 0 to 2**32 - 1, "
                f"got {shown(seed)}; {usage}"
            )
        key = jax.random.key(operator.index(seed))
    elif not _is_key(key):
        raise ValueError(f"sample: key must be one key of jax.random, got {shown(key)}; {usage}")
    return key, operator.index(n)
