"""Beliefs that are a posterior: after training by curvature, or at each step by conjugacy.

`laplace-*` add a curvature belief to the fitted `map-probit` model. `closed` ties the state
head's belief to the conjugate posterior and trains on its evidence; `binding-map` ties the
belief in the same way and keeps the score.
"""

from __future__ import annotations

from functools import partial

from jaxtyping import Array, Float

from scrollmt.fit import Hyper, stack
from scrollmt.model import Model
from scrollmt.objective import Data, composed_objective
from scrollmt.paper.arms.base import (
    STATE,
    Arm,
    Setting,
    map_runs,
    one_run,
    penalised,
    register,
)
from scrollmt.paper.arms.weighted import ONE, profiled_nll, residual_spread, weighted_sum
from scrollmt.routing import (
    LAPLACE_PRECISIONS,
    Bound,
    bind,
    evidence_composed,
    laplace,
    trained_leaves,
)


def curvature_belief(models: Model, train: Data, valid: Data, *, diagonal: bool) -> Model:
    """Every run's fitted point estimate with a curvature belief on each head."""
    spread = residual_spread(models, train, valid)
    with_belief: Model = stack(
        [
            laplace(
                one_run(spread, run),
                one_run(train, run),
                one_run(valid, run),
                diagonal=diagonal,
                precisions=LAPLACE_PRECISIONS,
            )
            for run in range(len(train.x))
        ]
    )
    return with_belief


for family, words in (("diag", "diagonal"), ("full", "full")):
    register(
        Arm(
            f"laplace-{family}-probit",
            f"map-probit with a {words} curvature belief added after training",
            objective=weighted_sum,
            score=profiled_nll,
            settings=ONE,
            finish=partial(curvature_belief, diagonal=family == "diag"),
        )
    )


def bind_state(model: Model, train: Data, setting: Setting) -> Bound:
    return bind(model, train, STATE)


def settle(models: Bound, train: Data, valid: Data) -> Model:
    """The plain models at the posteriors of their training windows."""
    settled: Model = map_runs(Bound.settled, models)
    return settled


def evidence_objective(
    model: Bound, data: Data, hyper: Hyper, data_scale: float | Array
) -> Float[Array, ""]:
    """Log evidence for the state head, the free terms for the others."""
    return penalised(model.model, evidence_composed(model, data), hyper)


for name, objective, words in (
    ("closed", evidence_objective, "the evidence in place of the score"),
    ("binding-map", composed_objective, "the score kept"),
):
    register(
        Arm(
            name,
            f"state head at its conjugate posterior, {words}",
            belief="diag",
            objective=objective,
            start=bind_state,
            trainable=trained_leaves,
            finish=settle,
        )
    )
