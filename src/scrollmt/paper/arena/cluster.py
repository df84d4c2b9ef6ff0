"""A Dask cluster as a pool: reached from this machine alone, of like workers, never silently gone.

Whoever reaches a scheduler can run code, so the cluster that is started here listens on loopback
only and has no dashboard. Results must not depend on where a job ran, so a worker with another
Python, JAX or scrollmt is refused before its results are taken.
"""

from __future__ import annotations

import platform
import time
import warnings
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Executor, Future
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from typing import Any

# Seconds until something is said of a scheduler that does not answer or has no workers.
PATIENCE = 8.0
PACKAGES = ("scrollmt", "jax")
LOOPBACK = "127.0.0.1"


class SchedulerLost(ConnectionError):
    """The scheduler is gone; what came back before is recorded."""


class Watch:
    """Asked at every turn whether the cluster is still there, and still of like workers."""

    def __init__(self, client: Any, address: str):
        self.client, self.address = client, address
        self._like: set[str] = set()
        self._idle_since: float | None = None

    def __call__(self, done: Collection[Future[Any]] = ()) -> None:
        workers = self._workers(done)
        self._check_versions({at: who for at, who in workers.items() if at not in self._like})
        if workers:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = time.monotonic()
        elif time.monotonic() - self._idle_since > PATIENCE:
            self._idle_since = float("inf")  # said once for as long as it lasts
            warnings.warn(
                f"the Dask scheduler at {self.address} has no workers: start some with "
                f"`dask worker {self.address}`; the sweep waits for them",
                stacklevel=2,
            )

    def _workers(self, done: Collection[Future[Any]]) -> dict[str, Any]:
        # Dask cancels what it was asked for when it loses the scheduler, even if it finds it again.
        if self.client.status == "running" and not any(future.cancelled() for future in done):
            try:
                found = self.client.sync(
                    self.client.scheduler.identity, n_workers=-1, callback_timeout=PATIENCE
                )
                return {at: worker["name"] for at, worker in found["workers"].items()}
            except (OSError, TimeoutError):
                pass
        raise SchedulerLost(
            f"the Dask scheduler at {self.address} does not answer any more: what is finished is "
            "recorded; start it again and call again, and only what is missing is computed"
        )

    def _check_versions(self, new: dict[str, Any]) -> None:
        if not new:
            return
        # By functions of the standard library: a worker with another scrollmt may lack ours.
        asked: list[tuple[str, Callable[..., str], tuple[str, ...]]]
        asked = [("Python", platform.python_version, ())]
        asked += [(package, version, (package,)) for package in PACKAGES]
        for name, ask, arguments in asked:
            here = _comparable(name, ask(*arguments))
            found = self.client.run(ask, *arguments, workers=[*new], on_error="return")
            for at, there in found.items():
                if isinstance(there, OSError):
                    continue  # gone again; what it had began elsewhere
                if not isinstance(there, str) or _comparable(name, there) != here:
                    has = f"{name} {there}" if isinstance(there, str) else f"no {name}"
                    raise ValueError(
                        f"worker {at} ({new[at]}) has {has}, and here it is {here}: give all "
                        "workers the same Python, JAX and scrollmt, or results would depend on "
                        "where a job ran"
                    )
        self._like |= {*new}


def _comparable(name: str, found: str) -> str:
    """Of Python the first two numbers: others differ in nothing that a job computes."""
    return ".".join(found.split(".")[:2]) if name == "Python" else found


@contextmanager
def connected(address: str | None, workers: int) -> Iterator[tuple[Executor, Watch]]:
    """A pool on the cluster whose scheduler listens at the address, or on one of our own."""
    try:
        import dask
        from distributed import Client
    except ImportError as error:
        raise ValueError(
            f"engine {address or 'dask'!r} needs Dask; install it: pip install 'scrollmt[cluster]'"
        ) from error
    with ExitStack() as stack:
        if address is None:
            address = stack.enter_context(_local(workers)).scheduler_address
        usual = dask.utils.parse_timedelta(dask.config.get("distributed.comm.timeouts.connect"))
        try:
            client = Client(address, set_as_default=False, timeout=min(usual, PATIENCE))
        except OSError as error:
            raise ValueError(
                f"no Dask scheduler answers at {address}; start one with `dask scheduler` and "
                "workers with `dask worker`, or choose another engine"
            ) from error
        stack.enter_context(client)
        # No retries: a job that raised would raise again. One whose worker died is moved to
        # another by Dask itself, as often as its setting allowed-failures says.
        executor = client.get_executor(pure=False)
        try:
            yield executor, Watch(client, address)
        finally:
            executor.shutdown(wait=False)


@contextmanager
def _local(workers: int) -> Iterator[Any]:
    """A cluster of processes of this machine, which no other machine can reach."""
    import dask
    from distributed import LocalCluster

    settings = {
        # A fork would copy the locks of an already running JAX, and wait for them for ever.
        "distributed.worker.multiprocessing-method": "spawn",
        "distributed.scheduler.http.routes": [],
        "distributed.worker.http.routes": [],
    }
    # Jobs leave nothing in Dask's memory that it could spill, and a worker that it paused over a
    # limit would never be let go on; so there is none.
    with (
        dask.config.set(settings),
        LocalCluster(
            host=LOOPBACK,
            n_workers=workers,
            threads_per_worker=1,
            memory_limit=None,
            # Dask opens a port for it in any case: one that is free, and with nothing to see.
            dashboard_address=f"{LOOPBACK}:0",
            scheduler_kwargs={"dashboard": False},
        ) as cluster,
    ):
        yield cluster
