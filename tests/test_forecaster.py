"""The front: fit, predict, evaluate, score; what comes in, what is refused, what is kept."""

import copy
import doctest
import io
import logging
import re
import signal
import subprocess
import sys
import textwrap
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from scrollmt import (
    Categorical,
    EventLaw,
    Forecaster,
    Gaussian,
    GaussianLaw,
    Ordinal,
    OrdinalLaw,
    load,
)
from scrollmt._data.holdout import in_current_precision
from scrollmt._fitting import training
from scrollmt._fitting.progress import ProgressLine
from scrollmt.beliefs import LowRank
from scrollmt.presets import PAPER, PRESETS
from small import (
    SHORT,
    STATE,
    TASKS,
    TINY,
    assert_close,
    assert_same,
    numbers,
    tables,
    tiny,
    windows,
)


@pytest.fixture(scope="module")
def fitted() -> Forecaster:
    return tiny().fit(*windows())


NEW, NEW_Y = windows(13, seed=1)


# What comes out


def test_predict_gives_a_law_for_every_task_in_the_order_asked(fitted: Forecaster) -> None:
    laws = fitted.predict(NEW)
    assert list(laws) == ["state", "event", "regime"]
    assert [type(law) for law in laws.values()] == [GaussianLaw, EventLaw, OrdinalLaw]
    assert all(len(law) == len(NEW) for law in laws.values())
    state, event, regime = (laws[name] for name in TASKS)
    assert isinstance(state, GaussianLaw)
    assert isinstance(event, EventLaw)
    assert isinstance(regime, OrdinalLaw)
    assert state.mean.shape == state.sd.shape == event.prob.shape == (13,)
    np.testing.assert_allclose(state.quantile(0.9), state.mean + norm.ppf(0.9) * state.sd)
    lower, upper = state.interval(0.9)
    np.testing.assert_allclose(norm.cdf(upper, state.mean, state.sd), 0.95)
    np.testing.assert_allclose(state.cdf(lower), 0.05)
    assert state.sample(jax.random.key(0), 100).shape == (100, 13)
    assert regime.probs.shape == (13, 3)
    np.testing.assert_allclose(regime.probs.sum(axis=1), 1.0, rtol=1e-6)
    assert state.noise_var is not None
    assert (state.noise_var < state.var).all()


def test_the_laws_are_those_of_the_model_in_the_users_units(fitted: Forecaster) -> None:
    scales, task = fitted.scales_, fitted.model_.tasks["state"]
    z = (NEW - scales.x_mean) / scales.x_sd
    psi = np.asarray(fitted.model_.features(jnp.asarray(z, jnp.float32)), np.float64)
    law: Any = fitted.predict(NEW)["state"]
    np.testing.assert_allclose(
        law.mean, scales.offset["state"] + psi @ np.asarray(task.belief.mu), rtol=1e-5, atol=1e-6
    )
    cov = np.asarray(task.belief.cov(), np.float64)
    head: Any = task.head
    noise = float(head.sigma_obs) ** 2
    np.testing.assert_allclose(law.var, noise + np.sum(psi @ cov * psi, axis=1), rtol=1e-5)


def test_evaluate_is_a_table_by_task(fitted: Forecaster) -> None:
    table = fitted.evaluate(NEW, NEW_Y)
    laws: Any = fitted.predict(NEW)
    assert list(table.index) == list(TASKS)
    assert table.index.name == "task"
    state, event, regime = (table.loc[name] for name in TASKS)
    expected = -norm.logpdf(NEW_Y["state"], laws["state"].mean, laws["state"].sd).mean()
    assert state["nll"] == pytest.approx(expected, rel=1e-9)
    beside = {"nll", "nll_se", "labels", "skill", "skill_se", "climatology"}
    assert set(state.dropna().index) >= {*beside, "coverage_error", "crps", "rmse", "mae"}
    assert set(event.dropna().index) == {*beside, "accuracy", "brier"}
    assert set(regime.dropna().index) == {*beside, "accuracy", "rps"}
    happened = NEW_Y["event"]
    assert event["brier"] == pytest.approx(np.mean((laws["event"].prob - happened) ** 2))
    assert event["accuracy"] == np.mean((laws["event"].prob > 0.5) == happened)
    picked = laws["regime"].probs[np.arange(13), NEW_Y["regime"]]
    assert regime["nll"] == pytest.approx(-np.log(picked).mean())
    assert table.dtypes.eq(float).all()


