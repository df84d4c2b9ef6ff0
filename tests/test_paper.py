"""The paper's statements as named tests: composition, scale, weights, propriety, limits."""

import math
from dataclasses import replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_ndtr

from helpers import (
    CUTS,
    DUO,
    HEADS,
    PROBIT_SCALE,
    H,
    N,
    as_data,
    assert_same_bits,
    cast_floats,
    draw_belief,
    flat,
    losses,
    small_data,
    small_model,
)
from scrollmt.beliefs import Diag, Full, Point
from scrollmt.heads import Event, Gaussian, Ordinal
from scrollmt.model import Model, Task, rescale_task
from scrollmt.objective import Data, composed, data_terms

# Composition (lem:compose)


def test_composition() -> None:
    """F_MT is, term by term, the sum of the losses of models that each hold one task."""
    with jax.enable_x64(True):
        model, data = small_model(), small_data()
        joint = losses(model, data)
        value, backbone_slope = 0.0, np.zeros_like(flat(model.backbone))
        for name, task in model.tasks.items():
            alone = Model(model.backbone, {name: task})
            own = Data(data.x, {name: data.y[name]}, {name: data.weight[name]})
            single = losses(alone, own)
            np.testing.assert_allclose(joint.terms[name], single.terms[name], rtol=1e-12)
            # A task's own parameters feel their own loss and nothing else.
            ours, theirs = flat(joint.slope.tasks[name]), flat(single.slope.tasks[name])
            np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)
            value += float(single.value)
            backbone_slope += flat(single.slope.backbone)
        assert float(joint.value) == pytest.approx(value, rel=1e-13)
        np.testing.assert_allclose(
            flat(joint.slope.backbone), backbone_slope, rtol=1e-9, atol=1e-11
        )


# Scale equivariance (prop:scale)


def with_targets_times(data: Data, c: float) -> Data:
    return replace(data, y={**data.y, "gaussian": c * data.y["gaussian"]})


@pytest.mark.parametrize(
    "beliefs",
    [{"gaussian": "none"}, {"gaussian": "full"}, DUO],
    ids=["none", "full", "diag-beside-an-event"],
)
@pytest.mark.parametrize("c", [0.125, 8.0])
def test_scale_map(beliefs: dict[str, str], c: float) -> None:
    """The objective rises by exactly (N + H) log c, and the backbone feels nothing."""
    # A point estimate has no prior term, hence no share of H.
    features = 0 if beliefs["gaussian"] == "none" else H
    with jax.enable_x64(True):
        model, data = small_model(beliefs, floor=0.0), small_data(beliefs)
        before = losses(model, data)
        after = losses(rescale_task(model, "gaussian", c), with_targets_times(data, c))
        rise = float(after.value) - float(before.value)
        assert rise == pytest.approx((N + features) * np.log(c), rel=1e-12)
        for name in beliefs:
            each = np.asarray(after.terms[name]) - np.asarray(before.terms[name])
            want = np.log(c) if name == "gaussian" else 0.0
            np.testing.assert_allclose(each, want, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(
            flat(after.slope.backbone), flat(before.slope.backbone), rtol=1e-9, atol=1e-11
        )


@pytest.mark.parametrize("belief", ["diag", "full"])
def test_scale_map_with_a_floor(belief: str) -> None:
    """Exact with the floor scaled along; a floor left as it is lies outside the ideal family."""
    c, beliefs = 8.0, {"gaussian": belief}
    with jax.enable_x64(True):
        model, data = small_model(beliefs, floor=0.2), small_data(beliefs)
        before, scaled = float(losses(model, data).value), with_targets_times(data, c)
        rises = [
            float(losses(rescale_task(model, "gaussian", c, scale_floor=s), scaled).value) - before
            for s in (True, False)
        ]
        assert rises[0] == pytest.approx((N + H) * np.log(c), rel=1e-12)
        assert abs(rises[1] - (N + H) * np.log(c)) > 0.1


def test_scale_map_counts_weights_not_rows() -> None:
    c = 3.0
    with jax.enable_x64(True):
        model, data = small_model(DUO), small_data(DUO)
        weight = np.ones(N)
        weight[:10], weight[12] = 0.0, 2.5
        data = replace(data, weight={**data.weight, "gaussian": jnp.asarray(weight)})
        after = losses(rescale_task(model, "gaussian", c), with_targets_times(data, c))
        rise = float(after.value) - float(losses(model, data).value)
        assert rise == pytest.approx((weight.sum() + H) * np.log(c), rel=1e-12)


def test_a_weighted_sum_of_raw_losses_has_no_scale_map() -> None:
    """Its squared error grows by c^2: only new weights, not new parameters, bring it back."""
    c = 8.0

    @eqx.filter_jit
    def slope(model: Model, data: Data, event_weight: jax.Array) -> jax.Array:
        def weighted(model: Model) -> jax.Array:
            mean, _ = model.project(data.x)["gaussian"]
            squared = jnp.mean((data.y["gaussian"] - mean) ** 2)
            return squared + event_weight * jnp.mean(data_terms(model, data)["event"])

        grads = eqx.filter_grad(weighted)(model).backbone
        return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(grads)])

    with jax.enable_x64(True):
        beliefs = {"gaussian": "none", "event": "none"}
        model, data = small_model(beliefs), small_data(beliefs)
        scaled = with_targets_times(data, c)
        mapped = rescale_task(model, "gaussian", c)
        before = np.asarray(slope(model, data, jnp.asarray(1.0)))
        after = np.asarray(slope(mapped, scaled, jnp.asarray(1.0)))
        cosine = before @ after / np.linalg.norm(before) / np.linalg.norm(after)
        assert cosine < 0.9  # another direction, whatever its length
        retuned = np.asarray(slope(mapped, scaled, jnp.asarray(c**2)))
        np.testing.assert_allclose(retuned, c**2 * before, rtol=1e-9, atol=1e-11)


