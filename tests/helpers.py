"""Registries of heads and beliefs, and oracles that share no code with the library.

A new head or belief is done when it has an entry here and the tests over the registry pass.
Oracles are NumPy and SciPy in float64; what they check is made under `jax.enable_x64(True)`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy import stats
from scipy.special import gammaln, log_ndtr, log_softmax, logsumexp

from scrollmt.backbone import Dense
from scrollmt.beliefs import AbstractBelief, Diag, Full, LowRank, Point
from scrollmt.heads import (
    AbstractHead,
    Categorical,
    Censored,
    Count,
    Event,
    Gaussian,
    Mixture,
    Ordinal,
    Poisson,
    SinhArcsinh,
    StudentT,
)
from scrollmt.laws import (
    CategoricalLaw,
    CensoredLaw,
    CountLaw,
    EventLaw,
    GaussianLaw,
    GaussianMixtureLaw,
    Law,
    OrdinalLaw,
    SinhArcsinhLaw,
    StudentTLaw,
)
from scrollmt.model import Model, Task
from scrollmt.objective import Data, composed, data_terms


def unguarded(make: type, *arguments: Any, **named: Any) -> Any:
    """An object as users make it, without the tests' own checker of types."""
    made: Any = object.__new__(make)
    inspect.unwrap(make.__init__)(made, *arguments, **named)  # type: ignore[misc]
    return made


LOG_2PI = math.log(2.0 * math.pi)
PROBIT_SCALE = 1.005  # the paper's constant, written out again on purpose


def log_mass(lo: np.ndarray, hi: np.ndarray) -> np.ndarray:
    """log[Phi(hi) - Phi(lo)] from SciPy's log_ndtr, in the left tail; for buckets that are wide."""
    flip = lo + hi > 0.0
    left, right = np.where(flip, -hi, lo), np.where(flip, -lo, hi)
    top = log_ndtr(right)
    return top + np.log1p(-np.exp(log_ndtr(left) - top))


# Heads


@dataclass(frozen=True)
class HeadCase:
    """A head off its starting values, labels that reach into its tails, and p(y | a) again.

    A head of several lines under beliefs has an integral of its own over all of them.
    """

    make: Callable[[], AbstractHead]
    labels: np.ndarray
    log_likelihood: Callable[[np.ndarray, np.ndarray], np.ndarray]
    law: type[Law]
    everything: Callable[[], tuple[np.ndarray, np.ndarray]]  # all labels, and their log measure
    classes: int | None = None
    lines: int = 1
    point_only: bool = False
    log_integral: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray] | None = None
    closed_form: bool = True
    reach: float = 1.0  # of latent means, where the likelihood is exponential in them
    tolerance: float = 1e-9  # of integrals over the belief

    def mean(self, rng: np.random.Generator) -> np.ndarray:
        """A latent mean for every label."""
        count = len(self.labels)
        shape = (count,) if self.lines == 1 else (count, self.lines)
        return rng.normal(size=shape) * 1.5 * self.reach

    def near(self) -> np.ndarray:
        """Labels that are not far out."""
        return np.clip(self.labels, -4.0, 5.0) if self.classes is None else self.labels


SIGMA_OBS = 0.6
DF, SCALE_OBS = 3.5, 0.7
EPSILON, DELTA = 0.3, 0.8
CENTRES, SIGMAS, GATE = np.array([-1.5, 0.2, 2.0]), np.array([0.4, 0.9, 0.6]), np.array([-0.5, 0.3])
SIGMA_FLOOR = 1e-3  # the least noise of a component, written out again
LOG_RATE, DISPERSION = 0.4, 0.6
LIMITS = (-0.7, 1.9)
CUTS = {"event": [0.4], "ordinal2": [0.25], "ordinal4": [-0.8, -0.3, 1.0]}


def _gaussian(y: np.ndarray, a: np.ndarray) -> np.ndarray:
    return -0.5 * LOG_2PI - math.log(SIGMA_OBS) - 0.5 * ((y - a) / SIGMA_OBS) ** 2


def _probit(cuts: list[float]) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    edges = np.array([-np.inf, *cuts, np.inf])

    def log_likelihood(y: np.ndarray, a: np.ndarray) -> np.ndarray:
        return log_mass((edges[y] - a) / PROBIT_SCALE, (edges[y + 1] - a) / PROBIT_SCALE)

    return log_likelihood


