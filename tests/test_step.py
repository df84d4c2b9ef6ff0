"""Optimisers of one's own against NumPy, and rules that combine the gradients of tasks."""

import inspect
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

from helpers import DUO, as_data, assert_same_bits, flat, small_data, small_model
from scrollmt.fit import Fits, Schedule, fit, stack
from scrollmt.objective import Data, composed, task_losses

STRETCH = np.array([1.0, 2.0])
AIM = np.array([0.5, 0.5])


class Bowl(eqx.Module):
    """Two parameters that are to reach the inputs of the only window, and one that is not used."""

    theta: jax.Array
    unused: jax.Array


def bowls(*starts: list[float]) -> Bowl:
    return stack([Bowl(jnp.asarray(s, float), jnp.ones((2, 2))) for s in starts])


def depth(model: Bowl, data: Data, hyper: Any = None, data_scale: Any = 1.0) -> jax.Array:
    return jnp.sum(jnp.arange(1.0, 3.0) * (model.theta - data.x[0]) ** 2)


def trained(
    optimizer: Any = None,
    starts: Any = ([1.0, -2.0],),
    rates: Any = (0.05,),
    steps: int = 12,
    **options: Any,
) -> Fits:
    data = as_data(AIM[None], {})
    given: dict[str, Any] = {
        "objective": depth,
        "score": depth,
        "hyper": {"learning_rate": jnp.asarray(rates, float)},
        "schedule": Schedule(steps=steps),
        "keys": jax.random.split(jax.random.key(0), len(rates)),
        **options,
    }
    return inspect.unwrap(fit)(bowls(*starts), data, data, optimizer=optimizer, **given)


def test_an_optimiser_made_from_a_schedule_gets_the_rate_of_every_run() -> None:
    """SGD with momentum, two runs with rates of their own, warm-up and decay, against NumPy."""
    starts, rates = [[1.0, -2.0], [0.3, 4.0]], [0.02, 0.05]
    schedule = Schedule(steps=10, warmup=4, final_rate=0.5)
    with jax.enable_x64(True):
        hyper = {"learning_rate": jnp.asarray(rates), "keep_at": jnp.asarray([10, 10])}
        optimizer = partial(optax.sgd, momentum=0.7)
        fits = trained(optimizer, starts, rates, schedule=schedule, hyper=hyper)
        shares = [float(schedule.rate(jnp.asarray(t))) for t in range(10)]
    for run in range(2):
        theta, velocity, losses = np.array(starts[run]), np.zeros(2), []
        for share in shares:
            losses.append((STRETCH * (theta - AIM) ** 2).sum())
            velocity = 0.7 * velocity + 2.0 * STRETCH * (theta - AIM)
            theta = theta - rates[run] * share * velocity
        np.testing.assert_allclose(fits.history["train_objective"][run], losses, rtol=1e-6)
        np.testing.assert_allclose(fits.models.theta[run], theta, rtol=1e-6)


def test_a_finished_optimiser_is_used_as_it_is() -> None:
    """Its rate is its own, whatever the run's and the schedule's; a run needs none then."""
    with jax.enable_x64(True):
        schedule = Schedule(steps=12, warmup=5, final_rate=0.0)
        fits = trained(optax.sgd(0.1), schedule=schedule, rates=(99.0,))
        without = trained(optax.sgd(0.1), schedule=schedule, hyper={})
    theta = AIM + (1.0 - 0.2 * STRETCH) ** 12 * (np.array([1.0, -2.0]) - AIM)
    np.testing.assert_allclose(fits.models.theta[0], theta, rtol=1e-9)
    assert_same_bits(fits.models, without.models)


def test_adam_by_optax_is_the_default() -> None:
    """The built-in Adam is not another algorithm than that of Optax."""
    with jax.enable_x64(True):
        built_in, own = trained(), trained(partial(optax.adam, b1=0.9, b2=0.999, eps=1e-8))
    np.testing.assert_allclose(own.models.theta, built_in.models.theta, rtol=1e-12)


