"""Whatever the engine, the same outcomes come back, and one job's trouble is its own."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import dask
import pytest
from distributed import Client, LocalCluster

from scrollmt.paper.arena.engines import JobsFailed, run
from scrollmt.paper.arena.jobs import Job
from sweeps import alive, calls, execute, processes, sweep, wait_for


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(
        n_workers=2, threads_per_worker=1, memory_limit=None, dashboard_address=":0"
    ) as started:
        yield started


def drained(jobs: list[Job], engine: str) -> tuple[dict[Job, str], BaseException | None]:
    """The outcome of every job as text, for one NaN is not equal to another, and how it ended."""
    done = {}
    try:
        for job, outcome in run(jobs, execute, engine, workers=1):
            done[job] = repr(outcome)
    except (JobsFailed, KeyboardInterrupt) as error:
        return done, error
    return done, None


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize("engine", ["processes", "dask", "tcp"])
def test_every_engine_gives_what_this_process_gives(
    engine: str, tmp_path: Path, cluster: LocalCluster
) -> None:
    jobs = sweep(tmp_path, 5, arm1="raises", arm3="raises")
    here, fault = drained(jobs, "local")
    assert [job.arm for job in here] == ["arm0", "arm2", "arm4"]
    assert set(processes(tmp_path)) == {os.getpid()}
    address = cluster.scheduler_address if engine == "tcp" else engine
    there, other_fault = drained(jobs, address)
    assert there == here
    for raised in (fault, other_fault):
        assert isinstance(raised, JobsFailed)
        assert set(raised.failures) == {jobs[1], jobs[3]}
        assert str(raised).startswith("2 jobs failed, the others are done")
        assert "ou arm3 tanh: RuntimeError: no luck with arm3" in str(raised)
        assert "no luck" in str(raised.__cause__)
    # Once here and once there: a job that raises would raise again, and is not tried twice.
    assert calls(tmp_path) == sorted([job.arm for job in jobs] * 2)
    workers = set(processes(tmp_path)) - {os.getpid()}
    if engine == "tcp":  # somebody else's cluster is left running
        assert all(map(alive, workers))
        with Client(cluster) as client:
            assert client.submit(sum, [1, 2]).result() == 3
    else:
        wait_for(lambda: not any(map(alive, workers)))


def test_threads_of_this_process_run_jobs_side_by_side(tmp_path: Path) -> None:
    jobs = sweep(tmp_path, 3, arm0="waits", arm1="raises")
    finished = run(jobs, execute, workers=2)
    # The last job is done while the first is still at work.
    assert next(finished)[0].arm == "arm2"
    (tmp_path / "go").touch()
    assert next(finished)[0].arm == "arm0"
    with pytest.raises(JobsFailed, match="no luck with arm1"):
        next(finished)
    assert set(processes(tmp_path)) == {os.getpid()}


@pytest.mark.slow
def test_a_worker_process_that_dies_is_reported(tmp_path: Path) -> None:
    jobs = sweep(tmp_path, 3, arm1="dies")
    done, fault = drained(jobs, "processes")
    assert list(done) == jobs[:1]
    assert isinstance(fault, JobsFailed)
    assert list(fault.failures) == jobs[1:]
    assert "ou arm1 tanh: a worker process died" in str(fault)


@pytest.mark.slow
@pytest.mark.cluster
def test_a_job_that_kills_dask_workers_takes_no_other_with_it(
    tmp_path: Path, cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster.scheduler, "allowed_failures", 0)
    jobs = sweep(tmp_path, 6, arm1="dies")
    done, fault = drained(jobs, cluster.scheduler_address)
    assert isinstance(fault, JobsFailed)
    assert list(fault.failures) == [jobs[1]]
    assert "every worker that Dask gave it to died" in str(fault)
    assert {job.arm for job in done} == {"arm0", "arm2", "arm3", "arm4", "arm5"}
    assert calls(tmp_path).count("arm1") == 2


@pytest.mark.slow
def test_an_interrupt_ends_what_is_not_finished(tmp_path: Path) -> None:
    jobs = sweep(tmp_path, 3, arm1="waits")

    def interrupt() -> None:
        wait_for(lambda: calls(tmp_path) == ["arm0", "arm1"])
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    done, fault = drained(jobs, "processes")
    thread.join()
    assert isinstance(fault, KeyboardInterrupt)
    assert list(done) == jobs[:1]
    wait_for(lambda: not any(map(alive, processes(tmp_path))))
    assert calls(tmp_path, "ended") == ["arm0"]


@pytest.mark.slow
def test_an_interrupt_that_another_thread_takes_is_noticed(tmp_path: Path) -> None:
    jobs = sweep(tmp_path, 2, arm1="waits")
    # The system may hand a signal to any thread that does not block it: here, to the timer's.
    timer = threading.Timer(2.0, os.kill, (os.getpid(), signal.SIGINT))
    finished = run(jobs, execute, "processes", workers=1)
    assert next(finished)[0] == jobs[0]
    timer.start()
    began = time.monotonic()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with pytest.raises(KeyboardInterrupt):
            next(finished)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    assert time.monotonic() - began < 30  # the job itself would wait for a minute


def test_bad_engines_teach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = sweep(tmp_path, 1)
    with pytest.raises(ValueError, match=r"no engine 'slurm'; choose local, processes, dask or"):
        drained(jobs, "slurm")
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "200ms"}),
        pytest.raises(ValueError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"),
    ):
        drained(jobs, "tcp://127.0.0.1:9")
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ValueError, match=r"pip install 'scrollmt\[cluster\]'"):
        drained(jobs, "dask")
    assert calls(tmp_path) == []
