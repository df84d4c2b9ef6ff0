"""Golden records: what fixed seeds gave when they were written, to hold every later version to.

    python tests/golden.py       writes tests/golden.json anew, when results are meant to change

Fits run in float64, where rounding stays below the tolerances even after the steps of a training;
so a difference is a change of what is computed, never of the machine.
"""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pandas as pd

from scrollmt import (
    Categorical,
    Censored,
    Count,
    Event,
    Forecaster,
    Gaussian,
    Ordinal,
    Poisson,
    StudentT,
    load,
)
from scrollmt.corpora import lorenz63, ou
from scrollmt.observables import at_lead, over_window
from scrollmt.presets import HELD_OUT, PAPER
from scrollmt.windows import Windowing

FILE = Path(__file__).with_name("golden.json")
INPUTS = {name: FILE.with_name(f"golden_{name}.csv") for name in ("ou", "lorenz63")}
TASKS = {"state": Gaussian(), "event": Event(), "regime": Ordinal(4)}
_ROWS = 4


def described(model: Forecaster, X: Any, Y: Any) -> dict[str, Any]:
    """Laws at a few rows, scores, and the size of every fitted parameter."""
    laws = model.predict(X[:_ROWS] if isinstance(X, np.ndarray) else X)
    table = model.evaluate(X, Y)
    leaves = jax.tree_util.tree_leaves_with_path(eqx.filter(model.model_, eqx.is_inexact_array))
    return {
        "laws": {name: _numbers(law) for name, law in laws.items()},
        "scores": {task: table.loc[task].dropna().to_dict() for task in table.index},
        "parameters": {
            jax.tree_util.keystr(path): float(np.sqrt(np.sum(np.square(leaf))))
            for path, leaf in leaves
        },
        "validation_nll": model.validation_nll_,
        "runs": model.candidates_["validation_nll"].to_list(),
    }


def _numbers(law: Any) -> dict[str, Any]:
    frame = law.to_frame().select_dtypes("number").head(_ROWS)
    return {str(column): frame[column].to_list() for column in frame}


def _corpus(name: str) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Windows of a corpus, stored: a chaotic system is integrated otherwise on other machines."""
    frame = pd.read_csv(INPUTS[name])
    columns = [one for one in frame if one not in TASKS]
    return frame[columns].to_numpy(), {task: frame[task].to_numpy() for task in TASKS}


def _store(name: str, windows: int = 160) -> None:
    corpus = {"ou": ou, "lorenz63": lorenz63}[name].draw()
    rows = np.linspace(0, len(corpus.X) - 1, windows).astype(int)
    frame = pd.DataFrame(corpus.X[rows]).add_prefix("x")
    for task in TASKS:
        frame[task] = np.asarray(corpus.Y[task])[rows]
    frame.round(6).to_csv(INPUTS[name], index=False)


def _fit(name: str, preset: Any, belief: str, **more: Any) -> dict[str, Any]:
    X, Y = _corpus(name)
    model = Forecaster(TASKS, preset=preset, belief=belief, steps=45, seed=3, **more)
    return described(model.fit(X[:120], {k: v[:120] for k, v in Y.items()}), X, Y)


def _heads() -> dict[str, Any]:
    """Every head in one model, with missing labels, weights and two coupled tasks."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(140, 3))
    signal = np.sin(X[:, 0]) + 0.4 * X[:, 1]
    noisy = signal + 0.3 * rng.normal(size=140)
    limit = np.minimum(noisy, 0.6)
    Y = {
        "value": np.where(rng.random(140) < 0.1, np.nan, noisy),
        "beside": 2.0 * noisy + 0.2 * rng.normal(size=140),
        "heavy": signal + 0.2 * rng.standard_t(3, size=140),
        "event": (noisy > 0.3).astype(float),
        "band": np.digitize(noisy, [-0.5, 0.5]).astype(float),
        "many": rng.negative_binomial(3, 1 / (1 + np.exp(signal) / 3)).astype(float),
        "few": rng.poisson(np.exp(0.5 * signal)).astype(float),
        "limited": limit,
    }
    Y["event"][::17] = np.nan
    tasks = {
        "value": Gaussian(),
        "beside": Gaussian(),
        "heavy": StudentT(),
        "event": Event(),
        "band": Ordinal(3),
        "many": Count(),
        "few": Poisson(),
        "limited": Censored(upper=0.6),
    }
    weight = {name: 1.0 + (np.arange(140) % 3) for name in tasks}
    preset = HELD_OUT.with_backbone("silu+ln")
    pair = ["value", "beside"]
    model = Forecaster(tasks, preset=preset, joint=pair, steps=30, patience=9, seed=1)
    model.fit(X, Y, sample_weight=weight)
    found = described(model, X, Y)
    joint = model.predict(X[:_ROWS]).joint(pair)
    found["joint"] = np.asarray(joint.cov).reshape(_ROWS, -1).tolist()
    return found


