"""The default preset on few rows, and on data of a linear model: coverage and NLL.

    python benchmarks/small_data.py [--seeds 20] [--rows 12,25,50] [--linear 3]

Seven simple systems with normal noise of known sd. For each number of rows: coverage of 90 percent
intervals on 2,000 fresh rows (mean, standard error and lowest over seeds), and the NLL beyond that
of the true law, beside Bayesian ridge regression and least squares with its exact Student law. Then
1,000 rows of a linear system with 8 inputs: NLL beyond that of Bayesian ridge regression.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable

import numpy as np
from scipy import stats
from sklearn.linear_model import BayesianRidge

from scrollmt import Forecaster, Gaussian, GaussianLaw

FRESH, LEVEL = 2_000, 0.9
# Inputs (n, D), and the mean and the sd of the label given them.
Drawn = tuple[np.ndarray, np.ndarray, np.ndarray]
Scored = tuple[float, float]


def line(rng: np.random.Generator, n: int) -> Drawn:
    x = rng.normal(size=(n, 1))
    return x, 1.0 + 2.0 * x[:, 0], np.full(n, 0.5)


def plane(rng: np.random.Generator, n: int) -> Drawn:
    x = rng.normal(size=(n, 3))
    return x, x @ [1.0, -0.5, 0.25], np.full(n, 0.5)


def many_inputs(rng: np.random.Generator, n: int) -> Drawn:
    x = rng.normal(size=(n, 8))
    return x, x @ [1.0, -0.5, 0.25, 0.5, 0.0, 0.0, 0.0, 0.0], np.full(n, 0.5)


def sine(rng: np.random.Generator, n: int) -> Drawn:
    x = rng.uniform(-2.0, 2.0, size=(n, 3))
    return x, np.sin(2.0 * x[:, 0]) + 0.5 * x[:, 1], np.full(n, 0.3)


def step(rng: np.random.Generator, n: int) -> Drawn:
    x = rng.uniform(-1.0, 1.0, size=(n, 2))
    return x, np.where(x[:, 0] > 0.0, 1.0, -1.0), np.full(n, 0.3)


def spread(rng: np.random.Generator, n: int) -> Drawn:
    x = rng.normal(size=(n, 3))
    return x, x[:, 0] + 0.5 * x[:, 1], 0.3 * np.exp(0.5 * x[:, 2])


def autoregressive(rng: np.random.Generator, n: int) -> Drawn:
    z = np.zeros(n + 51)
    for t in range(1, len(z)):
        z[t] = 0.8 * z[t - 1] + 0.6 * rng.normal()
    x = np.stack([z[51:], z[50:-1]], axis=1)
    return x, 0.8 * x[:, 0], np.full(n, 0.6)


SYSTEMS: tuple[Callable[[np.random.Generator, int], Drawn], ...] = (
    line,
    plane,
    many_inputs,
    sine,
    step,
    spread,
    autoregressive,
)


def scored(law: GaussianLaw, y: np.ndarray) -> Scored:
    """Coverage and NLL."""
    lower, upper = law.interval(LEVEL)
    return float(np.mean((lower <= y) & (y <= upper))), -float(law.log_prob(y).mean())


def ours(x: np.ndarray, y: np.ndarray, new: np.ndarray, fresh: np.ndarray, seed: int) -> Scored:
    model = Forecaster({"y": Gaussian()}, seed=seed, verbose=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        law = model.fit(x, {"y": y}).predict(new)["y"]
    return scored(law, fresh)  # type: ignore[arg-type]


def ridge(x: np.ndarray, y: np.ndarray, new: np.ndarray, fresh: np.ndarray) -> Scored:
    mean, sd = BayesianRidge().fit(x, y).predict(new, return_std=True)
    return scored(GaussianLaw(mean, sd), fresh)


def student(x: np.ndarray, y: np.ndarray, new: np.ndarray, fresh: np.ndarray) -> Scored:
    """Least squares with its exact predictive law under normal noise."""
    a, b = (np.column_stack([np.ones(len(one)), one]) for one in (x, new))
    weights, _, _, _ = np.linalg.lstsq(a, y, rcond=None)
    df = len(y) - a.shape[1]
    noise = np.sum((y - a @ weights) ** 2) / df
    leverage = np.sum(b @ np.linalg.inv(a.T @ a) * b, axis=1)
    law = stats.t(df, b @ weights, np.sqrt(noise * (1.0 + leverage)))
    lower, upper = law.interval(LEVEL)
    return float(np.mean((lower <= fresh) & (fresh <= upper))), -float(law.logpdf(fresh).mean())


def few_rows(rows: list[int], seeds: int, first: int) -> None:
    print("90 percent intervals: coverage, its standard error (lowest); NLL beyond the true law")
    print(f"{'rows':>4} {'system':15} {'default':>26} {'Bayesian ridge':>26} {'Student':>26}")
    for n in rows:
        for system in SYSTEMS:
            found = []
            for seed in range(first, first + seeds):
                rng = np.random.default_rng([seed, n])
                x, mean, sd = system(rng, n)
                new, middle, wide = system(rng, FRESH)
                y, fresh = rng.normal(mean, sd), rng.normal(middle, wide)
                least = scored(GaussianLaw(middle, wide), fresh)[1]
                data = x, y, new, fresh
                each = [ours(*data, seed), ridge(*data), student(*data)]
                found.append([(share, nll - least) for share, nll in each])
            table = np.array(found)
            shares, beyond = table[:, :, 0], table[:, :, 1].mean(axis=0)
            error = shares.std(axis=0, ddof=1) / math.sqrt(seeds)
            average, lowest = shares.mean(axis=0), shares.min(axis=0)
            cells = [
                f"{average[k]:.3f} {error[k]:.3f} ({lowest[k]:.2f}) {beyond[k]:6.3f}"
                for k in range(3)
            ]
            print(f"{n:4d} {system.__name__:15}", *(f"{one:>26}" for one in cells), flush=True)


def beyond_ridge(seed: int) -> float:
    """NLL on 20,000 fresh rows beyond that of Bayesian ridge regression, on linear data."""
    rng = np.random.default_rng([seed, 1_000])
    weights = rng.normal(size=8) / math.sqrt(8)
    x, new = rng.normal(size=(1_000, 8)), rng.normal(size=(20_000, 8))
    y, fresh = rng.normal(x @ weights, 0.5), rng.normal(new @ weights, 0.5)
    return ours(x, y, new, fresh, seed)[1] - ridge(x, y, new, fresh)[1]


def linear(seeds: int, first: int) -> None:
    beyond = [beyond_ridge(seed) for seed in range(first, first + seeds)]
    print("linear, 1,000 rows: NLL beyond Bayesian ridge", [round(one, 4) for one in beyond])
    print(f"mean {np.mean(beyond):.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--rows", default="12,25,50")
    parser.add_argument("--linear", type=int, default=3)
    given = parser.parse_args()
    few_rows([int(n) for n in given.rows.split(",") if n], given.seeds, given.first_seed)
    if given.linear:
        linear(given.linear, given.first_seed)
