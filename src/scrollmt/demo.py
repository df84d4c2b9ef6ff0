"""The main job in one go: draw Lorenz-63, fit the default, compare with the true law."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from scrollmt import plots
from scrollmt._io import atomic
from scrollmt.corpora import lorenz63
from scrollmt.forecaster import Forecaster
from scrollmt.heads import Event, Gaussian, Ordinal
from scrollmt.predictive import GaussianLaw
from scrollmt.scores import coverage
from scrollmt.splits import random_split

SHOWN = 60


@dataclass(frozen=True)
class Demo:
    """What the demo measured, and where its picture lies."""

    table: pd.DataFrame
    test_windows: int
    picture: Path
    seconds: dict[str, float]


def run(folder: Path, *, seed: int = 0, windows: int = 6500) -> Demo:
    """Fit on three fifths of the windows and score one fifth against the simulator's law."""
    picture = folder / "lorenz63.png"
    atomic.check(picture)
    began = time.perf_counter()
    corpus = lorenz63.draw(windows)
    split = random_split(len(corpus), seed)

    def part(rows: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        return corpus.X[rows], {name: y[rows] for name, y in corpus.Y.items()}

    drawn = time.perf_counter()
    model = Forecaster(
        {"state": Gaussian(), "event": Event(), "regime": Ordinal(4)},
        validation=part(split.valid),
        seed=seed,
    ).fit(*part(split.train))
    fitted = time.perf_counter()
    x, y = part(split.test)
    laws, metrics = model.predict(x), model.evaluate(x, y)
    state = laws["state"]
    assert isinstance(state, GaussianLaw)
    oracle = corpus.oracle(x, y)
    scored = time.perf_counter()
    table = pd.DataFrame(
        {
            "test NLL": metrics["nll"],
            "oracle": pd.Series(oracle.mean_nll),
            "MC error": pd.Series(oracle.mc_error),
        }
    ).loc[list(laws)]
    table.insert(2, "difference", table["test NLL"] - table["oracle"])
    for level in (0.5, 0.9):
        share = float(coverage(state, y["state"], [level])[0])
        table[f"in {level:.0%}"] = pd.Series({"state": share})
    _draw(picture, state, y["state"], oracle.var)
    seconds = {"draw": drawn - began, "fit": fitted - drawn, "score": scored - fitted}
    return Demo(table, len(x), picture, seconds)


def _draw(path: Path, law: GaussianLaw, y: np.ndarray, true_var: np.ndarray) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(2.0, 1.0))
    plots.forecasts(law[:SHOWN], y[:SHOWN], ax=left)
    left.set_xlabel("test window")
    left.set_ylabel("x, half a time unit ahead")
    plots.variance_tracking(law, true_var, ax=right)
    with atomic.replacing(path) as draft:
        figure.savefig(draft, dpi=120)
