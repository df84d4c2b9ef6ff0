r"""A fitted Forecaster as an ONNX graph, for places where there is no Python.

    X (N, D) ──▶ features ──▶ (mean, var) by member and task ──▶ parameters of laws, in your units

The outputs of a task are named after it and are the arguments of its law:

    Gaussian           a_mean, a_sd                                (N,)
    Event, Ordinal     a_log_probs, a_probs                        (N, R)
    Categorical        a_log_probs, a_probs                        (N, R)
    Censored           a_latent_mean, a_latent_sd                  (N,)
    StudentT           a_latent_mean, a_latent_var, (N, M); a_scale_obs, a_df, (M,)
    Poisson, Count     a_latent_mean, a_latent_var, (N, M); a_dispersion, (M,)

with M members; the others are mixed as `predict` does. X and all outputs are float64. Inputs are
standardised and outputs brought to your units in float64, and what is between runs in the precision
of the fit, as in `predict`. Bucket masses take the same way as in `_numerics.normal`, over Mills
ratios: `1 + erf`, which ONNX offers, has no correct digit left in float32 from -5.5 sd on.

The graph checks nothing: missing inputs give NaN, and columns stand in the order of the fit.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from scrollmt._io.atomic import refuse_existing, replacing
from scrollmt._numerics.normal import LOG_SQRT_2PI, MILLS_CENTRE, mills_series, narrow_bucket
from scrollmt.backbone import LAYER_NORM_EPS, Dense
from scrollmt.beliefs import AbstractBelief
from scrollmt.forecaster import Forecaster
from scrollmt.heads import PROBIT_BASE_SCALE, AbstractProbit, Categorical
from scrollmt.laws import LatentLaw, RealLaw

try:
    import onnx
    from onnx import helper, numpy_helper
except ImportError as error:
    raise ImportError(
        "scrollmt.export needs onnx, which is optional: pip install 'scrollmt[onnx]'"
    ) from error

# Operator set 18 is read by ONNX Runtime from 1.14 on.
OPSET = 18
_IR_VERSION = 8


class _Graph:
    """Nodes in the order in which they were asked for."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, value: Any, dtype: Any) -> _Value:
        array = np.asarray(value, dtype)
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return _Value(self, name, array.dtype)

    def apply(self, op: str, *inputs: _Value, dtype: Any = None, **attributes: Any) -> _Value:
        name = f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, [i.name for i in inputs], [name], **attributes))
        return _Value(self, name, np.dtype(inputs[-1].dtype if dtype is None else dtype))


_Operand: TypeAlias = "_Value | float | np.ndarray"


@dataclass(frozen=True)
class _Value:
    """A tensor of the graph; arithmetic on it adds nodes."""

    graph: _Graph
    name: str
    dtype: np.dtype

    def _with(self, op: str, other: _Operand, *, swap: bool = False) -> _Value:
        value = other if isinstance(other, _Value) else self.graph.constant(other, self.dtype)
        return self.graph.apply(op, *((value, self) if swap else (self, value)))

    def __add__(self, other: _Operand) -> _Value:
        return self._with("Add", other)

    def __radd__(self, other: _Operand) -> _Value:
        return self._with("Add", other, swap=True)

    def __sub__(self, other: _Operand) -> _Value:
        return self._with("Sub", other)

    def __rsub__(self, other: _Operand) -> _Value:
        return self._with("Sub", other, swap=True)

    def __mul__(self, other: _Operand) -> _Value:
        return self._with("Mul", other)

    def __rmul__(self, other: _Operand) -> _Value:
        return self._with("Mul", other, swap=True)

    def __truediv__(self, other: _Operand) -> _Value:
        return self._with("Div", other)

    def __rtruediv__(self, other: _Operand) -> _Value:
        return self._with("Div", other, swap=True)

    def __matmul__(self, other: _Operand) -> _Value:
        return self._with("MatMul", other)

    def __lt__(self, other: _Operand) -> _Value:
        return self._with("Less", other)

    def __neg__(self) -> _Value:
        return self.apply("Neg")

    # NumPy would otherwise take a row of cutpoints apart and ask for each of them.
    __array_ufunc__ = None

    def apply(self, op: str, **attributes: Any) -> _Value:
        return self.graph.apply(op, self, **attributes)

    def cast(self, dtype: Any) -> _Value:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self.graph.apply("Cast", self, dtype=dtype, to=kind)

    def total(self, op: str = "ReduceSum", axis: int = -1, *, keepdims: bool = False) -> _Value:
        axes = self.graph.constant([axis], np.int64)
        return self.graph.apply(op, self, axes, dtype=self.dtype, keepdims=int(keepdims))

    def column(self) -> _Value:
        """(N,) as (N, 1)."""
        return self.graph.apply(
            "Unsqueeze", self, self.graph.constant([-1], np.int64), dtype=self.dtype
        )


def _where(condition: _Value, value: _Value, other: _Value) -> _Value:
    return value.graph.apply("Where", condition, value, other)


