"""The memory that a batch of runs takes, and whether a smaller batch is worth compiling.

The estimate walks through a traced function and adds up the bytes of all values that are
still needed at each point; the largest such sum is the peak. XLA fuses some of these values
away, so the estimate errs on the safe side.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.extend.core import Jaxpr, Var

# A step passes a few times over what a run keeps alive. Saving this many bytes, added over
# the steps that are left, is worth one compilation of some seconds (measured, see
# docs/results/speed.md); an accelerator moves bytes a hundred times faster than a CPU.
_BYTES_PER_COMPILATION = {"cpu": 2e10}
_BYTES_PER_COMPILATION_ELSEWHERE = 3e12
_MAPPINGS_ALLOWED, _MAPPINGS = Path("/proc/sys/vm/max_map_count"), Path("/proc/self/maps")
_SHARE_OF_MAPPINGS = 0.6
# With fewer windows than this in all runs together no sensible model fills a machine, or on a
# CPU the caches of a core or two.
_FEW_WINDOWS = {"cpu": 10_000}
_FEW_WINDOWS_ELSEWHERE = 1_000_000
# A CPU is fastest while what the runs of a batch keep alive stays in its caches, as long as every
# core has a few of them to work on (measured, see docs/results/speed.md).
_CACHED_BYTES_PER_CORE = 24e6
_RUNS_PER_CORE = 4
# A run that keeps more than this alive fills the cache of a core, and a second run on that core
# evicts it. One run per core is then faster by a quarter, where no core stays idle for long.
_LONE_RUN_BYTES = 6e6


def cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def clear_jit_cache() -> None:
    """Drop compiled programs before the process runs out of memory mappings.

    Linux allows a process some 65,000 of them. Every compiled program keeps a few hundred, and
    the first that is refused ends the process; a sweep over a hundred shapes gets there. What is
    dropped is compiled again when it is needed.
    """
    try:
        allowed = int(_MAPPINGS_ALLOWED.read_text())
        taken = _MAPPINGS.read_bytes().count(b"\n")
    except OSError:  # not Linux
        return
    if taken > _SHARE_OF_MAPPINGS * allowed:
        jax.clear_caches()


def live_bytes(function: Callable[..., Any], *shapes: Any) -> int:
    """Peak bytes of a function's arguments and intermediate values."""
    return _peak(jax.make_jaxpr(function)(*shapes).jaxpr)


def _bytes(variable: Any) -> int:
    shape = getattr(variable.aval, "shape", ())
    dtype = getattr(variable.aval, "dtype", np.dtype(np.float32))
    return math.prod(shape) * getattr(dtype, "itemsize", 4)


def _peak(jaxpr: Jaxpr) -> int:
    last_use: dict[Var, int] = {}
    for place, equation in enumerate(jaxpr.eqns):
        last_use.update({v: place for v in equation.invars if isinstance(v, Var)})
    last_use.update({v: len(jaxpr.eqns) for v in jaxpr.outvars if isinstance(v, Var)})
    alive = peak = sum(_bytes(v) for v in (*jaxpr.invars, *jaxpr.constvars))
    for place, equation in enumerate(jaxpr.eqns):
        inner = [_peak(sub) - sum(map(_bytes, sub.invars)) for sub in _inner(equation.params)]
        alive += sum(map(_bytes, equation.outvars))
        peak = max(peak, alive + max([0, *inner]))
        used = {v for v in (*equation.invars, *equation.outvars) if isinstance(v, Var)}
        alive -= sum(_bytes(v) for v in used if last_use.get(v, place) == place)
    return peak


def _inner(params: dict[str, Any]) -> list[Jaxpr]:
    """The functions that an equation calls."""
    found = (getattr(p, "jaxpr", p) for p in params.values())
    return [p for p in found if isinstance(p, Jaxpr)]


def _half_of_the_memory() -> float:
    stats = jax.local_devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return 0.5 * float(stats["bytes_limit"])
    try:
        return 0.5 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):  # a system that does not tell
        return math.inf


def cut(
    runs: int,
    budget: float | None,
    windows: int,
    run_bytes: Callable[[], int],
    *,
    shared: bool = False,
) -> list[np.ndarray]:
    """Runs in as few equal parts as fit the budget; the last repeats a run to fill its places.

    By default that is half of the memory, and on a CPU what its caches hold, unless a stream
    is `shared` by the runs, which every part would have to read again.
    """
    platform = jax.default_backend()
    if budget is None and windows < _FEW_WINDOWS.get(platform, _FEW_WINDOWS_ELSEWHERE):
        return [np.arange(runs)]
    each = run_bytes()
    most = (_half_of_the_memory() if budget is None else budget) / each
    if budget is None and platform == "cpu" and not shared:
        alone = each > _LONE_RUN_BYTES and runs >= 2 * cores()
        a_core = 1 if alone else max(_RUNS_PER_CORE, _CACHED_BYTES_PER_CORE / each)
        most = min(most, cores() * a_core)
    parts = math.ceil(runs / max(1, int(min(most, runs))))
    size = math.ceil(runs / parts)
    return [np.minimum(np.arange(i, i + size), runs - 1) for i in range(0, runs, size)]


def worth_compiling(saved_bytes: float) -> bool:
    """Whether a smaller batch is worth its compilation."""
    platform = jax.default_backend()
    return saved_bytes > _BYTES_PER_COMPILATION.get(platform, _BYTES_PER_COMPILATION_ELSEWHERE)
