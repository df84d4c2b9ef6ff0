"""Probes: jobs that are not fits of an arm, by the name that stands in the place of the arm.

The probes of the paper are in `studies.probes`; importing `scrollmt.paper.studies` registers them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from scrollmt.paper.protocol import Protocol

if TYPE_CHECKING:
    from scrollmt.paper.arena.jobs import Job

Rows = dict[int, list[dict[str, Any]]]
Probe = Callable[["Job", Protocol], Rows]
PREFIX = "probe-"
# The probes whose rows are read by tables.
CORPUS, COST = "probe-corpus", "probe-cost"
DEFAULT, ORACLE = "probe-default", "probe-oracle"
PROBES: dict[str, Probe] = {}
SETTINGS: dict[str, Mapping[str, Any]] = {}
ALONE: set[str] = set()


def probe(
    name: str, settings: Mapping[str, Any] | None = None, *, alone: bool = False
) -> Callable[[Probe], Probe]:
    """Register a function that makes rows, by seed, of a job.

    `settings` are plain values beside the protocol's that determine them. A probe that takes
    times runs `alone`: in the calling process, after everything else, one job after the other.
    """
    if not name.startswith(PREFIX):
        raise ValueError(f"the name of a probe begins with {PREFIX!r}, got {name!r}")

    def register(function: Probe) -> Probe:
        if name in PROBES:
            raise ValueError(f"a probe named {name!r} is registered already")
        PROBES[name] = function
        SETTINGS[name] = settings or {}
        if alone:
            ALONE.add(name)
        return function

    return register
