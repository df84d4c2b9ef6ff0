"""Every number of a record is computed here, from laws, for all arms alike.

A corpus says by which names its numbers are recorded. `BY_TASK` serves any tasks: for each task the
metrics that suit its law, as `<task>.<metric>`, and `valid.<task>.nll` on the validation windows.
`PAPER` has the columns of the paper's tables for `state`, `event` and `regime`. With either,
`valid_nats` is the sum of the validation NLLs over tasks, by which settings are selected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import pearsonr, spearmanr

from scrollmt import scores
from scrollmt.heads import AbstractHead, Gaussian
from scrollmt.laws import DiscreteLaw, Law, RealLaw
from scrollmt.model import Model

Laws = Mapping[str, Law]
Labels = Mapping[str, Any]
Columns = dict[str, float]

COLUMNS = {"state": "reg_nll", "event": "evt_nll", "regime": "ord_nll"}


def validation_columns(laws: Mapping[str, Law], y: Mapping[str, Any]) -> dict[str, float]:
    """NLLs on the validation windows; their sum; and the sum in mixed units."""
    nll = {name: float(np.mean(scores.nll(law, y[name]))) for name, law in laws.items()}
    row = {f"valid_{COLUMNS[name]}": value for name, value in nll.items()}
    mixed = dict(nll)
    if "state" in laws:
        mixed["state"] = float(np.mean(scores.squared_error(laws["state"], y["state"])))
    return row | {"valid_nats": sum(nll.values()), "valid_mixed": sum(mixed.values())}


def test_columns(laws: Mapping[str, Law], y: Mapping[str, Any]) -> dict[str, float]:
    """The metrics of the paper's tables on the test windows."""
    row = {COLUMNS[name]: float(np.mean(scores.nll(law, y[name]))) for name, law in laws.items()}
    if "state" in laws:
        row["reg_calerr"] = scores.coverage_error(laws["state"], y["state"])
    if "event" in laws:
        row["evt_acc_pct"] = 100.0 * float(np.mean(scores.accuracy(laws["event"], y["event"])))
    return row


def spread_columns(law: RealLaw, y: np.ndarray, true_var: np.ndarray | None) -> dict[str, float]:
    """How the state's predictive variance V_n lies, alone and beside the true variance V*."""
    var = law.sd**2
    residual_var = float(np.mean((y - law.mean) ** 2))
    row = {
        "mean_sd": float(np.mean(law.sd)),
        "mean_var": float(np.mean(var)),
        "residual_var": residual_var,
        "mean_weight": float(np.mean(0.5 / var)),
        "var_range": float(var.max() / var.min()),
    }
    if true_var is not None:
        row["mean_true_var"] = float(np.mean(true_var))
        row["true_var_range"] = float(true_var.max() / true_var.min())
        if np.ptp(true_var) > 0 and np.ptp(var) > 1e-6 * var.mean():
            row["pearson"] = float(pearsonr(var, true_var).statistic)
            row["spearman"] = float(spearmanr(var, true_var).statistic)
    return row


def fitted_columns(model: Model, laws: Mapping[str, Law]) -> dict[str, float]:
    """Fitted prior precisions and noise, and the belief's share of the mean variance."""
    row = {
        f"alpha_{name}": float(np.exp(np.float64(task.log_prior_precision)))
        for name, task in model.tasks.items()
    }
    state = model.tasks.get("state")
    if state is not None and isinstance(state.head, Gaussian):
        noise = float(np.exp(2.0 * np.float64(state.head.log_sigma_obs)))
        row["sigma_obs"] = noise**0.5
        law = laws["state"]
        assert isinstance(law, RealLaw)
        row["belief_share"] = float(1.0 - noise / np.mean(law.sd**2))
    return row


def spread_arrays(laws: Laws, true_var: np.ndarray | None) -> dict[str, list[float]]:
    """Every window's variance of the state beside the true one, for figures."""
    state = laws.get("state")
    if true_var is None or not (isinstance(state, RealLaw) and state.normal):
        return {}
    return {"var": [*map(float, state.sd**2)], "true_var": [*map(float, true_var)]}


def _paper_test(laws: Laws, y: Labels, true_var: np.ndarray | None) -> Columns:
    row = test_columns(laws, y)
    state = laws.get("state")
    if isinstance(state, RealLaw) and state.normal:
        row |= spread_columns(state, y["state"], true_var)
    return row


