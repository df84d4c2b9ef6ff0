"""One training step with validation score against the floor, per run in a batch of ten.

    python benchmarks/step.py
    python benchmarks/step.py --json step.json    # the ratios, for benchmarks/alarm.py

The batch goes through the step as `fit` lets it go: `full` beliefs in parts of one run a core, and
once more as one batch for comparison.
Floor: forward and backward of `tanh(x @ W).sum()` alone on 3,900 windows and 50 features,
jitted, batch of ten. It is timed twice: as single calls, and inside a compiled loop as the
training step is, where no time goes into calls and fresh memory; ratios are to the latter,
which is the lower of the two. The bare products of `full` are the factors of the three
heads times the features and the two products that carry a cotangent back, in the order that
was found to be fastest; the plain ones are the same three as `psi @ factor` by head, squared
and added, with the gradients that JAX derives.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from problem import INPUTS, RUNS, VALID, WINDOWS, models, stepper, windows
from timing import in_turns, machine, ratio

from scrollmt.backbone import PAPER_WIDTH

STEPS = 20
TARGETS = {("tanh", "diag"): 4.0, ("tanh+ln", "diag"): 6.0}


def floor(x: jax.Array, weight: jax.Array) -> tuple[jax.Array, jax.Array]:
    def loss(weight: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.tanh(x @ weight).sum()

    return jax.vmap(jax.value_and_grad(loss))(weight, x)


@jax.jit
def floor_loop(x: jax.Array, weight: jax.Array) -> Any:
    def body(weight: jax.Array, _: None) -> Any:
        value, slope = floor(x, weight)
        return weight - 1e-6 * slope, value

    return jax.lax.scan(body, weight, None, length=STEPS)


@jax.jit
def products_loop(roots: jax.Array, z: jax.Array) -> Any:
    """`roots @ z` of all heads, and the two products that carry a cotangent back."""

    def body(roots: jax.Array, _: None) -> Any:
        spread = jnp.einsum("rkh,rhn->rkn", roots, z)
        d_z = jnp.einsum("rkh,rkn->rhn", roots, spread)
        d_roots = jax.lax.optimization_barrier(jnp.einsum("rhn,rkn->rhk", z, spread))
        return roots - 1e-9 * jnp.swapaxes(d_roots, 1, 2), jnp.sum(d_z[:, :, 0])

    return jax.lax.scan(body, roots, None, length=STEPS)


@jax.jit
def plain_products_loop(factors: jax.Array, psi: jax.Array) -> Any:
    """The variances of the three heads, `psi @ factor` by head, with their gradients."""

    def loss(factors: jax.Array, psi: jax.Array) -> jax.Array:
        spread = jnp.stack([psi @ factor for factor in factors])
        return jnp.sum(spread * spread)

    def body(carried: Any, _: None) -> Any:
        value, slopes = jax.vmap(jax.value_and_grad(loss, argnums=(0, 1)))(*carried)
        return jax.tree.map(lambda a, b: a - 1e-9 * b, carried, slopes), value

    return jax.lax.scan(body, (factors, psi), None, length=STEPS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--json", type=Path, help="write the ratios to the floor to this file")
    options = parser.parse_args()
    print(machine(), flush=True)
    rng = np.random.default_rng(0)
    train, valid = windows(RUNS, WINDOWS, 0), windows(RUNS, VALID, 1)

    def normal(*shape: int) -> jax.Array:
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    weight = normal(RUNS, INPUTS, PAPER_WIDTH)
    roots, z = 0.1 * normal(RUNS, 3 * PAPER_WIDTH, PAPER_WIDTH), normal(RUNS, PAPER_WIDTH, WINDOWS)
    factors = jnp.swapaxes(roots.reshape(RUNS, 3, PAPER_WIDTH, PAPER_WIDTH), 2, 3)
    psi = jnp.swapaxes(z, 1, 2)
    single = jax.jit(floor)
    functions: dict[str, Any] = {
        "floor": lambda: floor_loop(train.x, weight),
        "floor, single calls": lambda: single(train.x, weight),
        "bare products": lambda: products_loop(roots, z),
        "plain products": lambda: plain_products_loop(factors, psi),
    }
    cells = [(n, b) for b in ("none", "diag", "full") for n in ("tanh", "tanh+ln")]
    for backbone, belief in cells:
        batch = models(RUNS, backbone, belief)
        functions[f"{belief} {backbone}"] = stepper(batch, train, valid, STEPS, memory_budget=None)
        if belief == "full":
            functions[f"full {backbone}, as one"] = stepper(batch, train, valid, STEPS)
    each = {name: 1 if "single" in name else STEPS for name in functions}
    seconds = in_turns(functions, options.rounds, each)
    for name, values in seconds.items():
        low, middle = 1e3 * values.min() / RUNS, 1e3 * np.median(values) / RUNS
        times = ratio(seconds, name, "floor")
        print(f"{name:20s} {low:.3f} ms a run (median {middle:.3f})   x floor {times}", flush=True)
    lowest = {name: float(values.min()) for name, values in seconds.items()}
    if options.json is not None:
        ratios = {f"{b} {n}": round(lowest[f"{b} {n}"] / lowest["floor"], 3) for n, b in cells}
        text = json.dumps({"machine": machine(), "times the floor": ratios}, indent=2)
        options.json.write_text(text + "\n")
    for (backbone, belief), most in TARGETS.items():
        got = lowest[f"{belief} {backbone}"] / lowest["floor"]
        print(f"{belief} {backbone}: {got:.2f} times the floor, wanted at most {most:g}")
    for full in (name for name in lowest if name.startswith("full")):
        for kind in ("bare", "plain"):
            got = (lowest[full] - lowest[f"{kind} products"]) / lowest["floor"]
            print(f"{full}: {kind} products plus {got:.2f} times the floor, wanted 4")


if __name__ == "__main__":
    main()
