"""Does sharing help or hurt? Each task fitted alone, against the joint model.

    difference_k = mean_n [NLL_joint(n) - NLL_alone(n)],    se_k = sd_n / sqrt(N)

Below zero the joint model is better for the task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.base import clone

from scrollmt._data import holdout, reading
from scrollmt._fitting import training
from scrollmt._scoring import judging
from scrollmt.forecaster import Forecaster
from scrollmt.plots import canvas
from scrollmt.scores import nll
from scrollmt.splits import Folds
from scrollmt.windows import Windows

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def compare_alone(model: Forecaster, fitted_on: Any, test: Any) -> pd.DataFrame:
    """Fit every task alone, with the joint model's own settings, and score both on `test`.

    `fitted_on` is what `model` was fitted on, `test` holds other windows; each is `Windows`,
    `(X, Y)` or `(X, Y, sample_weight)`. The part that judges the training is that of the joint
    fit. One row a task: joint, alone, difference, se, labels. Trains one model a task.
    """
    model._check_fitted()
    if isinstance(model.validation, str):
        raise ValueError(
            "the windows that judged this fit were not stored with the model; set "
            "model.validation to them before the tasks are fitted alone"
        )
    X, Y, weight = _three(fitted_on)
    validation = training.validation_of(model, len(X))
    if isinstance(X, Windows):
        X, Y, weight, validation, *_ = holdout.hand_over(X, Y, weight, validation)
    elif isinstance(validation, Windows):
        validation = validation.X_frame(), validation.Y
    x, _ = reading.read_inputs(X)
    weights = reading.read_weights(weight, list(model.tasks_), len(x))
    rows, laws = judging.labelled(model, *_three(test))
    table = {}
    for name, head in model.tasks_.items():
        own = validation
        # Folds are a tuple too, and serve every task.
        if isinstance(validation, tuple | list) and not isinstance(validation, Folds):
            own = (validation[0], *(_only(part, name) for part in validation[1:]))
        single = clone(model).set_params(
            tasks={name: head}, joint=None, recipe=None, validation=own
        )
        wanted = [name] if head.asked_of is None else [name, head.asked_of.of]
        labels = {one: _only(Y, one)[one] for one in wanted if one in Y}
        single.fit(X, labels, weights[name])
        law = single._laws(single.scales_.inputs(rows.x))[name]
        seen = rows.weights[name] > 0
        y = rows.labels[name]
        joint, alone = nll(laws[name], y)[seen], nll(law, y)[seen]
        gap = joint - alone
        table[name] = {
            "joint": joint.mean(),
            "alone": alone.mean(),
            "difference": gap.mean(),
            "se": gap.std(ddof=1) / np.sqrt(len(gap)) if len(gap) > 1 else np.nan,
            "labels": len(gap),
        }
    return pd.DataFrame(table).T.astype({"labels": int}).rename_axis("task")


def _three(given: Any) -> tuple[Any, Any, Any]:
    """`(X, Y, sample_weight)` of what was given."""
    if isinstance(given, Windows):
        return given, None, None
    if isinstance(given, tuple | list) and len(given) in (2, 3):
        return given[0], given[1], given[2] if len(given) == 3 else None
    raise ValueError(
        f"expected Windows, (X, Y) or (X, Y, sample_weight), got a {type(given).__name__}"
    )


def _only(part: Any, name: str) -> Any:
    """The entry of one task, still under its name; what has no names serves every task."""
    if isinstance(part, pd.DataFrame):
        return part[[name]]
    if hasattr(part, "keys"):
        return {name: part[name]} if name in part else None
    return part


def interference(table: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """NLL of the joint model minus that of each task alone, with two standard errors.

    `table` is what `compare_alone` returns. Left of zero, the task gains from sharing.
    """
    missing = {"difference", "se"} - set(table.columns)
    if missing:
        raise ValueError(
            f"the table lacks the columns {sorted(missing)}; pass what compare_alone returned"
        )
    ax = canvas.axes(ax, len(table))
    rows = np.arange(len(table))
    ax.axvline(0.0, color=canvas.GREY, linewidth=1)
    ax.errorbar(
        table["difference"],
        rows,
        xerr=2.0 * table["se"],
        fmt="o",
        color=canvas.BLUE,
        markersize=6,
        capsize=4,
        label="joint minus alone, ± 2 se",
    )
    canvas.task_rows(ax, list(table.index))
    return canvas.finish(ax, "difference in NLL (nats); left of zero, sharing helps")