def _stack(values: Iterable[_Value]) -> _Value:
    """Tensors of one shape along a new last axis."""
    columns = [value.column() for value in values]
    return columns[0].graph.apply("Concat", *columns, axis=-1)


ACTIVATIONS: dict[str, Callable[[_Value], _Value]] = {
    "relu": lambda z: z.apply("Relu"),
    "tanh": lambda z: z.apply("Tanh"),
    "silu": lambda z: z * z.apply("Sigmoid"),
    # The form by tanh, as in jax.nn.gelu.
    "gelu": lambda z: (
        0.5 * z * (1.0 + (math.sqrt(2.0 / math.pi) * (z + 0.044715 * z * z * z)).apply("Tanh"))
    ),
}


def _features(backbone: Any, x: _Value) -> _Value:
    """(N, D) to (N, H)."""
    if not isinstance(backbone, Dense):
        raise ValueError(
            f"the backbone is a {type(backbone).__name__}, and only Dense backbones, those of the "
            "presets, can be written as ONNX; export a module of your own with its own tools"
        )
    z = x
    for layer, weight in enumerate(backbone.weights):
        z = z @ np.asarray(weight).T
        if backbone.biases is not None:
            z = z + np.asarray(backbone.biases[layer])
        z = ACTIVATIONS[backbone.activation](z)
        if backbone.norm:
            centred = z - z.total("ReduceMean", keepdims=True)
            var = (centred * centred).total("ReduceMean", keepdims=True)
            z = centred / (var + LAYER_NORM_EPS).apply("Sqrt")
    return z


def _line(belief: AbstractBelief, psi: _Value, name: str) -> tuple[_Value, _Value]:
    """Mean and variance of the latent line; a head of several lines has no variance."""
    if type(belief).line is not AbstractBelief.line:
        raise ValueError(
            f"task {name!r}: {type(belief).__name__} has a `line` of its own, which has no ONNX "
            "form; state its variance by `rows` alone"
        )
    rows = belief.rows()
    mean = psi @ np.asarray(rows.linear).reshape(belief.mu.shape).T
    var = (psi * psi) @ np.asarray(rows.square).sum(axis=0)
    for root in np.asarray(rows.roots):
        spread = psi @ root.T
        var = var + (spread * spread).total()
    return mean, var


def _mills_ratio(x: _Value) -> _Value:
    """`numerics.mills_ratio`: Clenshaw's recurrence over the same series."""
    coefficients = mills_series(x.dtype)
    t = 1.0 - 2.0 * MILLS_CENTRE / (x + MILLS_CENTRE)
    twice_t = 2.0 * t
    ahead, here = 0.0 * t, 0.0 * t + coefficients[-1]
    for c in coefficients[-2:0:-1]:
        here, ahead = twice_t * here - ahead + c, here
    return (t * here - ahead + coefficients[0]) / (1.0 + x)


def _log_bucket_mass(lo: _Value, hi: _Value) -> _Value:
    """`numerics.log_bucket_mass`, for buckets with at least one finite edge."""
    flip = -lo < hi
    x1, x2 = _where(flip, lo, -hi), _where(flip, hi, -lo)
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
    wide = _where(x1 < 0.0, straddle, tail)
    return _where(width * longest < narrow_bucket(x2.dtype), narrow, wide)


@dataclass(frozen=True)
class _Said:
    """What one member says about a task: its head, the latent line and the units."""

    head: Any
    mean: _Value
    var: _Value
    offset: float | None
    scale: float

    def law_at_zero(self) -> Any:
        """The law of a line at zero without variance: what the head alone adds."""
        zero = np.zeros(1)
        if self.offset is None:
            return self.head.law(zero, zero)
        return self.head.rescaled_law(zero, zero, self.offset, self.scale)

    def line(self) -> tuple[_Value, _Value]:
        """The latent line in the user's units, but for what the head adds."""
        return self.scale * self.mean.cast(np.float64), self.scale**2 * self.var.cast(np.float64)


def _moments(said: Sequence[_Said], noise: Sequence[RealLaw]) -> tuple[_Value, _Value]:
    """Mean and sd of Gaussian laws, mixed as `GaussianLaw._mix` does."""
    lines = [
        (mean + law.mean, var + law.var)
        for (mean, var), law in zip((s.line() for s in said), noise, strict=True)
    ]
    means, variances = (_stack(column) for column in zip(*lines, strict=True))
    centre = means.total("ReduceMean")
    apart = means - centre.column()
    var = variances.total("ReduceMean") + (apart * apart).total("ReduceMean")
    return centre, var.apply("Sqrt")


def _log_probs(said: _Said) -> _Value:
    """(N, R) log masses of a member's classes."""
    head = said.head
    if isinstance(head, Categorical):
        return said.mean.apply("LogSoftmax", axis=-1).cast(np.float64)
    scale = (said.var + PROBIT_BASE_SCALE**2).apply("Sqrt").column()
    edges = np.pad(np.asarray(head.cutpoints), 1, constant_values=(-np.inf, np.inf))
    lo, hi = ((side - said.mean.column()) / scale for side in (edges[:-1], edges[1:]))
    return _log_bucket_mass(lo, hi).cast(np.float64)


