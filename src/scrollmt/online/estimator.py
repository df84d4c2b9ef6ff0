"""The methods of an estimator that goes on learning after its fit."""

from __future__ import annotations

import abc
from typing import Any, Self

from scrollmt._scoring.judging import AbstractScorer
from scrollmt.online import passes, state
from scrollmt.online.bank import Bank


class AbstractLearner(AbstractScorer):
    """An estimator with members that new rows update.

    `online_` is what it has learned since its fit, None before the first update.
    """

    members_: list[Any]
    online_: state.State | None = None
    # What an update starts from, and the training rows that it is computed from when asked for.
    _start_: state.Start | None = None
    _sample_: state.Sample | None = None

    @abc.abstractmethod
    def fit(self, X: Any, Y: Any = None, sample_weight: Any = None) -> Any:
        """Fit all tasks in one pass."""

    @abc.abstractmethod
    def __sklearn_is_fitted__(self) -> bool: ...

    def update(
        self,
        X: Any,
        Y: Any = None,
        sample_weight: Any = None,
        *,
        age: Any = None,
        bank: Bank | None = None,
    ) -> Self:
        """A model that has also learned from new rows, in their order; this one is unchanged.

        One pass, without descent over old rows. Labels may be missing; `update(windows)` takes
        them from `Windows`, and `age` is for labels that come late. See `scrollmt.online`;
        `online.filter` has the forecasts along it.
        """
        updated: Self = passes.update(self, X, Y, sample_weight, age=age, bank=bank)
        return updated

    def partial_fit(
        self, X: Any, Y: Any = None, sample_weight: Any = None, *, classes: Any = None
    ) -> Self:
        """Learn from new rows in place, as scikit-learn has it; the first call fits.

        `classes` is what scikit-learn hands to classifiers, and has no effect: heads know theirs.
        """
        if not self.__sklearn_is_fitted__():
            fitted: Self = self.fit(X, Y, sample_weight)
            return fitted
        self.online_ = self.update(X, Y, sample_weight).online_
        return self

    def _start(self) -> state.Start | None:
        """What an update starts from, computed once from a sample of the training rows."""
        if self._start_ is None and self._sample_ is not None:
            self._start_ = state.start(self.members_, self._sample_)
        return self._start_
