"""What every simulated corpus offers: windows, the true variance, and the oracle's score.

The oracle is the simulator's own conditional law p(y | x). Its mean negative log score,

    -1/N sum_n log p(y_n | x_n),

is the entropy of the task plus sampling noise: no forecaster beats it in expectation.

Shapes: X (N, D); each task of Y (N,); V* (N,); class probabilities (N, R).
"""

from __future__ import annotations

import abc
import math
import operator
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import jax
import numpy as np
from jaxtyping import Array, Key
from numpy.typing import ArrayLike, NDArray

from scrollmt.heads import AbstractHead

CLASSES = {"event": 2, "regime": 4}
TASKS = ("state", *CLASSES)
LOG_2PI = math.log(2 * math.pi)

Scores: TypeAlias = NDArray[np.float64]
# Values of a state, or whole numbers of classes.
Labels: TypeAlias = NDArray[np.floating[Any]] | NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class Corpus(abc.ABC):
    """Windows drawn from a simulator whose conditional law is known.

    - `X`: the state at the start of each window, float32 (N, D).
    - `Y`: `state` float32, `event` 0 or 1, `regime` 0 to 3, each (N,).
    - `lead`: time from the start of a window to its end.
    - `edges`: the three quartiles that bound the regimes, taken over this corpus.
    - `seed`: the generation seed.
    - `behind`: numbers that event and regime are asked of, where these are not the state; further
      columns of Y for `heads`.
    """

    X: NDArray[np.float32]
    Y: Mapping[str, Labels]
    lead: float
    edges: NDArray[np.float64]
    seed: int
    behind: Mapping[str, Labels] = field(default_factory=dict)

    name: ClassVar[str]
    step: ClassVar[float]

    def __len__(self) -> int:
        return len(self.X)

    @property
    @abc.abstractmethod
    def heads(self) -> dict[str, AbstractHead]:
        """Heads that know the numbers behind event and regime: fit them to `Y` and `behind`."""

    @abc.abstractmethod
    def true_var(self, x: ArrayLike) -> NDArray[np.float64]:
        """V*: the variance of the state at `lead`, given each row of `x`."""

    @abc.abstractmethod
    def oracle(self, X: ArrayLike, Y: Mapping[str, ArrayLike]) -> OracleScore:
        """The simulator's own conditional law, scored on the windows given."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(N={len(self)}, lead={self.lead:g}, seed={self.seed})"


@dataclass(frozen=True, eq=False)
class OracleScore:
    """Score of the true law in nats, by task, with its Monte-Carlo error.

    - `nll[task]`: per window, (N,). `state` scores the Gaussian that has the true mean and
      variance, the best that a Gaussian head can be; `state_density` scores the true density.
    - `mc_var[task]`: variance of each entry of `nll` that comes from simulating the law, (N,);
      exactly zero where the law is known in closed form.
    - `mean`, `var`: of the state, (N,); `probs[task]`: of the classes, (N, R).

    Where the law is simulated, `nll` is corrected for the bias of a logarithm of an average,
    so that it differs a little from `-log probs` at the label.
    """

    nll: Mapping[str, NDArray[np.float64]]
    mc_var: Mapping[str, NDArray[np.float64]]
    mean: NDArray[np.float64]
    var: NDArray[np.float64]
    probs: Mapping[str, NDArray[np.float64]]

    @property
    def mean_nll(self) -> dict[str, float]:
        """Mean over the windows, by task."""
        return {task: float(nll.mean()) for task, nll in self.nll.items()}

    @property
    def mc_error(self) -> dict[str, float]:
        """Monte-Carlo standard error of `mean_nll`; windows are simulated independently."""
        return {task: math.sqrt(var.sum()) / len(var) for task, var in self.mc_var.items()}

    def take(self, rows: ArrayLike) -> OracleScore:
        """The score of some of the windows, so that one simulation serves many splits."""
        index = np.asarray(rows)
        return self._map(lambda array, _: array[index], self)

    def put(self, rows: ArrayLike, better: OracleScore) -> OracleScore:
        """This score with the windows `rows` taken from `better`, in its order."""
        index = np.asarray(rows)

        def replace(array: Scores, new: Scores) -> Scores:
            out = array.copy()
            out[index] = new
            return out

        return self._map(replace, better)

    def _map(self, f: Callable[[Scores, Scores], Scores], other: OracleScore) -> OracleScore:
        def by_task(mine: Mapping[str, Scores], its: Mapping[str, Scores]) -> dict[str, Scores]:
            return {task: f(mine[task], its[task]) for task in mine}

        return OracleScore(
            nll=by_task(self.nll, other.nll),
            mc_var=by_task(self.mc_var, other.mc_var),
            mean=f(self.mean, other.mean),
            var=f(self.var, other.var),
            probs=by_task(self.probs, other.probs),
        )


def frozen_device() -> AbstractContextManager[None]:
    """Draw on the CPU whatever the default device: a frozen corpus must not depend on it.

    Chaos turns one last bit of rounding into another trajectory within a few time units.
    """
    try:
        cpu = jax.local_devices(backend="cpu")[0]
    except RuntimeError as error:
        raise ValueError(
            "corpora are drawn on the CPU, which JAX was configured without; "
            "list it last, as in JAX_PLATFORMS=cuda,cpu"
        ) from error
    chosen: AbstractContextManager[None] = jax.default_device(cpu)
    return chosen


def generation_key(seed: int) -> Key[Array, ""]:
    """A key of a named generator: a corpus must not depend on the user's default one."""
    return jax.random.key(seed, impl="threefry2x32")


