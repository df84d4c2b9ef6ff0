"""The composed objective term by term, and rows that are missing, weighted or repeated."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from scipy import stats

from helpers import (
    DUO,
    HEADS,
    MIXED,
    D,
    H,
    N,
    as_data,
    assert_same_bits,
    flat,
    log_plate_predictive,
    losses,
    small_data,
    small_model,
)
from scrollmt.backbone import Dense
from scrollmt.beliefs import Diag
from scrollmt.heads import AbstractHead
from scrollmt.model import Model, PrecisionPrior, Task, rescale_task
from scrollmt.objective import (
    Data,
    backbone_penalty,
    composed,
    data_terms,
    prior_term,
    shared_cavity,
    validation_nll,
)

score = eqx.filter_jit(validation_nll)
prior = eqx.filter_jit(prior_term)


def rows_of(data: Data) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Data as plain arrays that a test may change."""
    plain = jax.tree.map(lambda a: np.array(a), data)
    return plain.x, dict(plain.y), dict(plain.weight)


@pytest.mark.slow
def test_the_objective_agrees_with_quadrature_and_scipy() -> None:
    """The whole formula from explicit matrices, integrals and SciPy's multivariate normal."""
    with jax.enable_x64(True):
        model, data = small_model(), small_data()
        got = losses(model, data)
        psi = np.asarray(eqx.filter_jit(Model.features)(model, data.x))
        want = 0.0
        for name, task in model.tasks.items():
            mu, cov = np.asarray(task.belief.mu), np.asarray(task.belief.cov())
            var = np.einsum("ni,ij,nj->n", psi, cov, psi)
            terms = -log_plate_predictive(HEADS[name], np.asarray(data.y[name]), psi @ mu, var)
            assert got.terms[name].shape == (N,)
            np.testing.assert_allclose(got.terms[name], terms, rtol=1e-9, atol=1e-10)
            wanted = 0.0
            if MIXED[name] != "none":
                total = cov + np.eye(H) / float(task.prior_precision)
                wanted = -stats.multivariate_normal.logpdf(mu, np.zeros(H), total)
            assert float(prior(task)) == pytest.approx(wanted, rel=1e-11)
            want += terms.sum() + wanted
        assert float(got.value) == pytest.approx(want, rel=1e-10)


def test_shared_cavity_is_one_task_and_task_weight_multiplies_it_whole() -> None:
    weight = {"gaussian": 0.1, "event": 3.0, "ordinal4": 0.0}

    @eqx.filter_jit
    def both(model: Model, data: Data) -> tuple[dict[str, jax.Array], jax.Array]:
        single = {name: shared_cavity(model, data, name) for name in MIXED}
        return single, composed(model, data, task_weight=weight)

    with jax.enable_x64(True):
        model, data = small_model(), small_data()
        single, weighted = both(model, data)
        terms = losses(model, data).terms
        for name, task in model.tasks.items():
            want = np.asarray(terms[name]).sum() + float(prior(task))
            assert float(single[name]) == pytest.approx(want, rel=1e-12)
        want = sum(weight[name] * float(single[name]) for name in MIXED)
        assert float(weighted) == pytest.approx(want, rel=1e-12)


# A prior of the prior precision


def held(task: Task, precision_prior: PrecisionPrior | None, log_alpha: float) -> Task:
    log_precision = jnp.asarray(log_alpha, float)
    return replace(task, precision_prior=precision_prior, log_prior_precision=log_precision)


@pytest.mark.parametrize("log_alpha", [-5.0, 0.7, 18.0])
def test_the_prior_of_a_precision_agrees_with_scipy(log_alpha: float) -> None:
    with jax.enable_x64(True):
        task = small_model().tasks["gaussian"]
        weak = PrecisionPrior(mean=-4.6, sd=2.5)
        got = float(prior(held(task, weak, log_alpha)))
        got -= float(prior(held(task, None, log_alpha)))
    assert got == pytest.approx(-stats.norm.logpdf(log_alpha, -4.6, 2.5), rel=1e-10)


