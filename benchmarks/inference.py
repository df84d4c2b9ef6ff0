"""Prediction against a hand-written NumPy forward pass of the same model.

    python benchmarks/inference.py

A fitted `Forecaster` (the paper's tanh+ln with diagonal beliefs, three tasks) predicts one
window, a thousand and a million. The NumPy pass makes the same numbers: the mean and sd of
the state, the chance of the event and of each regime, in the user's units. `latent` is the
part of both that ends at the mean and variance of the latent lines.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import ndtr
from timing import in_turns, machine, ratio

from scrollmt import Event, Forecaster, Gaussian, Ordinal
from scrollmt._fitting.members import project
from scrollmt.backbone import LAYER_NORM_EPS
from scrollmt.heads import PROBIT_BASE_SCALE
from scrollmt.presets import PAPER

TASKS = {"state": Gaussian(), "event": Event(), "regime": Ordinal(4)}


def fitted() -> Forecaster:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 3))
    y = x[:, 0] + 0.5 * rng.normal(size=2000)
    labels = {"state": y, "event": y > 0.5, "regime": np.digitize(y, [-0.7, 0.0, 0.7])}
    preset = replace(PAPER, schedule=replace(PAPER.schedule, steps=200))
    return Forecaster(TASKS, preset=preset, backbone="tanh+ln").fit(x, labels)


class NumpyForward:
    """The fitted model, written out once more."""

    def __init__(self, fit: Forecaster):
        model: Any = fit.model_
        self.scales = fit.scales_
        self.weight = np.asarray(model.backbone.weights[0])
        beliefs = [model.tasks[name].belief for name in TASKS]
        self.mu = np.stack([np.asarray(b.mu) for b in beliefs])
        self.variance = np.stack([np.asarray(b.diagonal()) for b in beliefs])
        self.noise = float(np.exp(2.0 * np.asarray(model.tasks["state"].head.log_sigma_obs)))
        self.cuts = {n: np.asarray(model.tasks[n].head.cutpoints) for n in ("event", "regime")}

    def latent(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x = self.scales.inputs(x).astype(np.float32)
        z = np.tanh(x @ self.weight.T)
        z -= z.mean(axis=1, keepdims=True)
        z /= np.sqrt(np.mean(z * z, axis=1, keepdims=True) + np.float32(LAYER_NORM_EPS))
        return z @ self.mu.T, (z * z) @ self.variance.T

    def __call__(self, x: np.ndarray) -> dict[str, np.ndarray]:
        mean, var = self.latent(x)
        out = {
            "mean": mean[:, 0] * self.scales.scale["state"] + self.scales.offset["state"],
            "sd": np.sqrt(var[:, 0] + self.noise) * self.scales.scale["state"],
        }
        for k, name in ((1, "event"), (2, "regime")):
            scale = np.sqrt(PROBIT_BASE_SCALE**2 + var[:, k, None])
            below = ndtr((self.cuts[name] - mean[:, k, None]) / scale)
            out[name] = np.diff(below, axis=1, prepend=0.0, append=1.0)
        return out


def numbers(fit: Forecaster, x: np.ndarray) -> dict[str, np.ndarray]:
    laws: Any = fit.predict(x)
    return {
        "mean": laws["state"].mean,
        "sd": laws["state"].sd,
        "event": laws["event"].probs,
        "regime": laws["regime"].probs,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--windows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(machine(), flush=True)
    fit = fitted()
    forward = NumpyForward(fit)
    rng = np.random.default_rng(1)
    for n in (1, 1000, options.windows):
        x = rng.normal(size=(n, 3))
        ours, theirs = numbers(fit, x), forward(x)
        for name, values in ours.items():
            np.testing.assert_allclose(values, theirs[name], rtol=2e-3, atol=2e-5)
        functions = {
            "numpy": lambda x=x: forward(x),
            "scrollmt": lambda x=x: numbers(fit, x),
            "numpy, latent": lambda x=x: forward.latent(x),
            "scrollmt, latent": lambda x=x: project(fit.model_, fit._inputs(x)),
        }
        seconds = in_turns(functions, options.rounds if n > 1000 else 200)
        for name, values in seconds.items():
            print(
                f"{n:9,d} windows  {name:18s} {1e3 * values.min():10.3f} ms "
                f"(median {1e3 * np.median(values):.3f})",
                flush=True,
            )
        print(f"{n:9,d} windows  scrollmt over numpy: {ratio(seconds, 'scrollmt', 'numpy')}")


if __name__ == "__main__":
    main()
