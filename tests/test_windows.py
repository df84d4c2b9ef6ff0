"""Windows: every cell against a plain loop, gap rules, time checks, labels without leakage."""

import inspect
import json
import math
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from helpers import unguarded
from scrollmt._data.cutting import tasks_of
from scrollmt._data.series import fill_gaps, read_series
from scrollmt.heads import Event, Ordinal, Real
from scrollmt.inputs import Input, calendar, current, lags, one_hot
from scrollmt.observables import Bands, Observable, at_lead, over_window
from scrollmt.windows import Recipe, Windowing, Windows
from scrollmt.windows.origins import MOST_WINDOWS, rows_between_known_phases

QUESTIONS: dict[str, Observable] = {
    "state": at_lead("x").log1p(),
    "event": over_window("x").mean() > 1.5,
    "band": at_lead("x").bands([1, 2]),
}
INPUTS: list[Input] = [
    lags("x").log1p(),
    lags("z", [5, 0]),
    current("z"),
    one_hot("wind", ["N", "S"]),
    calendar("hour", "month"),
]


def table(rows: int = 400, seed: int = 0) -> pd.DataFrame:
    """An hourly series with a positive column, a real one and a category."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "x": rng.gamma(2.0, size=rows),
            "z": rng.standard_normal(rows),
            "wind": rng.choice(["N", "S"], size=rows),
        },
        index=pd.date_range("2021-03-01 05:00", periods=rows, freq="h", name="time"),
    )


def cut(frame: object, **changes: object) -> Windows:
    settings = {"history": 6, "lead": 4, "stride": 5} | changes
    return Windowing(**settings).cut(frame, QUESTIONS, INPUTS)  # type: ignore[arg-type]


def test_every_cell_is_the_one_that_it_is_named_after() -> None:
    frame = table()
    windows = cut(frame)
    x, z = frame["x"].to_numpy(), frame["z"].to_numpy()
    X, Y = windows.X_frame(), windows.Y_frame()
    assert len(windows) == len(range(5, 400 - 4, 5))
    for n, row in enumerate(range(5, 396, 5)):
        t = frame.index[row]
        assert windows.t[n] == t
        expected = {f"log1p(x)[t-{k}]": math.log1p(x[row - k]) for k in range(1, 6)}
        expected |= {"log1p(x)[t]": math.log1p(x[row]), "z[t-5]": z[row - 5], "z[t]": z[row]}
        expected |= {"z": z[row], "wind=N": float(frame["wind"].iloc[row] == "N")}
        expected |= {"wind=S": 1 - expected["wind=N"]}
        expected |= {"sin(hour)": math.sin(math.tau * t.hour / 24)}
        expected |= {"cos(hour)": math.cos(math.tau * t.hour / 24)}
        expected |= {"sin(month)": math.sin(math.tau * t.month / 12)}
        expected |= {"cos(month)": math.cos(math.tau * t.month / 12)}
        assert dict(X.iloc[n]) == pytest.approx(expected, abs=1e-12)
        ahead = x[row + 1 : row + 5]
        assert Y["state"].iloc[n] == pytest.approx(math.log1p(ahead[-1]))
        assert Y["event"].iloc[n] == float(math.fsum(ahead) / 4 > 1.5)
        assert Y["band"].iloc[n] == sum(e <= ahead[-1] for e in (1, 2))
    assert X.columns[0] == "log1p(x)[t-5]"
    assert list(X.columns[4:8]) == ["log1p(x)[t-1]", "log1p(x)[t]", "z[t-5]", "z[t]"]
    assert (windows.target_times["state"] - windows.t == pd.Timedelta("4h")).all()


def test_heads_tasks_and_sentences() -> None:
    windows = cut(table())
    kinds = {task: type(head) for task, head in windows.heads.items()}
    assert kinds == {"state": Real, "event": Event, "band": Ordinal}
    assert windows.sentences["event"] == "whether the mean of x over (t, t + 4 h] is above 1.5"
    assert "dropped 0 windows" in repr(windows)
    assert windows.sentences["state"] in repr(windows)


def test_inputs_default_to_the_lags_of_what_is_asked() -> None:
    windows = Windowing(history=3, lead=2).cut(table(), QUESTIONS)
    assert windows.feature_names == ["x[t-2]", "x[t-1]", "x[t]"]
    # every row is an origin
    np.testing.assert_array_equal(windows.rows, np.arange(2, len(table()) - 2))


# ---- where the series comes from -------------------------------------------------------------


def test_pandas_numpy_and_mappings_give_the_same_windows() -> None:
    frame = table()
    questions: dict[str, Observable] = {"state": at_lead("x")}
    windowing = Windowing(history=3, lead=2)
    inputs = [lags("x"), current("z")]
    reference = windowing.cut(frame, questions, inputs)
    numbers = frame[["x", "z"]].to_numpy()
    for other in (
        windowing.cut(numbers, questions, inputs, columns=["x", "z"]),
        windowing.cut({"x": frame["x"], "z": frame["z"].to_numpy()}, questions, inputs),
        windowing.cut(frame.reset_index(), questions, inputs, time="time"),
        windowing.cut(numbers, questions, inputs, columns=["x", "z"], time=frame.index),
        windowing.cut(
            frame.reset_index().assign(time=lambda f: f["time"].astype(str)),
            questions,
            inputs,
            time="time",
        ),
    ):
        np.testing.assert_array_equal(other.X, reference.X)
        np.testing.assert_array_equal(other.Y["state"], reference.Y["state"])
    # without times the row number is the time
    assert windowing.cut(numbers, questions, inputs, columns=["x", "z"]).t[0] == 2


def test_polars_frames_are_read() -> None:
    frame = table()
    frame.loc[frame.index[50:53], "x"] = np.nan
    native = pl.DataFrame(
        {
            "time": frame.index.to_numpy(),
            "x": [None if math.isnan(v) else v for v in frame["x"]],
            "z": frame["z"].to_numpy(),
            "wind": frame["wind"].tolist(),
        }
    )
    windowing = Windowing(history=6, lead=4, stride=5, fill_limit=2)
    ours = windowing.cut(frame, QUESTIONS, INPUTS)
    theirs = windowing.cut(native, QUESTIONS, INPUTS, time="time")
    assert 0 < len(ours.dropped) == len(theirs.dropped)
    np.testing.assert_array_equal(ours.X, theirs.X)
    assert list(ours.t) == list(theirs.t)


def test_missing_values_of_every_kind_are_missing() -> None:
    frame = table(40)
    frame["x"] = frame["x"].astype("Float64")
    frame.loc[frame.index[7], "x"] = pd.NA
    assert np.isnan(read_series(frame).numbers("x")[7])
    boxed = {"x": np.array([1.0, None, 3, True], dtype=object)}
    np.testing.assert_array_equal(read_series(boxed).numbers("x"), [1, np.nan, 3, 1])


def shuffled(frame: pd.DataFrame) -> pd.DataFrame:
    order = np.arange(len(frame))
    order[[10, 11]] = [11, 10]
    return frame.iloc[order]


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.concat([table(9), table(9).iloc[4:5]]), r"more than once: row 9 \(2021-03-01 09:00"),
        (shuffled(table(30)), r"backwards at row 11 \(2021-03-01 15:00"),
        (
            table(30).drop(table(30).index[12]),
            r"time step changes at row 12 \(2021-03-01 18.*expected 0 days 01:00:00",
        ),
        (table(30).reset_index(), "Pass time='time'"),
        (table(30).assign(x=np.inf), "infinite at row 0"),
        (table(30).rename(columns={"x": "y"}), r"no column 'x'; it has \['y', 'z', 'wind'\]"),
        (table(30).assign(x="high"), "does not hold numbers"),
        (table(30).assign(x=-2.0), "log1p needs values > -1"),
        (table(8), r"history \+ lead = 6 \+ 4"),
        (table(30).assign(x=np.nan), "None of 5 windows is complete"),
        (table(30).assign(wind="W"), r"'W' at 2021-03-01 10:00:00 is none of .*'N', 'S'"),
        (table(1), "at least 2 rows"),
        ("a path", "Cannot read a str"),
        ({"x": np.ones(3), "z": np.ones(4)}, "differ in length"),
        (np.ones((30, 3)), r"shape \(30, 3\) needs columns"),
    ],
)
def test_a_series_that_cannot_be_cut_says_why(frame: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cut(frame)


def test_time_checks_of_numbers_and_dates() -> None:
    steps = np.arange(300) * 0.01
    assert read_series({"x": np.ones(300)}, time=steps).step == pytest.approx(0.01)
    with pytest.raises(ValueError, match="row 7"):
        read_series({"x": np.ones(300)}, time=np.where(steps == steps[7], 0.073, steps))
    with pytest.raises(ValueError, match="time is missing in rows 1"):
        read_series({"x": np.ones(3)}, time=pd.DatetimeIndex(["2020-01-01", None, "2020-01-03"]))
    with pytest.raises(ValueError, match=r"neither numbers nor dates.*'01/02/2021'"):
        read_series({"x": np.ones(2), "t": np.array(["01/02/2021", "02/02/2021"])}, time="t")
    with pytest.raises(ValueError, match="No time column 'when'"):
        read_series({"x": np.ones(2)}, time="when")
    with pytest.raises(ValueError, match="5 entries for 3 rows"):
        read_series({"x": np.ones(3)}, time=range(5))
    with pytest.raises(ValueError, match="and 2 more"):
        read_series({"x": np.ones(16)}, time=[*range(9), 8, 8, 8, 8, 8, 8, 8])


# ---- gaps --------------------------------------------------------------------------------------


def fill_by_hand(values: list[float], limit: int, rule: str) -> list[float]:
    """Both rules in words, one run of missing values after the other."""
    filled, n = list(values), len(values)
    start = 0
    while start < n:
        if not math.isnan(values[start]):
            start += 1
            continue
        end = start
        while end < n and math.isnan(values[end]):
            end += 1
        if start > 0:
            left = values[start - 1]
            right = values[end] if end < n else left
            allowed = end - start if rule == "strict" else limit
            if rule == "strict" and (end - start > limit or end == n):
                allowed = 0
            for k in range(start, min(end, start + allowed)):
                filled[k] = left + (right - left) * (k - start + 1) / (end - start + 1)
        start = end
    return filled


@pytest.mark.parametrize("limit", [0, 1, 2, 6])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_gap_rules_match_a_plain_loop_and_pandas(limit: int, share: float) -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        values = np.where(rng.random(40) < share, np.nan, rng.standard_normal(40))
        for rule in ("strict", "paper"):
            expected = fill_by_hand(values.tolist(), limit, rule)
            np.testing.assert_allclose(fill_gaps(values, limit, rule), expected)
        if limit:
            pandas = pd.Series(values).interpolate("linear", limit=limit).to_numpy()
            np.testing.assert_allclose(fill_gaps(values, limit, "paper"), pandas)


def test_windows_that_read_a_gap_are_dropped_and_listed() -> None:
    frame = table(60)
    clean = cut(frame)
    frame.loc[frame.index[20:24], "x"] = np.nan
    frame.loc[frame.index[40], "z"] = np.nan
    frame.loc[frame.index[50], "wind"] = None
    windows = cut(frame)
    # origins 5, 10, ..., 55: [t-5, t] holds inputs, t+1..t+4 targets
    assert windows.rows.tolist() == [5, 10, 15, 30, 35, 55]
    kept = np.isin(clean.rows, windows.rows)
    np.testing.assert_array_equal(windows.X, clean.X[kept])
    np.testing.assert_array_equal(windows.Y["band"], clean.Y["band"][kept])
    listed = dict(zip(windows.dropped["t"], windows.dropped["part"], strict=True))
    at = frame.index
    assert listed == {
        at[20]: "inputs and targets",
        at[25]: "inputs",
        at[40]: "inputs",
        at[45]: "inputs",
        at[50]: "inputs",
    }
    assert windows.dropped["columns"].tolist() == ["x", "x", "z", "z", "wind"]
    assert "2 for inputs z" in repr(windows)
    assert len(windows) + len(windows.dropped) == len(clean)


def test_strict_and_paper_differ_on_longer_gaps_alone() -> None:
    frame = table(60)
    frame.loc[frame.index[24:28], "x"] = np.nan
    counts = {
        (limit, gaps): (len(one), one.filled.get("x", 0))
        for limit in (0, 2, 4)
        for gaps in ("strict", "paper")
        for one in [cut(frame, fill_limit=limit, gaps=gaps)]
    }
    assert counts[4, "strict"] == counts[4, "paper"] == (11, 4)
    assert counts[2, "strict"] == counts[0, "strict"] == counts[0, "paper"] == (8, 0)
    # rows 24 and 25 are filled, and the window at 20 is asked about 21 to 24
    assert counts[2, "paper"] == (9, 2)


def test_partial_labels_can_be_kept() -> None:
    frame = table(60)
    frame.loc[frame.index[22], "x"] = np.nan
    questions: dict[str, Observable] = {"end": at_lead("x"), "high": over_window("x").max() > 0}
    inputs = [current("z")]
    strict = Windowing(history=6, lead=4, stride=5).cut(frame, questions, inputs)
    kept = Windowing(history=6, lead=4, stride=5, missing_targets="keep").cut(
        frame, questions, inputs
    )
    assert len(kept) == len(strict) + 1
    row = kept.rows.tolist().index(20)
    assert kept.Y["end"][row] == frame["x"].iloc[24]
    assert np.isnan(kept.Y["high"][row])
    assert strict.dropped["part"].tolist() == ["targets"]


# ---- labels and splits -------------------------------------------------------------------------


def quantile_windows(edges_from: str = "train") -> Windows:
    questions: dict[str, Observable] = {
        "band": at_lead("x").quantile_bands(4, edges_from=edges_from)  # type: ignore[arg-type]
    }
    return Windowing(history=2, lead=3).cut(table(600), questions)


def test_quantile_edges_see_the_training_windows_alone() -> None:
    windows = quantile_windows()
    with pytest.raises(ValueError, match=r"windows.split\(...\)"):
        _ = windows.Y
    split = windows.chronological_split()
    train, valid, test = windows.split(split)
    expected = np.quantile(windows.values["band"][split.train], [0.25, 0.5, 0.75])
    for part in (train, valid, test):
        band = part.questions["band"]
        assert isinstance(band, Bands)
        assert band.edges == tuple(expected)
    assert np.ptp(np.bincount(train.Y["band"].astype(int))) <= 1
    assert [len(train), len(valid), len(test)] == [len(part) for part in split]
    # other windows after the training part change nothing
    later = windows.values["band"].copy()
    later[split.train[-1] + 1 :] += 100
    changed = Windows(**{**vars(windows), "values": {"band": later}}).split(split)
    np.testing.assert_array_equal(changed.train.Y["band"], train.Y["band"])
    # a second split learns afresh
    moved = windows.label(split.train).split(windows.random_split(seed=1))
    assert moved.train.questions != train.questions


def test_edges_from_the_whole_corpus_are_one_flag() -> None:
    windows = quantile_windows("corpus")
    assert np.ptp(np.bincount(windows.Y["band"].astype(int))) <= 1
    parts = windows.split()
    assert parts.train.questions == windows.questions
    # on another series they stay what they were
    again = windows.recipe.cut(table(600, seed=9))
    assert again.questions == windows.questions


def test_take_keeps_windows_whole() -> None:
    windows = cut(table())
    some = windows.take([3, 1])
    np.testing.assert_array_equal(some.X, windows.X[[3, 1]])
    np.testing.assert_array_equal(some.Y["state"], windows.Y["state"][[3, 1]])
    assert some.t.tolist() == [windows.t[3], windows.t[1]]
    assert windows.take(2).X.shape == (1, windows.X.shape[1])
    assert "N=0" in repr(windows.take(slice(0)))
    assert len(windows.take(windows.Y["event"] == 1)) == windows.Y["event"].sum()


def test_auto_embargo_leaves_no_shared_hour() -> None:
    windows = Windowing(history=24, lead=24, stride=24).cut(table(24 * 80), {"s": at_lead("x")})
    for plain, held in [
        (windows.chronological_split(), windows.chronological_split(embargo="auto")),
        (windows.random_split(1), windows.random_split(1, embargo="auto")),
        (windows.rolling_origins()[0], windows.rolling_origins(embargo="auto")[0]),
    ]:
        assert windows.leaks(plain)[["history", "targets"]].to_numpy().sum() > 0
        assert windows.leaks(held)[["history", "targets"]].to_numpy().sum() == 0
        np.testing.assert_array_equal(plain.test, held.test)
    one = windows.chronological_split(embargo=1)
    np.testing.assert_array_equal(one.train, windows.chronological_split(embargo="auto").train)
    # history of a later part over targets of an earlier one: the past, and all that leaks here
    bare = windows.chronological_split(embargo=0)
    found = windows.leaks(bare).set_index(["part", "other"])["history"]
    assert found.to_dict() == {
        ("train", "valid"): 0,
        ("train", "test"): 0,
        ("valid", "train"): 1,
        ("valid", "test"): 0,
        ("test", "train"): 0,
        ("test", "valid"): 1,
    }


# ---- several leads, simulated paths ------------------------------------------------------------


def test_leads_make_one_task_a_question_and_lead() -> None:
    frame = table()
    joint = Windowing(history=6, leads=[1, 6, 24], stride=5).cut(frame, QUESTIONS)
    assert joint.tasks == [f"{name}@{lead}" for name in QUESTIONS for lead in (1, 6, 24)]
    assert joint.sentences["state@6"] == "log1p(x) at t + 6 h"
    for lead in (1, 6, 24):
        single = Windowing(history=6, lead=lead, stride=5).cut(frame, QUESTIONS)
        for name in QUESTIONS:
            alone = single.Y[name][: len(joint)]
            np.testing.assert_array_equal(joint.Y[f"{name}@{lead}"], alone)
        ends = joint.target_times[f"state@{lead}"]
        assert (ends - joint.t == pd.Timedelta(lead, "h")).all()


def test_quantile_bands_get_their_own_edges_at_each_lead() -> None:
    walk = {"x": np.cumsum(np.random.default_rng(0).standard_normal(900))}
    windows = Windowing(history=1, leads=[1, 20], stride=20).cut(
        walk, {"b": at_lead("x").quantile_bands(3)}
    )
    train = windows.split().train
    assert train.questions["b@1"] != train.questions["b@20"]
    assert all(np.ptp(np.bincount(y.astype(int))) <= 1 for y in train.Y.values())


def test_paths_laid_end_to_end_are_one_window_each() -> None:
    paths = np.random.default_rng(2).standard_normal((30, 11)).cumsum(axis=1)
    questions: dict[str, Observable] = {
        "state": at_lead("x"),
        "event": over_window("x", include_start=True).max() >= 1.5,
        "regime": over_window("x", include_start=True)
        .mean()
        .quantile_bands(4, edges_from="corpus"),
    }
    windows = Windowing(history=1, lead=10, stride=11).cut({"x": paths.ravel()}, questions)
    np.testing.assert_array_equal(windows.X[:, 0], paths[:, 0])
    for task, question in questions.items():
        np.testing.assert_array_equal(windows.Y[task], question.evaluate({"x": paths}))
    # nothing is shared between paths, so the shortest clean embargo drops nothing
    assert sum(map(len, windows.random_split(seed=0, embargo="auto"))) == 30


# ---- after the fit -----------------------------------------------------------------------------


def stored(recipe: Recipe) -> Recipe:
    return Recipe.from_dict(json.loads(json.dumps(recipe.to_dict())))


@pytest.mark.parametrize("zone", [None, "Asia/Shanghai"])
def test_a_stored_recipe_reads_a_series_as_before(zone: str | None) -> None:
    frame = table().tz_localize(zone)
    questions = QUESTIONS | {"q": at_lead("z").quantile_bands(3)}
    inputs = [lags("x", 3).sqrt(), current("z"), one_hot("wind"), calendar("weekday", "dayofyear")]
    windows = Windowing(history=6, lead=4, stride=5, fill_limit=1).cut(frame, questions, inputs)
    recipe = windows.split().train.recipe
    again = stored(recipe)
    assert again == recipe
    new = table(200, seed=5).tz_localize(zone)
    new.loc[new.index[30], "x"] = np.nan
    a, b = recipe.cut(new), again.cut(new)
    np.testing.assert_array_equal(a.X, b.X)
    for task in a.tasks:
        np.testing.assert_array_equal(a.Y[task], b.Y[task])
    assert a.feature_names == b.feature_names
    assert again.newest(new).t[0] == new.index[-1]


def test_a_stored_recipe_of_numbers() -> None:
    x = np.random.default_rng(0).standard_normal((100, 1))
    windows = Windowing(history=2, leads=[1, 2]).cut(x, {"s": at_lead("x")}, columns=["x"])
    again = stored(windows.recipe)
    assert again == windows.recipe
    newest = again.newest(x)
    assert newest.t.tolist() == [99]
    assert newest.target_times.iloc[0].to_dict() == {"s@1": 100, "s@2": 101}


def test_the_newest_window_ends_with_the_series() -> None:
    frame = table()
    recipe = cut(frame).recipe
    newest = recipe.newest(frame)
    assert newest.t.tolist() == [frame.index[-1]]
    assert newest.target_times["event"].tolist() == [frame.index[-1] + pd.Timedelta("4h")]
    assert all(np.isnan(y).all() for y in newest.Y.values())
    # what it reads is what a window with the same origin read in training
    trained = cut(frame)
    for n in (0, 40):
        at = recipe.newest(frame.loc[: trained.t[n]])
        np.testing.assert_array_equal(at.X[0], trained.X[n])
        np.testing.assert_array_equal(recipe.newest(frame, at=trained.t[n]).X, at.X)


def test_the_newest_window_passes_over_gaps_and_says_so() -> None:
    frame = table()
    recipe = cut(frame).recipe
    frame.loc[frame.index[-2:], "z"] = np.nan
    newest = recipe.newest(frame)
    assert newest.t[0] == frame.index[-3]
    assert newest.dropped["t"].tolist() == [frame.index[-1], frame.index[-2]]
    assert set(newest.dropped["columns"]) == {"z"}
    with pytest.raises(ValueError, match="None of 1 windows is complete"):
        recipe.newest(frame, at=frame.index[-1])


def test_the_newest_window_can_keep_to_the_training_hours() -> None:
    frame = table(24 * 20)
    recipe = Windowing(history=24, lead=24, stride=24).cut(frame, {"s": at_lead("x")}).recipe
    late = frame.iloc[3:-7]
    assert not recipe.on_grid(recipe.newest(late).t).any()
    kept = recipe.newest(late, on_grid=True)
    assert recipe.on_grid(kept.t).all()
    assert kept.t[0].hour == (5 + 23) % 24
    # so do all windows that are cut from another stretch
    assert recipe.on_grid(recipe.cut(late).t).all()
    said = recipe.off_grid(recipe.newest(late).t[0])
    assert said is not None
    assert f"origins every 24 h from {recipe.anchor}" in said
    assert recipe.off_grid(kept.t[0]) is None
    with pytest.raises(ValueError, match="on_grid=True admits only origins every 24 h from"):
        recipe.newest(frame.iloc[1:26], on_grid=True)


def test_windows_without_labels_are_those_of_the_fit_and_the_newest() -> None:
    frame = table(24 * 20).tz_localize("Asia/Shanghai")
    frame.iloc[-3, 0] = np.nan
    asked = {"s": at_lead("x")}
    inputs = [lags("x"), calendar("hour")]
    recipe = Windowing(history=6, lead=4, stride=24).cut(frame, asked, inputs).recipe
    # Hours are those of the fit, in whatever zone the same times are given.
    every = recipe.unlabelled(frame.tz_convert("UTC"))
    labelled = recipe.cut(frame)
    places = pd.Index(every.rows).get_indexer(labelled.rows)
    assert np.array_equal(every.X[places], labelled.X)
    assert (every.t[places] == labelled.t).all()
    assert np.isnan(every.Y["s"]).all()
    # The missing cell costs the last three windows and no other.
    assert len(every) == len(frame) - 5 - 3
    assert len(every.dropped) == 3
    newest = recipe.newest(frame)
    assert np.array_equal(every.X[-1:], newest.X)
    kept = recipe.unlabelled(frame, on_grid=True)
    assert np.array_equal(kept.rows, every.rows[recipe.on_grid(every.t)])


@pytest.mark.parametrize(
    ("stride", "step", "rows"),
    [
        (24, "1h", 24),  # one hour of the day
        (6, "1h", 6),
        (5, "1h", 1),  # all of them in turn
        (7, "1D", 7),  # one weekday
        (2, "1D", 1),
        (96, "15min", 96),
        (None, "1h", 1),
    ],
)
def test_a_stride_in_step_with_the_clock_leaves_times_out(
    stride: int | None, step: str, rows: int
) -> None:
    assert rows_between_known_phases(stride, pd.Timedelta(step)) == rows
    n = 4000
    clock = pd.date_range("2024-01-01", periods=n, freq=step)
    met = {(t.day_of_week, t.hour, t.minute) for t in clock[:: stride or 1]}
    every = {(t.day_of_week, t.hour, t.minute) for t in clock}
    assert len(met) * rows == len(every)


def test_a_long_series_is_thinned_out_of_step_with_day_and_week() -> None:
    clock = pd.date_range("2019-01-01", periods=24 * 1900, freq="h")
    x = np.arange(len(clock), dtype=float)
    windows = Windowing(history=2, lead=24).cut(pd.DataFrame({"x": x}, clock), {"s": at_lead("x")})
    assert len(windows) <= MOST_WINDOWS
    assert windows.recipe.stride == 5
    t = windows.t
    per_hour = np.bincount(24 * t.day_of_week + t.hour)
    assert len(per_hour) == 168
    assert per_hour.max() - per_hour.min() <= 1
    # A short series of the same kind is not thinned, and every time is as good as another.
    again = windows.recipe.cut(pd.DataFrame({"x": x[:100]}, clock[:100]))
    assert np.diff(again.rows).tolist() == [1] * (len(again) - 1)
    assert windows.recipe.on_grid(clock).all()


def test_windows_that_overlap_are_split_with_an_embargo() -> None:
    windows = Windowing(history=6, lead=24).cut(table(24 * 40), {"s": at_lead("x")})
    assert windows.recipe.stride == 1
    for split in (windows.chronological_split(), *windows.rolling_origins()):
        assert windows.leaks(split)[["history", "targets"]].to_numpy().sum() == 0
    # Without shared target hours nothing is left out, as in the paper.
    apart = Windowing(history=6, lead=24, stride=24).cut(table(24 * 40), {"s": at_lead("x")})
    assert sum(map(len, apart.chronological_split())) == len(apart)
    # Random parts of overlapping windows know each other's answers, and are refused.
    with pytest.raises(ValueError, match="embargo of 29 leaves 0 of"):
        windows.random_split(0)


def test_a_recipe_of_version_0_1_has_its_stride_in_the_windowing() -> None:
    stored = Windowing(history=3, lead=2, stride=2).cut(table(), QUESTIONS).recipe.to_dict()
    del stored["stride"]
    assert Recipe.from_dict(stored).stride == 2


def test_targets_need_not_be_there_for_a_forecast() -> None:
    frame = table()
    windows = Windowing(history=2, lead=2).cut(frame, {"s": at_lead("x")}, [lags("z")])
    assert windows.recipe.newest(frame[["z"]]).X.shape == (1, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda r: r.newest(table().resample("2h").first()), "step of this series is 0 days 02"),
        (lambda r: r.newest({"x": np.ones(9)}), "step of this series is 1"),
        (lambda r: r.newest(table().tz_localize("UTC")), "Time zones differ"),
        (lambda r: r.newest(table(4)), "No origin to forecast from"),
        (lambda r: r.newest(table(), at=pd.Timestamp("2031-01-01")), "No origin at 2031-01-01"),
        (lambda r: r.newest(table().assign(wind="W")), "'W' at"),
        (lambda r: Windowing(history=2), "either lead=... or leads"),
        (lambda r: Windowing(history=2, lead=1, leads=[1]), "either lead=... or leads"),
        (lambda r: Windowing(history=0, lead=1), "history must be rows >= 1"),
        (lambda r: Windowing(history=1, lead=0), "lead 0 must be rows >= 1"),
        (lambda r: Windowing(history=1, leads=[1, 1]), "different numbers"),
        (lambda r: Windowing(history=1, lead=1, fill_limit=-1), "fill_limit must be rows >= 0"),
        (lambda r: r.windowing.cut(table(), {}), "At least one question"),
        (lambda r: r.windowing.cut(table(), QUESTIONS, []), "nothing to read"),
        (lambda r: r.windowing.cut(table(), QUESTIONS, [lags("x", 7)]), "history=7"),
        (lambda r: lags("x", [-1]), "read the future"),
        (lambda r: current(), "at least one column"),
        (lambda r: calendar("decade"), "'dayofyear'"),
        (lambda r: one_hot("wind", ["N", "N"]), "must differ"),
        (lambda r: r.windowing.cut({"x": np.ones(40)}, QUESTIONS, [calendar("hour")]), "dates"),
        (lambda r: cut(table()).chronological_split((0.5, 0.5, 0.5)), "add up to 1"),
    ],
)
def test_errors_teach(call, message: str) -> None:
    recipe = cut(table()).recipe
    with pytest.raises(ValueError, match=message):
        call(recipe)


def test_an_unreduced_window_is_not_a_question() -> None:
    with pytest.raises(Exception, match=r"Question 'x'|Span"):
        Windowing(history=1, lead=1).cut(table(), {"x": over_window("x")})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ((lags, ["a", "b"]), r"takes the name of a column, got \['a', 'b'\].*\[lags\('a'\), lags"),
        ((lags, 3), "takes the name of a column, got 3"),
        ((lags, "x", "12"), r"lags\('x'\): steps must be a count such as 3.*got '12'"),
        ((lags, "x", 2.5), r"steps must be a count such as 3.*got 2\.5"),
        ((lags, "x", [1.7]), r"steps must be a count such as 3.*got \[1\.7\]"),
        ((lags, "x", True), "steps must be a count such as 3.*got True"),
        ((current, ["a", "b"]), r"takes the name of a column.*write current\('a', 'b'\)"),
        ((one_hot, ["a"]), r"takes the name of a column, got \['a'\]"),
        ((one_hot, "a", 3), r"one_hot\('a'\): categories must be a list, got 3"),
        ((calendar, ["hour"]), r"takes \['hour', .*got \[\['hour'\]\]"),
        ((Windowing, 2, None, None, 3), r"leads must be a list such as \[1, 6, 24\].*got 3"),
        ((Windowing, 2, None, None, "12"), r"leads must be a list.*got '12'"),
    ],
)
def test_arguments_of_a_wrong_type_are_told_in_one_sentence(call: tuple, message: str) -> None:
    function, *arguments = call
    make = unguarded if isinstance(function, type) else inspect.unwrap(function)
    with pytest.raises(ValueError, match=message):
        make(*([function] if make is unguarded else []), *arguments)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (["x"], r"inputs: 'x' is text, not an input; write lags\('x'\).*current\('x'\)"),
        ("x", r"inputs must be a list such as \[lags\('x'\).*got 'x'"),
        (lags("x"), r"inputs must be a list such as \[lags\('x'\).*got Lags"),
        ([lags("x"), 3], "inputs must be a list.*got 3 in it"),
    ],
)
def test_inputs_of_a_wrong_type_are_told_in_one_sentence(inputs: Any, message: str) -> None:
    cut_unguarded = inspect.unwrap(Windowing.cut)
    with pytest.raises(ValueError, match=message):
        cut_unguarded(Windowing(history=2, lead=1), table(), QUESTIONS, inputs)


def test_a_question_without_a_name_is_told_in_one_sentence() -> None:
    with pytest.raises(ValueError, match="Questions are a mapping from names"):
        inspect.unwrap(tasks_of)(at_lead("x"), None, 1)