def test_an_optimiser_sees_the_shapes_of_the_model() -> None:
    """One that moves some leaves by their names and treats matrices by their shapes."""
    seen: list[Any] = []

    def labels(params: Bowl) -> Bowl:
        seen.append([leaf.shape for leaf in jax.tree.leaves(params)])
        return Bowl("moves", "stays")  # type: ignore[arg-type]

    # Decayed weights would shrink every leaf that is not held.
    moving = optax.chain(optax.add_decayed_weights(0.5), optax.sgd(0.1))
    held = optax.partition({"moves": moving, "stays": optax.set_to_zero()}, labels)
    fits = trained(held)
    assert seen[0] == [(2,), (2, 2)]
    np.testing.assert_array_equal(fits.models.unused, 1.0)
    decayed = trained(moving)
    assert (np.asarray(decayed.models.unused) < 1.0).all()


@pytest.mark.slow
def test_an_optimiser_may_ask_for_the_loss_itself() -> None:
    """A line search needs the value at other parameters; on a bowl L-BFGS is there at once."""
    fits = trained(optax.lbfgs(), steps=6)
    assert fits.best_score[0] < 1e-8 < trained(optax.sgd(0.1), steps=6).best_score[0]


@pytest.mark.parametrize(
    ("optimizer", "schedule", "says"),
    [
        ("adam", Schedule(), "optimizer must be an optax.GradientTransformation.*got 'adam'"),
        (optax.sgd, Schedule(clip=1.0, b1=0.8), "Schedule: b1, clip belong to the built-in Adam"),
        (lambda rate: rate, Schedule(), "a function from a learning-rate schedule to one, and"),
    ],
)
def test_an_optimiser_that_is_none_is_refused(optimizer: Any, schedule: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        trained(optimizer, schedule=schedule)


# Losses by task


def by_coordinate(model: Bowl, data: Data, hyper: Any, data_scale: Any) -> dict[str, jax.Array]:
    gap = jnp.arange(1.0, 3.0) * (model.theta - data.x[0]) ** 2
    return {"second": gap[1], "first": gap[0]}


def test_losses_by_task_are_added_up() -> None:
    assert_same_bits(trained(objective=by_coordinate).models, trained().models)


def pcgrad(gradients: dict[str, Any], losses: dict[str, Any], hyper: Any, key: Any = None) -> Any:
    """Gradient surgery as a stranger would write it: conflicts between tasks are projected out."""
    rows = {name: ravel_pytree(one)[0] for name, one in gradients.items()}
    total = jnp.zeros(())
    for name, row in rows.items():
        for other, against in rows.items():
            if other != name:
                overlap = jnp.minimum(row @ against, 0.0)
                row = row - overlap / (against @ against) * against
        total = total + row
    _, back = ravel_pytree(next(iter(gradients.values())))
    return back(total)


PULLS = {"a": [1.0, 0.0], "b": [-2.0, 0.5], "c": [0.3, -1.0]}


def pulled(model: Bowl, data: Data, hyper: Any, data_scale: Any) -> dict[str, jax.Array]:
    """Three tasks that want to go to places of their own."""
    return {
        name: jnp.sum((model.theta - jnp.asarray(at, float)) ** 2) for name, at in PULLS.items()
    }


def test_a_rule_combines_the_gradients_of_the_tasks() -> None:
    """Five steps of PCGrad on three tasks, against NumPy."""
    with jax.enable_x64(True):
        last: dict[str, Any] = {"hyper": {"keep_at": jnp.asarray([5])}, "steps": 5}
        surgery = trained(optax.sgd(0.05), objective=pulled, combine=pcgrad, **last)
        plain = trained(optax.sgd(0.05), objective=pulled, **last)
    theta, losses, conflicts = np.array([1.0, -2.0]), [], 0
    for _ in range(5):
        slopes = [2.0 * (theta - np.array(at)) for at in PULLS.values()]
        losses.append(sum(((theta - np.array(at)) ** 2).sum() for at in PULLS.values()))
        total = np.zeros(2)
        for i, slope in enumerate(slopes):
            moved = slope.copy()
            for j, against in enumerate(slopes):
                if i != j and moved @ against < 0.0:
                    conflicts += 1
                    moved -= moved @ against / (against @ against) * against
            total += moved
        theta = theta - 0.05 * total
    assert conflicts > 0
    np.testing.assert_allclose(surgery.history["train_objective"][0], losses, rtol=1e-9)
    np.testing.assert_allclose(surgery.models.theta[0], theta, rtol=1e-9)
    assert np.abs(np.asarray(plain.models.theta[0]) - theta).max() > 1e-3


def on_backbone(rule: Any, gradients: dict[str, Any], *rest: Any) -> Any:
    """The rule on what the tasks share; all else belongs to one task and is added up."""
    added = jax.tree.map(lambda *a: sum(a), *gradients.values())
    shared = rule({name: one.backbone for name, one in gradients.items()}, *rest)
    return eqx.tree_at(lambda model: model.backbone, added, shared)


def losses_of(model: Any, data: Data, hyper: Any, data_scale: Any) -> dict[str, jax.Array]:
    return task_losses(model, data, data_scale=data_scale)


@pytest.mark.slow
def test_a_rule_may_treat_the_backbone_apart() -> None:
    """One step on a model of two tasks: surgery on shared leaves, sums on the others."""
    with jax.enable_x64(True):
        model, data = small_model(DUO), small_data(DUO)
        fits = fit(
            stack([model]),
            data,
            data,
            objective=losses_of,
            combine=partial(on_backbone, pcgrad),
            optimizer=optax.sgd(1e-3),
            hyper={"keep_at": jnp.asarray([1])},
            schedule=Schedule(steps=1),
            keys=jax.random.split(jax.random.key(0), 1),
        )
        slopes = [eqx.filter_grad(lambda m, n=name: task_losses(m, data)[n])(model) for name in DUO]
        parts = [(flat(one.backbone), flat(one.tasks)) for one in slopes]
        (a, _), (b, _) = parts
        assert a @ b < 0.0
        shared = a - a @ b / (b @ b) * b + b - a @ b / (a @ a) * a
        moved = fits.model(0)
        np.testing.assert_allclose(
            flat(moved.backbone), flat(model.backbone) - 1e-3 * shared, rtol=1e-9
        )
        np.testing.assert_allclose(
            flat(moved.tasks), flat(model.tasks) - 1e-3 * (parts[0][1] + parts[1][1]), rtol=1e-9
        )


def test_the_losses_of_the_tasks_add_up_to_the_composed_objective() -> None:
    with jax.enable_x64(True):
        model, data = small_model(DUO), small_data(DUO)
        apart = task_losses(model, data, data_scale=3.0)
        assert list(apart) == list(model.tasks)
        total = float(composed(model, data, data_scale=3.0))
    assert sum(map(float, apart.values())) == pytest.approx(total, rel=1e-12)


def noise(gradients: dict[str, Bowl], losses: Any, hyper: Any, key: Any) -> Bowl:
    (gradient,) = gradients.values()
    return eqx.tree_at(lambda g: g.theta, gradient, jax.random.normal(key, (2,)))


@pytest.mark.slow
def test_a_rule_gets_another_key_in_every_step_and_run() -> None:
    """The moves are nothing but noise: all differ, and none depends on the other runs."""

    def path(steps: int, runs: int, batch_size: int | None) -> np.ndarray:
        fits = trained(
            optax.sgd(1.0),
            [[0.0, 0.0]] * runs,
            [0.0] * runs,
            objective=lambda model, data, hyper, scale: {"one": depth(model, data)},
            combine=noise,
            hyper={"keep_at": jnp.full(runs, steps)},
            schedule=Schedule(steps=steps, batch_size=batch_size),
            keys=jax.random.split(jax.random.key(0), 3)[:runs],
        )
        return np.asarray(fits.models.theta)

    for batch_size in (None, 1):
        paths = np.stack([path(steps, 2, batch_size) for steps in (1, 2, 3)])
        moves = np.diff(paths, axis=0, prepend=0.0)
        assert len(np.unique(np.round(moves, 4))) == moves.size
        np.testing.assert_array_equal(path(2, 1, batch_size)[0], paths[1, 0])


def test_a_rule_without_tasks_or_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"one loss per task.*an array of shape \(\)"):
        trained(combine=pcgrad)
    with pytest.raises(ValueError, match="combine= returned with the structure"):
        trained(objective=pulled, combine=lambda gradients, *rest: gradients)
    with pytest.raises(ValueError, match=r"combine= returned of the shapes \[\(\), \(2, 2\)\]"):
        trained(
            objective=pulled,
            combine=lambda g, *rest: Bowl(jnp.zeros(()), g["a"].unused),
        )
