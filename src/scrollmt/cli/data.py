"""The rows of a config as something to fit: windows of a series, or a table; and its split.

Prepared.train, .valid, .test   what `Forecaster.fit` and `evaluate` take, X, Y, sample_weight;
                                with folds of the training part there is no .valid
Prepared.new_from               the first origin that no fitted or judging window has seen
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from scrollmt import splits
from scrollmt._data import holdout
from scrollmt.cli import tables
from scrollmt.cli.asking import Questions, Targets
from scrollmt.cli.config import Config, SplitShares
from scrollmt.cli.shell import about
from scrollmt.forecaster import Forecaster
from scrollmt.heads import AbstractHead
from scrollmt.splits import Folds, Split
from scrollmt.windows import Windows


class Part(NamedTuple):
    """What `fit(X, Y, sample_weight)` takes; windows hold their labels themselves."""

    X: Any
    Y: Any = None
    sample_weight: Any = None

    @property
    def size(self) -> int:
        return len(self.X)

    def take(self, rows: np.ndarray) -> Part:
        if isinstance(self.X, Windows):
            return Part(self.X.take(rows))
        weight = None if self.sample_weight is None else self.sample_weight.iloc[rows]
        X = self.X.iloc[rows] if isinstance(self.X, pd.DataFrame) else self.X[rows]
        return Part(X, self.Y.iloc[rows], weight)


@dataclass(frozen=True)
class Prepared:
    """The parts, unfitted: ``model`` has the settings of the config.

    ``folds``: how many of the training part validate, None where ``valid`` does.
    """

    model: Forecaster
    train: Part
    valid: Part | None
    test: Part | None
    whole: Part
    digests: list[str]
    folds: int | None

    @property
    def windows(self) -> Windows | None:
        return self.whole.X if isinstance(self.whole.X, Windows) else None

    @property
    def new_from(self) -> Any:
        """None where nothing is kept in the order of time."""
        if self.windows is None:
            return None
        if self.test is not None:
            return self.test.X.t[0]
        newest = self.train if self.valid is None else self.valid
        return newest.X.target_times.max(axis=1).max()


def prepare(config: Config, *, verbose: bool | None = None) -> Prepared:
    """Read the data of a config, cut it and part it."""
    frame, digests = tables.read(config.source)
    config.check_columns(list(frame.columns))
    if isinstance(config.task, Questions):
        frame = tables.dated(frame, config.source)
    return prepare_rows(config, frame, digests, verbose=verbose)


def prepare_rows(
    config: Config, rows: pd.DataFrame, digests: list[str], *, verbose: bool | None = None
) -> Prepared:
    """As `prepare`, from rows that were read already; those of a series are dated."""
    task, settings = config.task, {**config.settings, "verbose": verbose}
    if isinstance(task, Questions):
        windows = _windows(config, task, rows)
        with about(f"{config.name}: [split]"):
            split, validation = _series_split(windows, config.split)
            parts = windows.split(split)
        whole, (train, valid, test) = Part(windows), map(Part, parts)
        model = forecaster(parts.train, task, **settings)
        held_out: Any = parts.valid
    else:
        whole = labelled_part(rows[list(task.inputs)], rows, task)
        split = table_split(config, len(rows))
        with about(f"{config.name}: [split]"):
            validation = _table_folds(len(split.train), config.split)
        train, valid, test = (whole.take(index) for index in split)
        model = Forecaster(task.heads, **settings)
        held_out = tuple(valid)
    model.set_params(validation=held_out if validation is None else validation)
    return Prepared(
        model,
        train,
        valid if validation is None else None,
        test if len(split.test) else None,
        whole,
        digests,
        None if validation is None else config.split.folds,
    )


def _series_split(windows: Windows, shares: SplitShares) -> tuple[Split, int | Folds | None]:
    """The parts of a series and the folds of the first; None where the second is held out."""
    split = windows.chronological_split(shares.fractions, embargo=shares.embargo)
    if shares.folds is None:
        return split, None
    train = windows.take(split.train)
    _check_folds(shares.folds, len(train))
    found = holdout.block_folds(train, shares.folds, shares.embargo)
    if isinstance(found, Folds):
        # A number is stored with the model; its folds have the embargo "auto".
        return split, shares.folds if shares.embargo == "auto" else found
    inner = train.chronological_split((1.0 - found, found, 0.0), embargo=shares.embargo)
    return Split(split.train[inner.train], split.train[inner.valid], split.test), None


def _table_folds(rows: int, shares: SplitShares) -> int | Folds | None:
    """The folds of the training rows: random, or blocks where the rows are in order of time."""
    if shares.folds is None:
        return None
    _check_folds(shares.folds, rows)
    chronological = shares.order == "chronological"
    return splits.block_folds(rows, shares.folds) if chronological else shares.folds


def _check_folds(folds: int, rows: int) -> None:
    if folds > rows:
        raise ValueError(
            f"validation = {folds} is more folds than the {rows} windows that train; use fewer "
            "folds, or a share below 1 to hold out"
        )


def cut(config: Config, task: Questions, frame: pd.DataFrame) -> Windows:
    """The windows of a config's series."""
    return _windows(config, task, tables.dated(frame, config.source))


def _windows(config: Config, task: Questions, rows: pd.DataFrame) -> Windows:
    with about(", ".join(map(tables.named, config.source.files))):
        return task.windowing.cut(rows, task.asked, task.inputs, time=config.source.time)


def forecaster(windows: Windows, task: Questions, **settings: Any) -> Forecaster:
    """Not yet fitted, with the heads that the config names in place of the questions' own."""
    heads = windows.heads
    for name in heads:
        question = name if task.windowing.leads is None else name.rpartition("@")[0]
        heads[name] = task.heads.get(question, heads[name])
    return Forecaster(heads, recipe=windows.recipe, **settings)


def labelled_part(X: Any, frame: pd.DataFrame, task: Targets) -> Part:
    """Inputs with the labels of a table, named after their tasks, and its weights."""
    labels = pd.DataFrame(
        {name: _labels(frame[column], task.heads[name]) for name, column in task.columns.items()}
    )
    return Part(X, labels, None if task.weight is None else frame[task.weight])


def _labels(column: pd.Series, head: AbstractHead) -> pd.Series:
    """A column of labels; as texts where the head has texts, since a file may hold 2, 4 and 8."""
    if head.class_names is not None and pd.api.types.is_numeric_dtype(column.dtype):
        return column.map(lambda one: f"{one:g}" if pd.notna(one) else None).astype(object)
    return column


def table_split(config: Config, rows: int) -> Split:
    """The same split for the same config and number of rows, now and later."""
    with about(f"{config.name}: [split]"):
        if config.split.order == "chronological":
            return splits.chronological_split(rows, config.split.fractions)
        return splits.random_split(rows, config.settings["seed"], config.split.fractions)
