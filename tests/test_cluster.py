"""Dask clusters: who can reach them, which workers are taken, and what is said when one is gone.

Schedulers and workers are real processes on loopback.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from importlib.metadata import version
from pathlib import Path

import dask
import psutil
import pytest

from scrollmt.paper.arena.cluster import PACKAGES, SchedulerLost
from scrollmt.paper.arena.engines import run
from scrollmt.paper.arena.jobs import Job, Outcome
from scrollmt.paper.arena.records import Records
from scrollmt.paper.arena.sweep import compute
from sweeps import calls, execute, sweep, wait_for

pytestmark = pytest.mark.cluster

Start = Callable[..., tuple[subprocess.Popen, Path]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a program of Dask with a file for what it says, and ends it with the test."""
    started: list[subprocess.Popen] = []

    def begin(
        program: str, *arguments: str, paths: tuple[Path, ...] = ()
    ) -> tuple[subprocess.Popen, Path]:
        search = os.pathsep.join([*map(str, paths), *sys.path])
        said = tmp_path / f"{program}-{len(started)}.log"
        with said.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.dask_{program}", *arguments],
                env={**os.environ, "PYTHONPATH": search},
                cwd=tmp_path,
                stdout=log,
                stderr=log,
            )
        started.append(process)
        return process, said

    yield begin
    for process in started:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()


def scheduler(start: Start, port: int) -> subprocess.Popen:
    process, _ = start("scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard")
    wait_for(lambda: reachable(port))
    return process


def worker(start: Start, port: int, *more: str, paths: tuple[Path, ...] = ()) -> subprocess.Popen:
    place = f"tcp://127.0.0.1:{port}"
    few = ("--nthreads", "1", "--memory-limit", "0", "--no-nanny", "--no-dashboard")
    process, said = start("worker", place, *few, *more, paths=paths)
    wait_for(lambda: "Registered to" in said.read_text())
    return process


def reachable(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextmanager
def within(seconds: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds


# Who can reach it


def listening() -> list[tuple[str, int]]:
    """The addresses on which this process and its children listen."""
    here = psutil.Process()
    return [
        (socket.laddr.ip, socket.laddr.port)
        for process in (here, *here.children(recursive=True))
        for socket in process.net_connections(kind="inet")
        if socket.status == psutil.CONN_LISTEN
    ]


def test_a_cluster_of_our_own_is_reached_from_this_machine_alone(tmp_path: Path) -> None:
    before = {*listening()}
    finished = run(sweep(tmp_path, 2), execute, "dask", workers=1)
    next(finished)
    opened = {*listening()} - before
    assert len(opened) >= 3  # a scheduler, a worker, and the one that looks after it
    assert {ip for ip, _ in opened} == {"127.0.0.1"}
    # Nothing that a browser could show.
    for _, port in opened:
        for page in ("status", "info/main/workers.html", "metrics", "json/counts.json"):
            with pytest.raises((OSError, HTTPException)):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=5)
    finished.close()


# Which workers are taken


def disguised(folder: Path, package: str) -> Path:
    """A folder that, before all others on the path, says that a package has version 0.0.1."""
    info = folder / f"{package}-0.0.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.0.1\n")
    return folder


def test_a_worker_with_another_version_is_refused(start: Start, port: int, tmp_path: Path) -> None:
    assert PACKAGES == ("scrollmt", "jax")
    scheduler(start, port)
    worker(start, port, "--name", "odd-one", paths=(disguised(tmp_path / "odd", "jax"),))
    has = r"worker tcp://127\.0\.0\.1:\d+ \(odd-one\) has jax 0\.0\.1, and here it is "
    with pytest.raises(ValueError, match=has + version("jax").replace(".", r"\.")):
        list(run(sweep(tmp_path / "diary", 2), execute, f"tcp://127.0.0.1:{port}"))


def test_a_worker_that_joins_later_is_checked_before_its_results_are_taken(
    start: Start, port: int, tmp_path: Path
) -> None:
    """The Python of a worker cannot be another here; it says that it is."""
    scheduler(start, port)
    worker(start, port, "--name", "like")
    jobs = sweep(tmp_path / "diary", 2, arm1="waits")
    finished = run(jobs, execute, f"tcp://127.0.0.1:{port}")
    assert next(finished)[0] == jobs[0]
    (tmp_path / "older.py").write_text(
        "import platform\nplatform.python_version = lambda: '3.4.5'\n"
    )
    worker(start, port, "--name", "older", "--preload", str(tmp_path / "older.py"))
    here = ".".join(map(str, sys.version_info[:2]))
    with pytest.raises(ValueError, match=rf"\(older\) has Python 3\.4\.5, and here it is {here}:"):
        next(finished)


