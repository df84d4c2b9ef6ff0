r"""Noise that Gaussian tasks share: the joint observation model (`app:future`).

$$y_n \sim \mathcal{N}(\text{mean}_n, V_n), \qquad V_n = \Sigma_\text{obs} +
  \operatorname{diag}(\psi_n^\top\Sigma_1\psi_n, \dots, \psi_n^\top\Sigma_J\psi_n), \qquad
  \Sigma_\text{obs} = S\,C C^\top S$$

The standard deviations $S$ stay in the heads; a coupling holds $C$, lower triangular with rows
of norm one, so that $CC^\top$ is the noise correlation. The noise of task $j$ is then
$\sigma_j \sum_{i \le j} C_{ji}\varepsilon_i$ with standard normal $\varepsilon$, and the joint log
score is a sum over the tasks in turn,

$$\log m_n(y) = \sum_j \log m_n(y_j \mid y_{<j}).$$

Given earlier labels, task $j$ is a Gaussian head as before: it consumes `(y, mean, var)` with the
mean moved by what earlier labels say about $\varepsilon_{<j}$, the var raised by what they leave
open of it, and its own noise $\sigma_j C_{jj}$. With $L_n L_n^\top = V_n$ and the standardised
residuals $z_n = L_n^{-1}(y_n - \text{mean}_n)$ of the labels before,

$$\text{mean}_j + \sum_{k<j} L_{jk} z_k, \qquad
  \text{var}_j + \sigma_j^2 \sum_{i<j} C_{ji}^2 - \sum_{k<j} L_{jk}^2.$$

A missing label says nothing about $\varepsilon$, which gives exactly the law of the labels that
were observed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from scrollmt.heads import AbstractHead, Gaussian
from scrollmt.laws.joint import JointLaw

Groups = tuple[tuple[str, ...], ...]


class Coupling(eqx.Module):
    """The noise correlation of the tasks `names`; it starts at none."""

    names: tuple[str, ...] = eqx.field(static=True)
    below: Float[Array, "J J"]

    def __init__(self, names: Iterable[str]):
        self.names = tuple(names)
        self.below = jnp.zeros((len(self.names), len(self.names)))

    def factor(self) -> Float[Array, "J J"]:
        """C, lower triangular; its diagonal is positive for every value of the parameters."""
        rows = jnp.tril(self.below, -1) + jnp.eye(len(self.names), dtype=self.below.dtype)
        return rows / jnp.sqrt(jnp.sum(rows * rows, axis=1, keepdims=True))

    def correlation(self) -> Float[Array, "J J"]:
        r"""$C C^\top$, the correlation of the noise."""
        factor = self.factor()
        return factor @ factor.T

    def in_turn(
        self,
        read: Mapping[str, tuple[AbstractHead, Array, Array]],
        y: Mapping[str, Array],
        weight: Mapping[str, Array],
    ) -> dict[str, tuple[AbstractHead, Array, Array]]:
        """Head, mean and var of every task given the observed labels of those before it.

        A label is observed where its weight is positive. Shapes: all arrays are `(N,)`.
        """
        factor = self.factor()
        sigma = [cast(Gaussian, read[name][0]).sigma_obs for name in self.names]
        reach = [sigma[j] * factor[j] for j in range(len(sigma))]
        # Row by row the Cholesky factor of V_n, and the standardised residual of each label. An
        # unobserved label has neither, which leaves the factor of those that were observed.
        below: list[list[Array]] = []
        residual: list[Array] = []
        out: dict[str, tuple[AbstractHead, Array, Array]] = {}
        for j, name in enumerate(self.names):
            head, mean, var = read[name]
            row: list[Array] = []
            for k, earlier in enumerate(self.names[:j]):
                left = jnp.sum(reach[j] * reach[k]) - _dot(row, below[k][:k])
                row.append(jnp.where(weight[earlier] > 0, left / below[k][k], 0.0))
            expected = mean + _dot(row, residual)
            # What earlier labels have not explained of the shared noise; only rounding, as for
            # labels that all but repeat each other, can make it negative.
            shared = jnp.maximum(jnp.sum(reach[j][:j] ** 2) - _dot(row, row), 0.0)
            out[name] = (cast(Gaussian, head).scaled(factor[j, j]), expected, var + shared)
            sd = jnp.sqrt(reach[j][j] ** 2 + var + shared)
            below.append([*row, sd])
            residual.append(jnp.where(weight[name] > 0, (y[name] - expected) / sd, 0.0))
        return out

    def law(
        self,
        heads: Mapping[str, AbstractHead],
        lines: Mapping[str, tuple[np.ndarray, np.ndarray]],
    ) -> JointLaw:
        """The joint plate predictives of the coupled tasks, from `(mean, var)` of each."""
        sigma = np.exp([float(cast(Gaussian, heads[n]).log_sigma_obs) for n in self.names])
        rows = np.asarray(self.factor(), np.float64)
        # Of norm one in this precision too, so that the margins are those of the heads.
        factor = sigma[:, None] * rows / np.linalg.norm(rows, axis=1, keepdims=True)
        var = np.stack([lines[name][1] for name in self.names], axis=1).astype(np.float64)
        cov = factor @ factor.T + var[:, :, None] * np.eye(len(sigma))
        return JointLaw(self.names, np.stack([lines[n][0] for n in self.names], axis=1), cov)


def _dot(a: Sequence[Array], b: Sequence[Array]) -> Array:
    """Written out over the few tasks: the compiler fuses it into one loop over the windows."""
    return sum((x * y for x, y in zip(a, b, strict=True)), start=jnp.zeros(()))


def _members(group: Any) -> list[Any]:
    """What a list holds; anything else is a list of itself, to be refused by name."""
    return [group] if isinstance(group, str) or not isinstance(group, Iterable) else list(group)


def read_groups(joint: Any, heads: Mapping[str, AbstractHead]) -> Groups:
    """One group of task names, or several, as a tuple of groups that can be coupled."""
    if joint is None:
        return ()
    given = _members(joint)
    one_group = any(isinstance(one, str) for one in given)
    groups = (given,) if one_group else tuple(_members(one) for one in given)
    taken: set[str] = set()
    for group in groups:
        named = all(isinstance(name, str) for name in group)
        if not named or len(group) < 2 or len(set(group)) < len(group):
            raise ValueError(
                f"joint: {group} is no group of two or more different tasks; "
                "write joint=['a', 'b'], or joint=[['a', 'b'], ['c', 'd']]"
            )
        for name in group:
            if name not in heads:
                raise ValueError(f"joint names an unknown task {name!r}; there are {list(heads)}")
            if not isinstance(heads[name].variants[0], Gaussian):
                raise ValueError(
                    f"joint: task {name!r} is {heads[name]!r}, and only Gaussian tasks have noise "
                    "that can be correlated; leave it out of the group"
                )
            if name in taken:
                raise ValueError(f"joint: task {name!r} is in two groups; make them one")
        taken |= set(group)
    return tuple(map(tuple, groups))
