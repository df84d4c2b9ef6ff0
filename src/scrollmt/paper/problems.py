"""What a job trains on: a corpus by its id, split as the paper splits it.

An id is a corpus and what is changed about it:

    ou, lorenz63, pm25      the headline corpora
    lorenz63@0.1            another lead
    lorenz63*8              the state target times 8
    lorenz63-std            the state target over its sd in the training part
    pm25/2                  the third rolling origin
    ou~3                    drawn with generation seed 3
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from scrollmt.corpora import lorenz63, ou, pm25
from scrollmt.corpora.base import Corpus
from scrollmt.paper.protocol import ORIGINS, Protocol
from scrollmt.splits import Split, chronological_split, random_split, rolling_origins

_NUMBER = r"\d+(?:\.\d+)?"
_ID = re.compile(
    rf"(?P<name>ou|lorenz63|pm25)(@(?P<lead>{_NUMBER}))?(\*(?P<factor>{_NUMBER})|(?P<std>-std))?"
    r"(/(?P<origin>\d+))?(~(?P<draw>\d+))?"
)
HEADLINE_LEAD = 0.5
# Threads that want the same corpus wait for the one that draws it.
_DRAWING = threading.RLock()
STATE = "state"
_Labelled = tuple[np.ndarray, Mapping[str, np.ndarray], Corpus | None]


@dataclass(frozen=True)
class Problem:
    """Windows, their labels and the splits of every seed."""

    id: str
    X: np.ndarray
    Y: Mapping[str, np.ndarray]
    factor: float
    standardise: bool
    origin: int | None
    corpus: Corpus | None

    def split(self, seed: int) -> Split:
        """Random by seed where windows are independent; by time where they are a series."""
        if self.corpus is not None:
            return random_split(len(self.X), seed)
        if self.origin is None:
            return chronological_split(len(self.X))
        return rolling_origins(len(self.X), ORIGINS)[self.origin]

    def target_factor(self, split: Split) -> float:
        """What the state target is multiplied with."""
        if self.standardise:
            return 1.0 / float(np.std(self.Y[STATE][split.train].astype(np.float64)))
        return self.factor

    def part(self, rows: np.ndarray, factor: float) -> tuple[np.ndarray, dict[str, Any]]:
        labels = {task: y[rows] for task, y in self.Y.items()}
        labels[STATE] = labels[STATE] * factor
        return self.X[rows], labels


@dataclass(frozen=True)
class Changes:
    """A corpus and what is changed about it, as its id says."""

    name: str
    lead: float
    factor: float
    standardise: bool
    origin: int | None
    draw: int | None


def read_id(corpus_id: str) -> Changes:
    """What an id asks for; an error says what is wrong with it before anything is drawn."""
    found = _ID.fullmatch(corpus_id)
    if found is None:
        raise ValueError(
            f"unknown corpus {corpus_id!r}; use ou, lorenz63 or pm25, with a lead as in ou@0.1, a "
            "target factor as in lorenz63*8, lorenz63-std, an origin as in pm25/0, or another "
            "draw as in ou~3"
        )
    changes = Changes(
        found["name"],
        float(found["lead"] or HEADLINE_LEAD),
        float(found["factor"] or 1.0),
        found["std"] is not None,
        None if found["origin"] is None else int(found["origin"]),
        None if found["draw"] is None else int(found["draw"]),
    )
    if changes.origin is not None and changes.name != "pm25":
        raise ValueError(f"corpus {corpus_id!r}: only pm25 has rolling origins")
    if changes.origin is not None and changes.origin >= ORIGINS:
        raise ValueError(f"corpus {corpus_id!r}: origins are numbered 0 to {ORIGINS - 1}")
    if changes.name == "pm25" and (found["lead"] or found["draw"]):
        raise ValueError(f"corpus {corpus_id!r}: pm25 has one lead and one series")
    if changes.factor == 0.0:
        raise ValueError(f"corpus {corpus_id!r}: a target times 0 holds nothing to learn")
    return changes


def problem(corpus_id: str, protocol: Protocol) -> Problem:
    """The problem behind an id."""
    asked = read_id(corpus_id)
    with _DRAWING:
        X, Y, corpus = _series() if asked.name == "pm25" else _windows(asked, protocol)
    return Problem(corpus_id, X, Y, asked.factor, asked.standardise, asked.origin, corpus)


def _windows(asked: Changes, protocol: Protocol) -> _Labelled:
    draw = protocol.corpus_seed if asked.draw is None else asked.draw
    corpus = _drawn(asked.name, asked.lead, draw, protocol.corpus_windows)
    return corpus.X, corpus.Y, corpus


@lru_cache(maxsize=32)
def _drawn(name: str, lead: float, seed: int, windows: int) -> Corpus:
    drawn = ou.draw if name == "ou" else lorenz63.draw
    return drawn(n=windows, lead=lead, seed=seed)


@lru_cache(maxsize=1)
def _series() -> _Labelled:
    windows = pm25.load()
    return windows.X, windows.Y, None


@lru_cache(maxsize=16)
def _true_var(name: str, lead: float, seed: int, windows: int, members: int) -> np.ndarray:
    corpus = _drawn(name, lead, seed, windows)
    if isinstance(corpus, lorenz63.Lorenz63):
        return corpus.true_var(corpus.X, members=members)
    return corpus.true_var(corpus.X)


def true_var(of: Problem, protocol: Protocol) -> np.ndarray | None:
    """V* of every window in the problem's own units, or None where no law is known."""
    if of.corpus is None or of.standardise:
        return None
    with _DRAWING:
        base = _true_var(
            of.corpus.name,
            of.corpus.lead,
            of.corpus.seed,
            protocol.corpus_windows,
            protocol.truth_members,
        )
    return base * of.factor**2
