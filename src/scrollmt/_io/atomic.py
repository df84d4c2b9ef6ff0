"""The one writer of files and folders: a target holds what it held before, or all that is new.

    .NAME-0123456789abcdef.draft/    beside the target while it is written, removed at the end
        NAME                         the new file or folder
        lock                         held by the writer; whose lock is free is dead
        old                          the folder that is replaced, between two renames

Content is synced to disk before the rename and the parent folder after it, so this holds for a
power cut too. A file is replaced by one rename. A folder is not, on most systems: the old one is
moved into the draft first. A writer killed in between leaves it there, and `restore`, or the next
writer, puts it back. Links are not followed: a target that is one is refused.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from scrollmt._io.lock import Lock

_LOCK, _OLD = "lock", "old"
# How long a reader waits for a writer that is alive and between its two renames.
_PATIENCE = 5.0

Target = str | os.PathLike[str]


@contextmanager
def replacing(path: Target) -> Iterator[Path]:
    """A file to write, alone in a folder of its own; at the end it takes the target's place."""
    target = _checked(path, folder=False)
    make_folder(target.parent)
    with _draft(target) as draft:
        new = draft / target.name
        yield new
        _sync(new)
        new.replace(target)
        _sync(target.parent)


@contextmanager
def replacing_folder(path: Target, *, replace: bool) -> Iterator[Path]:
    """An empty folder to fill, which takes the target's place at the end.

    Without `replace` the target may only be missing or an empty folder.
    """
    target = _checked(path, folder=True)
    make_folder(target.parent)
    with _draft(target) as draft:
        new = draft / target.name
        new.mkdir()
        yield new
        for folder, _, files in os.walk(new, topdown=False):
            for name in files:
                _sync(Path(folder, name))
            _sync(Path(folder))
        if target.exists():
            if replace:
                target.rename(draft / _OLD)
            else:
                target.rmdir()
        new.rename(target)
        _sync(target.parent)


def restore(path: Target) -> None:
    """Put a folder back that a writer, killed between its two renames, has left in its draft."""
    target = Path(path)
    if os.path.lexists(target):
        return
    for draft in _drafts(target):
        if (draft / _OLD).exists():
            _clear(draft, target, timeout=_PATIENCE)


def check(path: Target, *, folder: bool = False) -> None:
    """Find out before long work whether a target can be written, by writing beside it.

    Nothing is left behind, and nothing is changed.
    """
    target = _checked(path, folder=folder)
    there = _nearest(target)
    if folder and target.exists() and not os.access(target, os.W_OK):
        # To move a folder elsewhere is to change its entry for the folder above it.
        raise PermissionError(f"{target} cannot be replaced: it is protected against writing")
    try:
        with _draft(there / target.name) as draft, (draft / target.name).open("wb") as trial:
            trial.write(b"\0")
    except OSError as error:
        why = error.strerror or str(error)
        why = f"{there}: {why[:1].lower()}{why[1:]}"
        raise type(error)(f"{target} cannot be written: {why}") from error


def refuse_existing(path: Target, *, force: bool) -> Path:
    """The file, or an error where it cannot or must not be written; asked before long work too."""
    target = Path(path)
    check(target)
    if target.exists() and not force:
        raise FileExistsError(
            f"{target} exists already; choose another path, or pass force=True to replace it"
        )
    return target


def make_folder(path: Target) -> None:
    """Make a folder and those above it, as durably as the files that will lie in them."""
    folder = Path(path)
    if folder.is_dir():
        return
    there = _nearest(folder)
    for name in folder.relative_to(there).parts:
        (there / name).mkdir(exist_ok=True)
        _sync(there)
        there /= name


def _nearest(path: Path) -> Path:
    """The nearest folder above a path that is there already."""
    there = path.parent
    while not os.path.lexists(there):
        there = there.parent
    if not there.is_dir():
        raise NotADirectoryError(f"{path} cannot be written: {there} is not a folder")
    return there


def _checked(path: Target, *, folder: bool) -> Path:
    """The target, unless something of another kind is there."""
    target = Path(path)
    if target.name in ("", ".."):
        raise ValueError(f"{target} cannot be written to: it ends in no name; add one")
    try:
        mode = target.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return target
    if stat.S_ISLNK(mode):
        raise FileExistsError(
            f"{target} is a link to {os.readlink(target)}, and links are not followed; choose "
            "another path, or remove the link"
        )
    if folder and not stat.S_ISDIR(mode):
        raise FileExistsError(f"{target} exists and is not a folder; choose another path")
    if not folder and not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
        raise FileExistsError(f"{target} exists and is {kind}; choose another path")
    return target


def _drafts(target: Path) -> list[Path]:
    """The drafts of this target, and of no other whose name begins alike."""
    name = re.compile(rf"\.{re.escape(target.name)}-[0-9a-f]{{16}}\.draft")
    try:
        return [one for one in target.parent.iterdir() if name.fullmatch(one.name)]
    except OSError:
        return []


@contextmanager
def _draft(target: Path) -> Iterator[Path]:
    """An empty folder beside the target that no other writer takes for stale."""
    for left in _drafts(target):
        _clear(left, target)
    draft, lock = _begun(target)
    try:
        yield draft
    finally:
        if lock is not None:
            lock.release()
        _dispose(draft, target)


def _begun(target: Path) -> tuple[Path, Lock | None]:
    for _ in range(3):
        draft = target.parent / f".{target.name}-{secrets.token_hex(8)}.draft"
        draft.mkdir()
        with suppress(OSError):
            lock = Lock(draft / _LOCK)
            if lock.path.exists():
                return draft, lock
            lock.release()
        # Another writer took it for stale before it was locked.
        shutil.rmtree(draft, ignore_errors=True)
    # A file system without locks. Nobody else can lock the draft either, so nobody removes it.
    draft.mkdir(exist_ok=True)
    return draft, None


def _clear(draft: Path, target: Path, *, timeout: float = 0.0) -> None:
    """Remove a draft whose writer is dead, and leave that of a living one."""
    with suppress(OSError):
        with Lock(draft / _LOCK, timeout=timeout):
            _dispose(draft, target)
        _dispose(draft, target)  # Windows removes no file that is open, such as the lock


def _dispose(draft: Path, target: Path) -> None:
    """Remove a draft; a folder that is in it and not at the target goes back first."""
    old = draft / _OLD
    if old.exists() and not os.path.lexists(target):
        old.rename(target)
        _sync(target.parent)
    shutil.rmtree(draft, ignore_errors=True)


def _sync(path: Path) -> None:
    """Have the system write a file, or the entries of a folder, to the disk."""
    folder = path.is_dir()
    if folder and os.name == "nt":
        return  # Windows opens no folders
    handle = os.open(path, os.O_RDONLY if folder else os.O_RDWR)
    try:
        os.fsync(handle)
    except OSError as error:
        # Some network file systems sync files only.
        if not (folder and error.errno == errno.EINVAL):
            raise
    finally:
        os.close(handle)
