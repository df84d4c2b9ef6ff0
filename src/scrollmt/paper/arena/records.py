"""Records: every finished run in one SQLite file that survives a kill and reports damage.

A run is keyed by the hash of all that determines its rows. A job is recorded in one transaction,
so it is there with all of its seeds or not at all. Every line has a checksum, and a seal over all
of them tells whether one went missing (see `integrity`).
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, astuple, replace
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

import numpy as np
import pandas as pd

from scrollmt._io.atomic import make_folder, replacing
from scrollmt._io.lock import Lock
from scrollmt.paper.arena import archive, integrity
from scrollmt.paper.arena.archive import ArrayKey, DamagedRecords
from scrollmt.paper.arena.jobs import Job, Outcome
from scrollmt.paper.arena.runs import (
    Call,
    RecordedArray,
    Run,
    arrays_of,
    frame_of,
    name_of,
    provenance_of,
    runs_of,
)

# What SQLite says of a place where it cannot write; a file there can still be read.
_UNWRITABLE = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR}
_UNWRITABLE |= {sqlite3.SQLITE_FULL, sqlite3.SQLITE_PERM}


class Records:
    """The runs recorded in one file, which is made if there is none.

    Any number of processes may read, one at a time may write; `timeout` is how many seconds to
    wait for another writer. Keep the file on a disk of the machine that opens it: SQLite's
    write-ahead log does not work over a network. A file on a medium that is only for reading can be
    read, and must not change meanwhile.
    """

    def __init__(self, path: str | os.PathLike[str], *, timeout: float = 5.0):
        self.path = Path(path)
        self.timeout = timeout
        self._lock: Lock | None = None
        if not self.path.exists():
            self._create()
        self._verify()
        self._connection = self._opened()

    def __enter__(self) -> Records:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()
        self._unlock()

    def __len__(self) -> int:
        """How many runs are recorded."""
        return int(self._connection.execute("SELECT COUNT(*) FROM runs").fetchone()[0])

    def missing(self, job: Job) -> Job | None:
        """The job with only those seeds that are not recorded, or None if all are."""
        seeds = tuple(seed for seed in job.seeds if not self._has(job.key(seed)))
        return replace(job, seeds=seeds) if seeds else None

    def put(self, job: Job, outcome: Outcome) -> None:
        """Record a finished job, all of its seeds or none; once this returns, it is on disk."""
        runs, arrays = runs_of(job, outcome), arrays_of(job, outcome)
        with self.writing():
            if recorded := [run.seed for run in runs if self._has(run.key)]:
                raise ValueError(
                    f"{name_of(job)}: seeds {recorded} are recorded already; "
                    "put only what `missing` names"
                )
            self._add(runs, arrays)

    def absorb(self, other: Records) -> int:
        """Take over what another database has and this one lacks; gives the number of runs.

        For jobs that ran on several machines without a scheduler between them.
        """
        with self.writing():
            runs = [run for run in other._runs_of_all() if not self._has(run.key)]
            keys = {run.key for run in runs}
            known = self.calls()
            self._add(
                runs,
                [array for array in other._arrays() if array.key in keys],
                [call for call in other.calls() if call not in known],
            )
        return len(runs)

    def note(self, call: Call) -> None:
        """Keep what a call of the arena did, for the wall-clock of a whole study."""
        with self.writing():
            self._add([], [], [call])

    def calls(self) -> list[Call]:
        """Every call that was noted, in the order of their beginnings."""
        found = self._connection.execute("SELECT data FROM calls")
        return sorted((Call(**json.loads(data)) for (data,) in found), key=lambda call: call.began)

    def _add(
        self, runs: Iterable[Run], arrays: Iterable[RecordedArray], calls: Iterable[Call] = ()
    ) -> None:
        noted = [(json.dumps(asdict(call), sort_keys=True),) for call in calls]
        lines: dict[str, Iterable[tuple[object, ...]]] = {
            "runs": map(astuple, runs),
            "arrays": map(astuple, arrays),
            "calls": noted,
        }
        with self._transaction():
            for table, each in lines.items():
                integrity.add_lines(self._connection, table, each)

    def frame(self, jobs: Iterable[Job] | None = None) -> pd.DataFrame:
        """One row per run and setting, of the given jobs or of all, always in the same order.

        Columns: corpus, arm, backbone, seed, setting, every number by name, `seconds` (the
        seed's share of its job's time) and device.
        """
        return frame_of(self._runs(jobs))

    def array(self, job: Job, name: str) -> np.ndarray:
        """An array by its name, of the first of the job's seeds that has it."""
        for seed in job.seeds:
            for array in self._arrays("WHERE key = ? AND name = ?", job.key(seed), name):
                return array.values()
        raise KeyError(f"{name_of(job)}: no array {name!r} is recorded")

    def export(
        self,
        folder: str | os.PathLike[str],
        jobs: Iterable[Job] | None = None,
        *,
        arrays: Callable[[ArrayKey], bool] = lambda key: True,
        rows: Callable[[pd.DataFrame], pd.DataFrame] = lambda frame: frame,
    ) -> None:
        """Write the records of the given jobs, or of all, as files to commit (see `archive`).

        `arrays` says which of them to write, and `rows` which of the runs, by default all; they
        take most of the room.
        """
        runs = self._runs(jobs)
        if not runs:
            raise ValueError(f"{self.path} has no records of these jobs to export; compute them")
        by_key = {run.key: run for run in runs}
        found = {
            ArrayKey(run.corpus, run.arm, run.backbone, run.seed, array.name): array
            for array in self._arrays()
            if (run := by_key.get(array.key))
        }
        chosen = {key: array.values() for key, array in found.items() if arrays(key)}
        calls = [asdict(call) for call in self.calls()]
        archive.write(folder, rows(frame_of(runs)), chosen, provenance_of(runs), calls)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Be the only writer: within it nobody else records, and everybody may read."""
        if self._lock is not None:
            yield
            return
        self._lock = self._locked()
        try:
            # Found out now, not when a job has finished: whether the file can be written to.
            with self._transaction():
                self._connection.execute("UPDATE seal SET digest = digest")
                if not integrity.renew(self._connection):
                    self._connection.execute("ROLLBACK")
            yield
        finally:
            self._unlock()

    def _locked(self) -> Lock:
        try:
            return Lock(self._beside(".lock"), timeout=self.timeout)
        except BlockingIOError as error:
            raise ValueError(
                f"{self.path} is being written by another process (waited {self.timeout:g} s): "
                "let it finish or stop it, or record to another file"
            ) from error
        except OSError as error:
            raise self._unwritable(error.strerror) from error

    def _unwritable(self, why: object) -> ValueError:
        return ValueError(
            f"{self.path} cannot be written to ({why}): look at the room on the disk and the "
            "permissions of the file and its folder; what was recorded before is kept"
        )

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _connect(self, mode: str) -> sqlite3.Connection:
        return sqlite3.connect(
            f"{self.path.absolute().as_uri()}?{mode}",
            uri=True,
            timeout=self.timeout,
            isolation_level=None,
        )

    def _opened(self) -> sqlite3.Connection:
        """A connection to read and write with, or only to read where nothing can be written."""
        connection = self._connect("mode=rw")
        try:
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("SELECT digest FROM seal").fetchone()
        except sqlite3.OperationalError as error:
            connection.close()
            if error.sqlite_errorcode & 0xFF not in _UNWRITABLE:
                raise
            return self._connect(self._read_mode())
        return connection

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                if self._connection.in_transaction:
                    self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
            # SQLite takes a damaged log for a log that ends early. Folded into the file at once,
            # a recorded job is under its checksum instead.
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.OperationalError as error:
            raise self._unwritable(error) from error

    def _create(self) -> None:
        """Make the file under another name first: under its own it is always complete."""
        make_folder(self.path.parent)
        with self._locked():
            if self.path.exists():
                return
            if self._beside("-wal").exists():
                self._refuse("its log is there, but the file itself is not")
            with replacing(self.path) as draft:
                try:
                    with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
                        integrity.create(connection)
                        # Last, and all else without a log: closing a file drops what is still in
                        # its log, without an error, where the disk is full.
                        connection.execute("PRAGMA journal_mode=WAL")
                except sqlite3.OperationalError as error:
                    raise self._unwritable(error) from error

    def _verify(self) -> None:
        """Refuse a damaged file, without changing a byte of it."""
        if not self.path.is_file():
            self._refuse("it is not a file")
        mode = self._read_mode()
        fault = self._fault(mode)
        if fault and mode != self._read_mode():  # a writer came in meanwhile
            fault = self._fault(self._read_mode())
        if fault:
            self._refuse(fault)

    def _read_mode(self) -> str:
        # Without a log nobody has the file open, and SQLite need not leave lock files beside it.
        return "mode=ro" if self._beside("-wal").exists() else "mode=ro&immutable=1"

    def _fault(self, mode: str) -> str | None:
        """What is wrong with the file, in words; None if nothing is."""
        try:
            with closing(self._connect(mode)) as connection:
                connection.execute("BEGIN")  # one state of the file, whoever writes meanwhile
                return integrity.fault(connection)
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code == sqlite3.SQLITE_BUSY:
                raise
            if code in _UNWRITABLE and "immutable" not in mode:
                raise ValueError(
                    f"{self.path} has a log beside it, which cannot be read without room to write "
                    f"({error}): make room on the disk, or copy both to where you can write"
                ) from error
            return str(error)
        except UnicodeDecodeError:  # from Python's reading of SQLite's own message
            return "it is damaged (its text is not text)"

    def _refuse(self, fault: str) -> NoReturn:
        raise DamagedRecords(
            f"{self.path} cannot be used: {fault}. It was left as it is. Restore it from a copy, "
            "or move it aside (with its -wal and -shm files, if any) to start afresh"
        )

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)

    def _has(self, key: str) -> bool:
        found = self._connection.execute("SELECT 1 FROM runs WHERE key = ?", [key])
        return found.fetchone() is not None

    def _runs_of_all(self) -> list[Run]:
        order = "ORDER BY corpus, arm, backbone, seed, key"
        found = self._connection.execute(f"SELECT * FROM runs {order}")
        return [Run(*values) for *values, _ in found]

    def _runs(self, jobs: Iterable[Job] | None) -> list[Run]:
        runs = self._runs_of_all()
        if jobs is not None:
            keys = {job.key(seed) for job in jobs for seed in job.seeds}
            return [run for run in runs if run.key in keys]
        for one, other in pairwise(runs):
            if str(one) == str(other):
                raise ValueError(
                    f"{self.path} has {one} under two sets of determinants; "
                    "name the jobs whose records are wanted"
                )
        return runs

    def _arrays(self, which: str = "", *values: str) -> list[RecordedArray]:
        found = self._connection.execute(f"SELECT * FROM arrays {which}", values)
        return [RecordedArray(*values) for *values, _ in found]
