"""Stochastic Lorenz-63: windows of a chaotic flow with noise, and its law by simulation.

With drift f(x, y, z) = (10 (y - x), x (28 - z) - y, x y - 8/3 z) and dt = 0.005, one
Euler-Maruyama step is

    s_{k+1} = s_k + dt f(s_k) + 2 sqrt(dt) xi_k,   xi_k ~ N(0, I_3).

Parallel chains start near (1, 1, 25), burn in for 2,000 steps and then yield windows of
m = lead / dt steps, 100 idle steps between the end of one and the start of the next. Input: the
state s_0 at the start of the window. Labels: `state` x_m; `event` x_m > 0; `regime` the corpus
quartile of z_m.

V* and the oracle re-simulate members from each state. Given s_{m-1}, the end of a member is
Gaussian with known mean and sd 2 sqrt(dt); this last step is never sampled but integrated:

    p(y_m | s_0) = mean over members of p(y_m | s_{m-1}).

Class chances are thus averages of normal bucket masses, positive however rare the class, and
are kept as logarithms throughout.

Shapes: X (N, 3); states in simulation (3, chains) or (3, members), windows batched outside.
float32 suffices: rounding moves a state by 1e-6 a step, noise by 0.14.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import ClassVar, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int, Key
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from scrollmt._numerics.normal import log_bucket_mass
from scrollmt.corpora.base import (
    CLASSES,
    LOG_2PI,
    Corpus,
    Labels,
    OracleScore,
    Scores,
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
from scrollmt.observables import Observable, at_lead

STEP = 0.005
SIGMA_STEP = 2.0 * math.sqrt(STEP)
START = (1.0, 1.0, 25.0)
SIGMA_START = 0.1
BURN_IN = 2000
GAP = 100

# What `draw` asks of the state at the end of a window, as questions about a series.
QUESTIONS: dict[str, Observable] = {
    "state": at_lead("x"),
    "event": at_lead("x") > 0,
    "regime": at_lead("z").quantile_bands(4, edges_from="corpus"),
}

# Members are summed up in groups, whose differences show the Monte-Carlo error.
# A window whose score has a larger variance than ROUGH_VAR depends on a few members.
GROUPS = 10
LEAST_MEMBERS = 100
REFINEMENTS = (10, 100)
ROUGH_VAR = 0.1
PATHS_AT_ONCE = 200_000


@final
class Lorenz63(Corpus):
    """Windows of the stochastic Lorenz-63 system, drawn by `draw`."""

    name: ClassVar[str] = "lorenz63"
    step: ClassVar[float] = STEP

    @property
    def heads(self) -> dict[str, AbstractHead]:
        return {
            "state": Real(),
            "event": Event(of="state", above=0.0),
            "regime": Ordinal(of="z", edges=self.edges.tolist()),
        }

    def true_var(
        self, x: ArrayLike, members: int = 200, seed: int = 0, chunk: int | None = None
    ) -> NDArray[np.float64]:
        """V*: unbiased estimate of the variance of x at `lead`, given each row of `x` (N, 3).

        `members` are simulated from each state; its relative standard error is near
        sqrt(2 / members). `chunk` states are in memory at a time; the noise does not
        depend on it.
        """
        states = check_states(x, 3)
        members = count_of("members", members, least=2)
        simulate = partial(
            _moments, _truth_keys(seed)[0], members=members, steps=steps_in(self.lead, STEP)
        )
        _, squares = _in_chunks(simulate, _chunk(chunk, members), states)
        return squares[:, 0] / (members - 1) + SIGMA_STEP**2

    def oracle(
        self,
        X: ArrayLike,
        Y: Mapping[str, ArrayLike],
        members: int = 1500,
        seed: int = 0,
        chunk: int | None = None,
    ) -> OracleScore:
        """The simulated law at this corpus's lead and edges, scored on windows (N, 3).

        `members` (a multiple of 10) are simulated from each state. The differences between ten
        groups of them give the error of a score and its bias at finitely many members, which is
        removed. Windows with a rare outcome, whose score is still rough, are simulated anew
        with ten and then a hundred times the members: at most a tenth and a hundredth of all,
        so that no round costs more than the first. `chunk` states are in memory at a time.
        """
        states = check_states(X, 3)
        y = check_labels(Y, len(states))
        members = count_of("members", members, least=LEAST_MEMBERS)
        if members % GROUPS:
            near = members - members % GROUPS
            raise ValueError(
                f"members={members} is not a multiple of {GROUPS}; try {near} or {near + GROUPS}"
            )
        first_key, *keys = _truth_keys(seed)
        score = self._simulated_score(first_key, states, y, members, chunk)
        for key, growth in zip(keys, REFINEMENTS, strict=True):
            worst = np.max(list(score.mc_var.values()), axis=0)
            rows = np.argsort(-worst, kind="stable")[: math.ceil(len(states) / growth)]
            rows = np.sort(rows[worst[rows] > ROUGH_VAR])
            if rows.size:
                few = {task: labels[rows] for task, labels in y.items()}
                finer = self._simulated_score(key, states[rows], few, growth * members, chunk)
                score = score.put(rows, finer)
        return score

    def _simulated_score(
        self,
        key: Key[Array, ""],
        states: NDArray[np.float64],
        y: Mapping[str, Labels],
        members: int,
        chunk: int | None,
    ) -> OracleScore:
        simulate = partial(
            _law,
            key,
            jnp.asarray(self.edges, jnp.float32),
            members=members,
            steps=steps_in(self.lead, STEP),
        )
        means, squares, density, event, regime = _in_chunks(
            simulate, _chunk(chunk, members), states, y["state"]
        )
        size = members // GROUPS
        rows = np.arange(len(states))
        scored = {
            "state": _score_moments(size, y["state"], means, squares),
            "state_density": _score_log_sums(size, density),
            "event": _score_log_sums(size, event[rows, y["event"]]),
            "regime": _score_log_sums(size, regime[rows, y["regime"]]),
        }
        mean, var = _pooled(size, means, squares)
        log_sums = {"event": event, "regime": regime}
        return OracleScore(
            nll={task: nll for task, (nll, _) in scored.items()},
            mc_var={task: mc_var for task, (_, mc_var) in scored.items()},
            mean=mean,
            var=var,
            # The masses of a member add up to one; softmax takes out their float32 rounding.
            probs={task: softmax(np.logaddexp.reduce(log_sums[task], -1), -1) for task in CLASSES},
        )


def draw(n: int = 6500, lead: float = 0.5, seed: int = 0, chains: int = 65) -> Lorenz63:
    """`n` windows at `lead`, any positive multiple of 0.005, from parallel chains.

    Windows are ordered by time and, within it, by chain. Each chain yields n / chains of them,
    rounded up; what this draws over `n` is cut from the end.

    Quartile rule of the regimes: linear interpolation of the order statistics of the `n` values
    of z; a value equal to an edge belongs to the class above.
    """
    n = count_of("n", n, least=4)
    chains = count_of("chains", chains, least=1)
    window = steps_in(lead, STEP)
    with frozen_device():
        pairs = _chains(generation_key(seed), chains, math.ceil(n / chains), window)
    start, end = (np.array(part).transpose(0, 2, 1).reshape(-1, 3)[:n] for part in pairs)
    regime, edges = quartile_classes(end[:, 2])
    event = (end[:, 0] > 0).astype(np.int32)
    Y = {"state": end[:, 0].copy(), "event": event, "regime": regime}
    behind = {"z": end[:, 2].copy()}
    return Lorenz63(X=start, Y=Y, lead=float(lead), edges=edges, seed=seed, behind=behind)


def _step_mean(state: Float[Array, "3 M"]) -> Float[Array, "3 M"]:
    """Where one step goes on average."""
    x, y, z = state
    drift = jnp.stack([10.0 * (y - x), x * (28.0 - z) - y, x * y - (8.0 / 3.0) * z])
    return state + STEP * drift


def _advance(
    key: Key[Array, ""], state: Float[Array, "3 M"], first: int | Int[Array, ""], steps: int
) -> Float[Array, "3 M"]:
    """`steps` steps; step k of the chain takes its noise from `fold_in(key, k)`."""

    def move(k: Int[Array, ""], state: Float[Array, "3 M"]) -> Float[Array, "3 M"]:
        noise = jax.random.normal(jax.random.fold_in(key, first + k), state.shape, state.dtype)
        return _step_mean(state) + SIGMA_STEP * noise

    moved: Array = jax.lax.fori_loop(0, steps, move, state)
    return moved


@partial(jax.jit, static_argnames=("chains", "per_chain", "window"))
def _chains(
    key: Key[Array, ""], chains: int, per_chain: int, window: int
) -> tuple[Float[Array, "W 3 C"], Float[Array, "W 3 C"]]:
    """States at the start and at the end of every window."""
    start_key, noise_key, _ = jax.random.split(key, 3)
    jitter = jax.random.normal(start_key, (3, chains), jnp.float32)
    state = jnp.asarray(START, jnp.float32)[:, None] + SIGMA_START * jitter
    state = _advance(noise_key, state, 0, BURN_IN)

    def next_window(
        start: Float[Array, "3 C"], index: Int[Array, ""]
    ) -> tuple[Array, tuple[Array, Array]]:
        first = BURN_IN + index * (window + GAP)
        end = _advance(noise_key, start, first, window)
        return _advance(noise_key, end, first + window, GAP), (start, end)

    return jax.lax.scan(next_window, state, jnp.arange(per_chain))[1]


def _truth_keys(seed: int) -> Key[Array, "rounds"]:
    """One stream a round, apart from the two that draw a corpus with the same seed."""
    return jax.random.split(jax.random.split(generation_key(seed), 3)[2], 1 + len(REFINEMENTS))


def _ensemble(
    key: Key[Array, ""], index: Int[Array, ""], state: Float[Array, "3"], members: int, steps: int
) -> Float[Array, "3 M"]:
    """Means of the members' last step from one state; the noise belongs to its `index`."""
    cloud = jnp.broadcast_to(state[:, None], (3, members))
    return _step_mean(_advance(jax.random.fold_in(key, index), cloud, 0, steps - 1))


