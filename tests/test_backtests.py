"""Backtests: refits equal separate fits, tables by plain loops, uncertainty between origins."""

from dataclasses import replace
from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from scrollmt import Forecaster, Windowing, at_lead, lags, over_window
from scrollmt.backtests import Backtest, backtest, origin_parts, stacked
from scrollmt.fit import Schedule
from scrollmt.objective import data_terms, validation_nll
from scrollmt.observables import Bands, Observable
from scrollmt.windows import Windows
from small import TINY, assert_close, numbers

QUESTIONS: dict[str, Observable] = {
    "state": at_lead("x"),
    "event": over_window("x").max() > 1,
    "band": at_lead("x").quantile_bands(3),
}
BATCHED = replace(TINY, name="batched", schedule=Schedule(steps=20, batch_size=8, eval_every=5))


def noise(rows: int) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    x = np.zeros(rows)
    for i in range(1, rows):
        x[i] = 0.8 * x[i - 1] + 0.6 * rng.standard_normal()
    return pd.DataFrame({"x": x}, index=pd.date_range("2021-01-01", periods=rows, freq="D"))


def cut(rows: int = 600) -> Windows:
    return Windowing(history=3, lead=4).cut(noise(rows), QUESTIONS, [lags("x")])


@pytest.fixture(scope="module")
def done() -> Backtest:
    windows = cut()
    return backtest(windows, Forecaster.for_windows(windows, preset=TINY), 3, seeds=[4, 9])


def assert_refit_equals_fit(found: Backtest, origin: int, alone: Forecaster) -> None:
    """The refit at an origin against a fit on the windows of its split, both scored on its test."""
    windows = cut()
    parts = windows.split(found.splits[origin])
    alone.set_params(validation=parts.valid).fit(parts.train)
    refit = found.models[origin, alone.seed]
    # the padded program adds in another order, hence not bit for bit
    assert_close(numbers(refit, parts.test), numbers(alone, parts.test), 1e-3)
    assert refit.recipe_ == alone.recipe_
    assert refit.validation_nll_ == pytest.approx(alone.validation_nll_, rel=1e-4)
    table = found.table
    mine = table[(table["origin"] == origin) & (table["seed"] == alone.seed)]
    expected = alone.evaluate(parts.test)
    for row in mine.itertuples():
        assert row.value == pytest.approx(expected.loc[row.task, row.metric], rel=1e-2, abs=1e-3)
    # Errors within an origin are not those between origins, and are left out.
    assert len(mine) == expected.drop(columns=["nll_se", "skill_se"]).count().sum()
    assert (mine["tested_from"] == parts.test.t[0]).all()


@pytest.mark.slow
def test_a_refit_is_the_fit_on_the_windows_of_its_origin(done: Backtest) -> None:
    assert sorted(done.models) == [(j, s) for j in range(3) for s in (4, 9)]
    assert_refit_equals_fit(done, 1, Forecaster.for_windows(cut(), preset=TINY, seed=9))


@pytest.mark.slow
def test_minibatches_are_not_thinned_out_by_padding() -> None:
    model = Forecaster.for_windows(cut(), preset=BATCHED, ensemble=2, seed=6)
    found = backtest(cut(), model, 2)
    assert not hasattr(model, "model_")
    assert len(found.models[0, 6].members_) == 2
    assert_refit_equals_fit(found, 0, model)


def with_folds(windows: Windows, **settings: Any) -> Forecaster:
    chosen = {"preset": TINY, "validation": 3, "seed": 4, **settings}
    return Forecaster.for_windows(windows, **chosen)


