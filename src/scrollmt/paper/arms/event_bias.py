"""OU event: a cross-entropy head by itself, with the offset that the paper's CE heads lack.

No table of the paper has this arm. The paper does not name the backbone of this check, so it is
selected by validation.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from scrollmt.heads import AbstractHead, Categorical
from scrollmt.laws import CategoricalLaw
from scrollmt.paper.arms.base import EVENT, Arm, register
from scrollmt.paper.arms.weighted import summed_nll

NAME = "alone-event-ce-bias"


class BiasedEvent(AbstractHead):
    """Two classes by a softmax over two latent lines, the second with a learned offset."""

    bias: Float[Array, ""]

    def __init__(self) -> None:
        self.bias = jnp.zeros(())

    @property
    def rows(self) -> int:
        return 2

    def read_labels(self, name: str, values: Any) -> tuple[np.ndarray, np.ndarray]:
        return Categorical(2).read_labels(name, values)

    def log_predictive(self, y: Int[Array, "..."], mean: Array, var: Array) -> Array:
        return Categorical(2).log_predictive(y, mean + self._offsets(), var)

    def law(self, mean: np.ndarray, var: np.ndarray) -> CategoricalLaw:
        return Categorical(2).law(mean + np.asarray(self._offsets()), var)

    def _offsets(self) -> Float[Array, " 2"]:
        return jnp.stack([jnp.zeros_like(self.bias), self.bias])

    def __repr__(self) -> str:
        return "BiasedEvent()"


def biased_event() -> dict[str, AbstractHead]:
    return {EVENT: BiasedEvent()}


register(
    Arm(
        NAME,
        "cross-entropy with one bias, the event head by itself",
        heads=biased_event,
        objective=summed_nll,
    )
)
