"""The bytes of a CSV as columns: how it is encoded, separated and how its numbers are written.

    "time;pm10\n1.2.2021;1.234,5"    separator ";", decimal ",", thousands "."

What a config does not say is found in the file, or refused where it can be read in two ways.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import pandas as pd

from scrollmt.cli.shell import KeyProblem, Problem, sentence

SEPARATORS = (",", ";", "\t", "|")
# Stands for any number of them.
SPACES = " "
# Characters; decisions are made on the first part of a long file.
_SAMPLE = 500_000
_MOSTLY = 0.8
_SPACES = " '’\u00a0\u202f"
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
_OTHER_FILES = {b"PK\x03\x04": "an Excel workbook or a zip file", b"\x1f\x8b": "a gzip file"}


class Style(NamedTuple):
    """How a CSV is written."""

    separator: str
    decimal: str
    thousands: str | None

    @property
    def usual(self) -> bool:
        return self == (",", ".", None)

    def sentence(self) -> str:
        thousands = "" if self.thousands is None else f", thousands by {self.thousands!r}"
        return (
            f"columns are separated by {self.separator!r}, decimals by {self.decimal!r}{thousands}"
        )


def decoded(raw: bytes, name: str, encoding: str | None) -> str:
    """The text of a file: UTF-8, UTF-16 with its mark, or the encoding that is given."""
    for mark, kind in _OTHER_FILES.items():
        if raw.startswith(mark):
            raise Problem(f"{name} is {kind}; save it as CSV or Parquet first")
    found = encoding or next((one for mark, one in _MARKS if raw.startswith(mark)), "utf-8")
    try:
        text = raw.decode(found)
    except LookupError:
        raise Problem(f"data.encoding = {found!r} is no encoding; try 'cp1252'") from None
    except UnicodeError as error:
        raise KeyProblem(
            f"{name} is not text in {found.upper()} ({sentence(error)}); set its encoding, "
            'such as data.encoding = "cp1252" for a file from an older Windows program',
            'encoding="cp1252"',
        ) from None
    if "\0" in text:
        raise Problem(
            f"{name} holds zero bytes, so it is no CSV in {found.upper()}; if it is UTF-16 without "
            'a mark at its start, set data.encoding = "utf-16-le"'
        )
    # A spreadsheet may begin with the name of its separator, or with rows of nothing but those.
    return re.sub(r'\A"?sep=.?"?\r?\n|\A(?:[\s,;|]*\n)+', "", text.removeprefix("\ufeff"))


def rows_of(text: str, separator: str) -> Iterator[list[str]]:
    """The records of a text, without blank lines."""
    lines = io.StringIO(text, newline=None)
    spaced = separator == SPACES
    return filter(None, csv.reader(lines, delimiter=separator, skipinitialspace=spaced))


def read_columns(text: str, name: str, style: Style, missing: Sequence[str]) -> pd.DataFrame:
    """The columns of a text; only the empty cell and ``missing`` are missing so far."""
    rows = rows_of(text, style.separator)
    header, first = next(rows, []), next(rows, [])
    named = [one.strip() for one in header if one.strip()]
    repeated = [one for one in named if named.count(one) > 1]
    if repeated:
        raise Problem(f"{name} has more than one column {repeated[0]!r}; rename them")
    beyond = first[len(header) :]
    if any(one.strip() for one in beyond):
        raise Problem(
            f"{name} has {len(header)} column names, but {len(first)} cells in the first row below "
            f"them (the last is {first[-1]!r}); give every column a name{separator_hint(header)}"
        )
    names = [one if one.strip() else f"Unnamed: {n}" for n, one in enumerate(header + beyond)]
    with warnings.catch_warnings():
        # A later row with more cells than names is an error, not one to cut off.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        frame = pd.read_csv(
            io.StringIO(text),
            sep=style.separator,
            decimal=style.decimal,
            skipinitialspace=style.separator == SPACES,
            header=0,
            names=names,
            keep_default_na=False,
            na_values=["", *missing],
            # Without this the first of more cells than names silently becomes an index.
            index_col=False,
            # In a single column an empty line is a missing value.
            skip_blank_lines=len(names) > 1,
            low_memory=False,
        )
    unnamed = frame.columns.str.startswith("Unnamed: ")
    frame = frame.loc[:, ~(unnamed & frame.isna().all().to_numpy())]
    filled = np.flatnonzero(frame.notna().any(axis=1))
    return frame.iloc[: filled[-1] + 1 if len(filled) else 0]


def separator_hint(names: Sequence[str]) -> str:
    """What may be wrong where all columns are taken for one."""
    inside = [one for one in SEPARATORS if len(names) == 1 and one in names[0]]
    return f", or set data.separator = {inside[0]!r} if that is between them" if inside else ""


def style_of(
    text: str, name: str, separator: str | None, decimal: str | None, thousands: str | None
) -> Style:
    """How a text is written; what is given stays."""
    sample = text[:_SAMPLE]
    if len(text) > _SAMPLE:
        sample = sample[: sample.rfind("\n") + 1]
    if separator is None:
        separator = _separator(sample, name)
    if decimal is None and thousands in (".", ","):
        decimal = "," if thousands == "." else "."
    if decimal is not None:
        return Style(separator, decimal, thousands)
    return Style(separator, *_marks(sample, name, separator, thousands))


def _separator(sample: str, name: str) -> str:
    shares, wide = {}, []
    for separator in SEPARATORS:
        header, *rows = _sampled(sample, separator) or [[]]
        if len(header) < 2:
            continue
        wide.append(separator)
        even = [row for row in rows if len(row) >= len(header) and not any(row[len(header) :])]
        if len(even) >= 0.9 * len(rows):
            # In text with another separator most cells of this one are torn.
            others = set(SEPARATORS) - {separator}
            cells = list(chain.from_iterable(even))
            whole = sum(is_number(cell) or not others & set(cell) for cell in cells)
            shares[separator] = whole / max(1, len(cells))
    found = [one for one, share in shares.items() if share == max(shares.values())] or wide
    if len(found) > 1 or (len(shares) > 1 and max(shares.values()) < 0.9):
        raise KeyProblem(
            f"{name}: columns may be separated by {' or by '.join(map(repr, shares or wide))}; set "
            "data.separator",
            f'separator="{found[0]}"',
        )
    if not found and _in_columns_of_spaces(sample):
        return SPACES
    # A single column: any separator that does not occur in it.
    return found[0] if found else next((one for one in SEPARATORS if one not in sample), ",")


def _in_columns_of_spaces(sample: str) -> bool:
    """Whether every line has as many words as the first, and most below it are numbers."""
    header, *rows = [line.split() for line in sample.splitlines() if line.strip()] or [[]]
    if len(header) < 2 or not rows or any(len(row) != len(header) for row in rows):
        return False
    cells = list(chain.from_iterable(rows))
    return sum(map(is_number, cells)) > _MOSTLY * len(cells)


def _sampled(sample: str, separator: str) -> list[list[str]]:
    try:
        return list(rows_of(sample, separator))
    except csv.Error:  # a cell longer than any table has
        return []


_SIGN, _GROUP = r"[+-]?", r"[1-9]\d{0,2}"
_NUMBER = re.compile(rf"{_SIGN}(\d+|\d*[.,]\d+)([eE]{_SIGN}\d+)?")
_GROUPED = re.compile(
    rf"{_SIGN}{_GROUP}(?P<mark>[{_SPACES}.,])\d{{3}}((?P=mark)\d{{3}})*([.,]\d+)?"
)
_KINDS: dict[str, re.Pattern[str]] = {
    # One mark with three digits behind it can be either.
    "1.234": re.compile(rf"{_SIGN}{_GROUP}\.\d{{3}}"),
    "1,234": re.compile(rf"{_SIGN}{_GROUP},\d{{3}}"),
    "1.234.567": re.compile(rf"{_SIGN}{_GROUP}\.\d{{3}}((\.\d{{3}})+|(\.\d{{3}})*,\d+)"),
    "1,234,567": re.compile(rf"{_SIGN}{_GROUP},\d{{3}}((,\d{{3}})+|(,\d{{3}})*\.\d+)"),
    "1 234": re.compile(rf"{_SIGN}{_GROUP}[{_SPACES}]\d{{3}}([{_SPACES}]\d{{3}})*([.,]\d+)?"),
    "123": re.compile(rf"{_SIGN}\d{{1,3}}"),
    "1.5": re.compile(rf"{_SIGN}\d*\.\d+([eE]{_SIGN}\d+)?"),
    "1,5": re.compile(rf"{_SIGN}\d*,\d+([eE]{_SIGN}\d+)?"),
}


def is_number(cell: str) -> bool:
    """Whether a cell is a number by any convention."""
    text = cell.strip()
    return bool(_NUMBER.fullmatch(text) or _GROUPED.fullmatch(text))


def _marks(sample: str, name: str, separator: str, thousands: str | None) -> tuple[str, str | None]:
    """The marks of decimals and of thousands, from all columns that look like numbers."""
    rows = _sampled(sample, separator)[1:]
    seen: dict[str, str] = {}
    in_doubt: str | None = None
    for column in zip(*_square(rows), strict=True):
        cells = [cell for cell in map(str.strip, column) if any(one.isdigit() for one in cell)]
        if not cells or sum(map(is_number, cells)) < _MOSTLY * len(cells):
            continue
        here = {kind: cell for cell in cells if (kind := _kind(cell))}
        seen = here | seen
        if "1.234" in here and "123" in here and not {"1.5", "1,5", "1,234"} & set(here):
            in_doubt = here["1.234"]
    spaced = seen.get("1 234", "")
    comma = seen.get("1,5") or seen.get("1.234.567") or ("," in spaced and spaced)
    point = seen.get("1.5") or seen.get("1,234,567") or ("." in spaced and spaced)
    if comma and point:
        raise KeyProblem(
            f"{name} writes numbers both as {comma!r} and as {point!r}; set data.decimal to "
            "the mark of decimals, or correct the file",
            'decimal=","',
        )
    doubtful = None if comma or point else seen.get("1,234") or in_doubt
    if doubtful:
        mark = "," if "," in doubtful else "."
        raise KeyProblem(
            f"{name} writes numbers as {doubtful!r}, which is {doubtful.replace(mark, '')} or "
            f"{doubtful.replace(mark, '.')}; set data.thousands = {mark!r} or "
            f"data.decimal = {mark!r}",
            f"thousands={mark!r}",
        )
    if thousands is None and spaced:
        thousands = next(one for one in spaced if one in _SPACES)
    if comma:
        return ",", thousands or ("." if {"1.234", "1.234.567"} & set(seen) else None)
    return ".", thousands or ("," if {"1,234", "1,234,567"} & set(seen) else None)


def _square(rows: Sequence[list[str]]) -> Iterator[list[str]]:
    wide = max(map(len, rows), default=0)
    return (row + [""] * (wide - len(row)) for row in rows)


def _kind(cell: str) -> str | None:
    return next((kind for kind, pattern in _KINDS.items() if pattern.fullmatch(cell)), None)


def number_reader(style: Style) -> Callable[[pd.Series], pd.Series]:
    """Texts as numbers by a style, NaN for all else: with thousands "," the text "1,2" is no 12."""
    decimal = re.escape(style.decimal)
    grouped = "" if style.thousands is None else rf"{_GROUP}({re.escape(style.thousands)}\d{{3}})+|"
    exact = (
        rf"{_SIGN}(({grouped}\d+)({decimal}\d*)?|{decimal}\d+)([eE]{_SIGN}\d+)?|{_SIGN}inf(inity)?"
    )

    def read(texts: pd.Series) -> pd.Series:
        stripped = texts.astype(str).str.strip().str.replace("−", "-")
        good = stripped.str.fullmatch(exact, flags=re.IGNORECASE)
        if style.thousands is not None:
            stripped = stripped.str.replace(style.thousands, "", regex=False)
        plain = stripped.str.replace(style.decimal, ".", regex=False)
        return pd.to_numeric(plain.where(good), errors="coerce").astype(np.float64)

    return read
