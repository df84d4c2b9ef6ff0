"""Cross-fitted candidates: folds, racing, weights by out-of-fold score, and what a user reads."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp

from scrollmt import Event, Forecaster, Gaussian, Ordinal, load
from scrollmt._data import holdout
from scrollmt._fitting import crossfit, stacking
from scrollmt._fitting.fold_runs import Setting
from scrollmt.presets import DEFAULT, Preset
from scrollmt.splits import block_folds, k_folds

TASKS = {"value": Gaussian(), "event": Event(), "band": Ordinal(3)}


def small(**changes: Any) -> Preset:
    """The default preset with three narrow candidates, and few steps."""
    shape = replace(DEFAULT.candidates[0].architecture, widths=(8,))
    candidates = tuple(replace(c, architecture=shape) for c in DEFAULT.candidates[::2])
    schedule = replace(DEFAULT.schedule, steps=45)
    preset = replace(DEFAULT, candidates=candidates, schedule=schedule, finalists=2)
    return replace(preset, **changes)


def rows(count: int = 90, seed: int = 0) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 2))
    value = X[:, 0] + 0.3 * rng.normal(size=count)
    band = np.digitize(value, [-0.5, 0.5]).astype(float)
    event = np.where(rng.random(count) < 0.2, np.nan, value > 0.4)
    return X, {"value": 10.0 * value + 3.0, "event": event, "band": band}


@pytest.fixture(scope="module")
def fitted() -> Forecaster:
    return Forecaster(TASKS, preset=small(), seed=1).fit(*rows())


# Folds


@pytest.mark.parametrize(("n", "folds"), [(20, 5), (23, 5), (11, 3), (7, 2)])
def test_every_row_is_in_some_validation_part_and_never_in_its_training_part(
    n: int, folds: int
) -> None:
    for found in (k_folds(n, folds, 3), block_folds(n, folds)):
        assert len(found) == folds
        assert set(found.valid.ravel().tolist()) == set(range(n))
        for train, valid in zip(found.train, found.valid, strict=True):
            assert not set(train.tolist()) & set(valid.tolist())
            assert len(train) + len(valid) == n


def test_random_folds_differ_by_seed_and_blocks_are_contiguous() -> None:
    assert not np.array_equal(k_folds(30, 3, 0).valid, k_folds(30, 3, 1).valid)
    assert np.array_equal(block_folds(30, 3).valid, np.arange(30).reshape(3, 10))


def test_no_training_window_lies_within_the_embargo_of_its_block() -> None:
    positions = np.cumsum(np.random.default_rng(0).integers(1, 4, size=60))
    found = block_folds(60, 4, embargo=5, positions=positions)
    for train, valid in zip(found.train, found.valid, strict=True):
        apart = np.abs(positions[train][:, None] - positions[valid][None])
        assert apart.min() > 5
    # All folds train on equally many windows; a middle one has an embargo on both sides.
    assert found.train.shape[1] < 60 - 15


def test_folds_that_leave_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="leave none to train on"):
        block_folds(10, 2, embargo=20)
    with pytest.raises(ValueError, match="folds must be a whole number from 2 to the 4 rows"):
        k_folds(4, 5, 0)


# Weights


def test_weights_are_those_of_a_general_solver() -> None:
    rng = np.random.default_rng(2)
    scores = rng.normal(size=(3, 400)) + np.array([0.0, 0.5, -0.2])[:, None]
    weight = rng.integers(1, 4, size=400).astype(float)

    def loss(free: np.ndarray) -> float:
        log_w = log_softmax(np.append(free, 0.0))
        data = weight @ logsumexp(scores + log_w[:, None], axis=0)
        return -(data + stacking.PRIOR_LABELS / 3 * log_w.sum())

    best = minimize(loss, np.zeros(2), method="BFGS", options={"gtol": 1e-8}).x
    expected = np.exp(log_softmax(np.append(best, 0.0)))
    np.testing.assert_allclose(stacking.stacked(scores, weight), expected, atol=1e-4)


def test_laws_that_score_alike_stay_equally_weighted_and_a_bad_one_leaves() -> None:
    scores = np.tile(np.random.default_rng(0).normal(size=200), (4, 1))
    np.testing.assert_allclose(stacking.stacked(scores, np.ones(200)), 0.25)
    scores = np.tile(np.random.default_rng(0).normal(size=2000), (4, 1))
    scores[3] -= 5.0
    found = stacking.stacked(scores, np.ones(2000))
    assert found[3] == 0.0
    np.testing.assert_allclose(found[:3], 1 / 3)
    # Without a label there is nothing to choose by.
    np.testing.assert_allclose(stacking.stacked(scores, np.zeros(2000)), 0.25)


# The fit


def test_candidates_race_on_one_fold_and_the_finalists_run_on_all(fitted: Forecaster) -> None:
    runs = fitted.candidates_.groupby("backbone_l2")["fold"].apply(sorted).to_list()
    assert sorted(map(len, runs)) == [1, 5, 5]
    finalists = fitted.candidates_.groupby("backbone_l2").filter(lambda own: len(own) == 5)
    own = finalists.groupby("fold")[["value_nll", "event_nll", "band_nll"]].mean()
    assert np.isfinite(own.to_numpy()).all()
    for name, members in fitted.committee_.items():
        assert fitted.weights_ is not None
        assert len(members) == len(fitted.weights_[name]) in (5, 10)
        assert sum(fitted.weights_[name]) == pytest.approx(1.0)


@pytest.mark.slow
def test_the_validation_score_is_out_of_fold() -> None:
    """Labels of pure noise: whoever had seen them would score better than their entropy."""
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(60, 8)), rng.normal(size=60)
    schedule = replace(small().schedule, steps=600, patience=600, average=0.0)
    preset = small(schedule=schedule, candidates=small().candidates[:1])
    model = Forecaster({"value": Gaussian()}, preset=preset).fit(X, {"value": y})
    seen = model.evaluate(X, {"value": y})["nll"]["value"]
    assert model.validation_nll_ > seen + 0.1


def test_the_out_of_fold_score_is_that_of_the_laws_of_the_other_folds(fitted: Forecaster) -> None:
    """Once more by hand: rows of fold k under the members that fold k trained."""
    X, Y = rows()
    folds = k_folds(len(X), 5, 1)
    assert fitted.weights_ is not None
    total = 0.0
    for name in TASKS:
        members, weights = np.array(fitted.committee_[name]), np.array(fitted.weights_[name])
        scores = np.full(len(X), np.nan)
        for k, valid in enumerate(folds.valid):
            only = Forecaster(**fitted.get_params())
            only.__dict__.update(fitted.__dict__)
            mine = np.arange(len(members)) % 5 == k
            only.committee_ = dict.fromkeys(TASKS, tuple(members[mine].tolist()))
            only.weights_ = dict.fromkeys(TASKS, tuple((5 * weights[mine]).tolist()))
            # Without variants and numbers behind classes, every task is answered by its own head.
            only.answers_ = None
            scores[valid] = only.predict(X[valid])[name].log_prob(Y[name][valid])
        total -= np.nanmean(scores)
    assert fitted.validation_nll_ == pytest.approx(total, rel=1e-4)


def test_a_model_with_weights_is_stored(fitted: Forecaster, tmp_path: Any) -> None:
    fitted.save(tmp_path / "model")
    again = load(tmp_path / "model")
    X, _ = rows(7, seed=3)
    assert again.weights_ == fitted.weights_
    for name, law in fitted.predict(X).items():
        np.testing.assert_array_equal(again.predict(X)[name].to_frame(), law.to_frame())


@pytest.mark.slow
def test_members_of_several_seeds_share_the_weight() -> None:
    model = Forecaster(TASKS, preset=small(folds=2), ensemble=2).fit(*rows())
    assert model.weights_ is not None
    for name in TASKS:
        assert sum(model.weights_[name]) == pytest.approx(1.0)
    assert set(model.candidates_["seed"]) == {0, 1000}
    assert np.isfinite(model.validation_nll_)


@pytest.mark.slow
def test_folds_are_chosen_by_validation_or_by_the_preset() -> None:
    X, Y = rows()
    three = Forecaster(TASKS, preset=small(folds=None), validation=3).fit(X, Y)
    assert set(three.candidates_["fold"]) == {0, 1, 2}
    held_out = Forecaster(TASKS, preset=small(), validation=0.2).fit(X, Y)
    assert "fold" not in held_out.candidates_
    assert held_out.weights_ is None
    with pytest.raises(ValueError, match="a number of folds from 2 on"):
        Forecaster(TASKS, preset=small(), validation=1).fit(X, Y)


@pytest.mark.slow
def test_a_class_that_a_fold_never_saw_is_told() -> None:
    X, _ = rows()
    rare = np.zeros(len(X))
    rare[k_folds(len(X), 5, 0).valid[2][:3]] = 1.0
    model = Forecaster({"event": Event()}, preset=small())
    with pytest.warns(UserWarning, match="class 1 has 3 labels, all in one of 5 folds"):
        model.fit(X, {"event": rare})


@pytest.mark.slow
def test_a_task_without_labels_in_a_fold_is_fitted() -> None:
    X, Y = rows()
    folds = k_folds(len(X), 5, 0)
    value = Y["value"].copy()
    value[folds.valid[0]] = np.nan
    model = Forecaster({"value": Gaussian(), "band": Ordinal(3)}, preset=small())
    model.fit(X, {"value": value, "band": Y["band"]})
    assert np.isnan(model.candidates_.query("fold == 0")["value_nll"]).all()
    assert np.isfinite(model.validation_nll_)


@pytest.mark.slow
def test_coupled_tasks_are_weighed_as_one() -> None:
    X, Y = rows()
    tasks = {"value": Gaussian(), "beside": Gaussian(), "event": Event()}
    beside = Y["value"] + np.random.default_rng(1).normal(size=len(X))
    labels = {"value": Y["value"], "beside": beside, "event": Y["event"]}
    model = Forecaster(tasks, preset=small(), joint=["value", "beside"]).fit(X, labels)
    assert model.weights_ is not None
    assert model.committee_["value"] == model.committee_["beside"]
    assert model.weights_["value"] == model.weights_["beside"]
    assert np.isfinite(model.validation_nll_)


def test_a_linear_model_is_inside_the_family() -> None:
    """The inputs are features too, so a heavy penalty on the layers leaves a linear model."""
    net = DEFAULT.candidates[0].architecture.build(3, jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (5, 3))
    features = np.asarray(jax.vmap(net)(x))
    assert features.shape == (5, 67)
    np.testing.assert_allclose(features[:, 64:], x, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(net.columns(x).z).T, features, rtol=1e-4, atol=1e-5)


def test_an_interrupt_keeps_the_folds_that_are_done() -> None:
    """Stopped in the second heat: the first fold is there, and the others as far as they came."""
    X, Y = rows()
    calls = []

    def interrupt(label: str, step: int, steps: int, best: float) -> None:
        calls.append(step)
        if step == steps and calls.count(steps) == 1:
            return
        if calls.count(steps) >= 1:
            raise KeyboardInterrupt

    heads = dict(TASKS)
    ready = holdout.ready((X, Y, None), 5, heads, seed=1, scale_targets=True, recipe=None)
    assert ready.folds is not None
    setting = Setting(
        small(starts=1),
        ready.plan,
        ready.scales,
        "diag",
        (),
        ready.train,
        ready.folds,
        None,
        None,
    )
    found = crossfit.cross_fit(setting, jax.random.key(1), interrupt)
    assert found.interrupted
    assert found.out_of_fold is not None
    judged = ~np.isnan(found.out_of_fold["value"])
    assert judged.sum() >= len(X) // 5
    assert found.weights is not None
    assert sum(found.weights["value"]) == pytest.approx(1.0)
