r"""The paper's identities, each evaluated on a small random problem in double precision.

Nothing is trained and nothing recorded: a value is the largest difference between what the
library computes and the other side of the identity, written out here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import cache, wraps
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.optimize import brentq
from scipy.special import ndtr

from scrollmt.backbone import Dense
from scrollmt.beliefs import Diag, Full
from scrollmt.heads import PROBIT_BASE_SCALE, AbstractHead, AbstractProbit, Event, Gaussian, Ordinal
from scrollmt.model import Model, Task, rescale_task
from scrollmt.objective import Data, composed, data_terms, shared_cavity
from scrollmt.paper.jobs import Job
from scrollmt.paper.protocol import Protocol
from scrollmt.paper.studies.base import study
from scrollmt.paper.studies.evidence import Answer, Evidence, Measured, answered, order
from scrollmt.routing import posterior

NAME = "theory"
N, D, H = 12, 3, 5
CLASSES = 4
C = 8.0
Quadratic = tuple[np.ndarray, np.ndarray]


class Given(eqx.Module):
    """Features that are the inputs."""

    def __call__(self, x: Float[Array, " H"]) -> Float[Array, " H"]:
        return x


def in_double(answer: Callable[[], Measured | float]) -> Answer:
    """An answer that asks for no records, in double precision."""

    @wraps(answer)
    def evaluated(e: Evidence) -> Measured | float:
        with jax.enable_x64(True):
            return answer()

    return evaluated


@cache
def problem() -> tuple[Model, Data]:
    """Three tasks with diagonal beliefs on one tanh layer, at random parameters, no floor."""
    rng = np.random.default_rng(0)
    heads: dict[str, AbstractHead] = {
        "state": Gaussian(0.6),
        "event": Event(0.3),
        "regime": Ordinal(CLASSES),
    }
    tasks = {}
    for name, head in heads.items():
        mu, log_sd = rng.normal(size=H), rng.normal(-1.0, 0.2, size=H)
        belief = Diag(jnp.asarray(mu), jnp.asarray(log_sd), cov_floor=0.0)
        tasks[name] = Task(head, belief, jnp.asarray(rng.normal()))
    labels = {
        "state": jnp.asarray(rng.normal(size=N)),
        "event": jnp.asarray(rng.integers(0, 2, size=N)),
        "regime": jnp.asarray(rng.integers(0, CLASSES, size=N)),
    }
    net = Dense(D, (H,), activation="tanh", bias=False, norm=True, key=jax.random.key(0))
    x = jnp.asarray(rng.normal(size=(N, D)))
    model = jax.tree.map(lambda a: jnp.asarray(a, float), Model(net, tasks))
    return model, Data(x, labels, {name: jnp.ones(N) for name in labels})


class Energies(NamedTuple):
    """What the library says of a model: F_MT, F_SC by task, terms, lines, the backbone's slope."""

    composed: Array
    shared_cavity: dict[str, Array]
    terms: dict[str, Array]
    lines: dict[str, tuple[Array, Array]]
    slope: Array


total = eqx.filter_jit(composed)


@eqx.filter_jit
def energies(model: Model, data: Data) -> Energies:
    value, slope = eqx.filter_value_and_grad(composed)(model, data)
    return Energies(
        value,
        {name: shared_cavity(model, data, name) for name in model.tasks},
        data_terms(model, data),
        model.project(data.x),
        jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(slope.backbone)]),
    )


def difference(a: object, b: object) -> float:
    return float(np.max(np.abs(np.asarray(a) - np.asarray(b))))


def composition() -> float:
    """Each block from a model that holds one task alone."""
    model, data = problem()
    blocks = []
    for name, task in model.tasks.items():
        own = Data(data.x, {name: data.y[name]}, {name: data.weight[name]})
        blocks.append(total(Model(model.backbone, {name: task}), own))
    return difference(energies(model, data).composed, sum(blocks))


def quadrature() -> float:
    """Each data term against a Gauss-Hermite average of the likelihood over the belief."""
    model, data = problem()
    found = energies(model, data)
    nodes, mass = np.polynomial.hermite_e.hermegauss(120)
    worst = 0.0
    for name, (mean, var) in found.lines.items():
        latent = np.asarray(mean)[:, None] + np.sqrt(np.asarray(var))[:, None] * nodes
        likelihood = _likelihood(model.tasks[name].head, np.asarray(data.y[name])[:, None], latent)
        average = likelihood @ mass / math.sqrt(2.0 * math.pi)
        worst = max(worst, difference(found.terms[name], -np.log(average)))
    return worst


