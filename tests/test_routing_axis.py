"""The objectives of every routing against evidence, brute force, quadrature, other libraries."""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from jaxtyping import Array
from scipy import stats
from scipy.integrate import quad
from scipy.optimize import minimize

from helpers import HEADS, H, N, draw_belief, small_data, small_model
from scrollmt.beliefs import AbstractBelief, Full, Point
from scrollmt.couplings import Coupling
from scrollmt.heads import AbstractHead, Gaussian, Mixture
from scrollmt.model import Model, PrecisionPrior, Task
from scrollmt.objective import Data
from scrollmt.routing import (
    Bound,
    Fixed,
    bind,
    curvature,
    elbo,
    elbo_objective,
    evidence_composed,
    expected_terms,
    laplace,
    log_evidence,
    posterior,
    ppgpr,
)
from scrollmt.routing.choices import bind_all, bound_objective, evidence_objective
from tiny_jobs import quick_compiler

ALPHA, SIGMA = 0.7, 0.45
PEERS = json.loads((Path(__file__).parent / "last_layers.json").read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    with jax.enable_x64(True), quick_compiler():
        yield


jit = eqx.filter_jit


def real(values: Any) -> Array:
    return jnp.asarray(values, float)


# The KL to the prior


def hand_kl(mu: np.ndarray, cov: np.ndarray, alpha: float) -> float:
    """KL from a normal density to another, by inverse and determinant of the prior's covariance."""
    size = len(mu)
    prior = np.eye(size) / alpha
    trace = np.trace(np.linalg.inv(prior) @ cov)
    logs = np.linalg.slogdet(prior)[1] - np.linalg.slogdet(cov)[1]
    return float(0.5 * (trace + mu @ np.linalg.inv(prior) @ mu - size + logs))


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("floor", [0.0, 1e-2])
@pytest.mark.parametrize("family", ["diag", "full", "low-rank"])
def test_the_kl_of_every_family_is_the_formula(family: str, floor: float, rows: int) -> None:
    drawn = draw_belief(family, H, floor=floor, rows=rows)
    belief = drawn.belief
    lines = zip(drawn.mu.reshape(-1, H), drawn.cov.reshape(-1, H, H), strict=True)
    expected = sum(hand_kl(mu, cov, ALPHA) for mu, cov in lines)
    assert float(jit(type(belief).kl)(belief, real(ALPHA))) == pytest.approx(expected, rel=1e-11)
    # What a belief from outside inherits, and its gradient.
    found, slope = jit(jax.value_and_grad(lambda b: AbstractBelief.kl(b, real(ALPHA))))(belief)
    assert float(found) == pytest.approx(expected, rel=1e-11)
    own = jit(jax.grad(lambda b: b.kl(real(ALPHA))))(belief)
    for one, other in zip(jax.tree.leaves(own), jax.tree.leaves(slope), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-10)


def test_the_kl_is_a_mean_of_log_ratios() -> None:
    drawn = draw_belief("full", 3)
    rng = np.random.default_rng(0)
    w = rng.multivariate_normal(drawn.mu, drawn.cov, size=40_000)
    prior = stats.multivariate_normal(np.zeros(3), np.eye(3) / ALPHA)
    ratio = stats.multivariate_normal(drawn.mu, drawn.cov).logpdf(w) - prior.logpdf(w)
    found = float(drawn.belief.kl(real(ALPHA)))
    assert abs(found - ratio.mean()) < 4.0 * ratio.std() / math.sqrt(len(w))
    assert ratio.std() / math.sqrt(len(w)) < 0.02 * found


def test_a_point_estimate_has_no_kl() -> None:
    with pytest.raises(ValueError, match="a point estimate has no KL to a prior"):
        Point(real(np.ones(3))).kl(real(1.0))


# Expected log likelihoods

ONE_LINE = [name for name, case in HEADS.items() if case.lines == 1]
# The most that 32 nodes may err, relative to the value or to one nat, by variance of the belief.
ERRORS = {1e-4: 1e-11, 0.3: 1e-8, 1.0: 1e-6}
# A Student-t of 3.5 degrees of freedom is itself known to 1e-6 nats, and has poles beside the line.
STUDENT_ERRORS = {1e-4: 1e-7, 0.3: 1e-6, 1.0: 1e-5}


@pytest.mark.parametrize("name", ONE_LINE)
def test_expected_log_likelihoods_are_integrals(name: str) -> None:
    case = HEADS[name]
    head = jax.tree.map(real, case.make())
    mean = case.mean(np.random.default_rng(3))
    labels = jnp.asarray(case.labels)
    for var, most in (STUDENT_ERRORS if name == "student" else ERRORS).items():
        found = jit(head.expected_log_lik)(labels, real(mean), jnp.full(len(mean), var))
        for label, at, value in zip(case.labels, mean, np.asarray(found), strict=True):
            want = integral(name, label, at, var)
            assert abs(value - want) < most * max(1.0, abs(want)), (label, at, var)


@pytest.mark.parametrize(("name", "most"), [("event", 2e-6), ("ordinal4", 2e-6)])
def test_far_tails_and_wide_beliefs(name: str, most: float) -> None:
    """Means up to thirty scales from the label, and beliefs wider than the likelihood."""
    case = HEADS[name]
    head = jax.tree.map(real, case.make())
    cases = [(y, m, v) for y in (0, 1) for m in (-30.0, -5.0, 5.0, 30.0) for v in (1e-4, 4.0)]
    columns = [np.array(column) for column in zip(*cases, strict=True)]
    found = jit(head.expected_log_lik)(*map(jnp.asarray, columns))
    assert np.asarray(found).min() < -400.0
    for (label, at, var), value in zip(cases, np.asarray(found), strict=True):
        want = integral(name, label, at, var)
        assert abs(value - want) < most * max(1.0, abs(want)), (label, at, var)


def integral(name: str, label: Any, mean: float, var: float) -> float:
    """The mean of a log likelihood, which the registry writes out again, by adaptive quadrature."""
    log_p = HEADS[name].log_likelihood

    def integrand(z: float) -> float:
        a = np.array([mean + math.sqrt(var) * z])
        return float(stats.norm.pdf(z) * log_p(np.array([label]), a)[0])

    return float(quad(integrand, -9.0, 9.0, epsabs=1e-11, epsrel=1e-11, limit=200)[0])


@pytest.mark.parametrize("name", ["gaussian", "event", "ordinal4"])
def test_the_gradient_by_mean_and_variance_is_that_of_the_integral(name: str) -> None:
    head = jax.tree.map(real, HEADS[name].make())
    mean, var, step = 0.4, 0.3, 1e-4
    slopes = jit(jax.grad(lambda m, v: head.expected_log_lik(jnp.asarray(1), m, v), (0, 1)))(
        real(mean), real(var)
    )
    by_mean = integral(name, 1, mean + step, var) - integral(name, 1, mean - step, var)
    by_var = integral(name, 1, mean, var + step) - integral(name, 1, mean, var - step)
    np.testing.assert_allclose(slopes, np.array([by_mean, by_var]) / (2 * step), rtol=1e-5)


def test_without_variance_it_is_the_log_likelihood_with_finite_gradients() -> None:
    head = jax.tree.map(real, HEADS["event"].make())
    value, slopes = jax.value_and_grad(
        lambda m, v: head.expected_log_lik(jnp.asarray(1), m, v), (0, 1)
    )(real(0.4), real(0.0))
    assert float(value) == pytest.approx(float(head.log_likelihood(jnp.asarray(1), real(0.4))))
    assert np.isfinite(slopes).all()


def test_a_head_of_several_lines_has_no_quadrature() -> None:
    with pytest.raises(ValueError, match=r"Mixture.* reads \d+ latent lines"):
        Mixture().expected_log_lik(real([0.0]), jnp.zeros((1, 3)), jnp.zeros((1, 3)))


# The evidence lower bound


def fixed_features() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features with a near-collinear pair, labels, and weights of which some are zero."""
    rng = np.random.default_rng(0)
    psi = rng.normal(size=(N, H)) + 0.3
    psi[:, 4] = psi[:, 1] + 0.3 * rng.normal(size=N)
    y = psi @ rng.normal(size=H) + SIGMA * rng.normal(size=N)
    return psi, y, np.repeat([1.0, 0.0, 2.0, 1.0], N // 4)


def on_features(belief: AbstractBelief, head: AbstractHead | None = None) -> Model:
    """One task on features as they are."""
    head = Gaussian(SIGMA) if head is None else head
    return Model(eqx.nn.Identity(), {"value": Task(head, belief, real(math.log(ALPHA)))})


def as_one(psi: np.ndarray, y: np.ndarray, weight: np.ndarray) -> Data:
    return Data(real(psi), {"value": jnp.asarray(y)}, {"value": real(weight)})


negative_bound = jit(lambda belief, data: elbo(on_features(belief), data)["value"])


def dense_evidence(psi: np.ndarray, y: np.ndarray, weight: np.ndarray) -> float:
    """The density of all labels at once; a weight of two is a label that was seen twice."""
    seen = np.repeat(np.arange(len(y)), weight.astype(int))
    cov = SIGMA**2 * np.eye(len(seen)) + psi[seen] @ psi[seen].T / ALPHA
    return float(stats.multivariate_normal(np.zeros(len(seen)), cov).logpdf(y[seen]))


def test_the_bound_is_below_the_evidence_and_touches_it_at_the_posterior() -> None:
    design = fixed_features()
    data, evidence = as_one(*design), dense_evidence(*design)
    exact = posterior(*map(real, (*design, ALPHA, SIGMA)))
    assert float(negative_bound(exact, data)) == pytest.approx(-evidence, rel=1e-9)
    assert float(log_evidence(*map(real, (*design, ALPHA, SIGMA)))) == pytest.approx(evidence)
    for family in ("diag", "low-rank", "full"):
        for seed in range(3):
            drawn = draw_belief(family, H, seed=seed)
            gap = float(negative_bound(drawn.belief, data)) + evidence
            # The gap is the KL to the posterior.
            precision = np.linalg.inv(np.asarray(exact.cov()))
            off = drawn.mu - np.asarray(exact.mu)
            _, log_det = np.linalg.slogdet(precision @ drawn.cov)
            kl = 0.5 * (np.trace(precision @ drawn.cov) + off @ precision @ off - H - log_det)
            assert gap == pytest.approx(kl, rel=1e-8)
            assert gap > 0.0


def test_the_best_full_belief_is_the_posterior_in_closed_form() -> None:
    design = fixed_features()
    data = as_one(*design)
    start = Full(jnp.zeros(H), jnp.full(H, -1.0), jnp.zeros((H, H)), 0.0)
    flat, shaped = ravel_pytree(start)
    value = jit(jax.value_and_grad(lambda at: negative_bound(shaped(at), data)))
    found = minimize(
        lambda at: tuple(map(np.asarray, value(real(at)))),
        np.asarray(flat),
        jac=True,
        method="BFGS",
        options={"gtol": 1e-9, "maxiter": 2000},
    )
    assert found.fun == pytest.approx(-dense_evidence(*design), rel=1e-10)
    best, exact = shaped(real(found.x)), posterior(*map(real, (*design, ALPHA, SIGMA)))
    np.testing.assert_allclose(best.mu, exact.mu, rtol=1e-5)
    np.testing.assert_allclose(best.cov(), exact.cov(), rtol=1e-4, atol=1e-9)


# Objectives of several tasks

BELIEFS = {"gaussian": "full", "event": "diag", "ordinal4": "low-rank"}


def several() -> tuple[Model, Data]:
    """Three heads under three beliefs, a prior of one precision, and missing labels."""
    model = small_model(BELIEFS, floor=1e-3)
    prior = PrecisionPrior(0.2, 1.5)
    task = replace(model.tasks["event"], precision_prior=prior)
    model = Model(model.backbone, {**model.tasks, "event": task})
    data = small_data(BELIEFS)
    weight = {
        name: values.at[: 5 * k].set(0.0) for k, (name, values) in enumerate(data.weight.items())
    }
    return model, Data(data.x, data.y, weight)


def by_hand(model: Model, data: Data, name: str, *, expected: bool) -> float:
    """One task's objective in NumPy: a dense sum over the latent line, and the KL's formula."""
    task = model.tasks[name]
    psi = np.asarray(model.features(data.x))
    mu, cov = np.asarray(task.belief.mu), np.asarray(task.belief.cov())
    mean, var = psi @ mu, np.einsum("ni,ij,nj->n", psi, cov, psi)
    total = hand_kl(mu, cov, float(task.prior_precision))
    if task.precision_prior is not None:
        total -= stats.norm.logpdf(float(task.log_prior_precision), 0.2, 1.5)
    z = np.linspace(-9.0, 9.0, 2001)
    w = stats.norm.pdf(z) * (z[1] - z[0])
    for n in np.flatnonzero(np.asarray(data.weight[name])):
        label = np.full(len(z), np.asarray(data.y[name])[n])
        terms = HEADS[name].log_likelihood(label, mean[n] + math.sqrt(var[n]) * z)
        total -= w @ terms if expected else math.log(w @ np.exp(terms))
    return float(total)


@pytest.mark.parametrize("expected", [True, False], ids=["elbo", "ppgpr"])
def test_both_objectives_equal_brute_force(expected: bool) -> None:
    model, data = several()
    found = jit(elbo if expected else ppgpr)(model, data)
    for name in BELIEFS:
        want = by_hand(model, data, name, expected=expected)
        assert float(found[name]) == pytest.approx(want, rel=1e-8), name


def test_the_bound_of_a_task_is_above_its_ppgpr_objective() -> None:
    """The mean of a logarithm is below the logarithm of the mean."""
    model, data = several()
    lower, higher = jit(ppgpr)(model, data), jit(elbo)(model, data)
    assert all(float(lower[name]) < float(higher[name]) for name in BELIEFS)


@pytest.mark.parametrize("name", ["elbo", "closed", "binding-map"])
def test_minibatches_have_the_objective_on_average(name: str) -> None:
    model, data = several()
    made: Any = model if name == "elbo" else bind_all(model, data)
    objective = {
        "elbo": elbo_objective,
        "closed": evidence_objective,
        "binding-map": bound_objective,
    }
    loss = jit(lambda m, d, s: objective[name](m, d, {"backbone_l2": 0.3}, s))
    whole = float(loss(made, data, 1.0))
    parts = [data.take(jnp.arange(at, at + 10)) for at in range(0, N, 10)]
    mean = np.mean([float(loss(made, part, real(N / 10))) for part in parts])
    assert mean == pytest.approx(whole, rel=1e-9)


def test_several_gaussian_tasks_are_bound_at_once() -> None:
    model = small_model({"gaussian": "diag", "event": "diag"})
    task, event = model.tasks["gaussian"], model.tasks["event"]
    wide = eqx.tree_at(lambda t: t.head.log_sigma_obs, task, real(0.3))
    two = Model(model.backbone, {"a": task, "b": wide, "event": event})
    data = small_data(("gaussian", "event"))
    y, weight = data.y, data.weight
    labels = {"a": y["gaussian"], "b": 2.0 * y["gaussian"], "event": y["event"]}
    both = Data(
        data.x,
        labels,
        {
            "a": weight["gaussian"],
            "b": weight["gaussian"].at[:9].set(0.0),
            "event": weight["event"],
        },
    )
    bound = bind_all(two, both)
    assert bound.names == ("a", "b")
    alone = [jit(Bound.settled)(bind(two, both, name)).tasks[name].belief for name in "ab"]
    settled = jit(Bound.settled)(bound).tasks
    for name, one in zip("ab", alone, strict=True):
        np.testing.assert_allclose(settled[name].belief.cov(), one.cov(), rtol=1e-10)
    psi = two.features(both.x)
    heads: dict[str, Any] = {name: task.head for name, task in two.tasks.items()}
    evidence = [
        float(
            log_evidence(
                psi,
                labels[n],
                both.weight[n],
                two.tasks[n].prior_precision,
                heads[n].sigma_obs,
            )
        )
        for n in "ab"
    ]
    rest = jit(ppgpr)(two, both)["event"] - event.belief.kl(event.prior_precision)
    want = float(rest + event.belief.overlap(event.prior_precision)) - sum(evidence)
    assert float(jit(evidence_composed)(bound, both)) == pytest.approx(want, rel=1e-10)
    moved = bound.trained()
    assert not any(
        jax.tree.leaves((moved.train, moved.model.tasks["a"].belief, moved.model.tasks["b"].belief))
    )
    assert all(jax.tree.leaves((moved.model.backbone, moved.model.tasks["event"])))


def test_coupled_tasks_have_no_expected_terms_one_by_one() -> None:
    model, data = several()
    coupled = Model(model.backbone, model.tasks, (Coupling(("gaussian", "event")),))
    with pytest.raises(ValueError, match="coupled by their noise"):
        expected_terms(coupled, data)


# Other libraries' numbers, from benchmarks/last_layers.py; both sides are in double precision.

TOLERANCE = 1e-8
GIVEN = {name: np.array(PEERS[name]) for name in ("psi", "y", "labels", "mu", "factor", "new")}


@pytest.mark.parametrize("kind", ["dense", "diagonal"])
def test_the_bound_and_its_gradient_are_those_of_vbll(kind: str) -> None:
    assert (PEERS["alpha"], PEERS["sigma"]) == (ALPHA, SIGMA)
    factor = GIVEN["factor"] if kind == "dense" else np.diag(np.diag(GIVEN["factor"]))
    parts: list[Any] = [*map(real, (GIVEN["mu"], np.log(np.diag(factor)), factor)), 0.0]
    belief = Full(*parts)
    data = as_one(GIVEN["psi"], GIVEN["y"], np.ones(len(GIVEN["y"])))
    model = on_features(belief)
    loss, slope = jit(eqx.filter_value_and_grad(lambda m: elbo(m, data)["value"]))(model)
    want, task = PEERS["vbll"][kind], slope.tasks["value"]
    # vbll leaves the constant of the KL out.
    assert float(loss) + 0.5 * len(factor) == pytest.approx(want["loss"], rel=TOLERANCE)
    np.testing.assert_allclose(task.belief.mu, want["mu_gradient"], rtol=TOLERANCE)
    np.testing.assert_allclose(
        task.belief.log_diagonal, want["log_diagonal_gradient"], rtol=TOLERANCE
    )
    assert float(task.head.log_sigma_obs) == pytest.approx(
        want["log_sigma_gradient"], rel=TOLERANCE
    )
    _, var = model.project(real(GIVEN["new"]))["value"]
    np.testing.assert_allclose(var + SIGMA**2, want["predictive_var"], rtol=TOLERANCE)


@pytest.mark.parametrize("structure", ["full", "diag"])
def test_curvature_beliefs_of_values_are_those_of_laplace_torch(structure: str) -> None:
    ones = np.ones(len(GIVEN["y"]))
    exact = posterior(*map(real, (GIVEN["psi"], GIVEN["y"], ones, ALPHA, SIGMA)))
    data = as_one(GIVEN["psi"], GIVEN["y"], ones)
    model = laplace(
        on_features(Point(exact.mu)), data, data, diagonal=structure == "diag", precisions=[ALPHA]
    )
    want = PEERS["laplace"][structure]
    belief = model.tasks["value"].belief
    assert isinstance(belief, Fixed)
    np.testing.assert_allclose(belief.cov(), want["cov"], rtol=TOLERANCE, atol=1e-10)
    _, var = model.project(real(GIVEN["new"]))["value"]
    np.testing.assert_allclose(var, want["latent_var"], rtol=TOLERANCE)
    if structure == "full":
        np.testing.assert_allclose(exact.cov(), want["cov"], rtol=TOLERANCE)
        evidence = log_evidence(*map(real, (GIVEN["psi"], GIVEN["y"], ones, ALPHA, SIGMA)))
        assert float(evidence) == pytest.approx(want["log_marginal_likelihood"], rel=TOLERANCE)


class Logistic(AbstractHead):
    """A class by one logit: what laplace-torch has for two classes."""

    def log_predictive(self, y: Array, mean: Array, var: Array) -> Array:
        return jax.nn.log_sigmoid((2.0 * y - 1.0) * mean)


def test_curvature_beliefs_of_classes_are_those_of_laplace_torch() -> None:
    ones = np.ones(len(GIVEN["y"]))
    matrix = curvature(Logistic(), *map(real, (GIVEN["psi"], GIVEN["labels"], ones, GIVEN["mu"])))
    # Two logits with one precision each: their difference has half of it.
    cov = np.linalg.inv(0.5 * ALPHA * np.eye(len(matrix)) + np.asarray(matrix))
    np.testing.assert_allclose(cov, PEERS["laplace"]["logistic"]["cov"], rtol=TOLERANCE)
    data = as_one(GIVEN["psi"], GIVEN["labels"], ones)
    point = on_features(Point(real(GIVEN["mu"])), Logistic())
    model = laplace(point, data, data, diagonal=False, precisions=[0.5 * ALPHA])
    np.testing.assert_allclose(model.tasks["value"].belief.cov(), cov, rtol=TOLERANCE)
