"""A run as it is recorded: what it is a run of, its rows to the last bit, and a checksum.

A run is one seed of a job. Rows are kept as JSON, arrays as little-endian float64; either way a
number comes back as the same number, NaN and infinities included.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from numbers import Integral, Real
from typing import Any

import numpy as np
import pandas as pd

from scrollmt.paper.arena.jobs import Job, Outcome, Row

LEADING = ("corpus", "arm", "backbone", "seed", "setting")
TRAILING = ("seconds", "device")
FLOAT64 = np.dtype("<f8")


@dataclass(frozen=True)
class Run:
    """One seed of a job, finished; `seconds` is its share of the job's."""

    key: str
    corpus: str
    arm: str
    backbone: str
    seed: int
    determinants: str
    rows: str
    seconds: float
    environment: str
    finished: str

    def __str__(self) -> str:
        return f"{self.corpus} {self.arm} {self.backbone} seed {self.seed}"


@dataclass(frozen=True)
class RecordedArray:
    """A long column that a job left for its first seed, whose key it bears."""

    key: str
    name: str
    data: bytes

    def values(self) -> np.ndarray:
        return np.frombuffer(self.data, FLOAT64).astype(float)


@dataclass(frozen=True)
class Call:
    """A call of the arena: when it began, how long it took, where, and how much it computed."""

    began: str
    seconds: float
    label: str
    engine: str
    workers: int
    cores: int
    device: str
    jobs: int
    runs: int
    complete: bool


def checksum(values: Iterable[object]) -> str:
    """A digest of a line's values and of their types: damage can make a number of a text."""
    return digest(ascii(tuple(values)))


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def runs_of(job: Job, outcome: Outcome) -> list[Run]:
    """A finished job's runs: one for every seed of the job, and no other."""
    if set(outcome.rows) != set(job.seeds):
        raise ValueError(
            f"{name_of(job)} has seeds {sorted(job.seeds)}, but its outcome has rows for "
            f"{sorted(outcome.rows)}; an outcome is recorded whole"
        )
    finished = datetime.now(UTC).isoformat(timespec="seconds")
    environment = json.dumps(outcome.environment, sort_keys=True)
    return [
        Run(
            key=job.key(seed),
            corpus=job.corpus,
            arm=job.arm,
            backbone=job.backbone,
            seed=seed,
            determinants=job.determinants,
            rows=_encode(outcome.rows[seed], f"{name_of(job)}, seed {seed}"),
            seconds=outcome.seconds / len(job.seeds),
            environment=environment,
            finished=finished,
        )
        for seed in job.seeds
    ]


def arrays_of(job: Job, outcome: Outcome) -> list[RecordedArray]:
    key = job.key(job.seeds[0])
    return [
        RecordedArray(key, name, np.asarray(values, FLOAT64).tobytes())
        for name, values in outcome.arrays.items()
    ]


def frame_of(runs: Iterable[Run]) -> pd.DataFrame:
    """One row per run and setting: who, every number by name, seconds of the seed, device."""
    rows = []
    names: dict[str, None] = {}  # a set that keeps its order
    for run in runs:
        device = json.loads(run.environment).get("device", "unknown")
        for row in _decode(run.rows):
            rows.append(asdict(run) | row | {"device": device})
            names |= dict.fromkeys(row)
    between = [name for name in names if name not in {*LEADING, *TRAILING}]
    return pd.DataFrame(rows, columns=[*LEADING, *between, *TRAILING])


def provenance_of(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """What determined the runs and where they ran, the seeds of one job together."""
    seeds: dict[tuple[str, ...], list[int]] = {}
    for run in runs:
        group = (run.corpus, run.arm, run.backbone, run.determinants, run.environment)
        seeds.setdefault(group, []).append(run.seed)
    return [
        {
            "corpus": corpus,
            "arm": arm,
            "backbone": backbone,
            "seeds": sorted(its_seeds),
            "determinants": json.loads(determinants),
            "environment": json.loads(environment),
        }
        for (corpus, arm, backbone, determinants, environment), its_seeds in sorted(seeds.items())
    ]


def name_of(job: Job) -> str:
    return f"{job.corpus} {job.arm} {job.backbone}"


def _encode(rows: list[Row], where: str) -> str:
    if not rows:
        raise ValueError(f"{where}: there is no row; a finished run has at least one")
    for row in rows:
        if not isinstance(row.get("setting"), str):
            raise ValueError(f"{where}: a row's setting is JSON text, not {row.get('setting')!r}")
    return json.dumps([{name: _plain(name, v, where) for name, v in row.items()} for row in rows])


def _plain(name: str, value: Any, where: str) -> Any:
    """A value that JSON holds; it has no NaN and no infinity, so those are spelled out."""
    if name in {*LEADING, *TRAILING} - {"setting", "seconds"}:
        raise ValueError(f"{where}: every record has a column {name!r}; name the number otherwise")
    if isinstance(value, str) and value:
        return value
    if isinstance(value, Integral | np.bool_):
        return int(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else {"float": str(float(value))}
    raise ValueError(
        f"{where}: {name!r} is {value!r}, neither a number nor text; leave the column out of the "
        "row where there is nothing to say"
    )


def _decode(rows: str) -> list[Row]:
    def read(found: dict[str, Any]) -> Any:
        return float(found["float"]) if found.keys() == {"float"} else found

    found: list[Row] = json.loads(rows, object_hook=read)
    return found
