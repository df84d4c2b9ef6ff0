"""The verbs: read what they are given, call the library, say what came out."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pandas as pd
import typer

from scrollmt._io.text import plain
from scrollmt.cli import models, tables
from scrollmt.cli.config import STANDARD_STREAM, read_config
from scrollmt.cli.data import Part, Prepared, prepare
from scrollmt.cli.scores import say_skill, show_scores
from scrollmt.cli.shell import INTERRUPTED, Problem, about, by_task, emit, note, say, show
from scrollmt.forecaster import Forecaster
from scrollmt.windows import Windows
from scrollmt.windows.answers import tidy


def fit(
    config: str, out: Path | None, *, force: bool, check: bool, quiet: bool, as_json: bool
) -> None:
    read = read_config(config)
    target = read.out if out is None else out
    if not check:
        models.check_folder(target, force=force)
    prepared = prepare(read, verbose=False if quiet else None)
    described = _described(prepared)
    if check:
        with about(read.name):
            prepared.model._ready(*prepared.train)
        emit(described) if as_json else _tell(described, prepared)
        return
    began = time.perf_counter()
    interrupted = False
    model = prepared.model
    try:
        with about(read.name):
            model.fit(*prepared.train)
    except KeyboardInterrupt:
        if not model.__sklearn_is_fitted__():
            raise
        interrupted = True
    seconds = time.perf_counter() - began
    found = None if prepared.test is None else _scores(model, prepared.test)
    result = described | _outcome(model, found, seconds)
    facts = {"sha256": prepared.digests, "new_from": prepared.new_from, **result}
    models.save(model, target, read.content, facts)
    result = {"model": str(target), "interrupted": interrupted, **result}
    if as_json:
        emit(result)
    else:
        _tell(described, prepared)
        if prepared.test is not None and found is not None:
            show_scores(found, f"{prepared.test.size} test windows")
            say_skill(found)
        say(f"validation NLL {model.validation_nll_:.4f}, {result['seconds']:.0f} s; {target}")
    if interrupted:
        note(f"interrupted; the best model so far is in {target}")
        raise typer.Exit(INTERRUPTED)


def _described(prepared: Prepared) -> dict[str, Any]:
    """What is asked, and of how many windows."""
    parts = {"train": prepared.train, "validation": prepared.valid, "test": prepared.test}
    sizes = {name: 0 if part is None else part.size for name, part in parts.items()}
    folds = {} if prepared.folds is None else {"folds": prepared.folds}
    windows = prepared.windows
    if windows is None:
        tasks = {name: type(head).__name__ for name, head in prepared.model.tasks.items()}
        return {"tasks": tasks, "windows": sizes, "inputs": list(prepared.whole.X.columns)} | folds
    sizes["embargo"] = prepared.whole.size - sum(sizes.values())
    sizes["dropped"] = len(windows.dropped)
    asked = prepared.train.X
    return {"tasks": asked.sentences, "windows": sizes, "inputs": asked.feature_names} | folds


def _tell(described: dict[str, Any], prepared: Prepared) -> None:
    for task, question in described["tasks"].items():
        say(f"{task}: {question}")
    sizes = ", ".join(f"{name} {count}" for name, count in described["windows"].items() if count)
    say(f"windows: {sizes}; inputs: {len(described['inputs'])}")
    if prepared.folds is not None:
        say(f"validation: {prepared.folds} folds of the training windows")
    windows = prepared.windows
    if windows is not None and len(windows.dropped):
        lost = windows.dropped.groupby(["part", "columns"]).size()
        why = "; ".join(f"{count} for {part} {names}" for (part, names), count in lost.items())
        say(f"dropped for missing values: {why}")


def _outcome(model: Forecaster, scores: pd.DataFrame | None, seconds: float) -> dict[str, Any]:
    return {
        "validation_nll": model.validation_nll_,
        "stop_reason": model.stop_reason_,
        "seconds": round(seconds, 3),
        "scores": {} if scores is None else by_task(scores),
    }


def _scores(model: Forecaster, part: Part) -> pd.DataFrame:
    return model.evaluate(*part)


def predict(
    folder: str,
    data: str,
    out: str,
    *,
    quantiles: str,
    every_row: bool,
    force: bool,
    as_json: bool,
) -> None:
    levels = _levels(quantiles)
    tables.check_table_target(out, force=force, inputs=(data, folder))
    stored = models.open_model(folder)
    part = models.inputs(stored, data, every=every_row)
    with about(tables.named(data)):
        found = stored.model.predict(part.X)
    as_given = stored.recipe is None
    table = found.to_frame(levels) if as_given else tidy(found, part.X, levels)
    if out != STANDARD_STREAM:
        tables.write(table, out)
        summary = {"file": out, "rows": len(table), "windows": part.size, "tasks": list(found)}
        if as_json:
            emit(summary)
        else:
            say(f"{part.size} windows, {len(found)} tasks, {len(table)} rows: {out}")
    elif as_json:
        emit(table)
    else:
        tables.write(table, out)


def _levels(given: str) -> tuple[float, ...]:
    try:
        levels = tuple(sorted({float(one) for one in given.split(",")}))
    except ValueError:
        levels = ()
    if not levels or not all(0.0 < p < 1.0 for p in levels):
        raise Problem(f"--quantiles {given!r}: give levels between 0 and 1, such as 0.05,0.5,0.95")
    return levels


def evaluate(folder: str, data: str, *, every: bool, as_json: bool) -> None:
    stored = models.open_model(folder)
    part = models.labelled(stored, data, every=every)
    with about(tables.named(data)):
        scores = _scores(stored.model, part)
    if as_json:
        emit({"windows": part.size, "span": _span(part), "scores": by_task(scores)})
        return
    show_scores(scores, f"{part.size} windows")
    say_skill(scores)
    first, last = _span(part) or (None, None)
    if first is not None:
        say(f"t from {first} to {last}")


def _span(part: Part) -> tuple[Any, Any] | None:
    """The first and the last origin of windows."""
    return (part.X.t[0], part.X.t[-1]) if isinstance(part.X, Windows) else None


def forecast(
    folder: str, data: str, *, at: str | None, on_grid: bool, level: float, as_json: bool
) -> None:
    stored = models.open_model(folder)
    recipe = stored.need_recipe("forecast")
    frame, _ = stored.series(data)
    origin: Any = None
    if at is not None:
        with about(f"--at {at}"):
            dated = isinstance(recipe.step, pd.Timedelta)
            origin = pd.Timestamp(at) if dated else float(at)
            if dated and origin.tz is None and recipe.anchor.tz is not None:
                origin = origin.tz_localize(recipe.anchor.tz)
    with about(tables.named(data)):
        answer = stored.model.forecast(
            frame, time=stored.source(data).time, at=origin, on_grid=on_grid
        )
    numbers = answer.to_frame(level)
    if as_json:
        tasks = {}
        for task, row in numbers.iterrows():
            name = str(task)
            cells = {k: v for k, v in plain(row.to_dict()).items() if v is not None}
            asked = answer.window.questions[name]
            if "band" in cells:
                chances = answer.laws[name].probs[0]  # type: ignore[attr-defined]
                cells["bands"] = dict(zip(asked.names, chances, strict=True))  # type: ignore[attr-defined]
            tasks[name] = {"sentence": answer.sentence(name, level), **cells}
        result = {"t": answer.t, "level": level, "passed_over": len(answer.window.dropped)}
        emit(result | {"notices": answer.notices, "tasks": tasks})
        return
    for line in answer.lines(level):
        say(line)
    cells = numbers[["median", "lower", "upper", "probability", "band"]]
    show(
        cells.dropna(axis=1, how="all"),
        f"In numbers, {100 * level:g} percent between lower and upper",
    )
