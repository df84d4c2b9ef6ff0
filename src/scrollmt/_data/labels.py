"""Labels of classes as users write them, read as the numbers 0 .. R-1.

0, 1, 2                   numbers; negative ones, NaN and None are missing
"low", "mid", "high"      the texts that a head was given, in their order; "" is missing too
True, "yes", "no"         yes or no, of an event without texts of its own
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from scrollmt.laws import class_labels, real_labels

# So many negative labels look like a class of their own rather than gaps.
MANY_NEGATIVE = 0.1
_YES_OR_NO = {"no": 0, "yes": 1, "false": 0, "true": 1}

Texts = tuple[str, ...]


def count_and_texts(head: str, given: Any) -> tuple[int, Texts | None]:
    """The number of classes and their texts, from `Ordinal(3)` or `Ordinal(["low", ...])`."""
    if isinstance(given, Iterable) and not isinstance(given, str):
        texts = read_texts(head, given)
        return len(texts), texts
    if isinstance(given, str) or int(given) != given or given < 2:
        raise ValueError(
            f"{head} needs a whole number of at least 2 classes, or their texts in a list, got "
            f"{given!r}"
        )
    return int(given), None


def read_texts(head: str, given: Iterable[str]) -> Texts:
    """Texts of at least two classes."""
    texts = tuple(given)
    good = len(texts) >= 2 and all(isinstance(one, str) and one for one in texts)
    if not good or len(set(texts)) < len(texts):
        raise ValueError(f"{head}: labels are at least two different texts, got {list(texts)}")
    return texts


def read_classes(
    name: str, values: Any, classes: int, texts: Texts | None, *, yes_or_no: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Classes as int32, 0 where missing, and which are observed."""
    if texts is not None:
        return _read_texts(name, values, texts)
    if yes_or_no:
        values = _numbers_of_words(values)
    try:
        given = real_labels(values, len(values), f"task {name!r}")
    except ValueError as error:
        raise ValueError(f"{error}, or give the head its labels as texts") from None
    y = class_labels(given, len(given), classes, f"task {name!r}")
    negative = given < 0.0
    if negative.mean() > MANY_NEGATIVE:
        row = int(np.flatnonzero(negative)[0])
        warnings.warn(
            f"task {name!r}: {negative.mean():.0%} of the labels are negative and count as missing "
            f"(row {row} is {given[row]:g}); the classes are 0 to {classes - 1}: if these are "
            "classes, count them from 0; if they are missing, NaN says so without this warning",
            UserWarning,
            stacklevel=7,
        )
    seen = y >= 0
    return np.where(seen, y, 0).astype(np.int32), seen


def _read_texts(name: str, values: Any, texts: Texts) -> tuple[np.ndarray, np.ndarray]:
    given = pd.Series(np.asarray(values, dtype=object), dtype=object)
    seen = (given.notna() & (given != "")).to_numpy()
    found = given.map({text: number for number, text in enumerate(texts)}).to_numpy(dtype=float)
    wrong = np.flatnonzero(seen & np.isnan(found))
    if len(wrong):
        raise ValueError(
            f"task {name!r}: row {wrong[0]} is {given[wrong[0]]!r} ({len(wrong)} of {len(given)} "
            f"rows are no label); the labels are {', '.join(map(repr, texts))}, and a missing one "
            "is NaN, None or an empty text"
        )
    return np.where(seen, found, 0).astype(np.int32), seen


def _numbers_of_words(values: Any) -> Any:
    """Yes and no as 1 and 0, where that is all there is; anything else as it was."""
    array = np.asarray(values)
    if array.dtype.kind not in "OUT":
        return values
    given = pd.Series(array, dtype=object)
    seen = given[given.notna() & (given != "")]
    if not seen.map(lambda one: isinstance(one, str) and one.lower() in _YES_OR_NO).all():
        return values
    numbers = seen.map(lambda one: _YES_OR_NO[one.lower()])
    return numbers.reindex(given.index).to_numpy(dtype=float)