# The two-bucket identity


@pytest.mark.parametrize("x64", [False, True])
def test_two_bucket_identity(x64: bool) -> None:
    """Ordinal(2) is Event bit for bit, and P(y = 1) = Phi((mean - tau) / D)."""
    tau = 0.7
    rng = np.random.default_rng(0)
    mean, var = rng.normal(size=8) * 8.0, rng.exponential(size=8) * 3.0
    y = (np.arange(8) % 2).astype(np.int32)
    with jax.enable_x64(x64):
        event = Event(tau)
        pair = eqx.tree_at(lambda h: h.first_cutpoint, Ordinal(2), jnp.asarray(tau, float))
        arguments = (jnp.asarray(y), jnp.asarray(mean), jnp.asarray(var))

        @eqx.filter_jit
        def scores(head: Event | Ordinal) -> tuple[jax.Array, jax.Array]:
            values = head.log_predictive(*arguments)
            slope = jax.grad(lambda m: head.log_predictive(arguments[0], m, arguments[2]).sum())(
                arguments[1]
            )
            return values, slope

        assert_same_bits(scores(event), scores(pair))
        scale = np.sqrt(PROBIT_SCALE**2 + var)
        sign = np.where(y == 1, 1.0, -1.0)
        want = log_ndtr(sign * (mean - tau) / scale)
        np.testing.assert_allclose(scores(event)[0], want, rtol=1e-12 if x64 else 2e-5)
        chance = event.law(mean, var).prob
        np.testing.assert_allclose(
            chance, np.exp(log_ndtr((mean - tau) / scale)), rtol=1e-10 if x64 else 1e-3
        )


# Implicit weights (cor:weights)


def test_implicit_weight() -> None:
    """The squared residual enters with the coefficient 1 / (2 V_n)."""
    with jax.enable_x64(True):
        model, data = small_model(), small_data()
        head = model.tasks["gaussian"].head
        assert isinstance(head, Gaussian)
        mean, var = eqx.filter_jit(Model.project)(model, data.x)["gaussian"]
        squared = (data.y["gaussian"] - mean) ** 2

        def loss(squared: jax.Array) -> jax.Array:
            return -jnp.sum(head.log_predictive(mean + jnp.sqrt(squared), mean, var))

        coefficient = np.asarray(jax.jit(jax.grad(loss))(squared))
        law = head.law(np.asarray(mean), np.asarray(var))
        np.testing.assert_allclose(coefficient, 1.0 / (2.0 * law.var), rtol=1e-10)
        np.testing.assert_allclose(coefficient, law.effective_weight, rtol=1e-10)
        np.testing.assert_allclose(law.var, 0.6**2 + np.asarray(var), rtol=1e-12)
        # At no variance it is the constant weight of a point estimate.
        still = np.asarray(head.law(np.asarray(mean), np.zeros(N)).effective_weight)
        np.testing.assert_allclose(still, 0.5 / 0.6**2, rtol=1e-12)


# Propriety (cor:mt_score). A population is a weighted set of windows: a Gaussian label with
# mean f and variance v becomes f - sqrt(v) and f + sqrt(v) at weight one half, which the
# Gaussian score cannot tell from the law; a class appears with its probability as its weight.


