"""A lock on a file that ends with the process that holds it, however that ends.

SQLite locks a file in the way that suits each system; the file itself stays empty. The system drops
the lock of a killed process, so no lock is ever left behind.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import suppress
from pathlib import Path


class Lock:
    """Holds a file, which is made if there is none, until `release`.

    Raises BlockingIOError if somebody else still holds it after `timeout` seconds, and OSError
    if it cannot be locked at all.
    """

    def __init__(self, path: str | os.PathLike[str], *, timeout: float = 0.0):
        self.path = Path(path)
        self._connection: sqlite3.Connection | None = None
        try:
            # Whoever releases it may be another thread than the one that took it.
            self._connection = sqlite3.connect(
                self.path, timeout=timeout, isolation_level=None, check_same_thread=False
            )
            self._connection.execute("PRAGMA journal_mode=MEMORY")  # needs no room on the disk
            self._connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error as error:
            self.release()
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
                said = "somebody else holds this lock"
                raise BlockingIOError(errno.EAGAIN, said, str(path)) from error
            raise OSError(errno.EACCES, f"cannot be locked ({error})", str(path)) from error

    def release(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
