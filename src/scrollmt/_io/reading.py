"""Reading files from an untrusted source: regular ones only, of no more than a stated size."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO


def read_bounded(path: Path, limit: int, *, inside: bool = False) -> bytes:
    """The bytes of a regular file of at most `limit` bytes; anything else is an OSError.

    With `inside`, a link may lead to another place in the file's own folder, and no further.
    """
    if inside and path.parent.resolve() not in path.resolve().parents:
        raise OSError(f"{path} is a link to a place outside its folder, and is not followed")
    with open_bounded(path, limit) as file:
        return file.read(os.fstat(file.fileno()).st_size)


def open_bounded(path: Path, limit: int) -> BinaryIO:
    """A regular file of at most `limit` bytes, opened; anything else is an OSError.

    A pipe is not waited for and a device is not read.
    """
    # Without O_NONBLOCK the opening of a pipe waits for somebody who writes to it.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    file = open(os.open(path, flags), "rb")  # noqa: SIM115  (the caller closes it)
    found = os.fstat(file.fileno())
    if stat.S_ISREG(found.st_mode) and found.st_size <= limit:
        return file
    file.close()
    if stat.S_ISREG(found.st_mode):
        raise OSError(f"{path} has {found.st_size:,} bytes, and at most {limit:,} are read")
    raise OSError(f"{path} is not a regular file")