def test_a_prior_leads_a_large_precision_back() -> None:
    """Without it the derivative by log alpha vanishes; with it, it is that of the prior alone."""

    @jax.jit
    @jax.grad
    def slope(log_alpha: jax.Array, task: Task) -> jax.Array:
        return prior_term(replace(task, log_prior_precision=log_alpha))

    with jax.enable_x64(True):
        task, far = small_model().tasks["gaussian"], jnp.asarray(25.0)
        assert abs(float(slope(far, task))) < 1e-8
        assert float(slope(far, held(task, PrecisionPrior(-5.0, 3.0), 0.0))) == pytest.approx(
            30.0 / 9.0, rel=1e-8
        )


def test_the_prior_of_a_precision_moves_with_the_units() -> None:
    """The scale map of prop:scale changes no value of the term."""
    with jax.enable_x64(True):
        model = small_model()
        task = held(model.tasks["gaussian"], PrecisionPrior(-1.0, 0.5), 0.3)
        model = Model(model.backbone, {**model.tasks, "gaussian": task})
        mapped = rescale_task(model, "gaussian", 8.0).tasks["gaussian"]
        for one in (task, mapped):
            assert one.precision_prior is not None
            found = float(one.precision_prior.energy(one.log_prior_precision))
            assert found == pytest.approx(-stats.norm.logpdf(0.3, -1.0, 0.5), rel=1e-12)


def test_minibatch_gradients_average_to_the_full_gradient() -> None:
    """Over the batches of one pass, with data terms scaled by N over the batch size."""
    batch = 8
    with jax.enable_x64(True):
        model, data = small_model(DUO), small_data(DUO)
        full = flat(losses(model, data).slope)

        @eqx.filter_jit
        def grad(model: Model, part: Data) -> Model:
            return eqx.filter_grad(composed)(model, part, data_scale=N / batch)

        order = np.random.default_rng(0).permutation(N).reshape(-1, batch)
        parts = [flat(grad(model, data.take(jnp.asarray(rows)))) for rows in order]
        np.testing.assert_allclose(np.mean(parts, axis=0), full, rtol=1e-10, atol=1e-11)
        assert np.abs(parts[0] - full).max() > 1.0  # a single batch is not the whole


# Missing labels and weights


def masked(data: Data, rows: dict[str, int], under: dict[str, Any]) -> Data:
    """One label of each task unobserved, with a value of choice beneath."""
    x, y, weight = rows_of(data)
    for name, row in rows.items():
        weight[name][row] = 0.0
        y[name][row] = under[name]
    return as_data(x, y, weight)


@pytest.mark.parametrize(("beliefs", "x64"), [(DUO, False), (MIXED, True)], ids=["f32", "f64"])
def test_what_lies_under_a_mask_changes_no_bit(beliefs: dict[str, str], x64: bool) -> None:
    rows = {name: 4 + i for i, name in enumerate(beliefs)}
    with jax.enable_x64(x64):
        model, data = small_model(beliefs), small_data(beliefs)
        one = losses(model, masked(data, rows, {"gaussian": 0.0, "event": 0, "ordinal4": 0}))
        for under in (
            {"gaussian": -3.7, "event": 1, "ordinal4": 3},
            {"gaussian": 1e8, "event": 1, "ordinal4": 1},
        ):
            assert_same_bits(losses(model, masked(data, rows, under)), one)
        for name, row in rows.items():
            assert float(one.terms[name][row]) == 0.0
        # Not because labels play no part.
        x, y, weight = rows_of(data)
        y["gaussian"][5] += 1.0
        assert float(losses(model, as_data(x, y, weight)).value) != float(one.value)


def test_a_masked_label_equals_a_dropped_row() -> None:
    with jax.enable_x64(True):
        model, data = small_model(DUO), small_data(DUO)
        hidden = masked(data, {"gaussian": 9, "event": 9}, {"gaussian": 1.0, "event": 1})
        got = losses(model, hidden)
        want = losses(model, data.take(jnp.asarray(np.delete(np.arange(N), 9))))
        for name in DUO:
            kept = np.delete(np.asarray(got.terms[name]), 9)
            np.testing.assert_allclose(kept, want.terms[name], rtol=1e-12)
        assert float(got.value) == pytest.approx(float(want.value), rel=1e-13)
        np.testing.assert_allclose(flat(got.slope), flat(want.slope), rtol=1e-10, atol=1e-12)


