"""NGBoost with its own tree, stopped on validation: Normal, Bernoulli and categorical laws."""

from __future__ import annotations

from typing import Any

import numpy as np
from ngboost import NGBClassifier, NGBRegressor
from ngboost.distns import Bernoulli, Normal, k_categorical
from ngboost.learners import default_tree_learner
from sklearn.base import clone

from scrollmt.laws import Law

from .boosting import MOST_TREES, PATIENCE, BoostedClasses
from .protocol import Peer, Rows

RATES = ({"learning_rate": 0.01}, {"learning_rate": 0.04})


def _trained(kind: Any, dist: Any, peer: Any, rows: Rows, valid: Rows | None) -> Any:
    # A seed of its own: ties between splits are otherwise broken by NumPy's global state.
    tree = clone(default_tree_learner).set_params(random_state=peer.seed)
    model = kind(
        Dist=dist,
        Base=tree,
        n_estimators=MOST_TREES if valid is not None else peer.trees,
        random_state=peer.seed,
        verbose=False,
        **peer.setting,
    )
    if valid is None:
        return model.fit(rows.X, rows.y)
    model.fit(rows.X, rows.y, X_val=valid.X, Y_val=valid.y, early_stopping_rounds=PATIENCE)
    best = model.best_val_loss_itr
    peer.trees = MOST_TREES if best is None else max(1, best + 1)
    return model


class NGBoostValue(Peer):
    """A Normal law."""

    settings = RATES
    trees = MOST_TREES

    def select(self, train: Rows, valid: Rows) -> None:
        self.model = _trained(NGBRegressor, Normal, self, train, valid)

    def refit(self, rows: Rows) -> None:
        self.model = _trained(NGBRegressor, Normal, self, rows, None)

    def law(self, X: np.ndarray) -> Law:
        found = self.model.pred_dist(X, max_iter=self.trees).params
        return self.asked.law(found["loc"], found["scale"])


class NGBoostClasses(BoostedClasses):
    """A Bernoulli or categorical law."""

    settings = RATES

    def train(self, rows: Rows, valid: Rows | None) -> None:
        count = len(self.codes.seen)
        dist = Bernoulli if count == 2 else k_categorical(count)
        self.model = _trained(NGBClassifier, dist, self, rows, valid)

    def probs(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(self.model.predict_proba(X, max_iter=self.trees))
