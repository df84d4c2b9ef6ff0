"""Updates along simulated streams of known law: what is recovered after a change, lost without one.

    python benchmarks/online.py [--preset default] [--seeds 2] [--rows 2000]

An autoregressive system with three inputs, noise that depends on them, and three questions of its
next value: the value, an event and a band. A model is fitted on `rows` rows. Then comes a stream of
as many rows, in which nothing changes, or the level and the noise jump, or drift, or jump and
return half way. On 1,000 further rows of the last law: the NLL beyond that of the simulator of the
frozen model, of the updated one, and of a refit on the newest half of the stream; and the share of
the gap between frozen and refit that the update closes. Seconds are those of the second pass, when
all is compiled, and of the refit.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd
from scipy.stats import norm

from scrollmt import Event, Forecaster, Gaussian, Ordinal, online

EDGES = (-1.0, 0.0, 1.0)
HIGH = 1.0
FRESH = 1_000
TASKS = {"value": Gaussian(), "high": Event(), "band": Ordinal(4)}
# From the share of the stream that has passed to level and factor of the noise.
CHANGES: dict[str, Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]] = {
    "none": lambda at: (0.0 * at, 1.0 + 0.0 * at),
    "jump": lambda at: (1.0 + 0.0 * at, 1.8 + 0.0 * at),
    "drift": lambda at: (at.clip(0, 1), 1.0 + 0.8 * at.clip(0, 1)),
    "return": lambda at: (1.0 * (at < 0.5), 1.0 + 0.8 * (at < 0.5)),
}
Rows = tuple[np.ndarray, dict[str, np.ndarray], np.ndarray, np.ndarray]


def drawn(rng: np.random.Generator, level: np.ndarray, factor: np.ndarray) -> Rows:
    """Inputs, labels, and mean and sd of the value's law."""
    X = np.empty((len(level), 3))
    y = np.empty(len(level))
    mean, sd = np.empty_like(y), np.empty_like(y)
    last = 0.0
    for t in range(len(level)):
        X[t] = last, *rng.normal(size=2)
        mean[t] = 0.7 * last + np.sin(X[t, 1]) + level[t]
        sd[t] = 0.4 * factor[t] * np.exp(0.4 * X[t, 2])
        last = y[t] = mean[t] + sd[t] * rng.normal()
    labels = {"value": y, "high": y > HIGH, "band": np.digitize(y, EDGES)}
    return X, labels, mean, sd


def true_nll(rows: Rows) -> dict[str, float]:
    _, labels, mean, sd = rows
    high = norm.logsf(HIGH, mean, sd), norm.logcdf(HIGH, mean, sd)
    ends = np.concatenate([[-np.inf], EDGES, [np.inf]])
    below = norm.cdf(ends[:, None], mean, sd)
    place = labels["band"], np.arange(len(mean))
    return {
        "value": -float(norm.logpdf(labels["value"], mean, sd).mean()),
        "high": -float(np.where(labels["high"], *high).mean()),
        "band": -float(np.log(np.diff(below, axis=0)[place]).mean()),
    }


def excess(model: Forecaster, rows: Rows) -> dict[str, float]:
    truth = true_nll(rows)
    laws = model.predict(rows[0])
    return {t: -float(np.mean(laws[t].log_prob(rows[1][t]))) - truth[t] for t in TASKS}


def one(preset: str, seed: int, count: int) -> list[dict[str, object]]:
    rng = np.random.default_rng(seed)
    before = drawn(rng, np.zeros(count), np.ones(count))
    model = Forecaster(TASKS, preset=preset, seed=seed, verbose=False).fit(*before[:2])
    found = []
    for name, change in CHANGES.items():
        own = np.random.default_rng([seed, len(name)])
        stream = drawn(own, *change(np.arange(count) / count))
        after = drawn(own, *change(np.full(FRESH, 1.0)))
        online.filter(model, *stream[:2])
        began = time.perf_counter()
        passed = online.filter(model, *stream[:2])
        seconds = time.perf_counter() - began
        half = slice(count // 2, None)
        newest = stream[0][half], {t: y[half] for t, y in stream[1].items()}
        began = time.perf_counter()
        refit = Forecaster(TASKS, preset=preset, seed=seed, verbose=False).fit(*newest)
        again = time.perf_counter() - began
        frozen, updated, best = (excess(m, after) for m in (model, passed.model, refit))
        truth = true_nll(stream)
        for task in TASKS:
            gap = frozen[task] - best[task]
            found.append(
                {
                    "change": name,
                    "task": task,
                    "along": -float(passed.log_scores[task].mean()) - truth[task],
                    "frozen": frozen[task],
                    "updated": updated[task],
                    "refit": best[task],
                    "closed": (frozen[task] - updated[task]) / gap if gap > 0.05 else np.nan,
                    "seconds": seconds,
                    "refit_s": again,
                }
            )
        print(pd.DataFrame(found).tail(3).round(4).to_string(header=name == "none"), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="default")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--rows", type=int, default=2_000)
    asked = parser.parse_args()
    with warnings.catch_warnings():
        # A stream that jumps leaves the training range, which is what is tried here.
        warnings.filterwarnings("ignore", category=UserWarning)
        rows = [row for seed in range(asked.seeds) for row in one(asked.preset, seed, asked.rows)]
    table = pd.DataFrame(rows).groupby(["change", "task"], sort=False).mean()
    print(f"\nMeans over {asked.seeds} seeds, preset {asked.preset}, {asked.rows} rows")
    print(table.round(4).to_string())


if __name__ == "__main__":
    main()
