"""Records as files to commit: packed CSV in a fixed order, with checksums over it.

    runs.csv.xz     one line a run: who, with what setting, and every number
    arrays.csv.xz   one line an array, its values apart by spaces; only where there are any
    manifest.json   column types, the calls that computed the records, and for every job what
                    determined it and where it ran
    SHA256SUMS      the digests of the others, readable by `sha256sum -c`

Equal records give equal bytes (with the same liblzma). A float keeps six significant digits,
two more than any table prints; an integer keeps all of its own. Text that a spreadsheet would take
for a formula has an apostrophe before it, which `load` takes off.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import lzma
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from scrollmt._io import atomic
from scrollmt._io.reading import read_bounded
from scrollmt._io.text import neutral, neutral_table, original
from scrollmt.paper.arena.runs import LEADING, TRAILING

FORMAT = 4
RUNS, ARRAYS, MANIFEST, SUMS = "runs.csv.xz", "arrays.csv.xz", "manifest.json", "SHA256SUMS"
FILES = (RUNS, ARRAYS, MANIFEST, SUMS)
# Six times what all studies of the paper take, and some gigabytes once it is read. A packed file of
# a few kilobytes can hold far more.
UNPACKED_LIMIT = 128 * 2**20
PACKED_LIMIT, SUMS_LIMIT = UNPACKED_LIMIT, 4096
UNPACKING_MEMORY = 256 * 2**20
READ: dict[str, Callable[[str], Any]] = {
    "int": int,
    "float": lambda cell: float(cell or "nan"),
    "str": lambda cell: original(cell) or float("nan"),
}


class DamagedRecords(ValueError):
    """Records that cannot be trusted: the message says which file, what is wrong, what to do."""


class ArrayKey(NamedTuple):
    """Whose array, and which."""

    corpus: str
    arm: str
    backbone: str
    seed: int
    name: str


ARRAY_COLUMNS = [*ArrayKey._fields, "values"]
Arrays = Mapping[ArrayKey, np.ndarray]


def write(
    folder: str | os.PathLike[str],
    frame: pd.DataFrame,
    arrays: Arrays,
    jobs: list[dict[str, Any]],
    calls: list[dict[str, Any]],
) -> None:
    """Write a frame and its arrays to a folder, with the provenance of its jobs and the calls
    that computed them as JSON values."""
    contents = {RUNS: _table(frame.columns, neutral_table(frame).itertuples(index=False))}
    if arrays:
        lines = (
            (
                *(neutral(part) if isinstance(part, str) else part for part in key),
                " ".join(_cell(v) or "nan" for v in arrays[key].tolist()),
            )
            for key in sorted(arrays)
        )
        contents[ARRAYS] = _table(ARRAY_COLUMNS, lines)
    kinds = {name: _kind(frame[name]) for name in frame.columns}
    contents[MANIFEST] = _manifest(kinds, jobs, calls).encode()
    sums = "".join(f"{_digest(contents[n])}  {n}\n" for n in sorted(contents))

    folder = Path(folder)
    for name in FILES:
        atomic.check(folder / name)
    # The old sums go first and the new ones come last: what an interrupted call leaves behind
    # has none, and `load` refuses it.
    (folder / SUMS).unlink(missing_ok=True)
    (folder / ARRAYS).unlink(missing_ok=True)
    for name, content in {**contents, SUMS: sums.encode()}.items():
        with atomic.replacing(folder / name) as draft:
            draft.write_bytes(content)


def _manifest(
    kinds: dict[str, str], jobs: list[dict[str, Any]], calls: list[dict[str, Any]]
) -> str:
    # Many jobs share what determined them and where they ran; both are written once.
    shared: dict[str, list[str]] = {"determinants": [], "environment": []}
    each = []
    for job in jobs:
        told = dict(job)
        for name, known in shared.items():
            text = json.dumps(job[name], sort_keys=True)
            if text not in known:
                known.append(text)
            told[name] = known.index(text)
        each.append(json.dumps(told, sort_keys=True))
    # One line per job, so that a difference between two versions reads well.
    parts = {
        **shared,
        "calls": [json.dumps(call, sort_keys=True) for call in calls],
        "jobs": each,
    }
    listed = ",\n".join(f'"{name}": [\n' + ",\n".join(v) + "\n]" for name, v in parts.items())
    return f'{{"format": {FORMAT},\n"columns": {json.dumps(kinds)},\n{listed}}}\n'


def load(folder: str | os.PathLike[str]) -> pd.DataFrame:
    """The frame that was written to a folder, its floats at six significant digits."""
    with _reading(folder) as contents:
        kinds = json.loads(contents[MANIFEST])["columns"]
        if lacking := [name for name in (*LEADING, *TRAILING) if name not in kinds]:
            raise ValueError(f"{MANIFEST} lists no column {lacking[0]!r}")
        columns: dict[str, list[Any]] = {name: [] for name in kinds}
        reads = [(cells, READ[kinds[name]]) for name, cells in columns.items()]
        for line in _lines(contents[RUNS], [*kinds]):
            for (cells, read), cell in zip(reads, line, strict=True):
                cells.append(read(cell))
        return pd.DataFrame(columns)


def load_arrays(folder: str | os.PathLike[str]) -> dict[ArrayKey, np.ndarray]:
    """The arrays that were written to a folder, by whose they are and their name."""
    with _reading(folder) as contents:
        if ARRAYS not in contents:
            return {}
        return {
            _key(line): np.array(line[-1].split(), float)
            for line in _lines(contents[ARRAYS], ARRAY_COLUMNS)
        }


def _key(line: list[str]) -> ArrayKey:
    corpus, arm, backbone, seed, name, _ = map(original, line)
    return ArrayKey(corpus, arm, backbone, int(seed), name)


def load_jobs(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """For every job in a folder: what determined its result, and where it ran."""
    with _reading(folder) as contents:
        manifest = json.loads(contents[MANIFEST])
        shared = ("determinants", "environment")
        return [
            job | {name: manifest[name][job[name]] for name in shared} for job in manifest["jobs"]
        ]


def load_calls(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The calls of the arena that computed a folder's records."""
    with _reading(folder) as contents:
        calls: list[dict[str, Any]] = json.loads(contents[MANIFEST])["calls"]
        return calls


