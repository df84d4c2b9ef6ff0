"""The ONNX graph says in onnxruntime what the Forecaster says here."""

import importlib
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from jaxtyping import Array, PRNGKeyArray
from onnx import helper, numpy_helper
from scipy.special import log_ndtr
from sklearn.exceptions import NotFittedError

from scrollmt import (
    Categorical,
    Censored,
    Count,
    Event,
    Forecaster,
    Gaussian,
    Mixture,
    Ordinal,
    Poisson,
    SinhArcsinh,
    StudentT,
)
from scrollmt._data.scaling import Scales
from scrollmt._numerics import graph as graphs
from scrollmt._numerics.graph import Graph, Value
from scrollmt._numerics.normal import log_bucket_mass
from scrollmt.backbone import ACTIVATIONS, Dense
from scrollmt.export import ACTIVATIONS as EXPORTED
from scrollmt.export import OPSET, _node, to_onnx, write_onnx
from scrollmt.heads import AbstractHead
from scrollmt.heads.exported import ExportedNormal
from scrollmt.laws import (
    CensoredLaw,
    CountLaw,
    EventLaw,
    GaussianLaw,
    GaussianMixtureLaw,
    OrdinalLaw,
    SinhArcsinhLaw,
    StudentTLaw,
    mix,
)
from scrollmt.model import Model, Task, build
from small import SHORT, TASKS, tables, tiny, windows

# Rounding of a float32 network, in units of the law's sd or in nats.
SINGLE = 2e-5


def run(model: Forecaster, X: np.ndarray) -> dict[str, np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(to_onnx(model).SerializeToString(), options)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"X": np.asarray(X, np.float64)}), strict=True))


def shaken(task: Task, key: PRNGKeyArray) -> Task:
    """A task whose belief is wide, around weights of order one."""
    leaves, tree = jax.tree.flatten(task.belief)
    keys = jax.random.split(key, len(leaves))
    moved = [a + 0.7 * jax.random.normal(k, a.shape) for a, k in zip(leaves, keys, strict=True)]
    return eqx.tree_at(lambda t: t.belief, task, jax.tree.unflatten(tree, moved))


def member(
    heads: Mapping[str, AbstractHead], seed: int, *, belief: str = "diag", **shape: Any
) -> Model:
    settings = {"widths": (8, 6), "activation": "silu", "bias": True, "norm": True, **shape}
    keys = jax.random.split(jax.random.key(seed), 3)
    backbone = Dense(3, key=keys[0], **settings)
    built = build(backbone, heads, features=6, belief=belief, key=keys[1], cov_floor=1e-4)
    names = sorted(heads)
    each = dict(zip(names, jax.random.split(keys[2], len(names)), strict=True))
    return Model(backbone, {name: shaken(built.tasks[name], each[name]) for name in names})


def assembled(
    heads: Mapping[str, AbstractHead],
    members: Sequence[Model],
    committee: Mapping[str, tuple[int, ...]] | None = None,
    *,
    moments: bool = True,
) -> Forecaster:
    """A Forecaster as `fit` leaves it, without the fit; the last input column was constant."""
    model = Forecaster(heads)
    model.tasks_ = dict(heads)
    model.members_ = list(members)
    model.model_ = members[0]
    everyone = tuple(range(len(members)))
    model.committee_ = dict.fromkeys(heads, everyone) if committee is None else dict(committee)
    in_units = Gaussian | StudentT | Censored | Mixture | SinhArcsinh
    with_units = [n for n, h in heads.items() if isinstance(h, in_units)]
    model.scales_ = Scales(
        np.array([100.0, -2.0, 7.0]),
        np.array([3.0, 0.5, 0.0]),
        dict.fromkeys(with_units, -40.0),
        dict.fromkeys(with_units, 12.5),
    )
    model.n_features_in_ = 3
    model.weights_, model.moments_, model.calibration_ = None, moments, {}
    model.answers_ = None
    return model


def inputs(n: int = 9) -> np.ndarray:
    z = np.random.default_rng(5).normal(size=(n, 3))
    return np.array([100.0, -2.0, 5.0]) + z * np.array([3.0, 0.5, 1.0])


