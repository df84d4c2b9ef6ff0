"""The kernel that never writes features against plain products, in several settings.

    python benchmarks/gpu_kernel.py            # on a CUDA device, about two minutes

One step is the gradient of the weighted-sum objective on Lorenz, probit heads and point weights,
without validation and optimiser; for 490 runs at a time and for one. A setting is how many windows
a program holds at a time on the way forth and on the way back, and in all on the way back.
"""

from __future__ import annotations

import time
from typing import Any

import equinox as eqx
import jax
import numpy as np
from gpu_grid import only, runs_of, windows
from timing import machine

from scrollmt._fitting import fused
from scrollmt.paper.arms.weighted import weighted_sum

STEPS, ROUNDS = 100, 4
SETTINGS = ((128, 4, 64), (64, 4, 64), (256, 4, 64), (128, 8, 128))


def stepper(runs: dict[str, Any]) -> Any:
    arrays, static = eqx.partition(runs["models"], eqx.is_inexact_array)

    def loss(arrays: Any, train: Any, hyper: Any) -> jax.Array:
        return weighted_sum(eqx.combine(arrays, static), train, hyper, 1.0)

    @jax.jit
    def steps(arrays: Any, train: Any, hyper: Any) -> Any:
        def step(arrays: Any, _: None) -> Any:
            values, slopes = jax.vmap(jax.value_and_grad(loss))(arrays, train, hyper)
            return jax.tree.map(lambda a, b: a - 1e-4 * b, arrays, slopes), values

        return jax.lax.scan(step, arrays, None, length=STEPS)

    return lambda: steps(arrays, runs["train"], runs["hyper"])


def milliseconds(runs: dict[str, Any]) -> tuple[float, np.ndarray]:
    """The lowest time of a step, and the losses on the way."""
    with jax.default_matmul_precision("highest"):
        run = stepper(runs)
        values = np.asarray(run()[1])
        taken = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            jax.block_until_ready(run())
            taken.append(time.perf_counter() - began)
    return 1e3 * min(taken) / STEPS, values


def main() -> None:
    print(machine(), flush=True)
    if jax.default_backend() != "gpu":
        raise SystemExit("the kernel needs a CUDA device")
    train, valid = windows(10, 6500)
    supports = fused.supports
    for backbone in ("tanh+ln", "tanh"):
        runs = runs_of(backbone, 10, train, valid)
        fused.supports = lambda *_: False
        (batch, want), (single, _) = milliseconds(runs), milliseconds(only(runs, 0))
        print(f"{backbone}: plain products {batch:.3f} ms, one run {single:.3f} ms", flush=True)
        fused.supports = supports
        for setting in SETTINGS:
            fused._FORTH, fused._BACK, fused._WINDOWS_A_PROGRAM = setting
            jax.clear_caches()
            (batch, got), (single, _) = milliseconds(runs), milliseconds(only(runs, 0))
            gap = float(np.abs(got - want).max() / np.abs(want).max())
            print(
                f"{backbone}: kernel {setting} {batch:.3f} ms, one run {single:.3f} ms, "
                f"largest gap in a loss {gap:.1e}",
                flush=True,
            )


if __name__ == "__main__":
    main()
