"""Records come back to the last bit, survive a kill at any moment, and report damage."""

import hashlib
import json
import lzma
import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from media import grow, read_only, small_disk
from scrollmt.paper.arena import archive
from scrollmt.paper.arena.archive import ArrayKey, DamagedRecords, load, load_arrays, load_jobs
from scrollmt.paper.arena.jobs import Job, Outcome
from scrollmt.paper.arena.records import Records
from scrollmt.paper.arena.runs import checksum
from scrollmt.paper.arena.sweep import compute
from sweeps import SEEDS, execute, sweep

JOB = Job("ou", "scroll-diag", "tanh", SEEDS, '{"steps": 100}')


def outcome(job: Job = JOB, **columns: Any) -> Outcome:
    rows = {seed: [{"setting": "{}", "nll": 1.0 + seed, **columns}] for seed in job.seeds}
    return Outcome(rows, 6.0, {"device": "abacus", "jax": "1"}, {"var": [1.0, 2.0]})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "records.sqlite"


@pytest.fixture
def filled(tmp_path: Path, path: Path) -> Path:
    with Records(path) as records:
        for job in sweep(tmp_path / "diary", 4):
            records.put(job, execute(job))
    return path


def test_a_job_comes_back_as_it_was_put(path: Path) -> None:
    value = np.float32(0.1)
    odd: dict[str, Any] = {"nan": float("nan"), "inf": float("inf"), "low": -np.inf, "third": 1 / 3}
    with Records(path) as records:
        assert records.missing(JOB) == JOB
        records.put(JOB, outcome(**odd, f32=value, steps=np.int64(7), flag=True, end="patience"))
        assert records.missing(JOB) is None
    with Records(path) as records:
        frame = records.frame()
        assert len(records) == len(frame) == 3
        np.testing.assert_array_equal(records.array(JOB, "var"), [1.0, 2.0])
        with pytest.raises(KeyError, match="'psi'"):
            records.array(JOB, "psi")
    assert frame.columns[:5].to_list() == ["corpus", "arm", "backbone", "seed", "setting"]
    assert frame.columns[-2:].to_list() == ["seconds", "device"]
    assert frame["seed"].to_list() == [0, 1, 2]
    assert frame["nll"].to_list() == [1.0, 2.0, 3.0]
    assert frame["seconds"].to_list() == [2.0] * 3  # the share of a seed
    first = frame.iloc[0]
    assert np.isnan(first["nan"])
    assert (first["inf"], first["low"]) == (float("inf"), float("-inf"))
    assert (first["third"], first["f32"]) == (1 / 3, float(value))
    assert (first["steps"], first["flag"]) == (7, 1)
    assert (first["end"], first["device"]) == ("patience", "abacus")
    assert sorted(p.name for p in path.parent.iterdir()) == [path.name, f"{path.name}.lock"]


def test_only_what_determines_a_run_decides_whether_it_is_missing(path: Path) -> None:
    with Records(path) as records:
        some = Job(JOB.corpus, JOB.arm, JOB.backbone, (1,), JOB.determinants)
        records.put(some, outcome(some))
        missing = records.missing(JOB)
        assert missing is not None
        assert missing.seeds == (0, 2)
        other = Job(JOB.corpus, JOB.arm, JOB.backbone, (1,), '{"steps": 101}')
        assert records.missing(other) == other
        records.put(other, outcome(other))
        # Old and new results of one arm are never averaged by oversight.
        with pytest.raises(ValueError, match="under two sets of determinants"):
            records.frame()
        assert len(records.frame([other])) == len(records.frame([JOB])) == 1


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (Outcome({0: [{"setting": "{}"}]}, 1.0, {}), r"seeds \[0, 1, 2\].*rows for \[0\]"),
        (Outcome({s: [] for s in SEEDS}, 1.0, {}), "there is no row"),
        (outcome(arm=1.0), "every record has a column 'arm'"),
        (outcome(nll=None), "'nll' is None"),
        (outcome(nll=np.zeros(2)), "'nll' is array"),
        (outcome(setting={}), "setting is JSON text"),
    ],
)
def test_what_is_not_whole_is_not_recorded(path: Path, bad: Outcome, words: str) -> None:
    with Records(path) as records:
        with pytest.raises(ValueError, match=words):
            records.put(JOB, bad)
        assert len(records) == 0
        records.put(JOB, outcome())
        with pytest.raises(ValueError, match=r"seeds \[0, 1, 2\] are recorded already"):
            records.put(JOB, outcome())


