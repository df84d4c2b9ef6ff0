"""Recalibration beside crepes and MAPIE: coverage and width of intervals on synthetic values.

    python benchmarks/calibration.py

Values y ~ N(x, s(x)^2) with s(x) = 0.5 + |x|, predicted by laws of half the sd. All ways get the
same 500 calibration labels; coverage and width of 90 percent intervals are means over 2,000 fresh
labels and ten seeds. Needs the extra `bench`.
"""

from __future__ import annotations

import importlib.util

import numpy as np

from scrollmt._scoring.recalibration import Evidence, learned, statement
from scrollmt.laws import GaussianLaw

LABELS, FRESH, SEEDS, LEVEL = 500, 2_000, 10, 0.9
Interval = tuple[np.ndarray, np.ndarray]


def ours(way: str, law: GaussianLaw, y: np.ndarray) -> Interval:
    fresh = law[LABELS:]
    if way == "none":
        return fresh.interval(LEVEL)
    said = statement(law[:LABELS], y[:LABELS])
    evidence = Evidence("number", said, y[:LABELS], np.ones(LABELS))
    found = learned(evidence, conformal=way == "conformal")
    return found.of(fresh).interval(LEVEL)  # type: ignore[arg-type, union-attr, return-value]


def crepes(law: GaussianLaw, y: np.ndarray) -> Interval:
    """Normalised conformal regression, with the laws' sds as difficulties."""
    from crepes import ConformalRegressor

    residuals = y[:LABELS] - law.mean[:LABELS]
    found = ConformalRegressor().fit(residuals=residuals, sigmas=law.sd[:LABELS])
    table = found.predict_int(y_hat=law.mean[LABELS:], sigmas=law.sd[LABELS:], confidence=LEVEL)
    return table[:, 0], table[:, 1]


def mapie(law: GaussianLaw, y: np.ndarray) -> Interval:
    """Split conformal regression with absolute residuals, which knows no sds."""
    from mapie.regression import SplitConformalRegressor
    from sklearn.base import BaseEstimator, RegressorMixin

    class Mean(RegressorMixin, BaseEstimator):
        """The laws' means, which are the inputs themselves."""

        def fit(self, X: np.ndarray, y: np.ndarray) -> Mean:
            self.n_features_in_ = X.shape[1]
            return self

        def predict(self, X: np.ndarray) -> np.ndarray:
            return X[:, 0]

    X = law.mean[:, None]
    found = SplitConformalRegressor(Mean().fit(X, y), confidence_level=LEVEL, prefit=True)
    found.conformalize(X[:LABELS], y[:LABELS])
    table = found.predict_interval(X[LABELS:])[1]
    return table[:, 0, 0], table[:, 1, 0]


def main() -> None:
    ways = {
        f"scrollmt, {way}": lambda law, y, way=way: ours(way, law, y)
        for way in ("none", "isotonic", "conformal")
    }
    for name, way in {"crepes": crepes, "mapie": mapie}.items():
        if importlib.util.find_spec(name) is None:
            print(f"{name} is not installed and left out")
        else:
            ways[name] = way
    print(f"{'way':22s} {'coverage':>9s} {'width':>7s} {'coverage, |x| > 1':>18s}")
    for name, way in ways.items():
        lines = []
        for seed in range(SEEDS):
            rng = np.random.default_rng(seed)
            x = rng.normal(size=LABELS + FRESH)
            sd = 0.5 + np.abs(x)
            y, law = x + sd * rng.normal(size=len(x)), GaussianLaw(x, 0.5 * sd)
            lower, upper = way(law, y)
            inside = (y[LABELS:] >= lower) & (y[LABELS:] <= upper)
            far = np.abs(x[LABELS:]) > 1.0
            lines.append((inside.mean(), np.mean(upper - lower), inside[far].mean()))
        coverage, width, beyond = np.mean(lines, axis=0)
        print(f"{name:22s} {coverage:9.3f} {width:7.2f} {beyond:18.3f}")


if __name__ == "__main__":
    main()
