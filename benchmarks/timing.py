"""Measure functions in turns within one process, and say on what machine.

Each round times every function once, so that a busy moment of the machine falls on all of
them; figures are minima and medians over rounds.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np


def machine() -> str:
    cpu = platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = f"{len(names)} cores of {names[0].split(':')[1].strip()} ({cpu})" if names else cpu
    device = jax.devices()[0]
    where = cpu if device.platform == "cpu" else f"{device.device_kind}, host {cpu}"
    return f"{where}; jax {jax.__version__}, Python {platform.python_version()}"


def in_turns(
    functions: Mapping[str, Callable[[], Any]], rounds: int, each: Mapping[str, int] | None = None
) -> dict[str, np.ndarray]:
    """Seconds of every function in every round, divided by how many steps `each` call makes."""
    for function in functions.values():
        jax.block_until_ready(function())
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            began = time.perf_counter()
            jax.block_until_ready(function())
            steps = 1 if each is None else each.get(name, 1)
            seconds[name].append((time.perf_counter() - began) / steps)
    return {name: np.asarray(values) for name, values in seconds.items()}


def ratio(seconds: dict[str, np.ndarray], name: str, base: str) -> str:
    """Ratio of minima, and the median over rounds of the ratio within a round."""
    lowest = seconds[name].min() / seconds[base].min()
    return f"{lowest:.2f} (median {np.median(seconds[name] / seconds[base]):.2f})"
