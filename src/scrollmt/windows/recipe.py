"""How windows are cut from a series, and what a fitted model keeps to cut them again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd

from scrollmt._data.cutting import (
    Question,
    build_inputs,
    build_values,
    dropped_table,
    filled_numbers,
    last_complete,
    missing_targets,
    tasks_of,
)
from scrollmt._data.series import GapRule, Series, duration, read_series
from scrollmt._io.arguments import read_list
from scrollmt._io.text import plain
from scrollmt.adapters import Layout
from scrollmt.inputs import Input, Lags, input_from_dict, read_inputs
from scrollmt.observables import Observable, observable_from_dict
from scrollmt.windows.origins import (
    default_stride,
    rows_between_known_phases,
    rows_in_a_season,
)
from scrollmt.windows.windowed import Windows


@dataclass(frozen=True)
class Windowing:
    """How windows are cut: all lengths in rows of the series.

    - ``history``: rows known at t, with t itself; ``lead`` (or several ``leads``): how far ahead.
    - ``stride``: rows between origins. By default every row is one; a series with more than
      20,000 is thinned evenly, out of step with the day and the week.
    - ``fill_limit``, ``gaps``: how missing numbers are filled (``_data.series``); 0 fills none.
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
        lengths: dict[str, Any] = {f"lead {lead!r}": lead for lead in self.each_lead}
        lengths |= {"history": self.history, "fill_limit": self.fill_limit}
        lengths |= {} if self.stride is None else {"stride": self.stride}
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

    def stride_for(self, rows: int, step: Any) -> int:
        """Rows between the origins of a series of so many rows."""
        if self.stride is not None:
            return self.stride
        return default_stride(rows - self.history + 1 - max(self.each_lead), step)

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
            stride=self.stride_for(len(series), series.step),
            time=time if isinstance(time, str) else None,
            columns=None if columns is None else tuple(columns),
            timezone=series.timezone,
        )
        return recipe.windows_of(series)


