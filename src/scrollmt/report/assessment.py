"""What a model is judged on: laws beside labels, scores with intervals, references to beat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from scrollmt import scores
from scrollmt._scoring import judging
from scrollmt._scoring.evaluation import Scored
from scrollmt._scoring.uncertainty import FEWEST_STRETCHES, interval, left_out, stretches
from scrollmt.beliefs import AbstractBelief
from scrollmt.forecaster import Forecaster
from scrollmt.laws import DiscreteLaw, Law, NumberLaw
from scrollmt.laws.transformed import original_units
from scrollmt.observables import Bands, Observable, Value
from scrollmt.windows import Recipe, Windows

LEVEL = 0.9


@dataclass(frozen=True, eq=False)
class Assessment:
    """A fitted model's laws at windows whose labels are known.

    `scored` has the labels as they are scored, `labels` one number each for pictures and verdicts:
    the same, but for labels that are bounds. Both are NaN where missing. `compared` has every task
    beside its reference forecasts.
    """

    model: Forecaster
    laws: dict[str, Law]
    scored: dict[str, np.ndarray]
    labels: dict[str, np.ndarray]
    X: Any
    windows: Windows | None
    compared: dict[str, Scored]

    def __len__(self) -> int:
        return len(next(iter(self.laws.values())))

    @property
    def tasks(self) -> list[str]:
        return list(self.laws)

    @property
    def recipe(self) -> Recipe | None:
        return self.model.recipe_

    @property
    def t(self) -> pd.Index | None:
        return None if self.windows is None else self.windows.t

    @property
    def extrapolation(self) -> np.ndarray:
        """How far outside the training range each window is; zero where the range is not known."""
        distance = next(iter(self.laws.values())).extrapolation
        return np.zeros(len(self)) if distance is None else distance

    @property
    def overlap(self) -> int:
        """How many neighbouring windows share target rows."""
        return 1 if self.windows is None else self.windows.overlap

    def count(self, task: str) -> int:
        """How many labels the task has."""
        return int(np.count_nonzero(~np.isnan(self.labels[task])))

    def belief(self, task: str) -> AbstractBelief:
        """The task's belief in the leading run."""
        return self.model.model_.tasks[task].belief

    def asked(self, task: str) -> Observable | None:
        """The task's question, with the edges of the fit; None for a model of plain rows."""
        return None if self.recipe is None else self.recipe.tasks[task].observable

    def names(self, task: str) -> Sequence[str] | None:
        """The names of a task's classes, where they have any."""
        asked = self.asked(task)
        law = self.laws[task]
        if isinstance(law, DiscreteLaw) and law.class_names is not None:
            return law.class_names
        return asked.names if isinstance(asked, Bands) else None

    def original(self, task: str) -> tuple[Law, np.ndarray, str]:
        """Law and labels in original units, and what the units are called."""
        law, y, asked = self.laws[task], self.labels[task], self.asked(task)
        if not isinstance(asked, Value) or not isinstance(law, NumberLaw):
            return law, y, task
        return original_units(law, asked), asked.inverse(y), asked.original_units


def gather(model: Forecaster, X: Any, Y: Any = None) -> Assessment:
    """Predict at `X` and read the labels: `Windows`, a series the model can cut, or `(X, Y)`."""
    windows = X if isinstance(X, Windows) else None
    if windows is None and Y is None:
        recipe = getattr(model, "recipe_", None)
        if recipe is None:
            raise ValueError(
                "a report needs what came true: pass Y with one entry for each of the tasks "
                f"{list(model.tasks)}, or Windows"
            )
        windows = X = recipe.cut(X)
    compared = judging.scored(model, X, Y)
    laws = {name: one.law for name, one in compared.items()}
    scored = {name: _observed(one.y, one.weight > 0) for name, one in compared.items()}
    labels = {name: law.recorded(scored[name]) for name, law in laws.items()}
    bare = [name for name, y in labels.items() if np.isnan(y).all()]
    if bare:
        raise ValueError(
            f"the tasks {bare} have no observed label in these {len(X)} windows, so there is "
            "nothing to report on them; pass windows whose outcome is known"
        )
    return Assessment(model, laws, scored, labels, X, windows, compared)


def _observed(labels: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Labels (N,) or bounds (N, 2) as floats, NaN where they are missing."""
    out = labels.astype(float)
    out[~seen] = np.nan
    return out


def score_table(assessment: Assessment) -> pd.DataFrame:
    """One row a task and score: value, the ends of its interval, labels, and the references'."""
    rows = []
    for task, one in assessment.compared.items():
        seen = one.weight > 0
        kept = one.weight * left_out(seen, assessment.overlap)
        without = [scores.means(one.terms, weight) for weight in kept]
        trusted = stretches(seen, assessment.overlap) >= FEWEST_STRETCHES
        for name, value in one.means.items():
            if not np.isnan(value):
                ends = interval(value, np.array([other[name] for other in without]), LEVEL)
                low, high = np.clip(ends, *_range(name)) if trusted else (np.nan, np.nan)
                row = {"task": task, "score": name, "value": value, "low": low, "high": high}
                row["labels"] = assessment.count(task)
                rows.append(
                    row | {kind: other.get(name) for kind, other in one.reference_means.items()}
                )
    return pd.DataFrame(rows).astype({"low": float, "high": float})


def _range(score: str) -> tuple[float, float]:
    """Where a score can lie: an interval that ends elsewhere would look like a mistake."""
    if score == "nll":
        return -np.inf, np.inf
    return 0.0, 1.0 if score in ("accuracy", "brier") or "coverage" in score else np.inf
