"""What a peer is asked and what it returns, so that all forecasters are scored by the same code.

A peer answers one question at a time:

    peer.select(train, valid)   train on one part; when to stop, and scales, come from the other
    peer.refit(rows)            train again on both parts with what was found, from the start
    peer.law(X)                 a law of scrollmt for every row

`forecast` tries the settings of a peer, keeps the one with the lowest validation NLL, refits it on
all rows and returns its law on the test inputs. Test labels are not among its arguments.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, final

import numpy as np
from threadpoolctl import threadpool_limits

from scrollmt import scores
from scrollmt.heads import AbstractHead, Censored, Event, Ordinal, Real
from scrollmt.laws import CensoredLaw, EventLaw, GaussianLaw, Law, MixtureLaw, OrdinalLaw, RealLaw


class Rows(NamedTuple):
    """Inputs (N, D) and the labels of one question (N,)."""

    X: np.ndarray
    y: np.ndarray

    def __len__(self) -> int:  # the number of rows, not of fields
        return len(self.X)


class Question(abc.ABC):
    """What is asked: the head for scrollmt's own models, and laws for the peers."""

    kind: ClassVar[str]

    @property
    @abc.abstractmethod
    def head(self) -> AbstractHead:
        """The head that answers it."""


@final
@dataclass(frozen=True)
class Value(Question):
    """A number; with limits, one that is only known to lie beyond them where it does."""

    kind = "value"
    limits: tuple[float, float] | None = None

    @property
    def head(self) -> AbstractHead:
        return Real() if self.limits is None else Censored(*self.limits)

    def law(self, mean: np.ndarray, sd: np.ndarray) -> Law:
        """Gaussian laws: of means and sds (N,), or mixtures of M of them by rows (M, N)."""
        mean, sd = (np.atleast_2d(np.asarray(one, np.float64)) for one in (mean, sd))
        laws: list[RealLaw] = [self._seen(GaussianLaw(*one)) for one in zip(mean, sd, strict=True)]
        return laws[0] if len(laws) == 1 else MixtureLaw(laws)

    def _seen(self, law: GaussianLaw) -> RealLaw:
        # What a Gaussian law puts beyond a limit is seen at the limit.
        return law if self.limits is None else CensoredLaw(law, *self.limits)


@final
@dataclass(frozen=True)
class Classes(Question):
    """One of R ordered classes; two classes are an event."""

    kind = "classes"
    count: int

    @property
    def head(self) -> AbstractHead:
        return Event() if self.count == 2 else Ordinal(self.count)

    def law(self, log_probs: np.ndarray) -> Law:
        """The law of log probabilities (N, R)."""
        log_probs = np.asarray(log_probs, np.float64)
        return EventLaw(log_probs) if self.count == 2 else OrdinalLaw(log_probs)


def threads(rows: int) -> int:
    """How many threads share the rows; with few rows they would mostly wait for each other."""
    return 1 if rows < 5000 else 2


class Peer(abc.ABC):
    """A forecaster of one question; a new one is made for every setting."""

    # What is tried; validation selects.
    settings: ClassVar[tuple[Mapping[str, Any], ...]] = ({},)

    def __init__(self, asked: Any, seed: int, **setting: Any):
        self.asked, self.seed, self.setting = asked, seed, setting

    @abc.abstractmethod
    def select(self, train: Rows, valid: Rows) -> None: ...

    @abc.abstractmethod
    def refit(self, rows: Rows) -> None: ...

    @abc.abstractmethod
    def law(self, X: np.ndarray) -> Law: ...


def forecast(
    kind: type[Peer], asked: Question, train: Rows, valid: Rows, X_test: np.ndarray, seed: int
) -> tuple[Law, Mapping[str, Any]]:
    """The law on the test inputs, and the setting that validation selected."""
    with threadpool_limits({"openmp": threads(len(train)), "blas": 1}):
        return _forecast(kind, asked, train, valid, X_test, seed)


def _forecast(
    kind: type[Peer], asked: Question, train: Rows, valid: Rows, X_test: np.ndarray, seed: int
) -> tuple[Law, Mapping[str, Any]]:
    best: tuple[float, Peer] | None = None
    for setting in kind.settings:
        peer = kind(asked, seed, **setting)
        peer.select(train, valid)
        nll = float(np.mean(scores.nll(peer.law(valid.X), valid.y)))
        # A candidate that failed numerically is none; the first one stands in if all did.
        if best is None or nll < best[0] or not np.isfinite(best[0]):
            best = nll, peer
    assert best is not None
    chosen = best[1]
    chosen.refit(Rows(np.concatenate([train.X, valid.X]), np.concatenate([train.y, valid.y])))
    return chosen.law(X_test), chosen.setting


class Standardised:
    """Inputs and targets over the mean and sd of the rows given; constant columns become zero."""

    def __init__(self, rows: Rows):
        self.mean, self.sd = rows.X.mean(0), rows.X.std(0)
        self.sd = np.where(self.sd > 1e-12 * (1.0 + np.abs(self.mean)), self.sd, np.inf)
        self.y_mean, self.y_sd = float(np.mean(rows.y)), float(np.std(rows.y)) or 1.0

    def inputs(self, X: np.ndarray) -> np.ndarray:
        return (X - self.mean) / self.sd

    def targets(self, y: np.ndarray) -> np.ndarray:
        return (y - self.y_mean) / self.y_sd


class ClassCodes:
    """Classes that the training rows have, as 0, 1, ...; the others get one row's share of mass."""

    def __init__(self, asked: Classes, y: np.ndarray):
        self.asked, self.rows = asked, len(y)
        self.seen = np.unique(y.astype(int))

    def code(self, y: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.seen, y.astype(int))

    def known(self, y: np.ndarray) -> np.ndarray:
        """Which labels are of a class that the training rows have."""
        return np.isin(y.astype(int), self.seen)

    def law(self, probs: np.ndarray) -> Law:
        """The law over all classes, given the probabilities (N, S) of those seen."""
        unseen = self.asked.count - len(self.seen)
        share = 1.0 / (self.rows + self.asked.count)
        full = np.full((len(probs), self.asked.count), share)
        full[:, self.seen] = probs * (1.0 - unseen * share)
        with np.errstate(divide="ignore"):
            return self.asked.law(np.log(full / full.sum(1, keepdims=True)))
