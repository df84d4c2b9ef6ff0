r"""Gaussian beliefs over one task's last-layer weights.

$$q(w) = \mathcal{N}(\mu, \Sigma), \qquad
  w^\top\psi \sim \mathcal{N}(\mu^\top\psi,\; \psi^\top\Sigma\,\psi)$$

A belief turns features into `(mean, var)` of the latent line; a head consumes them and
never sees the belief. The prior term is the overlap with $\mathcal{N}(0, I/\alpha)$
(`eq:fmt`), $-\log \mathcal{N}(\mu;\, 0,\, \Sigma + I/\alpha)$. `cov_floor` times the
identity is part of $\Sigma$ in both places. Features are `(..., H)`.

What a belief asks of the features are `Rows`, so that those of all tasks go through one
product each: `linear` rows meet $\psi$, `square` rows meet $\psi^2$, and under each of the
`roots` the squared norm is taken. `line` makes `(mean, var)` of the three responses.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from scrollmt.backbone import constant_row, unit_draw
from scrollmt.numerics import LOG_SQRT_2PI, normal_energy

PAPER_COV_FLOOR = 1e-4


@dataclass(frozen=True)
class Start:
    r"""Where a model starts.

    Means are $\text{mu}/\sqrt{H}$ times standard normal values, or, if `uniform`, values
    between -1 and 1; the backbone's weights are drawn alike, over the root of their inputs.
    Every sd of a belief starts at exp(`log_sd`).
    """

    mu: float = 0.1
    log_sd: float = -2.0
    uniform: bool = False


NARROW = Start()


class Rows(NamedTuple):
    """What is multiplied with features; or, windows last, what came of it."""

    linear: Float[Array, "L *N"]
    square: Float[Array, "S *N"]
    roots: Float[Array, "G *N"]


class AbstractBelief(eqx.Module):
    """A Gaussian over `H` weights (or, for `Point`, `R` rows of them)."""

    mu: eqx.AbstractVar[Float[Array, "*R H"]]
    # Whether its roots have nothing below the diagonal, where they are then never read.
    triangular: ClassVar[bool] = False

    @classmethod
    @abc.abstractmethod
    def init(
        cls, size: int, key: PRNGKeyArray, *, rows: int, cov_floor: float, start: Start = NARROW
    ) -> Self:
        """A belief around random weights, for a head that reads `rows` lines."""

    @abc.abstractmethod
    def rows(self) -> Rows:
        r"""`(L, H)` rows for $\psi$, `(S, H)` rows for $\psi^2$ and `(G, F, H)` roots."""

    @abc.abstractmethod
    def line(self, read: Rows) -> tuple[Array, Array]:
        """Mean and variance of the latent line from the responses to the rows."""

    def project(self, psi: Float[Array, "*N H"]) -> tuple[Array, Array]:
        """Mean and variance of the latent line at each feature vector."""
        rows = self.rows()
        spread = jnp.tensordot(rows.roots, psi, (-1, -1))
        return self.line(
            Rows(
                jnp.tensordot(rows.linear, psi, (-1, -1)),
                jnp.tensordot(rows.square, psi * psi, (-1, -1)),
                jnp.sum(spread * spread, axis=1),
            )
        )

    @abc.abstractmethod
    def overlap(self, prior_precision: Float[Array, ""]) -> Float[Array, ""]:
        r"""$-\log \int \mathcal{N}(w; 0, I/\alpha)\, q(w)\, dw$."""

    @abc.abstractmethod
    def cov(self) -> Float[Array, "H H"]:
        r"""$\Sigma$ as a matrix, floor included."""

    @abc.abstractmethod
    def scaled(self, factor: float, *, scale_floor: bool) -> Self:
        r"""The belief of `factor` times the weights: $(c\mu, c^2\Sigma)$."""


def _initial_mu(size: int, key: PRNGKeyArray, rows: int, start: Start) -> Array:
    shape = (size,) if rows == 1 else (rows, size)
    return start.mu * unit_draw(key, shape, uniform=start.uniform) / jnp.sqrt(size)


def _no_roots(mu: Array) -> Array:
    size = mu.shape[-1]
    return jnp.zeros((0, size, size), mu.dtype)


class Point(AbstractBelief):
    """A point estimate: the belief with no variance, and no prior term."""

    mu: Float[Array, "*R H"]

    @classmethod
    def init(
        cls, size: int, key: PRNGKeyArray, *, rows: int, cov_floor: float, start: Start = NARROW
    ) -> Self:
        return cls(_initial_mu(size, key, rows, start))

    def rows(self) -> Rows:
        linear = self.mu.reshape(-1, self.mu.shape[-1])
        return Rows(linear, linear[:0], _no_roots(self.mu))

    def line(self, read: Rows) -> tuple[Array, Array]:
        mean = read.linear[0] if self.mu.ndim == 1 else jnp.moveaxis(read.linear, 0, -1)
        return mean, jnp.zeros_like(mean)

    def overlap(self, prior_precision: Float[Array, ""]) -> Float[Array, ""]:
        # With no variance to hold it, a fitted precision would run off to infinity with
        # mu at zero; the point estimate is therefore trained on its data terms alone.
        return jnp.zeros_like(prior_precision)

    def cov(self) -> Float[Array, "H H"]:
        return jnp.zeros((self.mu.shape[-1],) * 2, self.mu.dtype)

    def scaled(self, factor: float, *, scale_floor: bool) -> Self:
        return type(self)(self.mu * factor)


class Diag(AbstractBelief):
    """A diagonal covariance, stored as log standard deviations."""

    mu: Float[Array, " H"]
    log_sd: Float[Array, " H"]
    cov_floor: float = eqx.field(static=True, default=PAPER_COV_FLOOR)

    @classmethod
    def init(
        cls, size: int, key: PRNGKeyArray, *, rows: int, cov_floor: float, start: Start = NARROW
    ) -> Self:
        return cls(_initial_mu(size, key, rows, start), jnp.full((size,), start.log_sd), cov_floor)

    def diagonal(self) -> Float[Array, " H"]:
        return jnp.exp(2.0 * self.log_sd) + self.cov_floor

    def rows(self) -> Rows:
        return Rows(self.mu[None], self.diagonal()[None], _no_roots(self.mu))

    def line(self, read: Rows) -> tuple[Array, Array]:
        return read.linear[0], read.square[0]

    def overlap(self, prior_precision: Float[Array, ""]) -> Float[Array, ""]:
        total = self.diagonal() + 1.0 / prior_precision
        return jnp.sum(LOG_SQRT_2PI + 0.5 * jnp.log(total) + 0.5 * self.mu**2 / total)

    def cov(self) -> Float[Array, "H H"]:
        return jnp.diag(self.diagonal())

    def scaled(self, factor: float, *, scale_floor: bool) -> Self:
        floor = self.cov_floor * factor**2 if scale_floor else self.cov_floor
        return type(self)(self.mu * factor, self.log_sd + jnp.log(factor), floor)


class Full(AbstractBelief):
    """An unrestricted covariance, stored as a Cholesky factor with a log diagonal."""

    mu: Float[Array, " H"]
    log_diagonal: Float[Array, " H"]
    below: Float[Array, "H H"]
    cov_floor: float = eqx.field(static=True, default=PAPER_COV_FLOOR)
    triangular: ClassVar[bool] = True

    @classmethod
    def init(
        cls, size: int, key: PRNGKeyArray, *, rows: int, cov_floor: float, start: Start = NARROW
    ) -> Self:
        return cls(
            _initial_mu(size, key, rows, start),
            jnp.full((size,), start.log_sd),
            jnp.zeros((size, size)),
            cov_floor,
        )

    def factor(self) -> Float[Array, "H H"]:
        return jnp.tril(self.below, -1) + jnp.diag(jnp.exp(self.log_diagonal))

    def rows(self) -> Rows:
        floor = constant_row(self.cov_floor, self.mu)
        return Rows(self.mu[None], floor, self.factor().T[None])

    def line(self, read: Rows) -> tuple[Array, Array]:
        return read.linear[0], read.square[0] + read.roots[0]

    def overlap(self, prior_precision: Float[Array, ""]) -> Float[Array, ""]:
        factor = self.factor()
        ridge = self.cov_floor + 1.0 / prior_precision
        total = factor @ factor.T + ridge * jnp.eye(factor.shape[0], dtype=factor.dtype)
        return normal_energy(self.mu, total)

    def cov(self) -> Float[Array, "H H"]:
        factor = self.factor()
        eye = jnp.eye(factor.shape[0], dtype=factor.dtype)
        return factor @ factor.T + self.cov_floor * eye

    def scaled(self, factor: float, *, scale_floor: bool) -> Self:
        floor = self.cov_floor * factor**2 if scale_floor else self.cov_floor
        return type(self)(
            self.mu * factor, self.log_diagonal + jnp.log(factor), self.below * factor, floor
        )


BELIEFS: dict[str, type[AbstractBelief]] = {
    "none": Point,
    "diag": Diag,
    "full": Full,
}
