"""Jobs that cost nothing, and an `execute` for them that keeps a diary in files.

Worker processes import this module by name, so it stands apart from the tests.
"""

import json
import os
import time
import uuid
from pathlib import Path

import numpy as np
import psutil

from scrollmt.paper.arena.jobs import Job, Outcome

SEEDS = (0, 1, 2)


def sweep(diary: Path, arms: int = 6, **trouble: str) -> list[Job]:
    """One job an arm; `trouble` says what befalls an arm: see `execute`."""
    diary.mkdir(parents=True, exist_ok=True)
    stated = json.dumps({"diary": str(diary), "trouble": trouble})
    return [Job("ou", f"arm{i}", "tanh", SEEDS, stated) for i in range(arms)]


def execute(job: Job) -> Outcome:
    """Numbers that follow from the job's key alone; every call and its end leave a file."""
    stated = json.loads(job.determinants)
    diary = Path(stated["diary"])
    name = f"{job.arm}.{os.getpid()}.{uuid.uuid4().hex}"
    (diary / f"{name}.began").touch()
    match stated["trouble"].get(job.arm):
        case "raises":
            raise RuntimeError(f"no luck with {job.arm}")
        case "dies":
            os._exit(1)
        case "waits":
            wait_for(lambda: (diary / "go").exists())
        case "short":
            job = Job(job.corpus, job.arm, job.backbone, job.seeds[:-1], job.determinants)
    outcome = Outcome(
        {seed: rows(job, seed) for seed in job.seeds},
        seconds=0.1 * len(job.seeds),
        environment={"device": "none"},
        arrays={"var": numbers(job, job.seeds[0], 50).tolist()},
    )
    (diary / f"{name}.ended").touch()
    return outcome


def numbers(job: Job, seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(int(job.key(seed), 16)).normal(size=count)


def rows(job: Job, seed: int) -> list[dict]:
    """Two settings a seed, as of a small grid, with the awkward numbers that fits can end in."""
    out = []
    for setting, (nll, crps) in enumerate(numbers(job, seed, 4).reshape(2, 2)):
        row = {"setting": json.dumps({"weight": setting}), "nll": float(nll), "crps": float(crps)}
        row |= {"steps": 1000 + seed, "sigma": [float("nan"), float("inf")][setting]}
        out.append(row if setting else row | {"alpha": 1 / 3, "stop_reason": "patience"})
    return out


def calls(diary: Path, event: str = "began") -> list[str]:
    """The arms of all calls that began or ended, sorted."""
    return sorted(path.name.split(".")[0] for path in diary.glob(f"*.{event}"))


def processes(diary: Path, arm: str = "*") -> list[int]:
    """Who began to execute an arm."""
    return [int(path.name.split(".")[1]) for path in diary.glob(f"{arm}.*.began")]


def wait_for(condition, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("waited in vain")
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