@dataclass(frozen=True, repr=False)
class Recipe:
    """All that a fitted model has to keep in order to read a series again; ``to_dict`` is JSON.

    ``anchor`` is the first origin in training and ``stride`` the rows from one origin to the next.
    The hours of the calendar are those of ``timezone``, whatever zone a new series is given in.
    """

    windowing: Windowing
    tasks: dict[str, Question]
    inputs: tuple[Input, ...]
    step: Any
    anchor: Any
    stride: int
    time: str | None = None
    columns: tuple[str, ...] | None = None
    timezone: str | None = None

    @property
    def questions(self) -> dict[str, Observable]:
        """The observable of each task, with the edges learned so far."""
        return {task: question.observable for task, question in self.tasks.items()}

    @property
    def feature_names(self) -> list[str]:
        return [name for one in self.inputs for name in one.names(self.windowing.history)]

    @property
    def layout(self) -> Layout:
        """Where each input stands in a window (T, C): T steps, oldest first, of C columns.

        Inputs have to be lags of the same steps; the columns come in the order of the inputs.
        """
        history, lags = self.windowing.history, [i for i in self.inputs if isinstance(i, Lags)]
        other = [name for i in self.inputs if i not in lags for name in i.names(history)]
        if other:
            raise ValueError(
                f"windows (T, C) are made of lags alone, and the inputs {other} are none; leave "
                "them out, or let the backbone read flat inputs"
            )
        back = [one.distances(history) for one in lags]
        if any(set(steps) != set(back[0]) for steps in back):
            found = {one.column: sorted(steps) for one, steps in zip(lags, back, strict=True)}
            raise ValueError(f"windows (T, C) need lags of the same steps, and these are {found}")
        first = range(0, len(back) * len(back[0]), len(back[0]))
        order = (
            tuple(place + steps.index(k) for place, steps in zip(first, back, strict=True))
            for k in sorted(back[0], reverse=True)
        )
        return Layout(tuple(self.feature_names), tuple(order))

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
        stride = windowing.stride_for(len(series), self.step)
        rows = np.arange(windowing.history - 1, len(series) - ahead)
        rows = rows[self._at_multiples_of(stride, series.time[rows])]
        if len(rows) == 0:
            raise ValueError(
                f"The series has {len(series)} rows; one window needs history + lead = "
                f"{windowing.history} + {ahead}, with t a number of strides "
                f"({duration(stride, self.step)}) from {self.anchor}."
            )
        numbers, filled = self._numbers(series, with_targets=True)
        inputs = build_inputs(self.inputs, series, numbers, rows, windowing.history)
        values = build_values(self.tasks, numbers, rows)
        past = {
            kind: build_values(self.tasks, numbers, rows, back)
            for kind, back in self._references().items()
        }
        recipe = replace(self, stride=stride)
        windows = recipe._complete(series.time[rows], rows, inputs, filled, values, past)
        # Edges that are known stay: a model's classes must mean the same on every series.
        return windows._learned(
            slice(None), lambda bands: bands.edges_from == "corpus" and bands.edges is None
        )

    def _complete(
        self,
        t: pd.Index,
        rows: np.ndarray,
        inputs: tuple[np.ndarray, list[set[str]]],
        filled: dict[str, int],
        values: dict[str, np.ndarray] | None = None,
        past: dict[str, dict[str, np.ndarray]] | None = None,
    ) -> Windows:
        """The windows that lack nothing; without ``values`` the labels are still to come."""
        X, lacking = inputs
        unknown: list[set[str]] = [set() for _ in rows]
        if values is None:
            values = {task: np.full(len(rows), np.nan) for task in self.tasks}
        else:
            keep_partial = self.windowing.missing_targets == "keep"
            unknown = missing_targets(self.tasks, values, keep_partial)
        dropped = dropped_table(t, lacking, unknown)
        complete = ~np.isin(np.arange(len(rows)), dropped.index)
        return Windows(X, values, t, rows, self, dropped, filled, past or {}).take(complete)

    def _references(self) -> dict[str, dict[str, int]]:
        """By kind of reference and task, how many rows before the origin its window begins.

        Both windows end at the origin or before; where they are the same, one is enough.
        """
        leads = {task: question.lead for task, question in self.tasks.items()}
        season = rows_in_a_season(self.step)
        kinds = {"persistence": leads}
        if season is not None:
            kinds["seasonal"] = {task: -(-lead // season) * season for task, lead in leads.items()}
        return kinds if kinds.get("seasonal") != leads else {"persistence": leads}

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
        the clock times that training had origins at (with a stride of a day: one hour of the day).
        """
        series = self._read(frame, time, columns)
        rows = self._origins(series, at, on_grid)
        numbers, filled = self._numbers(series, with_targets=False)
        inputs = last_complete(self.inputs, series, numbers, rows, self.windowing.history)
        rows = rows[::-1][: len(inputs[0])]
        return self._complete(series.time[rows], rows, inputs, filled)

    def unlabelled(
        self, frame: Any, *, time: Any = None, columns: Any = None, on_grid: bool = False
    ) -> Windows:
        """All windows whose inputs are complete, also those whose answers are still to come.

        Labels are missing; ``on_grid`` as in ``newest``.
        """
        series = self._read(frame, time, columns)
        rows = self._origins(series, None, on_grid)
        numbers, filled = self._numbers(series, with_targets=False)
        inputs = build_inputs(self.inputs, series, numbers, rows, self.windowing.history)
        return self._complete(series.time[rows], rows, inputs, filled)

    def _origins(self, series: Series, at: Any, on_grid: bool) -> np.ndarray:
        """The rows that a forecast can start from; an error where there is none."""
        rows = np.arange(self.windowing.history - 1, len(series))
        if at is not None:
            rows = rows[series.time[rows] == at]
        if on_grid:
            rows = rows[self.on_grid(series.time[rows])]
        if len(rows) == 0:
            wanted = "" if at is None else f" at {at}"
            grid = f", and on_grid=True admits only {self.grid}" if on_grid else ""
            raise ValueError(
                f"No origin{wanted} to forecast from: the series has {len(series)} rows, from "
                f"{series.time[0]} to {series.time[-1]}, and a window reads a history of "
                f"{self.windowing.history} rows{grid}."
            )
        return rows

    def on_grid(self, times: pd.Index) -> np.ndarray:
        """Which times training had origins at, by hour and weekday; all, with the default stride.

        Without dates: which times are a whole number of given strides from the first origin.
        """
        return self._at_multiples_of(self._grid_rows, times)

    @property
    def grid(self) -> str:
        """The clock times of the training origins, in words."""
        if self._grid_rows == 1:
            return "any origin"
        return f"origins every {duration(self._grid_rows, self.step)} from {self.anchor}"

    def off_grid(self, t: Any) -> str | None:
        """A sentence on an origin whose clock time training had none at; None where it had."""
        if self.on_grid(pd.Index([t]))[0]:
            return None
        return (
            f"the fit learned from {self.grid} alone, and this forecast starts at {t}: nothing was "
            "learned about forecasts from such a time; use on_grid=True for the newest origin like "
            "those of the fit, or fit without a stride"
        )

    @property
    def _grid_rows(self) -> int:
        return rows_between_known_phases(self.windowing.stride, self.step)

    def _at_multiples_of(self, rows: int, times: pd.Index) -> np.ndarray:
        """Which times are a whole number of so many rows from the anchor."""
        steps = np.asarray((times - self.anchor) / self.step, dtype=float)
        return np.isclose(steps / rows, np.round(steps / rows), rtol=0, atol=1e-6)

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
        # Version 0.1 did not store the zone, and read hours in that of the new series.
        return series if self.timezone is None else series.in_zone(self.timezone)

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
            "stride": self.stride,
            "time": self.time,
            "columns": plain(self.columns),
            "timezone": self.timezone,
        }

    def __repr__(self) -> str:
        return f"Recipe(tasks={list(self.tasks)}, {self.windowing})"

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Recipe:
        dated = isinstance(stored["step"], str)
        windowing = Windowing(**stored["windowing"])
        timezone = stored.get("timezone") if dated else None
        anchor = pd.Timestamp(stored["anchor"]) if dated else stored["anchor"]
        return cls(
            windowing=windowing,
            tasks={
                k: Question(observable_from_dict(asked), lead)
                for k, (asked, lead) in stored["tasks"].items()
            },
            inputs=tuple(input_from_dict(one) for one in stored["inputs"]),
            step=pd.Timedelta(stored["step"]) if dated else stored["step"],
            anchor=anchor if timezone is None else anchor.tz_convert(timezone),
            # Version 0.1 wrote the stride into the windowing alone.
            stride=stored.get("stride", windowing.stride),
            time=stored["time"],
            columns=None if stored["columns"] is None else tuple(stored["columns"]),
            timezone=timezone,
        )
