"""A config file: which data, which questions, how it is split, what is fitted, where it goes.

A series is asked questions about its future ([windows], [questions.NAME], [[inputs]]); a table
of windows that is ready made has targets ([table], [targets.NAME]). Everything is checked here,
before a byte of data is read; which columns there are is checked as soon as the data is.
`scrollmt init` writes such a file, and docs/guide/five-minutes.md shows one.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from scrollmt._io.settings import RECALIBRATIONS
from scrollmt.beliefs import BELIEFS, read_beliefs
from scrollmt.cli.asking import Columns, Questions, Targets, read_questions, read_targets
from scrollmt.cli.csvs import separator_hint
from scrollmt.cli.schema import Section, between, boolean, choice, either, text, texts, whole
from scrollmt.cli.shell import Problem, sentence
from scrollmt.presets import PRESETS, Preset, get_preset
from scrollmt.routing import ROUTINGS

STANDARD_STREAM = "-"
DUPLICATES = ("error", "first", "last", "mean")
# Values of data.time_format for counts since 1970, and the unit of each.
UNIX = {"unix": "s", "unix_ms": "ms"}
ONE_DAY = pd.Timedelta(1, "D")
_OF_SERIES = ("windows", "questions", "inputs")
_OF_TABLE = ("table", "targets")


@dataclass(frozen=True)
class Source:
    """Where rows come from, and how they are read.

    - ``time``: the time column. ``time_parts``: the columns that it is made of, where it is not
      one of the file.
    - ``step`` puts dated rows on a grid; a row that the file lacks is one of missing values.
    - ``separator``, ``decimal``, ``thousands`` of a CSV are found in it where they are None.
    - ``missing``: texts that stand for a missing value; None are the usual ones, with a note.
    - ``numbers``: the keys and the columns that have to hold numbers.
    """

    files: tuple[str, ...]
    time: str | None = None
    time_format: str | None = None
    step: pd.Timedelta | None = None
    separator: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    encoding: str | None = None
    missing: tuple[str, ...] | None = None
    time_parts: tuple[str, ...] = ()
    timezone: str | None = None
    duplicates: str = "error"
    numbers: tuple[tuple[str, str], ...] = ()

    @property
    def time_columns(self) -> tuple[str, ...]:
        """The columns of the file that say the time."""
        return self.time_parts or (() if self.time is None else (self.time,))

    def of(self, file: str) -> Source:
        """Another file, read in the same way."""
        return replace(self, files=(file,))


@dataclass(frozen=True)
class SplitShares:
    """What judges the fit, and the share of the windows that is kept out of it.

    ``validation`` is a share of all windows, or a number of folds of those that train.
    """

    order: Literal["chronological", "random"]
    validation: float | int
    test: float
    embargo: int | Literal["auto"] = "auto"

    @property
    def fractions(self) -> tuple[float, float, float]:
        """Shares of the parts that train, validate and test."""
        held_out = self.validation if self.folds is None else 0.0
        return (1.0 - held_out - self.test, held_out, self.test)

    @property
    def folds(self) -> int | None:
        """How many folds judge the fit; None where a part is held out."""
        return self.validation if isinstance(self.validation, int) else None


@dataclass(frozen=True)
class Config:
    """A config file, read and checked; ``columns`` are the key and name of each that it needs."""

    name: str
    content: str
    source: Source
    task: Questions | Targets
    split: SplitShares
    settings: dict[str, Any]
    out: Path
    columns: tuple[tuple[str, str], ...]

    def check_columns(self, found: Sequence[str]) -> None:
        for key, column in self.columns:
            if column not in found:
                raise Problem(
                    f"{self.name}: {key} = {column!r} is no column of "
                    f"{', '.join(self.source.files)}; there are {', '.join(map(repr, found))}"
                    f"{separator_hint(found)}"
                )


def read_config(path: str) -> Config:
    """The config in a file, or on standard input for `-`; its paths start at its folder."""
    standard = path == STANDARD_STREAM
    raw = sys.stdin.buffer.read() if standard else Path(path).read_bytes()
    return parse_config(raw, "standard input" if standard else path, Path(path).parent)


def parse_config(raw: bytes, name: str, folder: Path) -> Config:
    """The config that the bytes of a file spell out."""
    try:
        content = raw.decode("utf-8-sig")
        # Not only TOMLDecodeError: a number of 5000 digits is refused by int itself.
        root = Section("", tomllib.loads(content))
    except (ValueError, RecursionError) as error:
        raise Problem(f"{name} is not a TOML file: {sentence(error)}") from None
    try:
        return _config(root, name, content, folder)
    except Problem as problem:
        raise Problem(f"{name}: {problem}") from problem.__cause__


def _config(root: Section, name: str, content: str, folder: Path) -> Config:
    root.close("out", "data", *_OF_SERIES, *_OF_TABLE, "split", "model", "training")
    columns: Columns = []
    source = read_source(root.section("data"), folder, columns)
    of_series = [key for key in _OF_SERIES if root.has(key)]
    of_table = [key for key in _OF_TABLE if root.has(key)]
    if of_series and of_table:
        raise Problem(
            f"[{of_series[0]}] asks about a series and [{of_table[0]}] about a table; keep one: "
            "[windows] with [questions.NAME], or [table] with [targets.NAME]"
        )
    if not of_series and not of_table:
        raise Problem(
            "nothing is asked; add [windows] with [questions.NAME] for a series, or [table] with "
            "[targets.NAME] for a table of ready-made windows"
        )
    task: Questions | Targets
    task = read_questions(root, columns) if of_series else read_targets(root, columns)
    if of_table and source.step is not None:
        raise Problem("data.step belongs to a series; leave it out for a table")
    settings = _settings(root.section("model"), root.section("training"))
    split = _split(root.section("split"), bool(of_series), get_preset(settings["preset"]))
    unordered = [name for name, head in task.heads.items() if head.point_only]
    if unordered and settings["belief"] != "none":
        raise Problem(
            f'targets.{unordered[0]}.head = "categorical" needs model.belief = "none", got '
            f"{settings['belief']!r}; or take an ordinal head, where the classes have an order"
        )
    routing = ROUTINGS[settings["routing"]]
    try:
        routing.check(task.heads, read_beliefs(settings["belief"], task.heads))
    except ValueError as error:
        raise Problem(f"model.routing: {error}") from None
    if settings["refit"] is None:
        # Without a test part every row may train the final model.
        settings["refit"] = split.test == 0.0 and not routing.point
    out = folder / root.get("out", text, "model")
    numbers = tuple((key, column) for key, column in columns if column in task.number_columns)
    source = replace(source, numbers=numbers)
    return Config(name, content, source, task, split, settings, out, tuple(columns))


def read_source(data: Section, folder: Path, columns: Columns, *, complete: bool = True) -> Source:
    """[data]; where it is not yet ``complete``, what it leaves out is to be found in the file."""
    files = data.need("file", texts)
    time = data.get("time", texts, ())
    source = Source(
        files=tuple(f if f == STANDARD_STREAM else str(folder / f) for f in files),
        time=" ".join(time) or None,
        time_parts=time if len(time) > 1 else (),
        time_format=data.get("time_format", text, None),
        timezone=data.get("timezone", _timezone, None),
        step=data.get("step", _duration, None),
        duplicates=data.get("duplicates", choice(DUPLICATES), "error"),
        separator=data.get("separator", _character, "," if complete else None),
        decimal=data.get("decimal", _character, "." if complete else None),
        thousands=data.get("thousands", _character, None),
        encoding=data.get("encoding", text, None),
        missing=data.get("missing", _some_texts, None),
    )
    data.close()
    for key in ("time_format", "step", "timezone"):
        if complete and source.time is None and getattr(source, key) is not None:
            raise Problem(f"data.{key} needs data.time, the name of the time column")
    if source.decimal is not None and source.decimal == source.thousands:
        raise Problem(f"data.decimal and data.thousands are both {source.decimal!r}")
    if source.timezone is not None and source.step is not None and source.step >= ONE_DAY:
        raise Problem(
            f"data.timezone is for steps below a day, and data.step is {source.step}: a day of "
            "local time has 23 to 25 hours where clocks change; leave data.timezone out"
        )
    columns += [("data.time", column) for column in source.time_columns]
    return source


def _timezone(value: Any) -> str:
    try:
        return str(pd.Timestamp(0, tz=text(value)).tz)
    except (ValueError, KeyError, OSError):
        raise ValueError("the name of a time zone, such as 'Europe/Berlin'") from None


def _some_texts(value: Any) -> tuple[str, ...]:
    """One text, or a list of them that may be empty."""
    return () if value == [] else texts(value)


def _duration(value: Any) -> pd.Timedelta:
    try:
        step = pd.Timedelta(value) if isinstance(value, str) else pd.NaT
    except ValueError:
        step = pd.NaT
    if step is pd.NaT or step <= pd.Timedelta(0):
        raise ValueError("a fixed time such as '1h', '10min' or '1D'")
    return step


def _character(value: Any) -> str:
    # Thousands may be set apart by a space of a kind that counts as not printable.
    blank = "\t\u00a0\u202f"
    if not isinstance(value, str) or len(value) != 1 or not (value.isprintable() or value in blank):
        raise ValueError("a single character in quotes")
    return value


def _folds_or_share(value: Any) -> int | float:
    try:
        return either(whole(2), between(0.01, 1.0))(value)
    except ValueError:
        raise ValueError(
            "a number of folds from 2 on, or a share from 0.01 to below 1 to hold out"
        ) from None


def _split(section: Section, series: bool, preset: Preset) -> SplitShares:
    orders = ("chronological",) if series else ("chronological", "random")
    shares = SplitShares(
        # The rows of a ready-made table come in no order that could be relied on.
        order=section.get("order", choice(orders), "chronological" if series else "random"),  # type: ignore[arg-type]
        validation=section.get("validation", _folds_or_share, preset.folds or 0.2),
        test=section.get("test", between(0.0, 1.0), 0.2),
        embargo=section.get("embargo", either(whole(0), choice(("auto",))), "auto")  # type: ignore[arg-type]
        if series
        else "auto",
    )
    section.close()
    _, held_out, test = shares.fractions
    if held_out + test >= 0.99:
        also = f"split.validation = {held_out:g} and " if held_out else ""
        raise Problem(
            f"nothing to train on is left by {also}split.test = {test:g}; what is kept from "
            "training stays below 0.99"
        )
    return shares


def _settings(model: Section, training: Section) -> dict[str, Any]:
    """The settings of a `Forecaster`."""
    preset = PRESETS[model.get("preset", choice(PRESETS), "default")]
    backbones = dict.fromkeys(["select", *(c.name for c in preset.candidates)])
    settings = {
        "belief": model.get("belief", choice(BELIEFS), "diag"),
        "routing": model.get("routing", choice(ROUTINGS), "free"),
        "backbone": model.get("backbone", choice(backbones), "select"),
        "refit": model.get("refit", boolean, None),
        "calibrate": model.get("calibrate", choice(RECALIBRATIONS), "none"),
        "seed": model.get("seed", whole(0), 0),
        "ensemble": model.get("ensemble", whole(1, 1000), 1),
    }
    model.close()
    changed = _changed(preset, training)
    # Untouched presets go by name, so that a saved model names them too.
    return settings | {"preset": preset.name if changed == preset else changed}


def _changed(preset: Preset, training: Section) -> Preset:
    """The preset with single numbers of its schedule changed."""
    batch = training.get("batch_size", either(whole(1), choice(("all",))), None)
    readers: dict[str, Any] = {
        "steps": whole(1),
        "eval_every": whole(1),
        "patience": whole(1),
        "warmup": whole(0),
        "final_rate": between(0.0, 1.0 + 1e-9),
        "average": between(0.0, 1.0),
    }
    given = {key: training.get(key, read, None) for key, read in readers.items()}
    schedule = {key: value for key, value in given.items() if value is not None}
    if batch is not None:
        schedule["batch_size"] = None if batch == "all" else batch
    starts = training.get("starts", whole(1, 1000), preset.starts)
    training.close()
    return replace(preset, schedule=replace(preset.schedule, **schedule), starts=starts)
