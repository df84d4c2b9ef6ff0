r"""Scores of laws against labels: one value a forecast, reduced only where a name says so.

All are negatively oriented (lower is better) but for ``accuracy`` and ``coverage``:

    nll        -log p(y)                                                     nats
    crps       int (F(t) - 1{y <= t})^2 dt, closed form where there is one   units of y
    brier      (P(event) - y)^2, one term, between 0 and 1                   event
    rps        sum_{r<R-1} (P(Y <= r) - 1{y <= r})^2, between 0 and R-1      ordinal, event

The Brier score is the one-term form (half of the sum over both classes), and the RPS is the
plain sum, not divided by R-1; so the RPS of a two-bucket law is its Brier score.

    coverage(a)     share of y inside mean -+ z_{(1+a)/2} sd
    coverage_error  mean over a in {0.05, 0.10, .., 0.95} of |coverage(a) - a|

Other laws of a number are covered where F(y) lies between (1 - a)/2 and (1 + a)/2. A value that
has a mass of its own (a count, a detection limit) counts by the share of (P(Y < y), P(Y <= y)) that
lies there, so that coverage is the level for the true law, whatever its atoms.

Shapes: labels and elementwise scores are (N,). A missing label gives NaN and is left out of
every mean; with no label left, or no weight, a mean is NaN.
"""

import warnings
from collections.abc import Callable
from functools import singledispatch
from typing import Any

import jax
import numpy as np
import scoringrules
from jaxtyping import Float, PRNGKeyArray

from scrollmt.laws import HeadLaw, RealLaw
from scrollmt.likelihoods import CensoredLaw, CountLaw, StudentTLaw
from scrollmt.predictive import (
    CategoricalLaw,
    DiscreteLaw,
    EventLaw,
    GaussianLaw,
    Law,
    LawT,
    Numbers,
    OrderedLaw,
    OrdinalLaw,
    central_z,
    probabilities,
    real_labels,
)

COVERAGE_LEVELS = tuple(round(0.05 * k, 2) for k in range(1, 20))

Vector = Float[np.ndarray, " N"]


def _as(kind: type[LawT], law: Law, score: str, hint: str) -> LawT:
    if not isinstance(law, kind):
        raise TypeError(f"{score} is not defined for a {type(law).__name__}: {hint}")
    return law


def average(values: Numbers, weight: Numbers = None) -> np.ndarray:
    """Weighted mean over the first axis of elementwise scores, leaving out NaN.

    `values` is (N,) or (N, L); `weight` is (N,), finite and not negative. A row with weight two
    counts as that row twice, one with weight zero not at all, whatever its score.
    """
    values = np.asarray(values, dtype=np.float64)
    if weight is None:
        weights = np.ones(len(values))
    else:
        weights = real_labels(weight, len(values), "weight")
        bad = ~(np.isfinite(weights) & (weights >= 0.0))
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise ValueError(f"weight[{row}] = {weights[row]:g}: weights are finite and >= 0")
    shaped = weights.reshape((-1,) + (1,) * (values.ndim - 1))
    counted = ~np.isnan(values) & (shaped > 0.0)
    # An infinite score of weight zero must not turn into NaN, hence the choice before the product.
    total = np.sum(np.where(counted, values, 0.0) * np.where(counted, shaped, 0.0), axis=0)
    mass = np.sum(np.where(counted, shaped, 0.0), axis=0)
    return np.divide(total, mass, out=np.full_like(mass, np.nan), where=mass > 0.0)


def nll(law: Law, y: Numbers) -> Vector:
    """-log p(y) in nats, the negative log likelihood of each forecast; lower is better."""
    return -law.log_prob(y)


def log_score(law: Law, y: Numbers) -> Vector:
    """Deprecated name of `nll`: `Forecaster.score` is a log score too, and higher is better."""
    warnings.warn(
        "scores.log_score is deprecated and ends with version 0.3; it is scores.nll now",
        DeprecationWarning,
        stacklevel=2,
    )
    return nll(law, y)


@singledispatch
def crps(law: Law, y: Numbers) -> Vector:
    """Continuous ranked probability score of a law of a number, in the units of y."""
    raise TypeError(
        f"crps is not defined for a {type(law).__name__}: the counterpart of classes is rps"
    )


