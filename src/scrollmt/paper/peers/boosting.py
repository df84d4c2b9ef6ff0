"""Boosted trees: LightGBM, CatBoost and scikit-learn's histogram boosting, stopped on validation.

The number of trees is found on the validation part and kept for the refit on all rows.
"""

from __future__ import annotations

from abc import abstractmethod
from itertools import product
from typing import Any

import catboost
import lightgbm
import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

from scrollmt.laws import Law

from .protocol import ClassCodes, Peer, Rows, threads

MOST_TREES, PATIENCE = 2000, 50
LEAVES = tuple(
    {"num_leaves": leaves, "lambda_l2": l2} for leaves, l2 in product((4, 15, 31), (1.0,))
)
DEPTHS = ({"depth": 3}, {"depth": 6})


class BoostedClasses(Peer):
    """Trees over classes; subclasses train and predict."""

    def select(self, train: Rows, valid: Rows) -> None:
        self.codes = ClassCodes(self.asked, train.y)
        self.trees = 1
        self.model: Any = None
        known = self.codes.known(valid.y)
        if len(self.codes.seen) > 1:
            coded = Rows(train.X, self.codes.code(train.y))
            self.train(coded, Rows(valid.X[known], self.codes.code(valid.y[known])))

    def refit(self, rows: Rows) -> None:
        self.codes = ClassCodes(self.asked, rows.y)
        if len(self.codes.seen) > 1:
            self.train(Rows(rows.X, self.codes.code(rows.y)), None)

    def law(self, X: np.ndarray) -> Law:
        if self.model is None:
            return self.codes.law(np.ones((len(X), 1)))
        return self.codes.law(self.probs(X))

    @abstractmethod
    def train(self, rows: Rows, valid: Rows | None) -> None:
        """Set `model`, and with a validation part `trees`."""

    @abstractmethod
    def probs(self, X: np.ndarray) -> np.ndarray: ...


def _lightgbm(
    params: dict[str, Any], seed: int, rows: Rows, valid: Rows | None, trees: int
) -> lightgbm.Booster:
    params = {
        "learning_rate": 0.05,
        "min_data_in_leaf": 10,
        "num_threads": threads(len(rows)),
        "verbose": -1,
        "seed": seed,
        "deterministic": True,
        "force_col_wise": True,
        **params,
    }
    data = lightgbm.Dataset(rows.X, rows.y)
    if valid is None:
        return lightgbm.train(params, data, num_boost_round=trees)
    stop = lightgbm.early_stopping(PATIENCE, verbose=False)
    judged = lightgbm.Dataset(valid.X, valid.y, reference=data)
    return lightgbm.train(params, data, MOST_TREES, valid_sets=[judged], callbacks=[stop])


class LightGBMValue(Peer):
    """LightGBM for the mean; the sd is that of the validation errors."""

    settings = LEAVES

    def select(self, train: Rows, valid: Rows) -> None:
        params = {"objective": "regression", **self.setting}
        self.model = _lightgbm(params, self.seed, train, valid, MOST_TREES)
        self.trees = max(1, self.model.best_iteration)
        self.sd = float(np.sqrt(np.mean((valid.y - self.model.predict(valid.X)) ** 2)))

    def refit(self, rows: Rows) -> None:
        params = {"objective": "regression", **self.setting}
        self.model = _lightgbm(params, self.seed, rows, None, self.trees)

    def law(self, X: np.ndarray) -> Law:
        return self.asked.law(self.model.predict(X), np.full(len(X), self.sd))


class LightGBMClasses(BoostedClasses):
    """LightGBM's classifier."""

    settings = LEAVES

    def train(self, rows: Rows, valid: Rows | None) -> None:
        count = len(self.codes.seen)
        objective: dict[str, Any] = {"objective": "binary"}
        if count > 2:
            objective = {"objective": "multiclass", "num_class": count}
        self.model = _lightgbm({**objective, **self.setting}, self.seed, rows, valid, self.trees)
        self.trees = self.trees if valid is None else max(1, self.model.best_iteration)

    def probs(self, X: np.ndarray) -> np.ndarray:
        probs = np.asarray(self.model.predict(X))
        return np.stack([1.0 - probs, probs], axis=1) if probs.ndim == 1 else probs


def _catboost(kind: Any, peer: Any, loss: str, rows: Rows, valid: Rows | None) -> Any:
    model = kind(
        loss_function=loss,
        iterations=MOST_TREES if valid is not None else peer.trees,
        learning_rate=0.05,
        random_seed=peer.seed,
        thread_count=threads(len(rows)),
        allow_writing_files=False,
        verbose=False,
        **peer.setting,
    )
    if valid is None:
        return model.fit(rows.X, rows.y)
    model.fit(rows.X, rows.y, eval_set=(valid.X, valid.y), early_stopping_rounds=PATIENCE)
    peer.trees = max(1, model.tree_count_)
    return model


class CatBoostValue(Peer):
    """CatBoost with the loss RMSEWithUncertainty: a mean and a variance for every row."""

    settings = DEPTHS
    trees = MOST_TREES

    def select(self, train: Rows, valid: Rows) -> None:
        kind = catboost.CatBoostRegressor
        self.model = _catboost(kind, self, "RMSEWithUncertainty", train, valid)

    def refit(self, rows: Rows) -> None:
        kind = catboost.CatBoostRegressor
        self.model = _catboost(kind, self, "RMSEWithUncertainty", rows, None)

    def law(self, X: np.ndarray) -> Law:
        mean, var = self.model.predict(X, prediction_type="RMSEWithUncertainty").T
        return self.asked.law(mean, np.sqrt(var))


class CatBoostClasses(BoostedClasses):
    """CatBoost's classifier."""

    settings = DEPTHS

    def train(self, rows: Rows, valid: Rows | None) -> None:
        loss = "Logloss" if len(self.codes.seen) == 2 else "MultiClass"
        self.model = _catboost(catboost.CatBoostClassifier, self, loss, rows, valid)

    def probs(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(self.model.predict_proba(X))


class HistogramClasses(BoostedClasses):
    """Histogram gradient boosting of scikit-learn."""

    settings = tuple(
        {"max_leaf_nodes": leaves, "l2_regularization": l2}
        for leaves, l2 in product((3, 8, 31), (0.0, 10.0))
    )

    def train(self, rows: Rows, valid: Rows | None) -> None:
        trees = 250 if valid is not None else self.trees
        self.model = HistGradientBoostingClassifier(
            **self.setting,
            learning_rate=0.05,
            max_iter=trees,
            early_stopping=False,
            random_state=self.seed,
        ).fit(rows.X, rows.y)
        if valid is not None:
            each = np.arange(len(valid))
            with np.errstate(divide="ignore"):
                losses = [
                    -np.mean(np.log(probs[each, valid.y]))
                    for probs in self.model.staged_predict_proba(valid.X)
                ]
            self.trees = 1 + int(np.argmin(losses))
            # The model for the validation score has the number of trees that was found.
            self.train(rows, None)

    def probs(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(self.model.predict_proba(X))
