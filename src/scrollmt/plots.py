"""Pictures, one function each; every function takes `ax=` and returns it.

matplotlib is imported on the first call, so that the library loads without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scrollmt.predictive import GaussianLaw

INK, TRUTH, BAND = "#1f4e79", "#c0392b", "#5b9bd5"


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.gca()


def forecasts(
    law: GaussianLaw,
    y: Any = None,
    *,
    x: Any = None,
    levels: Sequence[float] = (0.5, 0.9),
    ax: Any = None,
) -> Any:
    """Means with nested central intervals, and what came true where `y` is given."""
    ax = _axes(ax)
    position = np.arange(len(law)) if x is None else np.asarray(x)
    for level in sorted(levels, reverse=True):
        lower, upper = law.interval(level)
        ax.vlines(
            position,
            lower,
            upper,
            color=BAND,
            alpha=0.25 + 0.55 * (1.0 - level),
            linewidth=5,
            label=f"{level:.0%} interval",
        )
    ax.plot(position, law.mean, "_", color=INK, markersize=7, markeredgewidth=1.6, label="mean")
    if y is not None:
        ax.plot(position, np.asarray(y), ".", color=TRUTH, markersize=5, label="came true")
    ax.legend(frameon=False, fontsize="small", ncols=4, loc="lower left", bbox_to_anchor=(0, 1))
    return ax


def variance_tracking(law: GaussianLaw, true_var: Any, *, ax: Any = None) -> Any:
    r"""Predicted $V_n$ against the simulator's $V^\star(x_n)$, with the identity line."""
    ax = _axes(ax)
    truth = np.asarray(true_var, dtype=float)
    if truth.shape != law.var.shape:
        raise ValueError(f"true_var has shape {truth.shape}, the law holds {law.var.shape}")
    ends = np.array([min(truth.min(), law.var.min()), max(truth.max(), law.var.max())])
    ax.loglog(ends, ends, color="0.6", linewidth=1.2, zorder=0)
    ax.loglog(truth, law.var, ".", color=INK, markersize=2.5, alpha=0.5)
    r = float(np.corrcoef(truth, law.var)[0, 1])
    ax.set_xlabel("true conditional variance")
    ax.set_ylabel("predicted variance")
    ax.set_title(f"Pearson r = {r:.2f}", fontsize="medium")
    return ax
