"""A fitted forecaster beside what came true: laws with their labels, and the references to beat.

`model` is a fitted `Forecaster`; these are the parts of its methods that score.
"""

from __future__ import annotations

import abc
import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from scrollmt import scores
from scrollmt._data import edges, holdout, outliers, reading
from scrollmt._data.frames import check_aligned, index_of
from scrollmt._io.sklearn import AbstractEstimator
from scrollmt._scoring.evaluation import Scored, evaluate
from scrollmt.laws import Law
from scrollmt.laws.joint import Laws
from scrollmt.windows import Windows


def where(X: Any) -> pd.Index:
    """The index of the forecasts at X."""
    return index_of(X.t, "t") if isinstance(X, Windows) else index_of(X)


def labelled(model: Any, X: Any, Y: Any, sample_weight: Any) -> tuple[reading.Rows, Laws]:
    """The laws at X, and the labels and weights of its rows."""
    laws = model.predict(X)
    if isinstance(X, Windows) and Y is None:
        Y = edges.labels(X, model.recipe_)
    x, _ = reading.read_inputs(X)
    rows = X.t if isinstance(X, Windows) else X
    check_aligned(rows, {"Y": Y, "sample_weight": sample_weight})
    groups = tuple(coupling.names for coupling in model.model_.couplings)
    return reading.read_rows(x, Y, sample_weight, model.tasks_, joint=groups), laws


def scored(model: Any, X: Any, Y: Any, sample_weight: Any = None) -> dict[str, Scored]:
    """Laws, labels and reference laws by task."""
    rows, laws = labelled(model, X, Y, sample_weight)
    against = references(model, X)
    asked = {} if model.recipe_ is None else model.recipe_.questions
    tasks = {}
    for name, law in laws.items():
        beside = {kind: found[name] for kind, found in against.items() if name in found}
        labels, weight = rows.labels[name], rows.weights[name]
        tasks[name] = Scored(law, labels, weight, beside, asked.get(name))
    return tasks


def references(model: Any, X: Any) -> dict[str, Laws]:
    """The laws of the reference forecasts at X, by kind."""
    values, _ = model._read(X)
    past = edges.past_labels(X, model.recipe_) if isinstance(X, Windows) else {}
    found: dict[str, dict[str, Law]] = {}
    for name, reference in model.references_.items():
        earlier = {kind: labels[name] for kind, labels in past.items()}
        for kind, law in reference.laws(len(values), earlier).items():
            found.setdefault(kind, {})[name] = law
    return {kind: Laws(laws, index=where(X)) for kind, laws in found.items()}


def total_nll(rows: reading.Rows, laws: Laws) -> float:
    """Mean NLL added over the tasks that have labels; joint over those that are coupled."""
    labels, weights = dict(rows.labels), rows.weights
    for group in laws.coupled:
        # The fill value of a missing label must not be conditioned on.
        labels |= {n: np.where(weights[n] > 0, labels[n], np.nan) for n in group.names}
    return -sum(
        float(scores.average(terms, weights[name]))
        for name, terms in laws.log_prob(labels).items()
        if weights[name].any()
    )


def out_of_fold(
    ready: holdout.Ready, log_scores: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Log scores of scaled targets as those of the user's: a density loses log s."""
    shift = {name: math.log(scale) for name, scale in ready.scales.scale.items()}
    return {
        name: values - shift.get(name, 0.0) * (ready.judged.weights[name] > 0)
        for name, values in log_scores.items()
    }


def summed(rows: reading.Rows, log_scores: Mapping[str, np.ndarray]) -> float:
    """Mean log scores, added over the tasks that have labels."""
    return sum(
        float(scores.average(values, rows.weights[name]))
        for name, values in log_scores.items()
        if rows.weights[name].any()
    )


def warn_of_outliers(
    model: Any, ready: holdout.Ready, validation: Mapping[str, np.ndarray]
) -> None:
    """Name the labels that dominate their score, given the log scores of validation by task.

    With folds validation covers all rows; else the training part is looked at too.
    """
    parts: list[tuple[str, reading.Rows, Mapping[str, np.ndarray]]]
    parts = [("validation", ready.judged, validation)]
    if ready.folds is None:
        fitted = model._laws(model.scales_.inputs(ready.fitted.x))
        known = {name: law.log_prob(ready.fitted.labels[name]) for name, law in fitted.items()}
        parts.insert(0, ("training", ready.fitted, known))
    for part, rows, log_scores in parts:
        found = outliers.dominating(rows, log_scores)
        if found is not None:
            where = "" if ready.folds is not None else f"{part} part: "
            warnings.warn(f"{where}{found}", UserWarning, stacklevel=5)


class AbstractScorer(AbstractEstimator):
    """The methods of an estimator that score it."""

    @abc.abstractmethod
    def _check_fitted(self) -> None: ...

    def evaluate(self, X: Any, Y: Any = None, sample_weight: Any = None) -> pd.DataFrame:
        """Scores by task, beside those of reference forecasts; NaN where a score does not suit.

        `nll` in nats with its standard error `nll_se` and its number of `labels`; `climatology`,
        `persistence` and `seasonal` are the NLL of `references`, `skill` is what the best of them
        loses against the model, with `skill_se`. Then what suits the law, in original units:
        coverage of intervals, CRPS, errors of mean and median; accuracy, Brier score, RPS.
        """
        self._check_fitted()
        overlap = X.overlap if isinstance(X, Windows) else 1
        return evaluate(scored(self, X, Y, sample_weight), overlap)

    def references(self, X: Any) -> dict[str, Laws]:
        """Laws that need no model, to compare with those of `predict`, by kind.

        "climatology" is one law for all rows, that of the training labels. Of `Windows`,
        "persistence" and "seasonal" go by what the same question would have answered one lead
        before, and at the same time of the day (week, year) before.
        """
        self._check_fitted()
        return references(self, X)

    def score(self, X: Any, Y: Any = None, sample_weight: Any = None) -> float:
        """Mean log score, added over the tasks, in nats; higher is better.

        Coupled tasks are scored jointly, so that models with and without couplings compare.
        """
        self._check_fitted()
        rows, laws = labelled(self, X, Y, sample_weight)
        empty = [name for name in laws if not rows.weights[name].any()]
        if empty:
            raise ValueError(f"Y has no label of positive weight to score for the tasks {empty}")
        return -total_nll(rows, laws)