def test_score_is_the_mean_log_score_added_over_the_tasks(fitted: Forecaster) -> None:
    assert fitted.score(NEW, NEW_Y) == pytest.approx(-fitted.evaluate(NEW, NEW_Y)["nll"].sum())
    weight = np.r_[2.0, 0.0, np.ones(11)]
    rows = np.r_[0, 0, 2:13]
    twice = {name: y[rows] for name, y in NEW_Y.items()}
    assert fitted.score(NEW, NEW_Y, weight) == pytest.approx(fitted.score(NEW[rows], twice))
    assert fitted.score(NEW, NEW_Y, {"event": weight}) != fitted.score(NEW, NEW_Y)
    # The missing label of one task takes nothing from the others.
    gap = {**NEW_Y, "state": np.r_[np.nan, NEW_Y["state"][1:]]}
    both = fitted.evaluate(NEW, gap)["nll"], fitted.evaluate(NEW, NEW_Y)["nll"]
    assert both[0]["state"] == pytest.approx(
        fitted.evaluate(NEW[1:], {n: y[1:] for n, y in NEW_Y.items()})["nll"]["state"]
    )
    assert both[0]["event"] == both[1]["event"]
    nothing = {**NEW_Y, "event": np.full(13, np.nan)}
    assert np.isnan(fitted.evaluate(NEW, nothing).loc["event", "nll"])
    with pytest.raises(ValueError, match=r"no label .*\['event'\]"):
        fitted.score(NEW, nothing)


def test_what_was_learned_ends_in_an_underscore(fitted: Forecaster) -> None:
    learned = {name for name in vars(fitted) if name not in fitted.get_params()}
    assert all(name.endswith("_") for name in learned)
    assert fitted.n_features_in_ == 3
    assert not hasattr(fitted, "feature_names_in_")
    assert not hasattr(tiny(), "model_")
    assert fitted.stop_reason_ == "steps"
    assert list(fitted.history_["step"]) == list(range(1, 21))
    best = fitted.candidates_.query("chosen")["validation_nll"].item()
    assert fitted.history_["validation"].min() == best
    assert fitted.validation_nll_ == pytest.approx(best, rel=1e-5)
    with pytest.raises(NotFittedError, match="call fit"):
        tiny().predict(NEW)
    with pytest.raises(NotFittedError, match="call fit"):
        tiny().save("nowhere")


def test_the_example_of_the_docstring_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    # The default preset has a test of its own; here the words of the example are tried.
    monkeypatch.setitem(PRESETS, "default", TINY)
    found = doctest.DocTestFinder().find(Forecaster, "Forecaster", globs={})
    examples = [test for test in found if test.examples]
    assert len(examples) == 1
    out = io.StringIO()
    result = doctest.DocTestRunner().run(examples[0], out=out.write)
    assert result.failed == 0, out.getvalue()


# What comes in


def test_tables_and_arrays_give_the_same_model(fitted: Forecaster) -> None:
    X, Y = tables()
    table = tiny().fit(X, Y)
    assert list(table.feature_names_in_) == ["a", "b", "c"]
    assert_same(numbers(table, NEW), numbers(fitted, NEW))
    shuffled = pd.DataFrame(NEW, columns=["a", "b", "c"])[["c", "a", "b"]]
    assert_same(numbers(table, shuffled), numbers(fitted, NEW))
    with pytest.raises(ValueError, match=r"missing \['b'\], unknown \['d'\]"):
        table.predict(shuffled.rename(columns={"b": "d"}))
    with pytest.raises(ValueError, match=r"\(13, 2\).*\(N, 3\)"):
        table.predict(NEW[:, :2])
    # A column order of the user's own, labels of every dtype, and names lost at the next fit.
    typed = Y.astype({"event": "boolean", "regime": "Int64", "state": "Float64"})
    again = table.fit(X.to_numpy(), typed[["regime", "state", "event"]])
    assert_same(numbers(again, NEW), numbers(fitted, NEW))
    assert not hasattr(again, "feature_names_in_")


def test_validation_is_a_share_a_pair_or_a_triple(fitted: Forecaster) -> None:
    X, Y = windows()
    order = np.random.default_rng(0).permutation(60)
    held, kept = np.sort(order[:12]), np.sort(order[12:])

    def part(rows: np.ndarray) -> Any:
        return X[rows], {name: y[rows] for name, y in Y.items()}

    for pair in (part(held), list(part(held)), (*part(held), np.full(12, 3.0))):
        model = tiny(validation=pair).fit(*part(kept))
        assert_same(numbers(model, NEW), numbers(fitted, NEW))
        assert model.validation_nll_ == pytest.approx(fitted.validation_nll_, rel=1e-6)
    assert fitted.validation_nll_ == pytest.approx(-fitted.score(*part(held)), rel=1e-5)
    share = tiny(validation=np.float32(0.2)).fit(X, Y)
    assert_same(numbers(share, NEW), numbers(fitted, NEW))
    first: Any = (*part(held), np.r_[np.ones(6), np.zeros(6)])
    weighted = tiny(validation=first).fit(*part(kept))
    expected = -weighted.score(*first)
    assert weighted.validation_nll_ == pytest.approx(expected, rel=1e-5)


