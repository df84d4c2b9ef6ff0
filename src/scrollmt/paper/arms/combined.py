r"""Loss weighting, gradient surgery, and random search over task weights; no table of the paper has
these arms.

Each rule R of `scrollmt.combining` comes twice. `R-probit` stands against the composed objective:
mean squared error and mean NLLs of `map-probit`, point estimates. `R-scroll-diag` is composed with
it: the nats of each task, beliefs as in `scroll-diag`. The penalty on the backbone is no task: its
gradient is added as it is.

Nats are per window, $L_k / N$, with the penalty divided alike. Adam does not see the common factor,
and rules that follow how a loss falls need a mean.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from scrollmt.combining import (
    MGDA,
    AbstractRule,
    DynamicAverage,
    GradNorm,
    PCGrad,
    RandomWeighting,
    UncertaintyWeighting,
    UPGrad,
    nats,
)
from scrollmt.fit import Hyper
from scrollmt.model import Model
from scrollmt.objective import Data, task_losses
from scrollmt.paper.arms.base import Arm, penalised, register
from scrollmt.paper.arms.weighted import (
    HEADS,
    WEIGHTS,
    beside_means,
    mean_losses,
    profiled_nll,
    residual_spread,
    weighted_sum,
)

PENALTY = "penalty"
BESIDE: dict[str, Any] = {"beside": (PENALTY,)}
# The rate of the parameters, which the learned scales share.
RATE = 0.03

# By name: the rule on mean losses, the rule on nats, and what it does.
RULES: dict[str, tuple[AbstractRule, AbstractRule, str]] = {
    "pcgrad": (PCGrad(**BESIDE), PCGrad(**BESIDE), "conflicts projected out (PCGrad)"),
    "upgrad": (UPGrad(**BESIDE), UPGrad(**BESIDE), "projected onto the dual cone (UPGrad)"),
    "mgda": (MGDA(**BESIDE), MGDA(**BESIDE), "the shortest convex combination (MGDA)"),
    "gradnorm": (
        GradNorm(**BESIDE),
        GradNorm(**BESIDE, change=nats),
        "gradient lengths that follow the rates of learning (GradNorm)",
    ),
    "rlw": (
        RandomWeighting(**BESIDE),
        RandomWeighting(**BESIDE),
        "weights drawn anew in every step (random loss weighting)",
    ),
    "uncertainty": (
        UncertaintyWeighting(**BESIDE, rate=RATE),
        UncertaintyWeighting(**BESIDE, rate=RATE),
        "a learned log scale a task (uncertainty weighting)",
    ),
    "dwa": (
        DynamicAverage(**BESIDE),
        DynamicAverage(**BESIDE, change=nats),
        "weights from the last two losses (dynamic weight average)",
    ),
}


def means_by_task(
    model: Model, data: Data, hyper: Hyper, data_scale: float | Array
) -> dict[str, Float[Array, ""]]:
    """Mean squared error of the state, mean NLL of the classes, and the penalty."""
    penalty = beside_means(model, jnp.zeros(()), hyper)
    return mean_losses(model, data) | {PENALTY: penalty}


def nats_by_task(
    model: Model, data: Data, hyper: Hyper, data_scale: float | Array
) -> dict[str, Float[Array, ""]]:
    """The composed objective per window, apart by task, and the penalty."""
    losses = task_losses(model, data, data_scale=data_scale)
    losses |= {PENALTY: penalised(model, jnp.zeros(()), hyper)}
    return {name: loss / (len(data) * data_scale) for name, loss in losses.items()}


for name, (on_means, on_nats, words) in RULES.items():
    register(
        Arm(
            f"{name}-probit",
            f"mean losses of map-probit, {words}",
            heads=HEADS["probit"],
            objective=means_by_task,
            score=profiled_nll,
            finish=residual_spread,
            combine=on_means,
        )
    )
    register(
        Arm(
            f"{name}-scroll-diag",
            f"nats of scroll-diag, {words}",
            belief="diag",
            objective=nats_by_task,
            any_tasks=True,
            combine=on_nats,
        )
    )


SEARCHED = (49, 7, 1)
SEARCH_SEED = 21


def drawn_weights(count: int) -> tuple[dict[str, float], ...]:
    """Log-uniform weights in the range of the grid, to six digits, the same for every count."""
    low, high = np.log(WEIGHTS[0]), np.log(WEIGHTS[-1])
    drawn = np.exp(np.random.default_rng(SEARCH_SEED).uniform(low, high, (count, 2)))
    return tuple(
        {"event_weight": float(f"{a:.6g}"), "regime_weight": float(f"{b:.6g}")} for a, b in drawn
    )


for count in SEARCHED:
    register(
        Arm(
            f"random-{count}",
            f"map-probit, weights chosen in nats from {count} drawn at random",
            heads=HEADS["probit"],
            objective=weighted_sum,
            score=profiled_nll,
            finish=residual_spread,
            settings=drawn_weights(count),
            runs_of=None if count == SEARCHED[0] else f"random-{SEARCHED[0]}",
        )
    )
