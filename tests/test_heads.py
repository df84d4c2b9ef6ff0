"""Every head of the registry under every belief: closed forms against quadrature."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from jax.flatten_util import ravel_pytree
from jaxtyping import Array
from scipy.optimize import minimize
from scipy.special import logsumexp, ndtri

from helpers import (
    CUTS,
    HEADS,
    PAIRS,
    H,
    HeadCase,
    cast_floats,
    central_gradient,
    draw_belief,
    flat,
    log_plate_predictive,
)
from scrollmt.heads import (
    PROBIT_BASE_SCALE,
    AbstractHead,
    AbstractProbit,
    Categorical,
    Censored,
    Count,
    Event,
    Gaussian,
    Mixture,
    Ordinal,
    Poisson,
    SinhArcsinh,
    StudentT,
)

DISCRETE = [name for name, case in HEADS.items() if case.classes is not None]
PROBIT = [name for name in DISCRETE if not HEADS[name].point_only]
UNIT = [name for name, case in HEADS.items() if case.lines == 1]


@eqx.filter_jit
def values_and_slopes(head: AbstractHead, y: Any, mean: Any, var: Any, share: Any) -> Any:
    """Log scores, and the gradient of their weighted sum by head, mean and variance."""

    def total(arguments: Any) -> tuple[jax.Array, jax.Array]:
        model, m, v = arguments
        values = model.log_predictive(y, m, v)
        return jnp.sum(share * values), values

    (_, values), slopes = eqx.filter_value_and_grad(total, has_aux=True)((head, mean, var))
    return values, slopes


def evaluate(
    case: HeadCase,
    y: np.ndarray,
    mean: Any,
    var: Any,
    *,
    head: AbstractHead | None = None,
    share: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Closed form and slopes in the precision that JAX is set to."""
    real = jnp.result_type(float)
    labels = jnp.asarray(y, real if case.classes is None else jnp.int32)
    weights = np.ones(len(y)) if share is None else share
    values, slopes = values_and_slopes(
        cast_floats(case.make() if head is None else head),
        labels,
        *(jnp.asarray(np.asarray(a), real) for a in (mean, var, weights)),
    )
    assert values.dtype == real
    assert values.shape == y.shape[:1]
    return np.asarray(values), flat(slopes)


def projected(head: str, belief: str, seed: int = 0) -> tuple[Any, np.ndarray, np.ndarray]:
    """A belief's own (mean, var) at random features, and both again from explicit matrices."""
    case = HEADS[head]
    drawn = draw_belief(belief, H, seed=seed, rows=case.lines)
    psi = np.random.default_rng(seed + 1).normal(size=(len(case.labels), H))
    mean = psi @ drawn.mu.T
    var = np.einsum("ni,...ij,nj->n...", psi, drawn.cov, psi)
    return drawn.belief.project(jnp.asarray(psi)), mean, var


@pytest.mark.parametrize(("head", "belief"), PAIRS)
def test_log_predictive_agrees_with_quadrature(head: str, belief: str) -> None:
    case = HEADS[head]
    with jax.enable_x64(True):
        (mean, var), explicit_mean, explicit_var = projected(head, belief)
        got, _ = evaluate(case, case.labels, mean, var)
    want = log_plate_predictive(case, case.labels, explicit_mean, explicit_var)
    np.testing.assert_allclose(got, want, rtol=case.tolerance, atol=case.tolerance)


@pytest.mark.parametrize("head", UNIT)
def test_log_predictive_is_the_integral_over_the_weights(head: str) -> None:
    """In two weights, by a product Gauss-Hermite rule: no latent line is assumed."""
    case = HEADS[head]
    with jax.enable_x64(True):
        drawn = draw_belief("full", 2, seed=9)
        psi = np.random.default_rng(3).normal(size=(len(case.labels), 2)) * 0.7
        mean, var = drawn.belief.project(jnp.asarray(psi))
        y = case.near()
        got, _ = evaluate(case, y, mean, var)
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    z = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), axis=-1).reshape(-1, 2)
    log_weight = np.log(np.outer(weights, weights).ravel() / weights.sum() ** 2)
    w = drawn.mu + z @ np.linalg.cholesky(drawn.cov).T
    terms = case.log_likelihood(y[:, None], psi @ w.T)
    # These nodes are centred on the belief, not on the label, hence no better for the newer heads.
    tolerance = 1e-8 if case.tolerance == 1e-9 else 1e-4
    want = logsumexp(terms + log_weight, axis=1)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("head", HEADS)
