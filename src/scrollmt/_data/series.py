r"""A table of equally spaced rows, read from pandas, polars, NumPy or a mapping, and its gaps.

Row i lies at time ``t_0 + i step``. Gaps of a numeric column (runs of NaN) are filled linearly,
by one of two rules with the same ``limit``:

    strict   a run of at most ``limit`` rows between two values is filled; a longer run stays
             missing in full, and so does one at an end of the series
    paper    the first ``limit`` rows of every run after the first value are filled (longer runs
             too, on the line to the next value; with the last value at the end of the series)

Both look past the gap: a filled row just before t can hold knowledge of the hours after t.
Shapes: every column is (rows,).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import narwhals as nw
import numpy as np
import pandas as pd

from scrollmt._data.frames import as_table

GapRule = Literal["strict", "paper"]
_SHOWN = 5


@dataclass(frozen=True, eq=False)
class Series:
    """Checked time index, its step (a ``Timedelta``, or a number), and the columns as given."""

    time: pd.Index
    step: Any
    columns: dict[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.time)

    @property
    def timezone(self) -> str | None:
        """The name of the times' zone, None where they have none that can be stored."""
        zone = self.time.tz if isinstance(self.time, pd.DatetimeIndex) else None
        try:
            return None if zone is None else str(self.time[:1].tz_convert(str(zone)).tz)
        except (ValueError, KeyError):  # of dateutil, for one
            return None

    def in_zone(self, timezone: str) -> Series:
        """The same times on the clock of a zone."""
        return replace(self, time=pd.DatetimeIndex(self.time).tz_convert(timezone))

    def column(self, name: str) -> np.ndarray:
        if name not in self.columns:
            raise ValueError(f"The series has no column {name!r}; it has {list(self.columns)}.")
        return self.columns[name]

    def numbers(self, name: str) -> np.ndarray:
        """A column as float64 with NaN for missing."""
        raw = self.column(name)
        try:
            numbers = pd.Series(raw).astype("Float64")
            values: np.ndarray = numbers.to_numpy(dtype=float, na_value=np.nan)
        except (TypeError, ValueError, OverflowError):
            odd = pd.Series(raw).notna() & pd.to_numeric(pd.Series(raw), errors="coerce").isna()
            rows = np.flatnonzero(odd)
            where = f": {raw[rows[0]]!r} in {_some(self.time, rows)}" if len(rows) else ""
            raise ValueError(
                f"Column {name!r} does not hold numbers (dtype {raw.dtype}){where}. Convert it "
                "first, mark such cells as missing (NaN), or use it as one_hot(...)."
            ) from None
        if np.any(np.isinf(values)):
            rows = np.flatnonzero(np.isinf(values))
            raise ValueError(
                f"Column {name!r} is infinite at {_some(self.time, rows)}; mark such values as "
                "missing (NaN)."
            )
        return values


def read_series(frame: Any, time: Any = None, columns: Sequence[str] | None = None) -> Series:
    """Read a frame and check its time index.

    ``frame``: a frame of pandas, polars or pyarrow, a mapping of names to arrays, an xarray
    Dataset over one dimension, or a NumPy array of shape (rows, columns) with ``columns`` naming
    them. ``time``: the name of the time column or of the index, or the times themselves; by
    default the index where it holds dates or numbers (of a Dataset: its coordinate), else the
    row number. Periods count from their start.
    """
    index: pd.Index | None = None
    frame = as_table(frame, "the series")
    if isinstance(frame, pd.DataFrame):
        index = frame.index
        table = {str(name): frame[name].to_numpy() for name in frame.columns}
        if len(table) != len(frame.columns):
            raise ValueError(f"Column names must differ, got {list(frame.columns)}.")
    elif isinstance(frame, Mapping):
        table = {str(name): np.asarray(values) for name, values in frame.items()}
    elif isinstance(frame, np.ndarray):
        table = _from_array(frame, columns)
    else:
        raise ValueError(
            f"Cannot read a {type(frame).__name__}: give a frame of pandas, polars or pyarrow, a "
            "mapping of names to arrays, or a NumPy array with columns=[...]."
        )
    lengths = {name: np.shape(values) for name, values in table.items()}
    if not lengths or any(len(shape) != 1 for shape in lengths.values()):
        raise ValueError(f"Every column must be one-dimensional; shapes are {lengths}.")
    if len(set(lengths.values())) > 1:
        raise ValueError(f"Columns differ in length: {lengths}.")
    n = next(iter(lengths.values()))[0]
    times = _time_index(table, time, index, n)
    return Series(times, _step(times), table)


def fill_gaps(values: np.ndarray, limit: int, rule: GapRule) -> np.ndarray:
    """``values`` with its gaps filled by ``rule`` (see the module's formula)."""
    if rule not in get_args(GapRule):
        raise ValueError(f"gaps must be one of {get_args(GapRule)}, got {rule!r}.")
    missing = np.isnan(values)
    if limit == 0 or not missing.any() or missing.all():
        return values
    seen = np.flatnonzero(~missing)
    rows = np.arange(len(values))
    # np.interp holds the end values; which of those may be used is settled below.
    line = np.interp(rows, seen, values[seen])
    previous = np.searchsorted(seen, rows, side="right") - 1
    depth = rows - seen[np.maximum(previous, 0)]
    fill = missing & (previous >= 0) & (depth <= limit)
    if rule == "strict":
        inside = (previous >= 0) & (previous < len(seen) - 1)
        run = np.diff(seen, append=seen[-1] + 1)[np.maximum(previous, 0)] - 1
        fill = missing & inside & (run <= limit)
    return np.where(fill, line, values)


