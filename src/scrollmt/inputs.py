r"""What a window knows at its origin t: lags, current values, categories, the calendar.

    lags("x").log1p()          T(x(t - history + 1)), ..., T(x(t))          history columns
    current("TEMP", "PRES")    the values at t                              one a name
    one_hot("wind")            1[wind(t) = c]                               one a category c
    calendar("month")          sin and cos of 2 pi month(t) / 12            two a part

Shapes: ``build`` returns ``(N, d)`` for N origins given as row numbers, NaN where a cell that is
needed is missing; ``names`` and ``sources`` (the column of the series) have one entry for each
of the d.
"""

from __future__ import annotations

import abc
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, final

import numpy as np
import pandas as pd

from scrollmt._data.series import Series
from scrollmt._io.arguments import is_whole, read_list, shown
from scrollmt.transforms import Transform, Transformable

# What is done with a category that is none of the known ones.
UNKNOWN = ("error", "ignore")

# (number of the part within its period, length of the period)
_CALENDAR: dict[str, tuple[Callable[[pd.DatetimeIndex], Any], float]] = {
    "hour": (lambda t: t.hour + t.minute / 60, 24.0),
    "weekday": (lambda t: t.day_of_week, 7.0),
    "month": (lambda t: t.month, 12.0),
    "dayofyear": (lambda t: t.day_of_year, 365.25),
}


def lags(column: str, steps: int | Sequence[int] | None = None) -> Lags:
    """Past values of ``column`` up to and with t.

    ``steps``: how many of the latest, or which distances back from t (0 is t itself); by
    default the whole history of the windowing.
    """
    _check_column("lags", column)
    if steps is None:
        return Lags(column)
    given: Any = range(int(steps) - 1, -1, -1) if is_whole(steps) else steps  # type: ignore[arg-type]
    wanted = "a count such as 3, or a list of whole numbers such as [0, 1, 24]"
    listed = read_list(f"lags({column!r}): steps", given, wanted)
    if not all(is_whole(step) for step in listed):
        raise ValueError(f"lags({column!r}): steps must be {wanted}, got {shown(steps)}")
    chosen = tuple(int(step) for step in listed)
    if not chosen or min(chosen) < 0 or len(set(chosen)) < len(chosen):
        raise ValueError(
            f"lags({column!r}): steps are a positive count, or different distances >= 0 back from "
            f"t; got {list(chosen)}. A negative one would read the future."
        )
    return Lags(column, chosen)


def current(*columns: str) -> Current:
    """The values of ``columns`` at t."""
    if not columns:
        raise ValueError("current(...) needs at least one column.")
    for column in columns:
        _check_column("current", column)
    return Current(tuple(columns))


def one_hot(
    column: str, categories: Sequence[Any] | None = None, *, unknown: str = "error"
) -> OneHot:
    """One indicator a category of ``column`` at t.

    Categories are the given ones, or those that the series holds, sorted, and stay fixed from
    then on. Another one is an error, or with ``unknown="ignore"`` a row of zeros and a warning.
    """
    _check_column("one_hot", column)
    if unknown not in UNKNOWN:
        raise ValueError(f"one_hot({column!r}): unknown must be one of {UNKNOWN}, got {unknown!r}.")
    if categories is None:
        return OneHot(column, unknown=unknown)
    categories = read_list(f"one_hot({column!r}): categories", categories, "a list")
    if not len(categories) or len(set(categories)) < len(categories):
        raise ValueError(f"one_hot({column!r}): categories must differ, got {list(categories)}.")
    return OneHot(column, tuple(np.asarray(categories, dtype=object).tolist()), unknown)


def calendar(*parts: str) -> Calendar:
    """Sine and cosine of parts of the date at t: hour, weekday, month, dayofyear."""
    unknown = [part for part in parts if not isinstance(part, str) or part not in _CALENDAR]
    if unknown or not parts:
        raise ValueError(f"calendar(...) takes {list(_CALENDAR)}, got {list(parts)}.")
    return Calendar(tuple(parts))


def _check_column(function: str, column: Any) -> None:
    """Refuse what is no name of a column, a list of names above all."""
    if isinstance(column, str):
        return
    example = f"[{function}('a'), {function}('b')]"
    if function == "current":
        example = "current('a', 'b')"
    raise ValueError(
        f"{function}(...) takes the name of a column, got {shown(column)}; for several columns "
        f"write {example}."
    )