def _outputs(name: str, said: Sequence[_Said]) -> dict[str, _Value]:
    """The arguments of the mixed law of a task."""
    graph = said[0].mean.graph
    if isinstance(said[0].head, AbstractProbit | Categorical):
        # (N, R, M); the masses of members are averaged.
        tables = _stack(_log_probs(one) for one in said)
        log_probs = tables.total("ReduceLogSumExp") - math.log(len(said))
        return {"log_probs": log_probs, "probs": log_probs.apply("Exp")}
    laws = [one.law_at_zero() for one in said]
    real = [law for law in laws if isinstance(law, RealLaw)]
    if real and all(law.normal for law in real):
        return dict(zip(("mean", "sd"), _moments(said, real), strict=True))
    behind = [law.latent_normal for law in real if law.latent_normal is not None]
    if behind:
        return dict(zip(("latent_mean", "latent_sd"), _moments(said, behind), strict=True))
    latent = [law for law in real if isinstance(law, LatentLaw)]
    if not latent:
        raise ValueError(
            f"task {name!r}: {said[0].head!r} has a {type(laws[0]).__name__}, whose parameters "
            "have no ONNX form; leave the task out"
        )
    lines = [
        (mean + law.latent_mean[:, 0], var)
        for (mean, var), law in zip((s.line() for s in said), latent, strict=True)
    ]
    means, variances = (_stack(column) for column in zip(*lines, strict=True))
    noise = (np.concatenate(each) for each in zip(*(law.noise for law in latent), strict=True))
    kept = {
        name: graph.constant(value, float).apply("Identity")
        for name, value in zip(latent[0].learned, noise, strict=True)
    }
    return {"latent_mean": means, "latent_var": variances, **kept}


def to_onnx(model: Forecaster) -> onnx.ModelProto:
    """A fitted Forecaster as an ONNX model from `X` (N, D) to the parameters of every law.

    `write_onnx(model, "model.onnx")` writes it to a file. The columns of X in their order and the
    head of each task are among the model's metadata. Backbones of your own are refused; beliefs of
    your own are written from their `rows`.
    """
    model._check_fitted()
    graph, scales = _Graph(), model.scales_
    # A column that was constant in the fit is ignored, and does not become 0 / 0.
    sd = np.where(scales.x_sd > 0, scales.x_sd, np.inf)
    x = (_Value(graph, "X", np.dtype(np.float64)) - scales.x_mean) / sd
    said: dict[str, list[_Said]] = {name: [] for name in model.tasks_}
    for number, member in enumerate(model.members_):
        names = [name for name in said if number in model.committee_[name]]
        if not names:
            continue
        psi = _features(member.backbone, x.cast(member.tasks[names[0]].belief.mu.dtype))
        for name in names:
            task = member.tasks[name]
            mean, var = _line(task.belief, psi, name)
            units = scales.offset.get(name), scales.scale.get(name, 1.0)
            said[name].append(_Said(task.head, mean, var, *units))
    return _written(model, graph, {name: _outputs(name, one) for name, one in said.items()})


def write_onnx(model: Forecaster, path: str | os.PathLike[str], *, force: bool = False) -> Path:
    """Write `to_onnx(model)` to a file; one that is there is replaced only with `force`."""
    target = refuse_existing(path, force=force)
    proto = to_onnx(model)
    with replacing(target) as draft:
        onnx.save(proto, draft)
    return target


def _written(
    model: Forecaster, graph: _Graph, tasks: dict[str, dict[str, _Value]]
) -> onnx.ModelProto:
    """The graph with its inputs and outputs named, checked, and with the shapes filled in."""
    double = onnx.TensorProto.DOUBLE
    results = {f"{task}_{part}": v for task, parts in tasks.items() for part, v in parts.items()}
    named = [helper.make_node("Identity", [v.name], [name]) for name, v in results.items()]
    proto = helper.make_model(
        helper.make_graph(
            [*graph.nodes, *named],
            "scrollmt",
            [helper.make_tensor_value_info("X", double, ["N", model.n_features_in_])],
            [helper.make_tensor_value_info(name, double, None) for name in results],
            initializer=graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=_IR_VERSION,
        producer_name="scrollmt",
        producer_version=version("scrollmt"),
    )
    columns = list(getattr(model, "feature_names_in_", []))
    heads = {name: repr(head) for name, head in model.tasks_.items()}
    facts = {"columns": json.dumps(columns), "tasks": json.dumps(heads)}
    helper.set_model_props(proto, facts)
    proto = onnx.shape_inference.infer_shapes(proto, strict_mode=True)
    onnx.checker.check_model(proto, full_check=True)
    return proto
