r"""Point estimates with weighted losses: fixed weights, weight grids, learned weights, an sd head.

$$\text{MSE} + \lambda_1 L_\text{event} + \lambda_2 L_\text{regime}$$

with mean losses (`app:details`). Beside means the penalty on the backbone decides how far the
features may grow. The paper writes half the squared norm; its figures come out when it counts
whole, which is `Protocol.penalty_beside_means` (docs/results/open-choices.md). The classification
losses are cross-entropies of a softmax without offset (`-ce`) or threshold likelihoods
(`-probit`). Runs are stopped by their validation NLL added over heads, the state head scored as
a Gaussian.
"""

from __future__ import annotations

import itertools
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from scrollmt._numerics.normal import LOG_SQRT_2PI
from scrollmt.fit import Hyper
from scrollmt.heads import AbstractHead, Categorical, Gaussian
from scrollmt.laws import GaussianLaw, Law
from scrollmt.model import Model
from scrollmt.objective import Data, mean_nll
from scrollmt.paper.arms.base import (
    EVENT,
    REGIME,
    STATE,
    Arm,
    map_runs,
    penalised,
    questions,
    register,
    root_mean_square,
)

WEIGHTS = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
# The weight of the backbone's penalty beside mean losses, one number a run.
MEANS_L2 = "means_l2"


def beside_means(model: Model, loss: Array, hyper: Hyper) -> Float[Array, ""]:
    """A mean loss with the penalty on the backbone's weights."""
    return penalised(model, loss, {"backbone_l2": hyper[MEANS_L2]})


def cross_entropy() -> dict[str, AbstractHead]:
    """The three observables with softmax classifiers that have no offset."""
    return {STATE: Gaussian(), EVENT: Categorical(2), REGIME: Categorical(4)}


HEADS = {"ce": cross_entropy, "probit": questions}


def mean_losses(model: Model, data: Data) -> dict[str, Array]:
    """Mean squared error of the state and mean NLL of the classes."""
    lines = model.project(data.x)
    losses = {}
    for name, task in model.tasks.items():
        mean, var = lines[name]
        if name == STATE:
            terms = (data.y[name] - mean) ** 2
        else:
            terms = -task.head.log_predictive(data.y[name], mean, var)
        losses[name] = jnp.sum(data.weight[name] * terms) / jnp.sum(data.weight[name])
    return losses


def weighted_sum(
    model: Model, data: Data, hyper: Hyper, data_scale: float | Array
) -> Float[Array, ""]:
    """Mean losses with one weight for each class head."""
    losses = mean_losses(model, data)
    loss = losses[STATE] + sum(
        hyper[f"{name}_weight"] * losses[name] for name in (EVENT, REGIME) if name in losses
    )
    return beside_means(model, loss, hyper)


def profiled_nll(model: Model, data: Data) -> Float[Array, ""]:
    """NLL added over heads, the state as a Gaussian with the spread of its own residuals."""
    losses = mean_losses(model, data)
    mse = losses.pop(STATE)
    return LOG_SQRT_2PI + 0.5 + 0.5 * jnp.log(mse) + sum(losses.values(), start=jnp.zeros(()))


def _log_spread(model: Model, valid: Data) -> Float[Array, ""]:
    mean, _ = model.project(valid.x)[STATE]
    return jnp.log(root_mean_square(valid.y[STATE] - mean, valid.weight[STATE]))


def residual_spread(models: Model, train: Data, valid: Data) -> Model:
    """The state head reports the root mean square of its validation residuals as its sd."""
    found = map_runs(_log_spread, models, valid)
    spread: Model = eqx.tree_at(lambda m: m.tasks[STATE].head.log_sigma_obs, models, found)
    return spread


class Tempered(AbstractHead):
    """A head with a learned log scale beside it, which weighs its loss and nothing else."""

    head: AbstractHead
    log_scale: Float[Array, ""]

    def __init__(self, head: AbstractHead):
        self.head = head
        self.log_scale = jnp.zeros(())

    @property
    def rows(self) -> int:
        return self.head.rows

    def read_labels(self, name: str, values: Any) -> tuple[np.ndarray, np.ndarray]:
        return self.head.read_labels(name, values)

    def log_predictive(self, y: Int[Array, "..."], mean: Array, var: Array) -> Array:
        return self.head.log_predictive(y, mean, var)

    def law(self, mean: np.ndarray, var: np.ndarray) -> Law:
        return self.head.law(mean, var)

    def __repr__(self) -> str:
        return f"Tempered({self.head!r})"