class Identity(eqx.Module):
    def __call__(self, x: jax.Array) -> jax.Array:
        return x


@eqx.filter_jit
def data_risk(model: Model, data: Data) -> tuple[jax.Array, Model]:
    def risk(model: Model) -> jax.Array:
        return sum((jnp.sum(t) for t in data_terms(model, data).values()), start=jnp.zeros(()))

    return eqx.filter_value_and_grad(risk)(model)


def test_score_optimality_of_the_gaussian_head() -> None:
    """The risk is stationary at the true law, equals its entropy there, and is larger elsewhere."""
    rng = np.random.default_rng(1)
    points = rng.normal(size=(30, 2))
    with jax.enable_x64(True):
        drawn = draw_belief("full", 2, floor=0.0, seed=5)
        mean = points @ drawn.mu
        true_var = 0.6**2 + np.einsum("ni,ij,nj->n", points, drawn.cov, points)
        y = np.concatenate([mean - np.sqrt(true_var), mean + np.sqrt(true_var)])
        x, half = np.concatenate([points, points]), np.full(60, 0.5)
        data = as_data(x, {"gaussian": y}, {"gaussian": half})
        task = Task(Gaussian(0.6), drawn.belief, jnp.asarray(0.0))
        truth = cast_floats(Model(Identity(), {"gaussian": task}))
        value, slope = data_risk(truth, data)
        entropy = 0.5 * np.log(2.0 * np.pi * math.e * true_var).sum()
        assert float(value) == pytest.approx(entropy, rel=1e-12)
        np.testing.assert_allclose(flat(slope), 0.0, atol=1e-10)
        for seed in range(20):
            push = np.random.default_rng(seed).normal(size=flat(truth).size) * 0.1
            assert float(data_risk(shifted(truth, push), data)[0]) > entropy + 1e-3


@pytest.mark.parametrize("name", ["event", "ordinal4"])
def test_score_optimality_of_the_probit_heads(name: str) -> None:
    rng = np.random.default_rng(2)
    points = rng.normal(size=(20, 2)) * 1.5
    classes = HEADS[name].classes
    assert classes is not None
    with jax.enable_x64(True):
        drawn = draw_belief("full", 2, floor=0.0, seed=6)
        task = Task(HEADS[name].make(), drawn.belief, jnp.asarray(0.0))
        truth = cast_floats(Model(Identity(), {name: task}))
        var = np.einsum("ni,ij,nj->n", points, drawn.cov, points)
        edges = np.array([-np.inf, *CUTS[name], np.inf])
        z = (edges - (points @ drawn.mu)[:, None]) / np.sqrt(PROBIT_SCALE**2 + var)[:, None]
        probs = np.diff(np.exp(log_ndtr(z)), axis=1)
        y = np.tile(np.arange(classes, dtype=np.int32), (20, 1)).ravel()
        data = as_data(np.repeat(points, classes, axis=0), {name: y}, {name: probs.ravel()})
        value, slope = data_risk(truth, data)
        entropy = -(probs * np.log(probs)).sum()
        assert float(value) == pytest.approx(entropy, rel=1e-10)
        np.testing.assert_allclose(flat(slope), 0.0, atol=1e-9)
        for seed in range(20):
            push = np.random.default_rng(seed).normal(size=flat(truth).size) * 0.3
            assert float(data_risk(shifted(truth, push), data)[0]) > entropy


def shifted(model: Model, push: np.ndarray) -> Model:
    """The model with `push` added to its parameters, in the order of `flat`."""
    params, rest = eqx.partition(model, eqx.is_inexact_array)
    vector, unravel = jax.flatten_util.ravel_pytree(params)
    return eqx.combine(unravel(vector + jnp.asarray(push)), rest)


def test_score_optimality_of_the_variance_alone() -> None:
    """With a wrong mean the best variance is the mean squared residual, point by point."""
    true_var, bias = np.array([0.3, 1.0, 6.0]), np.array([0.0, 0.8, -1.5])
    with jax.enable_x64(True):
        head = Gaussian(0.05)
        extra = np.geomspace(1e-3, 40.0, 4001)
        y = np.sqrt(true_var)[:, None] * np.array([-1.0, 1.0])
        score = jax.jit(jax.vmap(head.log_predictive, in_axes=(None, None, 0)))
        for labels, off, v in zip(y, bias, true_var, strict=True):
            risk = -np.mean(
                [score(t, jnp.asarray(off), jnp.asarray(extra)) for t in labels], axis=0
            )
            best = 0.05**2 + extra[np.argmin(risk)]
            assert best == pytest.approx(v + off**2, rel=0.004)  # the spacing of the grid
            assert risk.min() == pytest.approx(
                0.5 * np.log(2 * np.pi * math.e * (v + off**2)), 1e-5
            )