def test_the_predictive_is_normalised(head: str) -> None:
    case = HEADS[head]
    rng = np.random.default_rng(2)
    mean = 4.0 * case.mean(rng)
    var = rng.exponential(size=mean.shape) * (0.0 if case.point_only else 9.0)
    if not case.closed_form:
        mean, var = mean[:2], 0.05 * var[:2]  # a rate of e^20 has more counts than can be added up
    y, log_measure = case.everything()
    with jax.enable_x64(True):
        for m, v in zip(mean, var, strict=True):
            lines = (np.broadcast_to(a, (len(y), *np.shape(a))) for a in (m, v))
            log_mass, _ = evaluate(case, y, *lines)
            assert logsumexp(log_mass + log_measure) == pytest.approx(0.0, abs=case.tolerance)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("spread", [0.0, 1.7])
def test_gradients_agree_with_differences(head: str, spread: float) -> None:
    """By the head's own parameters, the mean and the variance.

    Around zero variance the differences step to tiny negative ones, where the closed form is
    smooth, since it adds the likelihood's own variance first. A head without one has no values
    there: its slope at zero is half of l'' + l'^2, by the heat equation.
    """
    case = HEADS[head]
    rng = np.random.default_rng(4)
    mean = case.mean(rng)
    y = case.near()
    share = rng.uniform(0.5, 1.5, size=len(y))
    var = spread * rng.uniform(0.5, 1.5, size=mean.shape)
    with jax.enable_x64(True):
        arrays, rest = eqx.partition(cast_floats(case.make()), eqx.is_inexact_array)
        start, unravel = ravel_pytree((arrays, jnp.asarray(mean), jnp.asarray(var)))

        def total(vector: np.ndarray) -> float:
            params, m, v = unravel(jnp.asarray(vector))
            moved = eqx.combine(params, rest)
            return float(share @ evaluate(case, y, m, v, head=moved)[0])

        _, got = evaluate(case, y, mean, var, share=share)
        if case.closed_form or spread > 0.0:
            want = central_gradient(total, np.asarray(start))
        else:
            free = np.asarray(start)[: -len(y)]
            inner = central_gradient(lambda v: total(np.append(v, var)), free)
            want = np.append(inner, share * _heat(case, y, mean))
        rtol = max(1e-7, 10.0 * case.tolerance)
        np.testing.assert_allclose(got, want, rtol=rtol, atol=0.1 * rtol)
        if not case.point_only:
            assert np.abs(got[-len(y) :]).min() > 0.0


def _heat(case: HeadCase, y: np.ndarray, a: np.ndarray, step: float = 1e-3) -> np.ndarray:
    """(l'' + l'^2) / 2 of the log likelihood at `a`, by differences of the fourth order."""
    at = [case.log_likelihood(y, a + k * step) for k in (-2, -1, 0, 1, 2)]
    first = (8.0 * (at[3] - at[1]) - (at[4] - at[0])) / (12.0 * step)
    second = (16.0 * (at[3] + at[1]) - (at[4] + at[0]) - 30.0 * at[2]) / (12.0 * step**2)
    return 0.5 * (second + first**2)


