"""Which heads are trained for the tasks, and how a task's law is read off them.

    value: Real()                     heads `value` and `value|Mixture`; either answers
    alarm: Event(of="level", ...)     heads `alarm` and `level`; either answers, `level` cut
    band of a window's maximum        heads `band` and `band|number`, the latter cut

The first head of a task has its name, and its labels are the task's. Out-of-fold scores weigh the
answers of a task; without folds the first head is the only one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from scrollmt._data.numbers import Number
from scrollmt._data.reading import Rows
from scrollmt.heads import AbstractHead, Mixture, Source
from scrollmt.laws import Cut, Law

# A further head is trained where it has so many times the labels that it needs at least: below,
# its out-of-fold scores say more about the draw than about the head.
_LABELS_A_PARAMETER = 10


class Answer(NamedTuple):
    """A law of a task: that of a trained head, or that one cut into classes."""

    head: str
    cut: Cut | None = None

    def law(self, law: Law) -> Law:
        """The law of the task, from the law of the head in the user's units."""
        if self.cut is None:
            return law
        number: Any = law
        return self.cut.law(number)


@dataclass(frozen=True)
class Plan:
    """The trained heads by name, and the answers to each task, its own head's first."""

    heads: Mapping[str, AbstractHead]
    answers: Mapping[str, tuple[Answer, ...]]
    # For heads beside the tasks' own: the task that they are there for.
    extra: Mapping[str, str] = field(default_factory=dict)

    @property
    def tasks(self) -> dict[str, AbstractHead]:
        """The tasks' own heads."""
        return {name: self.heads[name] for name in self.answers}

    def by_head(self, choices: Any) -> Any:
        """A setting by task as one by head; what is no mapping holds for all."""
        if not isinstance(choices, Mapping):
            return choices
        return {**choices, **{name: choices[task] for name, task in self.extra.items()}}


def first_heads(heads: Mapping[str, AbstractHead]) -> Plan:
    """One head a task, and nothing to choose."""
    return Plan(
        {name: head.variants[0] for name, head in heads.items()},
        {name: (Answer(name),) for name in heads},
    )


def planned(
    heads: Mapping[str, AbstractHead],
    rows: Rows,
    sources: Mapping[str, Source],
    numbers: Mapping[str, Number],
    alone: set[str],
    *,
    one_line: bool = False,
) -> tuple[Plan, Rows]:
    """The heads to train for these rows, and the rows with labels for all of them.

    `numbers` are those that `sources` name and that are no tasks. Tasks in `alone` keep one head.
    With `one_line` heads of several latent lines are left out beside the tasks' own.
    """
    bare = first_heads(heads)
    trained, extra = dict(bare.heads), {}
    answers = {name: list(own) for name, own in bare.answers.items()}
    labels, weights = dict(rows.labels), dict(rows.weights)

    def add(name: str, head: AbstractHead, task: str, values: np.ndarray, seen: np.ndarray) -> bool:
        weight = rows.weights[task] * seen
        if one_line and head.rows > 1:
            return False
        if (weight > 0).sum() < _LABELS_A_PARAMETER * head.fewest_labels:
            return False
        trained[name], extra[name] = head, task
        labels[name], weights[name] = np.where(weight > 0, values, head.missing_fill), weight
        return True

    for name, head in heads.items():
        for variant in () if name in alone else head.variants[1:]:
            known = f"{name}|{type(variant).__name__}"
            inner = known if known not in trained else f"{known} {len(trained)}"
            if add(inner, variant, name, rows.labels[name], rows.weights[name] > 0):
                answers[name].append(Answer(inner))
    for of, (task, values) in numbers.items():
        seen = ~np.isnan(values)
        if seen.any() and np.ptp(values[seen]) > 0.0:
            add(of, Mixture(), task, values, seen)
    for name, (of, cut) in sources.items():
        kind = heads[name].cut_into
        if kind is None or heads[name].num_classes != cut.classes:
            continue
        cut = replace(cut, event=kind == "event")
        answering = [one.head for one in answers[of]] if of in heads else [of]
        answers[name] += [Answer(head, cut) for head in answering if _has_cdf(trained, head)]
    plan = Plan(trained, {name: tuple(own) for name, own in answers.items()}, extra)
    return plan, rows._replace(labels=labels, weights=weights)


def _has_cdf(heads: Mapping[str, AbstractHead], name: str) -> bool:
    """Whether a head is trained, and its law has a distribution function to be cut."""
    if name not in heads:
        return False
    line = np.zeros(1 if heads[name].rows == 1 else (1, heads[name].rows))
    return heads[name].law(line, np.ones_like(line)).calibrated_by == "number"
