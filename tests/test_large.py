"""Many rows: a race on some of them, runs on all of them, and validation rows that never train."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from scrollmt import Forecaster, load
from scrollmt._data import reading
from scrollmt._fitting import large
from scrollmt._fitting.selection import best_in_turn
from scrollmt.presets import DEFAULT, HELD_OUT, HELD_OUT_SHARE, PAPER, QUICK, Large, Preset
from scrollmt.presets import large_schedule as schedule_of
from small import assert_same, numbers
from test_crossfit import TASKS, rows
from test_crossfit import small as small_preset

pytestmark = pytest.mark.slow

RULE = Large(
    above=100, held_out=30, watched=20, race_rows=60, finalists=1, starts=2, batch_size=32, passes=0
)


def preset(**changes: Any) -> Preset:
    return small_preset(large=replace(RULE, **changes))


def held_out(X: np.ndarray, Y: dict[str, np.ndarray], seed: int) -> tuple[np.ndarray, Any]:
    """The rows that a fit of these rows holds out."""
    numbered = reading.read_rows(X, Y, None, TASKS)
    judged = reading.hold_out(numbered, RULE.held_out / len(X), seed)[1].where
    return X[judged], {name: values[judged] for name, values in Y.items()}


@pytest.fixture(scope="module")
def fitted() -> Forecaster:
    return Forecaster(TASKS, preset=preset(), seed=1).fit(*rows(150))


def test_the_rule_takes_over_above_its_number_of_rows_and_not_before() -> None:
    at = DEFAULT.large
    assert at is not None
    assert DEFAULT.validation_for(at.above) == DEFAULT.folds
    assert DEFAULT.validation_for(at.above + 1) == HELD_OUT_SHARE
    assert DEFAULT.validation_for(1_000_000) == at.held_out / 1_000_000
    for other in (HELD_OUT, QUICK, PAPER):
        assert other.validation_for(1_000_000) == HELD_OUT_SHARE
    X, Y = rows()
    with_rule = Forecaster(TASKS, preset=preset()).fit(X, Y)
    without = Forecaster(TASKS, preset=small_preset(large=None)).fit(X, Y)
    assert_same(numbers(with_rule, X), numbers(without, X))
    assert with_rule.validation_nll_ == without.validation_nll_


def test_candidates_race_on_some_rows_and_the_best_train_on_all_others(fitted: Forecaster) -> None:
    table = fitted.candidates_
    race, final = table[table["rows"] == 60], table[table["rows"] == 120]
    assert len(race) + len(final) == len(table)
    assert sorted(race["backbone_l2"]) == sorted(c.backbone_l2 for c in preset().candidates)
    assert len(final) == 2
    assert not race["chosen"].any()
    best = race.loc[race["value_nll"].idxmin(), "backbone_l2"]
    assert (final["backbone_l2"] == best).all()
    assert fitted.weights_ is not None
    for name, weights in fitted.weights_.items():
        assert len(weights) == len(fitted.committee_[name])
        np.testing.assert_allclose(sum(weights), 1.0)


def test_the_validation_score_is_that_of_rows_that_never_trained(fitted: Forecaster) -> None:
    X, Y = rows(150)
    np.testing.assert_allclose(
        fitted.validation_nll_, -fitted.score(*held_out(X, Y, seed=1)), rtol=1e-6
    )
    # Labels of the held-out rows do not reach the parameters of a fixed number of steps: with
    # other values there, all runs of the batch still pass through the same parameters.
    changed = dict(Y)
    judged = np.isin(X[:, 0], held_out(X, Y, seed=1)[0][:, 0])
    assert judged.sum() == RULE.held_out
    changed["value"] = np.where(judged, Y["value"] + 1.0, Y["value"])
    again = Forecaster(TASKS, preset=preset(), seed=1).fit(X, changed)
    np.testing.assert_array_equal(again.scales_.x_mean, fitted.scales_.x_mean)
    assert again.scales_.offset == fitted.scales_.offset
    same = fitted.history_["train_objective"].to_numpy()
    np.testing.assert_array_equal(again.history_["train_objective"].to_numpy()[:3], same[:3])


def test_a_large_fit_is_an_ordinary_forecaster(fitted: Forecaster, tmp_path: Any) -> None:
    X, Y = rows(150)
    fitted.save(tmp_path / "model")
    assert_same(numbers(load(tmp_path / "model"), X), numbers(fitted, X))
    assert np.isfinite(fitted.evaluate(X, Y)["nll"]).all()
    assert_same(
        numbers(Forecaster(TASKS, preset=preset(), seed=1).fit(X, Y), X), numbers(fitted, X)
    )


@pytest.mark.slow
def test_seeds_share_the_race_and_are_mixed() -> None:
    X, Y = rows(150)
    model = Forecaster(TASKS, preset=preset(), ensemble=2).fit(X, Y)
    assert sorted(model.candidates_["seed"].unique()) == [0, 1000]
    assert (model.candidates_["rows"] == 120).sum() == 4
    assert model.weights_ is not None
    for weights in model.weights_.values():
        np.testing.assert_allclose(sum(weights), 1.0)


@pytest.mark.slow
def test_rows_of_your_own_validate_and_a_refit_trains_on_them_too() -> None:
    X, Y = rows(150)
    other = rows(40, seed=3)
    plain = Forecaster(TASKS, preset=preset(), validation=other).fit(X, Y)
    assert (plain.candidates_["rows"].isin([60, 150])).all()
    again = Forecaster(TASKS, preset=preset(), validation=other, refit=True).fit(X, Y)
    assert again.validation_nll_ == plain.validation_nll_
    assert (numbers(again, X)["value.mean"] != numbers(plain, X)["value.mean"]).any()


def test_an_interrupt_in_the_race_keeps_its_best(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(large, "_started", stopped)
    X, Y = rows(150)
    model = Forecaster(TASKS, preset=preset())
    with pytest.raises(KeyboardInterrupt, match="best model so far"):
        model.fit(X, Y)
    assert np.isfinite(model.score(X, Y))


def test_finalists_are_the_best_of_each_question_in_turn() -> None:
    means = pd.DataFrame({"value": [0.3, 0.2, np.nan], "event": [0.1, 0.5, 0.4]})
    assert best_in_turn(means, 1) == [1]
    assert best_in_turn(means[["event", "value"]], 1) == [0]
    assert best_in_turn(means, 2) == [0, 1]
    assert best_in_turn(means, 5) == [0, 1, 2]


def test_the_schedule_passes_over_all_rows_with_as_many_evaluations() -> None:
    usual = DEFAULT.schedule
    few = schedule_of(DEFAULT, Large(), 1000)
    assert (few.steps, few.eval_every) == (usual.steps, usual.eval_every)
    many = schedule_of(DEFAULT, Large(batch_size=512, passes=10), 1_000_000)
    assert many.steps * 512 >= 10 * 1_000_000
    assert many.steps / many.eval_every == usual.steps / usual.eval_every
    exact = schedule_of(DEFAULT.with_schedule(steps=50), Large(batch_size=512), 1_000_000)
    assert (exact.steps, exact.batch_size) == (50, 512)


def test_a_rule_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="Large: finalists"):
        Large(finalists=0)
    with pytest.raises(ValueError, match="Large: above"):
        Large(above=3)
    with pytest.raises((TypeError, ValueError), match="large"):
        replace(DEFAULT, large=5)  # type: ignore[arg-type]
