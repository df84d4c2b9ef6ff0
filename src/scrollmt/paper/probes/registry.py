"""Probes by the name of their arm."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scrollmt.paper.protocol import Protocol

if TYPE_CHECKING:
    from scrollmt.paper.jobs import Job

Rows = dict[int, list[dict[str, Any]]]
Probe = Callable[["Job", Protocol], Rows]
PREFIX = "probe-"
PROBES: dict[str, Probe] = {}


def probe(name: str) -> Callable[[Probe], Probe]:
    """Register a function that makes rows, by seed, of a job."""
    if not name.startswith(PREFIX):
        raise ValueError(f"the name of a probe begins with {PREFIX!r}, got {name!r}")

    def register(function: Probe) -> Probe:
        if name in PROBES:
            raise ValueError(f"a probe named {name!r} is registered already")
        PROBES[name] = function
        return function

    return register
