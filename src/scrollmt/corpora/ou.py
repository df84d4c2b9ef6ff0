"""Ornstein-Uhlenbeck: windows of dX = -X dt + sqrt(2) dW and their exact law.

Stationary law N(0, 1). One step of the grid h = 0.01 is the exact transition

    X_{k+1} = a X_k + s xi_k,   a = exp(-h),   s^2 = 1 - a^2,   xi_k ~ N(0, 1).

A window of m = lead / h steps starts from its own stationary draw X_0, the input. Its labels:
`state` X_m; `event` max(X_0..X_m) >= 1.5; `regime` the corpus quartile of the plain mean of
X_0..X_m. V* = 1 - exp(-2 lead), the same for every state.

The oracle simulates nothing. Given X_0, state and grid mean are Gaussian. The chance v_0 of the
event follows from v_m = 0 and, for x below the barrier b,

    v_{k-1}(x) = P(X_k >= b | x) + int_{-inf}^b p_h(y | x) v_k(y) dy,

and its complement u_0 from u_m = 1 and the integral alone. All terms are positive, so that
neither tail is found by subtraction.

Shapes: X (N, 1); one loop over the m steps moves all N windows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import ClassVar, final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from scrollmt._numerics.normal import log_bucket_mass
from scrollmt.corpora.base import (
    CLASSES,
    Corpus,
    OracleScore,
    check_labels,
    check_states,
    count_of,
    frozen_device,
    gaussian_nll,
    generation_key,
    quartile_classes,
    steps_in,
)
from scrollmt.heads import AbstractHead, Event, Ordinal, Real
from scrollmt.observables import Observable, at_lead, over_window

STEP = 0.01
BARRIER = 1.5
DECAY = math.exp(-STEP)
SIGMA_STEP = math.sqrt(-math.expm1(-2 * STEP))

# What `draw` asks of the grid points of a window, both ends counted, as questions about a series.
QUESTIONS: dict[str, Observable] = {
    "state": at_lead("x"),
    "event": over_window("x", include_start=True).max() >= BARRIER,
    "regime": over_window("x", include_start=True).mean().quantile_bands(4, edges_from="corpus"),
}

# Panels two kernel widths long with 12 Gauss-Legendre nodes integrate the step's kernel to
# rounding error. Nine stationary deviations below the lowest start there is no mass left.
PANEL = 2 * SIGMA_STEP
NODES_PER_PANEL = 12
MARGIN = 9.0
LOWEST_START = -30.0
ROWS_AT_ONCE = 10_000


@final
class OU(Corpus):
    """Windows of the Ornstein-Uhlenbeck process, drawn by `draw`."""

    name: ClassVar[str] = "ou"
    step: ClassVar[float] = STEP

    @property
    def heads(self) -> dict[str, AbstractHead]:
        return {
            "state": Real(),
            "event": Event(of="highest", at_least=BARRIER),
            "regime": Ordinal(of="average", edges=self.edges.tolist()),
        }

    def true_var(self, x: ArrayLike) -> NDArray[np.float64]:
        """V* = 1 - exp(-2 lead), for each row of `x` (N, 1)."""
        return np.full(len(check_states(x, 1)), -math.expm1(-2 * self.lead))

    def oracle(self, X: ArrayLike, Y: Mapping[str, ArrayLike]) -> OracleScore:
        """The exact law at this corpus's lead and edges, scored on windows (N, 1).

        A label that the law excludes (no event, though the window starts above the barrier)
        scores infinity.
        """
        x = check_states(X, 1)[:, 0]
        y = check_labels(Y, len(x))
        steps = steps_in(self.lead, STEP)
        mean, var = math.exp(-self.lead) * x, self.true_var(X)
        log_probs = {
            "event": log_event_chances(x, steps),
            "regime": log_average_classes(x, steps, self.edges),
        }
        state = gaussian_nll(y["state"], mean, var)
        rows = np.arange(len(x))
        nll = {"state": state, "state_density": state}
        nll |= {task: -log_probs[task][rows, y[task]] for task in CLASSES}
        return OracleScore(
            nll=nll,
            mc_var={task: np.zeros(len(x)) for task in nll},
            mean=mean,
            var=var,
            probs={task: np.exp(log_prob) for task, log_prob in log_probs.items()},
        )


def draw(n: int = 6500, lead: float = 0.5, seed: int = 0) -> OU:
    """`n` independent windows at `lead`, any positive multiple of 0.01.

    Quartile rule of the regimes: linear interpolation of the order statistics of the `n`
    window means; a mean equal to an edge belongs to the class above.
    """
    n = count_of("n", n, least=4)
    steps = steps_in(lead, STEP)
    with frozen_device():
        paths = _paths(generation_key(seed), n, steps)
    start, end, highest, average = (np.array(part) for part in paths)
    regime, edges = quartile_classes(average)
    event = (highest >= BARRIER).astype(np.int32)
    Y = {"state": end, "event": event, "regime": regime}
    behind = {"highest": highest, "average": average}
    return OU(X=start[:, None], Y=Y, lead=float(lead), edges=edges, seed=seed, behind=behind)


def paths(n: int = 6500, lead: float = 0.5, seed: int = 0) -> NDArray[np.float32]:
    """The grid points of the windows that `draw` makes of the same arguments, (n, steps + 1).

    Laid end to end they are a series: `Windowing(history=1, lead=steps, stride=steps + 1)` cuts
    `{"x": paths.ravel()}` into these windows, and several `leads` ask for a whole curve.
    """
    n = count_of("n", n, least=1)
    with frozen_device():
        return np.array(_points(generation_key(seed), n, steps_in(lead, STEP)))


@partial(jax.jit, static_argnames=("n", "steps"))
def _points(key: Key[Array, ""], n: int, steps: int) -> Float[Array, "N points"]:
    """All points of `n` stationary paths, from the same noise as `_paths`."""
    start_key, noise_key = jax.random.split(key)
    start = jax.random.normal(start_key, (n,), jnp.float32)

    def move(x: Float[Array, "N"], k: Int[Array, ""]) -> tuple[Array, Array]:
        noise = jax.random.normal(jax.random.fold_in(noise_key, k), (n,), jnp.float32)
        x = DECAY * x + SIGMA_STEP * noise
        return x, x

    later = jax.lax.scan(move, start, jnp.arange(steps))[1]
    return jnp.concatenate([start[None], later]).T


@partial(jax.jit, static_argnames=("n", "steps"))
def _paths(key: Key[Array, ""], n: int, steps: int) -> tuple[Float[Array, "N"], ...]:
    """Start, end, maximum and mean of `n` stationary paths."""
    start_key, noise_key = jax.random.split(key)
    start = jax.random.normal(start_key, (n,), jnp.float32)

    def move(k: Int[Array, ""], carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        x, highest, total = carry
        noise = jax.random.normal(jax.random.fold_in(noise_key, k), (n,), jnp.float32)
        x = DECAY * x + SIGMA_STEP * noise
        return x, jnp.maximum(highest, x), total + x

    end, highest, total = jax.lax.fori_loop(0, steps, move, (start, start, start))
    return start, end, highest, total / (steps + 1)


def log_average_classes(
    x: NDArray[np.float64], steps: int, edges: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Log chance of each regime given the start, (N, 4).

    The mean of X_0..X_m weighs X_0 by sum_k a^k / (m + 1) and the noise of step j by
    s sum_{k <= m - j} a^k / (m + 1).
    """
    weights = np.cumsum(DECAY ** np.arange(steps + 1)) / (steps + 1)
    mean = weights[-1] * x
    sd = SIGMA_STEP * math.sqrt(np.sum(weights[:-1] ** 2))
    ends = np.concatenate([[-np.inf], edges, [np.inf]])
    standard = (ends - mean[:, None]) / sd
    # In float64 for this call alone: the law is exact and its score should be too.
    with jax.enable_x64(True):
        return np.array(
            log_bucket_mass(jnp.asarray(standard[:, :-1]), jnp.asarray(standard[:, 1:]))
        )


