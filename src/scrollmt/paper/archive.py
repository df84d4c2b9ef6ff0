"""Records as files to commit: packed CSV in a fixed order, with checksums that vouch for it.

    runs.csv.xz     one line a run: who, with what setting, and every number
    arrays.csv.xz   one line an array, its values apart by spaces; only where there are any
    manifest.json   column types, the calls that computed the records, and for every job what
                    determined it and where it ran
    SHA256SUMS      the digests of the others, readable by `sha256sum -c`

Equal records give equal bytes (with the same liblzma). A float keeps six significant digits,
two more than any table prints; an integer keeps all of its own.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import lzma
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from scrollmt._io import atomic

FORMAT = 4
RUNS, ARRAYS, MANIFEST, SUMS = "runs.csv.xz", "arrays.csv.xz", "manifest.json", "SHA256SUMS"
FILES = (RUNS, ARRAYS, MANIFEST, SUMS)
READ: dict[str, Callable[[str], Any]] = {
    "int": int,
    "float": lambda cell: float(cell or "nan"),
    "str": lambda cell: cell or float("nan"),
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


Arrays = Mapping[ArrayKey, np.ndarray]


def write(
    folder: str | os.PathLike,
    frame: pd.DataFrame,
    arrays: Arrays,
    jobs: list[dict[str, Any]],
    calls: list[dict[str, Any]],
) -> None:
    """Write a frame and its arrays to a folder, with the provenance of its jobs and the calls
    that computed them as JSON values."""
    contents = {RUNS: _table(frame.columns, frame.itertuples(index=False))}
    if arrays:
        lines = (
            (*key, " ".join(_cell(v) or "nan" for v in arrays[key].tolist()))
            for key in sorted(arrays)
        )
        contents[ARRAYS] = _table([*ArrayKey._fields, "values"], lines)
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
    # One line a job, so that a difference between two versions reads well.
    parts = {
        **shared,
        "calls": [json.dumps(call, sort_keys=True) for call in calls],
        "jobs": each,
    }
    listed = ",\n".join(f'"{name}": [\n' + ",\n".join(v) + "\n]" for name, v in parts.items())
    return f'{{"format": {FORMAT},\n"columns": {json.dumps(kinds)},\n{listed}}}\n'


def load(folder: str | os.PathLike) -> pd.DataFrame:
    """The frame that was written to a folder, its floats at six significant digits."""
    contents = _read(folder)
    kinds = json.loads(contents[MANIFEST])["columns"]
    columns = zip(kinds.items(), zip(*_lines(contents[RUNS]), strict=True), strict=True)
    return pd.DataFrame({name: [READ[kind](c) for c in cells] for (name, kind), cells in columns})


def load_arrays(folder: str | os.PathLike) -> dict[ArrayKey, np.ndarray]:
    """The arrays that were written to a folder, by whose they are and their name."""
    contents = _read(folder)
    return {
        ArrayKey(corpus, arm, backbone, int(seed), name): np.array(values.split(), float)
        for corpus, arm, backbone, seed, name, values in _lines(contents.get(ARRAYS))
    }


def load_jobs(folder: str | os.PathLike) -> list[dict[str, Any]]:
    """For every job in a folder: what determined its result, and where it ran."""
    manifest = json.loads(_read(folder)[MANIFEST])
    shared = ("determinants", "environment")
    return [job | {name: manifest[name][job[name]] for name in shared} for job in manifest["jobs"]]


def load_calls(folder: str | os.PathLike) -> list[dict[str, Any]]:
    """The calls of the arena that computed a folder's records."""
    return json.loads(_read(folder)[MANIFEST])["calls"]


def _read(folder: str | os.PathLike) -> dict[str, bytes]:
    """The bytes of every file by name, all of them as they were written."""
    folder = Path(folder)
    try:
        lines = (folder / SUMS).read_text(encoding="ascii").splitlines()
        sums = {name: digest for digest, name in (line.split("  ") for line in lines)}
        contents = {name: (folder / name).read_bytes() for name in sums}
    except (OSError, ValueError) as error:
        raise DamagedRecords(
            f"{folder} holds no complete export of records: {error}; "
            "restore the folder, or export the records again"
        ) from error
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
            f"{folder} has format {found!r}, but this version reads {FORMAT}; "
            "install the version of scrollmt that wrote it, or export the records again"
        )
    return contents


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _table(header: Iterable[str], lines: Iterable[Iterable[Any]]) -> bytes:
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([_cell(value) for value in line] for line in lines)
    return lzma.compress(out.getvalue().encode(), preset=9)


def _lines(content: bytes | None) -> list[list[str]]:
    """What `_table` wrote, without the header; nothing where it wrote nothing."""
    if content is None:
        return []
    return list(csv.reader(io.StringIO(lzma.decompress(content).decode(), newline="")))[1:]


def _cell(value: Any) -> str:
    """A value as text, empty where there is none; a float that counts something stays whole."""
    if not isinstance(value, float):
        return str(value)
    if value != value:
        return ""
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else f"{value:.6g}"


def _kind(column: pd.Series) -> str:
    return {"i": "int", "f": "float"}.get(column.dtype.kind, "str")
