"""The main job in one go: draw Lorenz-63, fit the default, compare with the true law."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from scrollmt import plots
from scrollmt._io import atomic
from scrollmt.corpora import lorenz63
from scrollmt.forecaster import Forecaster
from scrollmt.laws import RealLaw
from scrollmt.plots import canvas
from scrollmt.scores import coverage
from scrollmt.splits import random_split

SHOWN = 60
# Colours of text and lines, and of backgrounds; the dark picture has a transparent background.
TEXT_COLOURS = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
BACKGROUNDS = ("figure.facecolor", "axes.facecolor", "savefig.facecolor")
LIGHT_TEXT = "#e6e8eb"
# The data colours of a report on a dark page.
BRIGHT = {canvas.BLUE: "#56b4e9", canvas.RED: "#ff8b45", canvas.GREY: "#9aa0a6"}


@dataclass(frozen=True)
class Demo:
    """What the demo measured, and where its picture lies; one for dark pages lies beside it."""

    table: pd.DataFrame
    test_windows: int
    picture: Path
    seconds: dict[str, float]


def run(folder: Path, *, seed: int = 0, windows: int = 6500) -> Demo:
    """Fit on four fifths of the windows and score one fifth against the simulator's law."""
    picture = folder / "lorenz63.png"
    atomic.check(picture)
    began = time.perf_counter()
    corpus = lorenz63.draw(windows)
    split = random_split(len(corpus), seed)

    def part(rows: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        labels = {**corpus.Y, **corpus.behind}
        return corpus.X[rows], {name: y[rows] for name, y in labels.items()}

    drawn = time.perf_counter()
    model = Forecaster(corpus.heads, seed=seed)
    model.fit(*part(np.concatenate([split.train, split.valid])))
    fitted = time.perf_counter()
    x, y = part(split.test)
    laws, metrics = model.predict(x), model.evaluate(x, y)
    state = laws["state"]
    assert isinstance(state, RealLaw)
    oracle = corpus.oracle(x, y)
    scored = time.perf_counter()
    nll, error = pd.Series(oracle.mean_nll), pd.Series(oracle.mc_error)
    # The simulator's law of the state is not Gaussian: its density is what cannot be beaten.
    best_gaussian = nll["state"]
    nll["state"], error["state"] = nll["state_density"], error["state_density"]
    table = pd.DataFrame({"test NLL": metrics["nll"], "oracle": nll, "MC error": error})
    table = table.loc[list(laws)]
    table.insert(2, "excess", table["test NLL"] - table["oracle"])
    table["best Gaussian"] = pd.Series({"state": best_gaussian})
    for level in (0.5, 0.9):
        share = float(coverage(state, y["state"], [level])[0])
        table[f"in {level:.0%}"] = pd.Series({"state": share})
    picture = draw(folder, state, y["state"], oracle.var)
    seconds = {"draw": drawn - began, "fit": fitted - drawn, "score": scored - fitted}
    return Demo(table, len(x), picture, seconds)


def draw(folder: Path, law: RealLaw, y: np.ndarray, true_var: np.ndarray) -> Path:
    """The picture on white, lorenz63.png, and beside it one for dark pages, lorenz63-dark.png."""
    import matplotlib
    from matplotlib.figure import Figure

    bright: Any = dict.fromkeys(TEXT_COLOURS, LIGHT_TEXT) | dict.fromkeys(BACKGROUNDS, "none")
    for ending, settings in (("-dark", bright), ("", {})):
        with matplotlib.rc_context(settings):
            figure = Figure(figsize=(11, 4.2), layout="constrained")
            left, right = figure.subplots(1, 2, width_ratios=(2.0, 1.0))
            plots.forecasts(law[:SHOWN], y[:SHOWN], ax=left)
            left.set_xlabel("test window")
            left.set_ylabel("x, half a time unit ahead")
            plots.variance_tracking(law, true_var, ax=right)
            if ending:
                _brighten(figure)
            path = folder / f"lorenz63{ending}.png"
            with atomic.replacing(path) as draft:
                figure.savefig(draft, dpi=120)
    return path


def _brighten(figure: Any) -> None:
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_hex, to_rgba_array
    from matplotlib.lines import Line2D

    for drawn in (*figure.findobj(Line2D), *figure.findobj(LineCollection)):
        # One colour for a line, a table of them for a collection.
        color = to_rgba_array(drawn.get_color())[0]
        if to_hex(color) in BRIGHT:
            drawn.set_color((BRIGHT[to_hex(color)], color[3]))
