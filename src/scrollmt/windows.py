r"""From a series and questions about its future to windows: inputs X, labels Y, times.

A window with origin t reads rows ``t - history + 1 .. t`` and is asked about ``(t, t + lead]``.
Origins lie ``stride`` rows apart, the first at row ``history - 1``:

    X[n] = inputs at t_n  (N, D),      Y[task][n] = observable of (t_n, t_n + lead]  (N,)

Simulated paths of S + 1 points fit in end to end: ``Windowing(history=1, lead=S, stride=S + 1)``
on ``{"x": paths.ravel()}`` makes one window of each.

Gaps are filled by the rule of ``scrollmt.series``; a window that still reads a missing cell is
dropped and listed in ``dropped``. Quantile edges are learned from the training windows when the
windows are split or labelled; before that their labels cannot be read, so that no test window
has a say in them unless ``edges_from="corpus"`` asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pandas as pd

from scrollmt import splits
from scrollmt.arguments import read_list
from scrollmt.cutting import (
    Question,
    build_inputs,
    build_values,
    dropped_table,
    filled_numbers,
    last_complete,
    missing_targets,
    tasks_of,
)
from scrollmt.heads import AbstractHead
from scrollmt.inputs import Input, Lags, input_from_dict, read_inputs
from scrollmt.observables import Bands, Observable, observable_from_dict
from scrollmt.series import GapRule, Series, duration, plain, read_series
from scrollmt.splits import PAPER_FRACTIONS, Split

Embargo = int | Literal["auto"]


class Parts(NamedTuple):
    """The windows of a split, labelled with edges learned from the training part."""

    train: Windows
    valid: Windows
    test: Windows


@dataclass(frozen=True)
class Windowing:
    """How windows are cut: all lengths in rows of the series.

    - ``history``: rows known at t, with t itself; ``lead`` (or several ``leads``): how far ahead.
    - ``stride``: rows between origins; by default the longest lead, so that targets do not overlap.
    - ``fill_limit``, ``gaps``: how missing numbers are filled (``scrollmt.series``); 0 fills none.
    - ``missing_targets``: a window with a missing label is dropped, or kept ("keep") as long as
      one of its labels is there; the others are NaN.

    With ``leads=[1, 6, 24]`` every question becomes one task a lead, named "question@lead".
    """

    history: int
    lead: int | None = None
    stride: int | None = None
    leads: Sequence[int] | None = None
    fill_limit: int = 0
    gaps: GapRule = "strict"
    missing_targets: Literal["drop", "keep"] = "drop"

    def __post_init__(self) -> None:
        if (self.lead is None) == (self.leads is None):
            raise ValueError("Windowing needs either lead=... or leads=[...].")
        wanted = "a list such as [1, 6, 24]; a single one is lead=..."
        leads = None if self.leads is None else read_list("leads", self.leads, wanted)
        object.__setattr__(self, "leads", leads)
        if leads is not None and (not leads or len(set(leads)) < len(leads)):
            raise ValueError(f"leads must be different numbers of rows, got {list(leads)}.")
        if self.stride is None:
            object.__setattr__(self, "stride", max(self.each_lead))
        lengths: dict[str, Any] = {f"lead {lead!r}": lead for lead in self.each_lead}
        lengths |= {"history": self.history, "stride": self.stride, "fill_limit": self.fill_limit}
        for name, rows in lengths.items():
            least = 0 if name == "fill_limit" else 1
            if isinstance(rows, bool) or not isinstance(rows, int | np.integer) or rows < least:
                raise ValueError(f"Windowing: {name} must be rows >= {least}, got {rows!r}.")
        for name, allowed in (("gaps", get_args(GapRule)), ("missing_targets", ("drop", "keep"))):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {allowed}, got {getattr(self, name)!r}.")

    @property
    def each_lead(self) -> tuple[int, ...]:
        return tuple(self.leads) if self.leads is not None else (self.lead or 0,)

    def cut(
        self,
        frame: Any,
        questions: Mapping[str, Observable],
        inputs: Sequence[Input] | None = None,
        *,
        time: Any = None,
        columns: Sequence[str] | None = None,
    ) -> Windows:
        """All complete windows of ``frame`` (see ``read_series`` for what a frame can be).

        ``inputs`` is a list of ``lags``, ``current``, ``one_hot``, ``calendar``; by default the
        lags of every column that a question is about. One-hot categories that were not named
        are those of the whole series.
        """
        series = read_series(frame, time, columns)
        tasks = tasks_of(questions, self.leads, self.each_lead[0])
        if inputs is None:
            asked = (name for one in questions.values() for name in one.columns())
            inputs = [Lags(column) for column in dict.fromkeys(asked)]
        recipe = Recipe(
            windowing=self,
            tasks=tasks,
            inputs=tuple(one.learn(series) for one in read_inputs(inputs)),
            step=series.step,
            anchor=series.time[min(self.history, len(series)) - 1],
            time=time if isinstance(time, str) else None,
            columns=None if columns is None else tuple(columns),
        )
        return recipe.windows_of(series)


@dataclass(frozen=True, repr=False)
class Recipe:
    """All that a fitted model has to keep in order to read a series again; ``to_dict`` is JSON.

    ``anchor`` is the first origin in training: windows a whole number of strides from it lie on
    the training grid (the same hour of day where the stride is a day).
    """

    windowing: Windowing
    tasks: dict[str, Question]
    inputs: tuple[Input, ...]
    step: Any
    anchor: Any
    time: str | None = None
    columns: tuple[str, ...] | None = None

    @property
    def feature_names(self) -> list[str]:
        return [name for one in self.inputs for name in one.names(self.windowing.history)]

    def sentence(self, task: str) -> str:
        """The task's question in words, with its lead."""
        asked, lead = self.tasks[task]
        return asked.sentence(duration(lead, self.step))

    def cut(self, frame: Any, *, time: Any = None, columns: Any = None) -> Windows:
        """Windows of another series, with the same edges, categories and grid of origins."""
        return self.windows_of(self._read(frame, time, columns))

    def windows_of(self, series: Series) -> Windows:
        """All complete windows of a series that has been read already."""
        windowing = self.windowing
        ahead = max(windowing.each_lead)
        rows = np.arange(windowing.history - 1, len(series) - ahead)
        rows = rows[self.on_grid(series.time[rows])]
        if len(rows) == 0:
            raise ValueError(
                f"The series has {len(series)} rows; one window needs history + lead = "
                f"{windowing.history} + {ahead}, with t a number of strides "
                f"({duration(windowing.stride or 1, self.step)}) from {self.anchor}."
            )
        numbers, filled = self._numbers(series, with_targets=True)
        X, lacking = build_inputs(self.inputs, series, numbers, rows, windowing.history)
        values = build_values(self.tasks, numbers, rows)
        unknown = missing_targets(self.tasks, values, windowing.missing_targets == "keep")
        dropped = dropped_table(series.time[rows], lacking, unknown)
        whole = ~np.isin(rows, rows[dropped.index])
        windows = Windows(X, values, series.time[rows], rows, self, dropped, filled)
        # Edges that are known stay: a model's classes must mean the same on every series.
        return windows.take(whole)._learned(
            slice(None), lambda bands: bands.edges_from == "corpus" and bands.edges is None
        )

    def newest(
        self,
        frame: Any,
        *,
        time: Any = None,
        columns: Any = None,
        at: Any = None,
        on_grid: bool = False,
    ) -> Windows:
        """The newest window whose inputs are complete, as ``Windows`` of length one.

        Its labels are missing; ``t`` and ``target_times`` say what it is about, ``dropped`` which
        later origins had to be passed over. ``at`` asks for one origin; ``on_grid`` admits only
        origins on the training grid (with a stride of a day: the hour of day trained on).
        """
        series = self._read(frame, time, columns)
        rows = np.arange(self.windowing.history - 1, len(series))
        if at is not None:
            rows = rows[series.time[rows] == at]
        if on_grid:
            rows = rows[self.on_grid(series.time[rows])]
        if len(rows) == 0:
            raise ValueError(
                f"No origin to forecast from (at={at}, on_grid={on_grid}): the series has "
                f"{len(series)} rows to {series.time[-1]}, and a window reads a history of "
                f"{self.windowing.history}."
            )
        numbers, filled = self._numbers(series, with_targets=False)
        X, lacking = last_complete(self.inputs, series, numbers, rows, self.windowing.history)
        rows = rows[::-1][: len(lacking)]
        dropped = dropped_table(series.time[rows], lacking, [set()] * len(rows))
        values = {task: np.full(1, np.nan) for task in self.tasks}
        return Windows(X, values, series.time[rows[-1:]], rows[-1:], self, dropped, filled)

    def on_grid(self, times: pd.Index) -> np.ndarray:
        """Which times are a whole number of strides from the training origins."""
        steps = np.asarray((times - self.anchor) / self.step, dtype=float)
        stride = self.windowing.stride or 1
        return np.isclose(steps / stride, np.round(steps / stride), rtol=0, atol=1e-6)

    def _read(self, frame: Any, time: Any, columns: Any) -> Series:
        series = read_series(
            frame, self.time if time is None else time, self.columns if columns is None else columns
        )
        now, then = (isinstance(one, pd.Timedelta) for one in (series.step, self.step))
        if now != then or not np.isclose(series.step / self.step, 1.0, rtol=1e-6):
            raise ValueError(f"The step of this series is {series.step}, the model's {self.step}.")
        if now and (series.time.tz is None) != (self.anchor.tz is None):
            raise ValueError(
                f"Time zones differ: this series has {series.time.tz}, the model {self.anchor.tz}."
            )
        return series

    def _numbers(
        self, series: Series, with_targets: bool
    ) -> tuple[dict[str, np.ndarray], dict[str, int]]:
        names = [name for one in self.inputs for name in one.numeric_columns()]
        if with_targets:
            names += [name for one in self.tasks.values() for name in one.observable.columns()]
        return filled_numbers(series, names, self.windowing.fill_limit, self.windowing.gaps)

    def to_dict(self) -> dict[str, Any]:
        return {
            "windowing": {k: plain(v) for k, v in vars(self.windowing).items()},
            "tasks": {k: [q.observable.to_dict(), int(q.lead)] for k, q in self.tasks.items()},
            "inputs": [one.to_dict() for one in self.inputs],
            "step": plain(self.step),
            "anchor": plain(self.anchor),
            "time": self.time,
            "columns": plain(self.columns),
        }

    def __repr__(self) -> str:
        return f"Recipe(tasks={list(self.tasks)}, {self.windowing})"

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Recipe:
        dated = isinstance(stored["step"], str)
        return cls(
            windowing=Windowing(**stored["windowing"]),
            tasks={
                k: Question(observable_from_dict(asked), lead)
                for k, (asked, lead) in stored["tasks"].items()
            },
            inputs=tuple(input_from_dict(one) for one in stored["inputs"]),
            step=pd.Timedelta(stored["step"]) if dated else stored["step"],
            anchor=pd.Timestamp(stored["anchor"]) if dated else stored["anchor"],
            time=stored["time"],
            columns=None if stored["columns"] is None else tuple(stored["columns"]),
        )


