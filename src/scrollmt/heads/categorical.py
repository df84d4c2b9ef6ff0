r"""Classes without an order: a softmax over as many latent lines.

$$\log P(y = r) = \text{mean}_r - \log\textstyle\sum_s e^{\text{mean}_s}.$$

Shapes: `mean` is `(N, R)`; there is no closed form under a belief, so that variances are zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from scrollmt._data.labels import count_and_texts, read_classes
from scrollmt._numerics.compiling import on_device
from scrollmt._numerics.graph import Value
from scrollmt.heads.base import AbstractHead, class_shares
from scrollmt.heads.exported import ExportedClasses
from scrollmt.laws import CategoricalLaw


class Categorical(AbstractHead):
    """`R` unordered classes by a softmax over `R` latent lines; point estimates only.

    Labels are 0 to R-1, or texts: `Categorical(["rain", "snow", "sun"])`.
    """

    classes: int = eqx.field(static=True)
    labels: tuple[str, ...] | None = eqx.field(static=True)

    def __init__(self, R: int | Sequence[str]):
        self.classes, self.labels = count_and_texts("Categorical", R)

    @property
    def description(self) -> str:
        return f"{self.classes} classes: softmax"

    @property
    def rows(self) -> int:
        return self.classes

    @property
    def num_classes(self) -> int:
        return self.classes

    @property
    def class_names(self) -> tuple[str, ...] | None:
        return self.labels

    def read_labels(self, name: str, values: Any) -> tuple[np.ndarray, np.ndarray]:
        return read_classes(name, values, self.classes, self.labels)

    def constant(self, y: Array, weight: Array) -> tuple[Self, Array]:
        return self, on_device(np.log(class_shares(y, weight, self.classes)))

    def log_predictive(self, y: Int[Array, "..."], mean: Array, var: Array) -> Array:
        chosen = jax.nn.one_hot(y, self.classes, dtype=mean.dtype)
        return jnp.sum(chosen * jax.nn.log_softmax(mean, axis=-1), axis=-1)

    def law(self, mean: np.ndarray, var: np.ndarray) -> CategoricalLaw:
        return CategoricalLaw(np.asarray(jax.nn.log_softmax(jnp.asarray(mean), axis=-1)))

    def onnx_outputs(self, mean: Value, var: Value, offset: float, scale: float) -> ExportedClasses:
        return ExportedClasses(mean.apply("LogSoftmax", axis=-1).cast(np.float64))

    def __repr__(self) -> str:
        return f"Categorical({self.classes if self.labels is None else list(self.labels)})"
