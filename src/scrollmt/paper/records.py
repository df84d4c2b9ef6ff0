"""Records: every finished run in one SQLite file that survives a kill and reports damage.

A run is keyed by the hash of all that determines its rows. A job is recorded in one transaction,
so it is there with all of its seeds or not at all. Every run and array has a checksum, and a seal
over all checksums tells whether one of them went missing.
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

from scrollmt.paper import archive
from scrollmt.paper.archive import ArrayKey, DamagedRecords
from scrollmt.paper.jobs import Job, Outcome
from scrollmt.paper.runs import (
    Call,
    RecordedArray,
    Run,
    arrays_of,
    checksum,
    digest,
    frame_of,
    name_of,
    provenance_of,
    runs_of,
)

APPLICATION_ID = 0x5C401147
SCHEMA_VERSION = 2
SCHEMA = (
    """CREATE TABLE runs (
    key TEXT PRIMARY KEY NOT NULL,
    corpus TEXT NOT NULL,
    arm TEXT NOT NULL,
    backbone TEXT NOT NULL,
    seed INTEGER NOT NULL,
    determinants TEXT NOT NULL,
    rows TEXT NOT NULL,
    seconds REAL NOT NULL,
    environment TEXT NOT NULL,
    finished TEXT NOT NULL,
    checksum TEXT NOT NULL
)""",
    """CREATE TABLE arrays (
    key TEXT NOT NULL,
    name TEXT NOT NULL,
    data BLOB NOT NULL,
    checksum TEXT NOT NULL,
    PRIMARY KEY (key, name)
)""",
    """CREATE TABLE calls (
    data TEXT NOT NULL,
    checksum TEXT NOT NULL
)""",
    "CREATE TABLE seal (digest TEXT NOT NULL)",
)


class Records:
    """The runs recorded in one file, which is made if there is none.

    Any number of processes may read, one at a time may write; `timeout` is how many seconds to
    wait for another writer. Keep the file on a disk of the machine that opens it: SQLite's
    write-ahead log does not work over a network.
    """

    def __init__(self, path: str | os.PathLike, *, timeout: float = 5.0):
        self.path = Path(path)
        self.timeout = timeout
        self._lock: sqlite3.Connection | None = None
        if not self.path.exists():
            self._create()
        self._verify()
        self._connection = self._connect("mode=rw")
        self._connection.execute("PRAGMA synchronous=FULL")

    def __enter__(self) -> Records:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()
        self._unlock()

    def __len__(self) -> int:
        """How many runs are recorded."""
        return self._connection.execute("SELECT COUNT(*) FROM runs").fetchone()[0]

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
        lines = {
            "runs": map(astuple, runs),
            "arrays": map(astuple, arrays),
            "calls": noted,
        }
        with self._transaction():
            for table, each in lines.items():
                for line in each:
                    self._insert(table, *line, checksum(line))
            self._connection.execute("UPDATE seal SET digest = ?", [_seal(self._connection)])
        # SQLite takes a damaged log for a log that ends early. Folded into the file at once,
        # a recorded job is under its checksum instead.
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    def frame(self, jobs: Iterable[Job] | None = None) -> pd.DataFrame:
        """One row a run and setting, of the given jobs or of all, always in the same order.

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
        folder: str | os.PathLike,
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
            self._try_to_write()
            yield
        finally:
            self._unlock()

    def _try_to_write(self) -> None:
        """Find out now, not when a job has finished, that a file cannot be written to."""
        try:
            # On a file that is only for reading SQLite begins without complaint.
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute("UPDATE seal SET digest = digest")
            self._connection.execute("ROLLBACK")
        except sqlite3.OperationalError as error:
            self._connection.rollback()
            raise ValueError(
                f"{self.path} cannot be written to ({error}): look at the permissions of the file "
                "and its folder, or restore it from a copy"
            ) from error

    def _locked(self) -> sqlite3.Connection:
        # A lock that SQLite holds on an empty file beside the records works on every system and
        # ends with the process, however that ends.
        lock = sqlite3.connect(self._beside(".lock"), timeout=self.timeout, isolation_level=None)
        try:
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            lock.close()
            raise ValueError(
                f"{self.path} is being written by another process (waited {self.timeout:g} s): "
                "let it finish or stop it, or record to another file"
            ) from error
        return lock

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _connect(self, mode: str) -> sqlite3.Connection:
        return sqlite3.connect(
            f"{self.path.absolute().as_uri()}?{mode}",
            uri=True,
            timeout=self.timeout,
            isolation_level=None,
        )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def _create(self) -> None:
        """Make the file under another name first: under its own it is never half made."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self._beside(".new")
        with closing(self._locked()):
            if self.path.exists():
                return
            if self._beside("-wal").exists():
                self._refuse("its log is there, but the file itself is not")
            draft.unlink(missing_ok=True)
            with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
                for table in SCHEMA:
                    connection.execute(table)
                connection.execute("INSERT INTO seal VALUES (?)", [_seal(connection)])
            draft.replace(self.path)

    def _verify(self) -> None:
        """Refuse a file that is not whole, without changing a byte of it."""
        if not self.path.is_file():
            self._refuse("it is not a file")
        # Without a log nobody has the file open, and SQLite need not leave lock files beside it.
        alone = not self._beside("-wal").exists()
        fault = self._fault("mode=ro&immutable=1" if alone else "mode=ro")
        if fault and alone and self._beside("-wal").exists():  # a writer came in meanwhile
            fault = self._fault("mode=ro")
        if fault:
            self._refuse(fault)

    def _fault(self, mode: str) -> str | None:
        """What is wrong with the file, in words; None if nothing is."""
        try:
            with closing(self._connect(mode)) as connection:
                connection.execute("BEGIN")  # one state of the file, whoever writes meanwhile
                return _fault(connection)
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
                raise
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

    def _insert(self, table: str, *values: object) -> None:
        marks = ", ".join("?" * len(values))
        self._connection.execute(f"INSERT INTO {table} VALUES ({marks})", values)

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


def _fault(connection: sqlite3.Connection) -> str | None:
    application, version, check = (
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("application_id", "user_version", "integrity_check")
    )
    if application != APPLICATION_ID:
        return "it holds no records of scrollmt"
    if version != SCHEMA_VERSION:
        return f"its schema version is {version}, but this scrollmt reads {SCHEMA_VERSION}"
    if check != "ok":
        return f"it is damaged ({check})"
    tables = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")
    if [sql for (sql,) in tables] != list(SCHEMA):
        return "it is damaged (its tables are not those of records)"
    for table, name in (("runs", slice(1, 5)), ("arrays", slice(1, 2)), ("calls", slice(0, 0))):
        for *values, stored in connection.execute(f"SELECT * FROM {table}"):
            if checksum(values) != stored:
                whose = " ".join(map(str, values[name]))
                return f"it is damaged (the checksum of {whose or 'a line'} in {table} is wrong)"
    if connection.execute("SELECT digest FROM seal").fetchall() != [(_seal(connection),)]:
        return "it is damaged (it holds something else than was recorded)"
    return None


def _seal(connection: sqlite3.Connection) -> str:
    """A digest of all that is recorded, whatever the order in which it came."""
    each = " UNION ALL ".join(f"SELECT checksum FROM {t}" for t in ("runs", "arrays", "calls"))
    found = connection.execute(f"{each} ORDER BY checksum")
    return digest("".join(stored for (stored,) in found))
