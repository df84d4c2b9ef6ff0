"""What a peer is asked and what it returns, so that all forecasters are scored by the same code.

A peer answers one question at a time:

    peer.select(train, valid)   train on one part; when to stop, and scales, come from the other
    peer.refit(rows)            train again on both parts with what was found, from the start
    peer.law(X)                 a law of scrollmt for every row

`forecast` tries the settings of a peer, keeps the one with the lowest validation NLL, refits it on
all rows and returns its law on the test inputs. With `refit=False` the peer stays as the training
part has made it, as the arms of the paper do. A `JointPeer` answers all questions at once
(`forecast_jointly`). Test labels are not among the arguments of either.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, final

import numpy as np

from scrollmt import scores
from scrollmt.heads import AbstractHead, Categorical, Censored, Event, Ordinal, Real
from scrollmt.laws import (
    CategoricalLaw,
    CensoredLaw,
    DiscreteLaw,
    EventLaw,
    GaussianLaw,
    Law,
    MixtureLaw,
    OrdinalLaw,
    RealLaw,
)


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
    """One of R classes, ordered or not; two ordered classes are an event."""

    kind = "classes"
    count: int
    ordered: bool = True

    @property
    def head(self) -> AbstractHead:
        if not self.ordered:
            return Categorical(self.count)
        return Event() if self.count == 2 else Ordinal(self.count)

    def law(self, log_probs: np.ndarray) -> DiscreteLaw:
        """The law of log probabilities (N, R)."""
        log_probs = np.asarray(log_probs, np.float64)
        if not self.ordered:
            return CategoricalLaw(log_probs)
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
    kind: type[Peer],
    asked: Question,
    train: Rows,
    valid: Rows,
    X_test: np.ndarray,
    seed: int,
    *,
    refit: bool = True,
) -> tuple[Law, Mapping[str, Any]]:
    """The law on the test inputs, and the setting that validation selected.

    `refit` trains that setting once more, on the training and the validation part together.
    """
    with limited(threads(len(train))):
        best: tuple[float, Peer] | None = None
        for setting in kind.settings:
            peer = kind(asked, seed, **setting)
            peer.select(train, valid)
            nll = float(np.mean(scores.nll(peer.law(valid.X), valid.y)))
            if best is None or _improves(nll, best[0]):
                best = nll, peer
        assert best is not None
        chosen = best[1]
        if refit:
            both = np.concatenate([train.X, valid.X]), np.concatenate([train.y, valid.y])
            chosen.refit(Rows(*both))
        return chosen.law(X_test), chosen.setting


def _improves(nll: float, best: float) -> bool:
    # A candidate that failed numerically is none; the first one stands in if all did.
    return nll < best or not np.isfinite(best)


@contextmanager
def limited(count: int) -> Iterator[None]:
    """No more threads than this in what is computed inside."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits({"openmp": count, "blas": 1}):
        yield


class Table(NamedTuple):
    """Inputs (N, D), and the labels (N,) of every question; a missing one is NaN."""

    X: np.ndarray
    Y: Mapping[str, np.ndarray]

    def __len__(self) -> int:  # the number of rows, not of fields
        return len(self.X)

    def rows(self, name: str) -> Rows:
        """The rows that have a label for one question."""
        y = np.asarray(self.Y[name], np.float64)
        known = ~np.isnan(y)
        return Rows(self.X[known], y[known])


class JointPeer(abc.ABC):
    """A forecaster of all questions at once; a new one is made for every setting."""

    # What is tried; validation selects.
    settings: ClassVar[tuple[Mapping[str, Any], ...]] = ({},)

    def __init__(self, asked: Mapping[str, Any], seed: int, **setting: Any):
        self.asked, self.seed, self.setting = asked, seed, setting

    @abc.abstractmethod
    def select(self, train: Table, valid: Table) -> None:
        """Train on one part; stop where the other's NLL, summed over questions, is best."""

    @abc.abstractmethod
    def laws(self, X: np.ndarray) -> dict[str, Law]: ...


def summed_nll(laws: Mapping[str, Law], Y: Mapping[str, np.ndarray]) -> float:
    """The mean NLL of each question over the rows that have its label, summed over questions."""
    return sum(float(scores.average(scores.nll(law, Y[name]))) for name, law in laws.items())


def forecast_jointly(
    kind: type[JointPeer],
    asked: Mapping[str, Question],
    train: Table,
    valid: Table,
    X_test: np.ndarray,
    seed: int,
) -> tuple[dict[str, Law], Mapping[str, Any]]:
    """The laws on the test inputs, and the setting that validation selected; without a refit."""
    with limited(threads(len(train))):
        best: tuple[float, JointPeer] | None = None
        for setting in kind.settings:
            peer = kind(asked, seed, **setting)
            peer.select(train, valid)
            nll = summed_nll(peer.laws(valid.X), valid.Y)
            if best is None or _improves(nll, best[0]):
                best = nll, peer
        assert best is not None
        return best[1].laws(X_test), best[1].setting


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

    def law(self, probs: np.ndarray) -> DiscreteLaw:
        """The law over all classes, given the probabilities (N, S) of those seen."""
        unseen = self.asked.count - len(self.seen)
        share = 1.0 / (self.rows + self.asked.count)
        full = np.full((len(probs), self.asked.count), share)
        full[:, self.seen] = probs * (1.0 - unseen * share)
        with np.errstate(divide="ignore"):
            return self.asked.law(np.log(full / full.sum(1, keepdims=True)))
