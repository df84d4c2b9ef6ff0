"""Tables in and out: CSV and Parquet, `-` for the standard streams, nothing overwritten unasked.

Parquet is known by its first four bytes, so that a wrong ending does no harm; all else is CSV.
A table that is written appears whole or not at all: see `_io.atomic`.
"""

from __future__ import annotations

import hashlib
import io
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from scrollmt._io import atomic
from scrollmt._io.atomic import replacing
from scrollmt._io.text import neutral_table, visible_table
from scrollmt.cli.config import STANDARD_STREAM, Source
from scrollmt.cli.shell import Problem, note, sentence

_PARQUET_MAGIC = b"PAR1"
_PARQUET, _CSV = (".parquet", ".pq"), (".csv", ".txt")
# A grid with so many more points than the file has rows comes from a slip in the times.
_MOST_ROWS_MISSING = 0.9


def named(file: str) -> str:
    return "standard input" if file == STANDARD_STREAM else file


def read(source: Source) -> tuple[pd.DataFrame, list[str]]:
    """The rows of all files, one below the other, and the SHA-256 of each file."""
    frames, digests = [], []
    for file in source.files:
        raw = sys.stdin.buffer.read() if file == STANDARD_STREAM else Path(file).read_bytes()
        digests.append(hashlib.sha256(raw).hexdigest())
        frames.append(_parsed(raw, named(file), source))
    names = [str(name) for name in frames[0].columns]
    for file, frame in zip(source.files, frames, strict=True):
        if [str(name) for name in frame.columns] != names:
            raise Problem(
                f"{named(file)} has the columns {', '.join(map(str, frame.columns))}, but "
                f"{named(source.files[0])} has {', '.join(names)}; files are read one below the "
                "other and must agree"
            )
    return pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0], digests


def _parsed(raw: bytes, name: str, source: Source) -> pd.DataFrame:
    if raw.startswith(_PARQUET_MAGIC):
        try:
            import pyarrow  # noqa: F401
        except ImportError:
            raise Problem(
                f"{name} is a Parquet file, and reading one needs pyarrow: "
                "pip install 'scrollmt[parquet]'"
            ) from None
        kind = "Parquet"
    else:
        kind = "CSV"
    try:
        if kind == "Parquet":
            frame = pd.read_parquet(io.BytesIO(raw))
            if not isinstance(frame.index, pd.RangeIndex):
                frame = frame.reset_index()
            mixed = frame.select_dtypes("object").columns
            nested = [column for column in mixed if _is_nested(frame[column])]
            if nested:
                note(f"{name}: {', '.join(map(repr, nested))} hold nested values and are left out")
                frame = frame.drop(columns=nested)
        else:
            frame = pd.read_csv(
                io.BytesIO(raw),
                sep=source.separator,
                decimal=source.decimal,
                encoding="utf-8-sig",
                low_memory=False,
            )
    except Exception as error:  # what a stranger wrote may be wrong in any way there is
        raise Problem(f"{name} cannot be read as {kind}: {sentence(error)}") from error
    frame.columns = [str(column) for column in frame.columns]
    repeated = frame.columns[frame.columns.duplicated()]
    if len(repeated):
        raise Problem(f"{name} has more than one column {repeated[0]!r}; rename them")
    if frame.empty:
        raise Problem(f"{name} has no rows below its header")
    return frame


def _is_nested(column: pd.Series) -> bool:
    return any(isinstance(one, list | dict | np.ndarray) for one in column)