def read_inputs(given: Any) -> tuple[Input, ...]:
    """The inputs of a windowing; text in the place of one is refused by the name to write."""
    example = "[lags('x'), calendar('hour')]"
    inputs = read_list("inputs", given, f"a list such as {example}")
    if not inputs:
        raise ValueError("inputs=[] leaves the model nothing to read; name at least one.")
    for one in inputs:
        if isinstance(one, str):
            raise ValueError(
                f"inputs: {one!r} is text, not an input; write lags({one!r}) for its past values, "
                f"or current({one!r}) for the latest one."
            )
        if not isinstance(one, Input):
            raise ValueError(f"inputs must be a list such as {example}, got {shown(one)} in it.")
    return inputs


class Input(abc.ABC):
    """Some columns of X."""

    @abc.abstractmethod
    def numeric_columns(self) -> tuple[str, ...]:
        """The columns of the series that it reads as numbers."""

    @abc.abstractmethod
    def names(self, history: int) -> list[str]:
        """A name for each column of X."""

    @abc.abstractmethod
    def sources(self, history: int) -> list[str]:
        """The column of the series behind each column of X."""

    @abc.abstractmethod
    def build(
        self, series: Series, numbers: Mapping[str, np.ndarray], rows: np.ndarray, history: int
    ) -> np.ndarray:
        """(N, d) for the origins at ``rows``; ``numbers`` are the columns with gaps filled."""

    @abc.abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """A description for JSON; `input_from_dict` reads it."""

    def learn(self, series: Series) -> Input:
        """The same input with what it had to learn from the series."""
        return self


@final
@dataclass(frozen=True)
class Lags(Input, Transformable):
    """Past values of one column, on a changed scale where asked; oldest first."""

    column: str
    steps: tuple[int, ...] | None = None
    transform: Transform = field(default_factory=Transform)

    def _then(self, step: str) -> Lags:
        return replace(self, transform=self.transform.then(step))

    def numeric_columns(self) -> tuple[str, ...]:
        return (self.column,)

    def names(self, history: int) -> list[str]:
        name = self.transform.describe(self.column)
        return [f"{name}[t-{k}]" if k else f"{name}[t]" for k in self.distances(history)]

    def sources(self, history: int) -> list[str]:
        return [self.column] * len(self.distances(history))

    def build(
        self, series: Series, numbers: Mapping[str, np.ndarray], rows: np.ndarray, history: int
    ) -> np.ndarray:
        back = np.asarray(self.distances(history))
        values = numbers[self.column][rows[:, None] - back]
        return self.transform.checked(values, f"lags({self.column!r})")

    def distances(self, history: int) -> tuple[int, ...]:
        """How many rows before t each column of X is."""
        if self.steps is None:
            return tuple(range(history - 1, -1, -1))
        if max(self.steps) >= history:
            raise ValueError(
                f"lags({self.column!r}) reaches back to t-{max(self.steps)}, but the history is "
                f"{history} rows (t-{history - 1} to t); use Windowing(history="
                f"{max(self.steps) + 1}) or more."
            )
        return self.steps

    def to_dict(self) -> dict[str, Any]:
        steps = None if self.steps is None else list(self.steps)
        return {
            "kind": "lags",
            "column": self.column,
            "steps": steps,
            "transform": list(self.transform.steps),
        }


@final
@dataclass(frozen=True)
class Current(Input, Transformable):
    """Values of some columns at t, all on one changed scale where asked."""

    columns: tuple[str, ...]
    transform: Transform = field(default_factory=Transform)

    def _then(self, step: str) -> Current:
        return replace(self, transform=self.transform.then(step))

    def numeric_columns(self) -> tuple[str, ...]:
        return self.columns

    def names(self, history: int) -> list[str]:
        return [self.transform.describe(column) for column in self.columns]

    def sources(self, history: int) -> list[str]:
        return list(self.columns)

    def build(
        self, series: Series, numbers: Mapping[str, np.ndarray], rows: np.ndarray, history: int
    ) -> np.ndarray:
        values = [
            self.transform.checked(numbers[column][rows], f"current({column!r})")
            for column in self.columns
        ]
        return np.stack(values, axis=1)

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": "current",
            "columns": list(self.columns),
            "transform": list(self.transform.steps),
        }