@pytest.mark.slow
def test_with_folds_the_validation_part_trains_too() -> None:
    windows = cut()
    found = backtest(windows, with_folds(windows), 2)
    split = found.splits[1]
    both = np.union1d(split.train, split.valid)
    refit = found.models[1, 4]
    alone = with_folds(windows).fit(windows.label(both).take(both))
    test = windows.take(split.test)
    pd.testing.assert_frame_equal(refit.evaluate(test), alone.evaluate(test), rtol=1e-5)
    assert refit.recipe_ == alone.recipe_
    assert refit.validation == 3
    assert refit.validation_nll_ == pytest.approx(alone.validation_nll_, rel=1e-6)
    assert set(refit.candidates_["fold"]) == {0, 1, 2}
    # A preset with folds does the same where the model leaves validation open.
    preset = replace(TINY, folds=3)
    by_preset = backtest(windows, with_folds(windows, preset=preset, validation=None), found.splits)
    pd.testing.assert_frame_equal(by_preset.table, found.table)
    assert by_preset.models[1, 4].validation is None


@pytest.mark.slow
def test_the_embargo_of_a_backtest_is_that_of_its_folds() -> None:
    windows = cut(300)
    split = windows.rolling_origins(1, embargo="auto")
    close, apart = (backtest(windows, with_folds(windows), split, embargo=e) for e in (0, 10))
    assert close.models[0, 4].validation_nll_ != apart.models[0, 4].validation_nll_


@pytest.mark.slow
def test_where_the_embargo_leaves_too_little_a_share_is_held_out() -> None:
    windows = cut(300)
    splits = windows.rolling_origins(1, embargo="auto")
    with pytest.warns(UserWarning, match="the newest 20% are held out instead"):
        found = backtest(windows, with_folds(windows), splits, embargo=60)
    assert "fold" not in found.models[0, 4].candidates_


def test_a_share_leaves_the_validation_part_to_the_origin(done: Backtest) -> None:
    windows = cut()
    model = Forecaster.for_windows(windows, preset=TINY, seed=4, validation=0.3)
    found = backtest(windows, model, done.splits, seeds=[4, 9])
    pd.testing.assert_frame_equal(found.table, done.table)


@pytest.mark.parametrize("folds", [None, 5])
def test_no_target_of_a_training_window_lies_after_the_origin(folds: int | None) -> None:
    windows = cut()
    for split in windows.rolling_origins(4, embargo="auto"):
        parts = origin_parts(windows, split, folds)
        origin = parts.test.t[0]
        assert parts.train.target_times.max().max() < origin
        assert parts.train.t.max() < origin
        seen = set(split.train) | (set(split.valid) if folds else set())
        assert parts.train.t.equals(windows.t[sorted(seen)])
        np.testing.assert_array_equal(parts.test.rows, windows.rows[split.test])


@pytest.mark.slow
def test_what_comes_after_the_origin_changes_no_refit() -> None:
    """The same series with another future: the refits are equal bit for bit."""
    windows = cut(300)
    splits = windows.rolling_origins(1, embargo="auto")
    first = int(windows.rows[splits[0].test[0]])
    frame = noise(300)
    frame.iloc[first + 1 :] *= -1.0
    changed = Windowing(history=3, lead=4).cut(frame, QUESTIONS, [lags("x")])
    before, after = (
        backtest(one, with_folds(one), splits).models[0, 4] for one in (windows, changed)
    )
    assert not np.array_equal(windows.values["state"], changed.values["state"])
    scores = before.evaluate(windows), after.evaluate(windows)
    pd.testing.assert_frame_equal(*scores, check_exact=True)
    assert before.recipe_ == after.recipe_


@pytest.mark.slow
def test_rows_of_weight_zero_vanish(done: Backtest) -> None:
    """Padding changes neither the data terms nor the validation score."""
    windows = cut()
    parts = [windows.split(split) for split in done.splits]
    ready = [
        Forecaster.for_windows(windows, preset=TINY, validation=part.valid)._ready(
            part.train, None, None
        )
        for part in parts
    ]
    both = stacked([one.train for one in ready], 2)
    assert both.x.shape[:2] == (6, max(len(part.train) for part in parts))
    model = done.models[0, 4].model_
    for j, one in enumerate(ready):
        padded = jax.tree.map(lambda a, j=j: a[2 * j + 1], both)
        terms, longer = data_terms(model, one.train), data_terms(model, padded)
        for task, term in terms.items():
            np.testing.assert_allclose(longer[task][: len(term)], term, rtol=1e-5)
            assert not np.any(longer[task][len(term) :])
        np.testing.assert_allclose(
            validation_nll(model, padded), validation_nll(model, one.train), rtol=1e-5
        )


