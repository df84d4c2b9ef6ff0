"""Price, river and wind: made-up files of the same format, and the real ones where they exist."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from scrollmt.corpora import de_price, river, wind
from scrollmt.corpora.located import FOLDER_VARIABLE
from scrollmt.heads import Censored, Event, Ordinal, Real

HOURS = 24 * 20


def write_price(folder: Path) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    hours = pd.date_range("2015-01-01", periods=HOURS, freq="h")
    frame = pd.DataFrame(
        {name: np.round(rng.normal(40, 30, HOURS), 2) for name in de_price.COLUMNS}, index=hours
    )
    frame.to_csv(folder / de_price.FILE)
    return frame


def write_river(folder: Path) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    days = pd.date_range("1980-10-01", periods=60, freq="D")
    frame = pd.DataFrame({"YR": days.year, "MNTH": days.month, "DY": days.day, "HR": 12})
    for name in river.COLUMNS:
        frame[name] = np.round(rng.gamma(2.0, 1.0, 60) + 0.1, 4)
    frame.loc[40, "OBS_RUN"] = -999.0
    frame.to_csv(folder / river.FILE, sep=" ", index=False)
    return frame


def write_wind(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A gap of two days in the power from hour 200 on; issues every 12 hours."""
    rng = np.random.default_rng(2)
    hours = pd.date_range("2009-07-01", periods=HOURS, freq="h")
    power = pd.DataFrame({"date": hours.strftime("%Y%m%d%H").astype(int)})
    for farm in wind.FARMS:
        power[f"wp{farm}"] = np.round(np.clip(rng.normal(0.3, 0.3, HOURS), 0, 1), 3)
    power = power.drop(index=range(200, 248))
    power.to_csv(folder / wind.POWER_FILE, index=False)
    issues = hours[::12].repeat(48)
    issued = pd.DataFrame({"date": issues.strftime("%Y%m%d%H").astype(int)})
    issued["hors"] = np.tile(np.arange(1, 49), len(hours[::12]))
    # The number says which issue and lead it is from.
    issued["ws"] = np.repeat(np.arange(len(hours[::12])), 48) + issued["hors"] / 100
    for name in ("u", "v", "wd"):
        issued[name] = rng.normal(size=len(issued))
    issued.to_csv(folder / "wind_forecast_1.csv.gz", index=False)
    return power, issued


def test_the_price_of_the_next_day_and_what_is_known_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = write_price(tmp_path)
    windows = de_price.load(tmp_path)
    target = raw["Price"].reindex(windows.t + pd.Timedelta("24h")).to_numpy()
    np.testing.assert_array_equal(windows.Y["price"], target)
    np.testing.assert_array_equal(windows.Y["negative"], target < 0)
    np.testing.assert_array_equal(windows.Y["over_100"], target > 100)
    np.testing.assert_array_equal(windows.Y["band"], np.digitize(target, [20, 30, 40, 50]))
    X = windows.X_frame()
    known = raw["Load_DA_Forecast"].reindex(windows.t + pd.Timedelta("24h")).to_numpy()
    np.testing.assert_array_equal(X["load_ahead"], known)
    fuel = raw["TTF_Gas"].reindex(windows.t - pd.Timedelta("24h")).to_numpy()
    np.testing.assert_array_equal(X["gas[t-24]"], fuel)
    assert [type(head) for head in windows.heads.values()] == [Real, Event, Event, Ordinal]
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    np.testing.assert_array_equal(de_price.load().X, windows.X)