def _softmax(y: np.ndarray, a: np.ndarray) -> np.ndarray:
    return np.take_along_axis(log_softmax(a, axis=-1), y[..., None], axis=-1)[..., 0]


def _component(y: np.ndarray, a: np.ndarray, j: int) -> np.ndarray:
    """log N(y; a + mu_j, sigma_j^2)."""
    return stats.norm.logpdf(y, a + CENTRES[j], math.hypot(SIGMAS[j], SIGMA_FLOOR))


def _mixture(y: np.ndarray, a: np.ndarray) -> np.ndarray:
    left, terms = np.zeros(a.shape[:-1]), []
    for j in range(3):
        z = None if j == 2 else (a[..., 3 + j] + GATE[j]) / PROBIT_SCALE
        taken = 0.0 if z is None else log_ndtr(z)
        terms.append(left + taken + _component(y, a[..., j], j))
        left = left if z is None else left + log_ndtr(-z)
    return logsumexp(terms, axis=0)


def _mixture_integral(y: np.ndarray, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
    """Line by line, since each is in a product at most once: trapezoid rules in log space.

    tests/test_mixture_head.py compares it with integrals over all lines at once.
    """
    z = np.linspace(-60.0, 60.0, 20_001)
    log_weight = -0.5 * z**2 - 0.5 * LOG_2PI + math.log(z[1] - z[0])
    a = [mean[:, [i]] + np.sqrt(var[:, [i]]) * z for i in range(5)]
    left, terms = np.zeros(len(y)), []
    for j in range(3):
        gate = (a[3 + j] + GATE[j]) / PROBIT_SCALE if j < 2 else np.full((len(y), 1), np.inf)
        taken = logsumexp(log_ndtr(gate) + log_weight, axis=1)
        inside = _component(y[:, None], a[j], j)
        terms.append(left + taken + logsumexp(inside + log_weight, axis=1))
        left = left + (logsumexp(log_ndtr(-gate) + log_weight, axis=1) if j < 2 else 0.0)
    return logsumexp(terms, axis=0)


def _sinh_arcsinh(y: np.ndarray, a: np.ndarray) -> np.ndarray:
    """Through the derivative of the map, by its parts: d/dy sinh(u) = cosh(u) du/dy."""
    u = DELTA * np.arcsinh(y) - EPSILON
    slope = np.cosh(u) * DELTA / np.hypot(1.0, y)
    return stats.norm.logpdf(np.sinh(u), a, SIGMA_OBS) + np.log(slope)


def _student(y: np.ndarray, a: np.ndarray) -> np.ndarray:
    return stats.t.logpdf(y, DF, a, SCALE_OBS)


def _poisson(y: np.ndarray, a: np.ndarray) -> np.ndarray:
    return stats.poisson.logpmf(y, np.exp(LOG_RATE + a))


def _negative_binomial(y: np.ndarray, a: np.ndarray) -> np.ndarray:
    size, x = 1.0 / DISPERSION, LOG_RATE + a + math.log(DISPERSION)
    ways = gammaln(y + size) - gammaln(size) - gammaln(y + 1.0)
    return ways - size * np.logaddexp(0.0, x) - y * np.logaddexp(0.0, -x)


def _censored(y: np.ndarray, a: np.ndarray) -> np.ndarray:
    lo, hi = np.moveaxis(y, -1, 0)
    known = lo == hi
    z = (
        (np.where(known, -np.inf, lo) - a) / SIGMA_OBS,
        (np.where(known, np.inf, hi) - a) / SIGMA_OBS,
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(known, _gaussian(np.where(known, lo, 0.0), a), log_mass(*z))


def _real_line() -> tuple[np.ndarray, np.ndarray]:
    y = np.linspace(-120.0, 120.0, 24_001)
    return y, np.full(y.shape, math.log(y[1] - y[0]))


def _far_line() -> tuple[np.ndarray, np.ndarray]:
    """The real line in y = sinh x, out to where a t has nothing left."""
    x = np.linspace(-20.0, 20.0, 24_001)
    return np.sinh(x), np.log(np.cosh(x)) + math.log(x[1] - x[0])


def _counts() -> tuple[np.ndarray, np.ndarray]:
    y = np.arange(40_000.0)
    return y, np.zeros(y.shape)


def _detector() -> tuple[np.ndarray, np.ndarray]:
    """Both sides beyond the limits, and Legendre nodes between them."""
    nodes, weights = np.polynomial.legendre.leggauss(400)
    half = 0.5 * (LIMITS[1] - LIMITS[0])
    inside = LIMITS[0] + half * (1.0 + nodes)
    pairs = np.concatenate([np.stack([inside, inside], axis=1), DETECTED[[0, -1]]])
    return pairs, np.log(np.append(half * weights, [1.0, 1.0]))


def _classes(count: int) -> Callable[[], tuple[np.ndarray, np.ndarray]]:
    return lambda: (np.arange(count), np.zeros(count))


DETECTED = np.array(
    [
        [-np.inf, LIMITS[0]],
        [-0.69, -0.69],
        [0.0, 0.0],
        [-0.2, 0.4],
        [1.1, 1.1],
        [1.8, 1.8],
        [-np.inf, LIMITS[0]],
        [LIMITS[1], np.inf],
    ]
)


def _count_head(kind: type[Poisson] | type[Count]) -> AbstractHead:
    """A head of counts off its starting values."""
    start = kind() if kind is Poisson else Count(DISPERSION)
    return eqx.tree_at(lambda h: h.log_rate, start, jnp.asarray(LOG_RATE, float))


def _ordinal(cuts: list[float]) -> Ordinal:
    """An ordinal head with given cutpoints, through its stored parameters."""
    values = (jnp.asarray(cuts[0], float), jnp.asarray(np.log(np.diff(cuts)), float))
    start = Ordinal(len(cuts) + 1)
    return eqx.tree_at(lambda h: (h.first_cutpoint, h.log_gaps), start, values)


def _mixture_head() -> Mixture:
    """A mixture off its starting values."""
    values = [jnp.asarray(a, float) for a in (CENTRES, np.log(SIGMAS), GATE)]
    return eqx.tree_at(lambda h: [h.offsets, h.log_sigma, h.gate_offsets], Mixture(3), values)


HEADS: dict[str, HeadCase] = {
    "gaussian": HeadCase(
        make=lambda: Gaussian(SIGMA_OBS),
        labels=np.array([-30.0, -4.0, -1.0, 0.0, 0.3, 2.0, 5.0, 40.0]),
        log_likelihood=_gaussian,
        law=GaussianLaw,
        everything=_real_line,
    ),
    "event": HeadCase(
        make=lambda: Event(CUTS["event"][0]),
        labels=np.tile(np.arange(2), 4),
        log_likelihood=_probit(CUTS["event"]),
        law=EventLaw,
        everything=_classes(2),
        classes=2,
    ),
    "ordinal2": HeadCase(
        make=lambda: _ordinal(CUTS["ordinal2"]),
        labels=np.tile(np.arange(2), 4),
        log_likelihood=_probit(CUTS["ordinal2"]),
        law=OrdinalLaw,
        everything=_classes(2),
        classes=2,
    ),
    "ordinal4": HeadCase(
        make=lambda: _ordinal(CUTS["ordinal4"]),
        labels=np.tile(np.arange(4), 2),
        log_likelihood=_probit(CUTS["ordinal4"]),
        law=OrdinalLaw,
        everything=_classes(4),
        classes=4,
    ),
    "categorical4": HeadCase(
        make=lambda: Categorical(4),
        labels=np.tile(np.arange(4), 2),
        log_likelihood=_softmax,
        law=CategoricalLaw,
        everything=_classes(4),
        classes=4,
        lines=4,
        point_only=True,
    ),
    "student": HeadCase(
        make=lambda: StudentT(DF, SCALE_OBS),
        labels=np.array([-1e6, -40.0, -2.0, 0.0, 0.3, 2.0, 9.0, 1e9]),
        log_likelihood=_student,
        law=StudentTLaw,
        everything=_far_line,
        tolerance=1e-6,
    ),
    "mixture3": HeadCase(
        make=_mixture_head,
        labels=np.array([-30.0, -4.0, -1.0, 0.0, 0.3, 2.0, 5.0, 40.0]),
        log_likelihood=_mixture,
        law=GaussianMixtureLaw,
        everything=_real_line,
        lines=5,
        log_integral=_mixture_integral,
    ),
    "sinh_arcsinh": HeadCase(
        make=lambda: SinhArcsinh(EPSILON, DELTA, SIGMA_OBS),
        labels=np.array([-50.0, -4.0, -1.0, 0.0, 0.3, 2.0, 5.0, 60.0]),
        log_likelihood=_sinh_arcsinh,
        law=SinhArcsinhLaw,
        everything=_far_line,
    ),
    "poisson": HeadCase(
        make=lambda: _count_head(Poisson),
        labels=np.array([0.0, 0.0, 1.0, 2.0, 5.0, 30.0, 400.0, 2000.0]),
        log_likelihood=_poisson,
        law=CountLaw,
        everything=_counts,
        closed_form=False,
        reach=0.2,
        tolerance=1e-6,
    ),
    "count": HeadCase(
        make=lambda: _count_head(Count),
        labels=np.array([0.0, 0.0, 1.0, 2.0, 5.0, 30.0, 400.0, 2000.0]),
        log_likelihood=_negative_binomial,
        law=CountLaw,
        everything=_counts,
        closed_form=False,
        reach=0.2,
        tolerance=1e-6,
    ),
    "censored": HeadCase(
        make=lambda: Censored(*LIMITS, sigma_obs=SIGMA_OBS),
        labels=DETECTED,
        log_likelihood=_censored,
        law=CensoredLaw,
        everything=_detector,
    ),
}


def log_plate_predictive(
    case: HeadCase, y: np.ndarray, mean: np.ndarray, var: np.ndarray
) -> np.ndarray:
    """log of the integral of p(y | a) N(a; mean, var) over a: trapezoid rule in log space.

    For a smooth integrand that dies out at both ends the rule converges faster than any power
    of the step; here it is good to about 1e-12.
    """
    if case.point_only or not var.any():
        return case.log_likelihood(y, mean)
    if case.log_integral is not None:
        return case.log_integral(y, mean, var)
    z = np.linspace(-60.0, 60.0, 20_001)  # so wide for labels far out
    a = mean[:, None] + np.sqrt(var)[:, None] * z
    with np.errstate(over="ignore"):
        log_integrand = case.log_likelihood(y[:, None], a) - 0.5 * z**2 - 0.5 * LOG_2PI
    return logsumexp(log_integrand, axis=1) + math.log(z[1] - z[0])


# Beliefs


@dataclass(frozen=True)
class BeliefCase:
    """A belief from plain numbers, and the same covariance as an explicit matrix."""

    make: Callable[[np.ndarray, np.ndarray, np.ndarray, float], AbstractBelief]
    cov: Callable[[np.ndarray, np.ndarray, float], np.ndarray]


def _full_cov(log_sd: np.ndarray, below: np.ndarray, floor: float) -> np.ndarray:
    root = np.tril(below, -1) + np.diag(np.exp(log_sd))
    return root @ root.T + floor * np.eye(len(log_sd))


BELIEFS: dict[str, BeliefCase] = {
    "none": BeliefCase(
        make=lambda mu, log_sd, below, floor: Point(jnp.asarray(mu)),
        cov=lambda log_sd, below, floor: np.zeros((len(log_sd), len(log_sd))),
    ),
    "diag": BeliefCase(
        make=lambda mu, log_sd, below, floor: Diag(jnp.asarray(mu), jnp.asarray(log_sd), floor),
        cov=lambda log_sd, below, floor: np.diag(np.exp(2.0 * log_sd) + floor),
    ),
    "full": BeliefCase(
        make=lambda mu, log_sd, below, floor: Full(
            jnp.asarray(mu), jnp.asarray(log_sd), jnp.asarray(below), floor
        ),
        cov=_full_cov,
    ),
    "low-rank": BeliefCase(
        make=lambda mu, log_sd, below, floor: LowRank(
            jnp.asarray(mu), jnp.asarray(log_sd), jnp.asarray(below[..., :2, :]), floor
        ),
        cov=lambda log_sd, below, floor: (
            np.diag(np.exp(2.0 * log_sd) + floor) + np.einsum("fi,fj->ij", below[:2], below[:2])
        ),
    ),
}


@dataclass(frozen=True)
class DrawnBelief:
    belief: AbstractBelief
    mu: np.ndarray
    cov: np.ndarray


def draw_belief(
    name: str, size: int, *, floor: float = 1e-2, seed: int = 0, rows: int = 1
) -> DrawnBelief:
    """A belief of random numbers beside its explicit mean and covariance."""
    rng = np.random.default_rng(seed)
    lines = () if rows == 1 else (rows,)
    mu = rng.normal(size=(*lines, size))
    log_sd = rng.normal(size=(*lines, size)) * 0.4 - 0.7
    below = rng.normal(size=(*lines, size, size)) * 0.3  # the upper triangle must be ignored
    case = BELIEFS[name]
    parts = zip(log_sd.reshape(-1, size), below.reshape(-1, size, size), strict=True)
    cov = np.stack([case.cov(*part, floor) for part in parts]).reshape(*lines, size, size)
    return DrawnBelief(case.make(mu, log_sd, below, floor), mu, cov)


PAIRS = [
    (head, belief)
    for head, case in HEADS.items()
    for belief in BELIEFS
    if belief == "none" or not case.point_only
]


# Models and data


N, D, H = 40, 2, 5
# One task for each belief, so that one compiled program serves for all of them; and a smaller
# model for statements that no belief or number of buckets can change.
MIXED = {"gaussian": "full", "event": "none", "ordinal4": "diag"}
DUO = {"gaussian": "diag", "event": "diag"}


def small_model(beliefs: Mapping[str, str] = MIXED, *, floor: float = 0.0, seed: int = 0) -> Model:
    """H features of D inputs, and tasks by the names of head and belief, at random numbers."""
    key = jax.random.PRNGKey(seed)
    backbone = Dense(D, (H,), activation="tanh", bias=True, norm=True, key=key)
    tasks = {}
    for i, (name, belief) in enumerate(beliefs.items()):
        head = HEADS[name].make()
        drawn = draw_belief(belief, H, floor=floor, seed=seed + i, rows=head.rows)
        tasks[name] = Task(head, drawn.belief, jnp.asarray(0.3 * i - 0.2, float))
    return cast_floats(Model(backbone, tasks))


def small_data(heads: Iterable[str] = MIXED, n: int = N, seed: int = 1) -> Data:
    """Windows that the small model can learn something from; every weight is one."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, D))
    line = np.tanh(x[:, 0]) - 0.5 * x[:, 1]
    y: dict[str, np.ndarray] = {}
    for name in heads:
        noisy = line + 0.4 * rng.normal(size=n)
        classes = HEADS[name].classes
        if classes is None:
            y[name] = noisy
        else:
            ranks = np.argsort(np.argsort(noisy))
            y[name] = (ranks * classes // n).astype(np.int32)
    return as_data(x, y)


def as_data(
    x: np.ndarray, y: dict[str, np.ndarray], weight: dict[str, np.ndarray] | None = None
) -> Data:
    """Plain arrays as Data, in the precision that JAX is set to."""
    real = jnp.result_type(float)
    given = {name: np.ones(len(x)) for name in y} if weight is None else weight
    return Data(
        jnp.asarray(x, real),
        {k: jnp.asarray(v, real if v.dtype.kind == "f" else jnp.int32) for k, v in y.items()},
        {k: jnp.asarray(v, real) for k, v in given.items()},
    )


def cast_floats(tree: Any) -> Any:
    """Every inexact array in the precision that JAX is set to."""
    real = jnp.result_type(float)
    return jax.tree.map(lambda a: jnp.asarray(a, real) if eqx.is_inexact_array(a) else a, tree)


class Losses(eqx.Module):
    """The composed objective, its gradient and its data terms."""

    value: jax.Array
    slope: Model
    terms: dict[str, jax.Array]


@eqx.filter_jit
def losses(model: Model, data: Data) -> Losses:
    """Compiled once for each shape and shared by many tests, since compiling is what takes time."""
    value, slope = eqx.filter_value_and_grad(composed)(model, data)
    return Losses(value, slope, data_terms(model, data))


# Comparisons


def flat(tree: Any) -> np.ndarray:
    """All inexact arrays of a tree as one vector."""
    return np.asarray(ravel_pytree(eqx.filter(tree, eqx.is_inexact_array))[0])


def assert_same_bits(left: Any, right: Any) -> None:
    """Equal structure, equal bits; zeros of either sign count as the same."""
    one, other = (str(jax.tree.structure(tree)) for tree in (left, right))
    assert one == other
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def central_gradient(
    f: Callable[[np.ndarray], np.ndarray | float], at: np.ndarray, step: float = 1e-3
) -> np.ndarray:
    """Gradient of a float64 function of a vector by differences of the fourth order."""
    out = np.zeros_like(at, dtype=np.float64)
    for i in range(at.size):
        e = np.zeros_like(at, dtype=np.float64)
        e[i] = step
        near = float(f(at + e)) - float(f(at - e))
        far = float(f(at + 2.0 * e)) - float(f(at - 2.0 * e))
        out[i] = (8.0 * near - far) / (12.0 * step)
    return out
