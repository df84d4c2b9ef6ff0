"""Rules that combine gradients: against TorchJD, against quadratic programs, and within `fit`."""

import functools
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.optimize import nnls

from helpers import DUO, as_data, assert_same_bits, flat, small_data, small_model
from scrollmt._fitting.step import NONFINITE, RUNNING, Program, advance, start
from scrollmt._fitting.vectors import template_of
from scrollmt.combining import (
    MGDA,
    AbstractRule,
    DynamicAverage,
    GradNorm,
    PCGrad,
    RandomWeighting,
    UncertaintyWeighting,
    UPGrad,
    log_ratio,
    nats,
)
from scrollmt.combining.surgery import MOST_TASKS, projected_in_order
from scrollmt.fit import Schedule, fit, stack
from scrollmt.objective import Data, backbone_penalty, task_losses

REFERENCE = json.loads((Path(__file__).parent / "torchjd_reference.json").read_text())
MATRICES = [name for name in REFERENCE if name != "torchjd"]
SURGERY: tuple[AbstractRule, ...] = (PCGrad(), UPGrad(), MGDA())
WEIGHTINGS = (GradNorm(), RandomWeighting(), UncertaintyWeighting(), DynamicAverage())
KEY = jax.random.key(0)


class Net(eqx.Module):
    """Three shared parameters, and one for each task."""

    backbone: jax.Array
    heads: dict[str, jax.Array]


def combined(rule: AbstractRule, rows: np.ndarray, key: Any = KEY) -> np.ndarray:
    """What a rule makes of gradients that have shared parameters alone."""
    names = [f"t{k}" for k in range(len(rows))]
    gradients = {name: Net(jnp.asarray(row), {}) for name, row in zip(names, rows, strict=True)}
    losses = {name: jnp.asarray(1.0 + k) for k, name in enumerate(names)}
    state = rule.init(tuple(names))
    found, _ = rule.update(gradients, losses, state, {}, key)
    return np.asarray(found.backbone)


def drawn(seed: int, dtype: Any = float) -> np.ndarray:
    """Gradients of one to five tasks, of lengths that differ by up to a thousand."""
    rng = np.random.default_rng(seed)
    tasks = 1 + seed % 5
    lengths = 10.0 ** rng.uniform(-1.5, 1.5, (tasks, 1))
    return np.asarray(lengths * rng.normal(size=(tasks, 6)) + 0.2, dtype)


def cone(rows: np.ndarray) -> np.ndarray:
    """Each row on the cone of what conflicts with no row, by non-negative least squares."""
    return sum(row + rows.T @ nnls(rows.T, -row)[0] for row in rows)


def shortest(rows: np.ndarray) -> np.ndarray:
    """The shortest convex combination; the level of the sum scales a solution, no more."""
    tall = np.vstack([rows.T, np.ones(len(rows))])
    weights, _ = nnls(tall, np.eye(len(tall))[-1])
    return rows.T @ (weights / weights.sum())


@pytest.mark.slow
@pytest.mark.parametrize("name", MATRICES)
def test_surgery_has_the_values_of_torchjd(name: str) -> None:
    """UPGrad there is a mean and MGDA a convex combination: here both have the scale of the sum."""
    found = REFERENCE[name]
    rows = np.array(found["rows"])
    with jax.enable_x64(True):
        upgrad, mgda = combined(UPGrad(), rows), combined(MGDA(), rows)
    np.testing.assert_allclose(upgrad, len(rows) * np.array(found["upgrad"]), atol=2e-9)
    # The reference iterates, so that it has fewer digits.
    np.testing.assert_allclose(mgda, len(rows) * np.array(found["mgda"]), atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("name", MATRICES)
def test_pcgrad_has_the_values_of_torchjd_in_some_order(name: str) -> None:
    """The order is drawn: each result of TorchJD has an order here, and each of ours is there.

    Of four tasks there are more orders than were recorded.
    """
    rows = np.array(REFERENCE[name]["rows"])
    theirs = np.array(REFERENCE[name]["pcgrad"])
    with jax.enable_x64(True):
        ours = np.stack([combined(PCGrad(), rows, jax.random.key(k)) for k in range(6)])
        every = itertools.product(itertools.permutations(range(len(rows))), repeat=len(rows))
        some = np.array([*itertools.islice(every, 0, None, 1 if len(rows) < 4 else 7)])
        gram = jnp.asarray(rows @ rows.T)
        weights = jax.vmap(functools.partial(projected_in_order, gram))(jnp.asarray(some))
        reached = np.asarray(weights) @ rows
    pairs = [(theirs, reached), (ours, theirs if len(rows) < 4 else reached)]
    for known, all_of in pairs:
        gaps = np.abs(known[:, None] - all_of).max(axis=-1).min(axis=1)
        np.testing.assert_allclose(gaps, 0.0, atol=1e-9)


def test_pcgrad_draws_an_order() -> None:
    rows = np.array(REFERENCE["three, all in conflict"]["rows"])
    found = {tuple(np.round(combined(PCGrad(), rows, jax.random.key(k)), 4)) for k in range(12)}
    assert len(found) > 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(15))