def test_missing_labels_in_every_form_are_the_same_gap(fitted: Forecaster) -> None:
    X, Y = windows()
    gap = np.arange(60) % 7 == 3

    def fit(state: Any, event: Any, regime: Any) -> dict[str, np.ndarray]:
        return numbers(tiny().fit(X, {"state": state, "event": event, "regime": regime}), NEW)

    nan = [np.where(gap, np.nan, Y[name]) for name in TASKS]
    expected = fit(*nan)
    none = [[None if g else y for g, y in zip(gap, Y[n], strict=True)] for n in TASKS]
    assert_same(fit(*none), expected)
    negative = [nan[0], np.where(gap, -1, Y["event"]), np.where(gap, -7, Y["regime"])]
    with pytest.warns(UserWarning, match="negative and count as missing"):
        assert_same(fit(*negative), expected)
    dtypes = ("Float64", "boolean", "Int64")
    nullable = [pd.array(list(v), dtype=d) for v, d in zip(none, dtypes, strict=True)]
    assert_same(fit(*nullable), expected)
    other = numbers(fitted, NEW)
    assert any(not np.array_equal(other[k], expected[k]) for k in other)


def test_a_row_of_weight_two_is_that_row_twice_and_one_without_labels_is_none() -> None:
    X, Y = windows(48)
    valid = windows(12, seed=2)
    weight = np.r_[2.0, np.ones(46)]
    once = {name: y[:47] for name, y in Y.items()}
    rows = np.r_[0, 0, 1:47]
    twice = {name: y[rows] for name, y in Y.items()}

    def fit(X: Any, Y: Any, sample_weight: Any = None) -> dict[str, np.ndarray]:
        return numbers(tiny(validation=valid).fit(X, Y, sample_weight), NEW)

    weighted = fit(X[:47], once, weight)
    # The same sums in another order, through 20 steps of float32.
    assert_close(weighted, fit(X[rows], twice), rtol=2e-5)
    assert_same(fit(X[:47], once, {name: weight for name in TASKS}), weighted)
    assert_same(fit(X[:47], once, pd.DataFrame({name: weight for name in TASKS})), weighted)
    plain = fit(X[:47], once)
    assert np.abs(plain["state.mean"] - weighted["state.mean"]).max() > 1e-3
    gap = np.arange(48) == 47
    unseen = {"state": np.where(gap, np.nan, Y["state"])}
    unseen |= {name: np.where(gap, -1, Y[name]) for name in ("event", "regime")}
    assert_close(fit(X, unseen), plain, rtol=2e-5)
    assert_close(fit(X, Y, np.where(gap, 0.0, 1.0)), plain, rtol=2e-5)


def test_a_lone_task_takes_a_plain_array() -> None:
    X, Y = windows()
    expected = numbers(tiny(STATE).fit(X, {"state": Y["state"]}), NEW)
    assert_same(numbers(tiny(STATE).fit(X.tolist(), Y["state"].tolist()), NEW), expected)


# What is refused


def broken(**columns: Any) -> dict[str, Any]:
    return {**windows()[1], **columns}


def with_cell(value: Any) -> np.ndarray:
    X = windows()[0]
    X[7, 1] = value
    return X


Y60 = windows()[1]


