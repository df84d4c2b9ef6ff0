r"""What is asked of the future of a series: a value, an event, or a band.

A small algebra over the window ``(t, t + lead]`` (``[t, t + lead]`` with ``include_start``):

    at_lead("x").log1p()                  T(x(t + lead))                       -> Real
    over_window("x").mean() > 75          1[mean of x over the window > 75]    -> Event
    at_lead("x").bands([35, 75, 150])     #{edges e : e <= x(t + lead)}        -> Ordinal(4)

(the paper's observables y^(k) = g_k of the trajectory over the lead, Delta = ``lead``).
``evaluate`` takes paths of shape ``(N, steps + 1)``, the first column at t and the last at
t + lead, and returns ``(N,)``. A missing cell gives a missing label (NaN), never a False: also
where the cells that are there would settle the question, since such labels would come only
from one side of the threshold. Band r holds ``edges[r-1] <= x < edges[r]``.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal, final

import numpy as np
from numpy.typing import ArrayLike

from scrollmt.heads import AbstractHead, Event, Ordinal, Real
from scrollmt.transforms import Transform, Transformable

_REDUCERS = ("mean", "max", "min", "sum")
_COMPARISONS = {
    ">": (np.greater, "is above"),
    ">=": (np.greater_equal, "is at least"),
    "<": (np.less, "is below"),
    "<=": (np.less_equal, "is at most"),
}
EdgesFrom = Literal["given", "train", "corpus"]


def at_lead(column: str, *, units: str | None = None) -> Value:
    """The value of ``column`` at t + lead."""
    return Value(column, units=units)


def over_window(column: str, *, include_start: bool = False, units: str | None = None) -> Span:
    """All values of ``column`` over (t, t + lead]; ask for their mean, max, min or sum.

    ``include_start`` counts the value at t too, as for paths on a grid of [t, t + lead].
    """
    return Span(column, include_start=include_start, units=units)


class Observable(abc.ABC):
    """A question about the window; its answers are numbers, yes or no (1 or 0), or bands."""

    @abc.abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The columns of the series that it asks about."""

    @abc.abstractmethod
    def values(self, paths: Mapping[str, Any]) -> np.ndarray:
        """The number behind the label of each path, before a threshold or bands."""

    @abc.abstractmethod
    def label(self, values: np.ndarray) -> np.ndarray:
        """Labels of such numbers, as floats; NaN where the number is missing."""

    @abc.abstractmethod
    def head(self) -> AbstractHead:
        """A fresh head of the kind that the question calls for."""

    @abc.abstractmethod
    def sentence(self, lead: str = "lead") -> str:
        """The question in words."""

    @abc.abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """A description for JSON; `observable_from_dict` reads it."""

    def evaluate(self, paths: Mapping[str, Any]) -> np.ndarray:
        """The label of each path."""
        return self.label(self.values(paths))

    def __str__(self) -> str:
        return self.sentence()


@final
@dataclass(frozen=True)
class Span(Transformable):
    """The values of a column over the window, not yet reduced to one number."""

    column: str
    include_start: bool = False
    before: Transform = field(default_factory=Transform)
    units: str | None = None

    def _then(self, step: str) -> Span:
        return replace(self, before=self.before.then(step))

    def mean(self) -> Value:
        return self._reduce("mean")

    def max(self) -> Value:
        return self._reduce("max")

    def min(self) -> Value:
        return self._reduce("min")

    def sum(self) -> Value:
        return self._reduce("sum")

    def _reduce(self, reducer: str) -> Value:
        before, after = self.before, Transform()
        # An increasing map commutes with an extreme; moved behind it, it can be undone.
        if reducer in ("max", "min"):
            before, after = after, before
        return Value(self.column, reducer, self.include_start, before, after, self.units)


