"""A folder of two files that one checksum covers.

    model.safetensors   arrays by name
    model.json          format, schema version, a description, and a SHA-256 over both files

A folder that exists is complete: see `_io.atomic`. JSON has no NaN and no infinity, so neither is
ever written.
"""

from __future__ import annotations

import hashlib
import json
import os
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from scrollmt._io import atomic
from scrollmt._io.reading import open_bounded, read_bounded

SCHEMA_VERSION = 1
FORMAT = "scrollmt model"
TENSORS, DESCRIPTION = "model.safetensors", "model.json"
# More than any model that is saved; a larger file is refused before it is read.
TENSORS_LIMIT, DESCRIPTION_LIMIT = 4 * 2**30, 64 * 2**20

Arrays = dict[str, np.ndarray]


class ModelFolderError(ValueError):
    """A folder that is not a complete, untouched scrollmt model."""


def write_folder(path: str | os.PathLike[str], description: dict[str, Any], arrays: Arrays) -> None:
    """Write a new model folder; an existing path is never overwritten."""
    target = Path(path)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FileExistsError(
            f"{target} exists and is not an empty folder; choose another path or remove it"
        )
    tensors = save_tensors({name: np.asarray(a, order="C") for name, a in arrays.items()})
    head = {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "scrollmt_version": version("scrollmt"),
    }
    content = {**head, **description}
    content["sha256"] = _digest(content, tensors)
    text = json.dumps(content, indent=2, allow_nan=False, default=_plain) + "\n"
    sizes = (TENSORS, len(tensors), TENSORS_LIMIT), (DESCRIPTION, len(text), DESCRIPTION_LIMIT)
    for name, size, limit in sizes:
        if size > limit:
            raise ValueError(f"{name} would have {size:,} bytes, and at most {limit:,} are read")
    with atomic.replacing_folder(target, replace=False) as draft:
        (draft / TENSORS).write_bytes(tensors)
        (draft / DESCRIPTION).write_text(text, encoding="utf-8")


def read_folder(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Arrays]:
    """The description and arrays of a model folder, checked against their digest."""
    folder = Path(path)
    atomic.restore(folder)
    if not folder.is_dir():
        raise ModelFolderError(f"{folder} is not a folder; save a model there first")
    try:
        content = _description(folder / DESCRIPTION)
        tensors = _tensors(folder / TENSORS)
    except (OSError, UnicodeDecodeError) as error:
        raise ModelFolderError(
            f"{folder} is not a scrollmt model: it needs {DESCRIPTION} and {TENSORS} ({error})"
        ) from None
    stated = content.pop("sha256", None)
    try:
        found = _digest(content, tensors)
    except (ValueError, RecursionError) as error:  # 1e999 is read as an infinity
        raise ModelFolderError(f"{folder / DESCRIPTION} is damaged: {error}") from None
    if stated != found:
        raise ModelFolderError(
            f"{folder} was changed or cut short after it was saved: its SHA-256 does not match"
        )
    try:
        return content, load_tensors(tensors)
    except Exception as error:  # a type of numbers that NumPy does not have, for one
        raise ModelFolderError(f"{folder / TENSORS} is damaged: {error!r}") from None


def _description(path: Path) -> dict[str, Any]:
    text = read_bounded(path, DESCRIPTION_LIMIT).decode("utf-8")
    try:
        content = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ModelFolderError(f"{path} is damaged: {error}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ModelFolderError(f"{path} does not describe a scrollmt model")
    if content.get("schema_version") != SCHEMA_VERSION:
        raise ModelFolderError(
            f"{path} has schema version {content.get('schema_version')!r:.60}, this scrollmt reads "
            f"{SCHEMA_VERSION}; use the version that wrote it "
            f"({content.get('scrollmt_version')!r:.60})"
        )
    return content


def _tensors(path: Path) -> bytes:
    """The bytes of the arrays, read once their header agrees with the size of the file."""
    with open_bounded(path, TENSORS_LIMIT) as file:
        try:
            with safe_open(path, "numpy"):
                pass
        except (SafetensorError, ValueError) as error:
            raise ModelFolderError(f"{path} is damaged: {error}") from None
        return file.read(os.fstat(file.fileno()).st_size)


def _digest(content: dict[str, Any], tensors: bytes) -> str:
    canonical = json.dumps(
        content, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_plain
    )
    digest = hashlib.sha256(canonical.encode() + b"\0")
    digest.update(tensors)
    return digest.hexdigest()


def _plain(value: Any) -> Any:
    """NumPy's scalars and arrays as what JSON knows."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} cannot be saved: {value!r:.60}")


def _refuse_constant(token: str) -> NoReturn:
    raise ValueError(f"{token} is not JSON")
