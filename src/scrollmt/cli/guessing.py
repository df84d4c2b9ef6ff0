"""What the columns of an unknown file are: its time, numbers, categories, counts.

2021-02-01 05:00            dates that can be read in one way only
date, time                  a day and a clock in two columns, whatever their names
year, month, day, hour      numbers with such names
1612155600                  seconds or milliseconds since 1970
t, time, year               numbers with equal steps under such a name
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from scrollmt.cli.config import UNIX, Source
from scrollmt.cli.shell import KeyProblem
from scrollmt.cli.times import named

# Formats that leave no doubt which number is the day are told apart by trying them all.
_DAYS = ("%d.%m.%Y", "%d.%m.%y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%Y.%m.%d", "%d-%m-%Y")
_CLOCKS = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
_FORMATS = tuple(f"{day}{clock}" for day in _DAYS for clock in _CLOCKS)
_COMPACT = {8: "%Y%m%d", 10: "%Y%m%d%H", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
# What columns that are part of a date are called.
_CALENDAR = (
    {"year", "jahr", "yyyy", "yr"},
    {"month", "monat", "mm", "mnth"},
    {"day", "tag", "dd", "dy"},
    {"hour", "stunde", "hh", "hr"},
    {"minute"},
)
_CLOCK_NAMES = {"time", "hour", "clock", "zeit", "uhrzeit", "stunde"}
_COUNTED_TIME = {"t", "time", "zeit", "step", "year", "jahr"}
# Seconds since 1970 from 1990 to 2100.
_UNIX_SPAN = (631_152_000, 4_102_444_800)
_MOST_CATEGORIES = 20


def find_time(frame: pd.DataFrame, source: Source) -> Source | None:
    """The source with its time, None where no column says it; where it is given it stays."""
    if source.time is not None:
        return source
    for found in _candidates(frame, source):
        return found
    return None


def _candidates(frame: pd.DataFrame, source: Source) -> Iterator[Source]:
    for column in frame:
        name = str(column)
        if _is_dated(frame[name]):
            yield replace(source, time=name)
        elif is_text(frame[name]):
            yield from _written(frame, name, source)
    parts = _parts(frame)
    if len(parts) >= 3:
        yield replace(source, time=" ".join(parts), time_parts=tuple(parts))
    for column in frame:
        values = frame[column]
        if is_whole(values) and values.is_monotonic_increasing and len(values) > 1:
            yield from _numbered(str(column), values, source)
    for column in frame:
        if str(column).lower() in _COUNTED_TIME and _is_even(frame[column]):
            yield replace(source, time=str(column))


def _is_dated(values: pd.Series) -> bool:
    dtype = values.dtype
    return pd.api.types.is_datetime64_any_dtype(dtype) or isinstance(dtype, pd.PeriodDtype)


def _written(frame: pd.DataFrame, name: str, source: Source) -> Iterator[Source]:
    """A column of text as dates, with the clock of another column where its days repeat."""
    texts = frame[name].dropna().astype(str)
    if texts.empty or not texts.str.contains(r"\d").all():
        return
    wanted = (source.time_format,) if source.time_format else ("ISO8601", *_FORMATS)
    fitting = [one for one in wanted if _parsed(texts, one) is not None]
    if not fitting:
        return
    if len(fitting) > 1 and "ISO8601" not in fitting:
        raise KeyProblem(
            f"{named(source.files[0])}: the dates of {name!r}, such as {texts.iloc[0]!r}, can be "
            f"read as {' or as '.join(fitting)}; set data.time_format",
            f'time_format="{fitting[0]}"',
        )
    style = fitting[0]
    found = replace(source, time=name, time_format=None if style == "ISO8601" else style)
    times = _parsed(texts, style)
    days_only = times is not None and bool((times == times.dt.normalize()).all())
    if days_only and texts.duplicated().any():
        clock = _clock_column(frame, name)
        if clock is not None:
            yield _joined(found, name, clock, frame[clock])
    yield found


def _clock_column(frame: pd.DataFrame, day: str) -> str | None:
    """The column that tells rows of one day apart."""
    for column in frame:
        name = str(column)
        if name == day or name.lower() not in _CLOCK_NAMES:
            continue
        values = frame[name].dropna()
        if is_text(values) and values.astype(str).str.fullmatch(r"\d{1,2}:\d\d(:\d\d)?").all():
            return name
        if is_whole(values) and values.between(0, 24).all():
            return name
    return None


def _joined(found: Source, day: str, clock: str, values: pd.Series) -> Source:
    style = found.time_format
    if style is not None and is_text(values):
        seconds = values.dropna().astype(str).str.count(":").max() == 2
        style += " %H:%M:%S" if seconds else " %H:%M"
    elif style is not None:
        style += " %H"
    return replace(found, time=f"{day} {clock}", time_parts=(day, clock), time_format=style)


def _parts(frame: pd.DataFrame) -> list[str]:
    """Columns named year, month, day and so on, as far as they go without a gap."""
    found: list[str] = []
    for names in _CALENDAR:
        part = [str(c) for c in frame if str(c).lower() in names and is_whole(frame[c])]
        if not part:
            break
        found.append(part[0])
    return found


def _numbered(name: str, values: pd.Series, source: Source) -> Iterator[Source]:
    """Dates such as 2021020105 without a mark in between, or counts since 1970."""
    texts = values.dropna().astype("int64").astype(str)
    compact = _COMPACT.get(len(texts.iloc[0]), "")
    if compact and _parsed(texts, compact) is not None:
        yield replace(source, time=name, time_format=compact)
    for style, unit in UNIX.items():
        low, high = (pd.Timedelta(end, "s") // pd.Timedelta(1, unit) for end in _UNIX_SPAN)
        if low <= values.iloc[0] and values.iloc[-1] < high:
            yield replace(source, time=name, time_format=style)


def _parsed(texts: pd.Series, style: str) -> pd.Series | None:
    try:
        return pd.to_datetime(texts, format=style, utc=True)
    except (ValueError, OverflowError, TypeError):
        return None


def _is_even(values: pd.Series) -> bool:
    """Numbers with one step."""
    if not is_number(values) or len(values) < 2 or values.isna().any():
        return False
    steps = np.diff(values.to_numpy(dtype=float))
    return bool(steps[0] > 0 and np.allclose(steps, steps[0], rtol=1e-6, atol=0.0))


def is_a_row(names: Sequence[str]) -> bool:
    """Whether the names of columns are numbers and dates themselves, and not just 0, 1, 2, ..."""
    texts = pd.Series([one for one in names if not one.startswith("Unnamed: ")], dtype=str)
    if texts.str.fullmatch(r"\d{1,4}").all():
        return False
    dates = texts[pd.to_numeric(texts, errors="coerce").isna()]
    return all(
        any(_parsed(pd.Series([one]), style) is not None for style in ("ISO8601", *_FORMATS))
        for one in dates
    )


def is_text(values: pd.Series) -> bool:
    return bool(pd.api.types.is_object_dtype(values) or pd.api.types.is_string_dtype(values))


def is_number(values: pd.Series) -> bool:
    dtype = values.dtype
    return pd.api.types.is_numeric_dtype(dtype) and not (
        pd.api.types.is_bool_dtype(dtype) or pd.api.types.is_complex_dtype(dtype)
    )


def is_whole(values: pd.Series) -> bool:
    """Whole numbers, some of which may be missing."""
    if not is_number(values):
        return False
    known = values.dropna().to_numpy(dtype=float)
    return bool(len(known) and np.isfinite(known).all() and (known == np.floor(known)).all())


def varies(values: pd.Series) -> bool:
    """Finite numbers of which there are at least two."""
    if not is_number(values):
        return False
    known = values.dropna().to_numpy(dtype=float)
    return len(known) > 1 and bool(np.isfinite(known).all() and known.min() < known.max())


def counts_rows(values: pd.Series) -> bool:
    """Whether a column only numbers the rows."""
    return is_whole(values) and len(values) > 2 and bool((values.diff().iloc[1:] == 1).all())


def is_category(values: pd.Series) -> bool:
    """A few texts, or yes and no."""
    if is_number(values):
        return False
    kinds = values.dropna().astype(str).nunique()
    return bool(2 <= kinds <= _MOST_CATEGORIES)


def are_classes(values: pd.Series) -> bool:
    """Whether numbers are the classes 0 .. R-1 of a few."""
    found = np.unique(values.dropna().to_numpy(dtype=float))
    return 2 <= len(found) <= 10 and bool(np.array_equal(found, np.arange(len(found))))


def are_counts(values: pd.Series) -> bool:
    """Small whole numbers from zero on, more than two of them."""
    known = values.dropna()
    return is_whole(known) and bool(known.min() >= 0 and known.max() < 1000 and known.nunique() > 2)


def is_skewed(values: pd.Series) -> bool:
    """Positive with a long right tail, where a logarithm makes forecasts more Gaussian."""
    return bool(values.min() >= 0 and values.skew() > 1)


def texts_of(values: pd.Series) -> list[str]:
    """The different texts of a column; a no before a yes."""
    found = sorted(set(values.dropna().astype(str)) - {""})
    order: Sequence[str] = ("no", "false", "0", "yes", "true", "1")
    return sorted(found, key=lambda one: order.index(one.lower()) if one.lower() in order else -1)
