"""The one writer: old or new at every moment, nothing left behind, nothing followed."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from media import read_only, small_disk
from scrollmt._io import atomic
from scrollmt._io.lock import Lock


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def write_file(target: Path, text: str) -> None:
    with atomic.replacing(target) as draft:
        draft.write_text(text)


def write_folder(target: Path, text: str) -> None:
    with atomic.replacing_folder(target, replace=True) as draft:
        for name in ("a", "b"):
            (draft / name).write_text(text)


def read_folder(target: Path) -> list[str]:
    return [(target / name).read_text() for name in ("a", "b")]


def test_a_file_and_a_folder_are_written_and_replaced(tmp_path: Path) -> None:
    file, folder = tmp_path / "deep" / "er" / "file.txt", tmp_path / "deep" / "folder"
    for text in ("one", "two"):
        write_file(file, text)
        write_folder(folder, text)
        assert file.read_text() == text
        assert read_folder(folder) == [text] * 2
    assert names(tmp_path / "deep") == ["er", "folder"]
    assert names(file.parent) == ["file.txt"]


def test_a_folder_that_may_not_be_replaced_is_kept(tmp_path: Path) -> None:
    target = tmp_path / "folder"
    target.mkdir()
    with atomic.replacing_folder(target, replace=False) as draft:
        (draft / "a").write_text("first")
    with (
        pytest.raises(OSError, match="not empty"),
        atomic.replacing_folder(target, replace=False) as draft,
    ):
        (draft / "a").write_text("second")
    assert (target / "a").read_text() == "first"
    assert names(tmp_path) == ["folder"]


@pytest.mark.parametrize("write", [write_file, write_folder])
def test_a_writer_that_fails_leaves_what_was_there(
    write: Callable[[Path, str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "target"
    write(target, "old")
    for method in ("write_text", "rename", "replace"):

        def interrupted(*_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

        if (method, write) in (("rename", write_file), ("replace", write_folder)):
            continue
        with monkeypatch.context() as patch:
            patch.setattr(Path, method, interrupted)
            with pytest.raises(KeyboardInterrupt):
                write(target, "new")
    assert target.read_text() == "old" if target.is_file() else read_folder(target) == ["old"] * 2
    assert names(tmp_path) == ["target"]


def test_an_old_folder_goes_back_if_the_new_one_cannot_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "target"
    write_folder(target, "old")
    rename, moved = Path.rename, []

    def fails_at_the_second(path: Path, to: Path) -> Path:
        moved.append(path.name)
        if len(moved) == 2:
            raise OSError("no more")
        return rename(path, to)

    monkeypatch.setattr(Path, "rename", fails_at_the_second)
    with pytest.raises(OSError, match="no more"):
        write_folder(target, "new")
    assert moved == ["target", "target", "old"]
    assert read_folder(target) == ["old"] * 2
    assert names(tmp_path) == ["target"]


# Kills

KILLS = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from scrollmt._io import atomic
from test_atomic import names, read_folder, write_file, write_folder

here = Path(sys.argv[1])
left = midway = 0
for write in (write_file, write_folder):
    target = here / write.__name__
    read = (lambda: [target.read_text()] * 2) if write is write_file else (
        lambda: read_folder(target))
    write(target, "0")
    for kill_at in range(1, 100):
        old, new = read()[0], str(kill_at)
        child = os.fork()
        if child == 0:
            calls = 0

            def counted(original):
                def call(*arguments, **options):
                    global calls
                    calls += 1
                    if calls == kill_at:
                        os.kill(os.getpid(), signal.SIGKILL)
                    return original(*arguments, **options)
                return call

            for name in ("mkdir", "rename", "replace", "unlink", "rmdir", "write_text"):
                setattr(Path, name, counted(getattr(Path, name)))
            for name in ("fsync", "unlink", "rmdir"):
                setattr(os, name, counted(getattr(os, name)))
            write(target, new)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        drafts = [name for name in names(here) if name.endswith(".draft")]
        assert len(drafts) <= 1, drafts
        left += len(drafts)
        midway += not target.exists()
        if write is write_file:
            assert target.exists()
        atomic.restore(target)
        assert read() in ([old] * 2, [new] * 2), (read(), old, new)
        if status == 0:
            break
    assert status == 0 and kill_at > 8, kill_at
    write(target, "last")
    assert read() == ["last"] * 2
assert names(here) == ["write_file", "write_folder"], names(here)
print(left, midway)
"""