@pytest.mark.parametrize(("x64", "rtol"), [(True, 1e-12), (False, 2e-5)])
@pytest.mark.parametrize("head", HEADS)
def test_the_law_agrees_with_log_predictive(head: str, x64: bool, rtol: float) -> None:
    case = HEADS[head]
    rng = np.random.default_rng(5)
    mean = case.mean(rng)
    var = rng.exponential(size=mean.shape) * (0.0 if case.point_only else 2.0)
    with jax.enable_x64(x64):
        law = case.make().law(mean, var)
        assert type(law) is case.law
        assert len(law) == len(case.labels)
        want, _ = evaluate(case, case.labels, mean, var)
    rtol = rtol if rtol > 1e-9 or case.tolerance == 1e-9 else case.tolerance
    np.testing.assert_allclose(law.log_prob(case.labels), want, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("head", HEADS)
def test_float32_agrees_with_float64(head: str) -> None:
    """Values and gradients, out to latent means of about 20."""
    case = HEADS[head]
    rng = np.random.default_rng(6)
    mean = (6.0 * case.mean(rng)).astype(np.float32)
    var = (rng.exponential(size=mean.shape) * (0.0 if case.point_only else 2.0)).astype(np.float32)
    single = evaluate(case, case.labels, mean, var)
    with jax.enable_x64(True):
        double = evaluate(case, case.labels, mean, var)
    for low, high in zip(single, double, strict=True):
        assert low.dtype == np.float32
        assert high.dtype == np.float64
        np.testing.assert_allclose(low, high, rtol=1e-4, atol=1e-6 * np.abs(high).max())


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("head", PROBIT)
def test_the_outer_buckets_reach_to_infinity(head: str, x64: bool) -> None:
    """Latent means a hundred scales away, where every inner mass underflows."""
    case = HEADS[head]
    assert case.classes is not None
    y = np.array([0, 0, 0, 0] + [case.classes - 1] * 4)
    mean = np.array([-120.0, -40.0, 40.0, 120.0] * 2)
    with jax.enable_x64(x64):
        got, slopes = evaluate(case, y, mean, np.zeros(8))
    want = case.log_likelihood(y, mean)
    tiny = 1e-300 if x64 else 1e-37
    np.testing.assert_allclose(got, want, rtol=1e-10 if x64 else 1e-5, atol=tiny)
    assert want.min() < -7000.0
    assert np.isfinite(slopes).all()


# Labels


@pytest.mark.filterwarnings("ignore:.*negative and count as missing")
@pytest.mark.parametrize("head", DISCRETE)
def test_missing_classes_are_masked_and_get_a_finite_score(head: str) -> None:
    case = HEADS[head]
    assert case.classes is not None
    y, seen = case.make().read_labels("regime", [0, None, 1, float("nan"), -1, case.classes - 1])
    np.testing.assert_array_equal(seen, [True, False, True, False, False, True])
    np.testing.assert_array_equal(y[seen], [0, 1, case.classes - 1])
    assert y.dtype.kind == "i"
    assert ((y >= 0) & (y < case.classes)).all()


def test_missing_values_are_masked_and_get_a_finite_score() -> None:
    y, seen = Gaussian().read_labels("state", pd.Series([1.5, np.nan, -2.0, None]))
    np.testing.assert_array_equal(seen, [True, False, True, False])
    np.testing.assert_array_equal(y[seen], [1.5, -2.0])
    assert np.isfinite(y).all()


@pytest.mark.parametrize("head", DISCRETE)
@pytest.mark.parametrize("bad", [7, 0.5, float("inf")])
def test_labels_out_of_range_name_the_task(head: str, bad: float) -> None:
    case = HEADS[head]
    assert case.classes is not None
    with pytest.raises(ValueError, match=rf"task 'regime'.*\[2\].*0 to {case.classes - 1}"):
        case.make().read_labels("regime", [0, 1, bad, 1])


def test_an_infinite_value_names_the_task_and_the_row() -> None:
    with pytest.raises(ValueError, match=r"task 'state': row 1 is infinite"):
        Gaussian().read_labels("state", [0.0, -np.inf, np.nan])


@pytest.mark.parametrize("head", HEADS)
def test_labels_that_are_no_numbers_name_the_task(head: str) -> None:
    with pytest.raises(ValueError, match=r"task 'state' must hold numbers"):
        HEADS[head].make().read_labels("state", ["wet", "dry"])


# Parameters


def test_gaussian_parameters() -> None:
    head = Gaussian(0.5)
    assert float(head.sigma_obs) == pytest.approx(0.5, rel=1e-6)
    assert float(Gaussian().sigma_obs) == 1.0
    np.testing.assert_allclose(head.predictive_var(jnp.array([0.0, 2.0])), [0.25, 2.25], rtol=1e-6)
    assert float(head.scaled(8.0).sigma_obs) == pytest.approx(4.0, rel=1e-6)
    for bad in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="standard deviation and must be > 0"):
            Gaussian(bad)


@pytest.mark.parametrize("head", PROBIT)
def test_cutpoints_are_the_ones_asked_for(head: str) -> None:
    model = HEADS[head].make()
    assert isinstance(model, AbstractProbit)
    np.testing.assert_allclose(model.cutpoints, CUTS[head], rtol=1e-6)
    assert model.classes == HEADS[head].classes
    assert model.rows == 1
    assert PROBIT_BASE_SCALE == 1.005
    scale = model.probit_scale(jnp.array([0.0, 3.0]))
    np.testing.assert_allclose(scale, [1.005, math.sqrt(1.005**2 + 3.0)], rtol=1e-6)


