"""The sets on which the default preset and its peers are compared, and their splits.

    boston .. yacht    nine UCI sets, the public splits; a random fifth of the training rows
                       validates
    pm25, de_price,    windows in the order of time: split 0 is chronological (60/20/20), splits
    river, wind        1 to 5 are rolling origins with a growing training part
    ou, lorenz63       simulated windows, random splits by seed

Peers get a training and a validation part. scrollmt gets both in one and parts them by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from scrollmt.corpora import de_price, lorenz63, ou, pm25, river, uci, wind
from scrollmt.corpora.base import OracleScore
from scrollmt.heads import AbstractHead
from scrollmt.paper.peers.protocol import Classes, Question, Rows, Value
from scrollmt.splits import Split, random_split
from scrollmt.windows import Recipe, Windows

ORIGINS = 5
SIMULATED_SPLITS = 10
UCI_QUESTION = "y"


@dataclass(frozen=True, eq=False)
class Fold:
    """One split of a set. ``both`` and ``test`` are what a Forecaster fits and predicts.

    ``blocks`` says in how many stretches of time the test scores are averaged; 0 for plain rows.
    ``own_heads`` are those of scrollmt where they know more than the questions do.
    ``oracle`` scores the simulator's own law on the test rows, where there is one.
    """

    questions: Mapping[str, Question]
    X: np.ndarray
    Y: Mapping[str, np.ndarray]
    split: Split
    both: tuple[Any, ...]
    test: Any
    recipe: Recipe | None = None
    blocks: int = 0
    own_heads: Mapping[str, AbstractHead] | None = None
    oracle: Callable[[], OracleScore] | None = None

    @property
    def heads(self) -> dict[str, AbstractHead]:
        """The heads that scrollmt fits."""
        if self.own_heads is not None:
            return dict(self.own_heads)
        return {name: asked.head for name, asked in self.questions.items()}

    def rows(self, part: np.ndarray, head: str) -> Rows:
        """Inputs and labels of one question for a peer."""
        return Rows(self.X[part], self.Y[head][part])


@dataclass(frozen=True)
class Problem:
    """A set: how many splits it has, and how to make one."""

    splits: int
    fold: Callable[[int], Fold]


def _series_fold(name: str, k: int) -> Fold:
    windows = _windows(name)
    split = windows.chronological_split() if k == 0 else windows.rolling_origins(ORIGINS)[k - 1]
    return Fold(
        QUESTIONS[name],
        windows.X,
        windows.Y,
        split,
        (windows.take(np.concatenate([split.train, split.valid])),),
        windows.take(split.test),
        windows.recipe,
        blocks=20 if k == 0 else 10,
    )


def _of_rows(
    X: np.ndarray, Y: Mapping[str, np.ndarray], questions: Mapping[str, Question], split: Split
) -> Fold:
    both = np.concatenate([split.train, split.valid])
    labels = {head: y[both] for head, y in Y.items()}
    return Fold(questions, X, Y, split, (X[both], labels), X[split.test])


@cache
def _uci(name: str) -> uci.RegressionSet:
    return uci.load(name)


def _uci_fold(name: str, k: int) -> Fold:
    rows = _uci(name)
    train, test = rows.splits[k]
    mixed = np.random.default_rng(k).permutation(train)
    fifth = len(train) // 5
    split = Split(np.sort(mixed[fifth:]), np.sort(mixed[:fifth]), test)
    return _of_rows(rows.X, {UCI_QUESTION: rows.y}, {UCI_QUESTION: Value()}, split)


@cache
def _windows(name: str) -> Windows:
    return {"pm25": pm25, "de_price": de_price, "river": river, "wind": wind}[name].load()


@cache
def _simulated(name: str) -> Any:
    return {"ou": ou, "lorenz63": lorenz63}[name].draw()


def _simulated_fold(name: str, k: int) -> Fold:
    corpus = _simulated(name)
    asked = {"state": Value(), "event": Classes(2), "regime": Classes(4)}
    labels = {head: np.asarray(y) for head, y in corpus.Y.items()}
    split = random_split(len(corpus), k)
    fold = _of_rows(np.asarray(corpus.X), labels, asked, split)
    rows = np.concatenate([split.train, split.valid])
    known = {head: np.asarray(y)[rows] for head, y in {**labels, **corpus.behind}.items()}
    return replace(
        fold,
        both=(fold.X[rows], known),
        own_heads=corpus.heads,
        oracle=lambda: _oracle(name).take(split.test),
    )


@cache
def _oracle(name: str) -> OracleScore:
    corpus = _simulated(name)
    return corpus.oracle(corpus.X, corpus.Y)


QUESTIONS: dict[str, dict[str, Question]] = {
    "pm25": {"state": Value(), "event": Classes(2), "regime": Classes(4)},
    "de_price": {
        "price": Value(),
        "negative": Classes(2),
        "over_100": Classes(2),
        "band": Classes(5),
    },
    "river": {"runoff": Value(), "flood": Classes(2), "band": Classes(5)},
    "wind": {"power": Value(wind.LIMITS), "ramp": Classes(2), "band": Classes(4)},
}

UCI_SETS = tuple(uci.FOLDERS)
SERIES = tuple(QUESTIONS)
SIMULATED = ("ou", "lorenz63")
PROBLEMS: dict[str, Problem] = {
    **{
        name: Problem(5 if name == "protein" else 20, lambda k, name=name: _uci_fold(name, k))
        for name in UCI_SETS
    },
    **{name: Problem(1 + ORIGINS, lambda k, name=name: _series_fold(name, k)) for name in SERIES},
    **{
        name: Problem(SIMULATED_SPLITS, lambda k, name=name: _simulated_fold(name, k))
        for name in SIMULATED
    },
}
