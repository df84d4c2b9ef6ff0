r"""Gaussian beliefs over one task's last-layer weights.

$$q(w) = \mathcal{N}(\mu, \Sigma), \qquad
  w^\top\psi \sim \mathcal{N}(\mu^\top\psi,\; \psi^\top\Sigma\,\psi)$$

A belief turns features into `(mean, var)` of the latent line; a head consumes them and
never sees the belief. The prior term is the overlap with $\mathcal{N}(0, I/\alpha)$
(`eq:fmt`), $-\log \mathcal{N}(\mu;\, 0,\, \Sigma + I/\alpha)$. `cov_floor` times the
identity is part of $\Sigma$ in both places. Features are `(..., H)`.

A belief states its mean and covariance as `Rows`, so that the rows of all tasks go through one
product: with `linear` rows $a$, `square` rows $d$ and `roots` $R$ of shape `(F, H)`,

$$\text{mean} = a^\top\psi, \qquad
  \text{var} = \textstyle\sum_d d^\top\psi^2 + \sum_R \lVert R\,\psi \rVert^2.$$

Beliefs may differ in `F`: those with equal `F` share a product.
"""

from __future__ import annotations

import abc
import functools
import inspect
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from scrollmt._io.arguments import is_whole, shown
from scrollmt._numerics.normal import LOG_SQRT_2PI, inverse_root, normal_energy
from scrollmt.backbone import constant_row, unit_draw

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
    """A Gaussian over `H` weights (or, for `Point`, `R` rows of them).

    A belief of your own is a subclass with the five abstract methods. It is given to
    `Forecaster(belief=...)` as a class or, with options of its `init`, as `Mine.of(option=...)`.
    """

    mu: eqx.AbstractVar[Float[Array, "*R H"]]
    # Whether its roots have nothing below the diagonal, where they are then never read.
    triangular: ClassVar[bool] = False

    @classmethod
    def of(cls, **options: Any) -> Maker:
        """This belief with options of its `init`, such as `LowRank.of(rank=8)`."""
        return Maker(cls, options)

    @classmethod
    @abc.abstractmethod
    def init(
        cls, size: int, key: PRNGKeyArray, *, rows: int, cov_floor: float, start: Start = NARROW
    ) -> Self:
        """A belief around random weights, for a head that reads `rows` lines.

        Further keyword arguments with defaults are the options of `of`.
        """

    @abc.abstractmethod
    def rows(self) -> Rows:
        r"""`(L, H)` rows for $\psi$, `(S, H)` rows for $\psi^2$ and `(G, F, H)` roots.

        `L` is 1, or `R` for a belief over `R` rows of weights; `S`, `G` and `F` are free.
        """

    def line(self, read: Rows) -> tuple[Array, Array]:
        """Mean and variance of the latent line from the responses to the rows."""
        mean = read.linear[0] if self.mu.ndim == 1 else jnp.moveaxis(read.linear, 0, -1)
        terms = [kind[i] for kind in (read.square, read.roots) for i in range(len(kind))]
        return mean, functools.reduce(jnp.add, terms) if terms else jnp.zeros_like(mean)

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

    mu: Float[Array, " H"]
    log_sd: Float[Array, " H"]
    factor: Float[Array, "F H"]
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
        # Entries of one size and random sign leave every sd exactly at exp(log_sd).
        signs = jax.random.rademacher(jax.random.fold_in(key, 1), (rank, size), dtype=float)
        return cls(
            _initial_mu(size, key, rows, start),
            jnp.full((size,), start.log_sd + 0.5 * math.log1p(-_FACTOR_SHARE)),
            signs * math.exp(start.log_sd) * math.sqrt(_FACTOR_SHARE / rank),
            cov_floor,
        )

    def diagonal(self) -> Float[Array, " H"]:
        return jnp.exp(2.0 * self.log_sd) + self.cov_floor

    def rows(self) -> Rows:
        return Rows(self.mu[None], self.diagonal()[None], self.factor[None])

    def overlap(self, prior_precision: Float[Array, ""]) -> Float[Array, ""]:
        total = self.diagonal() + 1.0 / prior_precision
        scaled = self.factor / total
        eye = jnp.eye(self.factor.shape[0], dtype=self.mu.dtype)
        white = inverse_root(eye + scaled @ self.factor.T)
        z = white.T @ (white @ (scaled @ self.mu))
        rest = self.mu - z @ self.factor
        terms = LOG_SQRT_2PI + 0.5 * jnp.log(total) + 0.5 * rest**2 / total
        return jnp.sum(terms) + jnp.sum(0.5 * z**2 - jnp.log(jnp.diagonal(white)))

    def cov(self) -> Float[Array, "H H"]:
        return jnp.diag(self.diagonal()) + self.factor.T @ self.factor

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


@dataclass(frozen=True)
class Maker:
    """A belief class with options of its `init`; `LowRank.of(rank=8)` makes one."""

    kind: type[AbstractBelief]
    options: Mapping[str, Any]

    def __post_init__(self) -> None:
        known = set(inspect.signature(self.kind.init).parameters)
        known -= set(inspect.signature(AbstractBelief.init).parameters)
        unknown = sorted(set(self.options) - known)
        if unknown:
            raise ValueError(
                f"{self.kind.__name__} has no option {unknown[0]!r}; choose from {sorted(known)}"
            )

    def __call__(self, size: int, key: PRNGKeyArray, **given: Any) -> AbstractBelief:
        """`init` with the options."""
        return self.kind.init(size, key, **given, **self.options)

    def __hash__(self) -> int:
        return hash((self.kind, *sorted(self.options.items())))

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"{self.kind.__name__}.of({options})"


Choice: TypeAlias = "str | type[AbstractBelief] | Maker"
Choices: TypeAlias = "Choice | Mapping[str, Choice]"


def read_beliefs(given: Choices, tasks: Iterable[str]) -> dict[str, Maker]:
    """How to make the belief of each task, from one choice for all or a choice for each."""
    names = list(tasks)
    if not isinstance(given, Mapping):
        return dict.fromkeys(names, read_belief(given))
    wrong = [name for name in given if name not in names] or [n for n in names if n not in given]
    if wrong:
        raise ValueError(
            f"belief must have one entry for each of the tasks {names}, and {wrong[0]!r} is "
            f"{'not a task' if wrong[0] in given else 'missing'}"
        )
    return {name: read_belief(given[name], f"task {name!r}: ") for name in names}


def read_belief(given: Any, where: str = "") -> Maker:
    """How to make a belief, from its name, its class, or its class with options."""
    if isinstance(given, Maker):
        return given
    kind = BELIEFS.get(given) if isinstance(given, str) else given
    if inspect.isclass(kind) and issubclass(kind, AbstractBelief) and not inspect.isabstract(kind):
        return Maker(kind, {})
    raise ValueError(
        f"{where}unknown belief {shown(given)}; choose from {list(BELIEFS)}, or pass a belief "
        "class, one with options such as LowRank.of(rank=8), or a mapping of these by task"
    )
