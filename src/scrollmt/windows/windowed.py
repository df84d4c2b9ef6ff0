"""N windows of a series: inputs, labels and times, their parts and what these share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from scrollmt import splits
from scrollmt._data.cutting import Question
from scrollmt.heads import AbstractHead
from scrollmt.observables import Bands, Observable
from scrollmt.splits import PAPER_FRACTIONS, Folds, Split

if TYPE_CHECKING:
    from scrollmt.windows.recipe import Recipe

Embargo = int | Literal["auto"]


class Parts(NamedTuple):
    """The windows of a split, labelled with edges learned from the training part."""

    train: Windows
    valid: Windows
    test: Windows


@dataclass(frozen=True, eq=False, repr=False)
class Windows:
    """N windows: inputs ``X`` (N, D), labels ``Y`` by task (N,), origins ``t`` (N,).

    - ``values``: the number behind each label, before thresholds and bands.
    - ``rows``: the origins' rows in the series; ``dropped``: the windows left out, and why.
    - ``filled``: how many missing numbers of each column were filled.
    - ``past``: ``values`` of earlier windows that reference forecasts start from, by kind:
      "persistence" one lead before, "seasonal" the same time a season before.
    """

    X: np.ndarray
    values: dict[str, np.ndarray]
    t: pd.Index
    rows: np.ndarray
    recipe: Recipe
    dropped: pd.DataFrame
    filled: dict[str, int] = field(default_factory=dict)
    past: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.X)

    @property
    def tasks(self) -> list[str]:
        return list(self.recipe.tasks)

    @property
    def questions(self) -> dict[str, Observable]:
        """The observable of each task, with the edges learned so far."""
        return self.recipe.questions

    @property
    def sentences(self) -> dict[str, str]:
        return {task: self.recipe.sentence(task) for task in self.tasks}

    @property
    def heads(self) -> dict[str, AbstractHead]:
        """The head that each question calls for."""
        return {task: asked.head() for task, asked in self.questions.items()}

    @property
    def feature_names(self) -> list[str]:
        return self.recipe.feature_names

    @property
    def Y(self) -> dict[str, np.ndarray]:
        """Labels by task, NaN where missing; an error while quantile edges are not learned."""
        return {task: asked.label(self.values[task]) for task, asked in self.questions.items()}

    @property
    def past_labels(self) -> dict[str, dict[str, np.ndarray]]:
        """The labels of the earlier windows in ``past``, by kind and task."""
        asked = self.questions
        return {
            kind: {task: asked[task].label(value) for task, value in values.items()}
            for kind, values in self.past.items()
        }

    @property
    def overlap(self) -> int:
        """How many neighbouring windows share target rows."""
        return -(-max(self.recipe.windowing.each_lead) // self.recipe.stride)

    @property
    def target_times(self) -> pd.DataFrame:
        """The end t + lead of each window, by task."""
        ends = {k: self.t + q.lead * self.recipe.step for k, q in self.recipe.tasks.items()}
        return pd.DataFrame(ends, index=self.t)

    def X_frame(self) -> pd.DataFrame:
        return pd.DataFrame(self.X, index=self.t, columns=self.feature_names)

    def Y_frame(self) -> pd.DataFrame:
        return pd.DataFrame(self.Y, index=self.t)

    def take(self, index: Any) -> Windows:
        """Some of the windows: an integer, an array of them, a mask or a slice."""
        n = np.atleast_1d(np.arange(len(self))[index])

        def rows(values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            return {task: value[n] for task, value in values.items()}

        past = {kind: rows(values) for kind, values in self.past.items()}
        return replace(
            self, X=self.X[n], values=rows(self.values), t=self.t[n], rows=self.rows[n], past=past
        )

    def label(self, train: Any) -> Windows:
        """The same windows with quantile edges learned from the windows ``train`` alone."""
        return self._learned(train, lambda bands: bands.edges_from == "train")

    def _learned(self, index: Any, which: Callable[[Bands], bool]) -> Windows:
        tasks = dict(self.recipe.tasks)
        for task, (asked, lead) in tasks.items():
            if isinstance(asked, Bands) and which(asked):
                tasks[task] = Question(asked.learn(self.values[task][index]), lead)
        return replace(self, recipe=replace(self.recipe, tasks=tasks))

    def split(self, split: Split | None = None) -> Parts:
        """The three parts of ``split`` (by default chronological 60/20/20), all labelled."""
        split = self.chronological_split() if split is None else split
        labelled = self.label(split.train)
        return Parts(*(labelled.take(part) for part in split))

    def chronological_split(
        self, fractions: Sequence[float] = PAPER_FRACTIONS, *, embargo: Embargo | None = None
    ) -> Split:
        """``splits.chronological_split``. ``embargo`` counts strides; "auto" is the shortest time
        after which no part's history holds target hours of another part. By default it is "auto"
        where windows share target hours, whose test score would be too good, and else 0."""
        return splits.chronological_split(len(self), fractions, **self._embargo(embargo))

    def random_split(
        self,
        seed: int,
        fractions: Sequence[float] = PAPER_FRACTIONS,
        *,
        embargo: Embargo | None = None,
    ) -> Split:
        """``splits.random_split``, with ``embargo`` as in ``chronological_split``."""
        return splits.random_split(len(self), seed, fractions, **self._embargo(embargo))

    def rolling_origins(self, origins: int = 5, *, embargo: Embargo | None = None) -> list[Split]:
        """``splits.rolling_origins``, with ``embargo`` as in ``chronological_split``."""
        return splits.rolling_origins(len(self), origins, **self._embargo(embargo))

    def block_folds(self, folds: int = 5, *, embargo: Embargo | None = None) -> Folds:
        """``splits.block_folds``, with ``embargo`` as in ``chronological_split``."""
        return splits.block_folds(len(self), folds, **self._embargo(embargo))

    def leaks(self, split: Split) -> pd.DataFrame:
        """``splits.shared_hours`` of these windows: what one part knows of another's targets."""
        windowing = self.recipe.windowing
        shared = splits.shared_hours(split, self.rows, windowing.history, max(windowing.each_lead))
        return pd.DataFrame(shared)

    def _embargo(self, embargo: Embargo | None) -> dict[str, Any]:
        windowing = self.recipe.windowing
        if embargo is None:
            embargo = "auto" if self.overlap > 1 else 0
        if isinstance(embargo, str) and embargo != "auto":
            raise ValueError(f"embargo is a number of windows or 'auto', got {embargo!r}.")
        clean = windowing.history + max(windowing.each_lead) - 1
        reach = clean if embargo == "auto" else embargo * self.recipe.stride
        return {"embargo": reach, "positions": self.rows}

    def __repr__(self) -> str:
        n, d = self.X.shape
        lost = self.dropped.groupby(["part", "columns"]).size()
        why = "; ".join(f"{count} for {part} {names}" for (part, names), count in lost.items())
        span = f", t from {self.t[0]} to {self.t[-1]}" if n else ""
        lines = [f"Windows(N={n}, D={d}, tasks={self.tasks}){span}"]
        lines += [f"  {task}: {sentence}" for task, sentence in self.sentences.items()]
        lines.append(f"  dropped {len(self.dropped)} windows" + (f": missing {why}" if why else ""))
        if self.filled:
            lines.append(f"  filled {', '.join(f'{k}: {v} rows' for k, v in self.filled.items())}")
        return "\n".join(lines)
