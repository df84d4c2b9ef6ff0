"""From windows to a fit and from a series to an answer: what trains, what it says, what is kept."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from scrollmt import (
    Event,
    Forecaster,
    Gaussian,
    Ordinal,
    Real,
    Windowing,
    at_lead,
    calendar,
    current,
    lags,
    load,
    over_window,
)
from scrollmt._data.edges import labelled
from scrollmt._data.holdout import hand_over, newest_held_out
from scrollmt.corpora import lorenz63, ou
from scrollmt.corpora.base import generation_key
from scrollmt.laws import EventLaw, GaussianLaw, OrdinalLaw
from scrollmt.laws.transformed import TransformedLaw
from scrollmt.observables import Bands, Observable
from scrollmt.windows import Windows
from small import TINY, assert_same, numbers

QUESTIONS: dict[str, Observable] = {
    "state": at_lead("pm", units="ug/m3").log1p(),
    "event": over_window("pm", units="ug/m3").mean() > 60,
    "band": at_lead("pm", units="ug/m3").bands([30, 90]),
}


def series(rows: int = 24 * 40, seed: int = 0) -> pd.DataFrame:
    """An hourly series whose logarithm is an autoregression around a daily wave."""
    rng = np.random.default_rng(seed)
    z = np.zeros(rows)
    for i in range(1, rows):
        z[i] = 0.95 * z[i - 1] + 0.25 * rng.standard_normal()
    wave = 0.5 * np.sin(2 * np.pi * np.arange(rows) / 24)
    index = pd.date_range("2021-03-01", periods=rows, freq="h", name="time")
    return pd.DataFrame({"pm": np.exp(4 + z + wave), "z": z}, index=index)


def cut(questions: dict[str, Observable] = QUESTIONS, rows: int = 24 * 40) -> Windows:
    inputs = [lags("pm", 6).log1p(), calendar("hour")]
    return Windowing(history=6, lead=12).cut(series(rows), questions, inputs)


@pytest.fixture(scope="module")
def model() -> Forecaster:
    windows = cut()
    return Forecaster.for_windows(windows, preset=TINY).fit(windows)


# ---- what is handed to the fit -----------------------------------------------------------------


def test_the_newest_windows_judge_behind_an_embargo() -> None:
    windows = cut()
    train, held_out = newest_held_out(windows, 0.25)
    n = len(windows)
    before = int(0.75 * n)
    assert held_out.tolist() == list(range(before, n))
    # history 6 and lead 12 reach over 17 rows, and every row is an origin
    assert train.tolist() == list(range(before - 17))
    first, last = windows.rows[held_out[0]] - 5, windows.rows[train[-1]] + 12
    assert first > last
    for share in (0.0, 1.0, 1.5):
        with pytest.raises(ValueError, match="share between 0 and 1"):
            newest_held_out(windows, share)


def test_a_fit_on_windows_is_the_fit_on_their_parts(model: Forecaster) -> None:
    windows = cut()
    train, held_out = newest_held_out(windows, 0.2)
    by_hand = Forecaster(
        windows.heads,
        preset=TINY,
        validation=(windows.X[held_out], windows.take(held_out).Y),
    ).fit(windows.take(train).X_frame(), windows.take(train).Y_frame())
    new = windows.take(slice(-20, None)).X_frame()
    assert_same(numbers(model, new), numbers(by_hand, new))
    parts = windows.take(train), windows.take(held_out)
    given = Forecaster.for_windows(windows, preset=TINY, validation=parts[1]).fit(parts[0])
    assert_same(numbers(given, new), numbers(by_hand, new))
    assert model.feature_names_in_.tolist() == windows.feature_names
    assert by_hand.recipe_ is None


def test_weights_go_with_their_windows() -> None:
    windows = cut()
    n = len(windows)
    weight = np.where(np.arange(n) % 3 == 0, 0.0, 1.0)
    some = {"state": weight, "event": np.ones(n), "band": np.ones(n)}
    handed = hand_over(windows, None, some, 0.2)
    train, held_out = newest_held_out(windows, 0.2)
    np.testing.assert_array_equal(handed.sample_weight["state"], weight[train])
    np.testing.assert_array_equal(handed.validation[2]["state"], weight[held_out])
    with pytest.raises(ValueError, match=rf"shape \({n - 1},\), expected \({n},\)"):
        hand_over(windows, None, np.ones(n - 1), 0.2)
    with pytest.raises(ValueError, match=r"call fit\(windows\) without Y"):
        Forecaster.for_windows(windows).fit(windows, windows.Y)


QUANTILES: dict[str, Observable] = {"band": at_lead("pm").quantile_bands(3)}


def edges(recipe: object) -> tuple[float, ...]:
    asked = recipe.tasks["band"].observable  # type: ignore[attr-defined]
    assert isinstance(asked, Bands)
    assert asked.edges is not None
    return asked.edges


def test_edges_are_learned_from_the_windows_that_train() -> None:
    windows = cut(QUANTILES)
    fitted = Forecaster.for_windows(windows, preset=TINY).fit(windows)
    train, held_out = newest_held_out(windows, 0.2)
    expected = np.quantile(windows.values["band"][train], [1 / 3, 2 / 3])
    assert edges(fitted.recipe_) == tuple(expected)
    # scores of other windows are labelled with those edges
    found = fitted.evaluate(windows.take(held_out))
    labels = np.digitize(windows.values["band"][held_out], expected)
    again = fitted.evaluate(windows.X[held_out], {"band": labels})
    # Plain rows have no past to go by; all else is the same.
    pd.testing.assert_frame_equal(
        found[again.columns.drop(["skill", "skill_se", "nll_se"])],
        again.drop(columns=["skill", "skill_se", "nll_se"]),
    )
    assert fitted.score(windows.take(held_out)) == -found.loc["band", "nll"]


@pytest.mark.slow
def test_edges_that_are_known_stay() -> None:
    windows = cut(QUANTILES)
    parts = windows.split()
    fitted = Forecaster.for_windows(windows, preset=TINY, validation=parts.valid).fit(parts.train)
    assert edges(fitted.recipe_) == edges(parts.train.recipe)
    # a part that held some of its own out would otherwise change what the test labels mean
    alone = Forecaster.for_windows(windows, preset=TINY).fit(parts.train)
    assert edges(alone.recipe_) == edges(parts.train.recipe)
    assert np.isfinite(alone.evaluate(parts.test).loc["band", "nll"])


def test_windows_that_ask_something_else_are_refused(model: Forecaster) -> None:
    windows = cut()
    other = dict(QUESTIONS) | {"event": over_window("pm", units="ug/m3").mean() > 61}
    with pytest.raises(ValueError, match=r"'event' asks for whether .* above 61 ug/m3 in these"):
        model.evaluate(cut(other))
    with pytest.raises(ValueError, match=r"tasks \['state'\], the model has \['state', 'event'"):
        model.evaluate(cut({"state": QUESTIONS["state"]}))
    far = Windowing(history=6, lead=6).cut(series(), QUESTIONS)
    with pytest.raises(ValueError, match="'state' asks for"):
        labelled(far, windows.recipe)
    quantiles = cut(QUANTILES)
    early, late = (quantiles.label(part) for part in (slice(0, 30), slice(30, None)))
    with pytest.raises(ValueError, match=r"model\.recipe_\.cut"):
        labelled(late, early.recipe)


def test_plain_rows_still_hold_out_at_random() -> None:
    windows = cut()
    fits = (Forecaster(windows.heads, preset=TINY, seed=seed) for seed in (0, 1))
    a, b = (one.fit(windows.X, windows.Y) for one in fits)
    assert not np.array_equal(a.scales_.x_mean, b.scales_.x_mean)
    assert a.recipe_ is None
    with pytest.raises(ValueError, match="fit it on windows"):
        a.forecast(series())


def test_a_clone_still_knows_what_it_is_asked() -> None:
    windows = cut()
    model = Forecaster.for_windows(windows, preset=TINY, seed=3)
    copy = clone(model)
    assert copy.recipe == windows.recipe
    copy.fit(windows.X_frame(), windows.Y)
    assert copy.forecast(series()).t == series().index[-1]
    assert "Recipe(tasks=['state', 'event', 'band']" in repr(model)


# ---- the answer --------------------------------------------------------------------------------


def test_a_forecast_is_about_the_hours_after_the_series(model: Forecaster) -> None:
    frame = series()
    answer = model.forecast(frame)
    end = frame.index[-1]
    assert answer.t == end
    assert set(answer.until.values()) == {end + pd.Timedelta("12h")}
    kinds = [type(law) for law in answer.laws.values()]
    assert kinds == [GaussianLaw, EventLaw, OrdinalLaw]
    # it reads what a window of the fit at the same hour would read
    past = model.recipe_.cut(frame)  # type: ignore[union-attr]
    at = past.t[-1]
    same = model.forecast(frame, at=at)
    assert_same(numbers(model, same.window), numbers(model, past.take([-1])))
    shorter = model.forecast(frame.loc[:at])
    assert shorter.to_frame().equals(same.to_frame())
    # Every hour is an origin of the fit, and so every hour is on its grid.
    kept = model.forecast(frame.iloc[:-5], on_grid=True)
    assert kept.t == frame.index[-6]
    assert kept.notices == ()


@pytest.mark.slow
def test_a_forecast_from_a_time_of_day_that_the_fit_never_saw_says_so() -> None:
    frame = series()
    windows = Windowing(history=6, lead=12, stride=24).cut(frame, QUESTIONS)
    model = Forecaster.for_windows(windows, preset=TINY).fit(windows)
    with pytest.warns(UserWarning, match=r"learned from origins every 24 h from .* alone"):
        answer = model.forecast(frame)
    assert answer.notices[0] in str(answer)
    kept = model.forecast(frame, on_grid=True)
    assert kept.t.hour == windows.t[0].hour
    assert kept.notices == ()


def test_a_forecast_from_an_absurd_input_says_so(model: Forecaster) -> None:
    frame = series()
    frame.iloc[-1, frame.columns.get_loc("pm")] = 1e6
    says = r"column 'log1p\(pm\)\[t\]' is 13.8155 .* lay between .* in training"
    with pytest.warns(UserWarning, match=says):
        answer = model.forecast(frame)
    assert "Notice: far outside the training data" in str(answer)
    distance = answer.laws.extrapolation[0]  # type: ignore[index]
    assert distance > 1.0
    mark = f"(extrapolated: an input is {distance:.3g} training ranges outside of its own)"
    assert all(answer.sentence(task).endswith(mark) for task in answer.laws)
    assert (answer.to_frame()["extrapolation"] == distance).all()
    usual = model.forecast(series())
    assert "extrapolated" not in str(usual)
    assert "extrapolation" not in usual.to_frame()


def test_answers_are_in_original_units(model: Forecaster) -> None:
    answer = model.forecast(series())
    law = answer.laws["state"]
    assert isinstance(law, GaussianLaw)
    original = answer.original["state"]
    assert isinstance(original, TransformedLaw)
    frame = answer.to_frame(0.8)
    row = frame.loc["state"]
    lower, upper = law.interval(0.8)
    assert row["median"] == pytest.approx(np.expm1(law.mean[0]))
    assert (row["lower"], row["upper"]) == pytest.approx((np.expm1(lower[0]), np.expm1(upper[0])))
    assert row["units"] == "ug/m3"
    assert row["question"] == "pm at t + 12 h"
    assert pd.isna(row["probability"])
    event, band = answer.laws["event"], answer.laws["band"]
    assert isinstance(event, EventLaw)
    assert isinstance(band, OrdinalLaw)
    assert frame.loc["event", "probability"] == event.prob[0]
    assert frame.loc["band", "probability"] == band.probs[0].max()
    names = ["below 30", "30 to 90", "from 90"]
    assert frame.loc["band", "band"] == names[band.mode[0]]
    assert pd.isna(frame.loc["event", "median"])


def test_a_forecast_prints_as_sentences(model: Forecaster) -> None:
    frame = series()
    frame.loc[frame.index[-1], "pm"] = np.nan
    answer = model.forecast(frame)
    lines = str(answer).splitlines()
    assert lines[0] == "Forecast from t = 2021-04-09 22:00:00"
    table = answer.to_frame()
    state = table.loc["state"]
    assert lines[1] == (
        f"  state: pm at t + 12 h (2021-04-10 10:00:00): about {state['median']:.3g} ug/m3, with "
        f"90 percent between {state['lower']:.3g} and {state['upper']:.3g} ug/m3"
    )
    chance = table.loc["event", "probability"]
    assert lines[2] == (
        "  event: whether the mean of pm over (t, t + 12 h] is above 60 ug/m3 "
        f"(until 2021-04-10 10:00:00): yes with {100 * chance:.0f} percent"
    )
    assert lines[3].startswith("  band: the band (of 3) of pm at t + 12 h, cut at 30, 90 ug/m3 (20")
    assert "below 30 with" in lines[3]
    assert lines[4] == "  passed over for missing values: 1 later origins"
    assert repr(answer) == str(answer)


@pytest.mark.slow
def test_a_saved_model_answers_as_before(model: Forecaster, tmp_path: Path) -> None:
    windows = cut(QUANTILES | QUESTIONS)
    fitted = Forecaster.for_windows(windows, preset=TINY).fit(windows)
    fitted.save(tmp_path / "model")
    back = load(tmp_path / "model")
    assert str(back.forecast(series())) == str(fitted.forecast(series()))
    assert back.recipe_ == fitted.recipe_
    pd.testing.assert_frame_equal(back.evaluate(windows), fitted.evaluate(windows))
    stored = json.loads((tmp_path / "model" / "model.json").read_text())
    assert stored["recipe"]["windowing"]["history"] == 6
    # a model without windows has no recipe, and comes back without one
    X, Y = windows.X, {"state": windows.Y["state"]}
    plain = Forecaster({"state": Gaussian()}, preset=TINY).fit(X, Y)
    plain.save(tmp_path / "plain")
    assert load(tmp_path / "plain").recipe_ is None


# ---- several leads, other systems --------------------------------------------------------------


def test_one_fit_returns_a_curve_over_leads() -> None:
    """A random walk from a known start: the sd grows with the root of the lead."""
    rng = np.random.default_rng(1)
    walk = np.cumsum(rng.standard_normal((400, 9)), axis=1)
    frame = {"x": walk.ravel()}
    windowing = Windowing(history=1, leads=[1, 4, 8], stride=9)
    windows = windowing.cut(frame, {"state": at_lead("x")})
    longer = replace(TINY, scale_targets=True, schedule=replace(TINY.schedule, steps=200))
    fitted = Forecaster.for_windows(windows, preset=longer).fit(windows)
    laws = fitted.predict(windows)
    assert list(laws) == ["state@1", "state@4", "state@8"]
    sd = [float(np.mean(law.sd)) for law in laws.values() if isinstance(law, GaussianLaw)]
    # The sd of 320 windows has an error of 4 percent (1 sd), and 200 steps add a little to it.
    np.testing.assert_allclose(sd, np.sqrt([1, 4, 8]), rtol=0.15)
    with pytest.warns(UserWarning, match="origins every 9 from 0 alone"):
        answer = fitted.forecast(frame)
    assert answer.until == {"state@1": 3600, "state@4": 3603, "state@8": 3607}
    assert "x at t + 4 (3603): about" in str(answer)


def test_the_simulated_corpora_ask_in_the_same_words() -> None:
    """Windows cut from the paths of OU hold the inputs and labels that `ou.draw` makes."""
    corpus = ou.draw(300, lead=0.2, seed=5)
    paths = ou.paths(300, lead=0.2, seed=5)
    assert paths.shape == (300, 21)
    time = 0.01 * np.arange(paths.size)
    windows = Windowing(history=1, lead=20, stride=21).cut(
        {"x": paths.ravel()}, ou.QUESTIONS, time=time
    )
    assert list(windows.heads) == list(corpus.Y)
    np.testing.assert_allclose(windows.X, corpus.X, rtol=1e-6)
    np.testing.assert_allclose(windows.Y["state"], corpus.Y["state"], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(windows.Y["event"], corpus.Y["event"])
    # both add the points up in float32, in another order: a mean beside an edge may change class
    edges = windows.questions["regime"].edges  # type: ignore[attr-defined]
    np.testing.assert_allclose(edges, corpus.edges, atol=1e-5)
    near = np.min(np.abs(windows.values["regime"][:, None] - corpus.edges), axis=1) < 1e-5
    assert near.sum() < 10
    np.testing.assert_array_equal(windows.Y["regime"][~near], corpus.Y["regime"][~near])
    assert windows.sentences["event"] == "whether the max of x over [t, t + 0.2] is at least 1.5"


def test_lorenz_asks_in_the_same_words() -> None:
    """Start and end of every window, one after the other, are a series of windows."""
    corpus = lorenz63.draw(40, lead=0.1, seed=2, chains=8)
    pairs = lorenz63._chains(generation_key(2), 8, 5, 20)
    start, end = (np.array(part).transpose(0, 2, 1).reshape(-1, 3) for part in pairs)
    rows = np.stack([start, end], axis=1).reshape(-1, 3)
    windows = Windowing(history=1, lead=1, stride=2).cut(
        rows, lorenz63.QUESTIONS, [current("x", "y", "z")], columns=["x", "y", "z"]
    )
    np.testing.assert_array_equal(windows.X, corpus.X)
    for task in corpus.Y:
        np.testing.assert_array_equal(windows.Y[task], corpus.Y[task])
    assert [type(head) for head in windows.heads.values()] == [Real, Event, Ordinal]