def _valid_by_task(laws: Laws, y: Labels) -> Columns:
    nll = {name: float(scores.average(scores.nll(law, y[name]))) for name, law in laws.items()}
    return {f"valid.{name}.nll": value for name, value in nll.items()} | {
        "valid_nats": sum(nll.values())
    }


def _test_by_task(laws: Laws, y: Labels, true_var: np.ndarray | None) -> Columns:
    return {
        f"{name}.{metric}": value
        for name, law in laws.items()
        for metric, value in scores.summarise(law, y[name]).items()
    }


def _no_arrays(laws: Laws, true_var: np.ndarray | None) -> dict[str, list[float]]:
    return {}


def _fitted_by_task(model: Model, laws: Laws) -> Columns:
    row = {}
    for name, task in model.tasks.items():
        row[f"{name}.alpha"] = float(np.exp(np.float64(task.log_prior_precision)))
        if isinstance(task.head, Gaussian):
            row[f"{name}.sigma_obs"] = float(np.exp(np.float64(task.head.log_sigma_obs)))
    return row


@dataclass(frozen=True)
class Scoring:
    """The columns of a corpus's records, each made of laws and labels by task.

    - `valid(laws, y)`: on the validation windows; it has `valid_nats`.
    - `test(laws, y, true_var)`: on the test windows, whose true variance may be known.
    - `arrays(laws, true_var)`: longer columns of the first seed's test windows.
    - `fitted(model, laws)`: parameters of a model that our own arms have fitted.
    """

    valid: Callable[[Laws, Labels], Columns]
    test: Callable[[Laws, Labels, np.ndarray | None], Columns]
    arrays: Callable[[Laws, np.ndarray | None], dict[str, list[float]]]
    fitted: Callable[[Model, Laws], Columns]


PAPER = Scoring(validation_columns, _paper_test, spread_arrays, fitted_columns)
BY_TASK = Scoring(_valid_by_task, _test_by_task, _no_arrays, _fitted_by_task)


def check_laws(laws: Laws, y: Labels, tasks: Mapping[str, AbstractHead], whose: str) -> None:
    """Refuse laws whose scores would say nothing beside those of other arms.

    There is one law for each of the tasks, with a forecast for every window. It gives masses where
    the corpus's own head gives masses (the nats of a density are other nats), to as many classes.
    """
    if laws.keys() != tasks.keys():
        raise ValueError(
            f"{whose} has laws for {sorted(laws)}, but its tasks are {sorted(tasks)}; "
            "return one law for each task"
        )
    for name, law in laws.items():
        where = f"{whose}, task {name!r}"
        if not isinstance(law, Law):
            raise ValueError(
                f"{where}: got a {type(law).__name__}, which is no law; return a "
                "scrollmt.laws.GaussianLaw or another subclass of scrollmt.laws.Law"
            )
        if len(law) != len(y[name]):
            raise ValueError(
                f"{where}: the law holds {len(law)} forecasts for {len(y[name])} windows; "
                "return one for each window, in their order"
            )
        lines = np.zeros(len(law) if tasks[name].rows == 1 else (len(law), tasks[name].rows))
        usual = tasks[name].law(lines, lines)
        mine, theirs = _masses(law, y[name]), _masses(usual, y[name])
        if mine is not None and theirs is not None and not np.array_equal(mine, theirs):
            raise ValueError(
                f"{where}: a {type(law).__name__} cannot be compared with a "
                f"{type(usual).__name__}: one scores by a probability, the other by a density; "
                f"return a law of the kind that {tasks[name]!r} has"
            )
        classes = {kind.num_classes for kind in (law, usual) if isinstance(kind, DiscreteLaw)}
        if len(classes) == 2:
            raise ValueError(
                f"{where}: the numbers of classes of the law and of {tasks[name]!r} are "
                f"{sorted(classes)}; give every class of the corpus a probability"
            )


def _masses(law: Law, y: Any) -> np.ndarray | None:
    """Where `law.log_prob(y)` is the logarithm of a probability; None where the law cannot say."""
    if isinstance(law, DiscreteLaw):
        return np.ones(len(law), dtype=bool)
    return law.is_atom(y) if isinstance(law, RealLaw) else None
