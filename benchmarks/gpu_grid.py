"""The weighted-sum grid on Lorenz as batches: 49 weights x 10 seeds on four backbones.

    python benchmarks/gpu_grid.py            # on an accelerator, about three minutes
    python benchmarks/gpu_grid.py --smoke    # anywhere, tiny

Objective: MSE + l1 event NLL + l2 regime NLL as means over the windows, probit heads, point
weights, the paper's schedule (Adam 0.03, full batch, at most 5,000 steps), of which patience and
the longest gradient can be set.
Prints, as they come: the time of each batch of 490 runs with compilation, the time of the
whole grid, single runs one after the other and what 490 of them would take, the device's
memory, and bytes per step beside the bandwidth reached.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from timing import machine

from scrollmt._data.reading import read_rows
from scrollmt._data.scaling import Scales
from scrollmt.backbone import PAPER_BACKBONES, PAPER_WIDTH, paper_backbone
from scrollmt.corpora import lorenz63
from scrollmt.fit import Fits, fit, stack
from scrollmt.model import Model, build
from scrollmt.objective import Data
from scrollmt.paper.arms import questions
from scrollmt.paper.arms.weighted import WEIGHTS, profiled_nll, weighted_sum
from scrollmt.presets import PAPER
from scrollmt.splits import random_split

TASKS = questions()


def windows(seeds: int, n: int) -> tuple[Data, Data]:
    """Training and validation windows of every seed's split, seeds first."""
    corpus = lorenz63.draw(n=n)
    parts = []
    for seed in range(seeds):
        split = random_split(len(corpus), seed)
        rows = [
            read_rows(corpus.X[i], {k: v[i] for k, v in corpus.Y.items()}, None, TASKS)
            for i in (split.train, split.valid)
        ]
        scales = Scales.of(rows[0], TASKS, scale_targets=False)
        parts.append(tuple(scales.data(r, TASKS) for r in rows))
    train, valid = (jax.tree.map(lambda *a: jnp.stack(a), *p) for p in zip(*parts, strict=True))
    return train, valid


def runs_of(backbone: str, seeds: int, train: Data, valid: Data) -> dict[str, Any]:
    """The 49 weights of every seed, as arguments of `fit`."""
    cells = [*itertools.product(WEIGHTS, WEIGHTS)]
    starts = []
    for seed in range(seeds):
        net_key, task_key = jax.random.split(jax.random.key(seed))
        net = paper_backbone(backbone, train.x.shape[-1], net_key, gpu_kernel=True)
        starts.append(
            build(net, TASKS, features=PAPER_WIDTH, belief="none", key=task_key, cov_floor=1e-4)
        )
    owner = np.repeat(np.arange(seeds), len(cells))
    models = jax.tree.map(lambda a: a[owner] if eqx.is_array(a) else a, stack(starts))
    event, regime = np.tile(np.asarray(cells, np.float32), (seeds, 1)).T
    count = len(owner)
    return {
        "models": models,
        "train": jax.tree.map(lambda a: a[owner], train),
        "valid": jax.tree.map(lambda a: a[owner], valid),
        "hyper": {
            "learning_rate": jnp.full(count, 0.03),
            "backbone_l2": jnp.full(count, 0.01),
            "event_weight": jnp.asarray(event),
            "regime_weight": jnp.asarray(regime),
        },
        "keys": jax.random.split(jax.random.key(0), count),
    }


def only(runs: dict[str, Any], run: int) -> dict[str, Any]:
    return jax.tree.map(lambda a: a[run : run + 1] if eqx.is_array(a) else a, runs)


def timed(runs: dict[str, Any], schedule: Any) -> tuple[float, Fits]:
    began = time.perf_counter()
    fits = fit(
        runs["models"],
        runs["train"],
        runs["valid"],
        objective=weighted_sum,
        score=profiled_nll,
        hyper=runs["hyper"],
        schedule=schedule,
        keys=runs["keys"],
    )
    return time.perf_counter() - began, fits


