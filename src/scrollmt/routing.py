r"""Beliefs that are set in closed form instead of being trained.

The binding map of a Gaussian task (`app:scroll`, routing) gives its belief the conjugate
posterior of the training design,

$$\Sigma = (\alpha I + \Psi^\top\Psi/\sigma_\text{obs}^2)^{-1}, \qquad
  \mu = \Sigma\,\Psi^\top y/\sigma_\text{obs}^2,$$

whose covariance sees the labels nowhere. A curvature belief (Laplace) does the same for any
head after training, with $-\partial^2 \log p(y \mid a)/\partial a^2$ in the place of
$1/\sigma_\text{obs}^2$. Features are `(N, H)`; rows of weight zero do not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from scrollmt._numerics.normal import LOG_SQRT_2PI, inverse_root, normal_energy
from scrollmt.beliefs import NARROW, AbstractBelief, Point, Rows, Start
from scrollmt.couplings import Coupling
from scrollmt.heads import AbstractHead, Gaussian
from scrollmt.model import AbstractModel, Backbone, Model, Task
from scrollmt.objective import Data, data_terms, prior_term


class Fixed(AbstractBelief):
    r"""A belief that was computed, not trained: $\Sigma = R^\top R$ for the root $R$ it holds."""

    mu: Float[Array, " H"]
    root: Float[Array, "F H"]

    @classmethod
    def init(
        cls, size: int, key: PRNGKeyArray, *, rows: int, cov_floor: float, start: Start = NARROW
    ) -> Self:
        raise ValueError("a fixed belief comes out of a computation; there is no start to train it")

    def rows(self) -> Rows:
        return Rows(self.mu[None], jnp.zeros((0, *self.mu.shape), self.mu.dtype), self.root[None])

    def overlap(self, prior_precision: Float[Array, ""]) -> Float[Array, ""]:
        eye = jnp.eye(self.mu.shape[0], dtype=self.mu.dtype)
        return normal_energy(self.mu, self.cov() + eye / prior_precision)

    def cov(self) -> Float[Array, "H H"]:
        return self.root.T @ self.root

    def scaled(self, factor: float, *, scale_floor: bool) -> Self:
        return type(self)(self.mu * factor, self.root * factor)


def posterior(
    psi: Float[Array, "N H"],
    y: Float[Array, " N"],
    weight: Float[Array, " N"],
    prior_precision: Float[Array, ""],
    sigma_obs: Float[Array, ""],
) -> Fixed:
    """The binding map: the conjugate posterior of a Gaussian task's weights."""
    scaled = psi.T * (weight / sigma_obs**2)
    eye = jnp.eye(psi.shape[1], dtype=psi.dtype)
    root = inverse_root(prior_precision * eye + scaled @ psi)
    return Fixed(root.T @ (root @ (scaled @ y)), root)


def log_evidence(
    psi: Float[Array, "N H"],
    y: Float[Array, " N"],
    weight: Float[Array, " N"],
    prior_precision: Float[Array, ""],
    sigma_obs: Float[Array, ""],
) -> Float[Array, ""]:
    r"""$\log \mathcal{N}(y;\, 0,\, \sigma_\text{obs}^2 I + \Psi\Psi^\top/\alpha)$ through H x H."""
    belief = posterior(psi, y, weight, prior_precision, sigma_obs)
    log_det = -2.0 * jnp.sum(jnp.log(jnp.diagonal(belief.root)))
    residual = y - psi @ belief.mu
    noise = jnp.sum(weight * (LOG_SQRT_2PI + jnp.log(sigma_obs)))
    misfit = jnp.sum(weight * residual**2) / sigma_obs**2
    size = psi.shape[1]
    shrinkage = prior_precision * jnp.sum(belief.mu**2)
    return -noise + 0.5 * (size * jnp.log(prior_precision) - log_det - misfit - shrinkage)


class Bound(AbstractModel):
    """A model whose Gaussian task `name` reads the posterior of the windows it carries.

    The belief that the bound task has in `model` itself is never used.
    """

    model: Model
    train: Data
    name: str = eqx.field(static=True)

    @property
    def backbone(self) -> Backbone:
        return self.model.backbone

    @property
    def tasks(self) -> dict[str, Task]:
        return self.settled().tasks

    @property
    def couplings(self) -> tuple[Coupling, ...]:
        return self.model.couplings

    def design(self) -> tuple[Array, Array, Array, Array, Array]:
        """Features, labels, weights, prior precision and noise of the bound task."""
        task = self.model.tasks[self.name]
        assert isinstance(task.head, Gaussian)
        return (
            self.model.features(self.train.x),
            self.train.y[self.name],
            self.train.weight[self.name],
            task.prior_precision,
            task.head.sigma_obs,
        )

    def settled(self) -> Model:
        """The plain model with the posterior in its place."""
        task = self.model.tasks[self.name]
        bound = replace(task, belief=posterior(*self.design()))
        tasks = {**self.model.tasks, self.name: bound}
        return Model(self.model.backbone, tasks, self.model.couplings)

    def project(self, x: Float[Array, "N D"]) -> dict[str, tuple[Array, Array]]:
        return self.settled().project(x)