@crps.register
def _(law: GaussianLaw, y: Numbers) -> Vector:
    labels = real_labels(y, len(law))
    return np.asarray(scoringrules.crps_normal(labels, law.mean, law.sd, backend="numpy"))


@crps.register
def _(law: StudentTLaw, y: Numbers) -> Vector:
    labels = real_labels(y, len(law))
    out = np.empty(len(law))
    for rows, mean, sd, weight in law.normal_mixture():
        shares = np.broadcast_to(weight, mean.shape)
        out[rows] = scoringrules.crps_mixnorm(labels[rows], mean, sd, shares, backend="numpy")
    return out


@crps.register
def _(law: CensoredLaw, y: Numbers) -> Vector:
    return law.crps(y)


@crps.register
def _(law: CountLaw, y: Numbers) -> Vector:
    return law.crps(y)


def covered(law: Law, y: Numbers, levels: Numbers) -> np.ndarray:
    """1.0 where y lies in the central interval, else 0.0: (N,) for a scalar level, or (N, L).

    A share between the two where y has a mass that the interval's end cuts.
    """
    if isinstance(law, RealLaw):
        return _share_covered(law, y, levels)
    law = _as(GaussianLaw, law, "coverage", "central intervals belong to laws of a number")
    distance = np.abs(law.standardise(y))
    z = central_z(levels)
    distance = distance if z.ndim == 0 else distance[:, None]
    return np.where(np.isnan(distance), np.nan, distance <= z)


def _share_covered(law: RealLaw, y: Numbers, levels: Numbers) -> np.ndarray:
    level = probabilities(levels, "level")
    low, high = law.cdf_pair(y)
    if level.ndim:
        low, high = low[:, None], high[:, None]
    start, stop = 0.5 * (1.0 - level), 0.5 * (1.0 + level)
    mass = high - low
    inside = np.minimum(high, stop) - np.maximum(low, start)
    share = np.maximum(inside, 0.0) / np.where(mass > 0.0, mass, 1.0)
    share = np.where(mass > 0.0, share, (low >= start) & (high <= stop))
    return np.where(np.isnan(low), np.nan, share)


def coverage(law: Law, y: Numbers, levels: Numbers, weight: Numbers = None) -> np.ndarray:
    """Share of labels inside the central interval at each level, of the shape of `levels`."""
    return average(covered(law, y, levels), weight)


def coverage_error(law: Law, y: Numbers, weight: Numbers = None) -> float:
    """Mean over the 19 levels 0.05 .. 0.95 of |coverage - level|."""
    levels = np.asarray(COVERAGE_LEVELS)
    return float(np.mean(np.abs(coverage(law, y, levels, weight) - levels)))


def squared_error(law: Law, y: Numbers) -> Vector:
    """(y - mean)^2."""
    if not isinstance(law, GaussianLaw | StudentTLaw | CountLaw):
        raise TypeError(
            f"squared_error is not defined for a {type(law).__name__}: "
            "only laws of a number that is always recorded have a mean to compare with"
        )
    return (real_labels(y, len(law)) - law.mean) ** 2


def brier(law: Law, y: Numbers) -> Vector:
    """(P(event) - y)^2."""
    law = _as(EventLaw, law, "brier", "use rps for ordered classes, nll for others")
    labels = law.labels(y)
    return _where_seen(labels, scoringrules.brier_score(labels == 1, law.prob, backend="numpy"))


def rps(law: Law, y: Numbers) -> Vector:
    """Ranked probability score, a plain sum over the R-1 inner cuts."""
    law = _as(OrderedLaw, law, "rps", "crps serves Gaussian laws; classes need an order")
    labels = law.labels(y)
    seen = labels[:, None] == np.arange(law.num_classes)
    score = scoringrules.rps_score(seen, law.probs, onehot=True, backend="numpy")
    return _where_seen(labels, score)


def accuracy(law: Law, y: Numbers) -> Vector:
    """1.0 where the likeliest class is the label, else 0.0."""
    law = _as(DiscreteLaw, law, "accuracy", "use squared_error for a Gaussian law")
    labels = law.labels(y)
    return _where_seen(labels, labels == law.mode)


def _where_seen(labels: np.ndarray, score: Numbers) -> Vector:
    return np.where(labels >= 0, np.asarray(score, dtype=np.float64), np.nan)