def test_upgrad_and_mgda_are_the_solutions_of_their_programs(seed: int) -> None:
    for dtype, atol in ((np.float64, 1e-9), (np.float32, 2e-5)):
        rows = drawn(seed, dtype)
        with jax.enable_x64(dtype is np.float64):
            upgrad, mgda = combined(UPGrad(), rows), combined(MGDA(), rows)
        size = np.abs(rows).max() * len(rows)
        wide = rows.astype(float)
        np.testing.assert_allclose(upgrad, cone(wide), atol=atol * size)
        np.testing.assert_allclose(mgda, len(rows) * shortest(wide), atol=atol * size)
        lengths = np.linalg.norm(wide, axis=1)
        for found in (upgrad, mgda):
            assert (wide @ found / lengths).min() >= -atol * size


@pytest.mark.parametrize("rule", SURGERY)
def test_surgery_leaves_equal_gradients_and_one_task_as_they_are(rule: AbstractRule) -> None:
    row = np.array([0.3, -2.0, 1e-3])
    np.testing.assert_allclose(combined(rule, np.stack([row] * 3)), 3 * row, rtol=1e-6)
    np.testing.assert_allclose(combined(rule, row[None]), row, rtol=1e-6)
    # Short gradients, whose squares are zero in single precision, and those that are zero.
    short = 1e-25 * np.array([[1.0, 2.0], [-2.0, 0.5]])
    np.testing.assert_allclose(
        combined(rule, short), 1e-25 * combined(rule, 1e25 * short), rtol=1e-5
    )
    np.testing.assert_array_equal(combined(rule, np.zeros((2, 3))), 0.0)


@pytest.mark.parametrize("rule", [PCGrad(), UPGrad()])
def test_a_gradient_of_zero_changes_nothing(rule: AbstractRule) -> None:
    rows = np.array([[1.0, 2.0, 3.0], [-4.0, 1.0, 0.0]])
    with_zero = np.vstack([rows, np.zeros(3)])
    np.testing.assert_allclose(combined(rule, with_zero), combined(rule, rows), rtol=1e-6)


def test_mgda_stops_where_a_task_has_reached_its_optimum() -> None:
    rows = np.array([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]])
    np.testing.assert_allclose(combined(MGDA(), rows), 0.0, atol=1e-6)


@pytest.mark.parametrize("rule", [UPGrad(), MGDA()])
def test_more_tasks_than_subsets_can_be_tried_are_refused(rule: AbstractRule) -> None:
    with pytest.raises(ValueError, match="at most 8 of them, got 9; use PCGrad"):
        combined(rule, np.ones((MOST_TASKS + 1, 2)))


# Loss weighting


def weights_over(
    rule: AbstractRule, path: np.ndarray, lengths: np.ndarray | None = None
) -> np.ndarray:
    """The weights of every step, for losses by step and task and gradients of given lengths."""
    count = path.shape[1]
    gram = jnp.diag(jnp.ones(count) if lengths is None else jnp.asarray(lengths) ** 2)
    state, found = rule.begin(count), []
    for step, losses in enumerate(path):
        weights, state = rule.weigh(gram, jnp.asarray(losses), state, jax.random.key(step))
        found.append(np.asarray(weights))
    return np.stack(found)


PATH = np.array([[4.0, 1.0, 2.0], [3.0, 0.9, 1.0], [2.5, 0.85, 0.9], [2.4, 0.5, 0.89]])


def test_random_weights_are_a_softmax_of_normals() -> None:
    with jax.enable_x64(True):
        found = weights_over(RandomWeighting(), np.ones((400, 3)))
    np.testing.assert_allclose(found.sum(axis=1), 3.0)
    z = np.log(found)
    z = z - z.mean(axis=1, keepdims=True)
    # Centred normals of three have the variance 2/3 each.
    np.testing.assert_allclose(z.mean(axis=0), 0.0, atol=0.15)
    np.testing.assert_allclose(z.var(axis=0), 2 / 3, rtol=0.2)
    assert len(np.unique(found.round(9), axis=0)) == 400