def bind(model: Model, train: Data, name: str) -> Bound:
    """Tie a Gaussian task's belief to the posterior of these windows."""
    if name not in model.tasks or not isinstance(model.tasks[name].head, Gaussian):
        raise ValueError(f"only a Gaussian task has a binding map; {name!r} is not one")
    if any(name in coupling.names for coupling in model.couplings):
        raise ValueError(f"task {name!r} is coupled by its noise: it has no binding map of its own")
    return Bound(model, train, name)


def trained_leaves(bound: Bound) -> Bound:
    """Which leaves training moves: those of the model, without the bound task's own belief."""
    wanted = jax.tree.map(eqx.is_inexact_array, bound)
    off = jax.tree.map(lambda _: False, bound.model.tasks[bound.name].belief)
    wanted = eqx.tree_at(lambda b: b.model.tasks[b.name].belief, wanted, off)
    data = jax.tree.map(lambda _: False, bound.train)
    trained: Bound = eqx.tree_at(lambda b: b.train, wanted, data)
    return trained


def evidence_composed(bound: Bound, data: Data) -> Float[Array, ""]:
    """The composed objective with the bound task's terms replaced by its log evidence."""
    total = -log_evidence(*bound.design())
    for name, terms in data_terms(bound.model, data).items():
        if name != bound.name:
            total = total + jnp.sum(terms) + prior_term(bound.model.tasks[name])
    return total


def curvature(
    head: AbstractHead, psi: Float[Array, "N H"], y: Array, weight: Array, mu: Float[Array, " H"]
) -> Float[Array, "H H"]:
    r"""$\sum_n w_n h_n \psi_n\psi_n^\top$ with $h_n = -\partial^2 \log p(y_n \mid a)/\partial a^2$
    at $a = \mu^\top\psi_n$, the head's own parameters held."""

    def log_p(a: Array, y: Array) -> Array:
        return head.log_predictive(y, a, jnp.zeros_like(a))

    h: Array = -jax.vmap(jax.grad(jax.grad(log_p)))(psi @ mu, y)
    return (psi.T * (weight * h)) @ psi


def laplace(
    model: Model,
    train: Data,
    valid: Data,
    *,
    diagonal: bool,
    precisions: Sequence[float],
) -> Model:
    """A point-estimate model with a curvature belief on each head.

    The prior precision of each head is the one of `precisions` with the lowest NLL of that
    head on the validation windows. A diagonal belief inverts the diagonal of the precision.
    """
    if any(not isinstance(task.belief, Point) for task in model.tasks.values()):
        raise ValueError("laplace adds beliefs to a point estimate; this model has beliefs already")
    if model.couplings:
        raise ValueError("laplace takes one head at a time; the heads of this model are coupled")
    wide = [name for name, task in model.tasks.items() if task.head.rows > 1]
    if wide:
        raise ValueError(f"laplace needs heads that read one latent line; {wide} read several")
    psi_train, psi_valid = model.features(train.x), model.features(valid.x)
    tasks = {}
    for name, task in model.tasks.items():
        mu, head = task.belief.mu, task.head
        matrix = _compiled_curvature(head, psi_train, train.y[name], train.weight[name], mu)
        roots = jnp.asarray(_roots(np.asarray(matrix, np.float64), precisions, diagonal), mu.dtype)
        nll = _nll_under(head, mu, roots, psi_valid, valid.y[name], valid.weight[name])
        best = int(np.nanargmin(np.asarray(nll)))
        chosen = jnp.log(jnp.asarray(precisions[best], mu.dtype))
        tasks[name] = Task(head, Fixed(mu, roots[best]), chosen)
    return Model(model.backbone, tasks)


_compiled_curvature = eqx.filter_jit(curvature)


@eqx.filter_jit
def _nll_under(
    head: AbstractHead,
    mu: Float[Array, " H"],
    roots: Float[Array, "P H H"],
    psi: Float[Array, "N H"],
    y: Array,
    weight: Float[Array, " N"],
) -> Float[Array, " P"]:
    """Mean NLL of one head under each of several beliefs around the same mean."""

    def one(root: Array) -> Array:
        terms = head.log_predictive(y, psi @ mu, jnp.sum((psi @ root.T) ** 2, axis=1))
        return -jnp.sum(weight * terms) / jnp.sum(weight)

    nll: Array = jax.lax.map(one, roots)
    return nll


def _roots(matrix: np.ndarray, precisions: Sequence[float], diagonal: bool) -> np.ndarray:
    """Roots `(P, H, H)` of the inverse of a curvature plus each of the precisions."""
    # On the host in double precision: near collinear features make the matrix ill-conditioned.
    values, vectors = np.linalg.eigh(np.diag(np.diagonal(matrix)) if diagonal else matrix)
    # What is below zero is rounding or, with heavy tails, an outlier: the prior alone holds there.
    total = np.maximum(values, 0.0) + np.asarray(precisions)[:, None]
    roots: np.ndarray = vectors.T / np.sqrt(total)[:, :, None]
    return roots