# When weighting is inert (cor:inert)


class Direction(eqx.Module):
    """The one feature cos(angle) x_1 + sin(angle) x_2."""

    angle: jax.Array

    def __call__(self, x: jax.Array) -> jax.Array:
        return (jnp.cos(self.angle) * x[0] + jnp.sin(self.angle) * x[1])[None]


ANGLES = np.linspace(0.0, np.pi, 181)
WEIGHTS = [(1.0, 1.0), (0.01, 30.0), (30.0, 0.01), (3.0, 0.3)]


def best_angles(first: float, second: float) -> list[float]:
    """Where each weighting of two tasks is smallest, if they read off the given directions.

    Inputs are standard normal and the labels linear in them, so a 4 x 4 Gauss-Hermite grid is
    the population, and each task's own best parameters are a regression on the feature.
    """
    nodes, mass = np.polynomial.hermite_e.hermegauss(4)
    x = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), axis=-1).reshape(-1, 2)
    weight = np.outer(mass, mass).ravel() / mass.sum() ** 2
    truth = {
        "a": (2.0 * (x @ [np.cos(first), np.sin(first)]), 0.5),
        "b": (-0.7 * (x @ [np.cos(second), np.sin(second)]), 1.2),
    }
    y = {k: np.concatenate([f - s, f + s]) for k, (f, s) in truth.items()}
    double = np.concatenate([weight, weight]) / 2.0
    data = as_data(np.concatenate([x, x]), y, dict.fromkeys(y, double))
    table = weighted_risks(jnp.asarray(ANGLES), data)
    return [float(ANGLES[i]) for i in np.argmin(table, axis=0)]


@jax.jit
@partial(jax.vmap, in_axes=(0, None))
def weighted_risks(angle: jax.Array, data: Data) -> jax.Array:
    tasks = {}
    for name, y in data.y.items():
        weight, feature = data.weight[name], jax.vmap(Direction(angle))(data.x)[:, 0]
        slope = jnp.sum(weight * feature * y) / jnp.sum(weight * feature**2)
        spread = jnp.sum(weight * (y - slope * feature) ** 2)
        head = eqx.tree_at(lambda h: h.log_sigma_obs, Gaussian(), 0.5 * jnp.log(spread))
        tasks[name] = Task(head, Point(slope[None]), jnp.zeros(()))
    model = Model(Direction(angle), tasks)
    pairs = [dict(zip("ab", pair, strict=True)) for pair in WEIGHTS]
    return jnp.stack([composed(model, data, task_weight=pair) for pair in pairs])


def test_inert_weighting() -> None:
    with jax.enable_x64(True):
        common = ANGLES[50]
        assert best_angles(common, common) == [common] * len(WEIGHTS)
        # The condition matters: where the tasks want different features, weights decide.
        apart = best_angles(ANGLES[50], ANGLES[80])
        assert apart[1] == pytest.approx(ANGLES[80], abs=0.02)
        assert apart[2] == pytest.approx(ANGLES[50], abs=0.02)


# The point estimate


@pytest.mark.parametrize(
    ("family", "names"), [(Diag, ("gaussian", "event")), (Full, ("gaussian",))]
)
def test_point_belief_is_zero_variance_limit(family: type, names: tuple[str, ...]) -> None:
    """Data terms and their gradients approach those of the point estimate, linearly in var."""
    gaps = []
    with jax.enable_x64(True):
        point, data = small_model(dict.fromkeys(names, "none")), small_data(names)
        want = losses(point, data)
        for log_sd in (-4.0, -6.0, -np.inf):
            tasks = {}
            for name, task in point.tasks.items():
                spread = (jnp.full((H,), log_sd, float), jnp.zeros((H, H)))[
                    : 2 if family is Full else 1
                ]
                belief = family(task.belief.mu, *spread, cov_floor=0.0)
                tasks[name] = Task(task.head, belief, task.log_prior_precision)
            got = losses(Model(point.backbone, tasks), data)
            gaps.append(max(np.abs(got.terms[n] - want.terms[n]).max() for n in names))
        assert gaps[0] > 1e-4
        assert gaps[1] == pytest.approx(gaps[0] * np.exp(-4.0), rel=0.2)
        assert gaps[2] < 1e-14
        # The overlap does not move the backbone, so its gradient is that of the data terms.
        np.testing.assert_allclose(
            flat(got.slope.backbone), flat(want.slope.backbone), rtol=1e-10, atol=1e-12
        )
