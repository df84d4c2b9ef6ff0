"""A value whose kind of law is chosen by out-of-fold scores.

A task with this head is trained with all of its variants at once, on one backbone. Each has a
belief of its own, and out-of-fold scores weigh the variants' laws as they weigh the members of an
ensemble. Whatever has to be one head, such as a reference forecast, is the first variant.
"""

from __future__ import annotations

from typing import Self

import numpy as np
from jaxtyping import Array

from scrollmt._numerics.graph import Value
from scrollmt.heads.base import AbstractHead
from scrollmt.heads.exported import Exported
from scrollmt.heads.gaussian import Gaussian
from scrollmt.heads.mixture import Mixture
from scrollmt.laws import Law


class Real(AbstractHead):
    """A value with whatever law scores best out of fold: Gaussian, or a mixture of five components.

    `Real(Gaussian(), Mixture(3), SinhArcsinh())` names the variants. The law is the mixture of
    theirs, weighed by out-of-fold log scores. Without folds, and for tasks in `joint`, it is the
    first variant alone.
    """

    heads: tuple[AbstractHead, ...]

    def __init__(self, *heads: AbstractHead):
        self.heads = heads or (Gaussian(), Mixture())
        for head in self.heads:
            wrong = not isinstance(head, AbstractHead) or len(head.variants) != 1
            if wrong or head.num_classes is not None:
                raise ValueError(
                    f"Real needs heads of a number, such as Real(Gaussian(), Mixture()), got "
                    f"{head!r}"
                )

    @property
    def variants(self) -> tuple[AbstractHead, ...]:
        return self.heads

    @property
    def first(self) -> AbstractHead:
        return self.heads[0]

    @property
    def rows(self) -> int:
        return self.first.rows

    @property
    def point_only(self) -> bool:
        return self.first.point_only

    @property
    def missing_fill(self) -> float:
        return self.first.missing_fill

    @property
    def fewest_labels(self) -> int:
        return self.first.fewest_labels

    @property
    def description(self) -> str:
        return "a value: " + " or ".join(
            head.description.removeprefix("a value: ") for head in self.heads
        )

    def log_predictive(self, y: Array, mean: Array, var: Array) -> Array:
        return self.first.log_predictive(y, mean, var)

    def expected_log_lik(self, y: Array, mean: Array, var: Array) -> Array:
        return self.first.expected_log_lik(y, mean, var)

    def target_scale(self, labels: np.ndarray, weight: np.ndarray) -> tuple[float, float] | None:
        return self.first.target_scale(labels, weight)

    def started(self, y: Array, weight: Array) -> Self:
        return type(self)(*(head.started(y, weight) for head in self.heads))

    def constant(self, y: Array, weight: Array) -> tuple[Self, Array]:
        fitted, line = self.first.constant(y, weight)
        return type(self)(fitted, *self.heads[1:]), line

    def half_information(self, mean: Array, var: Array) -> Array | None:
        return self.first.half_information(mean, var)

    def law(self, mean: np.ndarray, var: np.ndarray) -> Law:
        return self.first.law(mean, var)

    def onnx_outputs(self, mean: Value, var: Value, offset: float, scale: float) -> Exported | None:
        return self.first.onnx_outputs(mean, var, offset, scale)

    def __repr__(self) -> str:
        return f"Real({', '.join(map(repr, self.heads))})"
