r"""Scores of laws against labels: one value a forecast, reduced only where a name says so.

All are negatively oriented (lower is better) but for ``accuracy`` and ``coverage``:

    log_score  -log p(y)                                                     nats
    crps       int (F(t) - 1{y <= t})^2 dt, closed form for the Gaussian     units of y
    brier      (P(event) - y)^2, one term, between 0 and 1                   event
    rps        sum_{r<R-1} (P(Y <= r) - 1{y <= r})^2, between 0 and R-1      ordinal, event

The Brier score is the one-term form (half of the sum over both classes), and the RPS is the
plain sum, not divided by R-1; so the RPS of a two-bucket law is its Brier score.

    coverage(a)     share of y inside mean -+ z_{(1+a)/2} sd
    coverage_error  mean over a in {0.05, 0.10, .., 0.95} of |coverage(a) - a|

Shapes: labels and elementwise scores are (N,). A missing label gives NaN and is left out of
every mean; with no label left, or no weight, a mean is NaN.
"""

from collections.abc import Callable
from functools import singledispatch

import jax
import numpy as np
import scoringrules
from jaxtyping import Float, PRNGKeyArray

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


def log_score(law: Law, y: Numbers) -> Vector:
    """-log p(y) in nats (the NLL of each forecast)."""
    return -law.log_prob(y)


def crps(law: Law, y: Numbers) -> Vector:
    """Continuous ranked probability score of a Gaussian law, in the units of y."""
    law = _as(GaussianLaw, law, "crps", "its discrete counterpart is rps")
    labels = real_labels(y, len(law))
    return np.asarray(scoringrules.crps_normal(labels, law.mean, law.sd, backend="numpy"))


def covered(law: Law, y: Numbers, levels: Numbers) -> np.ndarray:
    """1.0 where y lies in the central interval, else 0.0: (N,) for a scalar level, or (N, L)."""
    law = _as(GaussianLaw, law, "coverage", "central intervals belong to Gaussian laws")
    distance = np.abs(law.standardise(y))
    z = central_z(levels)
    distance = distance if z.ndim == 0 else distance[:, None]
    return np.where(np.isnan(distance), np.nan, distance <= z)


def coverage(law: Law, y: Numbers, levels: Numbers, weight: Numbers = None) -> np.ndarray:
    """Share of labels inside the central interval at each level, of the shape of `levels`."""
    return average(covered(law, y, levels), weight)


def coverage_error(law: Law, y: Numbers, weight: Numbers = None) -> float:
    """Mean over the 19 levels 0.05 .. 0.95 of |coverage - level|."""
    levels = np.asarray(COVERAGE_LEVELS)
    return float(np.mean(np.abs(coverage(law, y, levels, weight) - levels)))


def squared_error(law: Law, y: Numbers) -> Vector:
    """(y - mean)^2."""
    law = _as(GaussianLaw, law, "squared_error", "only a Gaussian law has a mean")
    return (real_labels(y, len(law)) - law.mean) ** 2


def brier(law: Law, y: Numbers) -> Vector:
    """(P(event) - y)^2."""
    law = _as(EventLaw, law, "brier", "use rps for ordered classes, log_score for others")
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

    Gaussian: F(y). Ordered classes: (1 - u) P(Y < y) + u P(Y <= y) with u uniform, drawn
    from `key`, which is needed there and only there.
    """
    if isinstance(law, GaussianLaw):
        return law.cdf(y)
    law = _as(OrderedLaw, law, "pit", "classes need an order")
    if key is None:
        raise ValueError("pit of a discrete law is randomised: pass key=jax.random.key(...)")
    labels = law.labels(y)
    u = np.asarray(jax.random.uniform(key, (len(law),)), dtype=np.float64)
    table = np.pad(law.cdfs, ((0, 0), (1, 0)))
    rows, at = np.arange(len(law)), np.maximum(labels, 0)
    return _where_seen(labels, (1.0 - u) * table[rows, at] + u * table[rows, at + 1])


def summarise(law: Law, y: Numbers, weight: Numbers = None) -> dict[str, float]:
    """The metrics that suit the law, as weighted means over the labels that are there.

    Gaussian: nll, coverage_error, coverage_50, coverage_90, crps, rmse. Event: nll, accuracy,
    brier. Ordinal: nll, accuracy, rps. Categorical: nll, accuracy.
    """

    def mean(values: np.ndarray) -> float:
        return float(average(values, weight))

    return {"nll": mean(log_score(law, y)), **_metrics(law, y, mean, weight)}


Mean = Callable[[np.ndarray], float]


@singledispatch
def _metrics(law: Law, y: Numbers, mean: Mean, weight: Numbers) -> dict[str, float]:
    raise TypeError(f"no metrics are defined for a {type(law).__name__}")


@_metrics.register
def _(law: GaussianLaw, y: Numbers, mean: Mean, weight: Numbers) -> dict[str, float]:
    return {
        "coverage_error": coverage_error(law, y, weight),
        "coverage_50": mean(covered(law, y, 0.5)),
        "coverage_90": mean(covered(law, y, 0.9)),
        "crps": mean(crps(law, y)),
        "rmse": float(np.sqrt(mean(squared_error(law, y)))),
    }


@_metrics.register
def _(law: EventLaw, y: Numbers, mean: Mean, weight: Numbers) -> dict[str, float]:
    return {"accuracy": mean(accuracy(law, y)), "brier": mean(brier(law, y))}


@_metrics.register
def _(law: OrdinalLaw, y: Numbers, mean: Mean, weight: Numbers) -> dict[str, float]:
    return {"accuracy": mean(accuracy(law, y)), "rps": mean(rps(law, y))}


@_metrics.register
def _(law: CategoricalLaw, y: Numbers, mean: Mean, weight: Numbers) -> dict[str, float]:
    return {"accuracy": mean(accuracy(law, y))}
