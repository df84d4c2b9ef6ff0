r"""What a fitted model has learned: variance by source, weights of tasks, precisions, training.

The effective weight of a task at a window is half the Fisher information that one label holds
about the latent mean,

    weight_n = 1/2 E_y[(d log m_n(y) / d mean)^2],    y ~ m_n

For a Gaussian task this is 1 / (2 V_n), the coefficient of the squared error (``cor:weights``);
for events and ordered classes it is the same curvature summed over the classes. All are in the
units of the fit, where the default preset gives every Gaussian target an sd of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from scrollmt._data.answers import Answer
from scrollmt._fitting.members import project
from scrollmt.beliefs import Point
from scrollmt.forecaster import Forecaster
from scrollmt.laws import Law, RealLaw
from scrollmt.plots import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def variance_split(law: Law, *, x: Any = None, ax: Axes | None = None) -> Axes:
    """Predictive variance of each window, parted into noise and belief.

    Without `x` the windows stand in order of their variance. Where a task has several selected
    members, their disagreement counts as belief.
    """
    noise, belief = (law.noise_var, law.belief_var) if isinstance(law, RealLaw) else (None, None)
    if noise is None or belief is None:
        raise ValueError(
            f"this {type(law).__name__} does not say which part of its variance is noise; "
            "laws from a Gaussian task of a Forecaster do"
        )
    ax = canvas.axes(ax)
    order = np.argsort(noise + belief if x is None else canvas.positions(law, x), kind="stable")
    place = canvas.positions(law, x)[slice(None) if x is None else order]
    noise, total = noise[order], (noise + belief)[order]
    parts = ((0.0, noise, canvas.BLUE, 0.55, "noise"), (noise, total, canvas.RED, 0.75, "belief"))
    for low, high, color, alpha, name in parts:
        canvas.area(ax, place, low, high, name, color=color, alpha=alpha, step="mid")
    ax.margins(x=0)
    ax.set_ylim(0, None)
    canvas.date_axis(ax, place)
    xlabel = "windows, by variance" if x is None else ""
    return canvas.finish(ax, xlabel, "predictive variance")


def effective_weights(model: Forecaster, X: Any) -> dict[str, np.ndarray]:
    """The weight of each task at each window, (N,), averaged over the members selected for it.

    Only tasks with a closed form: Gaussian, events and ordered classes, where their own head
    answers.
    """
    model._check_fitted()
    x = model._inputs(X)
    weights: dict[str, list[np.ndarray]] = {}
    for number, member in enumerate(model.members_):
        latent = project(member, x)
        for name in model.committee_:
            if (number, Answer(name)) in model._mixing().places(name):
                head = member.tasks[name].head
                half = head.half_information(*map(jnp.asarray, latent[name]))
                if half is not None:
                    weights.setdefault(name, []).append(np.asarray(half, np.float64)[: len(x)])
    return {name: np.mean(weights[name], axis=0) for name in model.tasks_ if name in weights}


def effective_weight(
    model: Forecaster | Mapping[str, np.ndarray], X: Any = None, *, ax: Axes | None = None
) -> Axes:
    """How the weight of each task spreads over the windows: median, middle half and 90 percent.

    `model` is a fitted Forecaster, with inputs `X`, or weights by task. A long bar is a task
    whose pull on the shared features differs much from window to window.
    """
    if isinstance(model, Forecaster):
        weights = effective_weights(model, X)
        if not weights:
            raise ValueError(
                "no task of this model has an effective weight in closed form; Gaussian, Event and "
                f"Ordinal tasks do, and these are {list(model.tasks_.values())}"
            )
    else:
        weights = dict(model)
    ax = canvas.axes(ax, len(weights))
    rows = np.arange(len(weights))
    levels = [0.05, 0.25, 0.5, 0.75, 0.95]
    low, near, median, far, high = np.array(
        [np.quantile(np.asarray(w, dtype=float), levels) for w in weights.values()]
    ).T
    ax.hlines(rows, low, high, color=canvas.BLUE, linewidth=2, label="90% of windows")
    ax.hlines(rows, near, far, color=canvas.BLUE, linewidth=7, alpha=0.6, label="50%")
    ax.plot(median, rows, "o", color=canvas.RED, markersize=6, label="median")
    canvas.plain_log(ax, "x")
    canvas.task_rows(ax, list(weights))
    return canvas.finish(ax, "effective weight, units of the fit")


def precisions(
    model: Forecaster, *, tasks: Sequence[str] | None = None, ax: Axes | None = None
) -> Axes:
    """The fitted prior precision alpha of each task, one dot an ensemble member selected for it.

    `tasks` names those to draw, by default all.
    """
    model._check_fitted()
    chosen = list(model.tasks_) if tasks is None else list(tasks)
    unknown = [name for name in chosen if name not in model.tasks_]
    if unknown or not chosen:
        raise ValueError(f"no tasks {unknown} to draw; the model has {list(model.tasks_)}")
    found = {
        name: [
            float(model.members_[number].tasks[name].prior_precision)
            for number, answer in model._mixing().places(name)
            if answer == Answer(name)
            and not isinstance(model.members_[number].tasks[name].belief, Point)
        ]
        for name in chosen
    }
    if not any(found.values()):
        raise ValueError(
            "a point estimate (belief='none') has no prior precision; fit with belief='diag' or "
            "'full' to learn one"
        )
    ax = canvas.axes(ax, len(found))
    for row, values in enumerate(found.values()):
        ax.plot(values, [row] * len(values), "o", color=canvas.BLUE, markersize=7, alpha=0.7)
    canvas.plain_log(ax, "x")
    canvas.task_rows(ax, list(found))
    return canvas.finish(ax, "prior precision, units of the fit")


def training(model: Forecaster, *, ax: Axes | None = None) -> Axes:
    """The chosen run: training objective (right) and validation NLL (left), with the best step."""
    model._check_fitted()
    history = model.history_
    ax = canvas.axes(ax)
    best = history.loc[history["validation"].idxmin()]
    right = ax.twinx()
    right.plot(
        history["step"],
        history["train_objective"],
        "--",
        color=canvas.RED,
        linewidth=1.2,
        label="training objective",
    )
    ax.plot(history["step"], history["validation"], color=canvas.BLUE, label="validation NLL")
    ax.plot(
        best["step"], best["validation"], "o", color=canvas.BLUE, label=f"kept: {best['step']:.0f}"
    )
    for side, color in ((ax, canvas.BLUE), (right, canvas.RED)):
        side.tick_params(axis="y", labelcolor=color)
    ax.set_ylabel("validation NLL, added over tasks", color=canvas.BLUE)
    right.set_ylabel("training objective", color=canvas.RED)
    return canvas.finish(ax, "step")