def agree(model: Forecaster, X: np.ndarray, tolerance: float = SINGLE) -> None:
    """Outputs against laws, for the three heads of the core."""
    found, laws = run(model, X), model.predict(X)
    for name, law in laws.items():
        if isinstance(law, GaussianLaw | GaussianMixtureLaw):
            assert np.abs(found[f"{name}_mean"] - law.mean).max() < tolerance * law.sd.min()
            np.testing.assert_allclose(found[f"{name}_sd"], law.sd, rtol=tolerance)
        elif isinstance(law, EventLaw | OrdinalLaw):
            log_probs = found[f"{name}_log_probs"]
            np.testing.assert_allclose(log_probs, law.log_probs, rtol=tolerance, atol=tolerance)
            np.testing.assert_allclose(found[f"{name}_probs"], np.exp(log_probs), rtol=1e-12)
        else:
            raise AssertionError(f"{name} was not compared")


@pytest.fixture(scope="module")
def fitted() -> Forecaster:
    X, Y = tables()
    return tiny(preset=replace(SHORT, folds=5, moments=False)).fit(1e4 + 30.0 * X, Y)


@pytest.mark.slow
def test_a_fitted_committee_comes_back(fitted: Forecaster) -> None:
    assert {len(members) for members in fitted.committee_.values()} == {10}
    X = 1e4 + 30.0 * windows(13, seed=1)[0]
    agree(fitted, X)
    agree(fitted, X[:1])


def test_the_file_knows_its_columns_tasks_and_shapes(fitted: Forecaster) -> None:
    proto = to_onnx(fitted)
    facts = {entry.key: json.loads(entry.value) for entry in proto.metadata_props}
    assert facts["columns"] == ["a", "b", "c"]
    assert facts["tasks"] == {name: repr(head) for name, head in TASKS.items()}
    shapes = {
        one.name: [d.dim_param or d.dim_value for d in one.type.tensor_type.shape.dim]
        for one in [*proto.graph.input, *proto.graph.output]
    }
    assert shapes == {
        "X": ["N", 3],
        "state_mean": ["N"],
        "state_sd": ["N"],
        "state_means": ["N", 10],
        "state_sds": ["N", 10],
        "state_weights": [10],
        "event_log_probs": ["N", 2],
        "event_probs": ["N", 2],
        "regime_log_probs": ["N", 3],
        "regime_probs": ["N", 3],
    }


@pytest.mark.slow
@pytest.mark.parametrize("belief", ["none", "diag", "full", "low-rank"])
@pytest.mark.parametrize("norm", [False, True])
def test_every_belief_agrees(belief: str, norm: bool) -> None:
    members = [member(TASKS, seed, belief=belief, norm=norm) for seed in range(3)]
    # Not everyone speaks for everything, and one of the three for nothing.
    committee = {"state": (2, 0), "event": (0,), "regime": (0, 2)}
    agree(assembled(TASKS, members, committee), inputs())


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("bias", [False, True])
def test_every_backbone_of_dense_layers_agrees(activation: str, bias: bool) -> None:
    assert list(EXPORTED) == list(ACTIVATIONS)
    heads = {"state": Gaussian(0.3)}
    agree(assembled(heads, [member(heads, 1, activation=activation, bias=bias)]), inputs())


def test_float64_agrees_to_the_last_digits() -> None:
    with jax.enable_x64(True):
        heads = {"state": Gaussian(), "event": Event(0.5), "regime": Ordinal(4)}
        members = [member(heads, seed, belief="full") for seed in range(2)]
        agree(assembled(heads, members), inputs(), tolerance=1e-11)


def test_far_tails_keep_their_digits() -> None:
    """Where 1 + erf is zero or noise, down to masses that no float holds."""
    heads = {"regime": Ordinal(4)}
    far = member(heads, 0, norm=False)
    for factor in (1.0, 10.0, 1000.0):
        mu = factor * far.tasks["regime"].belief.mu
        stretched = eqx.tree_at(lambda m: m.tasks["regime"].belief.mu, far, mu)
        model = assembled(heads, [stretched])
        agree(model, inputs(40))
    lowest = run(model, inputs(40))["regime_log_probs"][:, 0]
    assert lowest.min() < -1e4
    x = jnp.asarray(model.scales_.inputs(inputs(40)), jnp.float32)
    mean, var = (np.asarray(a, np.float64) for a in stretched.project(x)["regime"])
    z = (float(heads["regime"].cutpoints[0]) - mean) / np.sqrt(1.005**2 + var)
    # The square of z doubles its rounding error.
    np.testing.assert_allclose(lowest, log_ndtr(z), rtol=SINGLE, atol=SINGLE)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 2e-6), (np.float64, 1e-13)])
