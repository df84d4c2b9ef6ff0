"""Updates of a fitted model: a pass over new rows, with or without the forecasts along it.

`model` is a fitted `Forecaster`. A pass never changes it: what comes back is another one, that
shares the fitted members and has a state of its own.
"""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pandas as pd

from scrollmt._io.arguments import check_type
from scrollmt._scoring.evaluation import Scored, evaluate
from scrollmt._scoring.judging import references
from scrollmt.laws.joint import Laws
from scrollmt.online import state as states
from scrollmt.online.bank import Bank
from scrollmt.online.rows import NewRows, read
from scrollmt.routing import read_routing
from scrollmt.windows import Windows


@dataclass(frozen=True)
class Filtered:
    """A pass over rows: the law of each row before its label was seen, and what came of it.

    `model` has learned from all rows. `log_scores` has one column a task, NaN where a label is
    missing; `weights` has the weights of the bank's settings before each label, by task.
    """

    model: Any
    laws: Laws
    log_scores: pd.DataFrame
    weights: dict[str, pd.DataFrame]
    scores: pd.DataFrame


def filter(
    model: Any, X: Any, Y: Any = None, sample_weight: Any = None, *, bank: Bank | None = None
) -> Filtered:
    """Predict every row before its label is seen, then learn from it, in the order of the rows.

    Labels may be missing, and Windows hold their own. A `bank` may be given to the first pass of a
    model; later ones go on with it. `scores` are those of `evaluate`, of the laws along the pass.
    """
    now, new = _begun(model, X, Y, sample_weight, bank)
    found = states.passed(now, now.online_, new)
    _check(found.state, new)
    moved = _with(now, found.state)
    if new.far_out is not None:
        warnings.warn(new.far_out, UserWarning, stacklevel=2)
    laws = Laws(found.laws, index=new.index, extrapolation=new.extrapolation)
    against = references(now, X)
    scored = {
        task: Scored(
            law,
            new.tasks.labels[task],
            new.tasks.weights[task],
            {kind: known[task] for kind, known in against.items() if task in known},
            None if now.recipe_ is None else now.recipe_.questions.get(task),
        )
        for task, law in laws.items()
    }
    names = found.state.bank.names
    return Filtered(
        moved,
        laws,
        pd.DataFrame(found.log_scores, index=new.index),
        {
            task: pd.DataFrame(np.exp(table.T), index=new.index, columns=names)
            for task, table in found.log_weights.items()
        },
        evaluate(scored, X.overlap if isinstance(X, Windows) else 1),
    )


def update(
    model: Any,
    X: Any,
    Y: Any = None,
    sample_weight: Any = None,
    *,
    age: Any = None,
    bank: Bank | None = None,
) -> Any:
    """The model after a pass over new rows; see `filter` for the forecasts along it.

    Rows whose labels come late are given again with an `age`, how many rows ago they were, 1 for
    the newest: one number or one a row. Give NaN for labels that the model has learned from
    already. They count for what they would by now if they had been there at once; for a Gaussian
    head with a fixed scale the order in which labels arrive does not matter.
    """
    now, new = _begun(model, X, Y, sample_weight, bank, age)
    found = states.passed(now, now.online_, new)
    _check(found.state, new)
    return _with(now, found.state)


def prepare(model: Any, bank: Bank | None = None) -> Any:
    """The model with a state to go on learning from, before the first new row."""
    model._check_fitted()
    if bank is not None:
        check_type("bank", bank, Bank, "an online.Bank")
    if model.online_ is not None:
        if bank is not None and bank != model.online_.bank:
            raise ValueError(
                f"this model goes on with {model.online_.bank}; a bank is given to the first pass "
                "after a fit"
            )
        return model
    if model.model_.couplings:
        names = [coupling.names for coupling in model.model_.couplings]
        raise ValueError(
            f"the tasks {names[0]} are coupled by their noise, and coupled tasks have no update "
            "yet; fit them without joint=, or fit anew"
        )
    if read_routing(model.routing).is_posterior:
        raise ValueError(
            f"routing={model.routing!r} gives beliefs that are posteriors of the weights, and an "
            "update takes the belief for spread; fit with routing='free' or 'ppgpr'"
        )
    begin = model._start()
    if begin is None:
        raise ValueError(
            "this model has nothing that an update starts from: an older version saved it, or the "
            "score of a training label is not finite; fit it and save it again"
        )
    return _with(model, states.begun(model, begin, Bank() if bank is None else bank))


def _begun(
    model: Any, X: Any, Y: Any, sample_weight: Any, bank: Bank | None, age: Any = None
) -> tuple[Any, NewRows]:
    now = prepare(model, bank)
    return now, read(now, X, Y, sample_weight, age)


def _with(model: Any, state: states.State) -> Any:
    moved = copy.copy(model)
    moved.online_ = state
    return moved


def _check(state: states.State, new: NewRows) -> None:
    """Refuse a state that is not finite, in the words of what led to it."""
    for name, groups in state.groups.items():
        if all(np.isfinite(leaf).all() for g in groups for leaf in jax.tree.leaves(g.posterior)):
            continue
        y = np.where(new.weight[name] > 0, new.y[name].reshape(len(new), -1)[:, 0], 0.0)
        row = int(np.argmax(np.abs(y)))
        raise ValueError(
            f"the update of {name!r} is not finite; its farthest label is at row {row}, "
            f"{y[row]:.3g} in standard units: check it. The model is unchanged"
        )