def _likelihood(head: AbstractHead, y: np.ndarray, a: np.ndarray) -> np.ndarray:
    """p(y | a) of a head, without a belief."""
    if isinstance(head, Gaussian):
        sd = float(head.sigma_obs)
        return np.exp(-0.5 * ((y - a) / sd) ** 2) / (sd * math.sqrt(2.0 * math.pi))
    assert isinstance(head, AbstractProbit)
    edges = np.array([-np.inf, *np.asarray(head.cutpoints), np.inf])
    low, high = ((edges[y + k] - a) / PROBIT_BASE_SCALE for k in (0, 1))
    return ndtr(high) - ndtr(low)


def best_variance() -> float:
    """The root of the library's own derivative in V, less the mean squared residual."""
    residuals = jnp.asarray(np.random.default_rng(1).normal(size=40))
    head = Gaussian(1e-4)

    def loss(var: Array) -> Array:
        zeros = jnp.zeros_like(residuals)
        return -jnp.mean(head.log_predictive(residuals, zeros, var + zeros))

    slope = jax.jit(jax.grad(loss))
    root = brentq(lambda v: float(slope(v)), 0.01, 10.0, xtol=1e-14)
    return root + 1e-8 - float(jnp.mean(residuals**2))


def implicit_weight() -> float:
    model, data = problem()
    head = model.tasks["state"].head
    assert isinstance(head, Gaussian)
    mean, var = energies(model, data).lines["state"]

    @jax.jit
    @jax.grad
    def slope(squared: Array, var: Array) -> Array:
        return -jnp.sum(head.log_predictive(mean + jnp.sqrt(squared), mean, var))

    squared, noise = (data.y["state"] - mean) ** 2, float(head.sigma_obs) ** 2
    return max(
        difference(slope(squared, v), 0.5 / (noise + np.asarray(v))) for v in (var, 0.0 * var)
    )


def _mapped() -> tuple[Model, Data, Model, Data]:
    model, data = problem()
    scaled = Data(data.x, {**data.y, "state": C * data.y["state"]}, data.weight)
    return model, data, rescale_task(model, "state", C), scaled


def scale_map() -> float:
    model, data, mapped, scaled = _mapped()
    rise = energies(mapped, scaled).composed - energies(model, data).composed
    return float(rise) - (N + H) * math.log(C)


def scale_map_of_the_backbone() -> float:
    model, data, mapped, scaled = _mapped()
    return difference(energies(mapped, scaled).slope, energies(model, data).slope)


def _quadratics(rng: np.random.Generator, centres: np.ndarray) -> list[Quadratic]:
    """Losses (t - m)' A (t - m) as pairs (A, A m)."""
    out: list[Quadratic] = []
    for centre in centres:
        root = rng.normal(size=(D, D))
        matrix = root @ root.T + np.eye(D)
        out.append((matrix, matrix @ centre))
    return out


def _minimiser(losses: list[Quadratic], weights: list[float]) -> np.ndarray:
    matrices, pulls = (np.stack(parts) for parts in zip(*losses, strict=True))
    return np.linalg.solve(np.tensordot(weights, matrices, 1), np.tensordot(weights, pulls, 1))


def raw_weights() -> float:
    """With a target times c its squared error is c^2 times as large, weights times c^2 undo it."""
    rng = np.random.default_rng(2)
    losses = _quadratics(rng, rng.normal(size=(3, D)))
    weights = [0.3, 2.0]
    return difference(
        _minimiser(losses, [C**2, *weights]),
        _minimiser(losses, [1.0, *(w / C**2 for w in weights)]),
    )


def inert_weights() -> float:
    rng = np.random.default_rng(3)
    common = rng.normal(size=D)
    losses = _quadratics(rng, np.tile(common, (3, 1)))
    grid = itertools.product((0.01, 1.0, 30.0), repeat=3)
    return max(difference(_minimiser(losses, [*weights]), common) for weights in grid)


def two_buckets() -> float:
    model, data = problem()
    mean, var = (np.asarray(part) for part in energies(model, data).lines["event"])
    tau = 0.3
    pair = eqx.tree_at(lambda h: h.first_cutpoint, Ordinal(2), jnp.asarray(tau))
    upper = np.exp(pair.law(mean, var).log_probs[:, 1])
    return difference(upper, ndtr((mean - tau) / np.sqrt(PROBIT_BASE_SCALE**2 + var)))


