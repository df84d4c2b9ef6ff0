r"""Recalibration: monotone maps of laws, learned from predictions of labels that trained nothing.

With folds, a row is predicted by the runs that did not train on it; with a held-out part, the
validation rows are predicted. A map is learned from these rows by task, and shrunk towards the
identity: of some shares of its way the one with the best cross-validated log score,

    share = argmax_s  mean_n gain_n(s),    0 unless the mean exceeds two standard errors

so that few labels, and laws that are calibrated already, leave it at the identity. Shapes: normal
scores (n, 2), log masses (n, R), labels and weights (n,).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import minimize
from scipy.special import logit, ndtr, ndtri
from sklearn.isotonic import isotonic_regression

from scrollmt._data import holdout
from scrollmt._fitting import members
from scrollmt._fitting.selection import Selection
from scrollmt._scoring.uncertainty import error_of_mean
from scrollmt.laws import Law, OrderedMap, PitMap, UnorderedMap
from scrollmt.laws.base import Calibrated
from scrollmt.laws.joint import Laws
from scrollmt.laws.recalibrated import normal_scores
from scrollmt.laws.remapped import Map, log_odds

Vector = Float[np.ndarray, " n"]
Table = Float[np.ndarray, "n C"]

SHARES = (0.25, 0.5, 0.75, 1.0)
_PARTS = 5
_STANDARD_ERRORS = 2.0
# What one label can count for, in nats, as in the choice of candidates.
_BOUND = 20.0
# The least number of labels that a map is learned from; a class label says less than a number.
FEWEST_LABELS: Mapping[Calibrated, int] = {"number": 20, "ordered": 50, "unordered": 50}
# The level whose conformal interval should be finite.
USUAL_LEVEL = 0.9
# Knots of the map of a number, slopes between them, and the share of labels beyond the last.
_KNOTS = 15
_STEEPEST = 20.0
_BEYOND = 0.01
# Labels that a block of isotonic regression is shrunk by, at the law's own mean.
_PRIOR_LABELS = 4.0
# Standard deviations of the log temperature and of biases before any label.
_PRIOR_SDS = 0.5, 1.0
# Order statistics that are kept: so many of either tail, and so many of the others.
_KEPT = 50, 200


@dataclass(frozen=True)
class Evidence:
    """What laws said of one task, at labels that did not train them.

    `said` are normal scores (n, 2) of a number, or log masses (n, R) of classes.
    """

    kind: Calibrated
    said: Table
    labels: np.ndarray
    weight: Vector

    def __len__(self) -> int:
        return len(self.weight)

    def take(self, rows: np.ndarray) -> Evidence:
        return Evidence(self.kind, self.said[rows], self.labels[rows], self.weight[rows])

    @property
    def counts(self) -> Vector:
        """Weights with a mean of one, so that they count labels."""
        return np.asarray(self.weight / self.weight.mean())


_Learn: TypeAlias = Callable[[Evidence], Any]
_Gains: TypeAlias = Callable[[Any, Evidence], Vector]


def statement(law: Law, y: Any) -> Table:
    """What is kept of laws at their labels."""
    number: Any = law
    return normal_scores(number, y) if law.calibrated_by == "number" else number.log_probs


def learned(evidence: Evidence, *, conformal: bool = False) -> Map:
    """The map of a task, shrunk; with the order statistics of its intervals where asked for."""
    learn, gains = _LEARNERS[evidence.kind]
    found: Map = learn(evidence)
    share, gain = _share(evidence, learn, gains)
    found = replace(found.shrunk(share), labels=len(evidence), gain=gain)
    if conformal and isinstance(found, PitMap):
        return _with_order_statistics(found, evidence)
    return found


def _share(evidence: Evidence, learn: _Learn, gains: _Gains) -> tuple[float, float]:
    """How far to go from the identity, and the gain in nats a label that cross-validation found."""
    if len(evidence) < FEWEST_LABELS[evidence.kind]:
        return 0.0, 0.0
    gained = np.zeros((len(SHARES), len(evidence)))
    # Blocks of neighbouring rows: in a series these resemble each other.
    for part in np.array_split(np.arange(len(evidence)), _PARTS):
        found = learn(evidence.take(np.setdiff1d(np.arange(len(evidence)), part)))
        for place, share in enumerate(SHARES):
            gained[place, part] = gains(found.shrunk(share), evidence.take(part))
    gained = np.clip(gained, -_BOUND, _BOUND)
    means = gained @ evidence.weight / evidence.weight.sum()
    best = int(np.argmax(means))
    if not means[best] > _STANDARD_ERRORS * error_of_mean(gained[best], evidence.weight):
        return 0.0, 0.0
    return SHARES[best], float(means[best])


def _number_map(evidence: Evidence) -> PitMap:
    """Through quantiles of the scores: at each knot, as many labels below as there should be."""
    z, counts = _within_masses(evidence.said), evidence.counts
    order = np.argsort(z)
    below = (np.cumsum(counts[order]) - 0.5 * counts[order]) / counts.sum()
    number = int(np.clip(round(0.7 * len(z) ** (1 / 3)), 2, _KNOTS))
    last = -ndtri(np.clip(10.0 / len(z), _BEYOND, 0.25))
    to = np.linspace(-last, last, number)
    at = np.interp(ndtr(to), below, z[order])
    step = np.diff(to)
    apart = np.clip(np.diff(at), step / _STEEPEST, step * _STEEPEST)
    middle = number // 2
    at = at[middle] + np.concatenate([[0.0], np.cumsum(apart)]) - apart[:middle].sum()
    return PitMap(tuple(at.tolist()), tuple(to.tolist()), share=1.0)


def _within_masses(scores: Float[np.ndarray, "n 2"]) -> Vector:
    """One score a label; where it has a mass, a level within it that is drawn once and for all."""
    # Labels that a law holds impossible have an infinite score, which no quantile may have.
    low, high = np.clip(scores, -38.0, 38.0).T
    flip = low + high > 0.0
    start, stop = ndtr(np.where(flip, -high, low)), ndtr(np.where(flip, -low, high))
    level = start + np.random.default_rng(0).uniform(size=len(low)) * (stop - start)
    drawn = np.where(flip, -1.0, 1.0) * ndtri(level)
    return np.asarray(np.where(low < high, drawn, high))


def _ordered_map(evidence: Evidence) -> OrderedMap:
    """Isotonic regression at each cut, its blocks shrunk to what the laws said of them."""
    odds, counts = np.clip(log_odds(evidence.said), -100.0, 100.0), evidence.counts
    knots = [
        _isotonic(odds[:, cut], (evidence.labels > cut).astype(float), counts)
        for cut in range(odds.shape[1])
    ]
    at, to = zip(*knots, strict=True)
    return OrderedMap(at, to, share=1.0)


def _isotonic(
    odds: Vector, above: Vector, counts: Vector
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Knots of log odds and what they become: one knot a block of isotonic regression."""
    # Rows that are said alike are one row, or the regression would depend on their order.
    at, place = np.unique(odds, return_inverse=True)
    size = np.bincount(place, counts)
    level = isotonic_regression(np.bincount(place, counts * above) / size, sample_weight=size)
    _, block = np.unique(level, return_inverse=True)
    number = np.bincount(block, size)
    happened = np.bincount(block, size * level)
    said = np.bincount(block, size / (1.0 + np.exp(-at))) / number
    centre = np.bincount(block, size * at) / number
    shrunk = (happened + _PRIOR_LABELS * said) / (number + _PRIOR_LABELS)
    to = np.maximum.accumulate(logit(np.clip(shrunk, 1e-300, 1.0 - 1e-16)))
    return tuple(centre.tolist()), tuple(to.tolist())