@pytest.mark.parametrize("classes", [2, 3, 4, 7])
def test_ordinal_starts_with_equal_shares_and_stays_increasing(classes: int) -> None:
    with jax.enable_x64(True):
        head = Ordinal(classes)
        np.testing.assert_allclose(
            head.cutpoints, ndtri(np.arange(1, classes) / classes), rtol=1e-12, atol=1e-15
        )
        # Whatever the optimiser does to the stored gaps, the order holds.
        wild = jnp.asarray(np.linspace(-8.0, 4.0, classes - 2))
        moved = eqx.tree_at(lambda h: h.log_gaps, head, wild)
        np.testing.assert_allclose(np.diff(moved.cutpoints), np.exp(wild), rtol=1e-9)


@pytest.mark.parametrize("family", [Ordinal, Categorical])
@pytest.mark.parametrize("bad", [1, 0, -3])
def test_a_head_needs_two_classes(family: type, bad: int) -> None:
    with pytest.raises(ValueError, match=f"{family.__name__} needs a whole number of at least 2"):
        family(bad)


def test_heads_print_as_users_write_them() -> None:
    heads = [Gaussian(0.3), Event(1.0), Ordinal(4), Categorical(3)]
    assert [repr(h) for h in heads] == ["Gaussian()", "Event()", "Ordinal(4)", "Categorical(3)"]


def test_rows_say_how_many_lines_a_head_reads() -> None:
    found = {
        name: (one.rows, one.point_only) for name, one in ((n, c.make()) for n, c in HEADS.items())
    }
    assert found == {name: (case.lines, case.point_only) for name, case in HEADS.items()}


# A constant forecast


@pytest.mark.slow
@pytest.mark.parametrize("name", HEADS)
def test_no_constant_latent_line_scores_better_than_the_best(name: str) -> None:
    """Against Nelder-Mead over every parameter of the head and the latent value, in float64."""
    case = HEADS[name]
    labels = np.repeat(case.near(), 3, axis=0)[: 3 * len(case.labels) - 1]
    weight = np.linspace(0.5, 2.0, len(labels))
    with jax.enable_x64(True):
        head = case.make()
        y, w = jnp.asarray(labels), jnp.asarray(weight)
        fitted, mean = head.constant(y, w)

        free, fixed = eqx.partition((fitted, mean), eqx.is_inexact_array)
        flat, shaped = ravel_pytree(free)

        @jax.jit
        def loss(flat: jax.Array) -> jax.Array:
            moved, at = eqx.combine(shaped(flat), fixed)
            line = jnp.broadcast_to(at, (len(w), *at.shape))
            terms = moved.log_predictive(y, line, jnp.zeros_like(line))
            return -jnp.sum(w * terms) / jnp.sum(w)

        found = float(loss(flat))
        other = minimize(loss, np.asarray(flat), method="Nelder-Mead", options={"maxiter": 300}).fun
    # Classes count half a label more each, which costs a little on so few labels.
    assert found <= other + (0.02 if case.classes else 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "head",
    [
        Gaussian(),
        Event(),
        *map(Ordinal, (2, 3, 4, 7)),
        Categorical(4),
        StudentT(),
        Mixture(4),
        SinhArcsinh(),
        Censored(lower=-1.0),
        Poisson(),
        Count(),
    ],
    ids=repr,
)
def test_compiled_gradients_of_a_batch_are_those_of_plain_arithmetic(head: AbstractHead) -> None:
    """As a fit takes them. XLA once compiled those of learned gaps wrongly, and nothing else."""
    rng, count = np.random.default_rng(0), 12
    shape = (count,) if head.rows == 1 else (count, head.rows)
    mean, var = jnp.asarray(rng.normal(size=shape)), jnp.asarray(rng.uniform(0.1, 1.0, shape))
    classes = head.num_classes
    whole = jnp.arange(count) % (5 if classes is None else classes)
    number = isinstance(head, Gaussian | StudentT | Mixture | SinhArcsinh | Censored)
    y = jnp.asarray(rng.normal(size=count)) if number else whole
    if head.takes_bounds:
        y = jnp.stack([y, y], axis=-1)

    def loss(given: tuple[AbstractHead, Array, Array]) -> Array:
        head, mean, var = given
        return jnp.sum(jnp.arange(1.0, count + 1) * head.log_predictive(y, mean, var))

    slopes = eqx.filter_grad(loss)
    runs = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), (head, mean, var))
    compiled = eqx.filter_jit(eqx.filter_vmap(slopes))(runs)
    with jax.disable_jit():
        plain = slopes((head, mean, var))
    for found, expected in zip(jax.tree.leaves(compiled), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-4)
