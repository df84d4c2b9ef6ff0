"""Every number of a record is computed here, from laws, for all arms alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.stats import pearsonr, spearmanr

from scrollmt import scores
from scrollmt.heads import Gaussian
from scrollmt.laws import RealLaw
from scrollmt.model import Model
from scrollmt.predictive import Law

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
