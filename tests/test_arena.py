"""A sweep loses nothing: not to a dead worker, not to a killed driver, not to Ctrl-C."""

import importlib
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from distributed import LocalCluster

from scrollmt.paper.arena.archive import load
from scrollmt.paper.arena.engines import JobsFailed
from scrollmt.paper.arena.jobs import Job, make_job
from scrollmt.paper.arena.records import Records
from scrollmt.paper.arena.sources import SOURCES
from scrollmt.paper.arena.sweep import Summary, compute, plan, time_left
from scrollmt.paper.arms import ARMS
from scrollmt.paper.protocol import PROTOCOL
from sweeps import alive, calls, execute, processes, sweep, wait_for


def assert_same_records(one: Records, other: Records, jobs: list[Job]) -> None:
    pd.testing.assert_frame_equal(one.frame(), other.frame(), check_exact=True)
    for job in jobs:
        np.testing.assert_array_equal(one.array(job, "var"), other.array(job, "var"))


def computed(jobs: list[Job], records: Records, **options: Any) -> Summary:
    return compute(jobs, records, execute=execute, progress=False, **options)


def test_only_what_is_missing_is_computed(tmp_path: Path) -> None:
    jobs = sweep(tmp_path / "diary", 3)
    first = Job(jobs[0].corpus, jobs[0].arm, jobs[0].backbone, (1,), jobs[0].determinants)
    with Records(tmp_path / "records.sqlite") as records:
        assert computed([first], records).computed == 1
        # Two studies that share an arm compute it once.
        summary = computed([*jobs, *jobs[:2]], records)
        assert (summary.recorded, summary.computed) == (1, 8)
        assert computed(jobs, records).computed == 0
        assert plan(jobs, records) == []
        assert len(records) == 9
    assert calls(tmp_path / "diary") == ["arm0", "arm0", "arm1", "arm2"]


@pytest.mark.slow
def test_jobs_that_take_times_run_last_and_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scrollmt.paper.arena.sweep.ALONE", {"arm0", "arm1"})
    jobs = sweep(tmp_path / "diary", 4)
    with Records(tmp_path / "records.sqlite") as records:
        computed(jobs, records, engine="processes", workers=2)
        assert len(records) == 12
        # Whatever the engine, a clock runs in this process.
        assert {*processes(tmp_path / "diary", "arm[01]")} == {os.getpid()}
        assert os.getpid() not in processes(tmp_path / "diary", "arm[23]")
        with Records(tmp_path / "other.sqlite") as other:
            assert other.absorb(records) == 12
            assert other.calls() == records.calls()
            assert other.absorb(records) == 0
            assert len(other.calls()) == 1


@pytest.mark.slow
def test_a_real_job_is_trained_scored_and_recorded(tmp_path: Path) -> None:
    small = replace(PROTOCOL, steps=10, corpus_windows=200, truth_members=5)
    job = make_job("ou", "scroll-diag", "tanh", small, seeds=(0, 1))
    with Records(tmp_path / "records.sqlite") as records:
        assert compute([job], records, progress=False).computed == 2
        frame = records.frame([job])
        assert records.missing(job) is None
        records.export(tmp_path / "export")
    assert frame["seed"].to_list() == [0, 1]
    assert np.isfinite(frame.select_dtypes("number")).all(axis=None)
    pd.testing.assert_frame_equal(load(tmp_path / "export"), frame, rtol=5e-6)


def test_a_bad_job_is_named_and_the_others_are_recorded(tmp_path: Path) -> None:
    jobs = sweep(tmp_path / "diary", 4, arm0="raises", arm2="short")
    with Records(tmp_path / "records.sqlite") as records:
        with pytest.raises(JobsFailed, match=r"arm2 tanh: .*seeds \[0, 1, 2\].*\[0, 1\]") as caught:
            computed(jobs, records)
        assert set(caught.value.failures) == {jobs[0], jobs[2]}
        assert set(records.frame()["arm"]) == {"arm1", "arm3"}


def test_a_second_driver_is_turned_away_before_it_computes(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    with (
        Records(path) as records,
        records.writing(),
        Records(path, timeout=0.05) as late,
        pytest.raises(ValueError, match="is being written by another process"),
    ):
        computed(sweep(tmp_path / "diary", 1), late)
    assert calls(tmp_path / "diary") == []


@pytest.mark.slow
@pytest.mark.cluster
def test_a_killed_dask_worker_costs_nothing(tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    jobs = sweep(diary, 6, arm2="waits")
    killed: list[int] = []

    def kill() -> None:
        wait_for(lambda: "arm2" in calls(diary))
        killed.extend(processes(diary, "arm2"))
        os.kill(killed[0], signal.SIGKILL)
        (diary / "go").touch()  # who takes over need not wait

    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit=None, dashboard_address=":0"
        ) as cluster,
        Records(tmp_path / "dask.sqlite") as records,
        Records(tmp_path / "local.sqlite") as reference,
    ):
        thread = threading.Thread(target=kill)
        thread.start()
        summary = computed(jobs, records, engine=cluster.scheduler_address)
        thread.join()
        assert summary.computed == len(records) == 18
        # It began on the one, died with it, began again elsewhere, and ended once.
        assert len(killed) == 1
        assert not alive(killed[0])
        assert len(set(processes(diary, "arm2"))) == 2
        assert calls(diary, "ended").count("arm2") == 1
        computed(jobs, reference)
        assert_same_records(records, reference, jobs)


