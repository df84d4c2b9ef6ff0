r"""Scores of laws against labels: one value per forecast, reduced only where a name says so.

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
from collections.abc import Callable, Mapping

import jax
import numpy as np
import scoringrules
from jaxtyping import Float, PRNGKeyArray

from scrollmt.laws import (
    DiscreteLaw,
    Law,
    LawT,
    NumberLaw,
    Numbers,
    OrderedLaw,
    RealLaw,
    real_labels,
)

COVERAGE_LEVELS = tuple(round(0.05 * k, 2) for k in range(1, 20))

Vector = Float[np.ndarray, " N"]


def _as(kind: type[LawT], law: Law, score: str, hint: str) -> LawT:
    if not isinstance(law, kind):
        raise TypeError(f"{score} is not defined for a {type(law).__name__}: {hint}")
    return law


def _number(law: Law, score: str, hint: str) -> NumberLaw:
    if not isinstance(law, NumberLaw):
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
    mean: np.ndarray = np.divide(total, mass, out=np.full_like(mass, np.nan), where=mass > 0.0)
    return mean


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


def crps(law: Law, y: Numbers) -> Vector:
    """Continuous ranked probability score of a law of a number, in the units of y."""
    return _number(law, "crps", "the counterpart of classes is rps").crps(y)


def covered(law: Law, y: Numbers, levels: Numbers) -> np.ndarray:
    """1.0 where y lies in the central interval, else 0.0: (N,) for a scalar level, or (N, L).

    A share between the two where y has a mass that the interval's end cuts.
    """
    hint = "central intervals belong to laws of a number"
    return _number(law, "coverage", hint).covered(y, levels)


def coverage(law: Law, y: Numbers, levels: Numbers, weight: Numbers = None) -> np.ndarray:
    """Share of labels inside the central interval at each level, of the shape of `levels`."""
    return average(covered(law, y, levels), weight)


def coverage_error(law: Law, y: Numbers, weight: Numbers = None) -> float:
    """Mean over the 19 levels 0.05 .. 0.95 of |coverage - level|."""
    levels = np.asarray(COVERAGE_LEVELS)
    return float(np.mean(np.abs(coverage(law, y, levels, weight) - levels)))


def squared_error(law: Law, y: Numbers) -> Vector:
    """(y - mean)^2."""
    if not isinstance(law, RealLaw) or "rmse" not in law.metrics:
        raise TypeError(
            f"squared_error is not defined for a {type(law).__name__}: "
            "only laws of a number that is always recorded have a mean to compare with"
        )
    error: Vector = (real_labels(y, len(law)) - law.mean) ** 2
    return error


def brier(law: Law, y: Numbers) -> Vector:
    """(P(event) - y)^2."""
    if not isinstance(law, DiscreteLaw) or not law.is_event:
        hint = "use rps for ordered classes, nll for others"
        raise TypeError(f"brier is not defined for a {type(law).__name__}: {hint}")
    labels, chance = law.labels(y), law.probs[:, 1]
    return _where_seen(labels, scoringrules.brier_score(labels == 1, chance, backend="numpy"))


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
    low, high = pit_bounds(law, y)
    if np.array_equal(low, high, equal_nan=True):
        return low
    if key is None:
        raise ValueError("pit is randomised where y has a mass: pass key=jax.random.key(...)")
    u = np.asarray(jax.random.uniform(key, (len(law),)), dtype=np.float64)
    drawn: Vector = (1.0 - u) * low + u * high
    return drawn


def pit_bounds(law: Law, y: Numbers) -> tuple[Vector, Vector]:
    """P(Y < y) and P(Y <= y) at each label, NaN where it is missing; equal but for atoms.

    Given y, the PIT of a calibrated law is uniform between the two.
    """
    if isinstance(law, NumberLaw):
        return law.cdf_pair(y)
    return _as(OrderedLaw, law, "pit", "classes need an order").cdf_pair(y)


def summarise(law: Law, y: Numbers, weight: Numbers = None) -> dict[str, float]:
    """The metrics that suit the law, as weighted means over the labels that are there.

    A law names them (`law.metrics`). Gaussian, Student-t, counts and real laws of your own: nll,
    coverage_error, coverage_50, coverage_90, crps, rmse (of the mean), mae (of the median). On a
    changed scale: those without rmse. Censored: those without rmse and mae. Event: nll, accuracy,
    brier. Ordinal: nll, accuracy, rps. Categorical: nll, accuracy. The law of a head of your own
    without one: nll.
    """

    return means(elementwise(law, y), weight)


def _mae(law: Law, y: Numbers) -> Vector:
    law = _number(law, "mae", "classes have no distance")
    error: Vector = np.abs(real_labels(y, len(law)) - law.quantile(0.5))
    return error


# Every metric that a law may name, as elementwise scores.
_SCORES: dict[str, Callable[[Law, Numbers], np.ndarray]] = {
    "coverage": lambda law, y: covered(law, y, COVERAGE_LEVELS),
    "crps": crps,
    "rmse": squared_error,
    "mae": _mae,
    "accuracy": accuracy,
    "brier": brier,
    "rps": rps,
}


def elementwise(law: Law, y: Numbers) -> dict[str, np.ndarray]:
    """What `summarise` averages, by metric: (N,), and (N, 19) for the coverage of 19 levels."""
    found = {"nll": nll(law, y)}
    for name in law.metrics:
        found[name] = _SCORES[name](law, y)
    return found


def means(found: Mapping[str, np.ndarray], weight: Numbers = None) -> dict[str, float]:
    """The metrics of `summarise` from elementwise scores."""
    out: dict[str, float] = {}
    for name, values in found.items():
        mean = average(values, weight)
        if name == "coverage":
            levels = list(COVERAGE_LEVELS)
            out["coverage_error"] = float(np.mean(np.abs(mean - levels)))
            out["coverage_50"] = float(mean[levels.index(0.5)])
            out["coverage_90"] = float(mean[levels.index(0.9)])
        else:
            out[name] = float(np.sqrt(mean) if name == "rmse" else mean)
    return out
