r"""Events and ordered classes: buckets of the latent line between learned cutpoints.

$$P(y = r) = \Phi\bigl((\tau_r - \text{mean})/D\bigr) -
  \Phi\bigl((\tau_{r-1} - \text{mean})/D\bigr), \qquad D = \sqrt{c^2 + \text{var}}.$$

Elementwise over windows; log masses of all classes stand along a last axis R.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.special import ndtri

from scrollmt._data.labels import count_and_texts, read_classes, read_texts
from scrollmt._numerics import graph
from scrollmt._numerics.compiling import on_device
from scrollmt._numerics.graph import Value
from scrollmt._numerics.normal import log_bucket_mass
from scrollmt.heads.base import AbstractHead, class_shares
from scrollmt.heads.exported import ExportedClasses
from scrollmt.laws import EventLaw, OrdinalLaw

PROBIT_BASE_SCALE = 1.005
_PIECE = 4**8


class AbstractProbit(AbstractHead):
    r"""Ordered classes cut from the latent line at learned cutpoints.

    $P(y = r) = \Phi\bigl((\tau_r - \text{mean})/D\bigr) -
    \Phi\bigl((\tau_{r-1} - \text{mean})/D\bigr)$ with $D = \sqrt{c^2 + \text{var}}$; the scale
    $c = 1.005$ is fixed, since cutpoints and weights already carry every scale.
    """

    @property
    @abc.abstractmethod
    def cutpoints(self) -> Float[Array, " cuts"]:
        """Inner cutpoints, increasing."""

    @property
    def classes(self) -> int:
        cutpoints: jax.ShapeDtypeStruct = jax.eval_shape(lambda: self.cutpoints)
        return int(cutpoints.shape[-1]) + 1

    @property
    def num_classes(self) -> int:
        return self.classes

    @abc.abstractmethod
    def with_cutpoints(self, cutpoints: Float[np.ndarray, " cuts"]) -> Self:
        """The same head, cut elsewhere."""

    def constant(self, y: Array, weight: Array) -> tuple[Self, Array]:
        below = np.cumsum(class_shares(y, weight, self.classes))[:-1]
        return self.with_cutpoints(PROBIT_BASE_SCALE * ndtri(below)), on_device(0.0)

    def probit_scale(self, var: Array) -> Array:
        return jnp.sqrt(PROBIT_BASE_SCALE**2 + var)

    def read_labels(self, name: str, values: Any) -> tuple[np.ndarray, np.ndarray]:
        return read_classes(name, values, self.classes, None)

    def log_predictive(self, y: Int[Array, "..."], mean: Array, var: Array) -> Array:
        scale = self.probit_scale(var)
        lower = upper = jnp.zeros_like(mean)
        # A chain of selects over the few cutpoints: its derivative is a sum, whereas that
        # of an indexed read is a scatter, which runs serially on a CPU.
        for r in range(self.classes - 1):
            upper = jnp.where(y == r, self.cutpoints[r], upper)
            lower = jnp.where(y == r + 1, self.cutpoints[r], lower)
        first, last = y == 0, y == self.classes - 1
        lo = jnp.where(first, -jnp.inf, (lower - mean) / scale)
        hi = jnp.where(last, jnp.inf, (upper - mean) / scale)
        return log_bucket_mass(lo, hi)

    def log_probs(self, mean: Array, var: Array) -> Array:
        """Log mass of every class, along a new last axis."""
        labels = jnp.arange(self.classes)
        return jax.vmap(lambda r: self.log_predictive(r, mean, var), out_axes=-1)(labels)

    def onnx_outputs(self, mean: Value, var: Value, offset: float, scale: float) -> ExportedClasses:
        spread = (var + PROBIT_BASE_SCALE**2).apply("Sqrt").column()
        edges = np.pad(np.asarray(self.cutpoints), 1, constant_values=(-np.inf, np.inf))
        lo, hi = ((side - mean.column()) / spread for side in (edges[:-1], edges[1:]))
        return ExportedClasses(graph.log_bucket_mass(lo, hi).cast(np.float64))

    @eqx.filter_jit
    def half_information(self, mean: Array, var: Array) -> Array:
        log_probs, slope = jax.jvp(lambda m: self.log_probs(m, var), [mean], [jnp.ones_like(mean)])
        return 0.5 * jnp.sum(jnp.exp(log_probs) * slope**2, axis=-1)


@eqx.filter_jit
def _compiled_log_probs(head: AbstractProbit, mean: Array, var: Array) -> Array:
    return head.log_probs(mean, var)


def _log_probs(head: AbstractProbit, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
    """Log mass of every class at every window; long arrays in pieces of one compiled size."""
    starts = range(0, len(mean), _PIECE) or [0]
    pieces = [
        _compiled_log_probs(
            head, jax.device_put(mean[i : i + _PIECE]), jax.device_put(var[i : i + _PIECE])
        )
        for i in starts
    ]
    return np.concatenate([np.asarray(piece) for piece in pieces])


class Event(AbstractProbit):
    """A yes/no observable: the two-bucket case, `P(y = 1) = Phi((mean - tau_1) / D)`.

    Labels are 0 and 1, booleans, yes and no, or two texts, the second of which is the event:
    `Event(labels=("dry", "wet"))`.
    """

    cutpoint: Float[Array, ""]
    labels: tuple[str, ...] | None = eqx.field(static=True)

    def __init__(self, cutpoint: float = 0.0, *, labels: Sequence[str] | None = None):
        self.cutpoint = on_device(cutpoint)
        self.labels = None if labels is None else read_texts("Event", labels)
        if self.labels is not None and len(self.labels) != 2:
            raise ValueError(f"Event: an event has two labels, got {list(self.labels)}")

    @property
    def description(self) -> str:
        return "yes or no: probit"

    @property
    def class_names(self) -> tuple[str, ...] | None:
        return self.labels

    @property
    def cutpoints(self) -> Float[Array, " 1"]:
        return self.cutpoint[None]

    def read_labels(self, name: str, values: Any) -> tuple[np.ndarray, np.ndarray]:
        return read_classes(name, values, 2, self.labels, yes_or_no=True)

    def with_cutpoints(self, cutpoints: Float[np.ndarray, " cuts"]) -> Self:
        place = on_device(cutpoints[0], self.cutpoint.dtype)
        cut: Self = eqx.tree_at(lambda h: h.cutpoint, self, place)
        return cut

    def law(self, mean: np.ndarray, var: np.ndarray) -> EventLaw:
        return EventLaw(_log_probs(self, mean, var))

    def __repr__(self) -> str:
        return "Event()" if self.labels is None else f"Event(labels={self.labels!r})"


class Ordinal(AbstractProbit):
    """`R` ordered classes; cutpoints start at the normal quantiles of equal shares.

    Labels are 0 to R-1, or texts in their order: `Ordinal(["low", "mid", "high"])`.
    """

    first_cutpoint: Float[Array, ""]
    log_gaps: Float[Array, " gaps"]
    labels: tuple[str, ...] | None = eqx.field(static=True)

    def __init__(self, R: int | Sequence[str]):
        R, self.labels = count_and_texts("Ordinal", R)
        start = ndtri(np.arange(1, R) / R)
        self.first_cutpoint = on_device(start[0])
        self.log_gaps = on_device(np.log(np.diff(start)))

    @property
    def description(self) -> str:
        return f"{self.classes} ordered classes: probit with learned cutpoints"

    @property
    def class_names(self) -> tuple[str, ...] | None:
        return self.labels

    @property
    def cutpoints(self) -> Float[Array, " cuts"]:
        steps = jnp.concatenate([jnp.zeros_like(self.log_gaps[:1]), jnp.exp(self.log_gaps)])
        if self.log_gaps.shape[-1] == 0:
            return self.first_cutpoint[None]
        return self.first_cutpoint + jnp.cumsum(steps)

    def read_labels(self, name: str, values: Any) -> tuple[np.ndarray, np.ndarray]:
        return read_classes(name, values, self.classes, self.labels)

    def with_cutpoints(self, cutpoints: Float[np.ndarray, " cuts"]) -> Self:
        dtype = self.log_gaps.dtype
        values = on_device(cutpoints[0], dtype), on_device(np.log(np.diff(cutpoints)), dtype)
        cut: Self = eqx.tree_at(lambda h: (h.first_cutpoint, h.log_gaps), self, values)
        return cut

    def law(self, mean: np.ndarray, var: np.ndarray) -> OrdinalLaw:
        return OrdinalLaw(_log_probs(self, mean, var))

    def __repr__(self) -> str:
        return f"Ordinal({self.classes if self.labels is None else list(self.labels)})"