# Full disks


LIMITED = """
import resource, sys
from scrollmt.paper.arena.records import Records

resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
try:
    Records(sys.argv[1])
except ValueError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("largest", [0, 5_000, 20_000])
def test_a_file_that_could_not_be_made_does_not_stand_in_the_way(path: Path, largest: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, path, str(largest)], capture_output=True, text=True
    )
    assert done.stdout.startswith(f"{path} cannot be written to ("), done.stderr
    assert [one.name for one in path.parent.iterdir()] == [f"{path.name}.lock"]
    with Records(path) as records:
        records.put(JOB, outcome())
        assert len(records) == 3


def test_a_disk_that_was_full_at_the_beginning_is_used_once_it_has_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 16) as disk:
        for _ in range(2):
            with pytest.raises(ValueError, match=r"cannot be written to \(.*full\): .*room"):
                Records(disk / "records.sqlite")
        grow(disk, 1000)
        with Records(disk / "records.sqlite") as records:
            records.put(JOB, outcome())


def test_a_disk_that_fills_up_loses_no_job_that_was_recorded(tmp_path: Path) -> None:
    jobs = [Job("ou", f"arm{i}", "tanh", SEEDS, "{}") for i in range(200)]
    with small_disk(tmp_path / "disk", 160) as disk:
        with Records(disk / "records.sqlite") as records:
            done = 0

            def fill() -> None:
                nonlocal done
                for job in jobs:
                    records.put(job, outcome(job))
                    done += 1

            with pytest.raises(ValueError, match=r"cannot be written to \(.*full\)"):
                fill()
            assert 5 < done < 200
            # The last one is there whole, or not at all.
            assert done <= len(records) / len(SEEDS) <= done + 1
        grow(disk, 2000)
        with Records(disk / "records.sqlite") as records:
            for job in jobs:
                if records.missing(job):
                    records.put(job, outcome(job))
            assert len(records.frame()) == 600


# Media that are only for reading


def test_records_on_a_read_only_medium_are_read(filled: Path, tmp_path: Path) -> None:
    jobs = sweep(tmp_path / "diary", 4)
    truth = contents(filled, jobs)
    with read_only(filled.parent):
        assert_same(contents(filled, jobs), truth)
        with Records(filled) as records:
            records.export(tmp_path / "export")
            assert compute(jobs, records, progress=False).computed == 0
            with pytest.raises(ValueError, match=rf"^{filled} cannot be written to \([^\n]*$"):
                records.put(JOB, outcome())
            assert len(records) == 12
    assert len(load(tmp_path / "export")) == 24


def test_a_new_file_on_a_read_only_medium_is_refused(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    with (
        read_only(tmp_path / "here"),
        pytest.raises((ValueError, OSError), match=r"records\.sqlite"),
    ):
        Records(tmp_path / "here" / "records.sqlite")


# The seal


def test_recording_a_job_costs_the_same_however_many_there_are(path: Path) -> None:
    """Counted in steps of SQLite's machine, of which reading one more line takes several."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    taken = []
    with Records(path) as records:
        records._connection.set_progress_handler(count, 1)
        for i in range(120):
            job = Job("ou", f"arm{i}", "tanh", SEEDS, "{}")
            steps = 0
            records.put(job, outcome(job))
            taken.append(steps)
    assert taken[0] > 50  # the handler counts
    assert max(taken[1:]) <= taken[0] + 5


def as_version_2(path: Path) -> None:
    """The file as it was written before seals were sums."""
    with closing(sqlite3.connect(path)) as connection, connection:
        tables = ("runs", "arrays", "calls")
        each = " UNION ALL ".join(f"SELECT checksum FROM {t}" for t in tables)
        found = connection.execute(f"{each} ORDER BY checksum").fetchall()
        seal = hashlib.sha256("".join(one for (one,) in found).encode()).hexdigest()
        connection.execute("UPDATE seal SET digest = ?", [seal])
        connection.execute("PRAGMA user_version = 2")