def _categorical() -> dict[str, Any]:
    rng = np.random.default_rng(6)
    X = rng.normal(size=(120, 2))
    Y = {"kind": np.argmax(X @ rng.normal(size=(2, 3)) + rng.normal(size=(120, 3)), axis=1)}
    model = Forecaster(
        {"kind": Categorical(3)}, preset=HELD_OUT, belief="none", steps=30, ensemble=2, seed=2
    )
    return described(model.fit(X, Y), X, Y)


def hourly(hours: int = 500) -> pd.DataFrame:
    """An hourly series in the form of PM2.5, with gaps."""
    rng = np.random.default_rng(8)
    t = np.arange(hours)
    walk = np.cumsum(rng.normal(size=hours)) / 20
    level = np.exp(3.5 + 0.5 * np.sin(2 * np.pi * t / 24) + walk)
    frame = pd.DataFrame(
        {"pm": level.round(1), "wind": rng.gamma(2.0, 2.0, size=hours).round(2)},
        index=pd.date_range("2022-03-01", periods=hours, freq="h", name="time"),
    )
    frame.loc[frame.index[60:63], "pm"] = np.nan
    return frame


def _windows() -> dict[str, Any]:
    """Windows of a series: fit, forecast, and the model that was stored and loaded again."""
    asked = {
        "value": at_lead("pm").log1p(),
        "event": over_window("pm").mean() > 60.0,
        "band": at_lead("pm").quantile_bands(3),
    }
    windows = Windowing(history=6, lead=6, fill_limit=3).cut(hourly(), asked)
    model = Forecaster.for_windows(windows, preset="quick", steps=45, seed=4, refit=True)
    model.fit(windows)
    found = described(model, windows, None)
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        again = load(Path(folder) / "model").forecast(hourly())
    found["forecast"] = {name: _numbers(law) for name, law in again.laws.items()}
    return found


def _onnx() -> dict[str, Any]:
    from onnxruntime import InferenceSession

    from scrollmt.export import to_onnx

    X, Y = _corpus("ou")
    model = Forecaster(TASKS, preset="quick", steps=45, seed=3).fit(X, Y)
    session = InferenceSession(to_onnx(model).SerializeToString())
    (given,) = session.get_inputs()
    out = session.run(None, {given.name: np.asarray(X[:_ROWS], np.float64)})
    names = [one.name for one in session.get_outputs()]
    return {name: np.ravel(value).tolist() for name, value in zip(names, out, strict=True)}


CASES: dict[str, Callable[[], dict[str, Any]]] = {
    "default-diag-ou": lambda: _fit("ou", HELD_OUT, "diag"),
    "default-full-lorenz63": lambda: _fit("lorenz63", "quick", "full"),
    "default-none-ou": lambda: _fit("ou", "quick", "none"),
    "paper-diag-lorenz63": lambda: _fit("lorenz63", PAPER.with_backbone("tanh+ln"), "diag"),
    "paper-full-ou": lambda: _fit("ou", PAPER.with_backbone("relu"), "full"),
    "paper-none-lorenz63": lambda: _fit("lorenz63", PAPER, "none"),
    "heads": _heads,
    "categorical": _categorical,
    "windows": _windows,
    "onnx": _onnx,
}


def computed(case: str) -> dict[str, Any]:
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return CASES[case]()


if __name__ == "__main__":
    for name in INPUTS:
        if not INPUTS[name].exists():
            _store(name)
    records = {name: computed(name) for name in CASES}
    FILE.write_text(json.dumps(records, indent=1) + "\n")