@pytest.mark.parametrize(("change", "path"), [(log_ratio, PATH), (nats, np.log(PATH))])
def test_dwa_weighs_by_the_last_two_losses(change: Callable[..., Any], path: np.ndarray) -> None:
    with jax.enable_x64(True):
        found = weights_over(DynamicAverage(change=change), path)
    np.testing.assert_array_equal(found[:2], 1.0)
    for step in (2, 3):
        powers = np.exp(PATH[step - 1] / PATH[step - 2] / 2.0)
        np.testing.assert_allclose(found[step], 3 * powers / powers.sum(), rtol=1e-12)


@pytest.mark.parametrize(("change", "path"), [(log_ratio, PATH), (nats, np.log(PATH))])
def test_gradnorm_follows_its_formula(change: Callable[..., Any], path: np.ndarray) -> None:
    """Against NumPy, with the gradient by differences and Adam written out."""
    lengths = np.array([3.0, 0.2, 1.0])
    with jax.enable_x64(True):
        found = weights_over(GradNorm(change=change), path, lengths)

    def weights_of(logits: np.ndarray) -> np.ndarray:
        powers = np.exp(logits)
        return 3 * powers / powers.sum()

    logits, first, second = np.zeros(3), np.zeros(3), np.zeros(3)
    for step, losses in enumerate(PATH):
        np.testing.assert_allclose(found[step], weights_of(logits), rtol=1e-6)
        ratio = losses / PATH[0]
        aim = np.mean(weights_of(logits) * lengths) * (ratio / ratio.mean()) ** 1.5

        def gap(at: np.ndarray, aim: np.ndarray = aim) -> float:
            return float(np.abs(weights_of(at) * lengths - aim).sum())

        slope = np.array([(gap(logits + d) - gap(logits - d)) / 2e-6 for d in 1e-6 * np.eye(3)])
        first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
        up = first / (1 - 0.9 ** (step + 1)) / (np.sqrt(second / (1 - 0.999 ** (step + 1))) + 1e-8)
        logits = logits - 0.025 * up


@pytest.mark.slow
def test_gradnorm_makes_lengths_equal_where_tasks_learn_alike() -> None:
    lengths = np.array([3.0, 0.2, 1.0])
    found = weights_over(GradNorm(rate=0.02), np.ones((800, 3)), lengths)
    np.testing.assert_allclose(found[-1] * lengths, np.mean(found[-1] * lengths), rtol=0.05)


def test_uncertainty_weights_reach_their_closed_optimum() -> None:
    losses = np.array([0.3, 2.0, 7.0])
    found = weights_over(UncertaintyWeighting(rate=0.05), np.tile(losses, (600, 1)))
    np.testing.assert_array_equal(found[0], 0.5)
    np.testing.assert_allclose(found[-1], 0.5 / losses, rtol=1e-3)


def test_a_loss_below_zero_has_no_ratio() -> None:
    assert np.isnan(weights_over(DynamicAverage(), np.array([[1.0, -1.0]] * 3))[-1]).any()
    assert np.isfinite(weights_over(DynamicAverage(change=nats), -PATH)).all()


# Within fit


def by_task(model: Any, data: Data, hyper: Any, data_scale: Any) -> dict[str, jax.Array]:
    losses = task_losses(model, data, data_scale=data_scale)
    return losses | {"penalty": 0.3 * backbone_penalty(model)}


def moved(rule: Any, steps: int = 1) -> tuple[Any, Any, Data]:
    model, data = small_model(DUO), small_data(DUO)
    fits = fit(
        stack([model]),
        data,
        data,
        objective=by_task,
        combine=rule,
        optimizer=optax.sgd(1e-3),
        hyper={"keep_at": jnp.asarray([steps])},
        schedule=Schedule(steps=steps),
        keys=jax.random.split(jax.random.key(0), 1),
    )
    return model, fits.model(0), data


def slopes_of(model: Any, data: Data) -> dict[str, Any]:
    names = [*DUO, "penalty"]
    return {n: eqx.filter_grad(lambda m, n=n: by_task(m, data, {}, 1.0)[n])(model) for n in names}


@pytest.mark.slow
def test_surgery_is_on_the_backbone_and_heads_have_their_own_gradients() -> None:
    with jax.enable_x64(True):
        model, found, data = moved(UPGrad(beside=("penalty",)))
        slopes = slopes_of(model, data)
        rows = np.stack([flat(slopes[name].backbone) for name in DUO])
        assert rows[0] @ rows[1] < 0.0
        shared = cone(rows) + flat(slopes["penalty"].backbone)
        own = sum(flat(slopes[name].tasks) for name in DUO)
        step = (flat(model.backbone) - flat(found.backbone)) / 1e-3
        np.testing.assert_allclose(step, shared, rtol=1e-6, atol=1e-9)
        step = (flat(model.tasks) - flat(found.tasks)) / 1e-3
        np.testing.assert_allclose(step, own, rtol=1e-6, atol=1e-9)