@dataclass(frozen=True, eq=False, repr=False)
class Windows:
    """N windows: inputs ``X`` (N, D), labels ``Y`` by task (N,), origins ``t`` (N,).

    - ``values``: the number behind each label, before thresholds and bands.
    - ``rows``: the origins' rows in the series; ``dropped``: the windows left out, and why.
    - ``filled``: how many missing numbers of each column were filled.
    """

    X: np.ndarray
    values: dict[str, np.ndarray]
    t: pd.Index
    rows: np.ndarray
    recipe: Recipe
    dropped: pd.DataFrame
    filled: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.X)

    @property
    def tasks(self) -> list[str]:
        return list(self.recipe.tasks)

    @property
    def questions(self) -> dict[str, Observable]:
        """The observable of each task, with the edges learned so far."""
        return {task: question.observable for task, question in self.recipe.tasks.items()}

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
        values = {task: value[n] for task, value in self.values.items()}
        return replace(self, X=self.X[n], values=values, t=self.t[n], rows=self.rows[n])

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
        self, fractions: Sequence[float] = PAPER_FRACTIONS, *, embargo: Embargo = 0
    ) -> Split:
        """``splits.chronological_split``. ``embargo`` counts strides; "auto" is the shortest time
        after which no part's history holds target hours of another part."""
        return splits.chronological_split(len(self), fractions, **self._embargo(embargo))

    def random_split(
        self, seed: int, fractions: Sequence[float] = PAPER_FRACTIONS, *, embargo: Embargo = 0
    ) -> Split:
        """``splits.random_split``, with ``embargo`` as in ``chronological_split``."""
        return splits.random_split(len(self), seed, fractions, **self._embargo(embargo))

    def rolling_origins(self, origins: int = 5, *, embargo: Embargo = 0) -> list[Split]:
        """``splits.rolling_origins``, with ``embargo`` as in ``chronological_split``."""
        return splits.rolling_origins(len(self), origins, **self._embargo(embargo))

    def leaks(self, split: Split) -> pd.DataFrame:
        """``splits.shared_hours`` of these windows: what one part knows of another's targets."""
        windowing = self.recipe.windowing
        shared = splits.shared_hours(split, self.rows, windowing.history, max(windowing.each_lead))
        return pd.DataFrame(shared)

    def _embargo(self, embargo: Embargo) -> dict[str, Any]:
        windowing = self.recipe.windowing
        if isinstance(embargo, str) and embargo != "auto":
            raise ValueError(f"embargo is a number of windows or 'auto', got {embargo!r}.")
        clean = windowing.history + max(windowing.each_lead) - 1
        reach = clean if embargo == "auto" else embargo * (windowing.stride or 1)
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