def _unordered_map(evidence: Evidence) -> UnorderedMap:
    """Temperature and biases of the highest posterior density."""
    said, counts = np.maximum(evidence.said, -700.0), evidence.counts
    labels: Int[np.ndarray, " n"] = evidence.labels.astype(int)
    hit = np.eye(said.shape[1])[labels]
    sds = np.array([_PRIOR_SDS[0], *[_PRIOR_SDS[1]] * said.shape[1]])

    def loss(given: np.ndarray) -> tuple[float, np.ndarray]:
        power = np.exp(given[0])
        raised = power * said + given[1:]
        raised -= raised.max(axis=1, keepdims=True)
        log_probs = raised - np.log(np.exp(raised).sum(axis=1, keepdims=True))
        error = counts[:, None] * (np.exp(log_probs) - hit)
        slope = np.concatenate([[power * (error * said).sum()], error.sum(axis=0)])
        value = -float(counts @ (hit * log_probs).sum(axis=1)) + 0.5 * float(
            np.sum((given / sds) ** 2)
        )
        return value, slope + given / sds**2

    bounds = [(-3.0, 3.0), *[(-10.0, 10.0)] * said.shape[1]]
    found = minimize(loss, np.zeros(len(sds)), jac=True, method="L-BFGS-B", bounds=bounds).x
    return UnorderedMap(float(found[0]), tuple(found[1:].tolist()), share=1.0)


def _number_gains(found: PitMap, evidence: Evidence) -> Vector:
    return found.log_gain(evidence.said)


def _class_gains(found: OrderedMap | UnorderedMap, evidence: Evidence) -> Vector:
    labels = evidence.labels.astype(int)[:, None]
    with np.errstate(invalid="ignore"):
        gained = found.log_probs(evidence.said) - evidence.said
    return np.asarray(np.nan_to_num(np.take_along_axis(gained, labels, axis=1)[:, 0]))


