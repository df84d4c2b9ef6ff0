"""Identities of the objective: how tasks add up, how they scale, and how they weigh."""

from __future__ import annotations

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.optimize import brentq

from scrollmt.heads import Gaussian
from scrollmt.model import Model, rescale_task
from scrollmt.objective import Data
from scrollmt.paper.studies.evidence import Measured, order
from scrollmt.paper.studies.theory_problem import D, H, N, difference, energies, problem, total

C = 8.0
Quadratic = tuple[np.ndarray, np.ndarray]


def composition() -> float:
    """Each block from a model that holds one task alone."""
    model, data = problem()
    blocks = []
    for name, task in model.tasks.items():
        own = Data(data.x, {name: data.y[name]}, {name: data.weight[name]})
        blocks.append(total(Model(model.backbone, {name: task}), own))
    return difference(energies(model, data).composed, sum(blocks))


def best_variance() -> float:
    """The root of the library's own derivative in V, less the mean squared residual."""
    residuals = jnp.asarray(np.random.default_rng(1).normal(size=40))
    head = Gaussian(1e-4)

    def loss(var: Array) -> Array:
        zeros = jnp.zeros_like(residuals)
        return -jnp.mean(head.log_predictive(residuals, zeros, var + zeros))

    slope = jax.jit(jax.grad(loss))
    root = float(brentq(lambda v: float(slope(v)), 0.01, 10.0, xtol=1e-14))
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
