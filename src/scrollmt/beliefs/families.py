"""The four families of beliefs: no variance, a diagonal, an unrestricted covariance, a low rank."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar, Self, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from scrollmt._io.arguments import is_whole, shown
from scrollmt._numerics.normal import LOG_SQRT_2PI, inverse_root, normal_energy
from scrollmt.backbone import constant_row, unit_draw
from scrollmt.beliefs.base import NARROW, AbstractBelief, Rows, Start, gaussian_kl

PAPER_COV_FLOOR = 1e-4
BeliefT = TypeVar("BeliefT", bound=AbstractBelief)


def _initial_mu(size: int, key: PRNGKeyArray, rows: int, start: Start) -> Array:
    shape = (size,) if rows == 1 else (rows, size)
    return start.mu * unit_draw(key, shape, uniform=start.uniform) / jnp.sqrt(size)


def _by_line(one: Callable[[BeliefT], Array], belief: BeliefT) -> Array:
    """What `one` computes from a belief over one line; for several, with an axis of lines first."""
    values: Array = one(belief) if belief.mu.ndim == 1 else jax.vmap(one)(belief)
    return values


def _no_roots(mu: Array) -> Array:
    size = mu.shape[-1]
    return jnp.zeros((0, size, size), mu.dtype)


class Point(AbstractBelief):
    """A point estimate: the belief with no variance, and no prior term."""

    mu: Float[Array, "*L H"]

    @classmethod
    def init(
        cls, size: int, key: PRNGKeyArray, *, rows: int, cov_floor: float, start: Start = NARROW
    ) -> Self:
        return cls(_initial_mu(size, key, rows, start))

    def rows(self) -> Rows:
        linear = self.lines_first(self.mu)
        return Rows(linear, linear[:0], _no_roots(self.mu))

    def overlap(self, prior_precision: Float[Array, ""]) -> Float[Array, ""]:
        # With no variance to hold it, a fitted precision would run off to infinity with
        # mu at zero; the point estimate is therefore trained on its data terms alone.
        return jnp.zeros_like(prior_precision)

    def kl(self, prior_precision: Float[Array, ""]) -> Float[Array, ""]:
        raise ValueError(
            "a point estimate has no KL to a prior, since it has no variance; take a belief such "
            "as 'diag'"
        )

    def cov(self) -> Float[Array, "*L H H"]:
        return jnp.zeros((*self.mu.shape, self.mu.shape[-1]), self.mu.dtype)

    def scaled(self, factor: float, *, scale_floor: bool) -> Self:
        return type(self)(self.mu * factor)


class Diag(AbstractBelief):
    """A diagonal covariance, stored as log standard deviations."""

    mu: Float[Array, "*L H"]
    log_sd: Float[Array, "*L H"]
    cov_floor: float = eqx.field(static=True, default=PAPER_COV_FLOOR)

    @classmethod
    def init(
        cls, size: int, key: PRNGKeyArray, *, rows: int, cov_floor: float, start: Start = NARROW
    ) -> Self:
        mu = _initial_mu(size, key, rows, start)
        return cls(mu, jnp.full(mu.shape, start.log_sd), cov_floor)

    def diagonal(self) -> Float[Array, "*L H"]:
        return jnp.exp(2.0 * self.log_sd) + self.cov_floor

    def rows(self) -> Rows:
        linear, square = map(self.lines_first, (self.mu, self.diagonal()))
        return Rows(linear, square, _no_roots(self.mu))

    def overlap(self, prior_precision: Float[Array, ""]) -> Float[Array, ""]:
        total = self.diagonal() + 1.0 / prior_precision
        return jnp.sum(LOG_SQRT_2PI + 0.5 * jnp.log(total) + 0.5 * self.mu**2 / total)

    def kl(self, prior_precision: Float[Array, ""]) -> Float[Array, ""]:
        # The variance in units of the prior's: no large terms that cancel near the prior.
        ratio = prior_precision * self.diagonal()
        return 0.5 * jnp.sum(ratio - 1.0 - jnp.log(ratio) + prior_precision * self.mu**2)

    def cov(self) -> Float[Array, "*L H H"]:
        return _by_line(lambda one: jnp.diag(one.diagonal()), self)

    def scaled(self, factor: float, *, scale_floor: bool) -> Self:
        floor = self.cov_floor * factor**2 if scale_floor else self.cov_floor
        return type(self)(self.mu * factor, self.log_sd + jnp.log(factor), floor)


class Full(AbstractBelief):
    """An unrestricted covariance, stored as a Cholesky factor with a log diagonal."""

    mu: Float[Array, "*L H"]
    log_diagonal: Float[Array, "*L H"]
    below: Float[Array, "*L H H"]
    cov_floor: float = eqx.field(static=True, default=PAPER_COV_FLOOR)
    triangular: ClassVar[bool] = True

    @classmethod
    def init(
        cls, size: int, key: PRNGKeyArray, *, rows: int, cov_floor: float, start: Start = NARROW
    ) -> Self:
        mu = _initial_mu(size, key, rows, start)
        below = jnp.zeros((*mu.shape, size))
        return cls(mu, jnp.full(mu.shape, start.log_sd), below, cov_floor)

    def factor(self) -> Float[Array, "*L H H"]:
        diagonal = _by_line(lambda one: jnp.diag(jnp.exp(one.log_diagonal)), self)
        return jnp.tril(self.below, -1) + diagonal

    def rows(self) -> Rows:
        linear = self.lines_first(self.mu)
        floor = constant_row(self.cov_floor, linear)[0]
        return Rows(linear, floor, self.lines_first(jnp.swapaxes(self.factor(), -1, -2)))

    def overlap(self, prior_precision: Float[Array, ""]) -> Float[Array, ""]:
        extra = 1.0 / prior_precision
        return jnp.sum(_by_line(lambda one: normal_energy(one.mu, one.ridged(extra)), self))

    def kl(self, prior_precision: Float[Array, ""]) -> Float[Array, ""]:
        trace = jnp.sum(self.factor() ** 2) + self.mu.size * self.cov_floor
        if self.cov_floor:
            logs = _by_line(lambda one: jnp.log(jnp.diagonal(inverse_root(one.cov()))), self)
        else:
            logs = -self.log_diagonal
        return gaussian_kl(self.mu, trace, -2.0 * jnp.sum(logs), prior_precision)

    def ridged(self, extra: float | Float[Array, ""]) -> Float[Array, "*L H H"]:
        r"""$\Sigma$ with `extra` added to the diagonal."""
        factor = self.factor()
        eye = jnp.eye(factor.shape[-1], dtype=factor.dtype)
        return factor @ jnp.swapaxes(factor, -1, -2) + (self.cov_floor + extra) * eye

    def cov(self) -> Float[Array, "*L H H"]:
        return self.ridged(0.0)

    def scaled(self, factor: float, *, scale_floor: bool) -> Self:
        floor = self.cov_floor * factor**2 if scale_floor else self.cov_floor
        return type(self)(
            self.mu * factor, self.log_diagonal + jnp.log(factor), self.below * factor, floor
        )


# The part of the variance that a low-rank factor starts with. Any share serves, except none: at
# zero the gradient of the factor is zero.
_FACTOR_SHARE = 0.1
DEFAULT_RANK = 4


class LowRank(AbstractBelief):
    r"""A covariance of low rank plus a diagonal: $\Sigma = \text{diag}(s^2) + U^\top U$.

    With $D = \text{diag}(s^2) + I/\alpha$ and $M = I + U D^{-1} U^\top$, of shape `(F, F)`, the
    overlap follows from the matrix determinant lemma and the Woodbury identity in $O(HF^2)$:

    $$\log\lvert D + U^\top U\rvert = \log\lvert D\rvert + \log\lvert M\rvert, \qquad
      \mu^\top (D + U^\top U)^{-1} \mu = r^\top D^{-1} r + z^\top z,$$

    with $z = M^{-1} U D^{-1} \mu$ and $r = \mu - U^\top z$. Both terms on the right are positive,
    so that nothing cancels in float32.
    """

    mu: Float[Array, "*L H"]
    log_sd: Float[Array, "*L H"]
    factor: Float[Array, "*L F H"]
    cov_floor: float = eqx.field(static=True, default=PAPER_COV_FLOOR)

    @classmethod
    def init(
        cls,
        size: int,
        key: PRNGKeyArray,
        *,
        rows: int,
        cov_floor: float,
        start: Start = NARROW,
        rank: int = DEFAULT_RANK,
    ) -> Self:
        if not is_whole(rank) or not 1 <= rank <= size:
            raise ValueError(
                f"rank must be a whole number from 1 to the number of features, {size}, got "
                f"{shown(rank)}; pass LowRank.of(rank=...)"
            )
        mu = _initial_mu(size, key, rows, start)
        # Entries of one size and random sign leave every sd exactly at exp(log_sd).
        shape = (*mu.shape[:-1], rank, size)
        signs = jax.random.rademacher(jax.random.fold_in(key, 1), shape, dtype=float)
        return cls(
            mu,
            jnp.full(mu.shape, start.log_sd + 0.5 * math.log1p(-_FACTOR_SHARE)),
            signs * math.exp(start.log_sd) * math.sqrt(_FACTOR_SHARE / rank),
            cov_floor,
        )

    def diagonal(self) -> Float[Array, "*L H"]:
        return jnp.exp(2.0 * self.log_sd) + self.cov_floor

    def rows(self) -> Rows:
        return Rows(*map(self.lines_first, (self.mu, self.diagonal(), self.factor)))

    def overlap(self, prior_precision: Float[Array, ""]) -> Float[Array, ""]:
        return jnp.sum(_by_line(lambda one: one._line_overlap(prior_precision), self))

    def _line_overlap(self, prior_precision: Float[Array, ""]) -> Float[Array, ""]:
        total = self.diagonal() + 1.0 / prior_precision
        scaled = self.factor / total
        eye = jnp.eye(self.factor.shape[0], dtype=self.mu.dtype)
        white = inverse_root(eye + scaled @ self.factor.T)
        z = white.T @ (white @ (scaled @ self.mu))
        rest = self.mu - z @ self.factor
        terms = LOG_SQRT_2PI + 0.5 * jnp.log(total) + 0.5 * rest**2 / total
        return jnp.sum(terms) + jnp.sum(0.5 * z**2 - jnp.log(jnp.diagonal(white)))

    def kl(self, prior_precision: Float[Array, ""]) -> Float[Array, ""]:
        diagonal = self.diagonal()
        trace = jnp.sum(diagonal) + jnp.sum(self.factor**2)
        inner = jnp.sum(_by_line(lambda one: one._line_log_det(), self))
        log_det = jnp.sum(jnp.log(diagonal)) + inner
        return gaussian_kl(self.mu, trace, log_det, prior_precision)

    def _line_log_det(self) -> Float[Array, ""]:
        r"""$\log\lvert I + U\,\text{diag}(s^2)^{-1} U^\top\rvert$ of one line."""
        eye = jnp.eye(self.factor.shape[0], dtype=self.mu.dtype)
        white = inverse_root(eye + (self.factor / self.diagonal()) @ self.factor.T)
        return -2.0 * jnp.sum(jnp.log(jnp.diagonal(white)))

    def cov(self) -> Float[Array, "*L H H"]:
        return _by_line(lambda one: jnp.diag(one.diagonal()) + one.factor.T @ one.factor, self)

    def scaled(self, factor: float, *, scale_floor: bool) -> Self:
        floor = self.cov_floor * factor**2 if scale_floor else self.cov_floor
        return type(self)(
            self.mu * factor, self.log_sd + jnp.log(factor), self.factor * factor, floor
        )


BELIEFS: dict[str, type[AbstractBelief]] = {
    "none": Point,
    "diag": Diag,
    "full": Full,
    "low-rank": LowRank,
}
