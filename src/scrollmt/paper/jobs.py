"""Jobs: what the arena computes, and what it learns from it.

A job is one (corpus, arm, backbone) over some seeds. `execute` trains its runs, those of a
composition as one batch, scores their laws in one place and returns one row of numbers a run.
"""

from __future__ import annotations

import hashlib
import json
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import scrollmt.paper.probes.all  # noqa: F401
from scrollmt._data.reading import read_rows
from scrollmt._data.scaling import Scales
from scrollmt.backbone import PAPER_WIDTH, paper_backbone
from scrollmt.fit import Fits, fit, stack
from scrollmt.laws import Law, mix
from scrollmt.model import Model, build, start_keys
from scrollmt.objective import Data
from scrollmt.paper.arms import ARMS, Arm, Fold, Forecasts, OwnArm, get_arm
from scrollmt.paper.arms.base import Heads, map_runs, module_of, one_run
from scrollmt.paper.arms.ensembles import MEMBER_STRIDE
from scrollmt.paper.probes.registry import PREFIX, PROBES, SETTINGS
from scrollmt.paper.problems import Problem, problem, read_id, true_var
from scrollmt.paper.protocol import PROTOCOL, Protocol
from scrollmt.paper.scoring import check_laws
from scrollmt.paper.sources import SOURCES

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
        determinants["arm"] = chosen.describe(source.tasks())
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


@dataclass(frozen=True)
class _Part:
    """One seed's windows as they are trained on, and how they were scaled."""

    factor: float
    scales: Scales
    train: Data
    valid: Data
    test_x: np.ndarray


def _part(of: Problem, seed: int, tasks: Sequence[str]) -> _Part:
    split = of.split(seed)
    factor = of.target_factor(split)
    heads = {name: head for name, head in of.source.tasks().items() if name in tasks}

    def rows(index: np.ndarray) -> Any:
        X, Y = of.part(index, factor)
        return read_rows(X, {name: Y[name] for name in heads}, None, heads)

    train = rows(split.train)
    scales = Scales.of(train, heads, scale_targets=False)
    return _Part(
        factor,
        scales,
        scales.data(train, heads),
        scales.data(rows(split.valid), heads),
        of.X[split.test],
    )


def _start(
    arm: Arm, tasks: Heads, backbone: str, seed: int, train: Data, protocol: Protocol
) -> tuple[list[Any], list[Any]]:
    """One seed's runs before training, one a setting, and their keys.

    Starting values are those that a `Forecaster` with the paper's preset gives this seed.
    """
    ((net_key, task_key, run_key),) = start_keys(jax.random.key(seed), backbone)
    heads = {name: h.started(train.y[name], train.weight[name]) for name, h in tasks.items()}
    built = build(
        paper_backbone(backbone, train.x.shape[-1], net_key, uniform=protocol.initial_uniform),
        heads,
        features=PAPER_WIDTH,
        belief=arm.belief,
        key=task_key,
        cov_floor=protocol.cov_floor,
        start=protocol.start(),
    )
    models = [arm.start(built, train, setting) for setting in arm.settings]
    return models, [*jax.random.split(run_key, len(models))]


