"""A model is a backbone and named tasks that share nothing else."""

from dataclasses import replace
from functools import partial
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from helpers import (
    H,
    assert_same_bits,
    cast_floats,
    draw_belief,
    flat,
    small_data,
    small_model,
)
from scrollmt.backbone import Dense, paper_backbone
from scrollmt.beliefs import BELIEFS, NARROW, Choices, Diag, Full, LowRank, Point, Start
from scrollmt.fit import stack
from scrollmt.heads import AbstractHead, Categorical, Event, Gaussian, Ordinal
from scrollmt.model import Model, PrecisionPrior, Task, build, rescale_task, start_keys
from scrollmt.objective import Data, data_terms

HEADS: dict[str, AbstractHead] = {"state": Gaussian(), "event": Event(), "regime": Ordinal(4)}


project = eqx.filter_jit(Model.project)


def built(belief: Choices = "diag", heads: dict[str, AbstractHead] | None = None) -> Model:
    keys = jax.random.split(jax.random.PRNGKey(0))
    return build(
        paper_backbone("tanh+ln", 3, keys[0]),
        HEADS if heads is None else heads,
        features=50,
        belief=belief,
        key=keys[1],
        cov_floor=1e-4,
    )


@pytest.mark.parametrize(("belief", "family"), BELIEFS.items())
def test_build_gives_each_task_its_own_start(belief: str, family: type) -> None:
    model = built(belief)
    assert set(model.tasks) == set(HEADS)
    for name, task in model.tasks.items():
        assert type(task.belief) is family
        assert task.head is HEADS[name]
        assert float(task.prior_precision) == 1.0
        assert task.belief.mu.shape == (50,)
        assert getattr(task.belief, "cov_floor", 1e-4) == 1e-4
    starts = [np.asarray(task.belief.mu) for task in model.tasks.values()]
    assert not np.allclose(starts[0], starts[1])
    assert not np.allclose(starts[1], starts[2])


def test_build_does_not_depend_on_the_order_in_which_tasks_are_given() -> None:
    backwards = dict(reversed(HEADS.items()))
    assert_same_bits(built(), built(heads=backwards))


def test_a_softmax_head_needs_a_point_estimate() -> None:
    heads: dict[str, AbstractHead] = {"kind": Categorical(3)}
    assert built("none", heads).tasks["kind"].belief.mu.shape == (3, 50)
    with pytest.raises(ValueError, match=r"task 'kind': Categorical\(3\).*Ordinal\(R\).*'none'"):
        built("diag", heads)


