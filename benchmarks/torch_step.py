"""One training step with validation score against PyTorch, eager and compiled.

    pip install torch==2.13.0
    python benchmarks/torch_step.py

The same objective, written for PyTorch as one would: one run, diagonal beliefs, one product
for all heads' means and one for all variances, log_ndtr for the probit heads, one fused Adam.
The losses of both are compared before anything is timed. Times are per run: scrollmt's in a
batch of ten, PyTorch's one run at a time, on one thread and on two, of which the faster
counts. Threads that wait do so passively, lest one library spin while the other is timed.
"""

from __future__ import annotations

import argparse
import math
import os
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # read when torch starts its threads

import jax
import numpy as np
import torch
from problem import RUNS, TASKS, VALID, WINDOWS, models, stepper, windows
from timing import in_turns, machine

from scrollmt.backbone import LAYER_NORM_EPS
from scrollmt.heads import PROBIT_BASE_SCALE
from scrollmt.objective import Data, composed_objective, validation_nll

STEPS = 20
LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
ORDER = ("state", "event", "regime")
COV_FLOOR = 1e-4


def tensors(tree: Any) -> Any:
    return jax.tree.map(lambda a: torch.tensor(np.asarray(a)), tree)


def parameters(model: Any) -> dict[str, torch.Tensor]:
    """The parameters of one run of ours as PyTorch's."""
    beliefs = [model.tasks[name].belief for name in ORDER]
    regime = model.tasks["regime"].head
    numbers = {
        "weight": model.backbone.weights[0],
        "mu": np.stack([b.mu for b in beliefs]),
        "log_sd": np.stack([b.log_sd for b in beliefs]),
        "log_alpha": np.stack([model.tasks[name].log_prior_precision for name in ORDER]),
        "log_sigma": model.tasks["state"].head.log_sigma_obs,
        "cut": model.tasks["event"].head.cutpoint,
        "first": regime.first_cutpoint,
        "log_gaps": regime.log_gaps,
    }
    return {k: torch.tensor(np.asarray(v)).requires_grad_() for k, v in numbers.items()}


def log_ndtr(x: torch.Tensor) -> torch.Tensor:
    return torch.special.log_ndtr(x)


def log_mass(lo: torch.Tensor, hi: torch.Tensor) -> torch.Tensor:
    """log[Phi(hi) - Phi(lo)] in the left tail."""
    flip = lo + hi > 0
    left, right = torch.where(flip, -hi, lo), torch.where(flip, -lo, hi)
    top = log_ndtr(right)
    return top + torch.log1p(-torch.exp(log_ndtr(left) - top))


def nll(p: dict[str, torch.Tensor], x: Any, y: dict[str, Any], norm: bool) -> list[torch.Tensor]:
    z = torch.tanh(x @ p["weight"].T)
    psi = torch.nn.functional.layer_norm(z, z.shape[-1:], eps=LAYER_NORM_EPS) if norm else z
    variances = torch.exp(2.0 * p["log_sd"]) + COV_FLOOR
    mean = psi @ p["mu"].T
    var = (psi * psi) @ variances.T
    total = torch.exp(2.0 * p["log_sigma"]) + var[:, 0]
    state = LOG_SQRT_2PI + 0.5 * torch.log(total) + 0.5 * (y["state"] - mean[:, 0]) ** 2 / total
    scale = torch.sqrt(PROBIT_BASE_SCALE**2 + var[:, 1:])
    sign = 2.0 * y["event"] - 1.0
    event = -log_ndtr(sign * (mean[:, 1] - p["cut"]) / scale[:, 0])
    steps = torch.cumsum(torch.exp(p["log_gaps"]), 0)
    inner = torch.cat([p["first"][None], p["first"] + steps])
    # Far edges stand in for infinite ones, whose gradients would be NaN here.
    edges = torch.cat([inner.new_full((1,), -1e4), inner, inner.new_full((1,), 1e4)])
    lo = (edges[y["regime"]] - mean[:, 2]) / scale[:, 1]
    hi = (edges[y["regime"] + 1] - mean[:, 2]) / scale[:, 1]
    return [state, event, -log_mass(lo, hi)]