def _fit(
    arm: Arm,
    tasks: Heads,
    backbone: str,
    seeds: Sequence[int],
    parts: Sequence[_Part],
    protocol: Protocol,
) -> tuple[Fits, Data, Data]:
    """All seeds, members and settings of an arm as one batch, in this order."""
    models: list[Any] = []
    keys: list[Any] = []
    for seed, part in zip(seeds, parts, strict=True):
        for member in range(arm.members):
            start = seed + MEMBER_STRIDE * member
            started = _start(arm, tasks, backbone, start, part.train, protocol)
            models += started[0]
            keys += started[1]
    each = arm.members * len(arm.settings)
    train, valid = (
        jax.tree.map(lambda *a: jnp.repeat(jnp.stack(a), each, axis=0), *data)
        for data in ([p.train for p in parts], [p.valid for p in parts])
    )
    count = len(models)
    names = sorted({name for setting in arm.settings for name in setting})
    hyper = {
        name: jnp.asarray([s[name] for s in arm.settings] * (count // len(arm.settings)), float)
        for name in names
    }
    for name in ("learning_rate", "backbone_l2"):
        hyper.setdefault(name, jnp.full(count, getattr(protocol, name)))
    fits = fit(
        stack(models),
        train,
        valid,
        objective=arm.objective,
        score=arm.score,
        hyper=hyper,
        schedule=protocol.schedule(),
        keys=jnp.stack(keys),
        trainable=arm.trainable,
    )
    return fits, train, valid


def _laws(model: Model, lines: Any, scales: Scales) -> dict[str, Law]:
    laws: dict[str, Law] = {}
    for name, (mean, var) in lines.items():
        head, line = model.tasks[name].head, (np.asarray(mean), np.asarray(var))
        laws[name] = (
            head.rescaled_law(*line, scales.offset[name], scales.scale[name])
            if name in scales.offset
            else head.law(*line)
        )
    return laws


def _project(model: Model, x: Array) -> dict[str, tuple[Array, Array]]:
    return model.project(x)


@dataclass(frozen=True)
class _Trained:
    """What an arm hands back: forecasts by seed and setting, and the seconds of training."""

    forecasts: dict[int, list[Forecasts]]
    seconds: float


def _train_composed(arm: Arm, job: Job, of: Problem, protocol: Protocol) -> _Trained:
    """All runs of a composition as one batch."""
    tasks = arm.heads_on(of.source.tasks())
    parts = [_part(of, seed, [*tasks]) for seed in job.seeds]
    began = time.perf_counter()
    fits, train, valid = _fit(arm, tasks, job.backbone, job.seeds, parts, protocol)
    models = arm.finish(fits.models, train, valid)
    jax.block_until_ready(models)
    seconds = time.perf_counter() - began
    each = arm.members * len(arm.settings)
    test_x = np.stack([p.scales.inputs(p.test_x) for p in parts]).astype(train.x.dtype)
    lines = {
        "valid": map_runs(_project, models, valid.x),
        "test": map_runs(_project, models, jnp.repeat(jnp.asarray(test_x), each, axis=0)),
    }
    lines = jax.tree.map(np.asarray, lines)
    models = jax.tree.map(lambda a: np.asarray(a) if isinstance(a, jax.Array) else a, models)
    forecasts: dict[int, list[Forecasts]] = {seed: [] for seed in job.seeds}
    for place, (seed, part) in enumerate(zip(job.seeds, parts, strict=True)):
        for at in range(len(arm.settings)):
            runs = [place * each + member * len(arm.settings) + at for member in range(arm.members)]
            members = [one_run(models, run) for run in runs]
            laws: dict[str, dict[str, Law]] = {}
            for kind, read in lines.items():
                of_members = [
                    _laws(m, one_run(read, r), part.scales)
                    for m, r in zip(members, runs, strict=True)
                ]
                laws[kind] = {name: mix([law[name] for law in of_members]) for name in tasks}
            facts: Row = {}
            if arm.members == 1:
                facts |= of.source.scoring.fitted(members[0], laws["test"])
            facts["steps"] = float(np.mean(fits.steps[runs]))
            facts["best_step"] = float(np.mean(fits.best_step[runs]))
            facts["stop_reason"] = "+".join(sorted({fits.stop_reason[r] for r in runs}))
            forecasts[seed].append(Forecasts(laws["valid"], laws["test"], facts))
    return _Trained(forecasts, seconds)


def _train_own(arm: OwnArm, job: Job, of: Problem) -> _Trained:
    """One call of the arm for each seed and setting."""
    began = time.perf_counter()
    forecasts = {
        # Each call has arrays of its own, so that a change of them reaches no other call.
        seed: [arm.forecast(_fold(of, arm, job.backbone, seed), each) for each in arm.settings]
        for seed in job.seeds
    }
    return _Trained(forecasts, time.perf_counter() - began)


def _fold(of: Problem, arm: OwnArm, backbone: str, seed: int) -> Fold:
    """What an arm may see of a seed: everything but the labels of the test windows."""
    split = of.split(seed)
    factor = of.target_factor(split)
    tasks = arm.heads_on(of.source.tasks())
    (X, Y), (X_valid, Y_valid) = (of.part(rows, factor) for rows in (split.train, split.valid))
    return Fold(
        seed,
        backbone,
        tasks,
        X,
        {name: Y[name] for name in tasks},
        X_valid,
        {name: Y_valid[name] for name in tasks},
        of.X[split.test],
    )


def execute(job: Job, protocol: Protocol | None = None) -> Outcome:
    """Train and score a job's runs; one row a run, or one row an ensemble."""
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
        trained = _train_own(arm, job, of)
    elif isinstance(arm, Arm):
        trained = _train_composed(arm, job, of, protocol)
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
        for setting, handed in zip(arm.settings, forecasts, strict=True):
            where = f"{job.corpus} {job.arm} seed {seed}"
            check_laws(handed.valid, valid_y, tasks, f"{where}, validation windows")
            check_laws(handed.test, test_y, tasks, f"{where}, test windows")
            row: Row = {"setting": json.dumps(dict(setting), sort_keys=True)}
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
    """The modules outside the package that register a job's arm and corpus.

    A worker process imports them; the functions of a script's `__main__` it has already.
    """
    found: set[str] = set()
    if job.arm in PROBES:
        found = {module_of(PROBES[job.arm])}
    elif job.arm in ARMS:
        source = SOURCES[read_id(job.corpus).name]
        found = ARMS[job.arm].modules() | {module_of(source.load), module_of(source.tasks)}
    return {name for name in found if name.split(".")[0] not in ("scrollmt", "__main__")}


def environment() -> dict[str, str]:
    """Where and with what a job ran."""
    return {
        "scrollmt": version("scrollmt"),
        "jax": jax.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "device": str(jax.devices()[0].device_kind),
    }