def log_event_chances(x: NDArray[np.float64], steps: int) -> NDArray[np.float64]:
    """Log chance of (no event, event) given the start, (N, 2)."""
    if x.min() < LOWEST_START:
        raise ValueError(
            f"X reaches down to {x.min():g}, over {-LOWEST_START:g} stationary deviations from "
            "the mean; pass the states in the units of the corpus"
        )
    nodes, weights = _quadrature(min(x.min(), 0.0) - MARGIN)
    kernel = _kernel(nodes, nodes) * weights
    above = ndtr((DECAY * nodes - BARRIER) / SIGMA_STEP)
    stays, crosses = np.ones_like(nodes), np.zeros_like(nodes)
    for _ in range(steps - 1):
        stays, crosses = kernel @ stays, above + kernel @ crosses

    chances = np.zeros((len(x), 2))
    for first in range(0, len(x), ROWS_AT_ONCE):
        rows = slice(first, first + ROWS_AT_ONCE)
        last_kernel = _kernel(x[rows], nodes) * weights
        chances[rows, 0] = last_kernel @ stays
        chances[rows, 1] = ndtr((DECAY * x[rows] - BARRIER) / SIGMA_STEP) + last_kernel @ crosses
    chances[x >= BARRIER] = (0.0, 1.0)  # the start is a grid point as well
    with np.errstate(divide="ignore"):
        return np.log(chances)


def _kernel(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Density of one step from each x to each y, (len(x), len(y))."""
    z = (y - DECAY * x[:, None]) / SIGMA_STEP
    return np.exp(-0.5 * z**2) / (SIGMA_STEP * math.sqrt(2 * math.pi))


def _quadrature(low: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Composite Gauss-Legendre nodes and weights on [low, BARRIER]."""
    ends = np.linspace(low, BARRIER, math.ceil((BARRIER - low) / PANEL) + 1)
    half = 0.5 * np.diff(ends)[:, None]
    middle = 0.5 * (ends[1:] + ends[:-1])[:, None]
    unit_nodes, unit_weights = np.polynomial.legendre.leggauss(NODES_PER_PANEL)
    return (middle + half * unit_nodes).ravel(), (half * unit_weights).ravel()