def test_edges_are_learned_at_every_origin(done: Backtest) -> None:
    windows = cut()
    for j, split in enumerate(done.splits):
        recipe = done.models[j, 4].recipe_
        assert recipe is not None
        asked = recipe.tasks["band"].observable
        assert isinstance(asked, Bands)
        expected = np.quantile(windows.values["band"][split.train], [1 / 3, 2 / 3])
        assert asked.edges == tuple(expected)
        # nothing that the refit has seen is scored
        assert windows.leaks(split)["history"].sum() == 0


def test_the_summary_takes_seeds_first_and_origins_then(done: Backtest) -> None:
    table = done.table
    assert list(table.columns) == ["origin", "tested_from", "seed", "task", "metric", "value"]
    summary = done.summary()
    for (task, metric), row in summary.iterrows():
        by_origin = [
            np.mean(
                [
                    one.value
                    for one in table.itertuples()
                    if (one.origin, one.task, one.metric) == (j, task, metric)
                ]
            )
            for j in range(3)
        ]
        assert row["mean"] == pytest.approx(np.mean(by_origin))
        assert row["se"] == pytest.approx(np.std(by_origin, ddof=1) / np.sqrt(3))
        assert row["origins"] == 3
    assert summary.loc[("event", "brier"), "mean"] > 0
    assert ("state", "brier") not in summary.index
    text = repr(done)
    assert "origins=3, seeds=2" in text
    assert "nll" in text


def test_differences_pair_origins(done: Backtest) -> None:
    shifted = done.table.copy()
    shifted["value"] += 0.1 * (1 + shifted["origin"])
    other = Backtest(shifted, done.splits, {})
    difference = other.minus(done).loc[("state", "nll")]
    assert difference["mean"] == pytest.approx(0.2)
    assert difference["se"] == pytest.approx(0.1 / np.sqrt(3))
    assert difference["ratio"] == pytest.approx(2 * np.sqrt(3))
    with pytest.raises(ValueError, match="differ in their splits"):
        other.minus(Backtest(done.table, done.splits[1:], {}))


@pytest.mark.slow
def test_a_split_of_ones_own_is_one_origin(done: Backtest) -> None:
    windows = cut()
    split = windows.chronological_split()
    model = Forecaster.for_windows(windows, preset=TINY, seed=4)
    one = backtest(windows, model, [split])
    assert one.table["seed"].unique().tolist() == [4]
    assert one.summary()["se"].isna().all()
    parts = windows.split(split)
    alone = Forecaster.for_windows(windows, preset=TINY, seed=4, validation=parts.valid)
    pd.testing.assert_frame_equal(
        one.models[0, 4].evaluate(parts.test), alone.fit(parts.train).evaluate(parts.test)
    )


def test_the_picture_shows_every_task(done: Backtest) -> None:
    _, ax = plt.subplots()
    assert done.plot(ax=ax) is ax
    lines = {line.get_label(): line.get_ydata() for line in ax.get_lines()}
    assert list(lines) == ["state", "event", "band"]
    np.testing.assert_allclose(lines["event"], done.by_origin().loc[("event", "nll")])
    assert [line.get_label() for line in done.plot("crps").get_lines()][-1] == "state"
    with pytest.raises(ValueError, match=r"no metric 'mape'.*'accuracy', 'brier'"):
        done.plot("mape")
    plt.close("all")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": []}, "different seeds"),
        ({"seeds": [1, 1]}, "different seeds"),
        ({"origins": []}, "need origins"),
        ({"origins": 0}, "origins must be an integer >= 1"),
    ],
)
def test_errors_teach(change: dict, message: str) -> None:
    windows = cut()
    with pytest.raises(ValueError, match=message):
        backtest(windows, Forecaster.for_windows(windows, preset=TINY), **change)
    named = Forecaster.for_windows(windows, preset=TINY, seeds=[1, 2])
    with pytest.raises(ValueError, match="names the seeds of its members"):
        backtest(windows, named)
