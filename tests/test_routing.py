"""Closed-form beliefs against explicit inverses, dense normals and differences in float64."""

from collections.abc import Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from helpers import (
    HEADS,
    D,
    H,
    N,
    as_data,
    assert_same_bits,
    draw_belief,
    flat,
    small_data,
    small_model,
)
from scrollmt._numerics.normal import inverse_root
from scrollmt.backbone import Dense
from scrollmt.couplings import Coupling
from scrollmt.fit import Schedule, fit, stack
from scrollmt.heads import Gaussian
from scrollmt.model import Model, Task
from scrollmt.objective import Data, composed, shared_cavity, validation_nll
from scrollmt.routing import (
    Bound,
    Fixed,
    bind,
    curvature,
    evidence_composed,
    laplace,
    log_evidence,
    posterior,
    trained_leaves,
)
from tiny_jobs import quick_compiler

ALPHA, SIGMA = 0.7, 0.45
PRECISIONS = (1e-3, 0.1, 1.0, 10.0, 300.0)
POINTS = {"gaussian": "none", "event": "none", "ordinal4": "none"}


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    with jax.enable_x64(True), quick_compiler():
        yield


def design(n: int = N, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features with very different lengths and a near-collinear pair, and labels."""
    rng = np.random.default_rng(seed)
    psi = rng.normal(size=(n, H)) * [3.0, 1.0, 1.0, 0.2, 0.0] + 0.3
    psi[:, 4] = psi[:, 1] + 0.05 * rng.normal(size=n)
    return psi, psi @ rng.normal(size=H) + SIGMA * rng.normal(size=n)


# Compiled as a whole, since operations one by one are compiled too.
jit = eqx.filter_jit
lines = jit(lambda model, x: model.project(x))


def as_jax(*arrays: np.ndarray | float) -> tuple[jax.Array, ...]:
    return tuple(jnp.asarray(a, float) for a in arrays)


def explicit(psi: np.ndarray, y: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the posterior by a general inverse."""
    precision = ALPHA * np.eye(psi.shape[1]) + psi.T @ np.diag(weight) @ psi / SIGMA**2
    cov = np.linalg.inv(precision)
    return cov @ psi.T @ (weight * y) / SIGMA**2, cov


# The root of an inverse


@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_inverse_root_is_a_lower_triangular_root_of_the_inverse(size: int) -> None:
    rng = np.random.default_rng(size)
    raw = rng.normal(size=(size, size + 2))
    matrix = raw @ raw.T + 0.1 * np.eye(size)
    root = np.asarray(jit(inverse_root)(jnp.asarray(matrix)))
    np.testing.assert_allclose(root.T @ root, np.linalg.inv(matrix), rtol=1e-11, atol=1e-12)
    np.testing.assert_array_equal(root, np.tril(root))
    log_det = -2.0 * np.sum(np.log(np.diagonal(root)))
    assert log_det == pytest.approx(np.linalg.slogdet(matrix)[1], rel=1e-12)


def test_inverse_root_has_the_derivative_of_a_cholesky_factor_that_is_inverted() -> None:
    rng = np.random.default_rng(0)
    raw, pull = rng.normal(size=(3, H, H)), jnp.asarray(rng.normal(size=(H, H)))
    matrices = jnp.asarray(raw @ raw.transpose(0, 2, 1) + 0.2 * np.eye(H))

    def slope(root_of):
        # Symmetric changes alone: what a factorisation does to others is nobody's business.
        loss = jax.grad(lambda a: jnp.sum(pull * root_of(0.5 * (a + a.T))))
        return jit(jax.vmap(loss))(matrices)

    expected = slope(lambda a: jnp.linalg.inv(jnp.linalg.cholesky(a)))
    np.testing.assert_allclose(slope(inverse_root), expected, rtol=1e-9, atol=1e-11)


# The binding map


def test_posterior_is_the_ridge_solution_with_the_inverse_precision() -> None:
    psi, y = design()
    belief = jit(posterior)(*as_jax(psi, y, np.ones(N), ALPHA, SIGMA))
    mean, cov = explicit(psi, y, np.ones(N))
    np.testing.assert_allclose(belief.cov(), cov, rtol=1e-9)
    # Ridge regression as least squares on the design with the penalty's rows below it.
    rows = np.concatenate([psi, np.sqrt(ALPHA) * SIGMA * np.eye(H)])
    ridge = np.linalg.lstsq(rows, np.concatenate([y, np.zeros(H)]), rcond=None)[0]
    np.testing.assert_allclose(belief.mu, ridge, rtol=1e-9)
    np.testing.assert_allclose(belief.mu, mean, rtol=1e-9)


def test_posterior_covariance_sees_the_labels_nowhere() -> None:
    psi, y = design()
    beliefs = [
        jit(posterior)(*as_jax(psi, labels, np.ones(N), ALPHA, SIGMA))
        for labels in (y, np.random.default_rng(1).permutation(y))
    ]
    np.testing.assert_array_equal(beliefs[0].cov(), beliefs[1].cov())
    assert np.abs(beliefs[0].mu - beliefs[1].mu).max() > 0.1


def test_evidence_is_the_dense_normal_of_all_labels() -> None:
    psi, y = design()
    found = jit(log_evidence)(*as_jax(psi, y, np.ones(N), ALPHA, SIGMA))
    cov = SIGMA**2 * np.eye(N) + psi @ psi.T / ALPHA
    assert float(found) == pytest.approx(multivariate_normal(np.zeros(N), cov).logpdf(y), rel=1e-11)


def test_gradients_are_those_of_the_dense_forms() -> None:
    psi, y = design(n=12)
    ones, at = jnp.ones(12), as_jax(psi, y, ALPHA, SIGMA)
    probe = jnp.asarray(np.random.default_rng(2).normal(size=H))

    def ours(psi, y, alpha, sigma):
        belief = posterior(psi, y, ones, alpha, sigma)
        mean, var = belief.project(probe)
        return log_evidence(psi, y, ones, alpha, sigma) + mean * jnp.log(var)

    def dense(psi, y, alpha, sigma):
        cov = sigma**2 * jnp.eye(12) + psi @ psi.T / alpha
        fit = y @ jnp.linalg.solve(cov, y)
        log_p = -0.5 * (fit + jnp.linalg.slogdet(cov)[1] + 12 * jnp.log(2 * jnp.pi))
        inverse = jnp.linalg.inv(alpha * jnp.eye(H) + psi.T @ psi / sigma**2)
        mean = probe @ inverse @ psi.T @ y / sigma**2
        return log_p + mean * jnp.log(probe @ inverse @ probe)

    found, slope = jit(jax.value_and_grad(ours, range(4)))(*at)
    expected, dense_slope = jit(jax.value_and_grad(dense, range(4)))(*at)
    assert float(found) == pytest.approx(float(expected), rel=1e-11)
    for mine, its in zip(slope, dense_slope, strict=True):
        np.testing.assert_allclose(mine, its, rtol=1e-7, atol=1e-9)


def test_a_row_of_weight_zero_is_absent_and_one_of_weight_two_is_there_twice() -> None:
    psi, y = design()
    weight = np.random.default_rng(3).integers(0, 3, size=N).astype(float)
    assert {0.0, 1.0, 2.0} <= set(weight)
    twice = np.repeat(np.arange(N), weight.astype(int))
    # The label of a missing row is a placeholder and must not matter.
    given = as_jax(psi, np.where(weight > 0, y, 1e3), weight, ALPHA, SIGMA)
    plain = as_jax(psi[twice], y[twice], np.ones(len(twice)), ALPHA, SIGMA)
    found, expected = jit(posterior)(*given), jit(posterior)(*plain)
    np.testing.assert_allclose(found.cov(), expected.cov(), rtol=1e-9)
    np.testing.assert_allclose(found.mu, expected.mu, rtol=1e-9)
    assert float(jit(log_evidence)(*given)) == pytest.approx(
        float(jit(log_evidence)(*plain)), rel=1e-11
    )


@pytest.mark.slow
def test_a_computed_belief_projects_and_overlaps_as_its_covariance_says() -> None:
    drawn = draw_belief("full", H, floor=0.0)
    belief = Fixed(jnp.asarray(drawn.mu), jnp.asarray(np.linalg.cholesky(drawn.cov).T))
    psi = design()[0]
    mean, var = belief.project(jnp.asarray(psi))
    np.testing.assert_allclose(mean, psi @ drawn.mu, rtol=1e-11)
    np.testing.assert_allclose(var, np.einsum("nh,hg,ng->n", psi, drawn.cov, psi), rtol=1e-11)
    prior = multivariate_normal(np.zeros(H), drawn.cov + np.eye(H) / ALPHA)
    assert float(belief.overlap(jnp.asarray(ALPHA))) == pytest.approx(
        -prior.logpdf(drawn.mu), rel=1e-11
    )
    eightfold = belief.scaled(8.0, scale_floor=True)
    np.testing.assert_allclose(eightfold.cov(), 64.0 * drawn.cov, rtol=1e-11)
    np.testing.assert_allclose(eightfold.mu, 8.0 * drawn.mu)
    with pytest.raises(ValueError, match="no start to train"):
        Fixed.init(H, jax.random.key(0), rows=1, cov_floor=0.0)


@pytest.mark.slow
def test_variances_stay_positive_in_single_precision_when_features_are_collinear() -> None:
    psi, y = design()
    psi[:, 4] = psi[:, 1]
    with jax.enable_x64(False):
        single = [jnp.asarray(a, jnp.float32) for a in (psi, y, np.ones(N), 0.01, SIGMA)]
        belief = posterior(*single)
        across = jnp.asarray([0.0, 1.0, 0.0, 0.0, -1.0])
        assert np.all(np.asarray(belief.project(single[0])[1]) > 0.0)
        # Nothing was observed in this direction: all that is known of it is the prior.
        assert float(belief.project(across)[1]) == pytest.approx(200.0, rel=0.02)


# A bound model


def bound_model(seed: int = 0) -> Bound:
    model = small_model({"gaussian": "diag", "event": "diag"}, seed=seed)
    data = small_data(model.tasks)
    half = jnp.arange(N) < N // 2  # so that half of the labels are missing
    weight = {"gaussian": jnp.where(half, 1.0, 0.0), "event": data.weight["event"]}
    return bind(model, Data(data.x, data.y, weight), "gaussian")


def test_a_bound_model_reads_the_posterior_of_the_windows_it_carries() -> None:
    bound = bound_model()
    task, data = bound.model.tasks["gaussian"], bound.train
    psi = np.asarray(bound.model.features(data.x))[: N // 2]
    precision = float(task.prior_precision) * np.eye(H) + psi.T @ psi / 0.6**2
    mean = np.linalg.solve(precision, psi.T @ np.asarray(data.y["gaussian"])[: N // 2] / 0.6**2)
    plain, found = lines(bound.model, data.x), lines(bound, data.x)
    features = np.asarray(bound.model.features(data.x))
    np.testing.assert_allclose(found["gaussian"][0], features @ mean, rtol=1e-8)
    expected = np.einsum("nh,hg,ng->n", features, np.linalg.inv(precision), features)
    np.testing.assert_allclose(found["gaussian"][1], expected, rtol=1e-8)
    np.testing.assert_allclose(found["event"], plain["event"], rtol=1e-12)
    score, kept = (jit(composed)(model, data) for model in (bound, jit(Bound.settled)(bound)))
    assert float(score) == pytest.approx(float(kept), rel=1e-12)


def test_the_evidence_takes_the_place_of_all_terms_of_the_bound_task() -> None:
    bound = bound_model()
    data, task = bound.train, bound.model.tasks["gaussian"]
    psi = np.asarray(bound.model.features(data.x))[: N // 2]
    cov = 0.6**2 * np.eye(N // 2) + psi @ psi.T / float(task.prior_precision)
    evidence = multivariate_normal(np.zeros(N // 2), cov).logpdf(data.y["gaussian"][: N // 2])
    expected = float(jit(shared_cavity)(bound.model, data, "event")) - evidence
    assert float(jit(evidence_composed)(bound, data)) == pytest.approx(expected, rel=1e-10)


@pytest.mark.slow
def test_a_bound_model_trains_and_settles_into_a_plain_one_with_the_same_forecasts() -> None:
    start = stack([bound_model(seed) for seed in (0, 1)])
    train = jax.tree.map(lambda a: jnp.stack([a, a]), bound_model().train)
    fits = fit(
        start,
        train,
        train,
        objective=lambda model, data, hyper, scale: evidence_composed(model, data),
        hyper={"learning_rate": jnp.full(2, 0.03)},
        schedule=Schedule(steps=12, eval_every=4, patience=9),
        keys=jax.random.split(jax.random.key(0), 2),
        trainable=trained_leaves,
    )
    assert (fits.best_step == 12).all()
    objective = fits.history["train_objective"]
    assert (np.diff(objective, axis=1) < 0).all()
    moved = fits.models.model
    assert_same_bits(moved.tasks["gaussian"].belief, start.model.tasks["gaussian"].belief)
    assert_same_bits(fits.models.train, start.train)
    wanted = trained_leaves(start)
    assert not any(jax.tree.leaves((wanted.model.tasks["gaussian"].belief, wanted.train)))
    for part in (
        lambda m: m.backbone,
        lambda m: m.tasks["gaussian"].head,
        lambda m: m.tasks["gaussian"].log_prior_precision,
        lambda m: m.tasks["event"].belief,
    ):
        assert (np.abs(flat(part(moved)) - flat(part(start.model))) > 1e-3).all()
    one = fits.model(1)
    plain = jit(Bound.settled)(one)
    assert type(plain) is Model
    x = small_data(seed=5).x
    found, expected = lines(plain, x), lines(one, x)
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-10)
    # What stopped the runs was the score of these forecasts.
    assert fits.best_score[1] == pytest.approx(
        float(jit(validation_nll)(plain, one.train)), rel=1e-9
    )


def test_only_a_gaussian_task_with_noise_of_its_own_can_be_bound() -> None:
    model, data = small_model(), small_data()
    for name in ("event", "absent"):
        with pytest.raises(ValueError, match=f"only a Gaussian task .*{name}"):
            bind(model, data, name)
    pair = {name: Task(Gaussian(), draw_belief("diag", H).belief, jnp.zeros(())) for name in "ab"}
    coupled = Model(model.backbone, pair, (Coupling(["a", "b"]),))
    with pytest.raises(ValueError, match="'a' is coupled"):
        bind(coupled, data, "a")


# Curvature beliefs


@pytest.mark.parametrize("name", ["gaussian", "event", "ordinal4", "student", "censored"])
def test_curvature_is_minus_the_second_difference_of_the_log_likelihood(name: str) -> None:
    case = HEADS[name]
    rng = np.random.default_rng(4)
    y = np.concatenate([case.near()] * 4)
    psi, mu = rng.normal(size=(len(y), H)), rng.normal(size=H)
    weight = rng.integers(0, 3, size=len(y)).astype(float)
    a, step = psi @ mu, 1e-3
    shifts = (-2, -1, 0, 1, 2)
    values = [case.log_likelihood(y, a + shift * step) for shift in shifts]
    h = -np.dot([-1, 16, -30, 16, -1], values) / (12 * step**2)
    expected = psi.T @ np.diag(weight * h) @ psi
    labels = jnp.asarray(y, float if case.classes is None else jnp.int32)
    found = jit(curvature)(case.make(), *as_jax(psi), labels, *as_jax(weight, mu))
    # Integrals by quadrature lose some digits in their derivatives.
    tolerance = 1e-6 if case.tolerance < 1e-8 else 1e-4
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def log_p(name: str, y: np.ndarray, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
    """Log score of a Gaussian or a two-class head with the belief integrated out, in NumPy."""
    if name == "gaussian":
        return norm.logpdf(y, mean, np.sqrt(0.6**2 + var))
    sign = np.where(y == 1, 1.0, -1.0)
    return norm.logcdf(sign * (mean - 0.4) / np.sqrt(1.005**2 + var))


@pytest.mark.parametrize("diagonal", [True, False], ids=["diag", "full"])
def test_laplace_inverts_the_precision_that_validation_chose(diagonal: bool) -> None:
    model = small_model({"gaussian": "none", "event": "none"})
    # A little data to learn from, so that the choice matters; some labels are missing.
    train, valid = small_data(model.tasks, n=12), small_data(model.tasks, n=30, seed=7)
    weight = np.where(np.arange(12) % 4 == 0, 0.0, 1.0)
    train = as_data(
        np.asarray(train.x),
        {name: np.asarray(y) for name, y in train.y.items()},
        dict.fromkeys(train.y, weight),
    )
    found = laplace(model, train, valid, diagonal=diagonal, precisions=PRECISIONS)
    psi, at = np.asarray(model.features(train.x)), np.asarray(model.features(valid.x))
    chosen = set()
    for name, task in model.tasks.items():
        mu, y = np.asarray(task.belief.mu), np.asarray(train.y[name])
        step = 1e-3
        curve = [log_p(name, y, psi @ mu + s, np.zeros(12)) for s in (-step, 0.0, step)]
        h = -(curve[0] - 2 * curve[1] + curve[2]) / step**2
        matrix = psi.T @ np.diag(weight * h) @ psi
        if diagonal:
            matrix = np.diag(np.diagonal(matrix))
        covs = [np.linalg.inv(matrix + p * np.eye(H)) for p in PRECISIONS]
        labels = np.asarray(valid.y[name])
        nll = [
            -np.mean(log_p(name, labels, at @ mu, np.einsum("nh,hg,ng->n", at, c, at)))
            for c in covs
        ]
        best = int(np.argmin(nll))
        chosen.add(best)
        belief = found.tasks[name].belief
        np.testing.assert_array_equal(belief.mu, mu)
        np.testing.assert_allclose(belief.cov(), covs[best], rtol=1e-5, atol=1e-9)
        assert float(found.tasks[name].prior_precision) == pytest.approx(PRECISIONS[best])
    assert_same_bits(found.backbone, model.backbone)
    assert len(chosen) == 2  # each head chose for itself


def test_laplace_refuses_what_it_cannot_do() -> None:
    data = small_data()
    with pytest.raises(ValueError, match="beliefs already"):
        laplace(small_model(), data, data, diagonal=True, precisions=PRECISIONS)
    wide = small_model({"categorical4": "none"})
    with pytest.raises(ValueError, match="categorical4'\\] read several"):
        laplace(wide, small_data(wide.tasks), data, diagonal=True, precisions=PRECISIONS)
    points = small_model(POINTS)
    backbone = Dense(D, (H,), activation="tanh", bias=False, norm=False, key=jax.random.key(0))
    pair = {name: points.tasks["gaussian"] for name in "ab"}
    coupled = Model(backbone, pair, (Coupling(["a", "b"]),))
    with pytest.raises(ValueError, match="coupled"):
        laplace(coupled, data, data, diagonal=True, precisions=PRECISIONS)


def test_a_direction_without_curvature_keeps_the_prior() -> None:
    model = small_model(POINTS)
    # Features that are equal everywhere: all but one direction is unseen.
    net = eqx.tree_at(
        lambda b: b.weights, model.backbone, jax.tree.map(jnp.zeros_like, model.backbone.weights)
    )
    data = small_data(POINTS)
    found = laplace(Model(net, model.tasks), data, data, diagonal=False, precisions=(2.0,))
    for task in found.tasks.values():
        values = np.linalg.eigvalsh(task.belief.cov())
        np.testing.assert_allclose(values[1:], 0.5, rtol=1e-9)
        assert 0.0 < values[0] < 0.05
