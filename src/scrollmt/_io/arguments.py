"""Errors for arguments of a wrong type: the argument, what is expected, what was given."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from numbers import Real
from typing import Any

import numpy as np


def shown(value: Any) -> str:
    """A value in the line of a message, cut short."""
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # Python prints no integer of more than a few thousand digits
        return "a number of too many digits"
    return text if len(text) <= 60 else f"{text[:57]}..."


def is_whole(value: Any) -> bool:
    """Whether a value is an integer of Python, NumPy or JAX; True and False are not."""
    if isinstance(value, bool | np.bool_):
        return False
    try:
        operator.index(value)
    except TypeError:
        return False
    return True


def check_whole(name: str, value: Any, least: int) -> None:
    """Refuse what is not a whole number from `least` on."""
    if not is_whole(value) or value < least:
        raise ValueError(f"{name} must be a whole number >= {least}, got {shown(value)}")


def check_number(name: str, value: Any, least: float, most: float = math.inf) -> None:
    """Refuse what is not a finite number between `least` and `most`."""
    wanted = f">= {least:g}" if most == math.inf else f"between {least:g} and {most:g}"
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not least <= value <= most:
        raise ValueError(f"{name} must be a number {wanted}, got {shown(value)}")


def read_list(name: str, value: Any, wanted: str) -> tuple[Any, ...]:
    """What a list holds; refuse text, and what is no list."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ValueError(f"{name} must be {wanted}, got {shown(value)}")
    return tuple(value)


def check_type(name: str, value: Any, kind: type | tuple[type, ...], wanted: str) -> None:
    """Refuse what is not an instance of `kind`."""
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be {wanted}, got {shown(value)}")
