"""The time of each row of a series: read, put in order, and laid on a grid of equal steps.

    columns of [data] time ──▶ dates ──▶ in data.timezone ──▶ sorted, one row a time ──▶ step grid

A row that the file does not have becomes one of missing values, since only so windows know that
they lack it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from scrollmt.cli.config import STANDARD_STREAM, UNIX, Source
from scrollmt.cli.shell import KeyProblem, Problem, note

# A grid with so many more points than the file has rows comes from a slip in the times.
_MOST_ROWS_MISSING = 0.9
_PARTS = ("year", "month", "day", "hour", "minute", "second")
_OFFSET = r"(?:[zZ]|[+-]\d\d:?\d\d)\s*$"
_ZONE = 'timezone = "Europe/Berlin"'


def named(file: str) -> str:
    return "standard input" if file == STANDARD_STREAM else file


def need_columns(
    frame: pd.DataFrame,
    wanted: Iterable[str],
    where: str,
    role: str = "",
    *,
    kind: str = "column",
) -> None:
    """Refuse a table that lacks a column; ``role`` says what the column is for."""
    for column in wanted:
        if column not in frame:
            raise Problem(
                f"{where} has no {kind} {column!r}{role}; there are "
                f"{', '.join(map(repr, frame.columns))}"
            )


def dated(frame: pd.DataFrame, source: Source) -> pd.DataFrame:
    """The rows of a series in the order of time, one a time, its time as dates or numbers.

    With ``source.step``, dated rows are put on its grid.
    """
    if source.time is None:
        return frame
    where = named(source.files[0])
    need_columns(frame, source.time_columns, where, kind="time column")
    times = read_times(frame, source)
    if times.isna().any():
        rows = np.flatnonzero(times.isna())
        raise Problem(
            f"{where}: the time is missing in {len(rows)} rows, first in row {rows[0]}; fill it in "
            "or leave the row out"
        )
    if source.timezone is not None:
        times = _in_zone(times, source.timezone, where)
    frame = frame.assign(**{source.time: times})
    if not times.is_monotonic_increasing:
        note(f"{where} is not in the order of time; it was sorted by time")
        frame = frame.sort_values(source.time, kind="stable", ignore_index=True)
    frame = _one_row_a_time(frame, source.time, source.duplicates, where)
    if source.step is None:
        return frame
    if not pd.api.types.is_datetime64_any_dtype(frame[source.time].dtype):
        raise Problem(
            f"data.step = '{source.step}' needs dates, but {source.time!r} of {where} holds "
            "numbers; leave it out, or give data.time_format"
        )
    return on_grid(frame, source.time, source.step, where)


def read_times(frame: pd.DataFrame, source: Source) -> pd.Series:
    """The time of each row as a date or a number, as the file has it."""
    columns = [frame[name] for name in source.time_columns]
    if len(columns) == 1:
        return _times(columns[0], source)
    numbers = [pd.api.types.is_numeric_dtype(one.dtype) for one in columns]
    if source.time_format is None and all(numbers):
        parts = dict(zip(_PARTS, columns, strict=False))
        try:
            return pd.to_datetime(pd.DataFrame(parts))
        except (ValueError, TypeError, OverflowError) as error:
            raise Problem(
                f"{named(source.files[0])}: {', '.join(source.time_columns)} are no "
                f"{', '.join(parts)} of dates; row 1 below the header has "
                f"{', '.join(str(one.iloc[0]) for one in columns)}"
            ) from error
    if source.time_format is None and numbers[-1] and len(columns) == 2:
        day = _times(columns[0], source)
        return day + pd.to_timedelta(columns[1], unit="h")
    texts = [one.astype(str).where(one.notna()) for one in columns]
    joined = texts[0].str.cat(texts[1:], sep=" ")
    return _times(joined, source)


def _times(column: pd.Series, source: Source) -> pd.Series:
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        return column
    if isinstance(column.dtype, pd.PeriodDtype):
        return column.dt.to_timestamp()
    if source.time_format is None and pd.api.types.is_numeric_dtype(column.dtype):
        return column
    wanted = source.time_format or "ISO8601"
    try:
        if wanted in UNIX:
            return pd.to_datetime(pd.to_numeric(column), unit=UNIX[wanted], utc=True)
        column = column.astype(str).where(column.notna())
        # Clocks that change between summer and winter time have two offsets in one file.
        offset = column.str.contains(_OFFSET, regex=True, na=False).any()
        return pd.to_datetime(column, format=wanted, utc=bool(offset))
    except Exception as error:
        found = column.dropna()
        shown = repr(found.iloc[0]) if len(found) else "nothing"
        hint = (
            f"does not follow data.time_format = {wanted!r}"
            if source.time_format
            else "holds neither numbers nor dates such as 2021-02-01 05:00; describe it in "
            "data.time_format, such as '%d.%m.%Y %H:%M'"
        )
        raise KeyProblem(
            f"{named(source.files[0])}: the time column {column.name!r} {hint}; it begins with "
            f"{shown}",
            "time_format=%d.%m.%Y",
        ) from error


def _in_zone(times: pd.Series, zone: str, where: str) -> pd.Series:
    """Local times of a zone; an hour that clocks repeat is told apart by the order of the rows."""
    if not pd.api.types.is_datetime64_any_dtype(times.dtype):
        raise Problem(f"{where}: data.timezone needs dates, but the time holds numbers")
    if times.dt.tz is not None:
        return times.dt.tz_convert(zone)
    clock = pd.DatetimeIndex(times)
    summer = np.ones(len(clock), dtype=bool)
    lost = np.flatnonzero(clock.tz_localize(zone, ambiguous=summer, nonexistent="NaT").isna())
    if len(lost):
        raise Problem(
            f"{where}: {clock[lost[0]]} does not exist in {zone} ({len(lost)} such rows), where "
            "clocks went forward; correct data.timezone (a clock without summer time is one such "
            "as 'Etc/GMT-1'), or those rows"
        )
    twice = np.flatnonzero(clock.tz_localize(zone, ambiguous="NaT").isna())
    if len(twice):
        newest_first = clock[0] > clock[-1]
        order = twice[::-1] if newest_first else twice
        summer[order] = pd.Series(clock[order]).groupby(clock[order]).cumcount() == 0
        note(
            f"{where}: {len(twice)} rows lie in the hour that clocks of {zone} repeat in autumn; "
            "the first row of each such time is read as summer time, the second as winter time"
        )
    return pd.Series(clock.tz_localize(zone, ambiguous=summer), index=times.index, name=times.name)


def _one_row_a_time(frame: pd.DataFrame, time: str, policy: str, where: str) -> pd.DataFrame:
    repeated = frame[time].duplicated()
    if not repeated.any():
        return frame
    count, first = int(repeated.sum()), frame[time][repeated].iloc[0]
    clocks = _clock_change(frame[time][repeated])
    hint = f"; if these are local times where clocks change, set data.{_ZONE}" if clocks else ""
    if policy == "error":
        raise KeyProblem(
            f"{where}: times occur more than once, first {first} ({count} such rows); keep one row "
            f"a time, or choose with data.duplicates = 'first', 'last' or 'mean'{hint}",
            _ZONE.replace(" ", "") if clocks else "duplicates=mean",
        )
    note(
        f"{where}: {count} rows repeat a time, first {first}; data.duplicates = '{policy}' makes "
        f"one row of each{hint}"
    )
    if policy != "mean":
        return frame.drop_duplicates(time, keep=policy, ignore_index=True)
    numbers = frame.select_dtypes("number").columns
    how = {name: "mean" if name in numbers else "first" for name in frame.columns if name != time}
    return frame.groupby(time, sort=False).agg(how).reset_index()[list(frame.columns)]


def _clock_change(times: pd.Series) -> bool:
    """Whether all lie where clocks are changed: a Sunday night in spring or autumn."""
    if not pd.api.types.is_datetime64_dtype(times.dtype) or times.empty:
        return False
    at = times.dt
    return bool(((at.day_of_week == 6) & (at.hour < 4) & at.month.isin([3, 4, 9, 10, 11])).all())


def on_grid(frame: pd.DataFrame, time: str, step: pd.Timedelta, where: str) -> pd.DataFrame:
    """Rows in the order of time with one of missing values for each that is absent."""
    times = pd.DatetimeIndex(frame[time])
    off = np.flatnonzero((times - times[0]) % step != pd.Timedelta(0))
    if len(off):
        raise Problem(
            f"{where}: {times[off[0]]} is no whole number of steps of {step} after the first "
            f"time {times[0]} ({len(off)} such rows); correct data.step or those rows"
        )
    points = int((times[-1] - times[0]) / step) + 1
    absent = points - len(times)
    if absent > _MOST_ROWS_MISSING * points:
        raise Problem(
            f"{where} has {len(times)} rows, but from {times[0]} to {times[-1]} there are "
            f"{points} steps of {step}; correct data.step, or the times"
        )
    if not absent:
        return frame
    grid = pd.date_range(times[0], times[-1], freq=step, name=time)
    gone = grid.difference(times).to_series()
    days = gone.groupby(gone.dt.normalize())
    nights = [
        day
        for day, hours in days
        if _clock_change(hours) and len(hours) * step == pd.Timedelta("1h")
    ]
    note(f"{where}: {absent} of {points} rows are absent and count as missing values")
    if nights:
        note(
            f"{where}: an hour is missing in the night of Sunday {nights[0]:%Y-%m-%d}; if these "
            f"are local times where clocks change, set data.{_ZONE}"
        )
    return frame.set_index(time).reindex(grid).reset_index()