@pytest.mark.parametrize(
    ("X", "Y", "says"),
    [
        (windows()[0][:50], Y60, r"task 'state'.*\(60,\).*50 rows.*\(50,\)"),
        (windows(70)[0], Y60, r"task 'state'.*\(60,\).*70 rows.*\(70,\)"),
        (np.zeros(60), Y60, r"X has shape \(60,\).*\(N, D\)"),
        (np.zeros((60, 2, 2)), Y60, r"X has shape \(60, 2, 2\).*\(N, D\)"),
        (np.zeros((0, 3)), {n: [] for n in TASKS}, r"X has no windows.*\(0, 3\)"),
        (with_cell(np.nan), Y60, "X: column 1 is NaN at row 7"),
        (with_cell(-np.inf), Y60, "X: column 1 is -inf at row 7"),
        (with_cell(0.0).astype(str), Y60, "X must hold numbers"),
        (windows()[0], broken(rain=np.zeros(60)), r"unknown \['rain'\]"),
        (windows()[0], {"state": Y60["state"]}, r"missing \['event', 'regime'\]"),
        (windows()[0], np.zeros((60, 3)), r"Y is a ndarray.*'state', 'event', 'regime'"),
        (windows()[0], broken(event=np.full(60, 2)), r"Y: task 'event'.*0 to 1"),
        (windows()[0], broken(regime=np.full(60, 0.5)), "Y: task 'regime'.*0.5 is no class"),
        (windows()[0], broken(state=np.full(60, np.inf)), "Y: task 'state'.*infinite"),
        (windows()[0], broken(state=np.full(60, np.nan)), "'state' has no observed label"),
        (windows()[0], broken(event=np.zeros(60)), "'event' shows only class 0"),
        (windows()[0], broken(state=np.full(60, 0.1)), r"'state' is constant \(0.1\)"),
        (*windows(9), "9 windows are too few.*at least 10.*validation="),
    ],
)
def test_wrong_data_are_refused_before_any_training(X: Any, Y: Any, says: str) -> None:
    model = tiny()
    with pytest.raises(ValueError, match=f"(?s){says}"):
        model.fit(X, Y)
    assert not hasattr(model, "model_")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"tasks": {}}, "non-empty mapping"),
        ({"tasks": [Gaussian()]}, "non-empty mapping"),
        ({"tasks": {"state": "gaussian"}}, "task 'state'.*got 'gaussian'"),
        ({"tasks": {1: Gaussian()}}, "task 1"),
        ({"belief": "dense"}, r"unknown belief 'dense'.*'none', 'diag', 'full'"),
        ({"preset": "fast"}, r"unknown preset 'fast'.*'default', 'quick', 'held-out', 'paper'"),
        ({"optimizer": "sgd"}, r"optimizer must be 'adam', an optax.*got 'sgd'"),
        ({"backbone": "cnn"}, r"no backbone 'cnn'.*\['tanh'\]"),
        ({"seed": -1}, "seed must be a whole number.*got -1"),
        ({"seed": 2**32}, "seed must be a whole number"),
        ({"seed": 0.5}, "seed must be a whole number"),
        ({"seed": None}, "seed must be a whole number.*got None"),
        ({"seeds": 5}, r"seeds must be a list.*such as \[1, 2, 3\], got 5; ensemble=M"),
        ({"seeds": [10**5000]}, "seed must be a whole number.*got a number of too many digits"),
        ({"seeds": [1.5]}, "seed must be a whole number.*got 1.5"),
        ({"joint": 3}, r"joint: \[3\] is no group.*joint=\['a', 'b'\]"),
        ({"joint": [3]}, r"joint: \[3\] is no group"),
        ({"steps": 0}, "steps must be a whole number >= 1, got 0"),
        ({"patience": 0}, "patience must be a whole number >= 1, got 0"),
        ({"belief": ["diag"]}, r"unknown belief \['diag'\]"),
        ({"belief": {"state": "diag"}}, r"belief must have one entry .*and 'event' is missing"),
        ({"belief": dict.fromkeys(TASKS, "dense")}, "task 'state': unknown belief 'dense'"),
        ({"belief": LowRank.of(rank=5)}, "rank must be .* the number of features, 4, got 5"),
        ({"validation": 0.0}, "share between 0 and 1.*got 0.0"),
        ({"validation": 1}, "share between 0 and 1.*got 1"),
        ({"validation": "half"}, "share between 0 and 1.*got 'half'"),
        ({"validation": (NEW,)}, "share between 0 and 1"),
        ({"validation": (NEW[:, :2], NEW_Y)}, r"validation X has shape \(13, 2\).*\(N, 3\)"),
        ({"validation": (NEW[:5], NEW_Y)}, r"validation Y: task 'state'.*\(13,\).*\(5,\)"),
        ({"validation": (NEW, NEW_Y, [1.0])}, r"validation sample_weight.*\(1,\).*\(13,\)"),
        ({"validation": (NEW * 1e200, NEW_Y)}, "validation X: column 0.*check its units"),
        (
            {"validation": (NEW, {**NEW_Y, "state": NEW_Y["state"] * 1e200})},
            "validation Y: task 'state'.*check its units",
        ),
        ({"validation": (NEW, NEW_Y, np.zeros(13))}, "validation part has no observed label"),
        ({"tasks": {**TASKS, "regime": Categorical(3)}}, "task 'regime'.*belief='none'"),
        ({"backbone": eqx.nn.Linear(2, 4, key=jax.random.key(0))}, r"one point of shape \(3,\)"),
        ({"backbone": jnp.sum}, r"maps \(3,\) to \(\)"),
    ],
)
def test_wrong_settings_are_refused_at_the_fit(settings: dict[str, Any], says: str) -> None:
    model = tiny().set_params(**settings)
    with pytest.raises(ValueError, match=f"(?s){says}"):
        model.fit(*windows())
    assert not hasattr(model, "model_")


def test_integers_that_no_float_holds_are_refused() -> None:
    X, Y = windows()
    huge = X.astype(object)
    huge[4, 1] = 10**400
    with pytest.raises(ValueError, match="X has a whole number of 401 digits"):
        tiny().fit(huge, Y)
    labels = [10**400, *Y["state"][1:]]
    with pytest.raises(ValueError, match="'state' has a whole number of 401 digits at position 0"):
        tiny().fit(X, {**Y, "state": labels})
    with pytest.raises(ValueError, match=r"sample_weight.* has a whole number of 401 digits"):
        tiny().fit(X, Y, sample_weight=[10**400] + [1] * 59)


