r"""Beside a known truth: predicted variance by state, and predictive sd over leads.

For simulated systems, whose conditional variance V*(x) is known or can be re-simulated
(figures ``fig:sigma_delta`` and ``fig:sigma_delta_lorenz``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from scrollmt.laws import RealLaw
from scrollmt.plots import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Route = RealLaw | np.ndarray | Sequence[float]


def variance_tracking(
    law: Route | Mapping[str, Route],
    true_var: Any,
    *,
    points: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    r"""Predicted $V_n$ against the true $V^\star(x_n)$, window by window, with the identity line.

    `law` is one law (or its variances), or several by name to compare; `true_var` is (N,), the
    simulator's variance. `points` thins the cloud evenly by rank of the truth.
    """
    several = isinstance(law, Mapping)
    routes = dict(law) if isinstance(law, Mapping) else {"": law}
    truth = np.asarray(true_var, dtype=float)
    found = {name: _variances(name, route, truth) for name, route in routes.items()}
    ax = canvas.axes(ax)
    shown = canvas.thin(truth, points)
    everything = [truth, *found.values()] if not several else [truth]
    ends = np.array([min(v.min() for v in everything), max(v.max() for v in everything)])
    ax.plot(ends, ends, color=canvas.GREY, linewidth=1.2, zorder=0)
    for number, (name, var) in enumerate(found.items()):
        ax.plot(
            truth[shown],
            var[shown],
            canvas.MARKERS[number % len(canvas.MARKERS)],
            color=canvas.CYCLE[number % len(canvas.CYCLE)],
            markeredgewidth=0,
            markersize=3,
            alpha=0.5,
            label=f"{canvas.words(name)} ({_tracks(var, truth)})" if several else None,
        )
        if not several:
            ax.set_title(f"Pearson {_tracks(var, truth)}", fontsize="medium")
    canvas.plain_log(ax, "x")
    canvas.plain_log(ax, "y")
    return canvas.finish(ax, "true conditional variance", "predicted variance")


def _tracks(var: np.ndarray, truth: np.ndarray) -> str:
    """The correlation in words; a point estimate has one variance for all windows, and none."""
    if np.ptp(var) == 0.0 or np.ptp(truth) == 0.0:
        return "r undefined: constant"
    # Numbers near one: squares of tiny or huge ones leave the range of floats.
    return f"r = {np.corrcoef(truth / truth.max(), var / var.max())[0, 1]:.2f}"


def _variances(name: str, route: Route, truth: np.ndarray) -> np.ndarray:
    var = route.var if isinstance(route, RealLaw) else np.asarray(route, dtype=float)
    if truth.shape != var.shape:
        of = f" of {name!r}" if name else ""
        raise ValueError(f"true_var has shape {truth.shape}, the law{of} holds {var.shape}")
    return var


def predictive_sd(law: RealLaw) -> float:
    r"""One number for the spread of many forecasts: $\sqrt{\overline{V_n}}$."""
    return float(np.sqrt(np.mean(law.var)))


def sd_over_leads(
    leads: Any,
    predicted: Any,
    *,
    spread: Any = None,
    true_sd: Any = None,
    sigma_obs: Any = None,
    band: tuple[Any, Any] | None = None,
    ax: Axes | None = None,
) -> Axes:
    r"""Predictive sd over leads (L,), beside the true one and the part that is noise.

    `predicted` is (L,), with bars of `spread` (L,) to either side; or, with one row a seed,
    (S, L), drawn as mean and one sd over seeds; `sigma_obs` likewise. `true_sd` is (L,). `band` is
    a low and a high (L,) of the true sd over states, such as its 10th and 90th percentiles.
    """
    at = np.asarray(leads, dtype=float)
    rows = _by_seed(predicted, at, "predicted")
    ax = canvas.axes(ax)
    if band is not None:
        low, high = (_by_seed(edge, at, "band")[0] for edge in band)
        canvas.area(ax, at, low, high, "true sd over states")
    if true_sd is not None:
        truth = _by_seed(true_sd, at, "true_sd")[0]
        # In the text colour of the axes, which is readable on a light and on a dark page.
        ax.plot(at, truth, color=ax.xaxis.label.get_color(), linewidth=1.6, label="true sd")
    ax.errorbar(
        at,
        rows.mean(axis=0),
        _deviation(rows) if spread is None else _by_seed(spread, at, "spread")[0],
        fmt="o",
        color=canvas.BLUE,
        markersize=5,
        capsize=3,
        label="predictive sd",
    )
    if sigma_obs is not None:
        noise = _by_seed(sigma_obs, at, "sigma_obs")
        ax.errorbar(
            at,
            noise.mean(axis=0),
            _deviation(noise),
            fmt="^--",
            color=canvas.RED,
            markersize=4,
            linewidth=1,
            capsize=2,
            label="noise sd",
        )
    canvas.plain_log(ax, "x")
    ax.set_xticks(at)
    ax.set_ylim(0, None)
    return canvas.finish(ax, "lead", "standard deviation")


def _by_seed(values: Any, leads: np.ndarray, name: str) -> np.ndarray:
    """(S, L), with one row where there are no seeds."""
    array = np.atleast_2d(np.asarray(values, dtype=float))
    if array.ndim != 2 or array.shape[1] != len(leads):
        raise ValueError(
            f"{name} has shape {np.shape(values)}, but there are {len(leads)} leads: pass "
            f"({len(leads)},), or (seeds, {len(leads)})"
        )
    return array


def _deviation(rows: np.ndarray) -> np.ndarray | None:
    return rows.std(axis=0, ddof=1) if len(rows) > 1 else None