@pytest.mark.parametrize("column", ["price", "emissions", "coal", "gas", "oil"])
def test_no_window_of_the_price_reads_a_price_after_its_origin(tmp_path: Path, column: str) -> None:
    write_price(tmp_path)
    frame = de_price.load_frame(tmp_path)
    before = de_price.windows_of(frame)
    middle = before.t[len(before) // 2]
    changed = frame.copy()
    changed.loc[changed.index > middle, column] += 1000.0
    after = de_price.windows_of(changed)
    past = before.t <= middle
    np.testing.assert_array_equal(before.X[past], after.X[past])
    assert (before.X[~past] != after.X[~past]).any()


def test_the_river_three_days_ahead(tmp_path: Path) -> None:
    raw = write_river(tmp_path)
    frame = river.load_frame(tmp_path)
    assert frame["runoff"].isna().sum() == 1
    windows = river.load(tmp_path)
    runoff = frame["runoff"].reindex(windows.t + pd.Timedelta("3D")).to_numpy()
    np.testing.assert_allclose(windows.Y["runoff"], np.log(runoff))
    np.testing.assert_array_equal(windows.Y["flood"], runoff > 6)
    np.testing.assert_array_equal(windows.Y["band"], np.digitize(runoff, [0.5, 1, 2, 5]))
    now = windows.X_frame()["log(simulated)[t]"]
    np.testing.assert_allclose(now, np.log(raw["MOD_RUN"].to_numpy()[windows.rows]))
    # 60 days, of which 14 have no full history, 3 no target, and the missing day spoils the rest.
    assert not np.isin(40, windows.rows)
    assert not np.isin(37, windows.rows)


def test_the_wind_forecast_is_the_newest_at_or_before_the_origin(tmp_path: Path) -> None:
    write_wind(tmp_path)
    frame = wind.load_frame(tmp_path, farm=1)
    hour = np.arange(len(frame))
    # Issue number i is from hour 12 i; the target lies 24 h after the origin.
    expected = hour // 12 + (hour % 12 + 24) / 100
    np.testing.assert_allclose(frame["speed_24h"], expected)
    np.testing.assert_allclose(frame["issued_ago"], hour % 12)
    np.testing.assert_allclose(frame["speed_cubed_18h"], (hour // 12 + (hour % 12 + 18) / 100) ** 3)
    far = wind.newest_issue(wind.load_forecasts(tmp_path), frame.index[:12], 40)
    assert np.isnan(far["ws"]).tolist() == [False] * 9 + [True] * 3


def test_the_power_ramp_and_bands_of_a_farm(tmp_path: Path) -> None:
    write_wind(tmp_path)
    windows = wind.load(tmp_path)
    series = wind.load_power(tmp_path)["wp1"]
    assert series.isna().sum() == 48
    assert len(series) == HOURS
    target = series.reindex(windows.t + pd.Timedelta("24h")).to_numpy()
    earlier = series.reindex(windows.t + pd.Timedelta("18h")).to_numpy()
    np.testing.assert_array_equal(windows.Y["power"], target)
    np.testing.assert_array_equal(windows.Y["ramp"], np.abs(target - earlier) > 0.2)
    np.testing.assert_array_equal(windows.Y["band"], np.digitize(target, [0.05, 0.25, 0.6]))
    assert not np.isnan(windows.X).any()
    heads = wind.heads(windows)
    assert isinstance(heads["power"], Censored)
    assert heads["power"].limits == (0.0, 1.0)
    assert len(wind.load(tmp_path, until=windows.t[10])) < 10
    with pytest.raises(ValueError, match="no farm 8"):
        wind.load(tmp_path, farm=8)


def test_files_of_another_form_are_refused(tmp_path: Path) -> None:
    write_price(tmp_path).drop(columns="EUA").to_csv(tmp_path / de_price.FILE)
    with pytest.raises(ValueError, match=r"has no columns \['EUA'\]"):
        de_price.load(tmp_path)
    write_river(tmp_path).drop(columns="DY").to_csv(tmp_path / river.FILE, sep=" ", index=False)
    with pytest.raises(ValueError, match=r"has no columns \['DY'\]"):
        river.load(tmp_path)


BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"
REAL = Path(os.environ.get(FOLDER_VARIABLE) or BESIDE)


@pytest.mark.skipif(not (REAL / "series").is_dir(), reason="the files are not on this machine")
class TestTheRealFiles:
    def test_price(self) -> None:
        windows = de_price.load(REAL)
        assert windows.X.shape == (10_488, 26)
        assert len(windows.dropped) == 0
        assert int(windows.Y["negative"].sum()) == 203
        assert int(windows.Y["over_100"].sum()) == 19

    def test_river(self) -> None:
        windows = river.load(REAL)
        assert windows.X.shape == (11_032, 32)
        assert np.bincount(windows.Y["flood"].astype(int)).tolist() == [10_326, 706]

    def test_wind(self) -> None:
        windows = wind.load(REAL)
        assert windows.X.shape == (4_378, 24)
        assert len(windows.dropped) == 0
        assert 0.0 <= windows.Y["power"].min() <= windows.Y["power"].max() < 1.0
