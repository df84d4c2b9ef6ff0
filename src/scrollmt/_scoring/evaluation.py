r"""Scores of laws beside reference forecasts, with their errors and numbers of labels.

    skill = (lowest mean NLL of a reference) - (mean NLL of the law)      nats; above 0 is better

Standard errors leave out stretches of neighbouring windows (see `uncertainty`); that of the skill
is of the difference, label by label. Shapes: one row per task.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from scrollmt import scores
from scrollmt._scoring.references import NAMES
from scrollmt._scoring.uncertainty import error_of_mean
from scrollmt.laws import Law
from scrollmt.laws.transformed import in_original_units
from scrollmt.observables import Observable

# Columns beside the metrics of `scores.summarise`.
BESIDE = ("nll_se", "labels", "skill", "skill_se", *NAMES)
# So many standard errors tell a difference from chance.
CLEAR = 2.0


@dataclass(frozen=True)
class Scored:
    """One task: its law, labels and weights, the laws of the references by kind, its question.

    Missing labels have weight zero. The question is None for plain rows.
    """

    law: Law
    y: np.ndarray
    weight: np.ndarray
    references: Mapping[str, Law]
    asked: Observable | None

    @cached_property
    def terms(self) -> dict[str, np.ndarray]:
        """The metrics of the task's own law, label by label.

        Stored, since the scores of some laws need quadrature.
        """
        return self._elementwise(self.law)

    @cached_property
    def means(self) -> dict[str, float]:
        """The means of `terms`."""
        return scores.means(self.terms, self.weight)

    @cached_property
    def reference_means(self) -> dict[str, dict[str, float]]:
        """The same means of each reference."""
        return {
            kind: scores.means(self._elementwise(law), self.weight)
            for kind, law in self.references.items()
        }

    def _elementwise(self, law: Law) -> dict[str, np.ndarray]:
        """The NLL on the scale of the question, errors in original units."""
        shown = (law, self.y)
        if self.asked is not None:
            shown = in_original_units(law, self.asked, self.y)
        return scores.elementwise(*shown) | {"nll": scores.nll(law, self.y)}


def evaluate(tasks: Mapping[str, Scored], overlap: int = 1) -> pd.DataFrame:
    """By task: nll, nll_se, labels, skill, skill_se, references, and the metrics of a law."""
    rows = {name: _row(task, overlap) for name, task in tasks.items()}
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("task")
    known = [name for name in ("nll", *BESIDE) if name in table]
    return table[[*known, *(name for name in table if name not in known)]]


def _row(task: Scored, overlap: int) -> dict[str, float]:
    nll = task.terms["nll"]
    against = {kind: scores.nll(law, task.y) for kind, law in task.references.items()}
    means = {kind: float(scores.average(terms, task.weight)) for kind, terms in against.items()}
    row = task.means | means
    row["nll_se"] = error_of_mean(nll, task.weight, overlap)
    row["labels"] = float(np.count_nonzero(task.weight > 0))
    if means and row["labels"]:
        best = min(means, key=lambda kind: means[kind])
        row["skill"] = means[best] - row["nll"]
        row["skill_se"] = error_of_mean(against[best] - nll, task.weight, overlap)
    return row


class Comparison(NamedTuple):
    """How a forecast compares with the best of its references."""

    kind: Literal["better", "unclear", "worse", "none"]
    words: str


def compare(row: Mapping[str, float]) -> Comparison:
    """A row of `evaluate` in words."""
    means = {kind: row[kind] for kind in NAMES if not math.isnan(row.get(kind, math.nan))}
    if not means or math.isnan(row["nll"]):
        return Comparison("none", "no reference to compare with")
    best = min(means, key=lambda kind: means[kind])
    said = f"{NAMES[best]} (NLL {row['nll']:.3f} against {means[best]:.3f})"
    if row["skill"] < 0.0:
        return Comparison("worse", f"worse than {said}")
    if not row["skill"] > CLEAR * row["skill_se"]:
        return Comparison("unclear", f"not clearly better than {said}")
    return Comparison("better", f"better than {said}")


def comparisons(table: pd.DataFrame) -> dict[str, Comparison]:
    """Every task of a table of `evaluate`, in words."""
    return {str(task): compare(row) for task, row in table.to_dict(orient="index").items()}