@pytest.mark.slow
def test_steps_and_patience_take_the_place_of_the_presets_own() -> None:
    X, Y = windows()
    short = tiny(steps=7).fit(X, Y)
    assert short.candidates_["steps"].tolist() == [7]
    assert short.stop_reason_ == "steps"
    schedule = replace(TINY.schedule, steps=7)
    assert_same(
        numbers(short, NEW),
        numbers(tiny(preset=replace(TINY, schedule=schedule)).fit(X, Y), NEW),
    )
    hasty = tiny(patience=1, preset=replace(TINY, schedule=replace(TINY.schedule, steps=400)))
    assert hasty.fit(X, Y).stop_reason_ == "patience"
    assert hasty.get_params()["patience"] == 1
    copy = clone(hasty).set_params(steps=3, patience=None)
    assert (copy.steps, copy.patience) == (3, None)
    assert copy.fit(X, Y).candidates_["steps"].tolist() == [3]


def test_a_new_window_far_outside_is_refused_by_column(fitted: Forecaster) -> None:
    far = NEW.copy()
    far[4, 2] = 1e30
    with pytest.raises(ValueError, match="X: column 2 is 1e\\+30 at row 4"):
        fitted.predict(far)
    # A long way out, yet within what can be computed.
    far[4, 2] = 1e9
    with pytest.warns(UserWarning, match=r"column 2 is 1e\+09 \(row 4, 1 rows\) and lay between"):
        law: Any = fitted.predict(far)
    assert np.isfinite(law["state"].mean).all()
    assert np.isfinite(law["regime"].log_probs[4]).any()