def test_files_of_the_older_version_are_read_and_renewed_when_written(
    filled: Path, tmp_path: Path
) -> None:
    truth = contents(filled, sweep(tmp_path / "diary", 4))
    as_version_2(filled)
    before = filled.read_bytes()
    assert_same(contents(filled, sweep(tmp_path / "diary", 4)), truth)
    assert filled.read_bytes() == before
    with Records(filled) as records:
        records.put(JOB, outcome())
        assert records._connection.execute("PRAGMA user_version").fetchone() == (3,)
    with Records(filled) as records:
        assert len(records) == 15


def test_a_line_missing_from_a_file_of_the_older_version_is_noticed(filled: Path) -> None:
    as_version_2(filled)
    with closing(sqlite3.connect(filled)) as connection, connection:
        connection.execute("DELETE FROM arrays WHERE rowid = 2")
    assert_refused(filled, "something else than was recorded")


def test_one_database_absorbs_what_another_has_and_it_lacks(tmp_path: Path) -> None:
    first, second = (Job("ou", "scroll-diag", b, SEEDS, "{}") for b in ("relu", "tanh"))
    paths = [tmp_path / name for name in ("a.sqlite", "b.sqlite")]
    with Records(paths[0]) as ours, Records(paths[1]) as theirs:
        ours.put(first, outcome(first))
        theirs.put(first, outcome(first, nll=-1.0))
        theirs.put(second, outcome(second))
        assert ours.absorb(theirs) == len(SEEDS)
        assert ours.absorb(theirs) == 0
    with Records(paths[0]) as ours:
        frame = ours.frame()
        np.testing.assert_array_equal(ours.array(second, "var"), [1.0, 2.0])
    assert sorted(frame["backbone"].unique()) == ["relu", "tanh"]
    assert (frame["nll"] >= 1.0).all()  # what was here already stays


def test_many_read_and_one_writes(path: Path) -> None:
    with Records(path) as writer, Records(path, timeout=0.05) as other, writer.writing():
        writer.put(JOB, outcome())
        assert len(other.frame()) == 3
        with Records(path) as late:
            assert len(late.frame()) == 3
        with pytest.raises(ValueError, match="is being written by another process"):
            other.put(JOB, outcome())
    with Records(path) as other:
        other.put(Job("ou", "other", "tanh", (0,)), outcome(Job("ou", "other", "tanh", (0,))))


def test_a_file_that_cannot_be_written_to_is_found_out_before_anything_is_computed(
    filled: Path,
) -> None:
    content = bytearray(filled.read_bytes())
    content[18] = 7  # the lowest version of SQLite that may write this file, in its header
    filled.write_bytes(content)
    with Records(filled) as records:
        assert len(records) == 12
        with pytest.raises(ValueError, match="cannot be written to"), records.writing():
            pytest.fail("unreachable")
    assert filled.read_bytes() == content


KILLS = """
import os, random, signal, sys, time
sys.path.insert(0, sys.argv[2])
from sweeps import execute, sweep
from scrollmt.paper.arena.records import Records
from pathlib import Path

path, rng = Path(sys.argv[1]), random.Random(0)
jobs = [(job, execute(job)) for job in sweep(path.parent / "diary", 400)]
survived = 0
for _ in range(15):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        with Records(path) as records:
            for job, outcome in jobs:
                if records.missing(job):
                    records.put(job, outcome)
                    os.write(write, b".")
        os._exit(0)
    os.close(write)
    acknowledged = len(os.read(read, 1))  # it has begun
    time.sleep(rng.uniform(0, 0.03))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while more := os.read(read, 65536):
        acknowledged += len(more)
    os.close(read)
    with Records(path) as records:
        frame = records.frame()
        each = frame.groupby("arm")["seed"].agg(lambda seeds: sorted(set(seeds)))
        assert all(seeds == [0, 1, 2] for seeds in each), each
        assert len(frame) == 2 * len(records) == 6 * len(each)
        # What was acknowledged is there; one more may be, killed before it could say so.
        assert 0 <= len(each) - survived - acknowledged <= 1, (len(each), survived, acknowledged)
        survived = len(each)
print(survived)
"""


