"""What a model is judged on: laws beside labels, scores with intervals, a constant to beat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from scrollmt import scores
from scrollmt.forecaster import Forecaster
from scrollmt.laws import RealLaw
from scrollmt.observables import Bands, Observable, Value
from scrollmt.predictive import DiscreteLaw, EventLaw, GaussianLaw, Law
from scrollmt.report.intervals import interval, left_out
from scrollmt.units import original_units
from scrollmt.windows import Recipe, Windows

LEVEL = 0.9


@dataclass(frozen=True, eq=False)
class Evidence:
    """A fitted model's laws at windows whose labels are known.

    `scored` has the labels as they are scored, `labels` one number each for pictures and verdicts:
    the same, but for labels that are bounds. Both are NaN where missing.
    """

    model: Forecaster
    laws: dict[str, Law]
    scored: dict[str, np.ndarray]
    labels: dict[str, np.ndarray]
    X: Any
    windows: Windows | None

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

    def count(self, task: str) -> int:
        """How many labels the task has."""
        return int(np.count_nonzero(~np.isnan(self.labels[task])))

    def asked(self, task: str) -> Observable | None:
        """The task's question, with the edges of the fit; None for a model of plain rows."""
        return None if self.recipe is None else self.recipe.tasks[task].observable

    def names(self, task: str) -> Sequence[str] | None:
        """The names of a task's classes, where they have any."""
        asked = self.asked(task)
        if isinstance(self.laws[task], EventLaw):
            return ("no", "yes")
        return asked.names if isinstance(asked, Bands) else None

    def original(self, task: str) -> tuple[Law, np.ndarray, str]:
        """Law and labels in original units, and what the units are called."""
        law, y, asked = self.laws[task], self.labels[task], self.asked(task)
        if not isinstance(asked, Value) or not isinstance(law, GaussianLaw | RealLaw):
            return law, y, task
        return original_units(law, asked), asked.inverse(y), asked.original_units


def gather(model: Forecaster, X: Any, Y: Any = None) -> Evidence:
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
    rows, laws = model._labelled(X, Y, None)
    scored = {name: _observed(rows.labels[name], rows.weights[name] > 0) for name in laws}
    labels = {
        name: law.recorded(scored[name]) if hasattr(law, "recorded") else scored[name]
        for name, law in laws.items()
    }
    bare = [name for name, y in labels.items() if np.isnan(y).all()]
    if bare:
        raise ValueError(
            f"the tasks {bare} have no observed label in these {len(rows.x)} windows, so there is "
            "nothing to report on them; pass windows whose outcome is known"
        )
    return Evidence(model, dict(laws), scored, labels, X, windows)


def _observed(labels: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Labels (N,) or bounds (N, 2) as floats, NaN where they are missing."""
    out = labels.astype(float)
    out[~seen] = np.nan
    return out


def score_table(evidence: Evidence) -> pd.DataFrame:
    """One row a task and score: value, the ends of its interval, and the constant law's score."""
    rows = []
    for task, law in evidence.laws.items():
        y = evidence.scored[task]
        found = scores.summarise(law, y)
        weights = left_out(~np.isnan(y.reshape(len(y), -1)).any(axis=1))
        without = [scores.summarise(law, y, weight) for weight in weights]
        constant = constant_law(law, evidence.labels[task])
        beaten = {} if constant is None else scores.summarise(constant, y)
        for name, value in found.items():
            if not np.isnan(value):
                ends = interval(value, np.array([one[name] for one in without]), LEVEL)
                low, high = np.clip(ends, *_range(name))
                rows.append((task, name, value, low, high, beaten.get(name, np.nan)))
    columns = ["task", "score", "value", "low", "high", "constant"]
    return pd.DataFrame(rows, columns=columns).astype({"low": float, "high": float})


def _range(score: str) -> tuple[float, float]:
    """Where a score can lie: an interval that ends elsewhere would look like a mistake."""
    if score == "nll":
        return -np.inf, np.inf
    return 0.0, 1.0 if score in ("accuracy", "brier") or "coverage" in score else np.inf


def constant_law(law: Law, y: np.ndarray) -> Law | None:
    """The best law that is the same for every window, chosen with hindsight from the labels."""
    seen = y[~np.isnan(y)]
    n = len(law)
    if isinstance(law, GaussianLaw):
        sd = seen.std()
        return None if sd == 0.0 else GaussianLaw(np.full(n, seen.mean()), np.full(n, sd))
    if isinstance(law, DiscreteLaw):
        share = np.bincount(seen.astype(int), minlength=law.num_classes) / len(seen)
        with np.errstate(divide="ignore"):
            return type(law)(np.tile(np.log(share), (n, 1)))
    return None


def far_out(evidence: Evidence, sds: float = 5.0) -> float:
    """Share of windows with an input more than so many training sds from the training mean."""
    z = evidence.model._inputs(evidence.X)
    return float(np.mean((np.abs(z) > sds).any(axis=1)))