def test_bucket_masses_are_those_of_the_library(dtype: Any, tolerance: float) -> None:
    """Tails, buckets around zero and narrow ones, where the formulas differ; open edges too."""
    lo, width = np.meshgrid(np.linspace(-30.0, 30.0, 121) - 1e-3, [1e-4, 2e-3, 0.03, 0.7, 5.0])
    open_edge = np.full(121, np.inf)
    edges = [np.r_[lo.ravel(), -open_edge, lo[0]], np.r_[(lo + width).ravel(), lo[0], open_edge]]
    graph = Graph()
    named = [Value(graph, name, np.dtype(dtype)) for name in ("lo", "hi")]
    out = graphs.log_bucket_mass(*named)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    given, found = (
        [helper.make_tensor_value_info(name, kind, ["N"]) for name in names]
        for names in (("lo", "hi"), (out.name,))
    )
    constants = [numpy_helper.from_array(a, name) for name, a in graph.constants.items()]
    nodes = [_node(node) for node in graph.nodes]
    body = helper.make_graph(nodes, "mass", given, found, initializer=constants)
    opset = helper.make_opsetid("", OPSET)
    proto = helper.make_model(body, opset_imports=[opset], ir_version=8)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    with jax.enable_x64(dtype == np.float64):
        values = [edge.astype(dtype) for edge in edges]
        expected = np.asarray(log_bucket_mass(*map(jnp.asarray, values)))
    (masses,) = session.run(None, dict(zip(("lo", "hi"), values, strict=True)))
    np.testing.assert_allclose(masses, expected, rtol=tolerance, atol=tolerance)


def test_categories_agree() -> None:
    heads = {"kind": Categorical(3)}
    model = assembled(heads, [member(heads, seed, belief="none") for seed in range(2)])
    found, law = run(model, inputs()), model.predict(inputs())["kind"]
    np.testing.assert_allclose(found["kind_log_probs"], law.log_probs, atol=SINGLE)  # type: ignore[attr-defined]


def test_further_likelihoods_come_back_as_the_arguments_of_their_laws() -> None:
    heads = {
        "heavy": StudentT(5.0, 0.4),
        "count": Count(0.7),
        "rare": Poisson(),
        "limited": Censored(lower=-50.0, sigma_obs=0.6),
    }
    model = assembled(heads, [member(heads, seed) for seed in range(2)])
    found, laws = run(model, inputs()), model.predict(inputs())

    def arguments(task: str, *names: str) -> list[np.ndarray]:
        return [found[f"{task}_{name}"] for name in names]

    latent = "latent_mean", "latent_var"
    again = {
        "heavy": StudentTLaw(*arguments("heavy", *latent, "scale_obs", "df")),
        "count": CountLaw(*arguments("count", *latent, "dispersion")),
        "rare": CountLaw(*arguments("rare", *latent, "dispersion")),
        "limited": CensoredLaw(
            GaussianLaw(*arguments("limited", "latent_mean", "latent_sd")), lower=-50.0
        ),
    }
    assert found["heavy_latent_mean"].shape == (9, 2)
    for name, y in {"heavy": -30.0, "count": 3.0, "rare": 2.0, "limited": -45.0}.items():
        np.testing.assert_allclose(again[name].log_prob(y), laws[name].log_prob(y), atol=1e-4)
    np.testing.assert_allclose(
        again["limited"].log_prob(-60.0), laws["limited"].log_prob(-60.0), atol=1e-4
    )


@pytest.mark.parametrize("belief", ["none", "diag", "full", "low-rank"])
@pytest.mark.parametrize("count", [1, 2])
def test_values_that_are_not_gaussian_agree(belief: str, count: int) -> None:
    """A head of several lines, each with a variance of its own."""
    heads = {"mixed": Mixture(3), "skewed": SinhArcsinh(0.3, 0.8, 0.5)}
    model = assembled(heads, [member(heads, seed, belief=belief) for seed in range(count)])
    found, laws = run(model, inputs()), model.predict(inputs())
    mixed = laws["mixed"]
    assert isinstance(mixed, GaussianMixtureLaw)
    again = GaussianMixtureLaw(*(found[f"mixed_{part}"] for part in ("means", "sds", "weights")))
    assert again.means.shape == (9, 3 * count)
    for part in ("means", "sds", "weights"):
        np.testing.assert_allclose(getattr(again, part), getattr(mixed, part), atol=1e-3)
    assert np.abs(found["mixed_mean"] - mixed.mean).max() < 10 * SINGLE * mixed.sd.min()
    np.testing.assert_allclose(found["mixed_sd"], mixed.sd, rtol=10 * SINGLE)
    np.testing.assert_allclose(again.log_prob(-35.0), mixed.log_prob(-35.0), atol=1e-4)
    own = {name.removeprefix("skewed_"): value for name, value in found.items()}
    members = [
        SinhArcsinhLaw(
            own["latent_mean"][:, m],
            np.sqrt(own["latent_var"][:, m] + own["sigma_obs"][m] ** 2),
            own["epsilon"][m],
            own["delta"][m],
        ).affine(own["offset"][m], own["scale"][m])
        for m in range(count)
    ]
    want = laws["skewed"].log_prob(-35.0)
    np.testing.assert_allclose(mix(members).log_prob(-35.0), want, atol=1e-4)