@pytest.mark.slow
def test_killed_at_any_moment_a_job_is_there_whole_or_not_at_all(path: Path) -> None:
    path.parent.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", KILLS, path, Path(__file__).parent],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert 15 <= int(done.stdout) < 400


def contents(path: Path, jobs: list[Job]) -> tuple[pd.DataFrame, list[np.ndarray]]:
    with Records(path) as records:
        return records.frame(), [records.array(job, "var") for job in jobs]


def complaint(read: Callable[[], Any]) -> str:
    """What is said of damage, or nothing if there is none."""
    try:
        read()
    except DamagedRecords as error:
        return str(error)
    return ""


def assert_same(one: Any, other: Any) -> None:
    pd.testing.assert_frame_equal(one[0], other[0], check_exact=True)
    for a, b in zip(one[1], other[1], strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_a_flipped_byte_is_reported_or_does_no_harm(filled: Path, tmp_path: Path) -> None:
    jobs = sweep(tmp_path / "diary", 4)
    original = filled.read_bytes()
    truth = contents(filled, jobs)
    rng = random.Random(0)
    used = [place for place, byte in enumerate(original) if byte and place >= 100]
    places = {
        "header": [*range(100)],  # where one byte says how to read all others
        "anywhere": [rng.randrange(len(original)) for _ in range(100)],
        "used": rng.sample(used, 100),
    }
    reported = dict.fromkeys(places, 0)
    for where, place in [(w, place) for w, some in places.items() for place in some]:
        damaged = bytearray(original)
        damaged[place] ^= rng.choice([1, 2, 0x20, 0x80, rng.randrange(1, 256)])
        filled.write_bytes(damaged)
        said = complaint(lambda: assert_same(contents(filled, jobs), truth))
        assert not said or str(filled) in said
        reported[where] += bool(said)
        assert filled.read_bytes() == damaged, place
    assert reported["used"] > 90, reported
    assert 10 < reported["anywhere"] < 100, reported


def transplanted(original: bytes, before: bytes) -> list[bytes]:
    """Whole pages lost, swapped, or as they were before the last job: damage that has no seam."""
    page = int.from_bytes(original[16:18], "big")
    pages = [original[i : i + page] for i in range(0, len(original), page)]
    out = [original[: len(original) * part // 8] for part in range(8)]
    for i in range(1, len(pages)):
        out.append(b"".join([*pages[:i], bytes(page), *pages[i + 1 :]]))
        swapped = [*pages]
        swapped[i], swapped[-1] = swapped[-1], swapped[i]
        out.append(b"".join(swapped))
    old = [before[i : i + page] for i in range(0, len(before), page)]
    out += [b"".join([*pages[:i], old[i], *pages[i + 1 :]]) for i in range(1, len(old))]
    return [damaged for damaged in out if damaged != original]


def test_lost_and_stale_pages_are_reported(filled: Path, tmp_path: Path) -> None:
    jobs = sweep(tmp_path / "diary", 5)
    before = filled.read_bytes()
    with Records(filled) as records:
        records.put(jobs[4], execute(jobs[4]))
    truth = contents(filled, jobs)
    variants = transplanted(filled.read_bytes(), before)
    reported = 0
    for damaged in variants:
        filled.write_bytes(damaged)
        reported += bool(complaint(lambda: assert_same(contents(filled, jobs), truth)))
        assert filled.read_bytes() == damaged
    assert reported > 0.9 * len(variants)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("DELETE FROM runs WHERE seed = 1", "something else than was recorded"),
        ("DELETE FROM arrays", "something else than was recorded"),
        ("DELETE FROM seal", "something else than was recorded"),
        ("UPDATE runs SET seconds = 0 WHERE seed = 1", "the checksum of ou arm0 tanh 1 in runs"),
        ("UPDATE runs SET rows = replace(rows, 'nll', 'nlp')", "the checksum of ou arm0"),
        ("UPDATE arrays SET data = zeroblob(8)", "the checksum of var in arrays"),
        ("CREATE TABLE mine (x)", "its tables are not those of records"),
        ("PRAGMA application_id = 1", "holds no records of scrollmt"),
        ("PRAGMA user_version = 4", "its schema version is 4, but this scrollmt reads 2 and 3"),
        (
            f"INSERT INTO calls VALUES ('x', '{checksum(('x',))}')",
            "something else than was recorded",
        ),
    ],
)
def test_what_another_hand_changed_is_refused(filled: Path, statement: str, words: str) -> None:
    with sqlite3.connect(filled) as connection:
        connection.execute(statement)
    connection.close()
    assert_refused(filled, words)


def assert_refused(path: Path, words: str) -> None:
    before = path.read_bytes()
    with pytest.raises(DamagedRecords, match=words) as caught:
        Records(path)
    for part in (str(path), "left as it is", "Restore it", "move it aside"):
        assert part in str(caught.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"seed,nll\n0,1.5\n" * 100, b"SQLite format 3\0"])
