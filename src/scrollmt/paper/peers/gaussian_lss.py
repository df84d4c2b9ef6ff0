"""XGBoostLSS: boosted trees for the mean and the sd of a Gaussian law, stopped on validation."""

from __future__ import annotations

import warnings

import numpy as np
import xgboost
from xgboostlss.distributions.Gaussian import Gaussian
from xgboostlss.model import XGBoostLSS

from scrollmt.laws import Law

from .boosting import PATIENCE
from .protocol import Peer, Rows, Standardised, threads

MOST_TREES = 1000


class XGBoostLSSValue(Peer):
    """Targets are standardised, since its starting values are near a standard normal law."""

    trees = MOST_TREES
    settings = (
        {"max_depth": 2},
        {"max_depth": 3, "subsample": 0.8, "lambda": 5.0},
        {"max_depth": 5},
    )

    def select(self, train: Rows, valid: Rows) -> None:
        self._train(train, valid)

    def refit(self, rows: Rows) -> None:
        self._train(rows, None)

    def _train(self, rows: Rows, valid: Rows | None) -> None:
        self.scale = Standardised(rows)
        self.model = XGBoostLSS(Gaussian(stabilization="None", response_fn="exp", loss_fn="nll"))
        params = {
            "eta": 0.05,
            "seed": self.seed,
            "min_child_weight": 5.0,
            "nthread": threads(len(rows)),
            **self.setting,
        }
        data = self._matrix(rows)
        with warnings.catch_warnings():
            # It reads numbers off tensors in a way that the newest torch warns of.
            warnings.simplefilter("ignore")
            if valid is None:
                self.model.train(params, data, self.trees, verbose_eval=False)
                return
            seen: dict[str, dict[str, list[float]]] = {}
            self.model.train(
                params,
                data,
                MOST_TREES,
                # It wants two sets, and stops by the last one.
                evals=[(data, "train"), (self._matrix(valid), "valid")],
                early_stopping_rounds=PATIENCE,
                evals_result=seen,
                verbose_eval=False,
            )
            (losses,) = seen["valid"].values()
            self.trees = 1 + int(np.argmin(losses))
            self.model = XGBoostLSS(
                Gaussian(stabilization="None", response_fn="exp", loss_fn="nll")
            )
            self.model.train(params, data, self.trees, verbose_eval=False)

    def _matrix(self, rows: Rows) -> xgboost.DMatrix:
        return xgboost.DMatrix(rows.X, label=self.scale.targets(rows.y))

    def law(self, X: np.ndarray) -> Law:
        found = self.model.predict(xgboost.DMatrix(X), pred_type="parameters")
        mean, sd = found["loc"].to_numpy(), found["scale"].to_numpy()
        scale = self.scale
        return self.asked.law(scale.y_mean + scale.y_sd * mean, scale.y_sd * sd)