def pit(law: Law, y: Numbers, key: PRNGKeyArray | None = None) -> Vector:
    """Probability integral transform: uniform on (0, 1) when the law is the truth.

    F(y) where y has no mass. Else, as for ordered classes and counts, (1 - u) P(Y < y) +
    u P(Y <= y) with u uniform, drawn from `key`, which is needed there and only there.
    """
    if isinstance(law, GaussianLaw):
        return law.cdf(y)
    if isinstance(law, RealLaw):
        low, high = law.cdf_pair(y)
    else:
        low, high = _class_pair(_as(OrderedLaw, law, "pit", "classes need an order"), y)
    if np.array_equal(low, high, equal_nan=True):
        return low
    if key is None:
        raise ValueError("pit is randomised where y has a mass: pass key=jax.random.key(...)")
    u = np.asarray(jax.random.uniform(key, (len(law),)), dtype=np.float64)
    return (1.0 - u) * low + u * high


def _class_pair(law: OrderedLaw, y: Numbers) -> tuple[Vector, Vector]:
    """P(Y < y) and P(Y <= y)."""
    labels = law.labels(y)
    table = np.pad(law.cdfs, ((0, 0), (1, 0)))
    rows, at = np.arange(len(law)), np.maximum(labels, 0)
    return _where_seen(labels, table[rows, at]), _where_seen(labels, table[rows, at + 1])


def summarise(law: Law, y: Numbers, weight: Numbers = None) -> dict[str, float]:
    """The metrics that suit the law, as weighted means over the labels that are there.

    Gaussian, Student-t, counts: nll, coverage_error, coverage_50, coverage_90, crps, rmse (of the
    mean), mae (of the median). On a changed scale: those without rmse. Censored: those without
    rmse and mae. Event: nll, accuracy, brier. Ordinal: nll, accuracy, rps. Categorical: nll,
    accuracy. The law of a head of your own without one: nll.
    """

    def mean(values: np.ndarray) -> float:
        return float(average(values, weight))

    return {"nll": mean(nll(law, y)), **metrics(law, y, mean, weight)}


Mean = Callable[[np.ndarray], float]


def coverages(law: Law, y: Numbers, weight: Numbers = None) -> dict[str, float]:
    """Coverage of the usual intervals, and its mean error over 19 levels."""
    half, most = coverage(law, y, [0.5, 0.9], weight)
    return {
        "coverage_error": coverage_error(law, y, weight),
        "coverage_50": float(half),
        "coverage_90": float(most),
    }


@singledispatch
def metrics(law: Law, y: Numbers, mean: Mean, weight: Numbers) -> dict[str, float]:
    raise TypeError(f"no metrics are defined for a {type(law).__name__}")


@metrics.register
def _(law: CensoredLaw, y: Numbers, mean: Mean, weight: Numbers) -> dict[str, float]:
    return {**coverages(law, y, weight), "crps": mean(crps(law, y))}


@metrics.register(GaussianLaw)
@metrics.register(StudentTLaw)
@metrics.register(CountLaw)
def _(law: Any, y: Numbers, mean: Mean, weight: Numbers) -> dict[str, float]:
    return {
        **coverages(law, y, weight),
        "crps": mean(crps(law, y)),
        "rmse": float(np.sqrt(mean(squared_error(law, y)))),
        "mae": mean(np.abs(real_labels(y, len(law)) - law.quantile(0.5))),
    }


@metrics.register
def _(law: HeadLaw, y: Numbers, mean: Mean, weight: Numbers) -> dict[str, float]:
    return {}


@metrics.register
def _(law: EventLaw, y: Numbers, mean: Mean, weight: Numbers) -> dict[str, float]:
    return {"accuracy": mean(accuracy(law, y)), "brier": mean(brier(law, y))}


@metrics.register
def _(law: OrdinalLaw, y: Numbers, mean: Mean, weight: Numbers) -> dict[str, float]:
    return {"accuracy": mean(accuracy(law, y)), "rps": mean(rps(law, y))}


@metrics.register
def _(law: CategoricalLaw, y: Numbers, mean: Mean, weight: Numbers) -> dict[str, float]:
    return {"accuracy": mean(accuracy(law, y))}
