"""Tasks by question: with several leads every question is as many tasks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scrollmt._data.series import duration
from scrollmt.report.assessment import Assessment

# So many leads of a question stand for all: the shortest, the longest and one between.
SHOWN = 3


@dataclass(frozen=True)
class Group:
    """The tasks of one question, from the shortest lead to the longest."""

    name: str
    tasks: tuple[str, ...]

    @property
    def shown(self) -> tuple[str, ...]:
        """A few tasks that stand for all."""
        places = np.linspace(0, len(self.tasks) - 1, min(SHOWN, len(self.tasks)))
        return tuple(self.tasks[place] for place in places.round().astype(int))


def groups(assessment: Assessment) -> list[Group]:
    """The questions behind the tasks; without several leads every task is one of its own."""
    recipe = assessment.recipe
    if recipe is None or recipe.windowing.leads is None:
        return [Group(task, (task,)) for task in assessment.tasks]
    found: dict[str, list[str]] = {}
    for task in assessment.tasks:
        name = task.removesuffix(f"@{recipe.tasks[task].lead}")
        found.setdefault(name, []).append(task)
    return [
        Group(name, tuple(sorted(tasks, key=lambda task: recipe.tasks[task].lead)))
        for name, tasks in found.items()
    ]


def ahead(assessment: Assessment, task: str) -> str:
    """The lead of a task in words; empty for a model of plain rows."""
    recipe = assessment.recipe
    return "" if recipe is None else duration(recipe.tasks[task].lead, recipe.step)