def duration(rows: int, step: Any) -> str:
    """So many rows in words, in the unit that the step suggests."""
    if not isinstance(step, pd.Timedelta):
        return f"{rows * step:g}"
    for unit, name in (("D", "d"), ("h", "h"), ("min", "min"), ("s", "s")):
        count = step / pd.Timedelta(1, unit)
        if count >= 1:
            return f"{rows * count:g} {name}"
    return str(rows * step)


def _from_array(array: np.ndarray, columns: Sequence[str] | None) -> dict[str, np.ndarray]:
    if array.dtype.names:
        return {name: array[name] for name in array.dtype.names}
    table = array[:, None] if array.ndim == 1 else array
    if columns is None or table.ndim != 2 or table.shape[1] != len(columns):
        raise ValueError(
            f"A NumPy array of shape {array.shape} needs columns=[...] with one name for each of "
            f"its columns, got {columns!r}."
        )
    return {str(name): table[:, i] for i, name in enumerate(columns)}


def _time_index(
    table: dict[str, np.ndarray],
    time: Any,
    index: pd.Index | None,
    n: int,
) -> pd.Index:
    if isinstance(time, str):
        if time in table:
            times = pd.Index(table.pop(time))
        elif index is not None and index.name == time:
            times = index
        else:
            dated = isinstance(index, pd.DatetimeIndex | pd.PeriodIndex)
            hint = f", and the index of dates has the name {index.name!r}" if dated else ""  # type: ignore[union-attr]
            raise ValueError(f"No time column {time!r}; the columns are {list(table)}{hint}.")
    elif time is not None:
        # A zone that a polars Series has is lost in its NumPy array.
        given = nw.from_native(time, series_only=True, pass_through=True)
        times = pd.Index(given.to_list() if isinstance(given, nw.Series) else given)
        if len(times) != n:
            raise ValueError(f"time has {len(times)} entries for {n} rows.")
    elif isinstance(index, pd.DatetimeIndex | pd.PeriodIndex):
        times = index
    else:
        dates = [name for name, values in table.items() if values.dtype.kind == "M"]
        if dates:
            raise ValueError(
                f"Which column is the time? Pass time={dates[0]!r} (columns with dates: {dates})."
            )
        times = index if index is not None else pd.RangeIndex(n)
    return _dates_or_numbers(times)


def _dates_or_numbers(times: pd.Index) -> pd.Index:
    if pd.api.types.is_numeric_dtype(times.dtype) or isinstance(times, pd.DatetimeIndex):
        return times
    try:
        if pd.api.types.infer_dtype(times) == "period":
            return pd.PeriodIndex(times).to_timestamp()
        # Only the one format that can be read in one way: 01/02/2021 is two different days.
        return pd.DatetimeIndex(pd.to_datetime(times, format="ISO8601", utc=_clocks_change(times)))
    except (TypeError, ValueError):
        raise ValueError(
            "The time column holds neither numbers nor dates such as 2021-02-01 05:00; it begins "
            f"with {times[0]!r}. Parse it first with pandas.to_datetime(column, format=...)."
        ) from None


def _clocks_change(times: pd.Index) -> bool:
    """Whether all are texts with an offset from UTC, of summer and of winter."""
    texts = [one for one in times if isinstance(one, str)]
    offsets = pd.Series(texts, dtype=str).str.extract(r"([zZ]|[+-]\d\d:?\d\d)\s*$")[0]
    return len(texts) == len(times) and bool(offsets.notna().all() and offsets.nunique() > 1)


def _step(times: pd.Index) -> Any:
    """The common step; an error that names the rows where the times do not keep it."""
    if len(times) < 2:
        raise ValueError(f"A series needs at least 2 rows, got {len(times)}.")
    if times.hasnans:
        rows = np.flatnonzero(times.isna())
        raise ValueError(f"The time is missing in rows {_list(rows)}; drop or repair them.")
    repeated = np.flatnonzero(times.duplicated())
    if len(repeated):
        raise ValueError(
            f"Times occur more than once: {_some(times, repeated)}. Keep one row a time, for "
            "instance frame[~frame.index.duplicated()]."
        )
    steps = times[1:] - times[:-1]
    zero = pd.Timedelta(0) if isinstance(times, pd.DatetimeIndex) else 0
    back = np.flatnonzero(steps < zero) + 1
    if len(back):
        raise ValueError(
            f"Times run backwards at {_some(times, back)}. Sort the series by time first."
        )
    usual = steps.value_counts().index[0]
    if isinstance(times, pd.DatetimeIndex):
        odd = np.flatnonzero(steps != usual) + 1
    else:
        # float times such as 0.01 k are equal steps up to rounding
        odd = np.flatnonzero(~np.isclose(steps, usual, rtol=1e-6, atol=0.0)) + 1
    if len(odd):
        raise ValueError(
            f"The time step changes at {_some(times, odd)} (expected {usual}). A missing hour is a "
            "row of missing values, not a missing row: frame.asfreq(...) makes it one."
        )
    return usual if isinstance(times, pd.DatetimeIndex) else usual.item()


def _some(times: pd.Index, rows: np.ndarray) -> str:
    text = ", ".join(f"row {row} ({times[row]})" for row in rows[:_SHOWN])
    return text + (f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else "")


def _list(rows: np.ndarray) -> str:
    more = f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
    return ", ".join(map(str, rows[:_SHOWN])) + more
