r"""Does a fit of scaled targets end at the mapped solution? (`app:results`, equivariance)

By `prop:scale` the problem of targets times c has the mapped solution of the problem at c = 1,
with a loss that differs by a constant. An optimiser that starts elsewhere, or stops early, need
not find it. With the state targets of a corpus times c and a diagonal belief:

    cold      the usual starting values
    warm      start at the mapped solution of c = 1
    mapped    start at the mapped starting values
    long      cold, four times the steps
    both      mapped, four times the steps
    floor     cold, the state's covariance floor times c^2

The paper names neither corpus nor backbone; its paragraph continues a sweep on Lorenz-63, on tanh
and tanh+ln. NLLs are in the units of the scaled targets.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from scrollmt.fit import Schedule
from scrollmt.heads import Gaussian
from scrollmt.model import Model, Task, rescale_task
from scrollmt.objective import Data, mean_nll
from scrollmt.paper.arena.jobs import Job
from scrollmt.paper.arena.probes import Rows, probe
from scrollmt.paper.arena.problems import Problem, problem
from scrollmt.paper.arena.scoring import COLUMNS
from scrollmt.paper.arena.training import (
    fit_runs,
    read_part,
    read_windows,
    stacked,
    start_heads,
    start_model,
)
from scrollmt.paper.arms.base import STATE, questions
from scrollmt.paper.protocol import Protocol

NAME = "probe-equivariance"
UP, DOWN = 8.0, 0.125
COLD, WARM, MAPPED, LONG, BOTH, FLOOR = "cold", "warm", "mapped", "long", "both", "floor"
LONGER = 4


@dataclass(frozen=True)
class _Parts:
    """One seed's windows in units of c."""

    train: Data
    valid: Data
    test: Data


@probe(NAME)
def scaled_fits(job: Job, protocol: Protocol) -> Rows:
    """One row per seed and variant; the reference is the cold fit at c = 1."""
    of = problem(job.corpus, protocol)
    parts = {c: [_parts(of, seed, c) for seed in job.seeds] for c in (1.0, UP, DOWN)}
    cold = {
        c: [_start(job.backbone, p.train, s, protocol) for p, s in zip(its, job.seeds, strict=True)]
        for c, its in parts.items()
    }
    mapped = [rescale_task(model, STATE, UP) for model in cold[1.0]]
    lifted = [_lift_floor(model, UP) for model in cold[UP]]
    rows: Rows = {seed: [] for seed in job.seeds}
    usual = protocol.schedule()
    longer = replace(usual, steps=LONGER * usual.steps)

    def train(name: str, factor: float, models: list[Model], schedule: Schedule) -> list[Model]:
        """Fit one variant at all seeds, write its rows and return its models."""
        its = parts[factor]
        windows = stacked([p.train for p in its]), stacked([p.valid for p in its])
        fits = fit_runs(models, *windows, protocol, schedule=schedule)
        fitted = [fits.model(run) for run in range(len(fits))]
        for run, (seed, model) in enumerate(zip(job.seeds, fitted, strict=True)):
            setting = {"factor": factor, "variant": name}
            row: dict[str, Any] = {"setting": json.dumps(setting, sort_keys=True)}
            row |= _measured(model, parts[factor][run])
            row |= {"target_factor": factor, "steps": int(fits.steps[run])}
            row |= {"best_step": int(fits.best_step[run]), "stop_reason": fits.stop_reason[run]}
            rows[seed].append(row)
        return fitted

    solved = train(COLD, 1.0, cold[1.0], usual)
    train(COLD, UP, cold[UP], usual)
    train(COLD, DOWN, cold[DOWN], usual)
    train(MAPPED, UP, mapped, usual)
    train(WARM, UP, [rescale_task(model, STATE, UP) for model in solved], usual)
    train(FLOOR, UP, lifted, usual)
    train(LONG, UP, cold[UP], longer)
    train(BOTH, UP, mapped, longer)
    return rows


def _parts(of: Problem, seed: int, factor: float) -> _Parts:
    heads = questions()
    part = read_part(of, seed, heads, factor)
    test = read_windows(of, of.split(seed).test, heads, factor)
    return _Parts(part.train, part.valid, part.scales.data(test, heads))


def _start(backbone: str, train: Data, seed: int, protocol: Protocol) -> Model:
    """The starting values that the arena gives scroll-diag at this seed."""
    heads = start_heads(questions(), train, protocol)
    return start_model(heads, "diag", backbone, train.x.shape[-1], seed, protocol)[0]


def _lift_floor(model: Model, factor: float) -> Model:
    """The state's floor times the factor squared, all else as it is."""
    task = model.tasks[STATE]
    lifted = task.belief.scaled(factor, scale_floor=True).scaled(1.0 / factor, scale_floor=False)
    tasks = {**model.tasks, STATE: Task(task.head, lifted, task.log_prior_precision)}
    return Model(model.backbone, tasks)


def _measured(model: Model, parts: _Parts) -> dict[str, Any]:
    """NLLs, fitted scales and the norms of the features, of one run."""
    state = model.tasks[STATE]
    assert isinstance(state.head, Gaussian)
    test, valid, norms = _read(model, parts.test, parts.valid)
    return {
        **{COLUMNS[name]: float(nll) for name, nll in test.items()},
        "valid_nats": float(sum(valid.values())),
        "alpha_state": float(state.prior_precision),
        "sigma_obs": float(state.head.sigma_obs),
        "psi_norm_min": float(norms.min()),
        "psi_norm_max": float(norms.max()),
    }


@eqx.filter_jit
def _read(model: Model, test: Data, valid: Data) -> tuple[Any, Any, Float[Array, " N"]]:
    norms = jnp.sum(model.features(test.x) ** 2, axis=-1)
    return mean_nll(model, test), mean_nll(model, valid), norms
