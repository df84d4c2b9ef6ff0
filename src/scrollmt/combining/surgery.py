"""Surgery on the gradients of the shared parameters: `PCGrad`, `UPGrad` and `MGDA`.

All three need the inner products of the tasks' gradients alone, a matrix of K by K.
"""

from __future__ import annotations

import abc
import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from scrollmt.combining.base import AbstractRule

# The active sets of a quadratic program are all tried: 2^K of them.
MOST_TASKS = 8


@dataclass(frozen=True, kw_only=True)
class AbstractSurgery(AbstractRule):
    """A rule without a state that sees inner products alone and acts on shared parameters alone."""

    @property
    def weights_losses(self) -> bool:
        return False

    def begin(self, count: int) -> tuple[()]:
        return ()

    def weigh(
        self, gram: Array, losses: Array, state: tuple[()], key: Key[Array, ""]
    ) -> tuple[Array, tuple[()]]:
        return self.from_products(gram, key), ()

    @abc.abstractmethod
    def from_products(
        self, gram: Float[Array, "K K"], key: Key[Array, ""]
    ) -> Float[Array, " K"]: ...


@dataclass(frozen=True, kw_only=True)
class PCGrad(AbstractSurgery):
    r"""Yu et al. 2020: a task's gradient loses what points against each other task, one by one.

    $g_i \leftarrow g_i - \min(0, g_i^\top g_j) / |g_j|^2\, g_j$ over $j \ne i$ in a random order,
    another one for every task and step; the results are added up.
    """

    def from_products(self, gram: Float[Array, "K K"], key: Key[Array, ""]) -> Float[Array, " K"]:
        count = len(gram)
        keys = jax.random.split(key, count)
        orders = jax.vmap(lambda one: jax.random.permutation(one, count))(keys)
        return projected_in_order(gram, orders)


def projected_in_order(gram: Float[Array, "K K"], orders: Int[Array, "K K"]) -> Float[Array, " K"]:
    """The weights of PCGrad, with the order of each task's projections as a row."""

    def one(task: Array, order: Array) -> Array:
        def project(weights: Array, other: Array) -> tuple[Array, None]:
            overlap = jnp.minimum(weights @ gram[other], 0.0)
            # A gradient of length zero has no direction and nothing points against it.
            share = overlap / jnp.where(gram[other, other] > 0.0, gram[other, other], 1.0)
            share = jnp.where(other == task, 0.0, share)
            return weights.at[other].add(-share), None

        begun = jax.nn.one_hot(task, len(gram), dtype=gram.dtype)
        return jax.lax.scan(project, begun, order)[0]

    return jnp.sum(jax.vmap(one)(jnp.arange(len(gram)), orders), axis=0)


@dataclass(frozen=True, kw_only=True)
class UPGrad(AbstractSurgery):
    r"""Quinton and Rey 2024: every gradient is projected onto the cone that harms no task.

    The sum over i of the d that minimises $|d - g_i|^2$ subject to $d^\top g_k \ge 0$ for all $k$.
    The dual is $\min_{v \ge e_i} v^\top G G^\top v$ with $d = G^\top v$, solved exactly for up to
    8 tasks.
    """

    def from_products(self, gram: Float[Array, "K K"], key: Key[Array, ""]) -> Float[Array, " K"]:
        count = len(gram)
        length = jnp.sqrt(jnp.diagonal(gram))
        length = jnp.where(length > 0.0, length, 1.0)
        # In units of each gradient's length, so that long and short ones are as well solved.
        cosines = gram / (length[:, None] * length)
        least = jnp.diag(length)
        found = jax.vmap(functools.partial(_above, cosines, _subsets(count)))(least)
        return jnp.sum(found, axis=0) / length


def _above(
    matrix: Float[Array, "K K"], subsets: Bool[np.ndarray, "S K"], least: Float[Array, " K"]
) -> Float[Array, " K"]:
    """Where $v^T M v$ is lowest over v >= least: the subset of free entries that is optimal."""

    def one(free: Array) -> tuple[Array, Array]:
        held = jnp.where(free, 0.0, least)
        system = jnp.where(free[:, None] & free, matrix, jnp.eye(len(least), dtype=matrix.dtype))
        solved = jnp.linalg.solve(system, jnp.where(free, -(matrix @ held), least))
        slope = matrix @ solved
        broken = jnp.where(free, jnp.maximum(least - solved, jnp.abs(slope)), -slope)
        return solved, jnp.max(broken)

    return _least_broken(*jax.vmap(one)(jnp.asarray(subsets)))


@dataclass(frozen=True, kw_only=True)
class MGDA(AbstractSurgery):
    r"""Désidéri 2012: the shortest convex combination of the gradients, times the number of tasks.

    $\min_w |G^\top w|^2$ over $w \ge 0$, $\sum_k w_k = 1$, solved exactly for up to 8 tasks. It is
    zero exactly where no step helps every task. The shortest gradients get the largest weights, so
    tasks in other units are weighted differently.
    """

    def from_products(self, gram: Float[Array, "K K"], key: Key[Array, ""]) -> Float[Array, " K"]:
        count = len(gram)
        subsets = jnp.asarray(_subsets(count)[1:])
        largest = jnp.max(jnp.diagonal(gram))
        matrix = gram / jnp.where(largest > 0.0, largest, 1.0)

        def one(used: Array) -> tuple[Array, Array]:
            # The bordered system of the weights that are not zero, and of their multiplier.
            system = jnp.where(used[:, None] & used, matrix, jnp.eye(count, dtype=gram.dtype))
            edge = used.astype(gram.dtype)
            corner = jnp.zeros((1, 1), gram.dtype)
            bordered = jnp.block([[system, -edge[:, None]], [edge[None, :], corner]])
            solved = jnp.linalg.solve(bordered, jnp.zeros(count + 1, gram.dtype).at[-1].set(1.0))
            weights, level = solved[:-1], solved[-1]
            above = level - matrix @ weights
            return weights, jnp.max(jnp.maximum(jnp.where(used, jnp.abs(above), above), -weights))

        return count * _least_broken(*jax.vmap(one)(subsets))


def _subsets(count: int) -> Bool[np.ndarray, "S K"]:
    """All subsets of the tasks, the empty one first."""
    if count > MOST_TASKS:
        raise ValueError(
            f"UPGrad and MGDA try all subsets of the tasks and take at most {MOST_TASKS} of them, "
            f"got {count}; use PCGrad"
        )
    numbers = np.arange(2**count)[:, None]
    return np.asarray((numbers >> np.arange(count)) & 1, dtype=bool)


def _least_broken(solutions: Float[Array, "S K"], broken: Float[Array, " S"]) -> Float[Array, " K"]:
    """The solution whose conditions are broken least; a singular system has none."""
    whole = jnp.isfinite(broken) & jnp.isfinite(solutions).all(axis=1)
    return solutions[jnp.argmin(jnp.where(whole, broken, jnp.inf))]
