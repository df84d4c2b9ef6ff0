"""Model folders of the command line: a saved Forecaster, its config, and what it was fitted on.

    model.json, model.safetensors   as `Forecaster.save` writes them
    config.toml                     the config, byte for byte
    fit.json                        digests of the data, sizes of the parts, scores, and the first
                                    origin that the fit has not seen

A folder that `Forecaster.save` wrote alone is read as well, with the defaults of a config.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from scrollmt._io import atomic
from scrollmt._io.reading import read_bounded
from scrollmt._io.text import plain
from scrollmt.cli import tables
from scrollmt.cli.asking import Targets
from scrollmt.cli.config import Config, Source, parse_config
from scrollmt.cli.data import Part, labelled_part, table_split
from scrollmt.cli.shell import Problem, about, note
from scrollmt.forecaster import Forecaster, load
from scrollmt.windows import Recipe, Windows

CONFIG, FACTS = "config.toml", "fit.json"
_LIMIT = 16 * 2**20  # bytes of either
_OWN = {"model.json", "model.safetensors", CONFIG, FACTS}


def check_folder(target: Path, *, force: bool) -> None:
    """Refuse, before any work, a folder that cannot be written or that holds something else."""
    atomic.restore(target)
    atomic.check(target, folder=True)
    found = {one.name for one in target.iterdir()} if target.exists() else set()
    if not found <= _OWN:
        foreign = sorted(found - _OWN)[0]
        raise Problem(
            f"{target} holds other things than a model, such as {foreign!r}, and is never "
            "replaced; choose another --out"
        )
    if found and not force:
        raise Problem(f"{target} exists; choose another --out, or --force to replace the model")


def save(model: Forecaster, target: Path, config: str | None, facts: dict[str, Any]) -> None:
    """Write a model folder as a whole; an older model stays until the new one is complete."""
    with atomic.replacing_folder(target, replace=True) as draft:
        model.save(draft)
        if config is not None:
            (draft / CONFIG).write_bytes(config.encode())
        text = json.dumps(plain(facts), indent=2, allow_nan=False)
        (draft / FACTS).write_text(text + "\n", encoding="utf-8")


@dataclass(frozen=True)
class Stored:
    """A fitted model from its folder, and how it reads a file."""

    folder: str
    model: Forecaster
    config: Config | None
    facts: dict[str, Any]

    @cached_property
    def recipe(self) -> Recipe | None:
        return self.model.recipe_

    def need_recipe(self, verb: str) -> Recipe:
        if self.recipe is None:
            raise Problem(
                f"{self.folder} was fitted on a table of windows, and {verb} reads a series; "
                "use scrollmt predict with the inputs of the new windows"
            )
        return self.recipe

    def source(self, file: str) -> Source:
        """How a new file is read: as the config says, on the grid of the model."""
        time = None if self.recipe is None else self.recipe.time
        given = Source((file,), time) if self.config is None else self.config.source.of(file)
        step = None if self.recipe is None else self.recipe.step
        dated = isinstance(step, pd.Timedelta) and given.time is not None
        return replace(given, step=step if dated else None)

    def series(self, file: str) -> tuple[pd.DataFrame, list[str]]:
        source = self.source(file)
        frame, digests = tables.read(source)
        return tables.dated(frame, source), digests


def open_model(folder: str) -> Stored:
    """A model folder with whatever the command line wrote into it."""
    model = load(folder)
    path = Path(folder)
    config = None
    if (path / CONFIG).exists():
        config = parse_config(read_bounded(path / CONFIG, _LIMIT), str(path / CONFIG), path)
    facts: Any = {}
    if (path / FACTS).exists():
        try:
            facts = json.loads(read_bounded(path / FACTS, _LIMIT))
        except (ValueError, RecursionError) as error:
            raise Problem(f"{path / FACTS} is damaged: {error}") from None
        if not isinstance(facts, dict):
            raise Problem(f"{path / FACTS} is damaged: it holds no facts of a fit")
    return Stored(folder, model, config, facts)


def inputs(stored: Stored, file: str, *, every: bool) -> Part:
    """What a model predicts from.

    Of a series: all windows with complete inputs, also those whose answers are still to come,
    on the grid of the fit or, with ``every``, at every row.
    """
    if stored.recipe is not None:
        frame, _ = stored.series(file)
        grid_only = not every and stored.recipe.grid != "any origin"
        hint = " (--every-row takes rows at other hours too)" if grid_only else ""
        with about(f"{tables.named(file)}{hint}"):
            time = stored.source(file).time
            return Part(stored.recipe.unlabelled(frame, time=time, on_grid=not every))
    frame, _ = tables.read(stored.source(file))
    return Part(_columns(stored, frame, file))


def labelled(stored: Stored, file: str, *, every: bool) -> Part:
    """What a model is scored on: without ``every`` only what the fit has not seen."""
    if stored.recipe is not None:
        frame, digests = stored.series(file)
        with about(tables.named(file)):
            windows = stored.recipe.cut(frame, time=stored.source(file).time)
        return Part(windows) if every else Part(_unseen(stored, windows, file, digests))
    frame, digests = tables.read(stored.source(file))
    part = _labelled_rows(stored, frame, file)
    if every or stored.config is None or digests != stored.facts.get("sha256"):
        return part
    held_back = table_split(stored.config, len(frame)).test
    return part.take(_some(held_back, len(frame), file))


def _labelled_rows(stored: Stored, frame: pd.DataFrame, file: str) -> Part:
    X = _columns(stored, frame, file)
    task = _targets(stored)
    wanted = [*task.columns.values(), *([task.weight] if task.weight else [])]
    tables.need_columns(frame, wanted, tables.named(file), ", which holds labels to score")
    return labelled_part(X, frame, task)


def unlearned(stored: Stored, file: str) -> tuple[Part, list[str]]:
    """What a model may learn from: windows from where it ended on, or the rows of a new table."""
    if stored.recipe is not None:
        frame, digests = stored.series(file)
        with about(tables.named(file)):
            windows = stored.recipe.cut(frame, time=stored.source(file).time)
        return Part(_unseen(stored, windows, file, digests, "learn from")), digests
    frame, digests = tables.read(stored.source(file))
    if digests == stored.facts.get("sha256") or digests in stored.facts.get("updated_sha256", []):
        raise Problem(
            f"{tables.named(file)} is what {stored.folder} has learned from already; give a file "
            "with new rows alone"
        )
    return _labelled_rows(stored, frame, file), digests


def _targets(stored: Stored) -> Targets:
    if stored.config is not None and isinstance(stored.config.task, Targets):
        return stored.config.task
    tasks = stored.model.tasks_
    return Targets((), {name: name for name in tasks}, dict(tasks))


def _columns(stored: Stored, frame: pd.DataFrame, file: str) -> Any:
    """The inputs of a table, by name where the model has names."""
    names = getattr(stored.model, "feature_names_in_", None)
    if names is None:
        return frame.to_numpy()
    tables.need_columns(frame, names, tables.named(file), f", an input of {stored.folder}")
    return frame[list(names)]


def _unseen(
    stored: Stored, windows: Windows, file: str, digests: list[str], verb: str = "score"
) -> Windows:
    """The windows that took no part in the fit, where that can be known."""
    start = stored.facts.get("new_from")
    if start is None:
        return windows
    same_file = digests == stored.facts.get("sha256")
    if stored.source(file).time is None and not same_file:
        return windows  # row numbers of another file say nothing
    dated = isinstance(windows.t, pd.DatetimeIndex)
    if not isinstance(start, str if dated else int | float):
        raise Problem(f"{Path(stored.folder) / FACTS}: new_from is no time: {start!r}")
    with about(f"{Path(stored.folder) / FACTS}: new_from"):
        fresh = np.flatnonzero(np.asarray(windows.t >= (pd.Timestamp(start) if dated else start)))
    return windows.take(_some(fresh, len(windows), file, verb))


def _some(rows: np.ndarray, of: int, file: str, verb: str = "score") -> np.ndarray:
    if len(rows) == 0 and verb == "score":
        raise Problem(
            f"{tables.named(file)} holds nothing that the fit has not seen, and scores on the "
            "rest would be too good; give newer rows, or --all to score all of them"
        )
    if len(rows) == 0:
        raise Problem(
            f"{tables.named(file)} holds nothing that the model has not seen yet; give newer rows"
        )
    if len(rows) < of and verb == "score":
        note(f"scored on {len(rows)} of {of} windows; the fit has seen the others (--all)")
    return rows
