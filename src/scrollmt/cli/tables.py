"""Tables in and out: CSV and Parquet, `-` for the standard streams, nothing overwritten unasked.

Parquet is known by its first four bytes, so that a wrong ending does no harm; all else is CSV.
A table that is written appears whole or not at all: see `_io.atomic`.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from scrollmt._io import atomic
from scrollmt._io.atomic import replacing
from scrollmt._io.text import neutral_table, visible_table
from scrollmt.cli import csvs
from scrollmt.cli.cells import Odd, markers_sentence, read_cells
from scrollmt.cli.config import STANDARD_STREAM, Source
from scrollmt.cli.csvs import Style
from scrollmt.cli.shell import KeyProblem, Problem, note, sentence
from scrollmt.cli.times import dated, named, need_columns

__all__ = [
    "Loaded",
    "check_table_target",
    "check_target",
    "dated",
    "load",
    "named",
    "need_columns",
    "read",
    "read_bytes",
    "replacing",
    "write",
]

_PARQUET_MAGIC = b"PAR1"
_PARQUET, _CSV = (".parquet", ".pq"), (".csv", ".txt")


class Loaded(NamedTuple):
    """The rows of a source, the SHA-256 of each file, and how they turned out to be written.

    ``odd`` are the texts in columns of which they are not all, by column.
    """

    frame: pd.DataFrame
    digests: list[str]
    source: Source
    odd: dict[str, Odd]


def read(source: Source) -> tuple[pd.DataFrame, list[str]]:
    """The rows of all files, one below the other, and the SHA-256 of each file."""
    loaded = load(source, [read_bytes(file) for file in source.files])
    return loaded.frame, loaded.digests


def read_bytes(file: str) -> bytes:
    return sys.stdin.buffer.read() if file == STANDARD_STREAM else Path(file).read_bytes()


def load(source: Source, contents: Sequence[bytes]) -> Loaded:
    """As `read`, from the bytes of the files; what the source does not say is found in them."""
    frames = []
    for file, raw in zip(source.files, contents, strict=True):
        frame, found, odd = _parsed(raw, named(file), source)
        frames.append(frame)
    names = list(frames[0].columns)
    for file, frame in zip(source.files, frames, strict=True):
        if list(frame.columns) != names:
            raise Problem(
                f"{named(file)} has the columns {', '.join(frame.columns)}, but "
                f"{named(source.files[0])} has {', '.join(names)}; files are read one below the "
                "other and must agree"
            )
    whole = pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]
    return Loaded(whole, [hashlib.sha256(raw).hexdigest() for raw in contents], found, odd)


def _parsed(raw: bytes, name: str, source: Source) -> tuple[pd.DataFrame, Source, dict[str, Odd]]:
    kind = "Parquet" if raw.startswith(_PARQUET_MAGIC) else "CSV"
    style = Style(",", source.decimal or ".", source.thousands)
    try:
        if kind == "Parquet":
            frame = _from_parquet(raw, name)
        else:
            text = csvs.decoded(raw, name, source.encoding)
            style = csvs.style_of(text, name, source.separator, source.decimal, source.thousands)
            if not style.usual and source.separator is None:
                note(f"{name}: {style.sentence()}")
            source = replace(source, **style._asdict())
            frame = csvs.read_columns(text, name, style, source.missing or ())
    except Problem:
        raise
    except Exception as error:  # pandas and pyarrow raise many kinds
        raise Problem(f"{name} cannot be read as {kind}: {sentence(error)}") from error
    frame.columns = [str(column) for column in frame.columns]
    repeated = frame.columns[frame.columns.duplicated()]
    if len(repeated):
        raise Problem(f"{name} has more than one column {repeated[0]!r}; rename them")
    if frame.empty:
        raise Problem(f"{name} has no rows below its header")
    return _with_numbers(frame, name, source, csvs.number_reader(style))


def _from_parquet(raw: bytes, name: str) -> pd.DataFrame:
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise Problem(
            f"{name} is a Parquet file, and reading one needs pyarrow: "
            "pip install 'scrollmt[parquet]'"
        ) from None
    frame = pd.read_parquet(io.BytesIO(raw))
    if not isinstance(frame.index, pd.RangeIndex):
        frame = frame.reset_index()
    mixed = frame.select_dtypes("object").columns
    nested = [column for column in mixed if _is_nested(frame[column])]
    if nested:
        note(f"{name}: {', '.join(map(repr, nested))} hold nested values or bytes and are left out")
        frame = frame.drop(columns=nested)
    return frame


def _is_nested(column: pd.Series) -> bool:
    return any(isinstance(one, list | dict | np.ndarray | bytes) for one in column)


def _with_numbers(
    frame: pd.DataFrame, name: str, source: Source, to_numbers: Callable[[pd.Series], pd.Series]
) -> tuple[pd.DataFrame, Source, dict[str, Odd]]:
    """Columns of text as numbers where they are numbers, what was missing there, what is odd."""
    columns, markers, odd = {}, {}, {}
    needed = {column: key for key, column in reversed(source.numbers)}
    for column, values in frame.items():
        columns[column] = values
        if not pd.api.types.is_object_dtype(values) and not pd.api.types.is_string_dtype(values):
            continue
        cells = read_cells(values, to_numbers, source.missing)
        columns[column] = cells.values
        if cells.markers:
            markers[str(column)] = cells.markers
        if cells.odd is None:
            continue
        odd[str(column)] = cells.odd
        if column in needed:
            marker = json.dumps([cells.odd.cell], ensure_ascii=False)
            way = f"read them as missing with data.missing = {marker}"
            if csvs.is_number(cells.odd.cell):
                way = "set data.decimal and data.thousands to how numbers are written"
            raise KeyProblem(
                f"{name}: {cells.odd.sentence(str(column))}, and {needed[column]} needs numbers; "
                f"correct them, or {way}",
                f"missing={marker}",
            )
    if markers:
        note(f"{name}: {markers_sentence(markers)}")
        found = dict.fromkeys(text for texts in markers.values() for text in texts)
        source = replace(source, missing=tuple(dict.fromkeys([*(source.missing or ()), *found])))
    return pd.DataFrame(columns, index=frame.index), source, odd


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
