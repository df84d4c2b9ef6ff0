"""Modules under the names that they had in version 0.1."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module


def alias(old: str, new: str) -> None:
    """The module `old` is the module `new`, so that both names lead to the same objects."""
    warnings.warn(
        f"{old} has moved to {new}; the old name goes with version 0.3",
        DeprecationWarning,
        stacklevel=2,
    )
    sys.modules[old] = import_module(new)