def step_bytes(runs: dict[str, Any]) -> tuple[float, float]:
    """Bytes of one step of all runs: what the compiled step touches, and what it must touch.

    Inputs and labels have to be read; features need not be written at all. Every line of a
    head is written and read once for the loss, and so is its cotangent; of the validation
    windows the line alone.
    """

    def one(model: Model, train: Data, valid: Data, hyper: Any) -> Any:
        value = eqx.filter_value_and_grad(weighted_sum)(model, train, hyper, 1.0)
        return value, profiled_nll(model, valid)

    arrays, static = eqx.partition(runs["models"], eqx.is_array)

    def every(arrays: Model, train: Data, valid: Data, hyper: Any) -> Any:
        return jax.vmap(lambda a, *rest: one(eqx.combine(a, static), *rest))(
            arrays, train, valid, hyper
        )

    with jax.default_matmul_precision("highest"):
        compiled = (
            jax.jit(every).lower(arrays, runs["train"], runs["valid"], runs["hyper"]).compile()
        )
    costs = compiled.cost_analysis()
    costs = costs[0] if isinstance(costs, list) else costs
    lines = 4.0 * len(TASKS) * len(runs["keys"])
    data = sum(leaf.nbytes for leaf in jax.tree.leaves((runs["train"], runs["valid"])))
    must = lines * (4 * len(runs["train"]) + 2 * len(runs["valid"])) + data
    return float(costs.get("bytes accessed", float("nan"))), must


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="two seeds, 300 windows, 40 steps")
    parser.add_argument("--sequential", type=int, default=3, help="single runs to time")
    parser.add_argument("--patience", type=int, default=PAPER.schedule.patience, help="in scores")
    parser.add_argument("--clip", type=float, default=PAPER.schedule.clip, help="longest gradient")
    parser.add_argument("--only", choices=PAPER_BACKBONES, help="one backbone instead of four")
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file")
    options = parser.parse_args()
    seeds, n, steps = (2, 300, 40) if options.smoke else (10, 6500, PAPER.schedule.steps)
    schedule = replace(PAPER.schedule, steps=steps, patience=options.patience, clip=options.clip)
    figures: dict[str, Any] = {"machine": machine()}
    print(figures["machine"], flush=True)

    def say(name: str, **values: Any) -> None:
        figures[name] = values
        shown = "  ".join(
            f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in values.items()
        )
        print(f"{name}: {shown}", flush=True)
        if options.out is not None:
            options.out.write_text(json.dumps(figures, indent=1) + "\n")

    began = time.perf_counter()
    train, valid = windows(seeds, n)
    say("data", seconds=time.perf_counter() - began, train=len(train), valid=len(valid))

    total = 0.0
    prepared = {}
    for backbone in PAPER_BACKBONES if options.only is None else [options.only]:
        began = time.perf_counter()
        prepared[backbone] = runs_of(backbone, seeds, train, valid)
        _, fits = timed(prepared[backbone], schedule)
        seconds = time.perf_counter() - began
        total += seconds
        say(
            f"batch {backbone}",
            runs=len(fits),
            seconds_with_compilation=seconds,
            steps_of_the_longest=int(fits.steps.max()),
            steps_mean=float(fits.steps.mean()),
            finite=int(np.isfinite(fits.best_score).sum()),
            best_score=float(np.nanmin(fits.best_score)),
        )
    if options.only is None:
        say("grid", runs=4 * len(fits), seconds=total, within_150_s=bool(total <= 150.0))
    stats = jax.local_devices()[0].memory_stats() or {}
    peak = float(stats.get("peak_bytes_in_use", float("nan")))
    say("memory", peak_gib=peak / 2**30)

    backbone = options.only or "tanh+ln"
    runs = prepared[backbone]
    again, fits = timed(runs, schedule)
    longest = int(fits.steps.max())
    touched, must = step_bytes(runs)
    say(
        f"bandwidth {backbone}",
        seconds_without_compilation=again,
        ms_per_step=1e3 * again / longest,
        gb_per_step_compiled=touched / 1e9,
        gb_per_step_must_move=must / 1e9,
        tb_per_s_compiled=touched * longest / again / 1e12,
        tb_per_s_must_move=must * longest / again / 1e12,
    )

    # One after the other: a few runs, short ones and long ones, each alone, compiled
    # beforehand. Alone, a run costs its own steps; the estimate is for the steps of all runs.
    timed(only(runs, 0), schedule)
    order = np.argsort(fits.steps)
    places = (np.arange(options.sequential) + 0.5) / options.sequential * len(order)
    seconds, steps, gaps = [], [], []
    for run in order[places.astype(int)]:
        took, single = timed(only(runs, int(run)), schedule)
        seconds.append(took)
        steps.append(int(single.steps[0]))
        gaps.append(abs(float(single.best_score[0]) - float(fits.best_score[run])))
    a_step = sum(seconds) / sum(steps)
    estimate = a_step * float(fits.steps.sum())
    say(
        "one after the other",
        single_runs_timed=len(seconds),
        their_seconds=[round(t, 4) for t in seconds],
        their_steps=steps,
        ms_a_step=1e3 * a_step,
        estimate_for_the_batch=estimate,
        speed_up=estimate / again,
        speed_up_with_compilation=estimate
        / figures[f"batch {backbone}"]["seconds_with_compilation"],
        largest_gap_in_score=max(gaps),
    )


if __name__ == "__main__":
    main()
