"""Loss weighting: drawn at random, learned, or set from how fast the losses fall."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from scrollmt._io.arguments import check_number
from scrollmt.combining.base import AbstractRule


@dataclass(frozen=True, kw_only=True)
class AbstractWeighting(AbstractRule):
    """A rule whose weights multiply the losses."""

    @property
    def weights_losses(self) -> bool:
        return True


@dataclass(frozen=True, kw_only=True)
class RandomWeighting(AbstractWeighting):
    r"""Lin et al. 2022: $w = K\,\text{softmax}(z)$ with new normal z in every step."""

    def begin(self, count: int) -> tuple[()]:
        return ()

    def weigh(
        self, gram: Array, losses: Array, state: tuple[()], key: Key[Array, ""]
    ) -> tuple[Array, tuple[()]]:
        drawn = jax.random.normal(key, losses.shape, losses.dtype)
        return len(losses) * jax.nn.softmax(drawn), ()


def log_ratio(losses: Float[Array, " K"], before: Float[Array, " K"]) -> Float[Array, " K"]:
    """The logarithm of how much losses have changed; a loss that is not above zero has none (NaN).

    For squared errors, cross-entropies and the likes of them.
    """
    return jnp.log(losses) - jnp.log(before)


def nats(losses: Float[Array, " K"], before: Float[Array, " K"]) -> Float[Array, " K"]:
    """The same for losses that are mean log scores, which are logarithms and may be below zero."""
    return losses - before


class GradNormState(NamedTuple):
    logits: Float[Array, " K"]
    adam: Any
    first: Float[Array, " K"]
    step: Int[Array, ""]


@dataclass(frozen=True, kw_only=True)
class GradNorm(AbstractWeighting):
    r"""Chen et al. 2018: tasks that lag behind get longer gradients in the shared parameters.

    With $n_k$ the length of task k's gradient and $r_k = (L_k/L_k^0) / \text{mean}_j(L_j/L_j^0)$,
    a step of Adam at `rate` lowers $\sum_k |w_k n_k - \bar{wn}\, r_k^\alpha|$ by the weights, with
    $\bar{wn}\, r_k^\alpha$ held. The weights are K softmax(logits): above zero, and K in sum.
    """

    alpha: float = 1.5
    rate: float = 0.025
    change: Callable[[Array, Array], Array] = log_ratio

    def __post_init__(self) -> None:
        check_number("GradNorm: alpha", self.alpha, 0.0)
        check_number("GradNorm: rate", self.rate, 0.0)

    def begin(self, count: int) -> GradNormState:
        zeros = jnp.zeros(count)
        return GradNormState(zeros, self._adam.init(zeros), zeros, jnp.zeros((), jnp.int32))

    def weigh(
        self, gram: Array, losses: Array, state: GradNormState, key: Key[Array, ""]
    ) -> tuple[Array, GradNormState]:
        first = jnp.where(state.step == 0, losses.astype(state.first.dtype), state.first)
        slow = self.change(losses, first)
        # r_k is the ratio of a task over the mean ratio; all in logarithms.
        log_rate = slow - (jax.nn.logsumexp(slow) - jnp.log(len(slow)))
        length = jnp.sqrt(jnp.diagonal(gram))

        def weights_of(logits: Array) -> Array:
            return len(logits) * jax.nn.softmax(logits)

        now = weights_of(state.logits) * length
        aim = jnp.mean(now) * jnp.exp(self.alpha * log_rate)

        def gap(logits: Array) -> Array:
            return jnp.sum(jnp.abs(weights_of(logits) * length - aim))

        moves, adam = self._adam.update(jax.grad(gap)(state.logits), state.adam)
        logits = (state.logits + moves).astype(state.logits.dtype)
        return weights_of(state.logits), GradNormState(logits, adam, first, state.step + 1)

    @property
    def _adam(self) -> optax.GradientTransformation:
        return optax.adam(self.rate)


class UncertaintyState(NamedTuple):
    log_scale: Float[Array, " K"]
    adam: Any


@dataclass(frozen=True, kw_only=True)
class UncertaintyWeighting(AbstractWeighting):
    r"""Kendall et al. 2018: $\sum_k \tfrac12 e^{-2 s_k} L_k + s_k$, with s moved by Adam at `rate`.

    For a loss that stays, s ends at $\tfrac12 \log L_k$ and the weight at $1/(2 L_k)$. A loss that
    is not above zero has no optimum: its weight grows without end.
    """

    rate: float = 0.01

    def __post_init__(self) -> None:
        check_number("UncertaintyWeighting: rate", self.rate, 0.0)

    def begin(self, count: int) -> UncertaintyState:
        zeros = jnp.zeros(count)
        return UncertaintyState(zeros, optax.adam(self.rate).init(zeros))

    def weigh(
        self, gram: Array, losses: Array, state: UncertaintyState, key: Key[Array, ""]
    ) -> tuple[Array, UncertaintyState]:
        weights = 0.5 * jnp.exp(-2.0 * state.log_scale)
        slope = (1.0 - 2.0 * weights * losses).astype(state.log_scale.dtype)
        moves, adam = optax.adam(self.rate).update(slope, state.adam)
        return weights, UncertaintyState(state.log_scale + moves, adam)


class AverageState(NamedTuple):
    last: Float[Array, " K"]
    before: Float[Array, " K"]
    step: Int[Array, ""]


@dataclass(frozen=True, kw_only=True)
class DynamicAverage(AbstractWeighting):
    r"""DWA, Liu et al. 2019: $w = K\,\text{softmax}(\rho / T)$, $\rho_k = L_k(t-1) / L_k(t-2)$.

    The weights of the first two steps are one. Written for the losses of epochs; `fit` has one
    step for each update, which is an epoch where batches are full.
    """

    temperature: float = 2.0
    change: Callable[[Array, Array], Array] = log_ratio

    def __post_init__(self) -> None:
        if not self.temperature > 0.0:
            raise ValueError(f"DynamicAverage: temperature must be > 0, got {self.temperature}")

    def begin(self, count: int) -> AverageState:
        # Ones: a ratio of two of them is a number, also where it is not used.
        return AverageState(jnp.ones(count), jnp.ones(count), jnp.zeros((), jnp.int32))

    def weigh(
        self, gram: Array, losses: Array, state: AverageState, key: Key[Array, ""]
    ) -> tuple[Array, AverageState]:
        ratio = jnp.exp(self.change(state.last, state.before))
        later = len(losses) * jax.nn.softmax(ratio / self.temperature)
        weights = jnp.where(state.step < 2, jnp.ones_like(later), later)
        last = losses.astype(state.last.dtype)
        return weights, AverageState(last, state.last, state.step + 1)