@pytest.mark.slow
def test_a_weight_counts_for_the_whole_loss_and_a_state_moves_from_step_to_step() -> None:
    """Two steps of uncertainty weighting on a model, against the rule asked by hand."""
    rule = UncertaintyWeighting(rate=0.1, beside=("penalty",))
    with jax.enable_x64(True):
        model, found, data = moved(rule, steps=2)
        state = rule.init((*DUO, "penalty"))
        for _ in range(2):
            slopes = slopes_of(model, data)
            losses = jnp.stack([by_task(model, data, {}, 1.0)[name] for name in sorted(DUO)])
            weights, state = rule.weigh(jnp.eye(2), losses, state, KEY)
            scale = dict(zip(sorted(DUO), weights, strict=True)) | {"penalty": 1.0}
            for name, slope in slopes.items():
                model = eqx.apply_updates(
                    model, jax.tree.map(lambda g, w=scale[name]: -1e-3 * w * g, slope)
                )
        assert np.ptp(np.asarray(weights)) > 0.0
        np.testing.assert_allclose(flat(found), flat(model), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("rule", [*SURGERY, *WEIGHTINGS])
def test_every_rule_trains_in_single_precision(rule: AbstractRule) -> None:
    model, found, _ = moved(rule, steps=3)
    assert np.isfinite(flat(found)).all()
    assert np.abs(flat(found) - flat(model)).max() > 0.0


class Climbing:
    """A rule of one's own: the gradient is the number of the step."""

    def init(self, names: tuple[str, ...]) -> Any:
        assert names == ("a", "b")
        return jnp.zeros(())

    def update(self, gradients: Any, losses: Any, state: Any, hyper: Any, key: Any) -> Any:
        state = state + 1.0
        return jax.tree.map(lambda leaf: 0.0 * leaf + state, gradients["a"]), state


def level(model: Any, data: Data, hyper: Any = None, data_scale: Any = 1.0) -> Any:
    """Losses that turn infinite below the run's own floor."""
    loss = jnp.where(model["x"] < hyper["floor"], jnp.inf, model["x"])
    return {"b": loss, "a": 0.0 * model["x"]}


def test_the_state_of_a_run_that_has_ended_stays() -> None:
    """Of two runs one is below its floor after two steps; each keeps the state that it has."""
    params = {"x": jnp.zeros(2)}
    data = as_data(np.zeros((1, 1)), {})
    program = Program(
        {"x": None},
        template_of(params),
        level,
        lambda model, data: model["x"],
        Schedule(steps=5),
        rounds=5,
        windows=1,
        streamed=False,
        optimizer=optax.sgd(1.0),
        combine=Climbing(),
        loss_names=("a", "b"),
    )
    hyper = {"floor": jnp.asarray([-2.5, -99.0])}
    keys = jax.random.split(KEY, 2)
    none = {"x": None}
    runs = start(program, params, none, data, hyper, keys)
    assert (np.asarray(runs.status) == RUNNING).all()
    runs, _ = advance(program, runs, none, data, data, hyper)
    assert runs.status[0] == NONFINITE
    np.testing.assert_array_equal(runs.rule, [2.0, 5.0])
    np.testing.assert_array_equal(runs.params[:, 0], [-3.0, -15.0])


def test_losses_by_task_without_a_rule_train_as_their_sum() -> None:
    data = small_data(DUO)
    args: dict[str, Any] = {
        "objective": lambda m, d, h, s: sum(task_losses(m, d).values()),
        "hyper": {"learning_rate": jnp.asarray([0.01])},
        "schedule": Schedule(steps=3),
        "keys": jax.random.split(KEY, 1),
    }
    plain = fit(stack([small_model(DUO)]), data, data, **args)
    args["objective"] = lambda m, d, h, s: task_losses(m, d)
    assert_same_bits(plain.models, fit(stack([small_model(DUO)]), data, data, **args).models)


def test_losses_beside_the_tasks_must_be_there() -> None:
    with pytest.raises(ValueError, match=r"names \['prior'\], and the objective returns"):
        moved(PCGrad(beside=("prior",)))
    with pytest.raises(ValueError, match="every loss of the objective is named in beside"):
        moved(PCGrad(beside=(*DUO, "penalty")))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: GradNorm(alpha=-1.0), "GradNorm: alpha must be a number >= 0"),
        (lambda: UncertaintyWeighting(rate=float("nan")), "UncertaintyWeighting: rate"),
        (lambda: DynamicAverage(temperature=0.0), "temperature must be > 0, got 0.0"),
    ],
)
def test_numbers_of_a_rule_are_checked(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make()
