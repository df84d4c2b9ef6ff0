"""Cells that stand for a missing value, in columns of numbers and in columns of text.

12.5, "-", 13.1, "k.A."     numbers with two markers: NaN, named and counted
12.5, "<5", 13.1, ...       an unknown text among numbers: left as it is, to be refused where
                            the column is needed as numbers
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

# What pandas takes for missing in a column of text.
_IN_TEXT = {
    *("#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
}
# In a column of numbers these can be nothing else, in whatever case they are written.
_AMONG_NUMBERS = {
    *(one.casefold() for one in _IN_TEXT),
    *("-", "--", "---", "–", "—", ".", "?", "*", "k.a.", "k. a.", "n.a.", "n. a.", "missing"),
    *("fehlt", "no data", "nodata", "#div/0!", "#num!", "#ref!", "#value!", "#wert!"),
}
# A column with more numbers than this share is one of numbers.
_MOSTLY = 0.8
_SHOWN = 5


class Odd(NamedTuple):
    """Texts in a column: the first, its row, how many there are, and whether most are numbers."""

    cell: str
    row: int
    cells: int
    mostly_numbers: bool

    def sentence(self, column: str) -> str:
        kind = "holds numbers but for" if self.mostly_numbers else "does not hold numbers:"
        many = "1 cell," if self.cells == 1 else f"{self.cells} cells such as"
        return (
            f"column {column!r} {kind} {many} {self.cell!r} in row {self.row + 1} below the header"
        )


class Cells(NamedTuple):
    """A column as read, the texts that were taken for missing, and those that are left."""

    values: pd.Series
    markers: dict[str, int]
    odd: Odd | None


def read_cells(
    column: pd.Series,
    to_numbers: Callable[[pd.Series], pd.Series],
    missing: tuple[str, ...] | None,
) -> Cells:
    """A column of text: as numbers where all but markers are numbers, else as text.

    ``missing`` are the texts that the user takes for missing; None are those that pandas knows.
    """
    texts = column[column.map(lambda one: isinstance(one, str))]
    if texts.empty:
        return Cells(column, {}, None)
    texts = texts.astype(str).str.strip()
    given = texts.isin(missing or ())
    numbers = to_numbers(texts)
    rest = texts[numbers.isna() & ~given]
    known = rest[rest.str.casefold().isin(_AMONG_NUMBERS)]
    others = rest.drop(known.index)
    real = pd.to_numeric(column.drop(texts.index), errors="coerce").dropna()
    count = int(numbers.notna().sum()) + len(real)
    if others.empty and (count or not known.empty):
        values = pd.concat([numbers.where(~given), real]).reindex(column.index)
        return Cells(values.astype(np.float64), known.value_counts().to_dict(), None)
    if missing is None:
        given = texts.isin(_IN_TEXT)
    found = {} if missing is not None else texts[given].value_counts().to_dict()
    values = column.mask(given.reindex(column.index, fill_value=False))
    if others.empty:
        return Cells(values, found, None)
    row = int(np.flatnonzero(column.index == others.index[0])[0])
    mostly_numbers = count > _MOSTLY * (count + len(others))
    return Cells(values, found, Odd(others.iloc[0], row, len(others), mostly_numbers))


def markers_sentence(markers: Mapping[str, Mapping[str, int]]) -> str:
    """What was read as missing, by column."""
    counted = [
        f"{count} {'cells' if count > 1 else 'cell'} {text!r} of {column!r}"
        for column, texts in markers.items()
        for text, count in texts.items()
    ]
    more = f" and {len(counted) - _SHOWN} more" if len(counted) > _SHOWN else ""
    return (
        f"read as missing are {', '.join(counted[:_SHOWN])}{more} (data.missing lists such texts)"
    )
