"""A batch on a CPU, whole and in parts that its caches hold.

    python benchmarks/parts.py            # a few minutes on two cores

Runs shaped as on Lorenz and on PM2.5 are trained for some steps as one batch and as `fit` cuts
it, in turns. Prints the time of a run's step either way and the ratio.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from problem import VALID, WINDOWS, models, windows
from timing import in_turns, machine, ratio

from scrollmt.fit import Schedule, fit
from scrollmt.objective import composed_objective

STEPS = 20
SHAPES = {"Lorenz": (WINDOWS, VALID), "PM2.5": (1008, 336)}


def trainer(
    runs: int, rows: tuple[int, int], belief: str, memory_budget: float | None
) -> Callable[[], Any]:
    """A function that trains a batch for some steps within a budget; None is the default."""
    options = {
        "objective": composed_objective,
        "hyper": {"learning_rate": jnp.full(runs, 1e-3), "backbone_l2": jnp.full(runs, 0.01)},
        "schedule": Schedule(steps=STEPS),
        "keys": jax.random.split(jax.random.key(0), runs),
        "memory_budget": memory_budget,
    }
    train, valid = windows(runs, rows[0], 0), windows(runs, rows[1], 1)
    batch = models(runs, "tanh+ln", belief)
    return lambda: fit(batch, train, valid, **options).best_score


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, nargs="+", default=[10, 49, 196])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--belief", default="diag")
    options = parser.parse_args()
    print(machine())
    for corpus, rows in SHAPES.items():
        for runs in options.runs:
            budgets = {"whole": math.inf, "parts": None}
            ways = {k: trainer(runs, rows, options.belief, b) for k, b in budgets.items()}
            seconds = in_turns(ways, options.rounds, dict.fromkeys(ways, STEPS))
            whole, parts = (1e3 * values.min() / runs for values in seconds.values())
            print(
                f"{corpus}, {runs} runs: whole {whole:.3f} ms a run and step, "
                f"in parts {parts:.3f}, ratio {ratio(seconds, 'whole', 'parts')}",
                flush=True,
            )


if __name__ == "__main__":
    main()
