"""Which belief `belief=` chooses: by name, by class, with options, or one of these per task."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from scrollmt._io.arguments import shown
from scrollmt.beliefs.base import AbstractBelief, Maker
from scrollmt.beliefs.families import BELIEFS

Choice: TypeAlias = "str | type[AbstractBelief] | Maker"
Choices: TypeAlias = "Choice | Mapping[str, Choice]"


def read_beliefs(given: Choices, tasks: Iterable[str]) -> dict[str, Maker]:
    """How to make the belief of each task, from one choice for all or a choice for each."""
    names = list(tasks)
    if not isinstance(given, Mapping):
        return dict.fromkeys(names, read_belief(given))
    wrong = [name for name in given if name not in names] or [n for n in names if n not in given]
    if wrong:
        raise ValueError(
            f"belief must have one entry for each of the tasks {names}, and {wrong[0]!r} is "
            f"{'not a task' if wrong[0] in given else 'missing'}"
        )
    return {name: read_belief(given[name], f"task {name!r}: ") for name in names}


def read_belief(given: Any, where: str = "") -> Maker:
    """How to make a belief, from its name, its class, or its class with options."""
    if isinstance(given, Maker):
        return given
    kind = BELIEFS.get(given) if isinstance(given, str) else given
    if inspect.isclass(kind) and issubclass(kind, AbstractBelief) and not inspect.isabstract(kind):
        return Maker(kind, {})
    raise ValueError(
        f"{where}unknown belief {shown(given)}; choose from {list(BELIEFS)}, or pass a belief "
        "class, one with options such as LowRank.of(rank=8), or a mapping of these by task"
    )
