"""Windows and presets so small that a fit is over as soon as it is compiled.

Tests that use the same number of windows, tasks and preset share one compiled program.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from scrollmt import Event, Forecaster, Gaussian, Ordinal
from scrollmt.fit import Schedule
from scrollmt.presets import HELD_OUT, PAPER, Architecture, Candidate

STATE = {"state": Gaussian()}
TASKS = {**STATE, "event": Event(), "regime": Ordinal(3)}

_LAYER = Architecture((4,), "tanh", bias=False, norm=False)

# The paper's protocol, on one narrow layer and for a few steps.
TINY = replace(
    PAPER,
    name="tiny",
    candidates=(Candidate("tanh", _LAYER, learning_rate=0.03, backbone_l2=0.01),),
    schedule=Schedule(steps=20, eval_every=1, patience=300),
)
# The default preset with part of its portfolio, on one layer and for a few steps.
SHORT = replace(
    HELD_OUT,
    name="short",
    candidates=tuple(
        replace(c, architecture=replace(c.architecture, widths=(16,)))
        for c in HELD_OUT.candidates[:2]
    ),
    committee=2,
    schedule=replace(HELD_OUT.schedule, steps=60, batch_size=16),
)


def windows(n: int = 60, seed: int = 0) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Inputs (n, 3) and one label a task, none missing; a share of 0.2 leaves 48 of 60."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = X[:, 0] - 0.5 * X[:, 1] + 0.3 * rng.normal(size=n)
    return X, {
        "state": y,
        "event": (y > 0.2).astype(int),
        "regime": np.digitize(y, [-0.5, 0.5]),
    }


def tables(n: int = 60, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    X, Y = windows(n, seed)
    return pd.DataFrame(X, columns=["a", "b", "c"]), pd.DataFrame(Y)


def tiny(tasks: Any = None, **settings: Any) -> Forecaster:
    return Forecaster(TASKS if tasks is None else tasks, **{"preset": TINY, **settings})


def numbers(model: Forecaster, X: Any) -> dict[str, np.ndarray]:
    """Everything that a prediction says, as arrays to compare."""
    laws: dict[str, Any] = model.predict(X)
    out = {}
    for name, law in laws.items():
        for part in ("mean", "sd", "noise_var", "log_probs"):
            if hasattr(law, part):
                out[f"{name}.{part}"] = getattr(law, part)
    return out


def assert_same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    """Bit for bit."""
    assert list(found) == list(expected)
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


def assert_close(
    found: dict[str, np.ndarray], expected: dict[str, np.ndarray], rtol: float
) -> None:
    assert list(found) == list(expected)
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=rtol, atol=rtol, err_msg=name)
