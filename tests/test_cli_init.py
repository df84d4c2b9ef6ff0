"""`scrollmt init`: whatever the columns, the config that it writes is one that `fit` takes."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from commands import done, found, refused, run, series
from scrollmt import Event, Gaussian, Ordinal
from scrollmt.cli.asking import Questions, Targets
from scrollmt.cli.config import Config, parse_config
from scrollmt.observables import Bands, Condition, Value


def written(frame: pd.DataFrame, folder: Path, *options: Any) -> Config:
    """What `init` makes of a table, after `fit --check` has taken it."""
    frame.to_csv(folder / "data.csv", index=False)
    config = folder / "config.toml"
    config.unlink(missing_ok=True)
    said = done("init", folder / "data.csv", "-o", config, *options)
    assert f"scrollmt fit {config}" in said.replace("\n", "")
    done("fit", config, "--check")
    return parse_config(config.read_bytes(), str(config), folder)


def test_an_hourly_series(tmp_path: Path) -> None:
    config = written(series(700), tmp_path)
    assert isinstance(config.task, Questions)
    assert config.source.time == "time"
    assert config.source.step == pd.Timedelta("1h")
    windowing = config.task.windowing
    assert (windowing.history, windowing.lead, windowing.stride) == (24, 24, None)
    kinds = [type(asked) for asked in config.task.asked.values()]
    assert kinds == [Value, Condition, Bands]
    assert {name for _, name in config.columns} == {"time", "x", "wind", "site"}


def test_another_column_and_another_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = written(series(600), tmp_path, "--column", "wind")
    assert isinstance(config.task, Questions)
    assert {asked.columns() for asked in config.task.asked.values()} == {("wind",)}
    # A config elsewhere finds its data from there.
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path)
    done("init", "data.csv", "-o", "deep/config.toml")
    assert 'file = "../data.csv"' in (tmp_path / "deep" / "config.toml").read_text()
    done("fit", "deep/config.toml", "--check")


@pytest.mark.parametrize("step", ["1min", "15min", "1h", "1D", "7D"])
def test_any_step(step: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    times = pd.date_range("2020-01-01", periods=400, freq=step)
    frame = pd.DataFrame({"when": times, "y": np.exp(rng.normal(size=400))})
    config = written(frame, tmp_path)
    assert config.source.step == pd.Timedelta(step)
    assert isinstance(config.task, Questions)
    # A long tail to the right is asked about on the scale of its logarithm.
    assert "log1p" in str(config.task.asked["value"])


def test_dates_that_are_written_otherwise(tmp_path: Path) -> None:
    frame = series(600)
    clock = frame["time"].dt.strftime("%d/%m/%Y %H:%M")
    config = written(frame.assign(time=clock), tmp_path)
    assert config.source.time_format == "%d/%m/%Y %H:%M"
    # 01/02/2023 is two different days: no guess is made.
    days = pd.date_range("2023-02-01", periods=12).repeat(24).strftime("%d/%m/%Y")
    first_days = series(288).iloc[:, 1:].assign(time=days[:285])
    first_days.to_csv(tmp_path / "data.csv", index=False)
    config_file = tmp_path / "config.toml"
    said = refused("init", tmp_path / "data.csv", "-o", config_file, "--force")
    assert "can be read as %d/%m/%Y or as %m/%d/%Y" in said
    assert "--data 'time_format=" in said


def test_columns_that_are_of_no_use_are_said_to_be_left(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = series(600)
    n = len(frame)
    frame = frame.assign(
        constant=1.0,
        notes=[f"note {i}" for i in range(n)],
        gaps=np.where(rng.random(n) < 0.6, np.nan, rng.normal(size=n)),
    )
    frame["two\nlines"] = rng.normal(size=n)
    frame['quo"ted, \\ [x]'] = rng.normal(size=n)
    config = written(frame, tmp_path)
    text = (tmp_path / "config.toml").read_text()
    assert '# Not used: "gaps", "constant", "notes"' in text
    assert ("inputs[1].columns", 'quo"ted, \\ [x]') in config.columns


def test_a_table_of_windows(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 3)), columns=["a", "b", "y"])
    for labels, head in (
        (frame["y"], Gaussian),
        ((frame["y"] > 0).astype(int), Event),
        (pd.Series(np.digitize(frame["y"], [-0.5, 0.5])), Ordinal),
    ):
        config = written(frame.assign(y=labels), tmp_path)
        assert isinstance(config.task, Targets)
        assert config.task.inputs == ("a", "b")
        assert isinstance(config.task.heads["y"], head)
    other = written(frame, tmp_path, "--column", "a")
    assert isinstance(other.task, Targets)
    assert other.task.columns == {"a": "a"}


def test_thresholds_come_from_the_part_that_trains(tmp_path: Path) -> None:
    """One from the whole file may lie where training never comes."""
    frame = series(600).assign(x=lambda f: f["x"] + np.where(f.index < 500, 0.0, 100.0))
    config = written(frame, tmp_path)
    assert isinstance(config.task, Questions)
    event = config.task.asked["event"]
    assert isinstance(event, Condition)
    assert 5.0 < event.threshold < 10.0


def test_a_threshold_has_as_many_digits_as_it_needs(tmp_path: Path) -> None:
    frame = series(600).assign(x=lambda f: 1000.0 + f["x"] / 1000)
    config = written(frame, tmp_path)
    assert isinstance(config.task, Questions)
    event = config.task.asked["event"]
    assert isinstance(event, Condition)
    assert 0.05 < (frame["x"] > event.threshold).mean() < 0.2


def test_a_question_that_cannot_be_learned_is_a_comment_with_the_reason(tmp_path: Path) -> None:
    frame = series(600).assign(x=np.tile([0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 2.0], 100)[:597])
    config = written(frame, tmp_path)
    assert isinstance(config.task, Questions)
    assert list(config.task.asked) == ["value", "event"]
    text = (tmp_path / "config.toml").read_text()
    reason = text[text.index("# Left out: ") : text.index("# [questions.band]")]
    assert "the quantiles coincide" in reason
    assert "config.toml" not in reason


@pytest.mark.slow
def test_a_short_file_gets_short_windows(tmp_path: Path) -> None:
    shown = []
    for rows in (1000, 300, 100, 40, 20):
        config = written(series(1000).iloc[:rows, :2], tmp_path)
        assert isinstance(config.task, Questions)
        shown.append((config.task.windowing.history, config.task.windowing.lead))
    assert shown[0] == (24, 24)
    assert shown == sorted(shown, reverse=True)
    assert shown[-1] == (1, 1)


def test_keys_of_the_data_may_be_given(tmp_path: Path) -> None:
    frame = series(600)
    text = frame.assign(time=frame["time"].dt.strftime("%d/%m/%Y %H:%M")).to_csv(index=False)
    (tmp_path / "data.csv").write_text(text)
    config = tmp_path / "config.toml"
    done("init", tmp_path / "data.csv", "-o", config, "--data", "time_format=%d/%m/%Y %H:%M")
    assert 'time_format = "%d/%m/%Y %H:%M"' in config.read_text()
    keys = ("--data", "timezone=Europe/London", "--data", 'missing=["x"]', "--force")
    done("init", tmp_path / "data.csv", "-o", config, *keys)
    assert 'timezone = "Europe/London"' in config.read_text()
    assert 'missing = ["x"]' in config.read_text()
    for wrong, said in (
        ("timezone", "give a key of [data] as key=value"),
        ("zone=UTC", "unknown key 'data.zone'"),
        ("timezone=Nowhere", "data.timezone must be the name of a time zone"),
    ):
        assert said in refused("init", tmp_path / "data.csv", "-o", "-", "--data", wrong)


def test_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    frame = series(600)
    frame.to_csv("data.csv", index=False)
    printed = done("init", "data.csv", "-o", "-")
    assert not Path("config.toml").exists()
    piped = done("init", "-", "-o", "-", given=frame.to_csv(index=False))
    assert piped == printed.replace('"data.csv"', '"-"')
    assert found("fit", "-", "--check", given=printed)["windows"]["train"] > 50


def test_names_with_controls_never_reach_the_terminal(tmp_path: Path) -> None:
    sly = "x\x9b2Jy\u202e"
    series(600).rename(columns={"x": sly}).to_csv(tmp_path / "data.csv", index=False)
    printed = done("init", tmp_path / "data.csv", "-o", "-", "--column", sly)
    assert not [one for one in printed if not (one.isprintable() or one == "\n")]
    config = parse_config(printed.encode(), "config", tmp_path)
    assert isinstance(config.task, Questions)
    assert sly in dict(config.columns).values()


def test_what_is_there_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    series(600).to_csv("data.csv", index=False)
    before = Path("data.csv").read_bytes()
    Path("config.toml").write_text("mine")
    assert "--force" in refused("init", "data.csv")
    assert Path("config.toml").read_text() == "mine"
    done("init", "data.csv", "--force")
    assert "[windows]" in Path("config.toml").read_text()
    assert "belongs to what is read" in refused("init", "data.csv", "-o", "data.csv", "--force")
    assert "is a folder" in refused("init", "data.csv", "-o", ".", "--force")
    assert Path("data.csv").read_bytes() == before


def test_files_without_anything_to_ask(tmp_path: Path) -> None:
    for text, said in (
        ("a,b\nx,y\n", "no column of numbers"),
        ("time,b\n2020-01-01,x\n2020-01-02,y\n", "no column of numbers"),
        ("a\n1\n2\n", "nothing to forecast 'a' from"),
        ("", "cannot be read as CSV"),
    ):
        (tmp_path / "data.csv").write_text(text)
        assert said in refused("init", tmp_path / "data.csv", "-o", tmp_path / "config.toml")
    series().to_csv(tmp_path / "data.csv", index=False)
    assert "no column 'z'" in refused("init", tmp_path / "data.csv", "-o", "-", "--column", "z")
    said = refused("init", tmp_path / "data.csv", "-o", "-", "--column", "site")
    assert "holds no numbers" in said
    assert run("init", tmp_path / "data.csv", "-o", "-", "--separator", ";;").exit_code == 2
