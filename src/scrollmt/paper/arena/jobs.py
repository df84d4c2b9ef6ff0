"""Jobs: what the arena computes, and what it learns from it.

A job is one (corpus, arm, backbone) over some seeds. `execute` trains its runs, those of a
composition as one batch, scores their laws in one place and returns one row of numbers a run.
"""

from __future__ import annotations

import functools
import hashlib
import json
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import jax
import numpy as np

from scrollmt.paper.arena.probes import PREFIX, PROBES, SETTINGS
from scrollmt.paper.arena.problems import problem, read_id, true_var
from scrollmt.paper.arena.scoring import check_laws
from scrollmt.paper.arena.sources import SOURCES
from scrollmt.paper.arena.training import train_composed, train_own
from scrollmt.paper.arms import ARMS, Arm, OwnArm, get_arm
from scrollmt.paper.arms.base import AbstractArm, Heads, module_of
from scrollmt.paper.protocol import PROTOCOL, Protocol

Row = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """One (corpus, arm, backbone) over some seeds.

    `determinants` holds, as plain JSON values, all else that determines the result:
    the protocol's constants and the arm's own description.
    """

    corpus: str
    arm: str
    backbone: str
    seeds: tuple[int, ...]
    determinants: str = field(default="{}", repr=False)

    def key(self, seed: int) -> str:
        """A hash of everything that determines one seed's rows."""
        parts = [self.corpus, self.arm, self.backbone, seed, json.loads(self.determinants)]
        text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Outcome:
    """What a job produced: rows by seed, the seconds it took, and where it ran.

    Every row has `setting` (a JSON object of the run's numeric hyperparameters, `"{}"` if
    none) and numbers by name; `arrays` holds longer columns for figures by name and seed.
    """

    rows: dict[int, list[Row]]
    seconds: float
    environment: dict[str, str]
    arrays: dict[str, list[float]] = field(default_factory=dict)


def make_job(
    corpus: str,
    arm: str,
    backbone: str,
    protocol: Protocol = PROTOCOL,
    seeds: Sequence[int] | None = None,
) -> Job:
    """A job under a protocol; a typing slip in a name is found here, not in a worker."""
    determinants: dict[str, Any] = {"protocol": protocol.determinants()}
    if arm.startswith(PREFIX):
        if arm not in PROBES:
            raise ValueError(f"unknown probe {arm!r}; choose from {', '.join(sorted(PROBES))}")
        determinants["arm"] = dict(SETTINGS[arm])
    else:
        chosen, source = get_arm(arm), SOURCES[read_id(corpus).name]
        determinants["arm"] = _described(chosen, source.tasks)
        if backbone not in chosen.backbones:
            raise ValueError(
                f"unknown backbone {backbone!r}; choose from {', '.join(chosen.backbones)}"
            )
        if source.determinants:
            determinants["corpus"] = dict(source.determinants)
    return Job(
        corpus,
        arm,
        backbone,
        tuple(protocol.seeds if seeds is None else seeds),
        json.dumps(determinants, sort_keys=True),
    )


def execute(job: Job, protocol: Protocol | None = None) -> Outcome:
    """Train and score a job's runs; one row per run, or one row per ensemble."""
    # Scores in single precision throughout: accelerators would halve the digits of a product.
    with jax.default_matmul_precision("highest"):
        return _execute(job, protocol)


def _execute(job: Job, protocol: Protocol | None) -> Outcome:
    if protocol is None:
        stated = json.loads(job.determinants).get("protocol", {})
        protocol = Protocol(**stated) if stated else PROTOCOL
    if job.arm.startswith(PREFIX):
        began = time.perf_counter()
        made = PROBES[job.arm](job, protocol)
        return Outcome(made, time.perf_counter() - began, environment())
    arm = get_arm(job.arm)
    of = problem(job.corpus, protocol)
    truth = true_var(of, protocol)
    if isinstance(arm, OwnArm):
        trained = train_own(arm, job.backbone, job.seeds, of)
    elif isinstance(arm, Arm):
        trained = train_composed(arm, job.backbone, job.seeds, of, protocol)
    else:
        raise TypeError(f"arm {arm.name!r} is a {type(arm).__name__}; make it an Arm or an OwnArm")
    tasks, scoring = arm.heads_on(of.source.tasks()), of.source.scoring
    rows: dict[int, list[Row]] = {seed: [] for seed in job.seeds}
    arrays: dict[str, list[float]] = {}
    for seed, forecasts in trained.forecasts.items():
        split = of.split(seed)
        factor = of.target_factor(split)
        valid_y, test_y = (of.part(part, factor)[1] for part in (split.valid, split.test))
        V = None if truth is None else truth[split.test]
        for setting, handed in zip(arm.setting_texts(), forecasts, strict=True):
            where = f"{job.corpus} {job.arm} seed {seed}"
            check_laws(handed.valid, valid_y, tasks, f"{where}, validation windows")
            check_laws(handed.test, test_y, tasks, f"{where}, test windows")
            row: Row = {"setting": setting}
            row |= scoring.valid(handed.valid, valid_y) | scoring.test(handed.test, test_y, V)
            if of.source.scaled is not None:
                row["target_factor"] = factor
            row["seconds"] = trained.seconds / len(job.seeds)
            if taken := sorted(row.keys() & handed.facts.keys()):
                raise ValueError(
                    f"{where}: the facts {taken} have the names of columns that the arena "
                    "computes; give them other names"
                )
            rows[seed].append(row | dict(handed.facts))
            if seed == job.seeds[0] and len(arm.settings) == 1:
                arrays = scoring.arrays(handed.test, V)
    return Outcome(rows, trained.seconds, environment(), arrays)


def modules_of(job: Job) -> set[str]:
    """The modules that register a job's arm or probe and its corpus, for a worker to import.

    A worker has the functions of a script's `__main__` already.
    """
    found: set[str] = set()
    if job.arm in PROBES:
        found = {module_of(PROBES[job.arm])}
    elif job.arm in ARMS:
        source = SOURCES[read_id(job.corpus).name]
        found = ARMS[job.arm].modules() | {module_of(source.load), module_of(source.tasks)}
    return found - {"__main__"}


def environment() -> dict[str, str]:
    """Where and with what a job ran."""
    return {
        "scrollmt": version("scrollmt"),
        "jax": jax.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "device": str(jax.devices()[0].device_kind),
    }


@functools.cache
def _described(arm: AbstractArm, tasks: Callable[[], Heads]) -> dict[str, Any]:
    """An arm's description on a corpus, once: it makes heads, and a sweep has thousands of jobs."""
    return arm.describe(tasks())
