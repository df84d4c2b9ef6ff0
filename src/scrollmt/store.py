"""Models on disk: a folder with safetensors and JSON, never pickle.

    model.safetensors   every array of the model, named by its path in the tree
    model.json          schema version, the structure that holds the arrays, and a SHA-256
                        over both, so that a truncated, edited or foreign folder is refused

Writing goes to a temporary folder beside the target that is renamed at the end: a folder
that exists is complete.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from scrollmt.backbone import Dense
from scrollmt.beliefs import BELIEFS
from scrollmt.heads import AbstractHead, Categorical, Event, Gaussian, Ordinal
from scrollmt.model import Backbone, Model, build

SCHEMA_VERSION = 1
FORMAT = "scrollmt model"
TENSORS, DESCRIPTION = "model.safetensors", "model.json"


class ModelFolderError(ValueError):
    """A folder that is not a complete, untouched scrollmt model."""


def write_folder(
    path: str | os.PathLike, description: dict[str, Any], arrays: dict[str, np.ndarray]
) -> None:
    """Write a new model folder; an existing path is never overwritten."""
    target = Path(path)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FileExistsError(
            f"{target} exists and is not empty; choose another folder or remove it"
        )
    tensors = save_tensors({name: np.ascontiguousarray(a) for name, a in arrays.items()})
    head = {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "scrollmt_version": version("scrollmt"),
    }
    content = {**head, **description}
    content["sha256"] = _digest(content, tensors)
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        (draft / TENSORS).write_bytes(tensors)
        (draft / DESCRIPTION).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        draft.chmod(0o755)
        if target.exists():
            target.rmdir()
        draft.rename(target)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def read_folder(path: str | os.PathLike) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The description and arrays of a model folder, checked against their digest."""
    folder = Path(path)
    if not folder.is_dir():
        raise ModelFolderError(f"{folder} is not a folder; save a model there first")
    try:
        text = (folder / DESCRIPTION).read_text(encoding="utf-8")
        tensors = (folder / TENSORS).read_bytes()
    except (FileNotFoundError, UnicodeDecodeError) as error:
        raise ModelFolderError(
            f"{folder} is not a scrollmt model: it needs {DESCRIPTION} and {TENSORS} ({error})"
        ) from None
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise ModelFolderError(f"{folder / DESCRIPTION} is damaged: {error}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ModelFolderError(f"{folder / DESCRIPTION} does not describe a scrollmt model")
    if content.get("schema_version") != SCHEMA_VERSION:
        raise ModelFolderError(
            f"{folder} has schema version {content.get('schema_version')}, this scrollmt reads "
            f"{SCHEMA_VERSION}; use the version that wrote it ({content.get('scrollmt_version')})"
        )
    stated = content.pop("sha256", None)
    if stated != _digest(content, tensors):
        raise ModelFolderError(
            f"{folder} was changed or cut short after it was saved: its SHA-256 does not match"
        )
    try:
        return content, load_tensors(tensors)
    except SafetensorError as error:
        raise ModelFolderError(f"{folder / TENSORS} is damaged: {error}") from None


def _digest(content: dict[str, Any], tensors: bytes) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.sha256(canonical + b"\0" + tensors).hexdigest()


def head_to_dict(head: AbstractHead) -> dict[str, Any]:
    match head:
        case Gaussian():
            return {"kind": "Gaussian"}
        case Event():
            return {"kind": "Event"}
        case Ordinal() | Categorical():
            return {"kind": type(head).__name__, "R": head.classes}
    raise ValueError(f"{head!r} is not one of scrollmt's own heads and cannot be saved by name")


def head_from_dict(stored: dict[str, Any]) -> AbstractHead:
    match stored:
        case {"kind": "Gaussian"}:
            return Gaussian()
        case {"kind": "Event"}:
            return Event()
        case {"kind": "Ordinal", "R": int(classes)}:
            return Ordinal(classes)
        case {"kind": "Categorical", "R": int(classes)}:
            return Categorical(classes)
    raise ModelFolderError(f"unknown head {stored!r}")


def model_to_parts(model: Model) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """A JSON description of a model's structure, and its arrays by path."""
    first = next(iter(model.tasks.values())).belief
    family = next(name for name, kind in BELIEFS.items() if type(first) is kind)
    backbone: dict[str, Any] = {"kind": type(model.backbone).__name__}
    if isinstance(model.backbone, Dense):
        net = model.backbone
        backbone |= {
            "in_size": int(net.weights[0].shape[1]),
            "widths": [int(w.shape[0]) for w in net.weights],
            "activation": net.activation,
            "bias": net.biases is not None,
            "norm": net.norm,
        }
    description = {
        "backbone": backbone,
        "features": int(first.mu.shape[-1]),
        "belief": {"family": family, "cov_floor": getattr(first, "cov_floor", 0.0)},
        "tasks": {name: head_to_dict(task.head) for name, task in model.tasks.items()},
    }
    return description, {path: np.asarray(leaf) for path, leaf in _leaves(model)}


def model_from_parts(
    description: dict[str, Any],
    arrays: dict[str, np.ndarray],
    *,
    backbone: Backbone | None = None,
) -> Model:
    """The model of `model_to_parts`, bit for bit.

    A backbone that is not one of scrollmt's own has to be given as a module of the same
    structure; its arrays are replaced by the stored ones.
    """
    stored = description["backbone"]
    if backbone is None:
        if stored["kind"] != "Dense":
            raise ModelFolderError(
                f"the backbone is a {stored['kind']}, which scrollmt cannot rebuild; "
                "pass load(path, backbone=...) with a module of the same structure"
            )
        backbone = Dense(
            stored["in_size"],
            stored["widths"],
            activation=stored["activation"],
            bias=stored["bias"],
            norm=stored["norm"],
            key=jax.random.key(0),
        )
    skeleton = build(
        backbone,
        {name: head_from_dict(head) for name, head in description["tasks"].items()},
        features=description["features"],
        belief=description["belief"]["family"],
        key=jax.random.key(0),
        cov_floor=description["belief"]["cov_floor"],
    )
    expected = {path: np.shape(leaf) for path, leaf in _leaves(skeleton)}
    found = {path: a.shape for path, a in arrays.items()}
    if expected != found:
        wrong = sorted({p for p in {**expected, **found} if expected.get(p) != found.get(p)})
        raise ModelFolderError(
            f"the stored arrays do not fit the structure, first at {wrong[0]!r}: "
            f"expected shape {expected.get(wrong[0])}, found {found.get(wrong[0])}"
        )
    wide = [p for p, a in arrays.items() if a.dtype == np.float64]
    if wide and jnp.result_type(float) != jnp.float64:
        raise ModelFolderError(
            "the model was fitted in float64 and JAX is set to float32; "
            "call jax.config.update('jax_enable_x64', True) before loading"
        )
    filled = iter(jnp.asarray(arrays[path]) for path, _ in _leaves(skeleton))
    return jax.tree.map(lambda leaf: next(filled) if eqx.is_array(leaf) else leaf, skeleton)


def _leaves(model: Model) -> list[tuple[str, Any]]:
    paths, _ = jax.tree_util.tree_flatten_with_path(model)
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in paths if eqx.is_array(leaf)]
