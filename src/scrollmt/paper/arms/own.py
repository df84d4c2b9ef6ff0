"""Arms that train in their own way: data in, laws out.

Any estimator will do, from scikit-learn, torch or a loop of your own. It sees the labels of the
training and validation windows and the inputs of the test windows, and hands back laws; the arena
has the labels of the test windows and computes every metric.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from scrollmt.laws import Law
from scrollmt.paper.arms.base import AbstractArm, Heads, Setting, describe_heads, module_of, name_of

NO_BACKBONE = "none"


@dataclass(frozen=True)
class Fold:
    """One seed's windows, in the units of the corpus; X is (N, D), each task of Y is (N,).

    A missing label is NaN. `tasks` has the head of every task, which gives its kind. The arrays are
    copies: an arm may change them.
    """

    seed: int
    backbone: str
    tasks: Heads
    X_train: np.ndarray
    Y_train: Mapping[str, np.ndarray]
    X_valid: np.ndarray
    Y_valid: Mapping[str, np.ndarray]
    X_test: np.ndarray


@dataclass(frozen=True)
class Forecasts:
    """A law for each task on the validation and on the test windows, in their order.

    `facts` are numbers or texts about the run, such as a chosen penalty; they are recorded too.
    """

    valid: Mapping[str, Law]
    test: Mapping[str, Law]
    facts: Mapping[str, float | str] = field(default_factory=dict)


@dataclass(frozen=True)
class OwnArm(AbstractArm):
    """An arm that is one function, `forecast(fold, setting)`.

    - `tasks`: the tasks it has laws for; None means all of the corpus.
    - `determinants`: plain values that determine the results beside the function's name and the
      settings, such as the version of a library. Change them when the function changes: results
      are recorded under them, and what is recorded is not computed again.
    """

    forecast: Callable[[Fold, Setting], Forecasts]
    tasks: tuple[str, ...] | None = None
    determinants: Mapping[str, Any] = field(default_factory=dict, hash=False)
    backbones: tuple[str, ...] = field(default=(NO_BACKBONE,), kw_only=True)

    def __post_init__(self) -> None:
        if self.members != 1:
            raise ValueError(
                f"arm {self.name!r}: members={self.members}, but an arm that trains in its own way "
                "mixes its members itself; leave members out"
            )

    def heads_on(self, tasks: Heads) -> Heads:
        if self.tasks is None:
            return tasks
        if lacking := sorted(set(self.tasks) - set(tasks)):
            raise ValueError(
                f"arm {self.name!r} has laws for {lacking}, but the corpus has the tasks {[*tasks]}"
            )
        return {name: head for name, head in tasks.items() if name in self.tasks}

    def describe(self, tasks: Heads | None = None) -> dict[str, Any]:
        return {
            "forecast": name_of(self.forecast),
            "settings": [dict(setting) for setting in self.settings],
            "determinants": dict(self.determinants),
            "heads": describe_heads({} if tasks is None else self.heads_on(tasks)),
        }

    def modules(self) -> set[str]:
        return {module_of(self.forecast)}