def test_a_file_of_another_kind_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "records.sqlite"
    path.write_bytes(content)
    assert_refused(path, "not a database|holds no records|malformed")
    with pytest.raises(DamagedRecords, match="it is not a file"):
        Records(tmp_path)


def test_a_log_without_its_file_is_not_taken_for_a_new_beginning(filled: Path) -> None:
    log = filled.with_name(filled.name + "-wal")
    filled.rename(filled.with_name("aside"))
    log.write_bytes(b"what the last job left")
    with pytest.raises(DamagedRecords, match="its log is there, but the file itself is not"):
        Records(filled)
    assert not filled.exists()
    assert log.read_bytes() == b"what the last job left"


def test_an_export_is_small_the_same_whatever_the_order_and_gives_an_equal_frame(
    filled: Path, tmp_path: Path
) -> None:
    jobs = sweep(tmp_path / "diary", 4)
    with Records(filled) as records:
        frame = records.frame()
        records.export(tmp_path / "one")
        var = records.array(jobs[2], "var")
    with Records(tmp_path / "other.sqlite") as records:
        with pytest.raises(ValueError, match="no records of these jobs"):
            records.export(tmp_path / "two")
        for job in reversed(jobs):
            records.put(job, execute(job))
        records.export(tmp_path / "two")
        records.export(tmp_path / "part", jobs[1:3])
        records.export(tmp_path / "bare", arrays=lambda key: False)
    for name in ("runs.csv.xz", "arrays.csv.xz", "manifest.json", "SHA256SUMS"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    pd.testing.assert_frame_equal(load(tmp_path / "one"), frame, rtol=5e-6, atol=0)
    assert load_arrays(tmp_path / "bare") == {}
    arrays = load_arrays(tmp_path / "one")
    assert len(arrays) == 4
    np.testing.assert_allclose(arrays[ArrayKey("ou", "arm2", "tanh", 0, "var")], var, rtol=5e-6)
    assert load(tmp_path / "part")["arm"].unique().tolist() == ["arm1", "arm2"]
    provenance = load_jobs(tmp_path / "part")
    assert [job["arm"] for job in provenance] == ["arm1", "arm2"]
    assert provenance[0]["seeds"] == [0, 1, 2]
    assert provenance[0]["determinants"] == json.loads(jobs[0].determinants)
    assert provenance[0]["environment"] == {"device": "none"}
    text = lzma.decompress((tmp_path / "one" / "runs.csv.xz").read_bytes()).decode()
    assert "-0.333333" not in text
    assert ",0.333333," in text


def test_numbers_of_an_export_keep_six_digits_and_counts_all(tmp_path: Path) -> None:
    values = {
        "tiny": 1.23456789123e-30,
        "count": 123456789,
        "inf": float("-inf"),
        "gap": float("nan"),
    }
    job = Job("ou", "a,b", 'ta"nh', (0, 1))
    result = outcome(job, **values)
    del result.rows[1][0]["count"]
    result.arrays["var"][:] = [float("nan"), 2.0]
    with Records(tmp_path / "records.sqlite") as records:
        records.put(job, result)
        records.export(tmp_path / "export")
    frame = load(tmp_path / "export")
    assert frame["tiny"].to_list() == [1.23457e-30] * 2
    assert frame["count"].iloc[0] == 123456789
    assert np.isnan(frame["count"].iloc[1])
    assert frame["gap"].isna().all()
    assert (frame["inf"] == float("-inf")).all()
    assert frame["backbone"].to_list() == ['ta"nh'] * 2
    (array,) = load_arrays(tmp_path / "export").values()
    np.testing.assert_array_equal(array, [np.nan, 2.0])


def damaged_text(content: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(content))
    return content[:place] + bytes([content[place] ^ rng.randrange(1, 256)]) + content[place + 1 :]


@pytest.mark.parametrize("name", ["runs.csv.xz", "arrays.csv.xz", "manifest.json", "SHA256SUMS"])
def test_a_damaged_export_is_refused(filled: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "export"
    with Records(filled) as records:
        records.export(folder)
    truth = load(folder)
    file, rng = folder / name, random.Random(0)
    original = file.read_bytes()
    reported = 0
    changes: list[Callable[[], bytes]] = [lambda: damaged_text(original, rng)] * 40
    for change in [*changes, lambda: original[:-20], lambda: b""]:
        file.write_bytes(change())
        said = complaint(lambda: pd.testing.assert_frame_equal(load(folder), truth))
        assert not said or str(folder) in said
        reported += bool(said)
    # Only a line break of the sums may turn into another kind of line break.
    assert reported == 42 or (name == "SHA256SUMS" and reported > 38)
    file.unlink()
    with pytest.raises(DamagedRecords, match="no complete export"):
        load(folder)


def test_an_export_of_a_later_format_is_refused(filled: Path, tmp_path: Path) -> None:
    folder = tmp_path / "export"
    with Records(filled) as records:
        records.export(folder)
    manifest, sums = folder / "manifest.json", folder / "SHA256SUMS"
    before = hashlib.sha256(manifest.read_bytes()).hexdigest()
    manifest.write_text(manifest.read_text().replace('"format": 4', '"format": 5'))
    after = hashlib.sha256(manifest.read_bytes()).hexdigest()
    sums.write_text(sums.read_text().replace(before, after))
    with pytest.raises(DamagedRecords, match="has format 5, but this version reads 4"):
        load(folder)


# Exports that a stranger made


@pytest.fixture
def export(filled: Path, tmp_path: Path) -> Path:
    with Records(filled) as records:
        records.export(tmp_path / "export")
    return tmp_path / "export"


def summed(folder: Path, *more: str) -> None:
    """Write sums that fit the files, as a stranger would."""
    names = [p.name for p in folder.iterdir() if p.name != "SHA256SUMS"]
    lines = [f"{hashlib.sha256((folder / n).read_bytes()).hexdigest()}  {n}" for n in names]
    (folder / "SHA256SUMS").write_text("\n".join([*lines, *more]) + "\n")


def refusal(folder: Path) -> str:
    said = complaint(lambda: (load(folder), load_arrays(folder)))
    assert said.startswith(str(folder))
    assert "\n" not in said
    return said


@pytest.mark.slow
@pytest.mark.parametrize("name", ["runs.csv.xz", "arrays.csv.xz"])
def test_a_small_file_that_unpacks_to_gigabytes_is_refused(export: Path, name: str) -> None:
    (export / name).write_bytes(lzma.compress(b"\n" * (129 << 20), preset=0))
    assert (export / name).stat().st_size < 100_000
    summed(export)
    assert "more than the 134,217,728 bytes that are unpacked" in refusal(export)


def test_a_table_that_asks_for_much_memory_to_be_unpacked_is_refused(export: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 30}]
    (export / "runs.csv.xz").write_bytes(lzma.compress(b"\n", filters=filters))
    summed(export)
    assert "emory" in refusal(export)


def test_an_export_that_could_not_be_read_again_is_not_written(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "UNPACKED_LIMIT", 1000)
    with (
        Records(filled) as records,
        pytest.raises(ValueError, match=r"at most 1,000 are; export fewer jobs"),
    ):
        records.export(tmp_path / "export")
    assert not (tmp_path / "export").exists()


@pytest.mark.parametrize("name", ["../outside", "{outside}", "sub/../../outside", "SHA256SUMS"])
def test_names_that_lead_out_of_an_export_are_refused(
    export: Path, tmp_path: Path, name: str
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")
    digest = hashlib.sha256(b"mine").hexdigest()
    summed(export, f"{digest}  {name.format(outside=outside)}")
    assert "which is no file of an export" in refusal(export)


def test_only_regular_files_of_an_export_are_read(export: Path, tmp_path: Path) -> None:
    file, outside = export / "runs.csv.xz", tmp_path / "outside"
    file.rename(outside)
    file.symlink_to(outside)
    assert "is a link to a place outside its folder" in refusal(export)
    file.unlink()
    os.mkfifo(file)
    assert "is not a regular file" in refusal(export)
    (export / "SHA256SUMS").unlink()
    os.mkfifo(export / "SHA256SUMS")
    assert "SHA256SUMS is not a regular file" in refusal(export)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("manifest.json", b"[" * 100_000),
        ("manifest.json", b"{}"),
        ("manifest.json", b'{"format": 4, "columns": 3}'),
        ("manifest.json", b'{"format": 4, "columns": {"a": "float"}}'),
        ("runs.csv.xz", b""),
        ("runs.csv.xz", lzma.compress(b"")),
        ("runs.csv.xz", lzma.compress(b"corpus,arm\n")),
        ("runs.csv.xz", lzma.compress(b"\xff\xfe")),
        ("runs.csv.xz", lzma.compress(b"x") + b"more"),
        ("arrays.csv.xz", lzma.compress(b"corpus,arm,backbone,seed,name,values\na,b\n")),
        ("arrays.csv.xz", lzma.compress(b"corpus,arm,backbone,seed,name,values\na,b,c,d,e,f\n")),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_an_export_that_makes_no_sense_is_told(export: Path, name: str, content: bytes) -> None:
    (export / name).write_bytes(content)
    summed(export)
    refusal(export)


def test_names_that_look_like_formulas_come_back_as_they_were(tmp_path: Path) -> None:
    job = Job("=ou", "-arm", "'+x", (0,))
    with Records(tmp_path / "records.sqlite") as records:
        records.put(job, outcome(job, **{"@nll": -1.5, "end": "=stop"}))
        records.export(tmp_path / "export")
    text = lzma.decompress((tmp_path / "export" / "runs.csv.xz").read_bytes()).decode()
    header, line = text.splitlines()
    assert header.split(",")[6] == "'@nll"
    assert line.startswith("'=ou,'-arm,''+x,0,{},1,-1.5,'=stop,")
    frame = load(tmp_path / "export")
    assert frame.loc[0, ["corpus", "arm", "backbone", "end"]].to_list() == [
        *("=ou", "-arm", "'+x", "=stop")
    ]
    assert frame.loc[0, "@nll"] == -1.5
    assert list(load_arrays(tmp_path / "export")) == [ArrayKey("=ou", "-arm", "'+x", 0, "var")]


def test_long_arrays_are_read_again(tmp_path: Path) -> None:
    result = outcome()
    result.arrays["var"][:] = [1 / 3] * 20_000  # one cell of 180,000 letters
    with Records(tmp_path / "records.sqlite") as records:
        records.put(JOB, result)
        records.export(tmp_path / "export")
    (array,) = load_arrays(tmp_path / "export").values()
    assert array.shape == (20_000,)


def test_an_export_is_not_written_through_links(filled: Path, tmp_path: Path) -> None:
    (tmp_path / "export").mkdir()
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "export" / "runs.csv.xz").symlink_to("../precious")
    (tmp_path / "export" / "SHA256SUMS").write_text("old")
    with Records(filled) as records, pytest.raises(FileExistsError, match="is a link to"):
        records.export(tmp_path / "export")
    assert (tmp_path / "precious").read_text() == "mine"
    assert (tmp_path / "export" / "SHA256SUMS").read_text() == "old"


def test_the_file_is_in_wal_mode_and_every_commit_is_synced(path: Path) -> None:
    with Records(path) as records:
        read = {
            name: records._connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous")
        }
        assert read == {"journal_mode": "wal", "synchronous": 2}
        records.put(JOB, outcome())
        # Nothing waits in the log, whose damage SQLite would take for its end.
        assert os.path.getsize(f"{path}-wal") == 0