def overlap() -> float:
    """In two dimensions: the average of the prior's density under the belief, by quadrature."""
    rng = np.random.default_rng(4)
    mu, below = rng.normal(size=2), np.array([[0.0, 0.0], [0.4, 0.0]])
    belief = Full(jnp.asarray(mu), jnp.asarray([-0.3, -0.8]), jnp.asarray(below), cov_floor=0.0)
    alpha = 1.7
    nodes, mass = np.polynomial.hermite_e.hermegauss(80)
    points = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), axis=-1).reshape(-1, 2)
    weight = np.outer(mass, mass).ravel() / (2.0 * math.pi)
    w = mu + points @ np.linalg.cholesky(np.asarray(belief.cov())).T
    prior = alpha / (2.0 * math.pi) * np.exp(-0.5 * alpha * np.sum(w * w, axis=1))
    return difference(
        eqx.filter_jit(Full.overlap)(belief, jnp.asarray(alpha)), -math.log(float(weight @ prior))
    )


def _design() -> tuple[np.ndarray, np.ndarray, float, float]:
    rng = np.random.default_rng(5)
    return rng.normal(size=(30, 5)), rng.normal(size=30), 0.8, 0.5


def closed_covariance() -> float:
    psi, y, alpha, sigma = _design()
    shuffled = np.random.default_rng(6).permutation(y)
    covs = [_posterior(psi, labels, alpha, sigma)[1] for labels in (y, shuffled)]
    written_out = np.linalg.inv(alpha * np.eye(5) + psi.T @ psi / sigma**2)
    return max(difference(*covs), difference(covs[0], written_out))


def closed_mean() -> float:
    psi, y, alpha, sigma = _design()
    ridge = np.linalg.solve(psi.T @ psi + alpha * sigma**2 * np.eye(5), psi.T @ y)
    return difference(_posterior(psi, y, alpha, sigma)[0], ridge)


def _posterior(
    psi: np.ndarray, y: np.ndarray, alpha: float, sigma: float
) -> tuple[np.ndarray, np.ndarray]:
    arrays = [jnp.asarray(a) for a in (psi, y, np.ones(len(y)), alpha, sigma)]
    belief = eqx.filter_jit(posterior)(*arrays)
    return np.asarray(belief.mu), np.asarray(belief.cov())


def bethe() -> Measured:
    r"""One weight w, a Gaussian task with K labels, factors f_0 (prior) to f_K (likelihoods).

    $b_a \propto f_a q$ are the tilted beliefs and q is the belief of w itself, so that

    $$F_\text{Bethe} = \sum_a \int b_a \log\frac{b_a}{f_a} - K \int q \log q, \qquad
      C_w = \sum_a \mathbb{E}_{b_a}\log q - K\,\mathbb{E}_q \log q.$$

    The energy is integrated on a grid; F_SC is the library's; C_w uses Gaussian moments.
    """
    rng = np.random.default_rng(7)
    count, sigma, alpha, mu, log_sd = 4, 0.7, 1.3, 0.4, -0.5
    psi, y = rng.normal(size=count), rng.normal(size=count)
    var = math.exp(2.0 * log_sd)
    w = np.linspace(mu - 14.0, mu + 14.0, 200_001)

    def gaussian(x: np.ndarray | float, mean: np.ndarray | float, v: float) -> np.ndarray:
        return np.exp(-0.5 * (x - mean) ** 2 / v) / math.sqrt(2.0 * math.pi * v)

    q = gaussian(w, mu, var)
    log_q = -0.5 * (w - mu) ** 2 / var - 0.5 * math.log(2.0 * math.pi * var)
    factors = [gaussian(w, 0.0, 1.0 / alpha)]
    factors += [gaussian(y[n], psi[n] * w, sigma**2) for n in range(count)]
    energy = -count * np.trapezoid(q * log_q, w)
    for factor in factors:
        mass = np.trapezoid(factor * q, w)
        energy += np.trapezoid(factor * q / mass * (log_q - math.log(mass)), w)

    # A factor of precision p and centre m tilts N(mu, var) to N(mu', v'): 1/v' = 1/var + p.
    remainder = 0.0
    pulls = [(alpha, 0.0), *((psi[n] ** 2 / sigma**2, y[n] / psi[n]) for n in range(count))]
    for precision, centre in pulls:
        tilted_var = 1.0 / (1.0 / var + precision)
        tilted_mean = tilted_var * (mu / var + precision * centre)
        spread = tilted_var + (tilted_mean - mu) ** 2
        remainder += -0.5 * math.log(2.0 * math.pi * var) - 0.5 * spread / var
    remainder += count * 0.5 * math.log(2.0 * math.pi * math.e * var)

    belief = Diag(jnp.asarray([mu]), jnp.asarray([log_sd]), cov_floor=0.0)
    task = Task(Gaussian(sigma), belief, jnp.log(jnp.asarray(alpha)))
    data = Data(jnp.asarray(psi)[:, None], {"w": jnp.asarray(y)}, {"w": jnp.ones(count)})
    score = float(total(Model(Given(), {"w": task}), data))
    return Measured(
        energy - score - remainder,
        note=f"with q as the belief of w, our reading; C_w is {remainder:.3f}",
        provided=abs(remainder) > 1e-3,
    )


