"""Engines: where jobs run. One seam, four ways through it, no engine of our own.

    local             in this process, one after the other or in a few threads
    processes         worker processes of this machine (concurrent.futures)
    dask              a Dask cluster of worker processes on this machine
    tcp://host:port   the Dask cluster whose scheduler listens there

Whatever the engine, `execute` is called once for every job in some process and its outcome comes
back unchanged, so the results are the same.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from concurrent.futures import (
    FIRST_COMPLETED,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager

from scrollmt._fitting.memory import cores
from scrollmt.paper.arena import cluster
from scrollmt.paper.arena.cluster import SchedulerLost
from scrollmt.paper.arena.jobs import Job, Outcome
from scrollmt.paper.arena.runs import name_of

Execute = Callable[[Job], Outcome]
Finished = Generator[tuple[Job, Outcome], None, None]
Watch = Callable[[Collection[Future[Outcome]]], None]


class JobsFailed(RuntimeError):
    """Some jobs raised; all others are done. `failures` has each job's exception."""

    def __init__(self, failures: Mapping[Job, BaseException]):
        self.failures = dict(failures)
        lines = [f"{name_of(job)}: {_words(error)}" for job, error in failures.items()]
        super().__init__("\n  ".join([f"{len(lines)} jobs failed, the others are done", *lines]))


def run(
    jobs: Iterable[Job], execute: Execute, engine: str = "local", *, workers: int | None = None
) -> Finished:
    """Every job with its outcome, as they finish; at the end JobsFailed names those that raised.

    `execute` is a function at the top of a module that the workers can import. `workers` is how
    many processes `processes` and `dask` start, by default one a core, and how many threads of
    this process `local` uses, by default one: several keep an accelerator busy while programs are
    compiled. On KeyboardInterrupt what
    is finished is still handed out, the rest is cancelled, and the interrupt goes on.
    """
    failures: dict[Job, BaseException] = {}
    workers = workers_of(engine, workers)
    if engine == "local" and workers == 1:
        yield from _one_by_one(jobs, execute, failures)
    else:
        with _pool(engine, workers) as (executor, watch):
            watch(())  # before any job runs where it should not
            yield from _pooled(
                {executor.submit(execute, job): job for job in jobs}, failures, watch
            )
            # Dask blames every job that a dead worker held. Alone, one after the other, only the
            # job that kills its worker fails again.
            suspects = [job for job, error in failures.items() if _killed(error)]
            for job in suspects:
                del failures[job]
                yield from _pooled({executor.submit(execute, job): job}, failures, watch)
    if failures:
        raise JobsFailed(failures) from next(iter(failures.values()))


def workers_of(engine: str, workers: int | None) -> int:
    """How many jobs run at a time, as far as this side of an engine knows."""
    return workers or (1 if engine == "local" else cores())


def _one_by_one(
    jobs: Iterable[Job], execute: Execute, failures: dict[Job, BaseException]
) -> Finished:
    for job in jobs:
        try:
            outcome = execute(job)
        except Exception as error:
            failures[job] = error
        else:
            yield job, outcome


def _pooled(
    waiting: dict[Future[Outcome], Job], failures: dict[Job, BaseException], watch: Watch
) -> Finished:
    def take(done: Collection[Future[Outcome]]) -> Finished:
        for future in [future for future in waiting if future in done]:  # in the order given
            job = waiting.pop(future)
            error = future.exception()
            if error is None:
                yield job, future.result()
            else:
                failures[job] = error

    try:
        while waiting:
            # A signal that the system hands to another thread does not wake this one from its wait.
            done = wait(waiting, timeout=1.0, return_when=FIRST_COMPLETED).done
            watch(done)
            yield from take(done)
    except SchedulerLost:
        yield from take({f for f in waiting if f.done() and not f.cancelled()})
        raise
    except KeyboardInterrupt:
        yield from take({future for future in waiting if future.done()})
        raise


def _pool(engine: str, workers: int) -> AbstractContextManager[tuple[Executor, Watch]]:
    """Where jobs are submitted, and what is asked at every turn of waiting for them."""
    if engine == "local":
        return _threads(workers)
    if engine == "processes":
        return _processes(workers)
    if engine == "dask" or "://" in engine:
        return cluster.connected(None if engine == "dask" else engine, workers)
    raise ValueError(
        f"there is no engine {engine!r}; choose local, processes, dask or the address of a Dask "
        "scheduler such as tcp://host:8786"
    )


def _unwatched(done: Collection[Future[Outcome]]) -> None:
    """A pool of this process ends with it, and what becomes of its jobs the futures say."""


@contextmanager
def _threads(workers: int) -> Iterator[tuple[Executor, Watch]]:
    pool = ThreadPoolExecutor(workers, thread_name_prefix="job")
    try:
        yield pool, _unwatched
    finally:
        # After an interrupt a thread ends with the job that it is at; no other job begins.
        pool.shutdown(wait=False, cancel_futures=True)


@contextmanager
def _processes(workers: int) -> Iterator[tuple[Executor, Watch]]:
    # A fork would copy the threads' locks of an already running JAX; spawned workers start clean.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_follow_parent)
    try:
        yield pool, _unwatched
        pool.shutdown()
    finally:
        # Empty after the orderly way out. Otherwise the workers would be waited for at exit,
        # though nobody wants what they compute.
        running = [*(pool._processes or {}).values()]
        pool.shutdown(wait=False, cancel_futures=True)
        for process in running:
            process.terminate()


def _follow_parent() -> None:
    """In a worker: leave Ctrl-C to the parent, and end when it ends, be it killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _killed(error: BaseException) -> bool:
    return type(error).__name__ == "KilledWorker"  # of a package that may not be installed


def _words(error: BaseException) -> str:
    if isinstance(error, BrokenProcessPool):
        return (
            "a worker process died, perhaps for want of memory; run again with fewer workers, "
            "or with the engine dask, which replaces dead workers"
        )
    if _killed(error):
        return "every worker that Dask gave it to died, perhaps for want of memory"
    return f"{type(error).__name__}: {error}"
