r"""A fitted Forecaster as an ONNX graph, for places where there is no Python.

    X (N, D) ──▶ features ──▶ (mean, var) by member and task ──▶ parameters of laws, in your units

The outputs of a task are named after it and are the arguments of its law:

    Gaussian           a_mean, a_sd, (N,); a_means, a_sds, (N, M); a_weights, (M,)
    Mixture            a_mean, a_sd, (N,); a_means, a_sds, a_weights, (N, M C)
    Event, Ordinal     a_log_probs, a_probs, (N, R)
    Categorical        a_log_probs, a_probs, (N, R)
    Censored           as Gaussian, of the value behind: a_latent_mean, a_latent_sd, ...
    StudentT           a_latent_mean, a_latent_var, (N, M); a_scale_obs, a_df, (M,)
    SinhArcsinh        a_latent_mean, a_latent_var, (N, M); a_sigma_obs, a_epsilon, a_delta,
                       a_offset, a_scale, (M,)
    Poisson, Count     a_latent_mean, a_latent_var, (N, M); a_dispersion, (M,)

with M members and C components. `mean` and `sd` are those of the mixture; the components `means`,
`sds` and `weights` of a Gaussian task are there where M > 1. Class masses are mixed. A head of your
own describes its outputs in `onnx_outputs`, as those of scrollmt do. X and all outputs are float64.
Inputs are standardised and outputs brought to your units in float64, and what is between runs in
the precision of the fit, as in `predict`. Bucket masses take the same way as in
`_numerics.normal`, over Mills ratios: `1 + erf`, which ONNX offers, has no correct digit left in
float32 from -5.5 sd on.

The graph checks nothing: missing inputs give NaN, and columns stand in the order of the fit.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from scrollmt._data.answers import Answer
from scrollmt._data.scaling import Scales
from scrollmt._io.atomic import refuse_existing, replacing
from scrollmt._numerics.graph import Graph, Node, Value, concatenated, stack
from scrollmt.backbone import LAYER_NORM_EPS, Dense
from scrollmt.beliefs import AbstractBelief
from scrollmt.forecaster import Forecaster
from scrollmt.heads import AbstractHead
from scrollmt.heads.exported import Exported, mixed

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


ACTIVATIONS: dict[str, Callable[[Value], Value]] = {
    "relu": lambda z: z.apply("Relu"),
    "tanh": lambda z: z.apply("Tanh"),
    "silu": lambda z: z * z.apply("Sigmoid"),
    # The form by tanh, as in jax.nn.gelu.
    "gelu": lambda z: (
        0.5 * z * (1.0 + (math.sqrt(2.0 / math.pi) * (z + 0.044715 * z * z * z)).apply("Tanh"))
    ),
}


def _features(backbone: Any, x: Value) -> Value:
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
    return concatenated([z, x]) if backbone.skip else z


def _line(belief: AbstractBelief, psi: Value, name: str) -> tuple[Value, Value]:
    """Mean and variance of the latent lines: `(N,)` for one line, and `(N, L)` for several."""
    if type(belief).line is not AbstractBelief.line:
        raise ValueError(
            f"task {name!r}: {type(belief).__name__} has a `line` of its own, which has no ONNX "
            "form; state its variance by `rows` alone"
        )
    rows, lines = belief.rows(), belief.mu.shape[:-1]
    mean = psi @ np.asarray(rows.linear).reshape(belief.mu.shape).T
    # Rows of squares and roots stand in turns of one for each line.
    square = np.asarray(rows.square).reshape(-1, *belief.mu.shape).sum(axis=0)
    var = (psi * psi) @ square.T
    roots = np.asarray(rows.roots)
    count = math.prod(lines)
    for turn in range(0, len(roots), count):
        spreads = [psi @ root.T for root in roots[turn : turn + count]]
        squares = [(spread * spread).total() for spread in spreads]
        var = var + (stack(squares) if lines else squares[0])
    return mean, var


def _exported(name: str, head: AbstractHead, mean: Value, var: Value, scales: Scales) -> Exported:
    """What a head writes of its law, given the latent line of one member."""
    kinds = type(head).__mro__
    described = next(at for at, kind in enumerate(kinds) if "onnx_outputs" in vars(kind))
    # A subclass with another likelihood would be written as the class that it comes from.
    inherited = any("log_predictive" in vars(kind) for kind in kinds[:described])
    units = scales.offset.get(name, 0.0), scales.scale.get(name, 1.0)
    found = None if inherited else head.onnx_outputs(mean, var, *units)
    if found is None:
        raise ValueError(
            f"task {name!r}: {head!r} does not say how its law is written as ONNX; give "
            f"{type(head).__name__} a method onnx_outputs(mean, var, offset, scale), or leave the "
            "task out"
        )
    return found


def to_onnx(model: Forecaster) -> onnx.ModelProto:
    """A fitted Forecaster as an ONNX model from `X` (N, D) to the parameters of every law.

    `write_onnx(model, "model.onnx")` writes it to a file. The columns of X in their order and the
    head of each task are among the model's metadata. Backbones of your own are refused; beliefs of
    your own are written from their `rows`.
    """
    model._check_fitted()
    if model.calibration_:
        raise ValueError(
            f"a model with calibrate={model.calibrate!r} has no ONNX form: its laws go through "
            "maps that the graph does not hold; fit it with calibrate='none' to export it"
        )
    if model.online_ is not None:
        raise ValueError(
            "a model that was updated has no ONNX form yet; export it as it was fitted, or fit it "
            "anew on all rows"
        )
    graph, scales = Graph(), model.scales_
    # A column that was constant in the fit is ignored, and does not become 0 / 0.
    sd = np.where(scales.x_sd > 0, scales.x_sd, np.inf)
    x = (Value(graph, "X", np.dtype(np.float64)) - scales.x_mean) / sd
    mixing = model._mixing()
    wanted = {name: mixing.places(name) for name in model.tasks_}
    used = {(number, answer.head) for own in wanted.values() for number, answer in own}
    said: dict[tuple[int, str], Exported] = {}
    for number, member in enumerate(model.members_):
        names = [name for name in member.tasks if (number, name) in used]
        if not names:
            continue
        psi = _features(member.backbone, x.cast(member.tasks[names[0]].belief.mu.dtype))
        for name in names:
            task = member.tasks[name]
            mean, var = _line(task.belief, psi, name)
            said[number, name] = _exported(name, task.head, mean, var, scales)
    outputs = {}
    for name, own in wanted.items():
        laws = [_answered(name, answer, said[number, answer.head]) for number, answer in own]
        outputs[name] = mixed(laws, _weights(model, name), moments=model.moments_)
    return _written(model, graph, outputs)


def _answered(name: str, answer: Answer, law: Exported) -> Exported:
    """What a member answers to a task: the law of a head, or that one cut into classes."""
    if answer.cut is None:
        return law
    cut = law.cut(answer.cut)
    if cut is None:
        raise ValueError(
            f"task {name!r} is read off {answer.head!r}, whose law has no ONNX form to be cut; use "
            "Gaussian(), Mixture() or Real() for it"
        )
    return cut


def _weights(model: Forecaster, name: str) -> np.ndarray:
    count = len(model.committee_[name])
    if model.weights_ is None:
        return np.full(count, 1.0 / count)
    return np.asarray(model.weights_[name])


def write_onnx(model: Forecaster, path: str | os.PathLike[str], *, force: bool = False) -> Path:
    """Write `to_onnx(model)` to a file; one that is there is replaced only with `force`."""
    target = refuse_existing(path, force=force)
    proto = to_onnx(model)
    with replacing(target) as draft:
        onnx.save(proto, draft)
    return target


def _node(node: Node) -> onnx.NodeProto:
    attributes: dict[str, Any] = {
        key: helper.np_dtype_to_tensor_dtype(value) if key == "to" else value
        for key, value in node.attributes.items()
    }
    return helper.make_node(node.op, node.inputs, [node.output], **attributes)


def _written(
    model: Forecaster, graph: Graph, tasks: dict[str, dict[str, Value]]
) -> onnx.ModelProto:
    """The graph with its inputs and outputs named, checked, and with the shapes filled in."""
    double = onnx.TensorProto.DOUBLE
    results = {f"{task}_{part}": v for task, parts in tasks.items() for part, v in parts.items()}
    named = [helper.make_node("Identity", [v.name], [name]) for name, v in results.items()]
    proto = helper.make_model(
        helper.make_graph(
            [*map(_node, graph.nodes), *named],
            "scrollmt",
            [helper.make_tensor_value_info("X", double, ["N", model.n_features_in_])],
            [helper.make_tensor_value_info(name, double, None) for name in results],
            initializer=[numpy_helper.from_array(a, name) for name, a in graph.constants.items()],
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