@final
@dataclass(frozen=True)
class Value(Observable, Transformable):
    """One number of the window: the column at t + lead, or a reduction over the window.

    ``after`` is the change of scale that ``inverse`` undoes; ``before`` acts on single values
    inside a mean or a sum and stays (a mean of logs is no log of a mean).
    """

    column: str
    reducer: str | None = None
    include_start: bool = False
    before: Transform = field(default_factory=Transform)
    after: Transform = field(default_factory=Transform)
    units: str | None = None

    def __post_init__(self) -> None:
        if self.reducer is not None and self.reducer not in _REDUCERS:
            raise ValueError(f"Unknown reducer {self.reducer!r}; there are {_REDUCERS}.")

    def _then(self, step: str) -> Value:
        return replace(self, after=self.after.then(step))

    def __gt__(self, threshold: float) -> Condition:
        return Condition(self, ">", threshold)

    def __ge__(self, threshold: float) -> Condition:
        return Condition(self, ">=", threshold)

    def __lt__(self, threshold: float) -> Condition:
        return Condition(self, "<", threshold)

    def __le__(self, threshold: float) -> Condition:
        return Condition(self, "<=", threshold)

    def bands(self, edges: Sequence[float]) -> Bands:
        """Ordered classes cut at the given edges, on the scale of this value."""
        return Bands(self, edges=tuple(edges))

    def quantile_bands(
        self, bands: int | Sequence[float], *, edges_from: EdgesFrom = "train"
    ) -> Bands:
        """Ordered classes cut at quantiles: ``bands`` equal shares, or the probabilities given.

        The edges are learned from the training part; ``edges_from="corpus"`` takes all windows,
        validation and test too, as the paper does on the simulated corpora.
        """
        if isinstance(bands, int | np.integer):
            if isinstance(bands, bool) or bands < 2:
                raise ValueError(f"quantile_bands needs at least 2 bands, got {bands!r}.")
            probs = tuple(r / int(bands) for r in range(1, int(bands)))
        else:
            probs = tuple(float(p) for p in bands)
        if edges_from not in ("train", "corpus"):
            raise ValueError(f"edges_from must be 'train' or 'corpus', got {edges_from!r}.")
        return Bands(self, probs=probs, edges_from=edges_from)

    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def head(self) -> Real:
        return Real()

    @property
    def original_units(self) -> str:
        """Units after ``inverse``; the column's name stands in where none were given."""
        return self.before.describe(self.units or self.column)

    @property
    def label_units(self) -> str:
        return self.after.describe(self.original_units)

    def inverse(self, y: ArrayLike) -> np.ndarray:
        """Back from the scale that the model sees to ``original_units``."""
        return self.after.inverse(y)

    def values(self, paths: Mapping[str, Any]) -> np.ndarray:
        """The number itself for each path, NaN where a cell that it needs is missing."""
        if self.column not in paths:
            raise ValueError(f"No paths for column {self.column!r}; there are {sorted(paths)}.")
        path = np.asarray(paths[self.column])
        if path.ndim != 2 or path.shape[1] < 2:
            raise ValueError(
                f"Paths of column {self.column!r} must have shape (N, steps + 1) with the value "
                f"at t first, got {path.shape}."
            )
        if not np.issubdtype(path.dtype, np.floating):
            path = path.astype(float)
        if self.reducer is None:
            return self.after.checked(path[:, -1], self.column)
        span = self.before.checked(path[:, 0 if self.include_start else 1 :], self.column)
        return self.after.checked(getattr(np, self.reducer)(span, axis=1), str(self))

    def label(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(values)

    def sentence(self, lead: str = "lead") -> str:
        what = self.before.describe(self.column)
        if self.reducer is None:
            return f"{self.after.describe(what)} at t + {lead}"
        opening = "[" if self.include_start else "("
        text = f"the {self.reducer} of {what} over {opening}t, t + {lead}]"
        for step in self.after.steps:
            text = f"{step} of {text}"
        return text

    def amount(self, numbers: Sequence[float]) -> str:
        """Numbers on the scale of this value in words, with the units where they are known."""
        text = ", ".join(f"{number:g}" for number in numbers)
        return f"{text} {self.label_units}" if self.units else text

    def to_dict(self) -> dict[str, Any]:
        steps = {"before": self.before.steps, "after": self.after.steps}
        return {"kind": "value", **vars(self), **steps}


class _About(Observable):
    """A question about one value."""

    value: Value

    def columns(self) -> tuple[str, ...]:
        return self.value.columns()

    def values(self, paths: Mapping[str, Any]) -> np.ndarray:
        return self.value.values(paths)


@final
@dataclass(frozen=True)
class Condition(_About):
    """A yes/no question: the value against a threshold."""

    value: Value
    comparison: str
    threshold: float

    def __post_init__(self) -> None:
        if self.comparison not in _COMPARISONS:
            raise ValueError(f"Unknown comparison {self.comparison!r}; use >, >=, < or <=.")
        object.__setattr__(self, "threshold", _finite(self.threshold, "A threshold", self.value))

    def __bool__(self) -> bool:
        raise ValueError(
            f"'{self}' has no truth value before it is asked of a window. A chained comparison "
            "(a < value < b) is not a question; use value.bands([a, b])."
        )

    def head(self) -> Event:
        return Event()

    def label(self, values: np.ndarray) -> np.ndarray:
        compare, _ = _COMPARISONS[self.comparison]
        return _where_known(values, compare(values, self.threshold))

    def sentence(self, lead: str = "lead") -> str:
        _, verb = _COMPARISONS[self.comparison]
        return f"whether {self.value.sentence(lead)} {verb} {self.value.amount([self.threshold])}"

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "condition", **vars(self), "value": self.value.to_dict()}


