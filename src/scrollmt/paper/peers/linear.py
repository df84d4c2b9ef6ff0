"""Linear peers: ridge regression with one sd, logistic and multinomial regression."""

from __future__ import annotations

import numpy as np
from sklearn.linear_model import LogisticRegression, Ridge

from scrollmt.laws import Law

from .protocol import ClassCodes, Peer, Rows, Standardised


class RidgeValue(Peer):
    """Ridge; the sd is that of the validation errors."""

    settings = tuple({"alpha": float(alpha)} for alpha in np.logspace(-3, 4, 15))

    def select(self, train: Rows, valid: Rows) -> None:
        self.refit(train)
        self.sd = float(np.sqrt(np.mean((valid.y - self._mean(valid.X)) ** 2)))

    def refit(self, rows: Rows) -> None:
        self.scale = Standardised(rows)
        self.model = Ridge(**self.setting).fit(self.scale.inputs(rows.X), rows.y)

    def law(self, X: np.ndarray) -> Law:
        return self.asked.law(self._mean(X), np.full(len(X), self.sd))

    def _mean(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(self.model.predict(self.scale.inputs(X)))


class Logistic(Peer):
    """Logistic regression; multinomial for more than two classes."""

    settings = tuple({"C": float(C)} for C in np.logspace(-4, 2, 7))

    def select(self, train: Rows, valid: Rows) -> None:
        self.refit(train)

    def refit(self, rows: Rows) -> None:
        self.scale, self.codes = Standardised(rows), ClassCodes(self.asked, rows.y)
        self.model = None
        if len(self.codes.seen) > 1:
            self.model = LogisticRegression(**self.setting, max_iter=1000)
            self.model.fit(self.scale.inputs(rows.X), self.codes.code(rows.y))

    def law(self, X: np.ndarray) -> Law:
        if self.model is None:
            return self.codes.law(np.ones((len(X), 1)))
        return self.codes.law(self.model.predict_proba(self.scale.inputs(X)))
