"""The arena: computes what the records lack, wherever jobs run, and records it here.

Only this process writes. A job counts once it is recorded, so a sweep may be stopped at any moment,
killed even, and called again: what is recorded stays, and the rest is computed.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib import import_module

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
)
from rich.text import Text

from scrollmt._fitting.memory import cores
from scrollmt.paper.arena import engines
from scrollmt.paper.arena.engines import Execute, Finished
from scrollmt.paper.arena.jobs import Job, Outcome, environment, modules_of
from scrollmt.paper.arena.jobs import execute as train_and_score
from scrollmt.paper.arena.probes import ALONE
from scrollmt.paper.arena.records import Records
from scrollmt.paper.arena.runs import Call, arrays_of, name_of, runs_of

Weight = Callable[[Job], float]


@dataclass(frozen=True)
class Summary:
    """What a call did: runs that were recorded before, runs computed now, seconds it took."""

    recorded: int
    computed: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.computed} runs computed in {self.seconds:.1f} s, {self.recorded} were there"


def compute(
    jobs: Iterable[Job],
    records: Records,
    *,
    engine: str = "local",
    workers: int | None = None,
    execute: Execute = train_and_score,
    weight: Weight = lambda job: len(job.seeds),
    progress: bool = True,
    label: str = "",
) -> Summary:
    """Compute the runs of the jobs that are not recorded yet, and record each job as it finishes.

    `engine` and `workers` are those of `engines.run`. `weight` is how long a job takes relative to
    the others: long jobs begin first, and the time left is told by it. Jobs that raise are named
    by a JobsFailed at the end. Jobs that take times run last, one by one in this process. `label`
    says what the call is for where the records list their calls.
    """
    jobs = list(jobs)
    began, stamp = time.monotonic(), datetime.now(UTC).isoformat(timespec="seconds")
    asked = {job.key(seed) for job in jobs for seed in job.seeds}
    if not plan(jobs, records):  # then records that cannot be written to will do
        return Summary(len(asked), 0, time.monotonic() - began)
    with records.writing():
        todo = sorted(plan(jobs, records), key=weight, reverse=True)
        computed = sum(len(job.seeds) for job in todo)
        timed = [job for job in todo if job.arm in ALONE]
        others = [job for job in todo if job.arm not in ALONE]
        done: list[Job] = []
        with _Board(todo, weight, visible=progress) as board:

            def record(job: Job, outcome: Outcome) -> None:
                records.put(job, outcome)
                done.append(replace(job, seeds=tuple(outcome.rows)))
                board.finished(job, outcome)

            modules = {name for job in todo for name in modules_of(job)}
            checked = partial(_checked, execute, tuple(sorted(modules)))
            try:
                _drain(engines.run(others, checked, engine, workers=workers), record)
                _drain(engines.run(timed, checked), record)
            finally:
                if done:
                    records.note(_call(label, engine, workers, done, todo, stamp, began))
    return Summary(len(asked) - computed, computed, time.monotonic() - began)


def _call(
    label: str,
    engine: str,
    workers: int | None,
    done: list[Job],
    todo: list[Job],
    stamp: str,
    began: float,
) -> Call:
    count = engines.workers_of(engine, workers)
    return Call(
        began=stamp,
        seconds=round(time.monotonic() - began, 1),
        label=label,
        engine=engine,
        workers=count,
        cores=cores(),
        device=environment()["device"],
        jobs=len(done),
        runs=sum(len(job.seeds) for job in done),
        complete=len(done) == len(todo),
    )


def plan(jobs: Iterable[Job], records: Records) -> list[Job]:
    """The jobs that are missing, in order; a run that several jobs share is planned once."""
    planned: set[str] = set()
    todo = []
    for job in jobs:
        missing = records.missing(job)
        seeds = missing.seeds if missing else ()
        seeds = tuple(s for s in dict.fromkeys(seeds) if job.key(s) not in planned)
        if seeds:
            todo.append(replace(job, seeds=seeds))
            planned |= {job.key(seed) for seed in seeds}
    return todo


def _checked(execute: Execute, modules: tuple[str, ...], job: Job) -> Outcome:
    """Where the job runs: an outcome that cannot be recorded fails its job, not the sweep.

    Arms and corpora of one's own are known in a worker process once their modules are imported.
    """
    for name in modules:
        import_module(name)
    outcome = execute(job)
    runs_of(job, outcome)
    arrays_of(job, outcome)
    return outcome


def _drain(finished: Finished, record: Callable[[Job, Outcome], None]) -> None:
    """Record what an engine hands out; Ctrl-C loses nothing that is finished."""
    item = next(finished, None)
    while item is not None:
        with _interrupts_held() as held:
            record(*item)
        # Passed on to the engine, an interrupt makes it hand out what else is finished, and stop.
        item = finished.throw(KeyboardInterrupt()) if held else next(finished, None)


@contextmanager
def _interrupts_held() -> Iterator[list[int]]:
    """Ctrl-C within the block is noted in the list and does nothing else."""
    held: list[int] = []
    if threading.current_thread() is not threading.main_thread():  # where no signal arrives
        yield held
        return
    before = signal.signal(signal.SIGINT, lambda number, _: held.append(number))
    try:
        yield held
    finally:
        signal.signal(signal.SIGINT, before)


class _Board:
    """Progress on a terminal as a bar, elsewhere as a line per job; both with the time left."""

    def __init__(self, todo: list[Job], weight: Weight, *, visible: bool):
        self.console = Console(stderr=True, quiet=not visible)
        self.weight = weight
        self.left = sum(map(weight, todo))
        self.weighed = 0.0
        self.runs = sum(len(job.seeds) for job in todo)
        self.count = 0
        self.began: float | None = None
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            _TimeLeft(),
            console=self.console,
            disable=not (visible and self.console.is_terminal),
        )
        self.task = self.bar.add_task("arena", total=self.runs, due=None)

    def __enter__(self) -> _Board:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def finished(self, job: Job, outcome: Outcome) -> None:
        now = time.monotonic()
        # A cluster may start long after this process; the pace counts from the first job on.
        self.began = now - outcome.seconds if self.began is None else self.began
        self.count += len(job.seeds)
        self.weighed += self.weight(job)
        self.left -= self.weight(job)
        due = now + time_left(now - self.began, self.weighed, self.left)
        self.bar.update(self.task, completed=self.count, description=name_of(job), due=due)
        if not self.console.is_terminal:
            took = f"{outcome.seconds:.1f} s, {_clock(due - now)} left"
            self.console.print(f"{self.count}/{self.runs} runs: {name_of(job)} {took}")


class _TimeLeft(ProgressColumn):
    def render(self, task: Task) -> Text:
        due = task.fields["due"]
        return Text(
            "time left unknown" if due is None else f"{_clock(due - time.monotonic())} left"
        )


def time_left(elapsed: float, weighed: float, left: float) -> float:
    """Seconds until the remaining weight is done, at the pace of the finished weight."""
    return elapsed * left / weighed


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=max(0, round(seconds))))
