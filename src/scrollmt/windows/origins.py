r"""Which rows of a series are origins: how far apart, and which clock times they leave out.

Origins lie ``stride`` rows apart. With W rows in a week, the clock times (hour and weekday) of
origins repeat after W rows, so that origins from an anchor a meet exactly the rows

    a + g k,    g = gcd(stride, W),    k = 0, 1, 2, ...   (modulo W)

A stride of a day (g = 24 for hourly rows) meets a single hour of the day; a stride without a
common factor with W (g = 1) meets them all. A stride that is not given takes every row, or, of a
long series, every s-th with g = 1.
"""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

# Overlapping windows beyond this add little and cost memory: more than these are thinned.
MOST_WINDOWS = 20_000
# Of a series without dates: periods with the factors 2, 3 and 7 are the likely ones.
_ROWS_IN_AN_UNKNOWN_WEEK = 168


def rows_in_a_week(step: Any) -> int | None:
    """After how many rows hour and weekday repeat; None for a series without dates."""
    if not isinstance(step, pd.Timedelta):
        return None
    week = int(pd.Timedelta(7, "D").value)
    nanoseconds = int(step.as_unit("ns").value)
    return week // math.gcd(week, nanoseconds)


def rows_in_a_season(step: Any) -> int | None:
    """Rows of a day, of a week of days, of a year of weeks; None where there is no such number."""
    if not isinstance(step, pd.Timedelta):
        return None
    day, week = pd.Timedelta(1, "D"), pd.Timedelta(7, "D")
    if step == week:
        return 52
    season = week if step == day else day
    whole = step <= day and season % step == pd.Timedelta(0)
    return season // step if whole and season > step else None


def default_stride(origins: int, step: Any) -> int:
    """Every origin, or so few that at most `MOST_WINDOWS` are left, at all hours of the week."""
    stride = math.ceil(origins / MOST_WINDOWS)
    if stride <= 1:
        return 1
    week = rows_in_a_week(step) or _ROWS_IN_AN_UNKNOWN_WEEK
    while math.gcd(stride, week) > 1:
        stride += 1
    return stride


def rows_between_known_phases(stride: int | None, step: Any) -> int:
    """The g of the formula: a given stride meets every g-th row of a week; 1 means all of them.

    Without dates no week is known, and a given stride counts as it is.
    """
    if stride is None:
        return 1
    week = rows_in_a_week(step)
    return stride if week is None else math.gcd(stride, week)
