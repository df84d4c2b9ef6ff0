"""Belief families side by side: how well they forecast, and what a training step costs.

    python benchmarks/beliefs.py            # 26 minutes on two cores with other work

Lorenz-63 under the paper's protocol, backbone tanh+ln with 50 features, three seeds: test NLL of
each task in nats and the coverage error of the value, as means with the standard error over
seeds. Cost: one training step of three tasks with its validation score on 3,900 windows, as a
multiple of that under `diag`, measured in turns.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from problem import RUNS, VALID, WINDOWS, models, stepper, windows
from timing import in_turns, machine

from scrollmt import Event, Forecaster, Gaussian, Ordinal
from scrollmt.beliefs import LowRank
from scrollmt.corpora import lorenz63

TASKS = {"state": Gaussian(), "event": Event(), "regime": Ordinal(4)}
BELIEFS: dict[str, Any] = {
    "none": "none",
    "diag": "diag",
    **{f"low-rank, {rank}": LowRank.of(rank=rank) for rank in (1, 2, 4, 8, 16)},
    "full": "full",
}
SIZE, TRAIN, HELD_OUT = 6500, 3900, 1300
BACKBONE, STEPS = "tanh+ln", 20


def scores(seed: int, belief: Any) -> list[float]:
    """Test NLL by task, and the coverage error of the value."""
    corpus = lorenz63.draw(SIZE, seed=seed)
    X, order = np.asarray(corpus.X), np.random.default_rng(seed).permutation(SIZE)
    parts = np.split(order, [TRAIN, TRAIN + HELD_OUT])
    fitted, judged, tested = [
        (X[rows], {task: np.asarray(corpus.Y[task])[rows] for task in TASKS}) for rows in parts
    ]
    model = Forecaster(
        TASKS, preset="paper", backbone=BACKBONE, belief=belief, validation=judged, seed=seed
    )
    table = model.fit(*fitted).evaluate(*tested)
    return [*table.loc[list(TASKS), "nll"], float(table.loc["state", "coverage_error"])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    print(machine(), flush=True)
    train, valid = windows(RUNS, WINDOWS, 0), windows(RUNS, VALID, 1)
    steps = {
        name: stepper(models(RUNS, BACKBONE, belief), train, valid, STEPS, memory_budget=None)
        for name, belief in BELIEFS.items()
    }
    seconds = in_turns(steps, options.rounds)
    print(f"{'belief':14s} {'step':>6s}  {'value':>14s}  {'event':>14s}  {'bands':>14s}  coverage")
    for name, belief in BELIEFS.items():
        cost = seconds[name].min() / seconds["diag"].min()
        found = np.array([scores(seed, belief) for seed in range(options.seeds)])
        error = found.std(axis=0, ddof=1) / np.sqrt(len(found))
        cells = [f"{m:.3f} ± {e:.3f}" for m, e in zip(found.mean(axis=0), error, strict=True)]
        print(f"{name:14s} {cost:6.2f}  {'  '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