def test_each_task_may_have_a_belief_of_its_own() -> None:
    heads: dict[str, AbstractHead] = {**HEADS, "kind": Categorical(3)}
    given: Choices = {"state": LowRank.of(rank=2), "event": "full", "regime": Diag, "kind": "none"}
    model = built(given, heads)
    kinds = {name: type(task.belief) for name, task in model.tasks.items()}
    assert kinds == {"state": LowRank, "event": Full, "regime": Diag, "kind": Point}
    x = jax.random.normal(jax.random.key(3), (5, 3))
    psi = model.features(x)
    for name, (mean, var) in project(model, x).items():
        want_mean, want_var = model.tasks[name].belief.project(psi)
        np.testing.assert_allclose(mean, want_mean, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(var, want_var, rtol=1e-4)


@pytest.mark.parametrize(
    ("beliefs", "products"),
    [
        (("diag", "none", "diag"), 1),
        (("full", "full", "diag"), 1),
        (("low-rank", "low-rank", "none"), 1),
        (("full", "low-rank", "diag"), 2),
    ],
)
def test_beliefs_of_one_shape_are_read_in_one_product(
    beliefs: tuple[str, ...], products: int
) -> None:
    model = built(dict(zip(HEADS, beliefs, strict=True)))
    made = str(jax.make_jaxpr(model.project)(jnp.ones((7, 3))))
    # One is that of the layer itself.
    assert made.count("custom_vjp_call") == 1 + products


def test_an_unknown_belief_is_refused_with_the_choices() -> None:
    with pytest.raises(ValueError, match=r"unknown belief 'laplace'.*'none', 'diag', 'full'"):
        built("laplace")


def test_project_gives_every_task_its_line_on_the_shared_features() -> None:
    with jax.enable_x64(True):
        model, data = small_model(), small_data()
        psi = np.asarray(eqx.filter_jit(Model.features)(model, data.x))
        assert psi.shape == (len(data), H)
        lines = project(model, data.x)
        assert set(lines) == set(model.tasks)
        for name, (mean, var) in lines.items():
            belief = model.tasks[name].belief
            np.testing.assert_allclose(mean, psi @ np.asarray(belief.mu), rtol=1e-12)
            want = np.einsum("ni,ij,nj->n", psi, np.asarray(belief.cov()), psi)
            np.testing.assert_allclose(var, want, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("inputs", "widths", "norm"), [(20, (18, 17), True), (20, (3,), False)])
def test_all_windows_at_once_equals_one_at_a_time(
    inputs: int, widths: tuple[int, ...], norm: bool
) -> None:
    """Values and gradients of `project`, for a batch of models, against the plain formula.

    However the work is arranged for training, it must be psi from one point at a time, and
    mu'psi and psi'Sigma psi from explicit matrices.
    """
    beliefs = ("full", "diag", "low-rank", "none", "full")

    def drawn(seed: int) -> Model:
        key = jax.random.PRNGKey(seed)
        net = Dense(inputs, widths, activation="tanh", bias=True, norm=norm, key=key)
        tasks = {
            f"task{i}": Task(
                Gaussian(), draw_belief(b, widths[-1], seed=10 * seed + i).belief, jnp.zeros(())
            )
            for i, b in enumerate(beliefs)
        }
        return cast_floats(Model(net, tasks))

    def plain(model: Model, x: jax.Array) -> dict[str, tuple[jax.Array, jax.Array]]:
        psi = jax.vmap(model.backbone)(x)
        return {
            name: (psi @ t.belief.mu, jnp.einsum("ni,ij,nj->n", psi, t.belief.cov(), psi))
            for name, t in model.tasks.items()
        }

    def total(path: Any, model: Model, x: jax.Array) -> tuple[jax.Array, Any]:
        lines = path(model, x)
        pull = jnp.cos(jnp.arange(float(x.shape[0])))
        loss = sum(
            (jnp.sum(pull * m) + jnp.sum((0.3 + pull) * jnp.log1p(v)) for m, v in lines.values()),
            start=jnp.zeros(()),
        )
        return loss, lines

    def both(model: Model, x: jax.Array) -> tuple[Any, Any]:
        paths: list[Any] = [Model.project, plain]
        runs = [jax.value_and_grad(partial(total, p), has_aux=True)(model, x) for p in paths]
        return runs[0], runs[1]

    with jax.enable_x64(True):
        models = stack([drawn(0), drawn(1)])
        x = jnp.asarray(np.random.default_rng(0).normal(size=(7, inputs)))
        fast, slow = jax.jit(jax.vmap(both, in_axes=(0, None)))(models, x)
        for got, want in zip(jax.tree.leaves(fast), jax.tree.leaves(slow), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-11)


# Several latent lines


class SumOfLines(AbstractHead):
    """A value that is the sum of three latent lines and noise of sd 0.5."""

    @property
    def rows(self) -> int:
        return 3

    @property
    def point_only(self) -> bool:
        return False

    def log_predictive(self, y: jax.Array, mean: jax.Array, var: jax.Array) -> jax.Array:
        sd = jnp.sqrt(0.25 + jnp.sum(var, axis=-1))
        return jax.scipy.stats.norm.logpdf(y, jnp.sum(mean, axis=-1), sd)


class OneLine(Diag):
    """A belief whose `init` makes one line whatever is asked for."""

    @classmethod
    def init(
        cls, size: int, key: jax.Array, *, rows: int, cov_floor: float, start: Start = NARROW
    ) -> Self:
        return super().init(size, key, rows=1, cov_floor=cov_floor, start=start)


@pytest.mark.slow
@pytest.mark.parametrize("belief", BELIEFS)
def test_a_head_of_three_lines_is_read_beside_others(belief: str) -> None:
    """Against dense matrices; the data term against one Gaussian of the summed lines."""
    heads: dict[str, AbstractHead] = {"sum": SumOfLines(), "state": Gaussian(), "event": Event()}
    given: Choices = {"sum": belief, "state": "full", "event": "diag"}
    with jax.enable_x64(True):
        model = built(given, heads)
        rng = np.random.default_rng(0)
        arrays, static = eqx.partition(model.tasks["sum"].belief, eqx.is_array)
        moved = jax.tree.map(lambda a: a + 0.1 * rng.normal(size=a.shape), arrays)
        task = replace(model.tasks["sum"], belief=eqx.combine(moved, static))
        model = Model(model.backbone, {**model.tasks, "sum": task})
        x, y = rng.normal(size=(7, 3)), rng.normal(size=7)
        psi = np.asarray(model.features(jnp.asarray(x)))
        lines = project(model, jnp.asarray(x))
        for name, (mean, var) in lines.items():
            held = model.tasks[name].belief
            mu, cov = np.asarray(held.mu), np.asarray(held.cov())
            want = np.einsum("ni,...ij,nj->n...", psi, cov, psi)
            np.testing.assert_allclose(mean, psi @ mu.T, rtol=1e-10, atol=1e-12)
            np.testing.assert_allclose(var, want, rtol=1e-10)
        assert lines["sum"][0].shape == lines["sum"][1].shape == (7, 3)
        data = Data(
            jnp.asarray(x),
            {"sum": jnp.asarray(y), "state": jnp.zeros(7), "event": jnp.zeros(7, int)},
            dict.fromkeys(heads, jnp.ones(7)),
        )
        terms = data_terms(model, data)["sum"]
        total = np.asarray(task.belief.mu).sum(axis=0), np.asarray(task.belief.cov()).sum(axis=0)
    sd = np.sqrt(0.25 + np.einsum("ni,ij,nj->n", psi, total[1], psi))
    np.testing.assert_allclose(terms, -stats.norm.logpdf(y, psi @ total[0], sd), rtol=1e-9)


def test_a_belief_of_the_wrong_number_of_lines_is_refused() -> None:
    message = (
        r"task 'sum': .* mean of shape \(3, 50\), and OneLine\.of\(\) made one of shape \(50,\)"
    )
    with pytest.raises(ValueError, match=message):
        built(OneLine, {"sum": SumOfLines()})


def test_the_start_says_prior_precision_and_how_firmly_it_is_held() -> None:
    heads: dict[str, AbstractHead] = {"state": Gaussian()}

    def task(**given: Any) -> Task:
        net = eqx.nn.Identity()
        key = jax.random.key(0)
        model = build(net, heads, features=3, belief="diag", key=key, cov_floor=0.0, **given)
        return model.tasks["state"]

    assert float(task().prior_precision) == 1.0
    assert task().precision_prior is None
    held = task(start=Start(prior_precision=0.01, precision_sd=2.0))
    assert float(held.prior_precision) == pytest.approx(0.01)
    assert held.precision_prior == PrecisionPrior(np.log(0.01), 2.0)
    assert float(task(prior_precision=3.0).prior_precision) == pytest.approx(3.0)


def test_any_equinox_module_serves_as_a_backbone() -> None:
    net = eqx.nn.MLP(3, 7, 16, 2, key=jax.random.PRNGKey(0))
    model = build(net, HEADS, features=7, belief="diag", key=jax.random.PRNGKey(1), cov_floor=0.0)
    x = jax.random.normal(jax.random.PRNGKey(2), (5, 3))
    np.testing.assert_allclose(model.features(x), np.stack([net(r) for r in x]), rtol=1e-5)
    assert project(model, x)["regime"][0].shape == (5,)


def test_precision_follows_the_user() -> None:
    assert flat(built("full")).dtype == np.float32
    with jax.enable_x64(True):
        heads: dict[str, AbstractHead] = {"state": Gaussian(), "regime": Ordinal(4)}
        leaves = jax.tree.leaves(eqx.filter(built("full", heads), eqx.is_array))
        assert {leaf.dtype for leaf in leaves} == {np.dtype("float64")}
        mean, var = project(built("full", heads), jnp.ones((2, 3)))["state"]
        assert mean.dtype == var.dtype == jnp.float64


def test_rescale_task_maps_one_task_and_leaves_the_rest() -> None:
    c = 8.0
    with jax.enable_x64(True):
        model = small_model()
        mapped = rescale_task(model, "gaussian", c)
        old, new = model.tasks["gaussian"], mapped.tasks["gaussian"]
        assert isinstance(old.head, Gaussian)
        assert isinstance(new.head, Gaussian)
        np.testing.assert_allclose(new.belief.mu, c * old.belief.mu, rtol=1e-14)
        np.testing.assert_allclose(new.belief.cov(), c**2 * old.belief.cov(), rtol=1e-13)
        np.testing.assert_allclose(new.head.sigma_obs, c * old.head.sigma_obs, rtol=1e-13)
        np.testing.assert_allclose(new.prior_precision, old.prior_precision / c**2, rtol=1e-13)
        assert_same_bits(mapped.backbone, model.backbone)
        assert list(mapped.tasks) == list(model.tasks)
        for name in ("event", "ordinal4"):
            assert_same_bits(mapped.tasks[name], model.tasks[name])


def test_rescaling_back_returns_the_model() -> None:
    with jax.enable_x64(True):
        model = small_model(floor=0.02)
        there = rescale_task(model, "gaussian", 5.0, scale_floor=True)
        back = rescale_task(there, "gaussian", 0.2, scale_floor=True)
        np.testing.assert_allclose(flat(back), flat(model), rtol=1e-12, atol=1e-14)


def test_rescale_task_refuses_what_has_no_units() -> None:
    model = small_model()
    with pytest.raises(ValueError, match=r"unknown task 'state'.*'event', 'gaussian', 'ordinal4'"):
        rescale_task(model, "state", 2.0)
    with pytest.raises(ValueError, match=r"task 'event' is Event\(\): only a Gaussian"):
        rescale_task(model, "event", 2.0)
    for bad in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="factor must be > 0"):
            rescale_task(model, "gaussian", bad)


def test_starting_keys_go_by_seed_label_and_start() -> None:
    """The schedule that published runs started from: it must not change."""

    def bits(seed: int, label: str, starts: int) -> np.ndarray:
        keys = start_keys(jax.random.key(seed), label, starts)
        return np.stack([jax.random.key_data(one) for one in keys])

    first = bits(0, "tanh", 3)
    assert first.shape[:2] == (3, 3)
    everything = np.concatenate([first, bits(1, "tanh", 3), bits(0, "relu", 3)])
    assert len(np.unique(everything.reshape(-1, 2), axis=0)) == 27
    tagged = jax.random.fold_in(jax.random.key(0), 874243715)
    by_hand = jax.random.split(jax.random.split(tagged, 3)[1], 3)
    np.testing.assert_array_equal(first[1], jax.random.key_data(by_hand))