class Laplace(AbstractHead):
    """A head that knows no more than its log score."""

    def log_predictive(self, y: Array, mean: Array, var: Array) -> Array:
        return -jnp.abs(y - mean) - math.log(2.0)


def test_what_has_no_graph_is_refused() -> None:
    heads: dict[str, AbstractHead] = {"own": Laplace()}
    with pytest.raises(ValueError, match=r"task 'own': Laplace.*onnx_outputs.*leave the task out"):
        to_onnx(assembled(heads, [member(heads, 0)]))
    net = eqx.nn.MLP(3, 6, 5, 1, key=jax.random.key(0))
    own = eqx.tree_at(lambda m: m.backbone, member(TASKS, 0), net)
    with pytest.raises(ValueError, match="backbone is a MLP, and only Dense backbones"):
        to_onnx(assembled(TASKS, [own]))
    with pytest.raises(NotFittedError, match="not fitted"):
        to_onnx(Forecaster(TASKS))


class Doubled(Gaussian):
    """A Gaussian value of twice the line, which inherits the outputs of the line itself."""

    def log_predictive(self, y: Array, mean: Array, var: Array) -> Array:
        return super().log_predictive(y, 2.0 * mean, 4.0 * var)

    def law(self, mean: np.ndarray, var: np.ndarray) -> GaussianLaw:
        return super().law(2.0 * mean, 4.0 * var)


class DoubledAndDescribed(Doubled):
    """The same with outputs of its own."""

    def onnx_outputs(self, mean: Value, var: Value, offset: float, scale: float) -> ExportedNormal:
        return super().onnx_outputs(2.0 * mean, 4.0 * var, offset, scale)


def test_a_head_that_scales_the_line_is_exported_as_it_says_or_not_at_all() -> None:
    heads: dict[str, AbstractHead] = {"own": Doubled()}
    with pytest.raises(ValueError, match=r"task 'own': .* give Doubled a method onnx_outputs"):
        to_onnx(assembled(heads, [member(heads, 0)]))
    heads = {"own": DoubledAndDescribed()}
    agree(assembled(heads, [member(heads, seed) for seed in range(2)]), inputs())


def test_members_of_a_value_are_there_as_the_components_of_their_mixture() -> None:
    heads = {"state": Gaussian(0.4), "limited": Censored(lower=-50.0, sigma_obs=0.6)}
    members = [member(heads, seed) for seed in range(3)]
    model = assembled(heads, members, moments=False)
    found = run(model, inputs())
    alone = [assembled(heads, [one]).predict(inputs())["state"] for one in members]
    law = GaussianMixtureLaw(*(found[f"state_{name}"] for name in ("means", "sds", "weights")))
    y = model.predict(inputs())["state"].mean + 3.0
    np.testing.assert_allclose(law.log_prob(y), mix(alone).log_prob(y), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose([law.mean, law.sd], [found["state_mean"], found["state_sd"]])
    assert found["limited_latent_means"].shape == (9, 3)
    single = run(assembled(heads, members[:1]), inputs())
    assert sorted(single) == [
        *("limited_latent_mean", "limited_latent_sd", "state_mean", "state_sd"),
    ]


def test_without_onnx_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.delitem(sys.modules, "scrollmt.export")
    with pytest.raises(ImportError, match=r"pip install 'scrollmt\[onnx\]'"):
        importlib.import_module("scrollmt.export")


def test_a_graph_is_written_whole_and_never_through_a_link(
    fitted: Forecaster, tmp_path: Path
) -> None:
    path = write_onnx(fitted, tmp_path / "deep" / "model.onnx")
    assert path.read_bytes() == to_onnx(fitted).SerializeToString()
    with pytest.raises(FileExistsError, match="force=True"):
        write_onnx(fitted, path)
    write_onnx(fitted, path, force=True)
    link = tmp_path / "link.onnx"
    link.symlink_to(path)
    before = path.stat()
    with pytest.raises(FileExistsError, match=r"link\.onnx is a link to"):
        write_onnx(fitted, link, force=True)
    assert path.stat() == before
    assert [one.name for one in path.parent.iterdir()] == ["model.onnx"]
