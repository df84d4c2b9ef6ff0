"""What a user would pick instead, on the PM2.5 windows: each returns the law of one task.

Every choice (a penalty, a tree's size, when to stop) is made on the validation part, which is
also where a point forecast gets its sd; nothing is chosen on test windows. Inputs are
standardised with the training part for the linear models and left alone for trees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
from ngboost import NGBClassifier, NGBRegressor
from ngboost.distns import Bernoulli, Normal, k_categorical
from ngboost.learners import default_tree_learner
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from scrollmt import EventLaw, GaussianLaw, OrdinalLaw, scores
from scrollmt.laws import Law
from scrollmt.windows import Parts

KINDS: dict[str, Any] = {"event": EventLaw, "regime": OrdinalLaw}
TREES = [
    {"learning_rate": rate, "max_leaf_nodes": leaves, "l2_regularization": penalty}
    for rate, leaves, penalty in product((0.05,), (3, 8, 31), (0.0, 10.0))
]
PENALTIES = np.logspace(-4, 3, 15)


def _labels(parts: Parts, task: str) -> tuple[np.ndarray, np.ndarray]:
    train, valid = (part.Y[task] for part in (parts.train, parts.valid))
    return (train, valid) if task == "state" else (train.astype(int), valid.astype(int))


def _best(candidates: Iterator[tuple[float, Law]]) -> Law:
    """The test law of the candidate with the lowest validation NLL."""
    return min(candidates, key=lambda pair: pair[0])[1]


def _with_residual_sd(valid_y: np.ndarray, on_valid: np.ndarray, on_test: np.ndarray) -> Any:
    """Validation NLL and test law of a point forecast, with the sd of its validation errors."""
    sd = float(np.sqrt(np.mean((valid_y - on_valid) ** 2)))
    nll = scores.nll(GaussianLaw(on_valid, np.full(len(on_valid), sd)), valid_y).mean()
    return nll, GaussianLaw(on_test, np.full(len(on_test), sd))


def _of_classes(
    kind: Any, valid_y: np.ndarray, on_valid: np.ndarray, on_test: np.ndarray
) -> tuple[float, Law]:
    nll = scores.nll(kind(np.log(on_valid)), valid_y).mean()
    return float(nll), kind(np.log(on_test))


def linear(parts: Parts, task: str) -> Law:
    """Ridge with the sd of its validation errors; logistic and multinomial regression."""
    train_y, valid_y = _labels(parts, task)

    def candidates() -> Iterator[tuple[float, Law]]:
        if task == "state":
            model = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-2, 4, 25)))
            model.fit(parts.train.X, train_y)
            on = [model.predict(part.X) for part in (parts.valid, parts.test)]
            yield _with_residual_sd(valid_y, *on)
            return
        for C in PENALTIES:
            model = make_pipeline(StandardScaler(), LogisticRegression(C=C, max_iter=5000))
            model.fit(parts.train.X, train_y)
            on = [model.predict_proba(part.X) for part in (parts.valid, parts.test)]
            yield _of_classes(KINDS[task], valid_y, *on)

    return _best(candidates())


def histogram_boosting(parts: Parts, task: str) -> Law:
    """Histogram gradient boosting: settings and number of trees by validation."""
    # A thousand windows are too few to share: threads would wait for each other most of the time.
    with threadpool_limits(1, "openmp"):
        return _histogram_boosting(parts, task)


def _histogram_boosting(parts: Parts, task: str) -> Law:
    train_y, valid_y = _labels(parts, task)

    def candidates() -> Iterator[tuple[float, Law]]:
        for settings in TREES:
            common = {**settings, "max_iter": 250, "early_stopping": False, "random_state": 0}
            if task == "state":
                value = HistGradientBoostingRegressor(**common).fit(parts.train.X, train_y)
                stages = zip(
                    value.staged_predict(parts.valid.X),
                    value.staged_predict(parts.test.X),
                    strict=True,
                )
                yield min((_with_residual_sd(valid_y, *on) for on in stages), key=_first)
            else:
                model = HistGradientBoostingClassifier(**common).fit(parts.train.X, train_y)
                stages = zip(
                    model.staged_predict_proba(parts.valid.X),
                    model.staged_predict_proba(parts.test.X),
                    strict=True,
                )
                kind = KINDS[task]
                yield min((_of_classes(kind, valid_y, *on) for on in stages), key=_first)

    return _best(candidates())


def _first(pair: tuple[float, Law]) -> float:
    return pair[0]


def ngboost(parts: Parts, task: str) -> Law:
    """NGBoost with its own defaults, stopped on validation: Normal, Bernoulli, categorical."""
    train_y, valid_y = _labels(parts, task)
    # Its own tree, with a seed: ties between splits are otherwise broken by NumPy's global state.
    tree = clone(default_tree_learner).set_params(random_state=0)
    common: dict[str, Any] = {"n_estimators": 2000, "verbose": False, "Base": tree}
    stop: dict[str, Any] = {
        "X_val": parts.valid.X,
        "Y_val": valid_y,
        "early_stopping_rounds": 50,
    }

    def candidates() -> Iterator[tuple[float, Law]]:
        for rate in (0.01, 0.03):
            if task == "state":
                model = NGBRegressor(Dist=Normal, learning_rate=rate, **common)
                model.fit(parts.train.X, train_y, **stop)
                valid, test = (
                    model.pred_dist(part.X, max_iter=model.best_val_loss_itr).params
                    for part in (parts.valid, parts.test)
                )
                on_valid = GaussianLaw(valid["loc"], valid["scale"])
                nll = float(scores.nll(on_valid, valid_y).mean())
                yield nll, GaussianLaw(test["loc"], test["scale"])
            else:
                dist = Bernoulli if task == "event" else k_categorical(4)
                model = NGBClassifier(Dist=dist, learning_rate=rate, **common)
                model.fit(parts.train.X, train_y, **stop)
                on = [
                    model.predict_proba(part.X, max_iter=model.best_val_loss_itr)
                    for part in (parts.valid, parts.test)
                ]
                yield _of_classes(KINDS[task], valid_y, *on)

    return _best(candidates())


BASELINES: dict[str, Callable[[Parts, str], Law]] = {
    "linear": linear,
    "histogram boosting": histogram_boosting,
    "ngboost": ngboost,
}