def test_a_row_of_weight_two_equals_that_row_twice() -> None:
    with jax.enable_x64(True):
        model, data = small_model(DUO), small_data(DUO).take(jnp.arange(N - 1))
        x, y, weight = rows_of(data)
        for name in DUO:
            weight[name][6] = 2.0
        got = losses(model, as_data(x, y, weight))
        want = losses(model, data.take(jnp.asarray([*range(N - 1), 6])))
        assert float(got.value) == pytest.approx(float(want.value), rel=1e-13)
        np.testing.assert_allclose(flat(got.slope), flat(want.slope), rtol=1e-10, atol=1e-12)


# Validation score and penalty


def test_validation_nll_is_the_mean_over_observed_windows_added_over_tasks() -> None:
    """A weight of three counts as three windows; a task without a label says nothing."""
    with jax.enable_x64(True):
        model, data = small_model(), small_data()
        terms = {name: np.asarray(t) for name, t in losses(model, data).terms.items()}
        x, y, weight = rows_of(data)
        weight["event"][:30] = 0.0
        weight["ordinal4"][5] = 3.0
        want = sum(np.average(terms[name], weights=weight[name]) for name in MIXED)
        assert float(score(model, as_data(x, y, weight))) == pytest.approx(want, rel=1e-12)
        weight["event"][:] = 0.0
        want = sum(np.average(terms[k], weights=weight[k]) for k in ("gaussian", "ordinal4"))
        assert float(score(model, as_data(x, y, weight))) == pytest.approx(want, rel=1e-12)


def test_the_penalty_is_half_the_squared_norm_of_the_weight_matrices() -> None:
    with jax.enable_x64(True):
        key = jax.random.PRNGKey(0)
        net = Dense(D, (4, 3), activation="tanh", bias=True, norm=False, key=key)
        value, slope = eqx.filter_value_and_grad(backbone_penalty)(
            Model(net, small_model(DUO).tasks)
        )
        want = 0.5 * sum((np.asarray(w) ** 2).sum() for w in net.weights)
        assert float(value) == pytest.approx(want, rel=1e-13)
        for got, w in zip(slope.backbone.weights, net.weights, strict=True):
            np.testing.assert_allclose(got, w, rtol=1e-13)
        assert not flat(slope.backbone.biases).any()
        assert not flat(slope.tasks).any()


def test_data_knows_its_length_and_takes_rows_of_everything() -> None:
    data = small_data()
    assert len(data) == N
    part = data.take(jnp.array([2, 2, 0]))
    assert len(part) == 3
    for whole, few in zip(jax.tree.leaves(data), jax.tree.leaves(part), strict=True):
        np.testing.assert_array_equal(few, np.asarray(whole)[[2, 2, 0]])


class _Lognormal(AbstractHead):
    """log y is a standard normal around the line: a label of zero scores -inf, with NaN slopes."""

    @property
    def missing_fill(self) -> float:
        return 1.0

    def log_predictive(self, y: Array, mean: Array, var: Array) -> Array:
        return -jnp.log(y) - 0.5 * (jnp.log(y) - mean) ** 2 / (1.0 + var)


def test_a_row_of_weight_zero_has_the_fill_of_its_head_wherever_it_comes_from() -> None:
    """Streams and shares of devices fill up rows with zeros, which no log-normal value is."""
    belief = Diag(jnp.ones(2), jnp.zeros(2), 0.0)
    task = Task(_Lognormal(), belief, jnp.zeros(()))
    model = Model(eqx.nn.Identity(), {"a": task})
    x, y = jnp.array([[0.1, 0.2], [0.0, 0.3]]), {"a": np.array([2.0, 0.0], np.float32)}
    data = Data(x, y, {"a": jnp.array([1.0, 0.0])})
    value, slope = eqx.filter_value_and_grad(lambda m: jnp.sum(data_terms(m, data)["a"]))(model)
    leaves = jax.tree.leaves(eqx.filter(slope, eqx.is_inexact_array))
    assert np.isfinite(value)
    assert all(np.isfinite(leaf).all() for leaf in leaves)
    assert data_terms(model, data)["a"][1] == 0.0