def split_of_the_variance() -> float:
    """On features of one norm, variance may move from the noise to the belief unseen."""
    rng = np.random.default_rng(8)
    psi = rng.normal(size=(N, D))
    psi /= np.linalg.norm(psi, axis=1, keepdims=True)
    y = jnp.asarray(rng.normal(size=N))
    data = Data(jnp.asarray(psi), {"w": y}, {"w": jnp.ones(N)})
    mu, moved = jnp.asarray(rng.normal(size=D)), 0.2
    terms = []
    for extra in (0.0, moved):
        sd = np.sqrt(np.array([0.3, 0.5, 0.4]) + extra)
        belief = Diag(mu, jnp.log(jnp.asarray(sd)), cov_floor=0.0)
        task = Task(Gaussian(math.sqrt(0.6 - extra)), belief, jnp.zeros(()))
        terms.append(eqx.filter_jit(data_terms)(Model(Given(), {"w": task}), data)["w"])
    return difference(*terms)


def feature_scale() -> float:
    rng = np.random.default_rng(9)
    psi, a = jnp.asarray(rng.normal(size=(N, D))), 3.7
    mu, log_sd = (jnp.asarray(rng.normal(size=D)) for _ in range(2))
    plain = Diag(mu, log_sd, cov_floor=0.0).project(psi)
    moved = Diag(mu / a, log_sd - math.log(a), cov_floor=0.0).project(a * psi)
    return max(difference(p, m) for p, m in zip(plain, moved, strict=True))


def no_lower_bound() -> Measured:
    """Each decade less of noise lowers the term by log 10, for as long as one cares to look."""
    sigmas = 10.0 ** -np.arange(0, 101, 20)
    zero = jnp.zeros(())
    terms = [-float(Gaussian(s).log_predictive(zero, zero, zero)) for s in sigmas]
    steps = np.diff(terms)
    holds = np.allclose(steps, -20.0 * math.log(10.0), rtol=1e-9)
    shown = {f"sigma {s:g}": t for s, t in zip(sigmas, terms, strict=True)}
    return order(holds, shown)


def share_of_the_prior() -> Measured:
    """The same windows once, ten times and more: the prior's share of F_MT at one fit."""
    model, data = problem()
    found = energies(model, data)
    scores = sum(float(terms.sum()) for terms in found.terms.values())
    prior = float(found.composed) - scores
    shares = {n * N: prior / (n * scores + prior) for n in (1, 10, 100, 1000)}
    counts, values = np.array([*shares]), np.array([*shares.values()])
    falls = (np.diff(values) < 0.0).all()
    # Order 1/N: N times the share settles.
    settled = abs(counts[-1] * values[-1] / (counts[-2] * values[-2]) - 1.0) < 0.05
    return order(falls and settled, {f"N = {n}": v for n, v in shares.items()})


def task_listed_twice() -> float:
    model, data = problem()
    twice = Model(model.backbone, {**model.tasks, "again": model.tasks["regime"]})
    doubled = Data(
        data.x,
        {**data.y, "again": data.y["regime"]},
        {**data.weight, "again": data.weight["regime"]},
    )
    once = energies(model, data)
    more = total(twice, doubled) - once.composed
    return difference(more, once.shared_cavity["regime"])


def jobs(protocol: Protocol) -> list[Job]:
    return []


_IDENTITIES: dict[str, Callable[[], Measured | float]] = {
    "C246": composition,
    "C247": quadrature,
    "C248": best_variance,
    "C249": implicit_weight,
    "C250": scale_map,
    "C251": scale_map_of_the_backbone,
    "C252": raw_weights,
    "C253": inert_weights,
    "C254": two_buckets,
    "C255": overlap,
    "C256": closed_covariance,
    "C257": closed_mean,
    "C258": bethe,
    "C259": split_of_the_variance,
    "C260": feature_scale,
    "C261": no_lower_bound,
    "C262": share_of_the_prior,
    "C263": task_listed_twice,
}
study(NAME, "the paper's identities, evaluated in double precision", jobs)(
    answered(NAME, {id: in_double(answer) for id, answer in _IDENTITIES.items()})
)
