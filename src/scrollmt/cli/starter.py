"""`scrollmt init`: a commented config from the columns of a file.

A file with a column of dates is taken for a series and asked about its first number; any other is
taken for a table of ready-made windows. All that is guessed is written out, to be changed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import typer

from scrollmt.cli import tables
from scrollmt.cli.config import STANDARD_STREAM, Source
from scrollmt.cli.shell import Problem, say

# Formats that leave no doubt which number is the day are told apart by trying them all.
_FORMATS = tuple(
    f"{date}{clock}"
    for date in ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y")
    for clock in ("", " %H:%M", " %H:%M:%S")
)
_MOST_CATEGORIES = 20
_ENOUGH_WINDOWS = 300


def init(
    data: str, out: str, *, column: str | None, separator: str, decimal: str, force: bool
) -> None:
    if len(separator) != 1 or len(decimal) != 1:
        raise Problem("--separator and --decimal are single characters")
    tables.check_target(out, force=force, inputs=(data,))
    source = Source((data,), separator=separator, decimal=decimal)
    frame, _ = tables.read(source)
    if column is not None and column not in frame:
        raise Problem(
            f"{tables.named(data)} has no column {column!r}; there are "
            f"{', '.join(map(repr, frame.columns))}"
        )
    text = _config(frame, source, data, out, column)
    if out == STANDARD_STREAM:
        typer.echo(text, nl=False)
        return
    with tables.replacing(out) as draft:
        draft.write_text(text, encoding="utf-8")
    say(f"{out} is written; change what it asks, then: scrollmt fit {out}")


def _config(frame: pd.DataFrame, source: Source, data: str, out: str, column: str | None) -> str:
    numeric = [name for name in frame if _usable(frame[name])]
    if not numeric:
        raise Problem(f"{tables.named(data)} has no column of numbers that vary to forecast")
    if column is not None and column not in numeric:
        raise Problem(f"--column {column!r} holds no numbers that vary; choose from {numeric}")
    name = data
    if STANDARD_STREAM not in (data, out):
        # Paths of a config start at its own folder.
        name = os.path.relpath(data, Path(out).parent)
    lines = ["# Made from the columns of the file; every guess is yours to change.", ""]
    lines += ['out = "model"  # the folder that `scrollmt fit` writes', "", "[data]"]
    lines.append(f"file = {_quoted(name)}")
    if source.separator != ",":
        lines.append(f"separator = {_quoted(source.separator)}")
    if source.decimal != ".":
        lines.append(f"decimal = {_quoted(source.decimal)}")
    found = _time_column(frame)
    if found is None:
        return "\n".join(lines + _table(frame, numeric, column)) + "\n"
    time, wanted, times = found
    numeric = [one for one in numeric if one != time]
    if not numeric:
        raise Problem(f"{tables.named(data)} has no column of numbers beside its time {time!r}")
    asked = numeric[0] if column is None else column
    if asked == time:
        raise Problem(f"--column {asked!r} is the time itself; choose from {numeric}")
    lines.append(f"time = {_quoted(time)}")
    if wanted is not None:
        lines.append(f"time_format = {_quoted(wanted)}")
    return "\n".join(lines + _series(frame, numeric, asked, time, times)) + "\n"


def _series(
    frame: pd.DataFrame, numeric: list[str], asked: str, time: str, times: pd.Series
) -> list[str]:
    ordered = pd.DatetimeIndex(times).unique().sort_values()
    steps = pd.Series(ordered[1:] - ordered[:-1])
    step = pd.Timedelta(steps.mode().iloc[0]) if len(steps) else pd.Timedelta("1h")
    if (steps % step == pd.Timedelta(0)).all():
        lines = [f"step = {_quoted(_length(step))}  # a row that is not there counts as missing"]
    else:
        lines = ["# step = ?  # the times keep no common step, which a series needs: correct them"]
    history, lead = _lengths(step)
    history, lead = (max(1, min(rows, len(frame) // 10)) for rows in (history, lead))
    stride = max(1, min(lead, len(frame) // _ENOUGH_WINDOWS))
    values = frame[asked].dropna()
    lines += [
        "",
        "# All lengths are in rows.",
        "[windows]",
        f"history = {history}  # rows known at the time t of a forecast, t itself included",
        f"lead = {lead}  # rows ahead; leads = [1, 6, 24] asks for several at once",
        f"stride = {stride}  # rows between forecasts to learn from",
        "fill_limit = 3  # gaps of up to so many rows are filled; longer ones cost windows",
        "",
        "# One table a question. kind is value (a number), event (yes or no) or bands (ordered",
        "# classes); over = mean, max, min or sum takes all rows up to the lead, not the last one.",
        "[questions.value]",
        'kind = "value"',
        f"column = {_quoted(asked)}",
        f'{"" if _skewed(values) else "# "}transform = "log1p"  # or log, sqrt: answers come back '
        "in the file's units",
        '# units = "ug/m3"',
    ]
    lines += _event(asked, values) + _bands(asked, values)
    lines += [
        "",
        "# What a forecast may know; without [[inputs]] the history of the columns asked about.",
        "[[inputs]]",
        'kind = "lags"',
        f"columns = [{_quoted(asked)}]",
    ]
    others = [one for one in numeric if one != asked]
    full = [one for one in others if frame[one].isna().mean() < 0.2]
    if full:
        lines += [
            "",
            "[[inputs]]",
            'kind = "lags"',
            f"columns = [{', '.join(map(_quoted, full))}]",
            f"steps = {min(history, 6)}  # only the latest rows of these",
        ]
    texts = [one for one in frame if one != time and one not in numeric]
    few = [one for one in texts if _is_category(frame[one])]
    if few:
        lines += [
            "",
            "[[inputs]]",
            'kind = "one_hot"',
            f"columns = [{', '.join(map(_quoted, few))}]",
        ]
    parts = ["hour"] if step < pd.Timedelta("1D") else []
    if ordered[-1] - ordered[0] > pd.Timedelta("200D"):
        parts.append("month")
    if parts:
        lines += ["", "[[inputs]]", 'kind = "calendar"', f"parts = {json.dumps(parts)}"]
    left = [one for one in [*others, *texts] if one not in [*full, *few]]
    if left:
        lines += ["", f"# Not used: {', '.join(map(_quoted, left))}"]
    return lines + _common("the newest windows; a gap keeps what is asked of one part from another")


def _table(frame: pd.DataFrame, numeric: list[str], column: str | None) -> list[str]:
    asked = numeric[-1] if column is None else column
    inputs = [one for one in numeric if one != asked and not one.startswith("Unnamed:")]
    if not inputs:
        raise Problem(
            "no column of dates and a single column of numbers: there is nothing to forecast from"
        )
    values = frame[asked].dropna()
    classes = int(values.max()) + 1 if _counts(values) else 0
    head = "gaussian" if not classes else ("event" if classes == 2 else "ordinal")
    lines = [
        "",
        "# No column holds dates such as 2021-02-01 05:00, so each row is taken for a window.",
        "[table]",
        f"inputs = [{', '.join(map(_quoted, inputs))}]",
        '# weight = "column"  # of each row',
        "",
        "# One table a target. head is gaussian (a number), event (0 or 1), ordinal or categorical",
        "# (0 to classes - 1); a missing label is an empty cell.",
        f"[targets.{_quoted(asked)}]",
        f"head = {_quoted(head)}",
    ]
    if head == "ordinal":
        lines.append(f"classes = {classes}")
    left = [one for one in frame if one not in [*inputs, asked]]
    if left:
        lines += ["", f"# Not used: {', '.join(map(_quoted, left))}"]
    return lines + _common('a random share; order = "chronological" takes the last rows instead')


def _common(held_out: str) -> list[str]:
    return [
        "",
        "# Shares that judge the training and that are kept out of it:",
        f"# {held_out}.",
        "[split]",
        "validation = 0.2",
        "test = 0.2  # 0 keeps nothing back; what was chosen is then trained again on all rows",
        "",
        "[model]",
        'preset = "default"  # or "paper", the published protocol',
        'belief = "diag"  # the covariance of the last layer: none, diag or full',
        "seed = 0",
        "ensemble = 1  # so many fits are mixed",
        "",
        "# Single numbers of the preset's training can be changed.",
        "# [training]",
        "# steps = 2250",
        "# patience = 60",
    ]


def _event(asked: str, values: pd.Series) -> list[str]:
    level = float(f"{values.quantile(0.9):.3g}")
    share = float((values > level).mean())
    lines = [
        "[questions.event]",
        'kind = "event"',
        f"column = {_quoted(asked)}",
        f"above = {level!r}  # or at_least, below, at_most",
    ]
    good = 0.02 < share < 0.5
    return ["", *(lines if good else ["# " + line for line in lines])]


def _bands(asked: str, values: pd.Series) -> list[str]:
    lines = [
        "[questions.band]",
        'kind = "bands"',
        f"column = {_quoted(asked)}",
        "quantiles = 4  # equal shares; edges = [20, 50, 100] cuts where you say",
    ]
    good = len(np.unique(np.quantile(values, [0.15, 0.25, 0.35, 0.5, 0.65, 0.75, 0.85]))) == 7
    return ["", *(lines if good else ["# " + line for line in lines])]


def _time_column(frame: pd.DataFrame) -> tuple[str, str | None, pd.Series] | None:
    """The first column of dates, the format where it is not ISO, and its times."""
    for name in frame:
        column = frame[name]
        if pd.api.types.is_datetime64_any_dtype(column.dtype):
            return name, None, column.dropna()
        if not pd.api.types.is_object_dtype(column) and not pd.api.types.is_string_dtype(column):
            continue
        texts = column.dropna().astype(str)
        if texts.empty or not texts.str.contains(r"\d").all():
            continue
        fitting = {
            one: times
            for one in ("ISO8601", *_FORMATS)
            if (times := _parsed(texts, one)) is not None
        }
        if "ISO8601" in fitting:
            return name, None, fitting["ISO8601"]
        if len(fitting) == 1:
            wanted, times = fitting.popitem()
            return name, wanted, times
    return None


def _parsed(texts: pd.Series, wanted: str) -> pd.Series | None:
    try:
        return pd.to_datetime(texts, format=wanted, utc=True)
    except (ValueError, OverflowError, TypeError):
        return None


def _usable(column: pd.Series) -> bool:
    """Finite numbers that vary."""
    if not pd.api.types.is_numeric_dtype(column.dtype) or pd.api.types.is_bool_dtype(column.dtype):
        return False
    if pd.api.types.is_complex_dtype(column.dtype):
        return False
    values = column.dropna().to_numpy(dtype=float)
    return len(values) > 1 and bool(np.isfinite(values).all() and values.min() < values.max())


def _is_category(column: pd.Series) -> bool:
    if pd.api.types.is_numeric_dtype(column.dtype) and not pd.api.types.is_bool_dtype(column.dtype):
        return False
    kinds = column.dropna().astype(str).nunique()
    return 2 <= kinds <= _MOST_CATEGORIES and bool(column.isna().mean() < 0.2)


def _counts(values: pd.Series) -> bool:
    """Whether the numbers are the classes 0 .. R-1 of a few."""
    found = np.unique(values.to_numpy(dtype=float))
    return 2 <= len(found) <= 10 and bool(np.array_equal(found, np.arange(len(found))))


def _skewed(values: pd.Series) -> bool:
    """Positive with a long right tail, where a logarithm makes forecasts more Gaussian."""
    return bool(values.min() >= 0 and values.skew() > 1)


def _lengths(step: pd.Timedelta) -> tuple[int, int]:
    """History and lead in rows: a day of hours, two weeks of days for one, else twelve for one."""
    day = pd.Timedelta("1D") / step
    if 2 <= day <= 48:
        return round(day), round(day)
    return (14, 1) if 0.9 <= day < 2 else (12, 1)


def _length(step: pd.Timedelta) -> str:
    for unit in ("D", "h", "min", "s"):
        count = step / pd.Timedelta(1, unit)
        if count >= 1 and count == int(count):
            return f"{int(count)}{unit}"
    return f"{step.total_seconds()}s"


def _quoted(text: str) -> str:
    """A TOML string; JSON's own escapes but for DEL, which TOML does not allow bare."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", r"\u007f")
