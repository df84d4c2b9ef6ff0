"""`scrollmt backtest`: refit at rolling origins, in several processes, and go on where it stopped.

The scores of a finished origin are kept under a name that holds a digest of all that they depend
on (config, data, origins, seeds, version), so that a record is used again only where it would be
computed again, and none is ever overwritten.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import typer

from scrollmt._io import atomic
from scrollmt._io.text import plain
from scrollmt._scoring.references import NAMES
from scrollmt.backtests import Backtest, backtest
from scrollmt.cli import tables
from scrollmt.cli.asking import Questions
from scrollmt.cli.config import SplitShares, read_config
from scrollmt.cli.data import cut, forecaster
from scrollmt.cli.scores import say_skill, show_scores
from scrollmt.cli.shell import INTERRUPTED, Problem, about, emit, note
from scrollmt.presets import get_preset
from scrollmt.splits import Split
from scrollmt.windows import Windows

_COLUMNS = ["origin", "tested_from", "seed", "task", "metric", "value"]


@dataclass(frozen=True)
class _Job:
    """All that the scores of one origin are computed from."""

    windows: Windows
    task: Questions
    settings: dict[str, Any]
    split: SplitShares
    seeds: list[int]
    verbose: bool | None

    def run(self, splits: Sequence[Split]) -> pd.DataFrame:
        model = forecaster(
            self.windows,
            self.task,
            validation=self.split.validation,
            verbose=self.verbose,
            **self.settings,
        )
        scored = backtest(self.windows, model, splits, seeds=self.seeds, embargo=self.split.embargo)
        return scored.table

    @property
    def one_program(self) -> bool:
        """Whether all origins train together, which is faster than processes side by side."""
        schedule = get_preset(self.settings["preset"]).schedule
        return schedule.batch_size is None and self.split.folds is None


def run(
    config: str,
    *,
    origins: int,
    seeds: str | None,
    out: str | None,
    records: Path | None,
    jobs: int,
    force: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    read = read_config(config)
    if not isinstance(read.task, Questions):
        raise Problem(
            f"{read.name} asks about a table, and rolling origins need a series; use [windows] "
            "and [questions.NAME]"
        )
    if out is not None:
        tables.check_table_target(out, force=force, inputs=(config, *read.source.files))
    if records is not None:
        atomic.check(records / "origin")
    frame, digests = tables.read(read.source)
    read.check_columns(list(frame.columns))
    windows = cut(read, read.task, frame)
    with about(f"{read.name}: --origins {origins}"):
        splits = windows.rolling_origins(origins, embargo=read.split.embargo)
    chosen = [read.settings["seed"]] if seeds is None else _seeds(seeds)
    key = json.dumps([read.content, digests, origins, chosen, version("scrollmt")])
    finished = _Finished(records, hashlib.sha256(key.encode()).hexdigest()[:16])
    verbose = False if quiet or jobs > 1 else None
    job = _Job(windows, read.task, read.settings, read.split, chosen, verbose)
    done, interrupted = _gathered(job, splits, finished, jobs, read.name)
    if not done:
        raise KeyboardInterrupt("interrupted before the first origin was done")
    found = Backtest(pd.concat([done[j] for j in sorted(done)], ignore_index=True), splits, {})
    if out is not None:
        tables.write(found.table, out)
    _tell(found, len(done), chosen, as_json)
    if interrupted:
        note(f"interrupted after {len(done)} of {len(splits)} origins")
        raise typer.Exit(INTERRUPTED)


def _seeds(given: str) -> list[int]:
    try:
        seeds = [int(one) for one in given.split(",")]
    except ValueError:
        seeds = []
    if not seeds or len(set(seeds)) < len(seeds) or not all(0 <= s < 2**32 for s in seeds):
        raise Problem(f"--seeds {given!r}: give different whole numbers, such as 0,1,2")
    return seeds


@dataclass(frozen=True)
class _Finished:
    """The scores of finished origins, in a folder or, without one, not stored."""

    folder: Path | None
    digest: str

    def _path(self, origin: int) -> Path | None:
        if self.folder is None:
            return None
        return self.folder / f"origin-{origin}-{self.digest}.json"

    def load(self, origin: int) -> pd.DataFrame | None:
        path = self._path(origin)
        if path is None or not path.exists():
            return None
        try:
            rows = json.loads(path.read_bytes())
            table = pd.DataFrame(rows)[_COLUMNS].astype({"value": float, "seed": int})
        except (ValueError, KeyError, TypeError, RecursionError):
            raise Problem(f"{path} is damaged; remove it, and its origin is run again") from None
        return table.assign(origin=origin)

    def store(self, origin: int, table: pd.DataFrame) -> None:
        path = self._path(origin)
        if path is not None:
            with atomic.replacing(path) as draft:
                draft.write_text(json.dumps(plain(table), allow_nan=False), encoding="utf-8")


def _gathered(
    job: _Job, splits: Sequence[Split], finished: _Finished, jobs: int, name: str
) -> tuple[dict[int, pd.DataFrame], bool]:
    """The scores of every origin, and whether an interrupt cut the work short."""
    done: dict[int, pd.DataFrame] = {}
    for origin in range(len(splits)):
        kept = finished.load(origin)
        if kept is not None:
            done[origin] = kept
    if done:
        note(f"{len(done)} of {len(splits)} origins were done before, in {finished.folder}")
    wanted = [j for j in range(len(splits)) if j not in done]
    began = time.perf_counter()
    try:
        with about(name):
            for count, (origin, table) in enumerate(_runs(job, splits, wanted, jobs), 1):
                table = table.assign(
                    origin=origin, tested_from=[plain(t) for t in table["tested_from"]]
                )
                finished.store(origin, table)
                done[origin] = table
                left = (time.perf_counter() - began) / count * (len(wanted) - count)
                more = f", about {left:.0f} s left" if count < len(wanted) else ""
                start = table["tested_from"].iloc[0]
                note(f"origin {len(done)} of {len(splits)} done (tested from {start}){more}")
    except KeyboardInterrupt:
        return done, True
    return done, False


def _runs(
    job: _Job, splits: Sequence[Split], wanted: Sequence[int], jobs: int
) -> Iterator[tuple[int, pd.DataFrame]]:
    """Tables by origin as they are done."""
    if job.one_program and wanted:
        table = job.run([splits[j] for j in wanted])
        yield from ((j, table[table["origin"] == n]) for n, j in enumerate(wanted))
    elif min(jobs, len(wanted)) <= 1:
        yield from ((j, job.run([splits[j]])) for j in wanted)
    else:
        context = multiprocessing.get_context("spawn")
        with context.Pool(min(jobs, len(wanted)), initializer=_ignore_interrupts) as pool:
            calls = ((job, splits[j], j) for j in wanted)
            yield from pool.imap_unordered(_one, calls)


def _ignore_interrupts() -> None:
    """Ctrl-C reaches the whole group of processes; the one that waits decides what it means."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _one(call: tuple[_Job, Split, int]) -> tuple[int, pd.DataFrame]:
    job, split, origin = call
    return origin, job.run([split])


def _tell(found: Backtest, origins: int, seeds: Sequence[int], as_json: bool) -> None:
    summary = found.summary()
    if as_json:
        emit(
            {
                "origins": origins,
                "seeds": list(seeds),
                "summary": summary.reset_index(),
                "scores": found.table,
            }
        )
        return
    tasks = list(dict.fromkeys(summary.index.get_level_values("task")))
    means, errors = (summary[c].unstack("metric", sort=False).loc[tasks] for c in ("mean", "se"))
    cells = means.map("{:.4g}".format).where(means.notna())
    for metric in means:
        if metric not in ("labels", *NAMES):
            told = errors[metric].map("{:.2g}".format).where(errors[metric].notna())
            cells[metric] += (" ± " + told).fillna("")
    cells["labels"] = means["labels"].round()
    per = "one seed" if len(seeds) == 1 else f"{len(seeds)} seeds"
    show_scores(cells, f"Mean ± standard error between {origins} origins, {per} each")
    say_skill(means.assign(skill_se=errors["skill"]))