def _group_moments(x: Float[Array, "G M"]) -> tuple[Float[Array, "G"], Float[Array, "G"]]:
    """Mean and centred sum of squares of each group: no large numbers are subtracted."""
    mean = jnp.mean(x, axis=1)
    return mean, jnp.sum((x - mean[:, None]) ** 2, axis=1)


@partial(jax.jit, static_argnames=("members", "steps"))
def _moments(
    key: Key[Array, ""],
    index: Int[Array, "N"],
    states: Float[Array, "N 3"],
    *,
    members: int,
    steps: int,
) -> tuple[Float[Array, "N 1"], Float[Array, "N 1"]]:
    """Moments of the last step's mean of x, all members in one group."""

    def one(index: Int[Array, ""], state: Float[Array, "3"]) -> tuple[Array, Array]:
        return _group_moments(_ensemble(key, index, state, members, steps)[:1])

    return jax.vmap(one)(index, states)


@partial(jax.jit, static_argnames=("members", "steps"))
def _law(
    key: Key[Array, ""],
    edges: Float[Array, "3"],
    index: Int[Array, "N"],
    states: Float[Array, "N 3"],
    y: Float[Array, "N"],
    *,
    members: int,
    steps: int,
) -> tuple[Array, ...]:
    """Group moments, and log sums over each group of the density and of the class masses.

    Shapes: (N, G) for the moments and for the density at `y`, then (N, 2, G) and (N, 4, G).
    """

    def one(
        index: Int[Array, ""], state: Float[Array, "3"], y: Float[Array, ""]
    ) -> tuple[Array, ...]:
        ends = _ensemble(key, index, state, members, steps).reshape(3, GROUPS, -1)
        x, _, z = ends
        density = -0.5 * (((y - x) / SIGMA_STEP) ** 2 + LOG_2PI) - math.log(SIGMA_STEP)
        event = _log_class_sums(x, jnp.zeros(1, x.dtype))
        regime = _log_class_sums(z, edges)
        return *_group_moments(x), logsumexp(density, axis=-1), event, regime

    return jax.vmap(one)(index, states, y)


