"""`scrollmt init`: a commented config from the columns of a file, which `fit` takes as it is.

A file with a time is taken for a series and asked about its first number; any other is taken for
a table of ready-made windows. All that is guessed is written out, to be changed. Before anything
is written, the config is read and its windows are cut and checked as `fit --check` does; questions
that cannot be learned are written as comments, with the reason.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import typer

from scrollmt._data.series import fill_gaps
from scrollmt.cli import guessing, tables, times
from scrollmt.cli.config import ONE_DAY, STANDARD_STREAM, Source, read_source
from scrollmt.cli.data import Prepared
from scrollmt.cli.drafts import Data, Question, SeriesDraft, TableDraft, toml
from scrollmt.cli.schema import Section
from scrollmt.cli.shell import KeyProblem, Problem, say
from scrollmt.cli.tables import Loaded
from scrollmt.cli.trials import SIZES, Trial, learnable, long_enough

_FILL_LIMIT = 3
# Shares of the windows that inputs beside the asked column may cost by their missing values.
_MOST_LOST = 0.1
_EIGHT_WEEKS, _LONG = pd.Timedelta("56D"), pd.Timedelta("200D")


def init(
    data: str,
    out: str,
    *,
    column: str | None,
    separator: str | None,
    decimal: str | None,
    keys: Sequence[str] = (),
    force: bool,
) -> None:
    tables.check_target(out, force=force, inputs=(data,))
    given: dict[str, Any] = {"separator": separator, "decimal": decimal}
    try:
        source = _source(data, {k: v for k, v in given.items() if v is not None} | _keys(keys))
        text, asked = _config(source, data, out, column)
    except KeyProblem as problem:
        raise Problem(f"{problem} (init: --data '{problem.setting}')") from problem.__cause__
    if out == STANDARD_STREAM:
        typer.echo(text, nl=False)
        return
    with tables.replacing(out) as draft:
        draft.write_text(text, encoding="utf-8")
    say(f"{out} is written and asks about {asked!r}; change it, then: scrollmt fit {out}")


def _keys(given: Sequence[str]) -> dict[str, Any]:
    """Keys of [data] as `key=value`; a value is TOML, or else a text without quotes."""
    keys = {}
    for one in given:
        key, equals, value = one.partition("=")
        if not equals:
            raise Problem(f"--data {one!r}: give a key of [data] as key=value")
        try:
            keys[key.strip()] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            keys[key.strip()] = value.strip()
    return keys


def _source(data: str, keys: dict[str, Any]) -> Source:
    """The source with what is given; the rest is found in the file."""
    return read_source(Section("data", {**keys, "file": data}), Path(), [], complete=False)


def _config(source: Source, data: str, out: str, column: str | None) -> tuple[str, str]:
    """The text of a config that can be fitted, and the column that it asks about."""
    contents = [tables.read_bytes(data)]
    loaded = tables.load(source, contents)
    if loaded.source.missing != source.missing:
        # What stands for a missing value in one column does so in all of them.
        loaded = tables.load(loaded.source, contents)
    names = list(map(str, loaded.frame.columns))
    if guessing.is_a_row(names):
        raise Problem(
            f"{tables.named(data)} has no header: its first row is {', '.join(names)[:80]}; add a "
            "row with the names of the columns"
        )
    if column is not None:
        tables.need_columns(loaded.frame, [column], tables.named(data))
    # Paths of a config start at its own folder.
    streamed = STANDARD_STREAM in (data, out)
    read_file = _ReadFile(
        loaded,
        data if streamed else os.path.relpath(data, Path(out).parent),
        Path() if streamed else Path(out).parent,
    )
    found = guessing.find_time(loaded.frame, loaded.source)
    return read_file.table(column) if found is None else read_file.series(found, column)


@dataclass(frozen=True)
class _ReadFile:
    """A file that was read, and where its config will lie."""

    loaded: Loaded
    file: str
    folder: Path

    @property
    def frame(self) -> pd.DataFrame:
        return self.loaded.frame

    @property
    def name(self) -> str:
        return tables.named(self.loaded.source.files[0])

    def series(self, source: Source, column: str | None) -> tuple[str, str]:
        time = str(source.time)
        asked = self._asked(column, [*source.time_columns], "first")
        rows = tables.dated(self.frame, replace(source, step=None))
        when = rows[time]
        dated = pd.api.types.is_datetime64_any_dtype(when.dtype)
        step = source.step or (_step(pd.DatetimeIndex(when), self.name) if dated else None)
        if step is not None:
            source = replace(source, step=step)
            rows = times.on_grid(rows, time, step, self.name)
        short = dated and step is not None and step < ONE_DAY
        hint_at_zone = short and when.dt.tz is None
        data = Data(source, self.file, hint_at_zone=hint_at_zone)
        check = Trial(rows, data, self.folder, self.loaded.digests)
        draft = self._draft(check, asked, source, step)
        return check.text(draft), asked

    def _draft(
        self, check: Trial, asked: str, source: Source, step: pd.Timedelta | None
    ) -> SeriesDraft:
        """Lengths and parts that the file is long enough for, then questions, then inputs."""
        draft = SeriesDraft(asked, history=1, lead=1, questions={"value": Question("value")})
        if step is not None:
            draft = replace(draft, calendar=_calendar(step, check.rows[source.time]))
        draft, prepared = long_enough(check, draft, step, self.name)
        draft = replace(draft, questions=_questions(asked, prepared, self.frame[asked]))
        draft = replace(draft, questions=learnable(check, draft))
        others, categories = self._inputs(check.rows, prepared, asked, source)
        taken = {asked, *others, *categories, *source.time_columns}
        free = [str(one) for one in self.frame if one not in taken]
        numbers = [one for one in free if guessing.varies(self.frame[one])]
        unused = (*numbers, *(one for one in free if one not in numbers))
        full = replace(draft, others=others, categories=categories, unused=unused)
        bare = replace(draft, unused=(*others, *categories, *unused))
        for tried in (full, bare):
            why_not = check.complaint(tried)
            if why_not is None:
                return tried
        raise Problem(f"{self.name}: no config for {asked!r} can be fitted: {why_not}")

    def _inputs(
        self, rows: pd.DataFrame, prepared: Prepared, asked: str, source: Source
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Further numbers and categories, as long as their gaps cost few windows."""
        windows = prepared.windows
        assert windows is not None
        steps = min(windows.recipe.windowing.history, 6)
        back = windows.rows[:, None] - np.arange(steps)
        lost = np.zeros(len(windows.rows), dtype=bool)
        chosen: dict[bool, list[str]] = {True: [], False: []}
        for column in self.frame:
            name = str(column)
            values = self.frame[name]
            if name in (asked, *source.time_columns) or guessing.counts_rows(values):
                continue
            number = guessing.varies(values)
            if number:
                cells = rows[name].astype("Float64").to_numpy(dtype=float, na_value=np.nan)
                filled = fill_gaps(cells, _FILL_LIMIT, "strict")
                gone = lost | np.isnan(filled)[back].any(axis=1)
            elif guessing.is_category(values):
                gone = lost | rows[name].isna().to_numpy()[windows.rows]
            else:
                continue
            if gone.mean() <= _MOST_LOST:
                lost = gone
                chosen[number].append(name)
        return tuple(chosen[True]), tuple(chosen[False])

    def table(self, column: str | None) -> tuple[str, str]:
        texts = column is not None and guessing.is_category(self.frame[column])
        asked = str(column) if texts else self._asked(column, [], "last")
        values = self.frame[asked]
        columns = [str(one) for one in self.frame if one != asked]
        numbers = [
            one
            for one in columns
            if guessing.varies(self.frame[one]) and not guessing.counts_rows(self.frame[one])
        ]
        # A label may be missing, an input may not.
        inputs = [one for one in numbers if not self.frame[one].isna().any()]
        if not inputs:
            why = f"{numbers} have missing cells" if numbers else "there is no other number"
            raise Problem(
                f"{self.name}: no column says the time, and there is nothing to forecast {asked!r} "
                f"from: {why}"
            )
        unused = [one for one in columns if one not in inputs]
        draft = replace(_target(asked, values), inputs=tuple(inputs), unused=tuple(unused))
        data = Data(self.loaded.source, self.file)
        check = Trial(self.frame, data, self.folder, self.loaded.digests)
        for sizes in SIZES:
            tried = replace(draft, test=0.2 if sizes.test else 0.0)
            why_not = check.complaint(tried, sizes)
            if why_not is None:
                return check.text(tried), asked
        raise Problem(f"{self.name}: no config for {asked!r} can be fitted: {why_not}")

    def _asked(self, column: str | None, taken: list[str], which: str) -> str:
        """The column to ask about: the one given, or the first or last of numbers that vary."""
        free = [str(one) for one in self.frame if one not in taken]
        if column is not None and column not in free:
            raise Problem(f"--column {column!r} says the time; choose from {free}")
        uncounted = [one for one in free if not guessing.counts_rows(self.frame[one])]
        wanted = [column] if column is not None else (uncounted or free)
        for one in wanted if which == "first" else wanted[::-1]:
            odd = self.loaded.odd.get(one)
            if odd is not None and odd.mostly_numbers:
                marker = toml([odd.cell])
                raise KeyProblem(
                    f"{self.name}: {odd.sentence(one)}; correct them, ask about another --column, "
                    f"or read them as missing with data.missing = {marker}",
                    f"missing={marker}",
                )
            values = self.frame[one]
            if guessing.is_number(values) and np.isinf(values.to_numpy(dtype=float)).any():
                row = int(np.flatnonzero(np.isinf(values.to_numpy(dtype=float)))[0])
                raise KeyProblem(
                    f"{self.name}: column {one!r} is infinite, first in row {row + 1} below the "
                    "header; correct it, ask about another --column, or read such cells as missing "
                    'with data.missing = ["inf", "-inf"]',
                    'missing=["inf", "-inf"]',
                )
            if guessing.varies(values):
                return one
        numbers = [one for one in free if guessing.varies(self.frame[one])]
        if column is not None:
            raise Problem(f"--column {column!r} holds no numbers that vary; choose from {numbers}")
        raise Problem(f"{self.name} has no column of numbers that vary to forecast")


