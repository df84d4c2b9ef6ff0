"""The problem that the step benchmarks share: windows shaped as on Lorenz, a batch of ten runs."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from scrollmt import Event, Gaussian, Ordinal
from scrollmt._fitting.memory import cut
from scrollmt._fitting.step import Program, advance, start
from scrollmt._fitting.vectors import template_of
from scrollmt.backbone import PAPER_WIDTH, Dense
from scrollmt.fit import Batch, Schedule, stack
from scrollmt.model import Model, build
from scrollmt.objective import Data, composed_objective, validation_nll

RUNS, WINDOWS, VALID, INPUTS = 10, 3900, 1300, 3
TASKS = {"state": Gaussian(), "event": Event(), "regime": Ordinal(4)}


def windows(runs: int, n: int, seed: int, inputs: int = INPUTS) -> Data:
    """Inputs and noisy labels of every run; values do not matter for the time of a step."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(runs, n, inputs)).astype(np.float32)
    noise = rng.normal(size=(3, runs, n))
    labels = {
        "state": (2.0 * x[..., 0] + noise[0]).astype(np.float32),
        "event": (x[..., 0] + noise[1] > 0.0).astype(np.int32),
        "regime": np.clip(np.floor(x[..., 0] + noise[2] + 2.0), 0, 3).astype(np.int32),
    }
    one = {name: jnp.ones((runs, n)) for name in TASKS}
    shapes = Data(jnp.zeros((1, 1)), {}, {})
    return eqx.tree_at(
        lambda d: (d.x, d.y, d.weight),
        shapes,
        (jnp.asarray(x), {k: jnp.asarray(v) for k, v in labels.items()}, one),
    )


def models(
    runs: int, backbone: str, belief: Any, width: int = PAPER_WIDTH, tasks: Any = None
) -> Model:
    activation, _, norm = backbone.partition("+")
    heads = TASKS if tasks is None else tasks
    made = []
    for run in range(runs):
        net_key, task_key = jax.random.split(jax.random.key(run))
        net = Dense(
            INPUTS, (width,), activation=activation, bias=False, norm=norm == "ln", key=net_key
        )
        made.append(build(net, heads, features=width, belief=belief, key=task_key, cov_floor=1e-4))
    return stack(made)


def stepper(
    batch: Model, train: Data, valid: Data, steps: int, memory_budget: float | None = math.inf
) -> Any:
    """A function that makes some training steps of all runs, each with its validation score.

    Runs go as one batch, or in the parts into which `fit` cuts one for a memory budget; None is
    what `fit` takes by default.
    """
    runs = len(train.x)
    params, frozen = eqx.partition(batch, eqx.is_inexact_array)
    fixed, static = eqx.partition(frozen, eqx.is_array)
    program = Program(
        static,
        template_of(params),
        composed_objective,
        validation_nll,
        Schedule(steps=10**6),
        rounds=steps,
        windows=len(train),
        streamed=False,
    )
    hyper = {"learning_rate": jnp.full(runs, 1e-4), "backbone_l2": jnp.full(runs, 0.01)}
    keys = jax.random.split(jax.random.key(0), runs)
    whole = Batch(program, params, fixed, train, valid, hyper, keys)
    with jax.default_matmul_precision("highest"):
        pieces = cut(runs, memory_budget, whole.windows, whole.run_bytes)
        parts = [whole] if len(pieces) == 1 else [whole.take(places) for places in pieces]
        begun = [start(program, p.params, p.fixed, p.valid, p.hyper, p.keys) for p in parts]

    def run() -> Any:
        with jax.default_matmul_precision("highest"):
            return [
                advance(program, runs, p.fixed, p.train, p.valid, p.hyper)
                for runs, p in zip(begun, parts, strict=True)
            ]

    def memory() -> int:
        """Bytes that the compiled steps of a part take, arguments included."""
        part = parts[0]
        with jax.default_matmul_precision("highest"):
            lowered = advance.lower(
                program, begun[0], part.fixed, part.train, part.valid, part.hyper
            )
        analysis = lowered.compile().memory_analysis()
        return analysis.temp_size_in_bytes + analysis.argument_size_in_bytes

    run.memory = memory  # type: ignore[attr-defined]
    return run