@final
@dataclass(frozen=True)
class OneHot(Input):
    """Indicators of a category at t; ``categories`` is None until learned."""

    column: str
    categories: tuple[Any, ...] | None = None
    unknown: str = "error"

    def numeric_columns(self) -> tuple[str, ...]:
        return ()

    def learn(self, series: Series) -> OneHot:
        if self.categories is not None:
            return self
        values = series.column(self.column)
        known = set(values[~pd.isna(values)].tolist())
        if not known:
            raise ValueError(f"one_hot({self.column!r}): the series holds no category at all.")
        return replace(self, categories=tuple(sorted(known, key=_by_kind)))

    def names(self, history: int) -> list[str]:
        return [f"{self.column}={category}" for category in self._known()]

    def sources(self, history: int) -> list[str]:
        return [self.column] * len(self._known())

    def build(
        self, series: Series, numbers: Mapping[str, np.ndarray], rows: np.ndarray, history: int
    ) -> np.ndarray:
        values = series.column(self.column)[rows].astype(object)
        missing = pd.isna(values)
        hot = np.stack([values == category for category in self._known()], axis=1).astype(float)
        unseen = np.flatnonzero(~missing & (hot.sum(axis=1) == 0))
        if len(unseen) and self.unknown == "ignore":
            counts = Counter(map(repr, values[unseen])).items()
            warnings.warn(
                f"one_hot({self.column!r}): the fit has not seen "
                f"{', '.join(f'{name} ({count} windows)' for name, count in counts)}; all "
                "indicators are zero there",
                UserWarning,
                stacklevel=2,
            )
        elif len(unseen):
            row = unseen[0]
            raise ValueError(
                f"one_hot({self.column!r}): {values[row]!r} at {series.time[rows[row]]} is none of "
                f"the categories {list(self._known())} ({len(unseen)} such windows). Name all "
                "categories in one_hot(..., categories=[...]) before the fit, mark it missing, or "
                'take new ones as zeros with unknown="ignore".'
            )
        hot[missing] = np.nan
        return hot

    def _known(self) -> tuple[Any, ...]:
        if self.categories is None:
            raise ValueError(
                f"one_hot({self.column!r}): categories are learned when windows are cut."
            )
        return self.categories

    def to_dict(self) -> dict[str, Any]:
        categories = None if self.categories is None else list(self.categories)
        stored = {"kind": "one_hot", "column": self.column, "categories": categories}
        # Only where it was asked for, so that other recipes stay readable for version 0.1.
        return stored if self.unknown == "error" else {**stored, "unknown": self.unknown}


@final
@dataclass(frozen=True)
class Calendar(Input):
    """Sine and cosine of parts of the date at t."""

    parts: tuple[str, ...]

    def numeric_columns(self) -> tuple[str, ...]:
        return ()

    def names(self, history: int) -> list[str]:
        return [f"{wave}({part})" for part in self.parts for wave in ("sin", "cos")]

    def sources(self, history: int) -> list[str]:
        return [part for part in self.parts for _ in range(2)]

    def build(
        self, series: Series, numbers: Mapping[str, np.ndarray], rows: np.ndarray, history: int
    ) -> np.ndarray:
        if not isinstance(series.time, pd.DatetimeIndex):
            raise ValueError(
                f"calendar{self.parts} needs dates, but the time is a number. Pass time=... with "
                "the dates."
            )
        times = series.time[rows]
        waves = []
        for part in self.parts:
            number, period = _CALENDAR[part]
            angle = 2 * np.pi * np.asarray(number(times), dtype=np.float64) / period
            waves += [np.sin(angle), np.cos(angle)]
        return np.stack(waves, axis=1)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "calendar", **asdict(self)}


def _by_kind(category: Any) -> tuple[str, Any]:
    """Sorting key for categories that may mix text and numbers."""
    return type(category).__name__, category


def input_from_dict(stored: Mapping[str, Any]) -> Input:
    """The input that ``to_dict`` described."""
    rest = {k: tuple(v) if isinstance(v, list) else v for k, v in stored.items()}
    kind = rest.pop("kind", None)
    if "transform" in rest:
        rest["transform"] = Transform(rest["transform"])
    kinds: dict[Any, type[Input]] = {
        "lags": Lags,
        "current": Current,
        "one_hot": OneHot,
        "calendar": Calendar,
    }
    if kind not in kinds:
        raise ValueError(f"Not a stored input: kind {kind!r}, keys {sorted(rest)}.")
    return kinds[kind](**rest)
