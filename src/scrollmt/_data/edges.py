"""Windows with the edges of a model, which are learned from the windows that train it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from scrollmt._data.cutting import Question
from scrollmt._scoring.references import Past
from scrollmt.observables import Bands
from scrollmt.windows import Recipe, Windows


def with_edges(windows: Windows) -> Windows:
    """The windows with the quantile edges that are still unknown learned from all of them."""
    tasks = {
        task: Question(asked.learn(windows.values[task]), lead)
        if isinstance(asked, Bands) and asked.edges is None
        else Question(asked, lead)
        for task, (asked, lead) in windows.recipe.tasks.items()
    }
    return replace(windows, recipe=replace(windows.recipe, tasks=tasks))


def labelled(windows: Windows, recipe: Recipe) -> Windows:
    """The windows with a model's own edges; an error where they were asked something else."""
    asked, known = windows.recipe.tasks, recipe.tasks
    if list(asked) != list(known):
        raise ValueError(f"the windows have the tasks {list(asked)}, the model has {list(known)}")
    for task in known:
        if not _same_question(asked[task], known[task]):
            raise ValueError(
                f"task {task!r} asks for {windows.recipe.sentence(task)} in these windows, and "
                f"for {recipe.sentence(task)} in the model; cut them with the model's recipe "
                "(model.recipe_.cut(frame)), or split windows that were not labelled before"
            )
    return replace(windows, recipe=replace(windows.recipe, tasks=dict(known)))


def labels(windows: Windows, recipe: Recipe | None) -> Mapping[str, np.ndarray]:
    """Labels with a model's edges; with the windows' own where the model has no recipe."""
    return windows.Y if recipe is None else labelled(windows, recipe).Y


def past_labels(windows: Windows, recipe: Recipe | None) -> Past:
    """Earlier labels by kind and task, with a model's edges as in `labels`."""
    return (windows if recipe is None else labelled(windows, recipe)).past_labels


def _same_question(asked: Question, known: Question) -> bool:
    """Whether two questions agree, where edges that are not known yet agree with any."""
    first, second = asked.observable, known.observable
    if isinstance(first, Bands) and isinstance(second, Bands) and first.edges is None:
        second = replace(second, edges=None)
    return first == second and asked.lead == known.lead