# What is said when one is gone


def test_no_scheduler_is_told_within_ten_seconds(tmp_path: Path, port: int) -> None:
    with within(10), pytest.raises(ValueError, match="no Dask scheduler answers at"):
        list(run(sweep(tmp_path, 1), execute, f"tcp://127.0.0.1:{port}"))


def test_a_scheduler_without_workers_is_told_and_waited_for(
    start: Start, port: int, tmp_path: Path
) -> None:
    scheduler(start, port)
    said = tmp_path / "said"

    def help_out() -> None:
        wait_for(said.exists)
        worker(start, port)

    threading.Thread(target=help_out).start()
    began = time.monotonic()

    def told(message: Warning, *_: object) -> None:
        assert time.monotonic() - began < 10
        said.write_text(str(message))

    with pytest.MonkeyPatch.context() as patch, warnings_shown_by(told, patch):
        done = list(run(sweep(tmp_path / "diary", 2), execute, f"tcp://127.0.0.1:{port}"))
    assert len(done) == 2
    assert said.read_text() == (
        f"the Dask scheduler at tcp://127.0.0.1:{port} has no workers: start some with `dask "
        f"worker tcp://127.0.0.1:{port}`; the sweep waits for them"
    )


@contextmanager
def warnings_shown_by(show: Callable[..., None], patch: pytest.MonkeyPatch) -> Iterator[None]:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        patch.setattr(warnings, "showwarning", show)
        yield


def test_a_scheduler_that_hangs_is_told_within_ten_seconds(
    start: Start, port: int, tmp_path: Path
) -> None:
    hung = scheduler(start, port)
    finished = run(sweep(tmp_path / "diary", 1), execute, f"tcp://127.0.0.1:{port}")
    stop = threading.Timer(2.0, hung.send_signal, (signal.SIGSTOP,))
    stop.start()
    with within(12), pytest.raises(SchedulerLost, match="does not answer any more"):
        next(finished)
    hung.kill()


def test_a_sweep_whose_scheduler_dies_says_so_and_resumes(
    start: Start, port: int, tmp_path: Path
) -> None:
    diary, address = tmp_path / "diary", f"tcp://127.0.0.1:{port}"
    jobs = sweep(diary, 4, arm2="waits")
    first = scheduler(start, port)
    lost = worker(start, port)
    when: list[float] = []

    def end() -> None:
        wait_for(lambda: "arm2" in calls(diary))
        time.sleep(1.0)  # what is finished is on its way
        first.kill()
        when.append(time.monotonic())

    with Records(tmp_path / "records.sqlite") as records:
        killer = threading.Thread(target=end)
        killer.start()
        with pytest.raises(
            SchedulerLost,
            match=rf"^the Dask scheduler at {address} does not answer any more: [^\n]*$",
        ):
            compute(jobs, records, engine=address, execute=execute, progress=False)
        killer.join()
        assert time.monotonic() - when[0] < 10
        recorded = set(records.frame()["arm"])
        assert recorded == {"arm0", "arm1"}
        lost.kill()
        for process in (first, lost):
            process.wait()

        scheduler(start, port)
        worker(start, port)
        (diary / "go").touch()
        summary = compute(jobs, records, engine=address, execute=execute, progress=False)
        assert (summary.recorded, summary.computed) == (6, 6)
        began = calls(diary)
        assert [began.count(f"arm{i}") for i in range(4)] == [1, 1, 2, 1]
        assert len(records) == 12


# How processes begin


def command_of(job: Job) -> Outcome:
    """How the process in which a job runs was started."""
    rows = {seed: [{"setting": json.dumps(psutil.Process().cmdline())}] for seed in job.seeds}
    return Outcome(rows, 0.1, {"device": "none"})


@pytest.mark.parametrize("engine", ["processes", "dask"])
def test_no_pool_forks(engine: str, tmp_path: Path) -> None:
    """A fork has the command of its parent; a spawned process begins with spawn_main."""
    with dask.config.set({"distributed.worker.multiprocessing-method": "fork"}):
        ((_, outcome),) = run(sweep(tmp_path, 1), command_of, engine, workers=1)
    command = json.loads(outcome.rows[0][0]["setting"])
    assert any("multiprocessing.spawn import spawn_main" in word for word in command), command