@contextmanager
def _reading(folder: str | os.PathLike[str]) -> Iterator[dict[str, bytes]]:
    """The bytes of every file by name, all as they were written; what a stranger may have
    written in them is told in one sentence if it makes no sense."""
    folder = Path(folder)
    try:
        yield _read(folder)
    except DamagedRecords:
        raise
    except Exception as error:
        raise DamagedRecords(
            f"{folder} holds no complete export of records: {type(error).__name__}: "
            f"{' '.join(str(error).split()):.200}; restore the folder, or export the records again"
        ) from error


def _read(folder: Path) -> dict[str, bytes]:
    lines = read_bounded(folder / SUMS, SUMS_LIMIT, inside=True).decode("ascii").splitlines()
    sums = {name: digest for digest, name in (line.split("  ") for line in lines)}
    if unknown := sorted({*sums} - {*FILES} | {*sums} & {SUMS}):
        raise ValueError(f"{SUMS} lists {unknown[0]!r:.60}, which is no file of an export")
    contents = {name: read_bounded(folder / name, PACKED_LIMIT, inside=True) for name in sums}
    wrong = sorted(name for name in sums if _digest(contents[name]) != sums[name])
    missing = sorted({RUNS, MANIFEST} - set(sums))
    if wrong or missing:
        raise DamagedRecords(
            f"{folder}: {', '.join(wrong or missing)} "
            f"{'differs from' if wrong else 'is not listed in'} {SUMS}; "
            "restore the folder, or export the records again"
        )
    found = json.loads(contents[MANIFEST])["format"]
    if found != FORMAT:
        raise DamagedRecords(
            f"{folder} has format {found!r:.60}, but this version reads {FORMAT}; "
            "install the version of scrollmt that wrote it, or export the records again"
        )
    return contents


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _table(header: Iterable[str], lines: Iterable[Iterable[Any]]) -> bytes:
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(neutral, header))
    writer.writerows([_cell(value) for value in line] for line in lines)
    text = out.getvalue().encode()
    if len(text) > UNPACKED_LIMIT:
        raise ValueError(
            f"an export of {len(text):,} bytes would not be read again, of which at most "
            f"{UNPACKED_LIMIT:,} are; export fewer jobs, or fewer of their arrays"
        )
    return lzma.compress(text, preset=9)


def _lines(content: bytes, header: list[str]) -> Iterator[list[str]]:
    """What `_table` wrote below this header, line by line."""
    text = io.StringIO(_unpacked(content).decode(), newline="")
    usual = csv.field_size_limit(UNPACKED_LIMIT)  # an array is one long cell
    try:
        reader = csv.reader(text)
        if next(reader, None) != [*map(neutral, header)]:
            raise ValueError(f"a table does not have the columns {', '.join(header):.200}")
        for number, line in enumerate(reader, 2):
            if len(line) != len(header):
                raise ValueError(f"line {number} has {len(line)} cells instead of {len(header)}")
            yield line
    finally:
        csv.field_size_limit(usual)


def _unpacked(content: bytes) -> bytes:
    """At most so many bytes as an export may have, however many the packed ones claim to be."""
    unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=UNPACKING_MEMORY)
    text = unpacker.decompress(content, max_length=UNPACKED_LIMIT + 1)
    if len(text) > UNPACKED_LIMIT:
        raise ValueError(f"a table has more than the {UNPACKED_LIMIT:,} bytes that are unpacked")
    if not unpacker.eof or unpacker.unused_data:
        raise ValueError("a packed table does not end where its file ends")
    return text


def _cell(value: Any) -> str:
    """A value as text, empty where there is none; a float that counts something stays whole."""
    if not isinstance(value, float):
        return str(value)
    if value != value:
        return ""
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else f"{value:.6g}"


def _kind(column: pd.Series) -> str:
    return {"i": "int", "f": "float"}.get(column.dtype.kind, "str")