def test_killed_at_any_moment_the_target_is_old_or_new_and_the_draft_goes(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", KILLS, tmp_path, Path(__file__).parent],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    left, midway = map(int, done.stdout.split())
    assert left > 15  # most kills leave a draft, which the next writer removes
    assert midway >= 1  # one was between the two renames


LIVING = """
import sys, time
from pathlib import Path
from scrollmt._io import atomic

with atomic.replacing(Path(sys.argv[1])) as draft:
    draft.write_text("slow")
    print("begun", flush=True)
    sys.stdin.readline()
"""


def test_the_draft_of_a_living_writer_is_left_to_it(tmp_path: Path) -> None:
    target = tmp_path / "file.txt"
    command = [sys.executable, "-c", LIVING, str(target)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as living:
        assert living.stdout is not None
        assert living.stdout.readline() == "begun\n"
        (draft,) = (name for name in names(tmp_path))
        write_file(target, "quick")
        assert names(tmp_path) == [draft, "file.txt"]
        assert target.read_text() == "quick"
        living.communicate("go\n")
    assert living.returncode == 0
    assert target.read_text() == "slow"
    assert names(tmp_path) == ["file.txt"]


def test_drafts_of_other_targets_are_not_touched(tmp_path: Path) -> None:
    mark = "0123456789abcdef"
    others = [f".file.txt-{mark}-{mark}.draft", f".filextxt-{mark}.draft", ".file.txt-12.draft"]
    for name in others:
        (tmp_path / name).mkdir()
    stale = tmp_path / f".file.txt-{mark}.draft"
    stale.mkdir()
    write_file(tmp_path / "file.txt", "new")
    assert names(tmp_path) == sorted([*others, "file.txt"])


def test_a_lock_is_held_by_one(tmp_path: Path) -> None:
    with Lock(tmp_path / "lock"):
        with pytest.raises(BlockingIOError, match="somebody else"):
            Lock(tmp_path / "lock")
        assert names(tmp_path) == ["lock"]
    Lock(tmp_path / "lock").release()
    with pytest.raises(OSError, match="cannot be locked"):
        Lock(tmp_path / "nowhere" / "lock")


# The order of syncs


def test_content_is_synced_before_the_rename_and_the_folder_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Any] = []
    fsync = os.fsync

    def noted_sync(handle: int) -> None:
        events.append(os.fstat(handle).st_ino)
        fsync(handle)

    def noted(method: str) -> Any:
        original = getattr(Path, method)

        def call(path: Path, to: Path) -> Path:
            events.append(method)
            return original(path, to)

        return call

    monkeypatch.setattr(os, "fsync", noted_sync)
    for method in ("rename", "replace"):
        monkeypatch.setattr(Path, method, noted(method))
    write_file(tmp_path / "file", "text")
    parent = tmp_path.stat().st_ino
    assert events == [(tmp_path / "file").stat().st_ino, "replace", parent]
    write_folder(tmp_path / "folder", "old")
    events.clear()
    write_folder(tmp_path / "folder", "new")
    folder = tmp_path / "folder"
    files = {(folder / name).stat().st_ino for name in ("a", "b")}
    assert set(events[:2]) == files
    assert events[2:] == [folder.stat().st_ino, "rename", "rename", parent]


def test_folders_that_are_made_on_the_way_are_synced_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    fsync = os.fsync

    def noted(handle: int) -> None:
        synced.append(os.fstat(handle).st_ino)
        fsync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    atomic.make_folder(tmp_path / "a" / "b")
    assert synced == [tmp_path.stat().st_ino, (tmp_path / "a").stat().st_ino]


# What is not written to


def test_links_are_refused_and_what_they_point_to_is_kept(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "folder").mkdir()
    for to in ("precious", "folder", "nowhere"):
        link = tmp_path / f"link-to-{to}"
        link.symlink_to(to)
        for write in (write_file, write_folder, lambda path, _: atomic.check(path)):
            with pytest.raises(FileExistsError, match=rf"link-to-{to} is a link to {to}.* remove"):
                write(link, "new")
    assert (tmp_path / "precious").read_text() == "mine"
    assert len(names(tmp_path)) == 5


def test_what_is_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(tmp_path / "socket"))
        for name in ("pipe", "socket"):
            with pytest.raises(FileExistsError, match=f"{name} exists and is not a regular file"):
                atomic.check(tmp_path / name)
    with pytest.raises(FileExistsError, match="is a folder"):
        atomic.check(tmp_path / "folder")
    with pytest.raises(FileExistsError, match="is not a folder"):
        atomic.check(tmp_path / "file", folder=True)
    with pytest.raises(NotADirectoryError, match=r"file is not a folder"):
        atomic.check(tmp_path / "file" / "deep" / "file")
    with pytest.raises(ValueError, match="ends in no name"):
        atomic.check(Path())


# Found out before any work


def test_a_target_that_can_be_written_is_left_as_it_is(tmp_path: Path) -> None:
    atomic.check(tmp_path / "a" / "b" / "file")
    atomic.check(tmp_path / "folder", folder=True)
    assert names(tmp_path) == []
    write_file(tmp_path / "file", "old")
    atomic.check(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "old"


def test_a_place_where_nothing_can_be_written_is_told(tmp_path: Path) -> None:
    here = tmp_path / "here"
    write_folder(here / "model", "old")
    with read_only(here):
        for target in (here / "file", here / "new" / "deep" / "file"):
            with pytest.raises(OSError, match=rf"^{target} cannot be written: {here}: [^\n]+$"):
                atomic.check(target)
        with pytest.raises(OSError, match="model cannot be"):
            atomic.check(here / "model", folder=True)
    with small_disk(tmp_path / "disk", 4) as disk:
        (disk / "filler").write_bytes(bytes(4096))
        with pytest.raises(OSError, match=r"cannot be written: .*no space"):
            atomic.check(disk / "file")
        assert names(disk) == ["filler"]
