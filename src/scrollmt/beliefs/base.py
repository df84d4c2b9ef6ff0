"""What a belief is: where it starts, its rows, and the prior term."""

from __future__ import annotations

import abc
import functools
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from scrollmt._io.arguments import check_number
from scrollmt._numerics.normal import inverse_root


@dataclass(frozen=True)
class Start:
    r"""Where a model starts.

    Means are $\text{mu}/\sqrt{H}$ times standard normal values, or, if `uniform`, values
    between -1 and 1; the backbone's weights are drawn alike, over the root of their inputs.
    Every sd of a belief starts at exp(`log_sd`), and every prior precision $\alpha$ at
    `prior_precision`.

    A large $\alpha$ does not come back by itself: its prior term changes with $\alpha$ only
    through $\Sigma + I/\alpha$, whose derivative vanishes as $\alpha$ grows. A `precision_sd` $s$
    adds a prior that holds it, $\log\alpha \sim \mathcal{N}(\log\alpha_0, s^2)$ around the start
    $\alpha_0$; None adds none.
    """

    mu: float = 0.1
    log_sd: float = -2.0
    uniform: bool = False
    prior_precision: float = 1.0
    precision_sd: float | None = None

    def __post_init__(self) -> None:
        positive = {"prior_precision": self.prior_precision}
        positive |= {} if self.precision_sd is None else {"precision_sd": self.precision_sd}
        for name, value in positive.items():
            check_number(f"Start: {name}", value, 0.0)
            if not value > 0.0:
                raise ValueError(f"Start: {name} must be > 0, got {value}")


NARROW = Start()


class Rows(NamedTuple):
    """What is multiplied with features; or, windows last, what came of it."""

    linear: Float[Array, "L *N"]
    square: Float[Array, "S *N"]
    roots: Float[Array, "G *N"]


def gaussian_kl(
    mu: Float[Array, "*L H"],
    trace: Float[Array, ""],
    log_det: Float[Array, ""],
    prior_precision: Float[Array, ""],
) -> Float[Array, ""]:
    r"""$\text{KL}[\mathcal{N}(\mu, \Sigma) \,\|\, \mathcal{N}(0, I/\alpha)]$ from the trace and the
    log determinant of $\Sigma$, both added over the lines."""
    logs = mu.size * jnp.log(prior_precision) + log_det
    return 0.5 * (prior_precision * (trace + jnp.sum(mu * mu)) - mu.size - logs)


class AbstractBelief(eqx.Module):
    """A Gaussian over the `H` weights of a latent line, or over those of each of `L` lines.

    A belief of your own is a subclass with the five abstract methods. It is given to
    `Forecaster(belief=...)` as a class or, with options of its `init`, as `Mine.of(option=...)`.
    """

    mu: eqx.AbstractVar[Float[Array, "*L H"]]
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

        With more than one, `mu` is `(rows, size)`. Further keyword arguments with defaults are
        the options of `of`.
        """

    @abc.abstractmethod
    def rows(self) -> Rows:
        r"""`(L, H)` rows for $\psi$, `(S, H)` rows for $\psi^2$ and `(G, F, H)` roots.

        `S` and `G` are multiples of the number of lines `L`, and `F` is free.
        """

    def line(self, read: Rows) -> tuple[Array, Array]:
        """Mean and variance of the latent lines from the responses to the rows.

        `(*N,)` for one line, and `(*N, L)` for several.
        """
        mean, lines = read.linear, len(read.linear)
        terms = [
            kind[i : i + lines]
            for kind in (read.square, read.roots)
            for i in range(0, len(kind), lines)
        ]
        var = functools.reduce(jnp.add, terms) if terms else jnp.zeros_like(mean)
        if self.mu.ndim == 1:
            return mean[0], var[0]
        return jnp.moveaxis(mean, 0, -1), jnp.moveaxis(var, 0, -1)

    def lines_first(self, array: Array) -> Array:
        """An array of this belief with an axis of lines first, of length 1 for one line."""
        return array[None] if self.mu.ndim == 1 else array

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
        r"""$-\log \int \mathcal{N}(w; 0, I/\alpha)\, q(w)\, dw$, added over the lines."""

    def kl(self, prior_precision: Float[Array, ""]) -> Float[Array, ""]:
        r"""$\text{KL}[q \,\|\, \mathcal{N}(0, I/\alpha)]$, added over the lines.

        $$\tfrac12 \bigl[\alpha\,(\text{tr}\,\Sigma + \mu^\top\mu) - H - H\log\alpha
          - \log\lvert\Sigma\rvert\bigr]$$

        From `cov`, by a Cholesky factor; a belief with a cheaper form overrides it.
        """
        cov = self.lines_first(self.cov())
        logs = jax.vmap(lambda one: jnp.log(jnp.diagonal(inverse_root(one))))(cov)
        diagonal = jnp.diagonal(cov, axis1=-2, axis2=-1)
        return gaussian_kl(self.mu, jnp.sum(diagonal), -2.0 * jnp.sum(logs), prior_precision)

    @abc.abstractmethod
    def cov(self) -> Float[Array, "*L H H"]:
        r"""$\Sigma$ as a matrix, or one matrix per line, floor included."""

    @abc.abstractmethod
    def scaled(self, factor: float, *, scale_floor: bool) -> Self:
        r"""The belief of `factor` times the weights: $(c\mu, c^2\Sigma)$."""


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