def _tempered(kind: str) -> dict[str, AbstractHead]:
    heads = HEADS[kind]()
    return {n: head if n == STATE else Tempered(head) for n, head in heads.items()}


def tempered_ce() -> dict[str, AbstractHead]:
    return _tempered("ce")


def tempered_probit() -> dict[str, AbstractHead]:
    return _tempered("probit")


def learned_weights(
    model: Model, data: Data, hyper: Hyper, data_scale: float | Array
) -> Float[Array, ""]:
    r"""$\tfrac12 e^{-2s}\,\text{MSE} + s$ for the state, $e^{-2s}\,\text{NLL} + s$ for the others.

    Libraries often halve the class losses as well; the paper's form does not.
    """
    total = jnp.zeros(())
    for name, loss in mean_losses(model, data).items():
        head: Any = model.tasks[name].head
        s = head.log_sigma_obs if name == STATE else head.log_scale
        total = total + (0.5 if name == STATE else 1.0) * jnp.exp(-2.0 * s) * loss + s
    return beside_means(model, total, hyper)


class Spread(AbstractHead):
    """A value whose mean and log sd are two latent lines; point estimates only.

    The log sd has an offset, as the mean has one in the centred targets: without it a
    normalised backbone cannot even hold a constant sd.
    """

    log_sd_offset: Float[Array, ""]

    def __init__(self) -> None:
        self.log_sd_offset = jnp.zeros(())

    @property
    def rows(self) -> int:
        return 2

    def log_predictive(self, y: Array, mean: Array, var: Array) -> Array:
        centre, log_sd = mean[..., 0], mean[..., 1] + self.log_sd_offset
        z = (y - centre) * jnp.exp(-log_sd)
        return -LOG_SQRT_2PI - log_sd - 0.5 * z * z

    def law(self, mean: np.ndarray, var: np.ndarray) -> GaussianLaw:
        lines = np.asarray(mean, np.float64)
        return GaussianLaw(lines[..., 0], np.exp(lines[..., 1] + float(self.log_sd_offset)))

    def __repr__(self) -> str:
        return "Spread()"


def spread_ce() -> dict[str, AbstractHead]:
    return {**cross_entropy(), STATE: Spread()}


def spread_probit() -> dict[str, AbstractHead]:
    return {**questions(), STATE: Spread()}


def summed_nll(
    model: Model, data: Data, hyper: Hyper, data_scale: float | Array
) -> Float[Array, ""]:
    """Mean NLLs of all heads, plainly added."""
    return beside_means(model, sum(mean_nll(model, data).values(), start=jnp.zeros(())), hyper)


ONE = ({"event_weight": 1.0, "regime_weight": 1.0},)
GRID = tuple(
    {"event_weight": a, "regime_weight": b} for a, b in itertools.product(WEIGHTS, WEIGHTS)
)

for kind, words in (("ce", "cross-entropy heads"), ("probit", "threshold heads")):
    point: dict[str, Any] = {
        "heads": HEADS[kind],
        "objective": weighted_sum,
        "score": profiled_nll,
        "finish": residual_spread,
    }
    register(
        Arm(f"map-{kind}", f"squared error and {words}, weights of one", settings=ONE, **point)
    )
    register(
        Arm(
            f"map-{kind}-grid",
            f"the same with the weights chosen from 49 runs in nats, {words}",
            settings=GRID,
            **point,
        )
    )
    register(
        Arm(
            f"map-{kind}-grid-mixed",
            f"the same 49 runs, chosen by squared error plus losses as they are, {words}",
            settings=GRID,
            select="valid_mixed",
            runs_of=f"map-{kind}-grid",
            **point,
        )
    )
    register(
        Arm(
            f"kendall-{kind}",
            f"a learned log scale a task, {words}",
            heads=tempered_ce if kind == "ce" else tempered_probit,
            objective=learned_weights,
        )
    )
    register(
        Arm(
            f"mle-sigma-{kind}",
            f"an extra head gives the sd of the state, all losses are NLLs, {words}",
            heads=spread_ce if kind == "ce" else spread_probit,
            objective=summed_nll,
        )
    )