def test_every_law_says_how_far_outside_the_training_range_it_is(
    fitted: Forecaster, tmp_path: Path
) -> None:
    low, high = fitted.scales_.x_low, fitted.scales_.x_high
    assert low is not None
    assert high is not None
    X = np.tile((low + high) / 2.0, (3, 1))
    X[1, 0] = high[0] + 0.25 * (high[0] - low[0])
    X[2, 1] = low[1] - 3.0 * (high[1] - low[1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        near = fitted.predict(X[:2])
    with pytest.warns(UserWarning, match="far outside the training data: column 1") as told:
        laws = fitted.predict(X)
    assert len(told) == 1
    for law in (laws, *laws.values()):
        found: Any = law.extrapolation  # type: ignore[attr-defined]
        np.testing.assert_allclose(found, [0.0, 0.25, 3.0])
    assert "extrapolation" not in near.to_frame()
    np.testing.assert_allclose(laws.to_frame(wide=True)["extrapolation"], [0.0, 0.25, 3.0])
    fitted.save(tmp_path / "model")
    with pytest.warns(UserWarning, match="far outside"):
        again = load(tmp_path / "model").predict(X)
    np.testing.assert_array_equal(again["event"].extrapolation, laws["event"].extrapolation)  # type: ignore[arg-type]


def test_scores_at_inputs_far_outside_come_with_one_warning(fitted: Forecaster) -> None:
    far = NEW.copy()
    far[4, 2] = 1e3
    for score in (fitted.evaluate, fitted.score):
        with pytest.warns(UserWarning, match="far outside") as told:
            score(far, NEW_Y)
        assert len(told) == 1


def test_a_task_without_validation_labels_is_named_in_a_warning() -> None:
    valid = (NEW[:12], {**{n: y[:12] for n, y in NEW_Y.items()}, "event": np.full(12, np.nan)})
    X, Y = windows(48)
    with pytest.warns(UserWarning, match=r"\['event'\].*ignore them"):
        model = tiny(validation=valid).fit(X, Y)
    table = model.evaluate(*valid)["nll"]
    assert model.validation_nll_ == pytest.approx(table["state"] + table["regime"], rel=1e-5)


# Few windows, odd units


def test_a_handful_of_windows_fits_with_windows_to_validate_on() -> None:
    X, Y = windows(5)
    valid = (NEW[:12], NEW_Y["state"][:12])
    model = tiny(STATE, validation=valid).fit(X, Y["state"])
    assert np.isfinite(model.score(NEW, NEW_Y["state"]))


@pytest.mark.parametrize("unit", [1e-6, 1e6, 2.0**-20])
def test_the_default_preset_does_not_care_about_units(unit: float) -> None:
    X, Y = windows()
    plain = Forecaster(STATE, preset=SHORT).fit(X, Y["state"])
    scaled = Forecaster(STATE, preset=SHORT).fit(X, unit * Y["state"])
    one: Any = plain.predict(NEW)["state"]
    other: Any = scaled.predict(NEW)["state"]
    np.testing.assert_allclose(other.mean, unit * one.mean, rtol=1e-9, atol=1e-9 * unit)
    np.testing.assert_allclose(other.sd, unit * one.sd, rtol=1e-9)
    nats = np.log(unit)
    assert scaled.validation_nll_ == pytest.approx(plain.validation_nll_ + nats, abs=1e-9)
    np.testing.assert_allclose(
        scaled.history_["validation"], plain.history_["validation"] + nats, atol=1e-9
    )
    score = scaled.score(NEW, unit * NEW_Y["state"])
    assert score == pytest.approx(plain.score(NEW, NEW_Y["state"]) - nats, abs=1e-9)
    # It has learned something, not merely the same nothing: better than the law of all windows.
    guess = norm.logpdf(NEW_Y["state"], Y["state"].mean(), Y["state"].std()).mean()
    assert plain.score(NEW, NEW_Y["state"]) > guess + 0.1


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_the_paper_preset_stays_finite_in_odd_units_and_says_so(unit: float) -> None:
    X, Y = windows()
    with pytest.warns(UserWarning, match=r"task 'state' has sd.*preset='default'"):
        model = tiny(STATE).fit(X, unit * Y["state"])
    law: Any = model.predict(NEW)["state"]
    assert np.isfinite(law.mean).all()
    assert np.isfinite(law.sd).all()
    assert np.isfinite(model.validation_nll_)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tiny(STATE).fit(X, 100.0 * Y["state"])


def test_a_constant_column_changes_nothing() -> None:
    X, Y = windows()
    X[:, 1] = 0.1
    model = tiny(STATE).fit(X, Y["state"])
    moved = NEW.copy()
    moved[:, 1] = 1e6
    plain = NEW.copy()
    plain[:, 1] = 0.1
    with pytest.warns(UserWarning, match="column 1 is 1e.06 .* was always 0.1 in training"):
        found = numbers(model, moved)
    assert_same(found, numbers(model, plain))


# Starting anew, copies, precision


def test_fit_starts_anew_and_repeats_itself(fitted: Forecaster) -> None:
    model = tiny().fit(*windows(seed=5))
    assert_same(numbers(model.fit(*windows()), NEW), numbers(fitted, NEW))
    assert len(model.history_) == 20
    other = numbers(tiny(seed=1).fit(*windows()), NEW)
    assert not np.array_equal(other["state.mean"], numbers(fitted, NEW)["state.mean"])
    # What was given is not touched, and later settings do not reach into what was learned.
    assert float(STATE["state"].log_sigma_obs) == 0.0
    before = numbers(model, NEW)
    model.set_params(tasks={"other": Gaussian()}, belief="full")
    assert_same(numbers(model, NEW), before)
    assert list(model.evaluate(NEW, NEW_Y).index) == list(TASKS)


def test_copies_are_complete(fitted: Forecaster) -> None:
    assert_same(numbers(copy.deepcopy(fitted), NEW), numbers(fitted, NEW))


@pytest.mark.slow
def test_a_fit_under_x64_is_float64_throughout() -> None:
    def precisions(tree: Any) -> set[str]:
        return {a.dtype.name for a in jax.tree.leaves(tree) if eqx.is_inexact_array(a)}

    X, Y = windows()
    model = tiny(STATE)  # made, with its heads, before the precision is chosen
    with jax.enable_x64(True):
        assert precisions(in_current_precision(TASKS)) == {"float64"}
        model.fit(X, Y["state"])
        assert precisions(model.model_) == {"float64"}
        z = (NEW - model.scales_.x_mean) / model.scales_.x_sd
        mean = model.model_.features(jnp.asarray(z)) @ model.model_.tasks["state"].belief.mu
        found = numbers(model, NEW)["state.mean"] - model.scales_.offset["state"]
        np.testing.assert_allclose(found, mean, rtol=1e-12, atol=1e-13)
    with pytest.raises(ValueError, match=r"fitted in float64.*jax_enable_x64"):
        model.predict(NEW)
    with jax.enable_x64(True):
        heads = {"state": Gaussian(0.5)}
    back = tiny(heads).fit(X, Y["state"])
    assert precisions(back.model_) == {"float32"}


# Many windows, few programs


def compilations(caplog: pytest.LogCaptureFixture) -> int:
    return sum("Finished XLA compilation" in record.message for record in caplog.records)


def test_predict_compiles_for_few_sizes(
    fitted: Forecaster, caplog: pytest.LogCaptureFixture
) -> None:
    X, _ = windows(64, seed=3)
    fitted.predict(X[:20])
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        for n in (17, 33, 50, 64):
            fitted.predict(X[:n])
        assert compilations(caplog) == 0
        jax.jit(lambda x: jnp.sin(x) * 3.25)(jnp.zeros(3)).block_until_ready()
        assert compilations(caplog) >= 1  # the count can count


def test_a_window_alone_gets_the_law_it_gets_among_many(fitted: Forecaster) -> None:
    X = np.random.default_rng(0).normal(size=(70_000, 3))

    def compare(model: Forecaster, X: np.ndarray, some: list[int]) -> None:
        many = numbers(model, X)
        for row in some:
            for name, alone in numbers(model, X[row : row + 1]).items():
                assert len(many[name]) == len(X)
                np.testing.assert_allclose(alone[0], many[name][row], rtol=1e-6, atol=1e-6)

    compare(fitted, X[:64], [0, 1, 40, 63])
    # More than one piece: the seam must not show.
    state = tiny(STATE).fit(windows()[0], windows()[1]["state"])
    compare(state, X, [0, 65_535, 65_536, 69_999])


# A backbone of the user's own


def test_any_module_from_inputs_to_features_serves_as_backbone() -> None:
    net = eqx.nn.MLP(3, 4, 5, 1, activation=jnp.tanh, key=jax.random.key(7))
    X, Y = windows()
    model = tiny(STATE, backbone=net).fit(X, Y["state"])
    assert isinstance(model.model_.backbone, eqx.nn.MLP)
    moved = jax.tree.leaves(eqx.filter(model.model_.backbone, eqx.is_array))
    start = jax.tree.leaves(eqx.filter(net, eqx.is_array))
    assert all(not jnp.array_equal(a, b) for a, b in zip(moved, start, strict=True))
    assert model.get_params()["backbone"] is net
    assert_same(numbers(model.fit(X, Y["state"]), NEW), numbers(model, NEW))


def test_members_over_one_module_start_alike_and_those_of_a_maker_do_not(tmp_path: Path) -> None:
    make = partial(eqx.nn.MLP, 3, 4, 5, 1, activation=jnp.tanh)
    X, Y = windows()
    one = tiny(STATE, backbone=make(key=jax.random.key(7)), ensemble=2)
    with pytest.warns(
        UserWarning, match="all 2 members start from the weights of the one backbone"
    ):
        one.fit(X, Y["state"])
    many = tiny(STATE, backbone=make, ensemble=2).fit(X, Y["state"])

    def gap(model: Forecaster) -> float:
        nets: list[Any] = [member.backbone for member in model.members_]
        return float(jnp.abs(nets[0].layers[0].weight - nets[1].layers[0].weight).max())

    # Twenty steps at a rate of 0.03 move no weight by more than 0.6.
    assert gap(many) > 0.7 > gap(one)
    many.save(tmp_path / "made")
    assert_same(numbers(load(tmp_path / "made", backbone=make), NEW), numbers(many, NEW))


@pytest.mark.parametrize("own", [optax.sgd(1e-3), partial(optax.adamw, weight_decay=0.1)])
def test_an_optimiser_of_ones_own_is_used_and_cloned_and_has_to_be_given_again(
    own: Any, tmp_path: Path
) -> None:
    X, Y = windows()
    adam = tiny(STATE).fit(X, Y["state"])
    model = tiny(STATE, optimizer=own).fit(X, Y["state"])
    said = [numbers(one, NEW)["state.mean"] for one in (model, adam)]
    assert not np.allclose(said[0], said[1])
    assert_same(numbers(clone(model).fit(X, Y["state"]), NEW), numbers(model, NEW))
    # A folder holds no code: it predicts as before, and never fits with another optimiser unasked.
    model.save(tmp_path / "own")
    back = load(tmp_path / "own")
    assert_same(numbers(back, NEW), numbers(model, NEW))
    with pytest.raises(ValueError, match="a model folder stores no optimizer of your own: set it"):
        back.fit(X, Y["state"])
    again = back.set_params(optimizer=own).fit(X, Y["state"])
    assert_same(numbers(again, NEW), numbers(model, NEW))
    adam.save(tmp_path / "adam")
    assert load(tmp_path / "adam").optimizer == "adam"


@pytest.mark.slow
def test_a_refit_learns_from_the_validation_part_and_keeps_its_score() -> None:
    X, Y = windows()
    plain, refit = (Forecaster(TASKS, preset=SHORT, refit=r).fit(X, Y) for r in (False, True))
    assert refit.validation_nll_ == plain.validation_nll_
    pd.testing.assert_frame_equal(
        refit.candidates_.drop(columns="batch_seconds"),
        plain.candidates_.drop(columns="batch_seconds"),
    )
    said = [numbers(model, NEW)["event.log_probs"] for model in (refit, plain)]
    assert not np.array_equal(said[0], said[1])
    # The labels of the validation part have a say now.
    order = np.random.default_rng(0).permutation(60)
    other = {**Y, "state": Y["state"].copy()}
    other["state"][order[0]] += 1.0
    changed = Forecaster(TASKS, preset=SHORT, refit=True).fit(X, other)
    said = [numbers(model, NEW)["state.mean"] for model in (refit, changed)]
    assert not np.array_equal(said[0], said[1])


@pytest.mark.slow
def test_few_rows_and_labels_that_dominate_are_named() -> None:
    X, Y = windows()
    with pytest.warns(UserWarning, match="12 training rows are few: below 40"):
        tiny(STATE, validation=(X[12:], Y["state"][12:])).fit(X[:12], Y["state"][:12])
    wild = Y["state"].copy()
    row = int(np.random.default_rng(0).permutation(60)[3])  # one that is held out
    wild[row] += 100.0
    table = pd.DataFrame(X, index=pd.date_range("2024-01-01", periods=60))
    says = (
        rf"validation part: task 'state' is \S+ in row {table.index[row].date()}.* moves the mean"
    )
    with pytest.warns(UserWarning, match=says):
        Forecaster(TASKS, preset=SHORT).fit(table, {**Y, "state": wild})


# Progress and interrupts


def test_silent_without_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    tiny(STATE).fit(windows()[0], windows()[1]["state"])
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("verbose", [None, True, False])
def test_a_line_of_progress_on_the_terminal(
    monkeypatch: pytest.MonkeyPatch, verbose: bool | None
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    X, Y = windows()
    unit = 50.0
    model = tiny(STATE, preset=replace(TINY, scale_targets=True), verbose=verbose)
    model.fit(X, unit * Y["state"])
    text = terminal.getvalue()
    if verbose is False:
        assert text == ""
        return
    assert text.count("\n") == 1
    assert text.endswith("\n")
    lines = text.strip().split("\r")
    assert len(lines) == 20
    last = re.search(r"tanh +step 20/20 +best validation NLL (-?[\d.]+)", lines[-1])
    assert last is not None
    # In the user's units, as the fitted attribute.
    assert float(last[1]) == pytest.approx(model.validation_nll_, abs=1e-4)


def test_an_interrupt_keeps_the_best_so_far_and_still_raises(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Impatient(ProgressLine):
        def __call__(self, label: str, step: int, steps: int, best: float) -> None:
            if step == 7:
                raise KeyboardInterrupt

    monkeypatch.setattr(training, "ProgressLine", Impatient)
    model = tiny()
    with pytest.raises(KeyboardInterrupt, match="best model so far is kept"):
        model.fit(*windows())
    assert model.stop_reason_ == "interrupted"
    assert list(model.history_["step"]) == list(range(1, 8))
    assert np.isfinite(model.score(NEW, NEW_Y))
    model.save(tmp_path / "kept")


@pytest.mark.slow
def test_ctrl_c_during_a_long_fit() -> None:
    script = """
        import signal
        from dataclasses import replace
        import numpy as np
        from small import STATE, TINY, tiny, windows

        # A parent that ignores interrupts would hand that down.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        endless = replace(TINY.schedule, steps=25_000_000, patience=25_000_000)
        # One round between two looks at the signal, however many steps are planned.
        import scrollmt.fit
        scrollmt.fit._PROGRESS_UPDATES = 25_000_000
        X, Y = windows()
        model = tiny(STATE, preset=replace(TINY, schedule=endless), verbose=True)
        try:
            model.fit(X, Y["state"])
        except KeyboardInterrupt as interrupt:
            print("raised:", interrupt)
        print(model.stop_reason_, len(model.history_) > 0, np.isfinite(model.score(X, Y["state"])))
    """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=Path(__file__).parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stderr is not None
        seen = ""
        while "step" not in seen:
            letter = child.stderr.read(1)
            assert letter, f"the fit ended by itself: {seen}"
            seen += letter
        child.send_signal(signal.SIGINT)
        out, rest = child.communicate(timeout=120)
    finally:
        child.kill()
    assert child.returncode == 0, rest
    assert out.splitlines() == [
        "raised: fit interrupted; the best model so far is kept",
        "interrupted True True",
    ]


# The published protocol


def test_select_tries_every_backbone_and_a_name_only_that_one() -> None:
    assert [c.name for c in PAPER.candidates] == ["relu", "relu+ln", "tanh", "tanh+ln"]
    tanh = TINY.candidates[0]
    relu = replace(tanh, name="relu", architecture=replace(tanh.architecture, activation="relu"))
    X, Y = windows()
    model = tiny(STATE, preset=replace(TINY, candidates=(tanh, relu))).fit(X, Y["state"])
    table = model.candidates_.set_index("candidate")
    assert list(table.index) == ["tanh", "relu"]
    assert list(table["chosen"]) == list(table["validation_nll"] == table["validation_nll"].min())
    backbone: Any = model.model_.backbone
    assert backbone.activation == table["chosen"].idxmax()
    for name in ("tanh", "relu"):
        one = model.set_params(backbone=name).fit(X, Y["state"])
        assert list(one.candidates_["candidate"]) == [name]
        # A candidate fares the same whichever others are tried with it.
        assert one.candidates_["validation_nll"].item() == table.loc[name, "validation_nll"]


def test_repr_shows_what_was_set() -> None:
    text = repr(Forecaster({"state": Gaussian(), "regime": Ordinal(4)}, belief="full"))
    assert text.startswith("Forecaster(belief='full'")
    assert "Gaussian()" in text
    assert "Ordinal(4)" in text
    assert "seed" not in text
