r"""Beliefs of Gaussian tasks that are set in closed form at each step instead of being trained.

The binding map of a Gaussian task (`app:scroll`, routing) gives its belief the conjugate
posterior of the training design,

$$\Sigma = (\alpha I + \Psi^\top\Psi/\sigma_\text{obs}^2)^{-1}, \qquad
  \mu = \Sigma\,\Psi^\top y/\sigma_\text{obs}^2,$$

whose covariance sees the labels nowhere. Features are `(N, H)`; rows of weight zero do not count.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from scrollmt._numerics.normal import LOG_SQRT_2PI, inverse_root, normal_energy
from scrollmt.beliefs import NARROW, AbstractBelief, Rows, Start
from scrollmt.couplings import Coupling
from scrollmt.heads import Gaussian
from scrollmt.model import AbstractModel, Backbone, Model, Task
from scrollmt.objective import Data, data_terms, precision_term, prior_term


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
    """A model whose Gaussian tasks `names` read the posteriors of the windows it carries.

    The beliefs that the bound tasks have in `model` itself are never used.
    """

    model: Model
    train: Data
    names: tuple[str, ...] = eqx.field(static=True)

    @property
    def backbone(self) -> Backbone:
        return self.model.backbone

    @property
    def tasks(self) -> dict[str, Task]:
        return self.settled().tasks

    @property
    def couplings(self) -> tuple[Coupling, ...]:
        return self.model.couplings

    def designs(self) -> dict[str, tuple[Array, Array, Array, Array, Array]]:
        """Features, labels, weights, prior precision and noise of each bound task."""
        psi = self.model.features(self.train.x)
        found = {}
        for name in self.names:
            task = self.model.tasks[name]
            assert isinstance(task.head, Gaussian)
            y, weight = self.train.y[name], self.train.weight[name]
            found[name] = psi, y, weight, task.prior_precision, task.head.sigma_obs
        return found

    def settled(self) -> Model:
        """The plain model with the posteriors in their places."""
        tasks = dict(self.model.tasks)
        for name, design in self.designs().items():
            tasks[name] = replace(tasks[name], belief=posterior(*design))
        return Model(self.model.backbone, tasks, self.model.couplings)

    def project(self, x: Float[Array, "N D"]) -> dict[str, tuple[Array, Array]]:
        return self.settled().project(x)

    def trained(self) -> Bound:
        """Which leaves training moves: those of the model, without the bound tasks' own beliefs."""

        def fixed(bound: Bound) -> list[Any]:
            return [bound.train, *(bound.model.tasks[name].belief for name in bound.names)]

        wanted = jax.tree.map(eqx.is_inexact_array, self)
        off = [jax.tree.map(lambda _: False, part) for part in fixed(self)]
        trained: Bound = eqx.tree_at(fixed, wanted, off)
        return trained


def bindable(model: Model) -> tuple[str, ...]:
    """The tasks that have a posterior in closed form: Gaussian ones."""
    return tuple(name for name, task in model.tasks.items() if isinstance(task.head, Gaussian))


def bind(model: Model, train: Data, *names: str) -> Bound:
    """Tie the beliefs of Gaussian tasks to their posteriors given these windows."""
    for name in names:
        if name not in bindable(model):
            raise ValueError(f"only a Gaussian task has a binding map; {name!r} is not one")
        if any(name in coupling.names for coupling in model.couplings):
            raise ValueError(
                f"task {name!r} is coupled by its noise: it has no binding map of its own"
            )
    return Bound(model, train, names)


def evidence_composed(
    bound: Bound, data: Data, *, data_scale: float | Array = 1.0
) -> Float[Array, ""]:
    """The composed objective with the bound tasks' terms replaced by their log evidence.

    The evidence is that of all windows that the model carries, whatever `data` holds of them.
    """
    total = jnp.zeros(())
    for name, design in bound.designs().items():
        total = total - log_evidence(*design) + precision_term(bound.model.tasks[name])
    for name, terms in data_terms(bound.model, data).items():
        if name not in bound.names:
            total = total + data_scale * jnp.sum(terms) + prior_term(bound.model.tasks[name])
    return total
