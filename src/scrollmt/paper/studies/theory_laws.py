"""Identities of laws and beliefs: integrals, posteriors, and what the data cannot see."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtr

from scrollmt.beliefs import Diag, Full
from scrollmt.heads import PROBIT_BASE_SCALE, Gaussian, Ordinal
from scrollmt.model import Model, Task
from scrollmt.objective import Data, data_terms
from scrollmt.paper.studies.evidence import Measured
from scrollmt.paper.studies.given import Given
from scrollmt.paper.studies.theory_problem import (
    D,
    N,
    difference,
    energies,
    problem,
    total,
)
from scrollmt.routing import posterior


def quadrature() -> float:
    """Each data term against a Gauss-Hermite average of the likelihood over the belief."""
    model, data = problem()
    found = energies(model, data)
    nodes, mass = np.polynomial.hermite_e.hermegauss(120)
    worst = 0.0
    for name, (mean, var) in found.lines.items():
        latent = np.asarray(mean)[:, None] + np.sqrt(np.asarray(var))[:, None] * nodes
        head, y = model.tasks[name].head, np.asarray(data.y[name])[:, None]
        likelihood = LIKELIHOODS[name](head, y, latent)
        average = likelihood @ mass / math.sqrt(2.0 * math.pi)
        worst = max(worst, difference(found.terms[name], -np.log(average)))
    return worst


def _density(head: Any, y: np.ndarray, a: np.ndarray) -> Any:
    """p(y | a) of a value: a normal density around the latent line."""
    sd = float(head.sigma_obs)
    return np.exp(-0.5 * ((y - a) / sd) ** 2) / (sd * math.sqrt(2.0 * math.pi))


def _mass(head: Any, y: np.ndarray, a: np.ndarray) -> Any:
    """p(y | a) of a bucket: the mass between its two cutpoints."""
    edges = np.array([-np.inf, *np.asarray(head.cutpoints), np.inf])
    low, high = ((edges[y + k] - a) / PROBIT_BASE_SCALE for k in (0, 1))
    return ndtr(high) - ndtr(low)


# Written out beside the library's own heads, by the tasks of the problem.
LIKELIHOODS = {"state": _density, "event": _mass, "regime": _mass}


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
        provided=bool(abs(remainder) > 1e-3),
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
