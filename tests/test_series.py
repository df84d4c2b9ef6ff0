"""Where the time of a frame is found: in the index, in a column, or given beside it."""

import json
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from scrollmt._data.series import read_series
from scrollmt.inputs import calendar
from scrollmt.observables import at_lead
from scrollmt.windows import Recipe, Windowing

# Clocks in Berlin go forward in this span.
BERLIN = pd.date_range("2023-03-25", periods=60, freq="h", tz="Europe/Berlin")
HOURS = pd.date_range("2023-01-01", periods=60, freq="h")
X = np.arange(60.0)


def frame(index: Any) -> pd.DataFrame:
    return pd.DataFrame({"x": X}, index=index)


@pytest.mark.parametrize(
    ("given", "time"),
    [
        (frame(HOURS), None),
        (frame(HOURS.to_period("h")), None),
        (frame(HOURS.astype(str)), None),
        (frame(HOURS.astype(str).astype(object)), None),
        (frame(pd.Index(HOURS.to_pydatetime(), dtype=object)), None),
        (frame(HOURS.rename("when")), "when"),
        (frame(HOURS.to_period("h").rename("when")), "when"),
        (frame(HOURS.astype(str).rename("when")), "when"),
        (pd.DataFrame({"x": X, "when": HOURS.to_period("h")}), "when"),
        (pl.DataFrame({"x": X, "when": HOURS.to_numpy()}), "when"),
        ({"x": X}, pl.Series(HOURS.to_numpy())),
        ({"x": X}, HOURS.to_numpy()),
        ({"x": X, "when": HOURS.to_numpy().astype("datetime64[h]")}, "when"),
    ],
)
def test_the_time_is_found(given: Any, time: Any) -> None:
    series = read_series(given, time)
    assert series.time.tolist() == HOURS.tolist()
    assert series.step == pd.Timedelta("1h")
    assert list(series.columns) == ["x"]


@pytest.mark.parametrize(
    ("given", "time"),
    [
        (frame(BERLIN), None),
        (frame(BERLIN.rename("when")), "when"),
        (pd.DataFrame({"x": X, "when": BERLIN}), "when"),
        ({"x": X}, pl.Series(list(BERLIN)).dt.convert_time_zone("Europe/Berlin")),
    ],
)
def test_a_zone_stays(given: Any, time: Any) -> None:
    series = read_series(given, time)
    assert series.timezone == "Europe/Berlin"
    assert series.time.tolist() == BERLIN.tolist()
    assert series.time[-1].hour == BERLIN[-1].hour


def test_offsets_of_summer_and_winter_are_read_in_universal_time() -> None:
    texts = [one.isoformat() for one in BERLIN]
    assert len({one[-6:] for one in texts}) == 2
    assert read_series({"x": X, "when": np.array(texts)}, "when").time.tolist() == BERLIN.tolist()
    # One offset is kept as it is: its hours are the local ones.
    east = HOURS.tz_localize("+05:30")
    assert read_series(frame([one.isoformat() for one in east])).time[0].hour == 0
    # A text without an offset among those with one could be any hour.
    texts[3] = texts[3][:-6]
    with pytest.raises(ValueError, match="neither numbers nor dates"):
        read_series({"x": X, "when": np.array(texts)}, "when")


def test_a_cell_that_is_no_number_is_named() -> None:
    cells = [*map(str, range(58)), "<5", "k.A."]
    series = read_series(pd.DataFrame({"x": cells}, index=HOURS))
    with pytest.raises(ValueError, match=r"'x' does not hold numbers .*: '<5' in row 58 .*row 59"):
        series.numbers("x")


def test_an_index_of_another_name_is_named() -> None:
    with pytest.raises(ValueError, match=r"No time column 'when'.*index of dates .*'hour'"):
        read_series(frame(HOURS.rename("hour")), "when")
    pairs = pd.MultiIndex.from_arrays([HOURS, HOURS])
    with pytest.raises(ValueError, match="neither numbers nor dates"):
        read_series(frame(pairs))


def test_a_model_reads_hours_on_the_clock_of_its_fit() -> None:
    windows = Windowing(history=1, lead=1).cut(
        frame(BERLIN), {"x": at_lead("x")}, [calendar("hour")]
    )
    stored = json.loads(json.dumps(windows.recipe.to_dict()))
    recipe = Recipe.from_dict(stored)
    assert recipe.anchor == BERLIN[0]
    assert str(recipe.anchor.tz) == "Europe/Berlin"
    universal = frame(BERLIN.tz_convert("UTC"))
    np.testing.assert_array_equal(recipe.cut(universal).X, windows.X)
    assert recipe.newest(universal).t[0].hour == BERLIN[-1].hour
    # A recipe of version 0.1 knew no zone, and reads hours as they are given.
    del stored["timezone"]
    np.testing.assert_array_equal(Recipe.from_dict(stored).cut(frame(BERLIN)).X, windows.X)
