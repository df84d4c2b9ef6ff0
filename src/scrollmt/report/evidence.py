r"""What a model is judged on: laws beside labels, scores with intervals, a constant to beat.

Neighbouring windows resemble each other, so intervals come from a circular block bootstrap: runs
of b consecutive windows are drawn with replacement until N are reached,

    b = max(ceil(N^(1/3)), windows whose targets overlap)

and a score is computed again with each window counted as often as it was drawn. Shapes: laws and
labels (N,) by task, counts (draws, N).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from scrollmt import scores
from scrollmt.forecaster import Forecaster
from scrollmt.observables import Bands, Observable, Value
from scrollmt.predictive import DiscreteLaw, EventLaw, GaussianLaw, Law
from scrollmt.units import original_units
from scrollmt.windows import Recipe, Windows

DRAWS = 200
LEVEL = 0.9


@dataclass(frozen=True, eq=False)
class Evidence:
    """A fitted model's laws at windows whose labels are known."""

    model: Forecaster
    laws: dict[str, Law]
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
        if not isinstance(asked, Value):
            return law, y, task
        return original_units(law, asked), asked.inverse(y), asked.original_units

    @cached_property
    def block(self) -> int:
        """How many consecutive windows are drawn together."""
        overlap = 1
        if self.recipe is not None:
            windowing = self.recipe.windowing
            overlap = math.ceil(max(windowing.each_lead) / (windowing.stride or 1))
        return min(max(math.ceil(len(self) ** (1 / 3)), overlap), len(self))

    @cached_property
    def counts(self) -> np.ndarray:
        """(draws, N): how often each window was drawn."""
        return block_counts(len(self), self.block, DRAWS, seed=0)


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
    labels = {
        name: np.where(rows.weights[name] > 0, rows.labels[name], np.nan).astype(float)
        for name in laws
    }
    bare = [name for name, y in labels.items() if np.isnan(y).all()]
    if bare:
        raise ValueError(
            f"the tasks {bare} have no observed label in these {len(rows.x)} windows, so there is "
            "nothing to report on them; pass windows whose outcome is known"
        )
    return Evidence(model, dict(laws), labels, X, windows)


def block_counts(n: int, block: int, draws: int, seed: int) -> np.ndarray:
    """(draws, n): how often each of n rows is drawn, in circular blocks; every draw has n rows."""
    rng = np.random.default_rng(seed)
    starts = rng.integers(n, size=(draws, math.ceil(n / block)))
    rows = (starts[:, :, None] + np.arange(block)).reshape(draws, -1)[:, :n] % n
    return np.stack([np.bincount(one, minlength=n) for one in rows])


def score_table(evidence: Evidence) -> pd.DataFrame:
    """One row a task and score: value, the ends of its interval, and the constant law's score."""
    rows = []
    for task, law in evidence.laws.items():
        y = evidence.labels[task]
        found = scores.summarise(law, y)
        drawn = [scores.summarise(law, y, weight) for weight in evidence.counts]
        constant = constant_law(law, y)
        beaten = {} if constant is None else scores.summarise(constant, y)
        for name, value in found.items():
            again = np.array([one[name] for one in drawn])
            low, high = np.nanquantile(again, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
            rows.append((task, name, value, low, high, beaten.get(name, np.nan)))
    return pd.DataFrame(rows, columns=["task", "score", "value", "low", "high", "constant"])


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
