"""Disks that are full and media that are only for reading, for root as for anybody else."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def _mount(*arguments: object) -> None:
    done = subprocess.run(["mount", *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"this user may not mount anything: {done.stderr.strip()}")


@contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Path]:
    """A file system of this size at the folder; `grow` makes more room on it."""
    folder.mkdir(parents=True, exist_ok=True)
    _mount("-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", folder)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def grow(disk: Path, kilobytes: int) -> None:
    _mount("-o", f"remount,size={kilobytes}k", disk)


@contextmanager
def read_only(folder: Path) -> Iterator[Path]:
    """A folder in which nobody can write; permissions do not bind root, a mount does."""
    if os.geteuid() != 0:
        files = [*folder.rglob("*"), folder]
        before = {path: path.stat().st_mode for path in files}
        for path in files:
            path.chmod(before[path] & ~0o222)
        try:
            yield folder
        finally:
            for path in reversed(files):
                path.chmod(before[path])
        return
    _mount("--bind", folder, folder)
    try:
        _mount("-o", "remount,bind,ro", folder)
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