_LEARNERS: Mapping[Calibrated, tuple[_Learn, _Gains]] = {
    "number": (_number_map, _number_gains),
    "ordered": (_ordered_map, _class_gains),
    "unordered": (_unordered_map, _class_gains),
}


def _with_order_statistics(found: PitMap, evidence: Evidence) -> PitMap:
    """The map with the scores that conformal intervals end at."""
    tail, rest = _KEPT
    half = (len(evidence) + 1) // 2
    ranks = np.unique([*range(1, min(tail, half) + 1), *np.linspace(1, half, rest).astype(int)])
    low, high = np.sort(np.clip(evidence.said, -38.0, 38.0), axis=0).T
    lower, upper = low[ranks - 1], high[::-1][ranks - 1]
    kept = tuple(ranks.tolist()), tuple(lower.tolist()), tuple(upper.tolist())
    return replace(found, ranks=kept[0], lower=kept[1], upper=kept[2])


def fitted(
    calibrate: str, ready: holdout.Ready, chosen: Selection, mixing: members.Mixing
) -> dict[str, Map]:
    """The maps by task that `Forecaster(calibrate=...)` asks for."""
    if calibrate == "none":
        return {}
    conformal = calibrate == "conformal"
    found = evidence(ready, chosen, mixing)
    for name in ready.plan.tasks:
        if name not in found:
            warnings.warn(
                f"task {name!r} is not recalibrated: it has no label to learn from, or its head "
                "gives log scores but no distribution function",
                UserWarning,
                stacklevel=4,
            )
        elif conformal and found[name].kind == "number":
            _warn_of_few(name, len(found[name]))
    return {name: learned(one, conformal=conformal) for name, one in found.items()}


def _warn_of_few(name: str, labels: int) -> None:
    most = PitMap(labels=labels).guaranteed
    if most < USUAL_LEVEL - 1e-9:
        warnings.warn(
            f"task {name!r}: {labels} labels guarantee conformal intervals up to the level "
            f"{most:.4g} only; above it they are as wide as the law's support",
            UserWarning,
            stacklevel=5,
        )


def evidence(
    ready: holdout.Ready, chosen: Selection, mixing: members.Mixing
) -> dict[str, Evidence]:
    """By task, what laws said of labels that did not train them; in the order of the rows."""
    said: dict[str, list[Evidence]] = {}
    places: dict[str, list[np.ndarray]] = {}
    for rows, part in _parts(ready, chosen, mixing):
        x = ready.scales.inputs(ready.judged.x[rows])
        laws = members.laws(part.committee, chosen.validated, part, ready.scales, x)
        for name, law in laws.items():
            if law.calibrated_by is None:
                continue
            labels, weight = ready.judged.labels[name][rows], ready.judged.weights[name][rows]
            one = Evidence(law.calibrated_by, statement(law, labels), labels, weight)
            seen = np.flatnonzero((weight > 0) & ~np.isnan(one.said).any(axis=1))
            said.setdefault(name, []).append(one.take(seen))
            places.setdefault(name, []).append(rows[seen])
    joined = {
        name: Evidence(
            each[0].kind,
            np.concatenate([one.said for one in each]),
            np.concatenate([one.labels for one in each]),
            np.concatenate([one.weight for one in each]),
        ).take(np.argsort(np.concatenate(places[name])))
        for name, each in said.items()
    }
    return {name: one for name, one in joined.items() if len(one)}


def _parts(
    ready: holdout.Ready, chosen: Selection, mixing: members.Mixing
) -> Iterator[tuple[np.ndarray, members.Mixing]]:
    """Rows, and how the members that did not train on them are mixed."""
    if ready.folds is None or chosen.fold_of is None:
        yield np.arange(len(ready.judged.x)), mixing
        return
    done = np.zeros(len(ready.judged.x), bool)
    for fold, valid in enumerate(ready.folds.valid):
        # A few rows are in the validation part of two folds.
        rows = valid[~done[valid]]
        done[rows] = True
        part = mixing.only([number for number, own in enumerate(chosen.fold_of) if own == fold])
        # An interrupt can leave folds without members.
        if part.committee:
            yield rows, part


def applied(laws: Laws, maps: Mapping[str, Map]) -> Laws:
    """Laws with the maps of their tasks."""
    if not maps:
        return laws
    changed: dict[str, Law] = dict(laws)
    for name, one in maps.items():
        if one.kind != laws[name].calibrated_by:
            raise ValueError(
                f"task {name!r}: a map for laws of kind {one.kind!r} does not suit "
                f"{laws[name]!r}; fit the model again"
            )
        suited: Any = one
        changed[name] = suited.of(laws[name])
    return Laws(changed, laws.coupled, laws.index)