def gaussian_nll(y: Labels, mean: Scores, var: Scores) -> Scores:
    """-log N(y; mean, var), elementwise."""
    nll: Scores = 0.5 * (LOG_2PI + np.log(var) + (y - mean) ** 2 / var)
    return nll


def quartile_classes(
    values: NDArray[np.floating[Any]],
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Classes 0 to 3 by the quartiles of `values`, and those quartiles.

    Quartiles interpolate linearly between order statistics (NumPy's default rule, Hyndman and
    Fan's type 7); a value equal to an edge belongs to the class above it.
    """
    edges = np.quantile(values.astype(np.float64), [0.25, 0.5, 0.75])
    return np.searchsorted(edges, values, side="right").astype(np.int32), edges


def steps_in(lead: float, step: float) -> int:
    """Number of steps in `lead`, which has to be a positive multiple of `step`."""
    ratio = lead / step
    if not math.isfinite(ratio) or ratio <= 0:
        raise ValueError(f"lead={lead} must be positive and finite; the smallest lead is {step:g}")
    count = round(ratio)
    # 1e-6 of a step covers the rounding of decimal leads, and no difference that a user could mean.
    if count == 0 or abs(ratio - count) > 1e-6:
        below, above = math.floor(ratio) * step, math.ceil(ratio) * step
        nearest = f"{above:g}" if below == 0 else f"{below:g} or {above:g}"
        raise ValueError(f"lead={lead} is not a multiple of the step {step:g}; try lead={nearest}")
    return count


def count_of(name: str, value: Any, least: int) -> int:
    """`value` as an integer of at least `least`."""
    try:
        count = operator.index(value)
    except TypeError:
        raise ValueError(f"{name}={value!r} must be an integer, at least {least}") from None
    if count < least:
        raise ValueError(f"{name}={count} is too small; use at least {least}")
    return count


def check_states(x: ArrayLike, dim: int) -> NDArray[np.float64]:
    """`x` as (N, dim) finite numbers, or an error that says what is wrong with it."""
    states = np.asarray(x, dtype=np.float64)
    if states.ndim != 2 or states.shape[1] != dim or len(states) == 0:
        raise ValueError(
            f"X has shape {states.shape}, expected (N, {dim}) with N >= 1; "
            f"reshape one state with x.reshape(1, {dim})"
        )
    bad = np.flatnonzero(~np.isfinite(states).all(axis=1))
    if bad.size:
        raise ValueError(
            f"X has {bad.size} rows that are not finite, the first at {bad[0]}; drop them first"
        )
    return states


def check_labels(Y: Mapping[str, ArrayLike], n: int) -> dict[str, Labels]:
    """The three tasks of `Y` as complete (n,) arrays, classes as integers."""
    labels: dict[str, Labels] = {}
    for task in TASKS:
        if task not in Y:
            raise ValueError(f"Y has no task {task!r}; it holds {sorted(map(str, Y))}")
        y = np.asarray(Y[task], dtype=np.float64)
        if y.shape != (n,):
            raise ValueError(f"Y[{task!r}] has shape {y.shape}, but X has {n} rows: pass ({n},)")
        bad = np.flatnonzero(~np.isfinite(y))
        if bad.size:
            raise ValueError(
                f"Y[{task!r}] has {bad.size} missing labels, the first at {bad[0]}; "
                "the oracle scores labelled windows only"
            )
        if task in CLASSES:
            if not np.isin(y, np.arange(CLASSES[task])).all():
                raise ValueError(
                    f"Y[{task!r}] has values {np.unique(y)[:8]}, expected 0 to {CLASSES[task] - 1}"
                )
            y = y.astype(np.int32)
        labels[task] = y
    return labels
