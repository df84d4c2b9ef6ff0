r"""Events and ordered classes: buckets of the latent line between learned cutpoints.

$$P(y = r) = \Phi\bigl((\tau_r - \text{mean})/D\bigr) -
  \Phi\bigl((\tau_{r-1} - \text{mean})/D\bigr), \qquad D = \sqrt{c^2 + \text{var}}.$$

Elementwise over windows; log masses of all classes stand along a last axis R.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, Literal, Self

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
from scrollmt.heads.base import AbstractHead, Source, class_shares
from scrollmt.heads.exported import ExportedClasses
from scrollmt.laws import Cut, EventLaw, OrdinalLaw

PROBIT_BASE_SCALE = 1.005
_PIECE = 4**8
# How an event compares its number with the edge: which side the edge belongs to, and whether the
# event is the lower side.
_COMPARISONS = {
    "above": ("right", False),
    "at_least": ("left", False),
    "below": ("left", True),
    "at_most": ("right", True),
}


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

    @property
    def line_noise(self) -> Float[Array, ""]:
        return jnp.asarray(PROBIT_BASE_SCALE**2, self.cutpoints.dtype)

    def probit_scale(self, var: Array) -> Array:
        return jnp.sqrt(PROBIT_BASE_SCALE**2 + var)

    def read_labels(self, name: str, values: Any) -> tuple[np.ndarray, np.ndarray]:
        return read_classes(name, values, self.classes, None)

    def log_predictive(self, y: Int[Array, "..."], mean: Array, var: Array) -> Array:
        scale, cutpoints = self.probit_scale(var), self.cutpoints
        lower = upper = jnp.zeros_like(mean)
        # A chain of selects over the few cutpoints: its derivative is a sum, whereas that
        # of an indexed read is a scatter, which runs serially on a CPU.
        for r in range(self.classes - 1):
            upper = jnp.where(y == r, cutpoints[r], upper)
            lower = jnp.where(y == r + 1, cutpoints[r], lower)
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

    `Event(of="level", above=110)` is the event that a number, a task or a further column of Y, is
    above 110; `below`, `at_least` and `at_most` likewise. Its labels come from the number, whose
    law is then read too: out-of-fold scores weigh it against the event's own head.
    """

    cutpoint: Float[Array, ""]
    labels: tuple[str, ...] | None = eqx.field(static=True)
    source: Source | None = eqx.field(static=True)

    def __init__(
        self,
        cutpoint: float = 0.0,
        *,
        labels: Sequence[str] | None = None,
        of: str | None = None,
        above: float | None = None,
        at_least: float | None = None,
        below: float | None = None,
        at_most: float | None = None,
    ):
        self.cutpoint = on_device(cutpoint)
        self.labels = None if labels is None else read_texts("Event", labels)
        if self.labels is not None and len(self.labels) != 2:
            raise ValueError(f"Event: an event has two labels, got {list(self.labels)}")
        given = {"above": above, "at_least": at_least, "below": below, "at_most": at_most}
        self.source = _event_source(of, {k: v for k, v in given.items() if v is not None})

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

    @property
    def asked_of(self) -> Source | None:
        return self.source

    @property
    def cut_into(self) -> Literal["event"]:
        return "event"

    @property
    def comparison(self) -> tuple[str, float] | None:
        """How the number behind the event is compared, and with what; None without one."""
        if self.source is None:
            return None
        cut = self.source.cut
        found = next(k for k, v in _COMPARISONS.items() if v == (cut.closed, cut.falling))
        return found, cut.edges[0]

    def __repr__(self) -> str:
        given = [] if self.labels is None else [f"labels={self.labels!r}"]
        if self.source is not None and self.comparison is not None:
            how, edge = self.comparison
            given += [f"of={self.source.of!r}", f"{how}={edge:g}"]
        return f"Event({', '.join(given)})"


def _event_source(of: str | None, compared: dict[str, float]) -> Source | None:
    if of is None and not compared:
        return None
    if not isinstance(of, str) or len(compared) != 1:
        raise ValueError(
            f"Event: name the number and one comparison, such as Event(of='level', above=110); got "
            f"of={of!r} and {compared}"
        )
    ((how, edge),) = compared.items()
    closed, falling = _COMPARISONS[how]
    return Source(of, Cut((edge,), "left" if closed == "left" else "right", falling, event=True))


class Ordinal(AbstractProbit):
    """`R` ordered classes; cutpoints start at the normal quantiles of equal shares.

    Labels are 0 to R-1, or texts in their order: `Ordinal(["low", "mid", "high"])`.

    `Ordinal(of="level", edges=[60, 80, 100])` are the bands of a number, a task or a further
    column of Y: below 60, from 60 to 80 and so on. Labels and laws as for `Event(of=...)`.
    """

    first_cutpoint: Float[Array, ""]
    log_gaps: Float[Array, " gaps"]
    labels: tuple[str, ...] | None = eqx.field(static=True)
    source: Source | None = eqx.field(static=True)

    def __init__(
        self,
        R: int | Sequence[str] | None = None,
        *,
        of: str | None = None,
        edges: Sequence[float] | None = None,
    ):
        self.source = _band_source(of, edges)
        if R is None and self.source is None:
            raise ValueError("Ordinal needs a number of classes, their texts, or of= and edges=")
        if R is None and self.source is not None:
            R = self.source.cut.classes
        R, self.labels = count_and_texts("Ordinal", R)
        if self.source is not None and self.source.cut.classes != R:
            raise ValueError(
                f"Ordinal: {len(self.source.cut.edges)} edges make {self.source.cut.classes} "
                f"bands, got {R} classes; leave out one of the two"
            )
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
        # Added up one by one: the gradient of `jnp.cumsum`, in a batch of runs and read at several
        # places, is compiled wrongly by XLA (jaxlib 0.10.2, CPU). The few gaps make no difference.
        cuts = [self.first_cutpoint]
        for place in range(self.log_gaps.shape[-1]):
            cuts.append(cuts[-1] + jnp.exp(self.log_gaps[place]))
        return jnp.stack(cuts)

    def read_labels(self, name: str, values: Any) -> tuple[np.ndarray, np.ndarray]:
        return read_classes(name, values, self.classes, self.labels)

    def with_cutpoints(self, cutpoints: Float[np.ndarray, " cuts"]) -> Self:
        dtype = self.log_gaps.dtype
        values = on_device(cutpoints[0], dtype), on_device(np.log(np.diff(cutpoints)), dtype)
        cut: Self = eqx.tree_at(lambda h: (h.first_cutpoint, h.log_gaps), self, values)
        return cut

    def law(self, mean: np.ndarray, var: np.ndarray) -> OrdinalLaw:
        return OrdinalLaw(_log_probs(self, mean, var))

    @property
    def asked_of(self) -> Source | None:
        return self.source

    @property
    def cut_into(self) -> Literal["bands"]:
        return "bands"

    def __repr__(self) -> str:
        given = [str(self.classes if self.labels is None else list(self.labels))]
        if self.source is not None:
            given = given[: self.labels is not None]
            given += [f"of={self.source.of!r}", f"edges={list(self.source.cut.edges)}"]
        return f"Ordinal({', '.join(given)})"


def _band_source(of: str | None, edges: Sequence[float] | None) -> Source | None:
    if of is None and edges is None:
        return None
    if not isinstance(of, str) or edges is None:
        raise ValueError(
            f"Ordinal: name the number and its edges, such as Ordinal(of='level', edges=[60, 80]); "
            f"got of={of!r} and edges={edges!r}"
        )
    return Source(of, Cut(tuple(edges)))
