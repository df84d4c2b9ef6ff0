"""The routings that `routing=` chooses from: how a task's belief comes about.

All of them have the same heads, features and prior; runs are stopped and chosen by the same
validation score, that of the predictive law.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from scrollmt._io.arguments import shown
from scrollmt.beliefs import Choices, Diag, Full, Maker, Point
from scrollmt.heads import AbstractHead, Gaussian
from scrollmt.model import Model
from scrollmt.objective import Data, backbone_penalty, composed_objective
from scrollmt.routing.curvatures import laplace
from scrollmt.routing.posteriors import Bound, bind, bindable, evidence_composed
from scrollmt.routing.variational import elbo_objective, ppgpr_objective

# The prior precisions that a curvature belief chooses from.
LAPLACE_PRECISIONS = tuple(float(p) for p in np.logspace(-4, 4, 17))

Objective = Callable[[Any, Data, dict[str, Any], float | Array], Float[Array, ""]]
# One run's model before training, given its training windows.
Start = Callable[[Model, Data], Any]
# One run's fitted model as a plain one, given its training and validation windows and, by task,
# the belief that was asked for.
Finish = Callable[[Any, Data, Data, Mapping[str, Maker]], Model]


@dataclass(frozen=True)
class Routing:
    """One way to set the beliefs.

    - `formula`: what is minimised, in one line; `words`: the same for a report.
    - `objective`: as `fit` takes it.
    - `start(model, train)`, `finish(model, train, valid, beliefs)`: one run before and after
      training; None leaves it as it is.
    - `trainable(models)`: which leaves move, as `fit` takes it; None is all.
    - `all_rows`: whether it needs all training windows at once.
    - `is_posterior`: whether the belief says how well the weights are known given the data.
    - `point`: whether a point estimate is trained, whatever belief is asked for.
    - `conjugate`, `needs_variance`, `one_line`, `one_task`: whether it needs a Gaussian task, a
      belief with a variance, heads that read one latent line, and tasks that are not coupled.
    """

    name: str
    formula: str
    words: str
    objective: Objective
    start: Start | None = None
    trainable: Callable[[Any], Any] | None = None
    finish: Finish | None = None
    all_rows: bool = False
    is_posterior: bool = False
    point: bool = False
    conjugate: bool = False
    needs_variance: bool = False
    one_line: bool = False
    one_task: bool = False

    def trained_belief(self, asked: Choices) -> Choices:
        """The beliefs that are trained where these are asked for."""
        return "none" if self.point else asked

    def check(
        self,
        heads: Mapping[str, AbstractHead],
        beliefs: Mapping[str, Maker],
        joint: Sequence[Sequence[str]] = (),
    ) -> None:
        """Refuse heads, beliefs and couplings that this routing has no form for."""
        here = f"routing={self.name!r}"
        if self.one_task and joint:
            raise ValueError(
                f"{here} takes one task at a time, and joint= couples {list(joint[0])}; leave out "
                "one of the two"
            )
        for name, head in heads.items():
            if self.one_line and head.rows > 1:
                raise ValueError(
                    f"task {name!r}: {here} needs a head that reads one latent line, and {head!r} "
                    f"reads {head.rows}; take another head, or routing='free'"
                )
            kind = beliefs[name].kind
            if self.needs_variance and issubclass(kind, Point):
                raise ValueError(
                    f"task {name!r}: {here} needs a belief with a variance, and belief='none' is a "
                    "point estimate; take belief='diag', or routing='free'"
                )
            if self.point and kind not in (Diag, Full):
                raise ValueError(
                    f"task {name!r}: {here} computes a diagonal or a full covariance, got "
                    f"{beliefs[name]!r}; take belief='diag' or belief='full'"
                )
        if self.conjugate and not any(isinstance(h.variants[0], Gaussian) for h in heads.values()):
            raise ValueError(
                f"{here} sets the beliefs of Gaussian tasks, and none of {list(heads)} is one; "
                "take routing='laplace' or routing='elbo'"
            )


def bind_all(model: Model, train: Data) -> Bound:
    """Every Gaussian task tied to its posterior given these windows."""
    return bind(model, train, *bindable(model))


def settle(bound: Bound, train: Data, valid: Data, beliefs: Mapping[str, Maker]) -> Model:
    """The plain model at the posteriors of its training windows."""
    model: Model = _settled(bound)
    return model


_settled = eqx.filter_jit(Bound.settled)


def evidence_objective(
    model: Bound, data: Data, hyper: dict[str, Any], data_scale: float | Array
) -> Float[Array, ""]:
    """Minus the log evidence of the bound tasks, the composed terms of the others."""
    penalty: Array = hyper["backbone_l2"] * backbone_penalty(model)
    return evidence_composed(model, data, data_scale=data_scale) + penalty


def bound_objective(
    model: Bound, data: Data, hyper: dict[str, Any], data_scale: float | Array
) -> Float[Array, ""]:
    """The composed objective at the posteriors of the bound tasks."""
    return composed_objective(model.settled(), data, hyper, data_scale)


def add_curvature(model: Model, train: Data, valid: Data, beliefs: Mapping[str, Maker]) -> Model:
    """A point estimate with curvature beliefs, of the covariance that was asked for by task."""
    diagonal = {name: maker.kind is Diag for name, maker in beliefs.items()}
    return laplace(model, train, valid, diagonal=diagonal, precisions=LAPLACE_PRECISIONS)


FREE = Routing(
    "free",
    "-sum_n log m(y_n) + overlap(q, prior)",
    "belief trained on the log score of its forecasts",
    composed_objective,
)
ROUTINGS: dict[str, Routing] = {
    routing.name: routing
    for routing in (
        FREE,
        Routing(
            "closed",
            "-log evidence, at q = posterior",
            "Gaussian tasks at their posterior, trained on its evidence",
            evidence_objective,
            start=bind_all,
            trainable=Bound.trained,
            finish=settle,
            all_rows=True,
            is_posterior=True,
            conjugate=True,
            one_task=True,
        ),
        Routing(
            "binding-map",
            "-sum_n log m(y_n) + overlap(q, prior), at q = posterior",
            "Gaussian tasks at their posterior, trained on the log score",
            bound_objective,
            start=bind_all,
            trainable=Bound.trained,
            finish=settle,
            all_rows=True,
            is_posterior=True,
            conjugate=True,
            one_task=True,
        ),
        Routing(
            "laplace",
            "-sum_n log p(y_n | mu), then q = N(mu, inverse curvature)",
            "point estimate with the inverse curvature as covariance, added after training",
            composed_objective,
            finish=add_curvature,
            all_rows=True,
            is_posterior=True,
            point=True,
            one_line=True,
            one_task=True,
        ),
        Routing(
            "elbo",
            "-sum_n E_q log p(y_n | a) + KL(q, prior)",
            "variational posterior, trained on the evidence lower bound",
            elbo_objective,
            is_posterior=True,
            needs_variance=True,
            one_line=True,
            one_task=True,
        ),
        Routing(
            "ppgpr",
            "-sum_n log m(y_n) + KL(q, prior)",
            "belief trained on the log score of its forecasts, with the KL to the prior",
            ppgpr_objective,
            needs_variance=True,
        ),
    )
}


def read_routing(given: Any) -> Routing:
    """A routing by its name."""
    if not isinstance(given, str) or given not in ROUTINGS:
        raise ValueError(f"unknown routing {shown(given)}; choose from {list(ROUTINGS)}")
    return ROUTINGS[given]