def _log_class_sums(means: Float[Array, "G M"], edges: Float[Array, "E"]) -> Float[Array, "R G"]:
    """Log of the sum over a group of the chance that the last step ends in each class."""
    inner = (edges[:, None, None] - means) / SIGMA_STEP
    outer = jnp.full_like(inner[:1], jnp.inf)
    ends = jnp.concatenate([-outer, inner, outer])
    return logsumexp(log_bucket_mass(ends[:-1], ends[1:]), axis=-1)


def _chunk(chunk: int | None, members: int) -> int:
    return max(1, PATHS_AT_ONCE // members) if chunk is None else count_of("chunk", chunk, least=1)


def _in_chunks(
    simulate: Callable[..., tuple[Array, ...]], chunk: int, *columns: Labels
) -> list[NDArray[np.float64]]:
    """Apply `simulate(index, *columns)` to `chunk` rows at a time; results in float64."""
    n = len(columns[0])
    chunk = min(chunk, n)
    parts = []
    for first in range(0, n, chunk):
        # The last chunk is filled up with row n - 1, so that one compiled program serves all.
        index = np.minimum(np.arange(first, first + chunk), n - 1)
        rows = simulate(index.astype(np.int32), *(c[index].astype(np.float32) for c in columns))
        parts.append([np.asarray(row, dtype=np.float64)[: n - first] for row in rows])
    results = [np.concatenate(part) for part in zip(*parts, strict=True)]
    lost = np.flatnonzero(~np.isfinite(results[0]).all(axis=1))
    if lost.size:
        raise ValueError(
            f"the simulation leaves the range of float32 from {lost.size} rows of X, the first "
            f"{lost[0]}: {columns[0][lost[0]]}; pass states in the units of the corpus"
        )
    return results


def _pooled(size: int, means: Scores, squares: Scores) -> tuple[Scores, Scores]:
    """Mean and variance of x at the lead from groups of `size` members, (N, G) to (N,)."""
    mean = means.mean(axis=1)
    total = squares.sum(axis=1) + size * ((means - mean[:, None]) ** 2).sum(axis=1)
    return mean, total / (size * means.shape[1] - 1) + SIGMA_STEP**2


def _score_log_sums(size: int, log_sums: Scores) -> tuple[Scores, Scores]:
    """-log of the mean over all members, bias removed, and its variance, (N, G) to (N,).

    With r the relative variance of the mean, seen between the groups, -log of it is r / 2 too
    high and has variance r. As r is at most 1, a window whose sum hangs on a single member is
    corrected by half a nat at most; the jackknife would overshoot there without limit.
    """
    total = np.logaddexp.reduce(log_sums, axis=1)
    relative = GROUPS * np.exp(log_sums - total[:, None])
    relative_var = ((relative - 1) ** 2).sum(axis=1) / (GROUPS * (GROUPS - 1))
    return math.log(size * GROUPS) - total - 0.5 * relative_var, relative_var


def _score_moments(size: int, y: Labels, means: Scores, squares: Scores) -> tuple[Scores, Scores]:
    """Gaussian score, bias removed by the jackknife over groups, and its variance."""
    whole = gaussian_nll(y, *_pooled(size, means, squares))
    without = np.stack(
        [
            gaussian_nll(y, *_pooled(size, np.delete(means, g, 1), np.delete(squares, g, 1)))
            for g in range(GROUPS)
        ]
    )
    centre = without.mean(axis=0)
    mc_var = (GROUPS - 1) / GROUPS * ((without - centre) ** 2).sum(axis=0)
    return GROUPS * whole - (GROUPS - 1) * centre, mc_var
