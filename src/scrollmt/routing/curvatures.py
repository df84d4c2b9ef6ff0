r"""A curvature belief (Laplace): a posterior about the weights of a fitted point estimate.

$$\Sigma = \Bigl(\alpha I + \sum_n w_n h_n \psi_n\psi_n^\top\Bigr)^{-1}, \qquad
  h_n = -\partial^2 \log p(y_n \mid a)/\partial a^2$$

at $a = \mu^\top\psi_n$. For a Gaussian task $h_n = 1/\sigma_\text{obs}^2$, and the covariance is
that of the conjugate posterior. Features are `(N, H)`; rows of weight zero do not count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from scrollmt.beliefs import Point
from scrollmt.heads import AbstractHead
from scrollmt.model import Model, Task
from scrollmt.objective import Data
from scrollmt.routing.posteriors import Fixed


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
    diagonal: bool | Mapping[str, bool],
    precisions: Sequence[float],
) -> Model:
    """A point-estimate model with a curvature belief on each head.

    The prior precision of each head is the one of `precisions` with the lowest NLL of that
    head on the validation windows, or on the training windows where these have no label of it. A
    diagonal belief inverts the diagonal of the precision; `diagonal` may differ by task.
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
        flat = diagonal[name] if isinstance(diagonal, Mapping) else diagonal
        roots = jnp.asarray(_roots(np.asarray(matrix, np.float64), precisions, flat), mu.dtype)
        psi, judges = psi_valid, valid
        if not np.any(np.asarray(valid.weight[name]) > 0.0):
            psi, judges = psi_train, train
        nll = _nll_under(head, mu, roots, psi, judges.y[name], judges.weight[name])
        found = np.asarray(nll)
        best = int(np.argmin(np.where(np.isnan(found), np.inf, found)))
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
    if not np.isfinite(matrix).all():
        # The features of a run that broke down: its score is no number either.
        return np.full((len(precisions), *matrix.shape), np.nan)
    # On the host in double precision: near collinear features make the matrix ill-conditioned.
    values, vectors = np.linalg.eigh(np.diag(np.diagonal(matrix)) if diagonal else matrix)
    # What is below zero is rounding or, with heavy tails, an outlier: the prior alone holds there.
    total = np.maximum(values, 0.0) + np.asarray(precisions)[:, None]
    roots: np.ndarray = vectors.T / np.sqrt(total)[:, :, None]
    return roots