def objective(p: dict[str, torch.Tensor], x: Any, y: dict[str, Any], norm: bool) -> torch.Tensor:
    variances = torch.exp(2.0 * p["log_sd"]) + COV_FLOOR + torch.exp(-p["log_alpha"])[:, None]
    prior = torch.sum(LOG_SQRT_2PI + 0.5 * torch.log(variances) + 0.5 * p["mu"] ** 2 / variances)
    penalty = 0.5 * 0.01 * torch.sum(p["weight"] ** 2)
    return sum(t.sum() for t in nll(p, x, y, norm)) + prior + penalty


def torch_stepper(
    model: Any, train: Data, valid: Data, norm: bool, compiled: bool, threads: int
) -> tuple[Any, Any]:
    p = parameters(model)
    optimiser = torch.optim.Adam(list(p.values()), lr=1e-4, fused=True)
    x, y = tensors(train.x), tensors(train.y)
    valid_x, valid_y = tensors(valid.x), tensors(valid.y)
    for labels in (y, valid_y):
        labels["regime"] = labels["regime"].long()

    def loss() -> torch.Tensor:
        return objective(p, x, y, norm)

    def score() -> torch.Tensor:
        return sum(t.mean() for t in nll(p, valid_x, valid_y, norm))

    fast_loss, fast_score = (
        (torch.compile(loss), torch.compile(score)) if compiled else (loss, score)
    )

    def run() -> float:
        torch.set_num_threads(threads)
        value = torch.tensor(math.nan)
        for _ in range(STEPS):
            optimiser.zero_grad(set_to_none=True)
            fast_loss().backward()
            optimiser.step()
            with torch.no_grad():
                value = fast_score()
        return float(value)

    return run, (loss, score)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    print(f"{machine()}, torch {torch.__version__}", flush=True)
    train, valid = windows(RUNS, WINDOWS, 0), windows(RUNS, VALID, 1)
    first = jax.tree.map(lambda a: a[0], (train, valid))
    for backbone in ("tanh", "tanh+ln"):
        batch = models(RUNS, backbone, "diag")
        one = jax.tree.map(lambda a: a[0] if hasattr(a, "shape") else a, batch)
        functions: dict[str, Any] = {
            "scrollmt, batch of ten": stepper(batch, train, valid, STEPS),
            "scrollmt, one run": stepper(
                models(1, backbone, "diag"),
                *(jax.tree.map(lambda a: a[:1], d) for d in (train, valid)),
                STEPS,
            ),
        }
        norm = backbone.endswith("ln")
        for name, compiled in (("eager", False), ("compiled", True)):
            for threads in (1, 2):
                functions[f"torch {name}, {threads} threads"], (loss, score) = torch_stepper(
                    one, *first, norm, compiled, threads
                )
        ours = (
            composed_objective(one, first[0], {"backbone_l2": 0.01}, 1.0),
            validation_nll(one, first[1]),
        )
        theirs = loss().item(), score().item()
        np.testing.assert_allclose(ours, theirs, rtol=1e-4)
        each = {name: STEPS * (RUNS if "ten" in name else 1) for name in functions}
        seconds = in_turns(functions, options.rounds, each)
        for name, values in seconds.items():
            print(
                f"{backbone:8s} {name:24s} {1e3 * values.min():.3f} ms a run and step "
                f"(median {1e3 * np.median(values):.3f})",
                flush=True,
            )
        base = seconds["scrollmt, batch of ten"]
        for name, least in (("eager", 3.0), ("compiled", 2.0)):
            both = [seconds[f"torch {name}, {threads} threads"] for threads in (1, 2)]
            values = min(both, key=np.min)
            print(
                f"{backbone:8s} {values.min() / base.min():.2f} times faster than {name} "
                f"(median {np.median(values) / np.median(base):.2f}), wanted at least {least:g}"
            )
    assert set(ORDER) == set(TASKS)


if __name__ == "__main__":
    main()