def dated(frame: pd.DataFrame, source: Source) -> pd.DataFrame:
    """The rows of a series in the order of time, its time column as dates or numbers.

    With ``source.step``, dated rows are put on its grid: a row that the file does not have becomes
    one of missing values, since only so windows know that they lack it.
    """
    if source.time is None:
        return frame
    if source.time not in frame:
        raise Problem(
            f"{named(source.files[0])} has no time column {source.time!r}; there are "
            f"{', '.join(map(repr, frame.columns))}"
        )
    times = _times(frame[source.time], source)
    frame = frame.assign(**{source.time: times})
    if times.isna().any():
        rows = np.flatnonzero(times.isna())
        raise Problem(
            f"{named(source.files[0])}: the time is missing in {len(rows)} rows, first in row "
            f"{rows[0]}; fill it in or leave the row out"
        )
    if not times.is_monotonic_increasing:
        note(f"{named(source.files[0])} is not in the order of time; it was sorted by time")
        frame = frame.sort_values(source.time, kind="stable", ignore_index=True)
    if source.step is None:
        return frame
    if not pd.api.types.is_datetime64_any_dtype(frame[source.time].dtype):
        raise Problem(
            f"data.step = '{source.step}' needs dates, but {source.time!r} of "
            f"{named(source.files[0])} holds numbers; leave it out, or give data.time_format"
        )
    return _on_grid(frame, source, source.step)


def _times(column: pd.Series, source: Source) -> pd.Series:
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        return column
    if source.time_format is None and pd.api.types.is_numeric_dtype(column.dtype):
        return column
    where = f"{named(source.files[0])}: the time column {source.time!r}"
    wanted = source.time_format or "ISO8601"
    try:
        column = column.astype(str).where(column.notna())
        # Clocks that change between summer and winter time have two offsets in one file.
        offset = column.str.contains(r"(?:[zZ]|[+-]\d\d:?\d\d)\s*$", regex=True, na=False).any()
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
        raise Problem(f"{where} {hint}; it begins with {shown}") from error


def _on_grid(frame: pd.DataFrame, source: Source, step: pd.Timedelta) -> pd.DataFrame:
    where = named(source.files[0])
    times = pd.DatetimeIndex(frame[source.time])
    repeated = np.flatnonzero(times.duplicated())
    if len(repeated):
        raise Problem(
            f"{where}: times occur more than once, first {times[repeated[0]]} "
            f"({len(repeated)} such rows); keep one row a time"
        )
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
    note(f"{where}: {absent} of {points} rows are absent and count as missing values")
    grid = pd.date_range(times[0], times[-1], freq=step, name=source.time)
    return frame.set_index(source.time).reindex(grid).reset_index()


def check_target(target: str, *, force: bool, inputs: Sequence[str] = ()) -> None:
    """Refuse, before any work, a target that cannot or may not be written."""
    if target == STANDARD_STREAM:
        return
    path = Path(target)
    for given in inputs:
        if given != STANDARD_STREAM and path.exists() and Path(given).exists():
            inside = Path(given).is_dir() and Path(given).resolve() in path.resolve().parents
            if inside or path.samefile(given):
                raise Problem(f"{target} belongs to what is read; choose another name")
    if path.is_dir():
        raise Problem(f"{target} is a folder; name a file in it")
    if path.exists() and not force:
        raise Problem(f"{target} exists; choose another name, or --force to replace it")
    atomic.check(path)


def check_table_target(target: str, *, force: bool, inputs: Sequence[str] = ()) -> None:
    """As `check_target`, for a table: its ending says the format."""
    ending = Path(target).suffix.lower()
    if target != STANDARD_STREAM and ending not in (*_PARQUET, *_CSV):
        raise Problem(f"{target}: the ending says the format; use .csv or .parquet")
    if ending in _PARQUET:
        try:
            import pyarrow  # noqa: F401
        except ImportError:
            raise Problem(
                f"{target}: writing Parquet needs pyarrow (pip install 'scrollmt[parquet]'); or "
                "use .csv"
            ) from None
    check_target(target, force=force, inputs=inputs)


def write(frame: pd.DataFrame, target: str) -> None:
    """A table in the format that the ending says; CSV on standard output for `-`.

    In CSV, text that a spreadsheet would take for a formula gets an apostrophe before it.
    """
    if target == STANDARD_STREAM:
        if sys.stdout.isatty():
            frame = visible_table(frame)
        neutral_table(frame).to_csv(sys.stdout, index=False)
        return
    with replacing(target) as draft:
        if draft.suffix.lower() in _PARQUET:
            frame.to_parquet(draft, index=False)
        else:
            neutral_table(frame).to_csv(draft, index=False)
