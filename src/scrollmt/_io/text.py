"""Text from files and users made safe for a terminal, for JSON and for spreadsheets."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

# Controls move the cursor and recolour the screen; formats such as bidi overrides reorder what is
# read. The two joiners are part of how some scripts are spelled.
_HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_JOINERS = "\u200c\u200d"
# What a spreadsheet takes for a formula when a cell begins with it, unless it is a plain number.
_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def _hidden(letter: str) -> bool:
    return unicodedata.category(letter) in _HIDDEN and letter not in _JOINERS


def visible(text: str) -> str:
    r"""The text on one line, every control in it spelled out, such as \x1b for Escape."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c.encode("unicode_escape").decode() if _hidden(c) else c for c in text)


def plain(value: Any) -> Any:
    """A value as JSON knows it: times in ISO form, NaN and what is missing as null."""
    import numpy as np
    import pandas as pd

    if isinstance(value, pd.DataFrame):
        return [plain(row) for row in value.to_dict(orient="records")]
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | np.ndarray | pd.Index):
        return [plain(one) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, pd.Timestamp | pd.Timedelta):
        return None if value is pd.NaT else value.isoformat()
    if value is None or value is pd.NaT or value is pd.NA:
        return None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, bool | int | str) else str(value)


def visible_json(text: str) -> str:
    """The same JSON, with controls that it may hold as they are written as its own escapes."""

    def escaped(letter: str) -> str:
        units = letter.encode("utf-16-be", "surrogatepass")
        return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))

    # Line breaks are those between values; the ones in strings are escaped already.
    return "".join(escaped(c) if c != "\n" and _hidden(c) else c for c in text)


def neutral(cell: str) -> str:
    """A cell that no spreadsheet takes for a formula; `original` takes the apostrophe off again."""
    return f"'{cell}" if _FORMULA.match(cell) and not _NUMBER.fullmatch(cell) else cell


def original(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def neutral_table(frame: pd.DataFrame) -> pd.DataFrame:
    """A table whose column names and text cells are neutral."""
    return _with_text(frame, neutral)


def visible_table(frame: pd.DataFrame) -> pd.DataFrame:
    """A table whose column names and text cells hold no hidden controls."""
    return _with_text(frame, visible)


def _with_text(frame: pd.DataFrame, change: Callable[[str], str]) -> pd.DataFrame:
    """Text changed, in names and in cells; numbers and times stay what they are."""
    import pandas as pd  # which help and completion can do without

    def changed(value: Any) -> Any:
        return change(value) if isinstance(value, str) else value

    out = frame.copy()
    for place, dtype in enumerate(frame.dtypes):
        if dtype.kind == "O":
            cells = [changed(value) for value in frame.iloc[:, place]]
            out.isetitem(place, pd.Series(cells, index=frame.index, dtype=object))
    out.columns = [changed(name) for name in frame.columns]
    return out
