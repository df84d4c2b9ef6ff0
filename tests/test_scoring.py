"""Every column of a record against a direct computation with SciPy."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm, pearsonr, spearmanr

from helpers import H, draw_belief, small_model
from scrollmt.heads import Censored
from scrollmt.laws import EventLaw, GaussianLaw, Law, OrdinalLaw
from scrollmt.model import Model, Task
from scrollmt.paper.arena import scoring
from scrollmt.paper.arms.weighted import Spread

N = 50


@pytest.fixture
def laws() -> dict[str, Law]:
    rng = np.random.default_rng(0)
    chance = rng.uniform(0.05, 0.95, N)
    return {
        "state": GaussianLaw(rng.normal(size=N), rng.uniform(0.3, 2.0, N)),
        "event": EventLaw(np.log(np.stack([1.0 - chance, chance], axis=1))),
        "regime": OrdinalLaw(np.log(rng.dirichlet(np.ones(4), N))),
    }


@pytest.fixture
def y() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {
        "state": rng.normal(size=N),
        "event": rng.integers(0, 2, N),
        "regime": rng.integers(0, 4, N),
    }


def nlls(laws: dict, y: dict) -> dict[str, float]:
    rows = np.arange(N)
    return {
        "reg_nll": -norm.logpdf(y["state"], laws["state"].mean, laws["state"].sd).mean(),
        "evt_nll": -laws["event"].log_probs[rows, y["event"]].mean(),
        "ord_nll": -laws["regime"].log_probs[rows, y["regime"]].mean(),
    }


def test_test_columns_are_nlls_coverage_and_accuracy(laws: dict, y: dict) -> None:
    expected = nlls(laws, y)
    levels = np.arange(1, 20) / 20
    z = norm.ppf((1 + levels) / 2)
    inside = np.abs(y["state"] - laws["state"].mean)[:, None] <= z * laws["state"].sd[:, None]
    expected["reg_calerr"] = np.mean(np.abs(inside.mean(axis=0) - levels))
    expected["evt_acc_pct"] = 100 * np.mean((laws["event"].prob > 0.5) == y["event"])
    assert scoring.test_columns(laws, y) == pytest.approx(expected, rel=1e-12)


def test_validation_columns_add_up_in_nats_and_in_mixed_units(laws: dict, y: dict) -> None:
    each = nlls(laws, y)
    squared = np.mean((y["state"] - laws["state"].mean) ** 2)
    expected = {f"valid_{name}": value for name, value in each.items()}
    expected["valid_nats"] = sum(each.values())
    expected["valid_mixed"] = squared + each["evt_nll"] + each["ord_nll"]
    assert scoring.validation_columns(laws, y) == pytest.approx(expected, rel=1e-12)


def test_an_arm_with_one_head_has_the_columns_of_that_head(laws: dict, y: dict) -> None:
    event = {"event": laws["event"]}
    assert scoring.test_columns(event, y).keys() == {"evt_nll", "evt_acc_pct"}
    judged = scoring.validation_columns(event, y)
    assert judged.keys() == {"valid_evt_nll", "valid_nats", "valid_mixed"}
    assert judged["valid_nats"] == judged["valid_mixed"] == judged["valid_evt_nll"]
    state = {"state": laws["state"]}
    assert scoring.test_columns(state, y).keys() == {"reg_nll", "reg_calerr"}


def test_spread_columns_compare_the_variance_with_residuals_and_truth(laws: dict, y: dict) -> None:
    law, truth = laws["state"], np.random.default_rng(2).uniform(1.0, 3.0, N)
    var = law.sd**2
    alone = {
        "mean_sd": law.sd.mean(),
        "mean_var": var.mean(),
        "residual_var": np.mean((y["state"] - law.mean) ** 2),
        "mean_weight": np.mean(1 / (2 * var)),
        "var_range": var.max() / var.min(),
    }
    assert scoring.spread_columns(law, y["state"], None) == pytest.approx(alone, rel=1e-12)
    beside = alone | {
        "mean_true_var": truth.mean(),
        "true_var_range": truth.max() / truth.min(),
        "pearson": pearsonr(var, truth)[0],
        "spearman": spearmanr(var, truth)[0],
    }
    assert scoring.spread_columns(law, y["state"], truth) == pytest.approx(beside, rel=1e-12)


@pytest.mark.parametrize("flat", ["truth", "law", "law up to rounding"])
def test_a_constant_variance_has_no_correlation(laws: dict, y: dict, flat: str) -> None:
    rng = np.random.default_rng(3)
    truth = np.ones(N) if flat == "truth" else rng.uniform(1.0, 3.0, N)
    sd = laws["state"].sd
    if flat != "truth":
        sd = 0.8 + (1e-8 * rng.normal(size=N) if "rounding" in flat else np.zeros(N))
    row = scoring.spread_columns(GaussianLaw(laws["state"].mean, sd), y["state"], truth)
    assert "mean_true_var" in row
    assert not row.keys() & {"pearson", "spearman"}


def test_fitted_columns_are_precisions_noise_and_the_share_of_the_belief() -> None:
    model = small_model({"gaussian": "diag", "event": "diag"})
    named = Model(model.backbone, {"state": model.tasks["gaussian"], "event": model.tasks["event"]})
    law = named.tasks["state"].head.law(np.zeros(3), np.array([0.1, 0.2, 0.6]))
    row = scoring.fitted_columns(named, {"state": law})
    expected = {
        "alpha_state": np.exp(-0.2),
        "alpha_event": np.exp(0.1),
        "sigma_obs": 0.6,
        "belief_share": 0.3 / (0.6**2 + 0.3),
    }
    assert row == pytest.approx(expected, rel=1e-6)
    # An sd head has no noise to report, and an arm without a state has precisions alone.
    event = {"event": model.tasks["event"]}
    point = draw_belief("none", H, rows=2).belief
    spread = Model(model.backbone, {"state": Task(Spread(), point, jnp.zeros(())), **event})
    only = {"alpha_event": np.exp(0.1)}
    found = scoring.fitted_columns(spread, {"state": law})
    assert found == pytest.approx({"alpha_state": 1.0, **only}, rel=1e-6)
    assert scoring.fitted_columns(Model(model.backbone, event), {}) == pytest.approx(only, rel=1e-6)


def test_a_fitted_number_is_exponentiated_in_double_precision() -> None:
    stored = np.float32(-0.2)  # the log precision of the small model's first task
    found = scoring.fitted_columns(small_model({"event": "diag"}), {})
    assert found == pytest.approx({"alpha_event": np.exp(np.float64(stored))}, rel=1e-15)


# Any tasks


def test_columns_by_task_are_the_metrics_that_suit_each_law(laws: dict, y: dict) -> None:
    named = {"level": "state", "alarm": "event", "band": "regime"}
    laws = {name: laws[old] for name, old in named.items()}
    y = {name: y[old] for name, old in named.items()}
    found = scoring.BY_TASK.test(laws, y, None)
    each = nlls(*({old: part[name] for name, old in named.items()} for part in (laws, y)))
    expected = dict(zip((f"{name}.nll" for name in named), each.values(), strict=True))
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-12)
    assert found["alarm.brier"] == pytest.approx(np.mean((laws["alarm"].prob - y["alarm"]) ** 2))
    assert {"level.crps", "level.coverage_error", "band.rps", "band.accuracy"} <= found.keys()
    valid = scoring.BY_TASK.valid(laws, y)
    assert valid["valid_nats"] == pytest.approx(sum(expected.values()), rel=1e-12)
    assert valid["valid.band.nll"] == pytest.approx(expected["band.nll"], rel=1e-12)


def test_a_missing_label_is_left_out_of_every_mean_by_task(laws: dict, y: dict) -> None:
    some = np.where(np.arange(N) < 30, y["state"], np.nan)
    found = scoring.BY_TASK.test({"level": laws["state"]}, {"level": some}, None)
    few = scoring.BY_TASK.test({"level": laws["state"][:30]}, {"level": y["state"][:30]}, None)
    assert found == pytest.approx(few, rel=1e-12)


def test_fitted_numbers_by_task() -> None:
    model = small_model({"gaussian": "diag", "event": "diag"})
    expected = {
        "gaussian.alpha": np.exp(-0.2),
        "gaussian.sigma_obs": 0.6,
        "event.alpha": np.exp(0.1),
    }
    assert scoring.BY_TASK.fitted(model, {}) == pytest.approx(expected, rel=1e-6)


def test_a_censored_value_is_compared_with_a_censored_law_only() -> None:
    y = {"lead": np.array([0.5, 1.0])}
    head = Censored(lower=0.5)
    same = {"lead": head.law(np.ones(2), np.ones(2))}
    scoring.check_laws(same, y, {"lead": head}, "arm")
    with pytest.raises(ValueError, match="GaussianLaw cannot be compared with a CensoredLaw"):
        scoring.check_laws({"lead": GaussianLaw(np.ones(2), np.ones(2))}, y, {"lead": head}, "arm")