DRIVER = """
import sys
from pathlib import Path

if __name__ == "__main__":
    from sweeps import execute, sweep
    from scrollmt.paper.arena.sweep import compute
    from scrollmt.paper.arena.records import Records

    with Records(sys.argv[1]) as records:
        compute(sweep(Path(sys.argv[2]), 8, arm3="waits", arm5="waits"), records,
                engine="processes", workers=2, execute=execute)
"""


@pytest.mark.slow
def test_a_killed_driver_resumes(tmp_path: Path) -> None:
    diary, path, script = tmp_path / "diary", tmp_path / "records.sqlite", tmp_path / "driver.py"
    jobs = sweep(diary, 8, arm3="waits", arm5="waits")
    script.write_text(DRIVER)
    with subprocess.Popen(
        [sys.executable, script, path, diary],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.PIPE,
        text=True,
    ) as driver:
        assert driver.stderr is not None
        # Two workers, in the end both held up: all that came before is recorded, nothing else is.
        lines = [driver.stderr.readline() for _ in range(4)]
        recording = lines[3].startswith("12/24 runs: ou arm4 tanh 0.3 s, ")
        if recording:
            wait_for(lambda: {"arm3", "arm5"} <= {*calls(diary)})
        driver.kill()
    assert recording, lines
    wait_for(lambda: not any(map(alive, processes(diary))))  # orphans do not linger

    with Records(path) as records, Records(tmp_path / "local.sqlite") as reference:
        assert set(records.frame()["arm"]) == {"arm0", "arm1", "arm2", "arm4"}
        assert len(records) == 12
        (diary / "go").touch()
        summary = computed(jobs, records)
        assert (summary.recorded, summary.computed) == (12, 12)
        began = calls(diary)
        assert all(began.count(arm) == 1 for arm in ("arm0", "arm1", "arm2", "arm4", "arm6"))
        assert all(began.count(arm) == 2 for arm in ("arm3", "arm5"))
        computed(jobs, reference)
        assert_same_records(records, reference, jobs)


@pytest.mark.slow
def test_an_interrupt_while_recording_loses_nothing_that_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    diary = tmp_path / "diary"
    jobs = sweep(diary, 3, arm2="waits")
    handler = signal.getsignal(signal.SIGINT)
    with Records(tmp_path / "records.sqlite") as records:
        put = records.put

        def interrupted(*args: Any) -> None:
            # The first is being recorded, the second is finished, the third will never be.
            wait_for(lambda: "arm2" in calls(diary))
            os.kill(os.getpid(), signal.SIGINT)
            put(*args)

        monkeypatch.setattr(records, "put", interrupted)
        with pytest.raises(KeyboardInterrupt):
            computed(jobs, records, engine="processes", workers=1)
        assert set(records.frame()["arm"]) == {"arm0", "arm1"}
        assert signal.getsignal(signal.SIGINT) is handler
        wait_for(lambda: not any(map(alive, processes(diary))))
        with records.writing():  # free for the next
            assert [job.arm for job in plan(jobs, records)] == ["arm2"]


def test_progress_says_what_is_done_and_when_the_rest_will_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = sweep(tmp_path / "diary", 2)
    with Records(tmp_path / "records.sqlite") as records:
        compute(jobs, records, execute=execute, weight=lambda job: 1 + 999 * (job.arm == "arm1"))
        (call,) = records.calls()
    out, lines = capsys.readouterr()
    assert out == ""
    first, second = lines.splitlines()
    # The long job begins, and takes all but a thousandth of the time.
    assert first.startswith("3/6 runs: ou arm1 tanh 0.3 s, 0:00:00 left")
    assert second.startswith("6/6 runs: ou arm0 tanh 0.3 s, 0:00:00 left")
    assert (call.jobs, call.runs, call.complete, call.engine) == (2, 6, True, "local")
    assert time_left(elapsed=30.0, weighed=2.0, left=6.0) == 90.0


OUTSIDE = """
import numpy as np
from scrollmt import Gaussian
from scrollmt.paper.arms import Forecasts, OwnArm, register
from scrollmt.paper.arena.sources import Source, register_corpus
from scrollmt.laws import GaussianLaw

def tasks():
    return {"level": Gaussian()}

def load(asked):
    return np.ones((50, 1)), {"level": np.arange(50.0)}

def constant(fold, setting):
    y = fold.Y_train["level"]
    laws = [{"level": GaussianLaw(np.full(n, y.mean()), np.full(n, y.std()))}
            for n in (len(fold.X_valid), len(fold.X_test))]
    return Forecasts(*laws)

register_corpus(Source("outside-level", tasks, load))
register(OwnArm("outside-constant", "", constant))
"""


@pytest.mark.slow
def test_a_worker_process_knows_arms_and_corpora_of_other_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "outside_module.py").write_text(OUTSIDE)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("outside_module")
    try:
        job = make_job("outside-level", "outside-constant", "none", seeds=(1, 2))
        with Records(tmp_path / "records.sqlite") as records:
            compute([job], records, engine="processes", workers=1, progress=False)
            assert np.isfinite(records.frame([job])["level.nll"]).all()
    finally:
        del ARMS["outside-constant"], SOURCES["outside-level"], sys.modules["outside_module"]