@final
@dataclass(frozen=True)
class Bands(_About):
    """An ordered class of the value: which band between the edges holds it.

    ``edges`` are given, or learned at the quantiles ``probs`` of the training windows
    (``edges_from="train"``) or of all windows (``"corpus"``).
    """

    value: Value
    edges: tuple[float, ...] | None = None
    probs: tuple[float, ...] | None = None
    edges_from: EdgesFrom = "given"

    def __post_init__(self) -> None:
        if self.edges is None and self.probs is None:
            raise ValueError(f"Bands of '{self.value}' need edges, or the levels of quantiles.")
        for name in ("edges", "probs"):
            numbers = getattr(self, name)
            if numbers is None:
                continue
            numbers = tuple(_finite(number, f"One of the {name}", self.value) for number in numbers)
            if not numbers or any(b <= a for a, b in pairwise(numbers)):
                raise ValueError(
                    f"{name} of bands of '{self.value}' must be at least one number, increasing "
                    f"without ties; got {list(numbers)}."
                )
            object.__setattr__(self, name, numbers)
        if self.probs is not None and not (self.probs[0] > 0 and self.probs[-1] < 1):
            raise ValueError(f"Quantile levels lie strictly between 0 and 1, got {self.probs}.")

    @property
    def n_bands(self) -> int:
        return len(self.edges or self.probs or ()) + 1

    @property
    def names(self) -> list[str]:
        """A name for each band, in the value's units."""
        edges = [f"{edge:g}" for edge in self._edges()]
        inner = [f"{a} to {b}" for a, b in pairwise(edges)]
        return [f"below {edges[0]}", *inner, f"from {edges[-1]}"]

    def head(self) -> Ordinal:
        return Ordinal(self.n_bands)

    def learn(self, values: np.ndarray) -> Bands:
        """The same bands with edges at the quantiles of ``values`` (missing ones left out)."""
        if self.probs is None:
            raise ValueError(f"'{self}' has given edges; there is nothing to learn.")
        known = np.asarray(values, dtype=float)
        known = known[~np.isnan(known)]
        if len(known) == 0:
            raise ValueError(f"No value to learn the edges of '{self}' from: all are missing.")
        edges = np.quantile(known, self.probs)
        if np.any(np.diff(edges) <= 0):
            raise ValueError(
                f"'{self}': the quantiles coincide (edges {[f'{e:g}' for e in edges]}), because "
                "many values are equal. Ask for fewer bands or give the edges."
            )
        return replace(self, edges=tuple(edges.tolist()))

    def label(self, values: np.ndarray) -> np.ndarray:
        return _where_known(values, np.digitize(values, self._edges()))

    def evaluate(self, paths: Mapping[str, Any]) -> np.ndarray:
        if self.edges is None and self.edges_from == "corpus":
            return self.learn(self.values(paths)).evaluate(paths)
        return super().evaluate(paths)

    def _edges(self) -> tuple[float, ...]:
        if self.edges is None:
            raise ValueError(
                f"The edges of '{self}' are not known yet. Learn them from the training windows: "
                "windows.split(...), windows.label(train_index), or bands.learn(values)."
            )
        return self.edges

    def sentence(self, lead: str = "lead") -> str:
        text = f"the band (of {self.n_bands}) of {self.value.sentence(lead)}, cut at "
        if self.probs is None:
            return text + self.value.amount(self._edges())
        part = "training" if self.edges_from == "train" else "whole"
        levels = ", ".join(f"{p:g}" for p in self.probs)
        source = f"its {levels} quantiles over the {part} corpus"
        return text + (f"{self.value.amount(self.edges)} ({source})" if self.edges else source)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "bands", **vars(self), "value": self.value.to_dict()}


def observable_from_dict(stored: Mapping[str, Any]) -> Observable:
    """The observable that ``to_dict`` described."""
    rest: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in stored.items()}
    kind = rest.pop("kind", None)
    if kind == "value":
        rest |= {name: Transform(rest[name]) for name in ("before", "after")}
        return Value(**rest)
    if kind in ("condition", "bands"):
        rest["value"] = observable_from_dict(rest["value"])
        return (Condition if kind == "condition" else Bands)(**rest)
    raise ValueError(f"Not a stored observable: kind {kind!r}, keys {sorted(rest)}.")


def _finite(number: Any, what: str, value: Value) -> float:
    try:
        number = float(number)
    except (TypeError, ValueError):
        raise ValueError(f"{what} of '{value}' must be a number, got {number!r}.") from None
    if not math.isfinite(number):
        raise ValueError(f"{what} of '{value}' must be finite, got {number}.")
    return float(number)


def _where_known(values: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(values), np.nan, labels.astype(float))
