"""Corpora by name: where a problem's windows come from, its tasks, and how it is split.

A corpus of your own joins the arena by one call:

    register_corpus(Source("station", tasks=tasks, load=load))
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from scrollmt.corpora.base import Corpus
from scrollmt.heads import AbstractHead
from scrollmt.paper.arena.scoring import BY_TASK, Scoring
from scrollmt.splits import Split, random_split

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*(-[A-Za-z0-9_]+)*")


class Asked(NamedTuple):
    """What an id and the protocol ask a corpus for: the lead, the generation seed, and at most how
    many windows. A corpus that has but one form of itself does not read them."""

    lead: float
    seed: int
    windows: int


class Labelled(NamedTuple):
    """Inputs (N, D), labels by task, and the simulator that they come from, if there is one."""

    X: np.ndarray
    Y: Mapping[str, Any]
    corpus: Corpus | None = None


@dataclass(frozen=True)
class Source:
    """A corpus in the registry.

    - `tasks()`: the head of every task by name. It tells our arms how to read the labels, and
      which laws can be compared.
    - `load(asked)`: the windows, always the same for the same request.
    - `split(n, seed)`: the parts of each seed; random by default.
    - `lead`: the lead of the bare name, where an id may ask for others; None if there is one only.
    - `redrawn`: whether another generation seed gives other windows.
    - `origins`: how many rolling origins there are, for windows in the order of time.
    - `scaled`: the task whose target an id may multiply or standardise.
    - `true_var(asked, members)`: the variance of that target given each window, where known.
    - `scoring`: the columns of its records.
    - `determinants`: plain values that tell one version of the windows from another, such as a
      revision or the checksum of a file. Change them when `load` gives other windows: results are
      recorded under them, and what is recorded is not computed again.
    """

    name: str
    tasks: Callable[[], Mapping[str, AbstractHead]]
    load: Callable[[Asked], Labelled | tuple[Any, Mapping[str, Any]]]
    split: Callable[[int, int], Split] = random_split
    lead: float | None = None
    redrawn: bool = False
    origins: int = 0
    scaled: str | None = None
    true_var: Callable[[Asked, int], np.ndarray] | None = None
    scoring: Scoring = BY_TASK
    determinants: Mapping[str, Any] = field(default_factory=dict)

    def labelled(self, asked: Asked) -> Labelled:
        """The windows, checked: a row of X for each label, and readable labels for every task."""
        given = Labelled(*self.load(asked))
        tasks = self.tasks()
        X = np.asarray(given.X)
        if X.ndim != 2 or len(X) == 0:
            raise ValueError(f"corpus {self.name!r}: X has shape {X.shape}, expected (N, D)")
        if given.Y.keys() != tasks.keys():
            raise ValueError(
                f"corpus {self.name!r} has labels for {sorted(given.Y)}, but its tasks are "
                f"{sorted(tasks)}; give labels for each task"
            )
        Y = {name: np.asarray(given.Y[name]) for name in tasks}
        for name, y in Y.items():
            if len(y) != len(X):
                raise ValueError(
                    f"corpus {self.name!r}, task {name!r}: {len(y)} labels for {len(X)} windows; "
                    "give one label for each window, NaN where it is missing"
                )
            if y.dtype.kind not in "biuf":
                raise ValueError(
                    f"corpus {self.name!r}, task {name!r}: labels have dtype {y.dtype}; give "
                    "numbers, classes as 0 to R-1"
                )
            tasks[name].read_labels(name, y)
        return Labelled(X, Y, given.corpus)


SOURCES: dict[str, Source] = {}


def register_corpus(source: Source) -> Source:
    """Add a corpus to the arena; jobs then know it by its name."""
    if not _NAME.fullmatch(source.name) or source.name.endswith("-std"):
        raise ValueError(
            f"a corpus cannot be named {source.name!r}: use letters, digits, _ and -, beginning "
            "with a letter and not ending in -std, which asks for a standardised target"
        )
    if source.name in SOURCES:
        raise ValueError(
            f"a corpus named {source.name!r} is registered already; choose another name"
        )
    tasks = source.tasks()
    if not tasks or any("." in name for name in tasks):
        raise ValueError(
            f"corpus {source.name!r} has the tasks {[*tasks]}; there is at least one, and no dot "
            "in a name: columns of records are named <task>.<metric>"
        )
    if source.scaled is not None and source.scaled not in tasks:
        raise ValueError(
            f"corpus {source.name!r} scales the task {source.scaled!r}, but has only {[*tasks]}"
        )
    SOURCES[source.name] = source
    return source
