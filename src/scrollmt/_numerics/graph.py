"""Arithmetic on tensors of an ONNX graph, recorded as plain data; ONNX itself is not needed.

`scrollmt.export` writes the graph. Heads state their laws with these tensors, so that what is
exported stands beside what is fitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from scrollmt._numerics.normal import LOG_SQRT_2PI, MILLS_CENTRE, mills_series, narrow_bucket


@dataclass(frozen=True)
class Node:
    """One operation; the attribute `to` of a cast is a NumPy dtype."""

    op: str
    inputs: tuple[str, ...]
    output: str
    attributes: dict[str, Any]


class Graph:
    """Nodes in the order in which they were asked for."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.constants: dict[str, np.ndarray] = {}

    def constant(self, value: Any, dtype: Any) -> Value:
        array = np.asarray(value, dtype)
        name = f"constant_{len(self.constants)}"
        self.constants[name] = array
        return Value(self, name, array.dtype)

    def apply(self, op: str, *inputs: Value, dtype: Any = None, **attributes: Any) -> Value:
        name = f"{op}_{len(self.nodes)}"
        self.nodes.append(Node(op, tuple(i.name for i in inputs), name, attributes))
        return Value(self, name, np.dtype(inputs[-1].dtype if dtype is None else dtype))


Operand: TypeAlias = "Value | float | np.ndarray"


@dataclass(frozen=True)
class Value:
    """A tensor of the graph; arithmetic on it adds nodes."""

    graph: Graph
    name: str
    dtype: np.dtype[Any]

    def _with(self, op: str, other: Operand, *, swap: bool = False) -> Value:
        value = other if isinstance(other, Value) else self.graph.constant(other, self.dtype)
        return self.graph.apply(op, *((value, self) if swap else (self, value)))

    def __add__(self, other: Operand) -> Value:
        return self._with("Add", other)

    def __radd__(self, other: Operand) -> Value:
        return self._with("Add", other, swap=True)

    def __sub__(self, other: Operand) -> Value:
        return self._with("Sub", other)

    def __rsub__(self, other: Operand) -> Value:
        return self._with("Sub", other, swap=True)

    def __mul__(self, other: Operand) -> Value:
        return self._with("Mul", other)

    def __rmul__(self, other: Operand) -> Value:
        return self._with("Mul", other, swap=True)

    def __truediv__(self, other: Operand) -> Value:
        return self._with("Div", other)

    def __rtruediv__(self, other: Operand) -> Value:
        return self._with("Div", other, swap=True)

    def __matmul__(self, other: Operand) -> Value:
        return self._with("MatMul", other)

    def __lt__(self, other: Operand) -> Value:
        return self._with("Less", other)

    def __neg__(self) -> Value:
        return self.apply("Neg")

    # NumPy would otherwise take a row of cutpoints apart and ask for each of them.
    __array_ufunc__ = None

    def apply(self, op: str, **attributes: Any) -> Value:
        return self.graph.apply(op, self, **attributes)

    def cast(self, dtype: Any) -> Value:
        return self.graph.apply("Cast", self, dtype=dtype, to=np.dtype(dtype))

    def total(self, op: str = "ReduceSum", axis: int = -1, *, keepdims: bool = False) -> Value:
        axes = self.graph.constant([axis], np.int64)
        return self.graph.apply(op, self, axes, dtype=self.dtype, keepdims=int(keepdims))

    def column(self) -> Value:
        """(N,) as (N, 1)."""
        return self.graph.apply(
            "Unsqueeze", self, self.graph.constant([-1], np.int64), dtype=self.dtype
        )


def where(condition: Value, value: Value, other: Value) -> Value:
    return value.graph.apply("Where", condition, value, other)


def concatenated(values: Sequence[Value]) -> Value:
    """Tensors along their last axis."""
    return values[0].graph.apply("Concat", *values, axis=-1)


def stack(values: Iterable[Value]) -> Value:
    """Tensors of one shape along a new last axis."""
    return concatenated([value.column() for value in values])


def _mills_ratio(x: Value) -> Value:
    """`_numerics.normal.mills_ratio`: Clenshaw's recurrence over the same series."""
    coefficients = mills_series(x.dtype)
    t = 1.0 - 2.0 * MILLS_CENTRE / (x + MILLS_CENTRE)
    twice_t = 2.0 * t
    ahead, here = 0.0 * t, 0.0 * t + coefficients[-1]
    for c in coefficients[-2:0:-1]:
        here, ahead = twice_t * here - ahead + c, here
    return (t * here - ahead + coefficients[0]) / (1.0 + x)


def log_bucket_mass(lo: Value, hi: Value) -> Value:
    """`_numerics.normal.log_bucket_mass`, for buckets with at least one finite edge."""
    flip = -lo < hi
    x1, x2 = where(flip, lo, -hi), where(flip, hi, -lo)
    width = x2 - x1
    decay = (-0.5 * width * (x2 + x1)).apply("Exp")
    m1, m2 = _mills_ratio(x1.apply("Abs")), _mills_ratio(x2)
    log_density = -0.5 * x1 * x1 - LOG_SQRT_2PI
    tail = log_density + (m1 - decay * m2).apply("Log")
    outside = log_density.apply("Exp") * (m1 + decay * m2)
    straddle = (1.0 - outside).apply("Log")
    mid = 0.5 * (x1 + x2)
    series = width * (1.0 + (mid * mid - 1.0) * width * width / 24.0)
    narrow = series.apply("Log") - 0.5 * mid * mid - LOG_SQRT_2PI
    longest = x2.graph.apply("Max", x2, x2.graph.constant(1.0, x2.dtype))
    wide = where(x1 < 0.0, straddle, tail)
    return where(width * longest < narrow_bucket(x2.dtype), narrow, wide)