def _step(when: pd.DatetimeIndex, name: str) -> pd.Timedelta:
    """The step that most rows keep and all are multiples of."""
    steps = pd.Series(when[1:] - when[:-1])
    if steps.empty:
        raise Problem(f"{name} has one row, and a series needs more to learn from")
    step = pd.Timedelta(steps.mode().iloc[0])
    odd = np.flatnonzero(steps % step != pd.Timedelta(0))
    if len(odd):
        months = steps.between(pd.Timedelta("28D"), pd.Timedelta("31D")).all()
        hint = "months are of different length: " if months else ""
        raise Problem(
            f"{name}: the times keep no common step ({hint}{step} is the most frequent, but "
            f"{steps.iloc[odd[0]]} lie before {when[odd[0] + 1]}); correct them, or leave the time "
            "column out, and rows are counted"
        )
    return step


def _calendar(step: pd.Timedelta, when: pd.Series) -> tuple[str, ...]:
    span = when.max() - when.min()
    parts = {
        "hour": step < ONE_DAY,
        "weekday": step == ONE_DAY or (step < ONE_DAY and span > _EIGHT_WEEKS),
        "month": span > _LONG,
    }
    return tuple(part for part, useful in parts.items() if useful)


def _questions(asked: str, prepared: Prepared, values: pd.Series) -> dict[str, Question]:
    """Three questions, with thresholds from the part that trains."""
    seen = pd.Series(prepared.train.X.values["value"]).dropna()
    transform = guessing.is_skewed(seen) and bool(values.min() >= 0)
    comparison, level, share = _threshold(seen)
    rare = None if 0.02 < share < 0.9 else f"{share:.1%} of the training windows are such events"
    only_two = None if seen.nunique() > 2 else f"{asked} has two values, which is an event"
    return {
        "value": Question(
            "value",
            transform=transform,
            count=guessing.are_counts(values),
            why_not=only_two if rare is None else None,
        ),
        "event": Question("event", comparison=comparison, level=level, why_not=rare),
        "band": Question("bands"),
    }


def _threshold(seen: pd.Series) -> tuple[str, float, float]:
    """What about a tenth of the values exceed, in as few digits as will do, and their share."""
    tenth = float(seen.quantile(0.9))
    for digits in range(2, 17):
        level = float(f"{tenth:.{digits}g}")
        share = float((seen > level).mean())
        if 0.05 < share < 0.2:
            return "above", level, share
    # Of a few values, the one at the quantile may be the highest there is.
    at_least = float((seen >= tenth).mean())
    return ("at_least", tenth, at_least) if share < 0.02 else ("above", tenth, share)


def _target(asked: str, values: pd.Series) -> TableDraft:
    """The head of a target from what its column holds; inputs are still to be chosen."""
    if not guessing.is_number(values):
        texts = tuple(guessing.texts_of(values))
        return TableDraft(asked, (), "event" if len(texts) == 2 else "categorical", texts)
    if guessing.are_classes(values):
        classes = int(values.max()) + 1
        return TableDraft(asked, (), "event" if classes == 2 else "ordinal", classes=classes)
    return TableDraft(asked, (), "gaussian", count=guessing.are_counts(values))
