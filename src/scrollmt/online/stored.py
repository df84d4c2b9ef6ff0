"""What an update starts from and what it has learned, as JSON values and arrays, and back.

Heads, members and their grouping follow from the model itself, so that only posteriors, weights and
the start are stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import jax
import numpy as np

from scrollmt._io.store.folder import ModelFolderError
from scrollmt._numerics.compiling import on_device
from scrollmt.online.bank import Bank
from scrollmt.online.recursion import Posterior
from scrollmt.online.state import Group, Start, State, begun

Arrays = dict[str, np.ndarray]


def to_parts(start: Start | None, state: State | None) -> tuple[dict[str, Any], Arrays]:
    """The description and the arrays; both are empty where there is nothing to store."""
    if start is None:
        return {}, {}
    arrays: Arrays = {f"online/gram/{n}": gram for n, gram in enumerate(start.gram)}
    description: dict[str, Any] = {
        "information": [
            {"member": n, "head": head, "lines": values.tolist(), "scale": start.scale[n, head]}
            for (n, head), values in start.lines.items()
        ]
    }
    if state is not None:
        description |= {
            "bank": asdict(state.bank),
            "rows": state.rows,
            "labels": dict(state.labels),
            "log_weights": {task: values.tolist() for task, values in state.log_weights.items()},
        }
        for path, posterior in _named(state.groups):
            own = {f"online/{path}/{leaf}": np.asarray(a) for leaf, a in vars(posterior).items()}
            arrays |= own
    return description, arrays


def from_parts(
    model: Any, description: Mapping[str, Any] | None, arrays: Mapping[str, np.ndarray]
) -> tuple[Start | None, State | None]:
    """What `to_parts` made of a model's start and state."""
    if not description:
        return None, None
    try:
        return _read(model, description, arrays)
    except ModelFolderError:
        raise
    except Exception as error:  # an untrusted file can be wrong in any way
        why = " ".join(str(error).split()) or "it cannot be read"
        raise ModelFolderError(f"what it learned online cannot be read: {why:.200}") from error


def _read(
    model: Any, description: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> tuple[Start, State | None]:
    gram = []
    for number, member in enumerate(model.members_):
        size = next(iter(member.tasks.values())).belief.mu.shape[-1] + 1
        gram.append(_shaped(arrays[f"online/gram/{number}"], (size, size)))
    lines, scale = {}, {}
    for one in description["information"]:
        key = int(one["member"]), str(one["head"])
        lines[key] = _shaped(np.asarray(one["lines"], np.float64), (len(one["lines"]),))
        scale[key] = float(one["scale"])
    start = Start(tuple(gram), lines, scale)
    if "bank" not in description:
        return start, None
    given = dict(description["bank"])
    given |= {name: tuple(given[name]) for name in ("forgetting", "steps")}
    fresh = begun(model, start, Bank(**given))
    groups: dict[str, list[Group]] = {name: [] for name in fresh.groups}
    for path, posterior in _named(fresh.groups):
        leaves = {
            leaf: on_device(_shaped(arrays[f"online/{path}/{leaf}"], value.shape), value.dtype)
            for leaf, value in vars(posterior).items()
        }
        name, _, place = path.rpartition("/")
        group = fresh.groups[name][int(place)]
        groups[name].append(group._replace(posterior=Posterior(**leaves)))
    count = len(fresh.bank.rows)
    weights = {
        task: _shaped(np.asarray(description["log_weights"][task], np.float64), (count,))
        for task in model.tasks_
    }
    return start, State(
        fresh.bank,
        {name: tuple(own) for name, own in groups.items()},
        weights,
        int(description["rows"]),
        {task: int(count) for task, count in description["labels"].items()},
    )


def _named(groups: Mapping[str, tuple[Group, ...]]) -> list[tuple[str, Posterior]]:
    return [
        (f"{name}/{place}", group.posterior)
        for name, own in groups.items()
        for place, group in enumerate(own)
    ]


def _shaped(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if array.shape != shape or not np.isfinite(jax.device_get(array)).all():
        raise ModelFolderError(
            f"an array of what it learned online has shape {array.shape}, not {shape}, or is not "
            "finite"
        )
    return array
