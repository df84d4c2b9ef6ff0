"""What the paper leaves open, measured: the evidence behind docs/results/open-choices.md.

    python benchmarks/open_choices.py            # about ten minutes on two cores

Lorenz-63, four seeds, one backbone an arm: how the backbone penalty scales beside mean losses,
how the sd head is linked, and which residuals give a point estimate its sd. Each reading is
held against the paper's figure for the same arm. Writes docs/results/open-choices.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from scrollmt.arms import ARMS, Arm, register
from scrollmt.arms.base import STATE, map_runs, root_mean_square
from scrollmt.arms.weighted import PENALTY_BESIDE_MEANS, Spread, cross_entropy, summed_nll
from scrollmt.fit import Hyper, Objective
from scrollmt.heads import AbstractHead
from scrollmt.model import Model
from scrollmt.numerics import LOG_SQRT_2PI
from scrollmt.objective import Data
from scrollmt.paper import published
from scrollmt.paper.jobs import environment, execute, make_job
from scrollmt.paper.protocol import PROTOCOL
from scrollmt.predictive import GaussianLaw

SEEDS = PROTOCOL.seeds[:4]
METRICS = ("reg_nll", "evt_nll", "ord_nll", "reg_calerr", "evt_acc_pct")
OUT = Path(__file__).resolve().parent.parent / "docs" / "results" / "open-choices.json"
PENALTIES = {"divided by N": 1 / 3900, "as written": 1.0, "doubled": 2.0, "times four": 4.0}
POINT_ARMS = {
    "map-probit": "tanh",
    "map-ce": "tanh",
    "kendall-ce": "tanh+ln",
    "mle-sigma-ce": "tanh+ln",
    "mle-sigma-probit": "tanh+ln",
}
LINKS: dict[str, Callable[[Array], Array]] = {"exp": jnp.exp, "softplus": jax.nn.softplus}


class Linked(Spread):
    """The sd head with another link, with or without an offset."""

    link: str = eqx.field(static=True)
    offset: bool = eqx.field(static=True)

    def __init__(self, link: str, offset: bool):
        super().__init__()
        self.link, self.offset = link, offset

    def sd(self, line: Array) -> Array:
        return LINKS[self.link](line + self.log_sd_offset if self.offset else line)

    def log_predictive(self, y: Array, mean: Array, var: Array) -> Array:
        sd = self.sd(mean[..., 1])
        return -LOG_SQRT_2PI - jnp.log(sd) - 0.5 * ((y - mean[..., 0]) / sd) ** 2

    def law(self, mean: np.ndarray, var: np.ndarray) -> GaussianLaw:
        sd = np.asarray(self.sd(jnp.asarray(mean[..., 1])), np.float64)
        return GaussianLaw(np.asarray(mean[..., 0], np.float64), sd)

    def __repr__(self) -> str:
        return f"Linked({self.link}, {self.offset})"


def linked_heads(link: str, offset: bool) -> dict[str, AbstractHead]:
    return {**cross_entropy(), STATE: Linked(link, offset)}


def training_spread(models: Model, train: Data, valid: Data) -> Model:
    """The sd of a point estimate from its training residuals."""

    def log_spread(model: Model, train: Data) -> Array:
        mean, _ = model.project(train.x)[STATE]
        return jnp.log(root_mean_square(train.y[STATE] - mean, train.weight[STATE]))

    found = map_runs(log_spread, models, train)
    return eqx.tree_at(lambda m: m.tasks[STATE].head.log_sigma_obs, models, found)


def heads_too(
    model: Model, data: Data, hyper: Hyper, data_scale: float | Array, *, objective: Objective
) -> Array:
    """An arm's objective with the weights of its heads penalised like those of the backbone."""
    weights = sum(jnp.sum(task.belief.mu**2) for task in model.tasks.values())
    rest = objective(model, data, hyper, data_scale)
    return rest + 0.5 * PENALTY_BESIDE_MEANS * hyper["backbone_l2"] * weights


def measure(arm: str, backbone: str, **changes: Any) -> dict[str, float]:
    protocol = replace(PROTOCOL, **changes)
    rows = execute(make_job("lorenz63", arm, backbone, protocol, seeds=SEEDS), protocol).rows
    return {m: float(np.mean([r[0][m] for r in rows.values()])) for m in METRICS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--steps", type=int, default=PROTOCOL.steps)
    options = parser.parse_args()
    paper = published.table("full").set_index(["corpus", "arm"]).loc["lorenz63"]
    found: list[dict[str, Any]] = []

    def tell(choice: str, reading: str, arm: str, ours: dict[str, float]) -> None:
        theirs = {m: float(paper.loc[arm, m]) for m in METRICS}
        found.append({"choice": choice, "reading": reading, "arm": arm, **ours, "paper": theirs})
        shown = "  ".join(f"{m} {ours[m]:.3f} [{theirs[m]:g}]" for m in METRICS)
        print(f"{choice}: {reading}, {arm}: {shown}", flush=True)
        content = {"environment": environment(), "seeds": SEEDS, "records": found}
        options.out.write_text(json.dumps(content, indent=1) + "\n")

    for arm, backbone in POINT_ARMS.items():
        for words, factor in PENALTIES.items():
            # The arms count the squared norm whole: half of it is the penalty as written.
            written = PROTOCOL.backbone_l2 / PENALTY_BESIDE_MEANS
            ours = measure(arm, backbone, backbone_l2=written * factor, steps=options.steps)
            tell("penalty beside mean losses", words, arm, ours)
        heavy = register(
            replace(
                ARMS[arm],
                name=f"open-heads-{arm}",
                objective=partial(heads_too, objective=ARMS[arm].objective),
            )
        )
        ours = measure(heavy.name, backbone, backbone_l2=written, steps=options.steps)
        tell("penalty beside mean losses", "as written, on the heads' weights too", arm, ours)
    for link in LINKS:
        for offset in (False, True):
            words = f"{link} with{'' if offset else 'out'} an offset"
            heads = partial(linked_heads, link=link, offset=offset)
            arm = register(Arm(f"open-{link}-{offset}", words, heads=heads, objective=summed_nll))
            ours = measure(arm.name, "tanh+ln", steps=options.steps)
            tell("link of the sd head", words, "mle-sigma-ce", ours)
    for name in ("map-probit",):
        arm = register(replace(ARMS[name], name=f"open-{name}", finish=training_spread))
        ours = measure(arm.name, "tanh", steps=options.steps)
        tell("sd of a point estimate", "training residuals", name, ours)


if __name__ == "__main__":
    main()
