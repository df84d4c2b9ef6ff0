"""What a job trains on: a corpus by its id, split as the paper splits it.

An id is a corpus and what is changed about it:

    ou, lorenz63, pm25      the headline corpora
    lorenz63@0.1            another lead
    lorenz63*8              the state target times 8
    lorenz63-std            the state target over its sd in the training part
    pm25/2                  the third rolling origin
    ou~3                    drawn with generation seed 3

Corpora are those that are registered (see `sources`); each says which changes it has.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from scrollmt.corpora import lorenz63, ou, pm25
from scrollmt.corpora.base import Corpus
from scrollmt.paper.arena.scoring import PAPER
from scrollmt.paper.arena.sources import SOURCES, Asked, Labelled, Source, register_corpus
from scrollmt.paper.arms import questions
from scrollmt.paper.protocol import ORIGINS, Protocol
from scrollmt.splits import Split, chronological_split, rolling_origins

_NUMBER = r"\d+(?:\.\d+)?"
_ID = re.compile(
    rf"(?P<name>[\w-]+?)(@(?P<lead>{_NUMBER}))?(\*(?P<factor>{_NUMBER})|(?P<std>-std))?"
    r"(/(?P<origin>\d+))?(~(?P<draw>\d+))?"
)
HEADLINE_LEAD = 0.5
# Threads that want the same corpus wait for the one that draws it.
_DRAWING = threading.RLock()
STATE = "state"


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
    source: Source
    asked: Asked

    def split(self, seed: int) -> Split:
        """As the corpus is split at this seed, or the rolling origin that the id names."""
        if self.origin is None:
            return self.source.split(len(self.X), seed)
        return rolling_origins(len(self.X), self.source.origins)[self.origin]

    def target_factor(self, split: Split) -> float:
        """What the scaled target is multiplied with."""
        if self.standardise:
            assert self.source.scaled is not None  # or `read_id` would have refused the id
            y = self.Y[self.source.scaled][split.train]
            return 1.0 / float(np.std(y.astype(np.float64)))
        return self.factor

    def part(self, rows: np.ndarray, factor: float) -> tuple[np.ndarray, dict[str, Any]]:
        """Copies of some windows and of their labels, the scaled target times `factor`."""
        labels = {task: y[rows] for task, y in self.Y.items()}
        if self.source.scaled is not None:
            labels[self.source.scaled] = labels[self.source.scaled] * factor
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
    if found is None or found["name"] not in SOURCES:
        *others, last = SOURCES
        raise ValueError(
            f"unknown corpus {corpus_id!r}; use {', '.join(others)} or {last}, with a lead as in "
            "ou@0.1, a target factor as in lorenz63*8, lorenz63-std, an origin as in pm25/0, or "
            "another draw as in ou~3"
        )
    source = SOURCES[found["name"]]
    changes = Changes(
        found["name"],
        float(found["lead"] or source.lead or HEADLINE_LEAD),
        float(found["factor"] or 1.0),
        found["std"] is not None,
        None if found["origin"] is None else int(found["origin"]),
        None if found["draw"] is None else int(found["draw"]),
    )
    where = f"corpus {corpus_id!r}"
    if changes.origin is not None and not source.origins:
        rolling = [name for name, other in SOURCES.items() if other.origins]
        has = "has" if len(rolling) == 1 else "have"
        raise ValueError(f"{where}: only {', '.join(rolling)} {has} rolling origins")
    if changes.origin is not None and changes.origin >= source.origins:
        raise ValueError(f"{where}: origins are numbered 0 to {source.origins - 1}")
    if (found["lead"] and source.lead is None) or (found["draw"] and not source.redrawn):
        fixed = {"one lead": source.lead is None, "one series": not source.redrawn}
        parts = " and ".join(what for what, is_so in fixed.items() if is_so)
        raise ValueError(f"{where}: {source.name} has {parts}")
    if (found["factor"] or found["std"]) and source.scaled is None:
        raise ValueError(f"{where}: {source.name} has no target that is scaled")
    if changes.factor == 0.0:
        raise ValueError(f"{where}: a target times 0 holds nothing to learn")
    return changes


def problem(corpus_id: str, protocol: Protocol) -> Problem:
    """The problem behind an id."""
    changes = read_id(corpus_id)
    source = SOURCES[changes.name]
    draw = protocol.corpus_seed if changes.draw is None else changes.draw
    asked = Asked(changes.lead, draw, protocol.corpus_windows)
    with _DRAWING:
        X, Y, corpus = source.labelled(asked)
    return Problem(
        corpus_id,
        X,
        Y,
        changes.factor,
        changes.standardise,
        changes.origin,
        corpus,
        source,
        asked,
    )


def true_var(of: Problem, protocol: Protocol) -> np.ndarray | None:
    """V* of every window in the problem's own units, or None where no law is known."""
    if of.source.true_var is None or of.standardise:
        return None
    with _DRAWING:
        base = of.source.true_var(of.asked, protocol.truth_members)
    return base * of.factor**2


# The paper's corpora


@lru_cache(maxsize=32)
def _drawn(name: str, asked: Asked) -> Corpus:
    drawn = ou.draw if name == "ou" else lorenz63.draw
    return drawn(n=asked.windows, lead=asked.lead, seed=asked.seed)


def _simulated(asked: Asked, *, name: str) -> Labelled:
    corpus = _drawn(name, asked)
    return Labelled(corpus.X, corpus.Y, corpus)


@lru_cache(maxsize=16)
def _true_var(asked: Asked, members: int, *, name: str) -> np.ndarray:
    corpus = _drawn(name, asked)
    if isinstance(corpus, lorenz63.Lorenz63):
        return corpus.true_var(corpus.X, members=members)
    return corpus.true_var(corpus.X)


@lru_cache(maxsize=1)
def _series() -> Labelled:
    windows = pm25.load()
    return Labelled(windows.X, windows.Y)


def _windows_of_series(asked: Asked) -> Labelled:
    return _series()


def _by_time(n: int, seed: int) -> Split:
    return chronological_split(n)


for _name in ("ou", "lorenz63"):
    register_corpus(
        Source(
            _name,
            tasks=questions,
            load=partial(_simulated, name=_name),
            lead=HEADLINE_LEAD,
            redrawn=True,
            scaled=STATE,
            true_var=partial(_true_var, name=_name),
            scoring=PAPER,
        )
    )
register_corpus(
    Source(
        "pm25",
        tasks=questions,
        load=_windows_of_series,
        split=_by_time,
        origins=ORIGINS,
        scaled=STATE,
        scoring=PAPER,
    )
)
