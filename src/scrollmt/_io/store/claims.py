"""What a description claims, checked before anything is built from it.

A model folder may come from an untrusted source. Its checksum says that it is as it was written,
not that it is valid. Every number that will become a size is compared with the stored arrays, and
every field with the type that its class declares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pandas as pd

from scrollmt._io.store.folder import Arrays, ModelFolderError
from scrollmt.inputs import Lags
from scrollmt.windows import Recipe

Names = list[str]
# The parameters of an estimator as JSON holds them; a preset by its fields is checked apart.
SETTINGS: dict[str, Any] = {
    "task_order": Names,
    "belief": str | dict,
    "routing": str | None,
    "joint": Names | list[Names] | None,
    "backbone": str | None,
    "optimizer": str | None,
    "validation": float | str | None,
    "refit": bool | None,
    "calibrate": str | None,
    "seed": int,
    "ensemble": int | None,
    "seeds": list[int] | None,
    "verbose": bool | None,
    "steps": int | None,
    "patience": int | None,
}
# What a fit left behind, beside its arrays and scales.
RESULTS: dict[str, Any] = {
    "lead": int,
    "committee": dict[str, list[int]],
    "weights": dict[str, list[float]] | None,
    "moments": bool | None,
    "calibration": dict[str, dict[str, Any]] | None,
    "candidates": dict[str, list[Any]],
    "history": dict[str, list[Any]],
    "feature_names": Names | None,
    "validation_nll": float | None,
    "stop_reason": str,
    "online": dict[str, Any] | None,
}


def check_types(found: Mapping[str, Any], expected: Mapping[str, Any], where: str) -> None:
    """Refuse the first of the expected names whose value has another type."""
    for name, kind in expected.items():
        if not conforms(found.get(name), kind):
            said = str(kind) if get_args(kind) else kind.__name__
            raise ModelFolderError(f"{where}{name} is {found.get(name)!r:.60}, and not {said}")


def check_fields(made: Any, where: str = "") -> None:
    """Refuse a dataclass with a field of another type than it declares, at any depth."""
    hints = get_type_hints(type(made))
    for name, value in vars(made).items():
        check_types({name: value}, {name: hints.get(name, Any)}, where)
        for one in _inside(value):
            check_fields(one, f"{where}{name}.")


def _inside(value: Any) -> Sequence[Any]:
    """The dataclasses in a field."""
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, tuple | list):
        return [one for each in value for one in _inside(each)]
    return [value] if is_dataclass(value) else []


def conforms(value: Any, kind: Any) -> bool:
    """Whether a value has a type, as far as JSON and our dataclasses use types."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return True
    if kind in (None, NoneType):
        return value is None
    if origin in (Union, UnionType):
        return any(conforms(value, one) for one in inner)
    if origin is Literal:
        return value in inner
    if kind is float:
        return type(value) in (int, float) and abs(value) < math.inf
    if kind is int:
        return type(value) is int and abs(value) < 2**63
    if origin is dict:
        return isinstance(value, dict) and all(
            conforms(name, inner[0]) and conforms(one, inner[1]) for name, one in value.items()
        )
    if origin in (list, tuple, Sequence):
        listed = isinstance(value, list | tuple)
        return listed and (not inner or all(conforms(one, inner[0]) for one in value))
    return isinstance(value, origin or kind)


def check_sizes(content: Mapping[str, Any], arrays: Arrays) -> None:
    """Refuse sizes that no stored array has: nothing is allocated before this check."""
    longest = max((size for array in arrays.values() for size in array.shape), default=0)

    def check(what: str, size: Any) -> None:
        # R classes have R - 1 cutpoints, stored as the first one and R - 2 gaps.
        if type(size) is not int or not 1 <= size <= longest + 2:
            raise ModelFolderError(
                f"{what} is {size!r:.60}, but the longest axis of a stored array has {longest}"
            )

    inputs = len(content["scales"]["x_mean"])
    for number, member in enumerate(content["members"]):
        where = f"member {number}"
        if type(member["in_size"]) is not int or member["in_size"] != inputs:
            raise ModelFolderError(
                f"{where}: in_size is {member['in_size']!r:.60}, but {inputs} inputs have a scale"
            )
        check(f"{where}: features", member["features"])
        widths = member["backbone"].get("widths", [])
        if len(widths) > len(arrays):
            raise ModelFolderError(f"{where} has {len(widths)} layers and {len(arrays)} arrays")
        for width in widths:
            check(f"{where}: a width of the backbone", width)
        for name, task in member["tasks"].items():
            if isinstance(task["belief"], str):
                check_types(task, {"cov_floor": float}, f"{where}: task {name!r:.60}: ")
            check(f"{where}: task {name!r:.60}: rank", task.get("rank", 1))
        heads = [task["head"] for task in member["tasks"].values()]
        for head in (*heads, *content["estimator"]["tasks"].values()):
            check(f"{where}: R", head.get("R", 1))
            check(f"{where}: components", head.get("components", 1))


def check_recipe(recipe: Recipe, in_size: int) -> None:
    """Refuse a recipe of fields that are none, or that does not make the inputs of the model."""
    check_fields(recipe, "recipe: ")
    for name, question in recipe.tasks.items():
        check_fields(question.observable, f"recipe: task {name!r:.60}: ")
        check_types({"lead": question.lead}, {"lead": int}, f"recipe: task {name!r:.60}: ")
    dated = isinstance(recipe.step, pd.Timedelta)
    if not (dated or conforms(recipe.step, float)) or not recipe.step > 0 * recipe.step:
        raise ModelFolderError(f"recipe: step is {recipe.step!r:.60}, and no length of time")
    kind = pd.Timestamp if dated else float
    check_types({"anchor": recipe.anchor}, {"anchor": kind}, "recipe: ")
    history = recipe.windowing.history
    # A stored history can be so large that a list of that many names does not fit into memory.
    made = sum(
        history if isinstance(one, Lags) and one.steps is None else len(one.sources(history))
        for one in recipe.inputs
    )
    if made != in_size:
        raise ModelFolderError(f"the recipe makes {made} inputs, and the model reads {in_size}")
