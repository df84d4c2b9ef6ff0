"""The command line runs the real jobs, on few windows: what goes in, what comes out."""

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import scrollmt
from commands import contents, done, found, refused, run, series, write_series, write_table
from scrollmt.cli import app, tables
from scrollmt.cli.config import Source


@pytest.fixture(scope="module")
def fitted_series(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = write_series(tmp_path_factory.mktemp("series"))
    before = contents(folder)
    done("fit", folder / "config.toml")
    yield folder
    after = contents(folder)
    assert {name: after[name] for name in before} == before, "an input file was changed"


@pytest.fixture(scope="module")
def fitted_table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_table(tmp_path_factory.mktemp("table"))
    done("fit", folder / "config.toml")
    return folder


@pytest.mark.slow
def test_demo_prints_a_table_and_draws_a_picture(tmp_path: Path) -> None:
    arguments = ["demo", "--out", str(tmp_path / "d"), "--windows", "200", "--seed", "1"]
    output = done(*arguments)
    assert "40 test windows" in output
    rows = {
        name: [float(v) for v in re.findall(r"-?\d+\.\d+", line)]
        for name in ("state", "event", "regime")
        for line in output.splitlines()
        if re.match(rf"\W*{name}\b", line)
    }
    ours, oracle, difference, error, best_gaussian, half, most = rows["state"]
    assert abs(ours - oracle - difference) < 2e-4
    # Trained on 160 windows of a chaotic system, no forecaster comes close to the true law.
    assert difference > 10 * error
    assert best_gaussian > oracle
    assert half < most
    # Intervals are a matter of values: the other rows leave those cells empty.
    assert len(rows["event"]) == len(rows["regime"]) == 4
    assert (tmp_path / "d" / "lorenz63.png").read_bytes().startswith(b"\x89PNG")


def test_no_arguments_prints_help() -> None:
    result = run()
    assert result.exit_code in (0, 2)
    for verb in ("init", "fit", "predict", "evaluate", "forecast", "backtest", "report", "demo"):
        assert re.search(rf"\b{verb} ", result.output)


def test_the_version_is_that_of_the_package() -> None:
    assert done("--version") == f"scrollmt {scrollmt.__version__}\n"


def test_fit_writes_a_folder_that_python_reads(fitted_series: Path) -> None:
    model = scrollmt.load(fitted_series / "model")
    assert list(model.tasks_) == ["level", "high day", "band"]
    assert model.recipe_ is not None
    # The same answer from the library, with nothing of the command line in between.
    frame = series().set_index("time").asfreq("h").reset_index()
    with warnings.catch_warnings():
        # A model of so few steps may contradict itself, which it says.
        warnings.simplefilter("ignore")
        answer = model.forecast(frame)
    stated = found("forecast", fitted_series / "model", fitted_series / "series.csv")
    assert stated["notices"] == list(answer.notices)
    assert stated["t"] == answer.t.isoformat() == "2023-01-10T23:00:00"
    assert stated["tasks"]["level"]["median"] == answer.to_frame()["median"]["level"]
    assert stated["tasks"]["level"]["units"] == "ug/m3"
    assert stated["tasks"]["high day"]["probability"] == float(answer.laws["high day"].prob[0])  # type: ignore[attr-defined]
    chances = stated["tasks"]["band"]["bands"]
    assert sum(chances.values()) == pytest.approx(1.0)
    assert max(chances, key=lambda name: chances[name]) == stated["tasks"]["band"]["band"]


@pytest.mark.parametrize("start", [[[]], 5, {}, "soon"])
def test_a_fit_that_ends_at_no_time_is_refused(
    start: Any, fitted_series: Path, tmp_path: Path
) -> None:
    model = shutil.copytree(fitted_series / "model", tmp_path / "model")
    facts = json.loads((model / "fit.json").read_text())
    (model / "fit.json").write_text(json.dumps(facts | {"new_from": start}))
    assert "new_from" in refused("evaluate", model, fitted_series / "series.csv")


def test_evaluate_scores_only_what_the_fit_has_not_seen(fitted_series: Path) -> None:
    facts = json.loads((fitted_series / "model" / "fit.json").read_text())
    seen = facts["windows"]
    arguments = ("evaluate", fitted_series / "model", fitted_series / "series.csv")
    fresh = found(*arguments)
    assert fresh["windows"] == seen["test"] < 50
    assert fresh["scores"] == facts["scores"]
    assert fresh["span"][0] == facts["new_from"]
    assert "the fit has seen the others" in run(*arguments).stderr
    every = found(*arguments, "--all")
    assert every["windows"] == sum(
        seen[part] for part in ("train", "validation", "test", "embargo")
    )
    assert every["scores"] != fresh["scores"]


def test_evaluate_refuses_a_file_of_nothing_but_seen_windows(
    fitted_series: Path, tmp_path: Path
) -> None:
    series().iloc[:100].to_csv(tmp_path / "old.csv", index=False)
    said = refused("evaluate", fitted_series / "model", tmp_path / "old.csv")
    assert said.startswith(str(tmp_path / "old.csv"))
    assert "--all" in said
    assert found("evaluate", fitted_series / "model", tmp_path / "old.csv", "--all")["windows"] > 20


def test_evaluate_of_a_table_holds_to_its_own_test_rows(fitted_table: Path, tmp_path: Path) -> None:
    facts = json.loads((fitted_table / "model" / "fit.json").read_text())
    fresh = found("evaluate", fitted_table / "model", fitted_table / "table.csv")
    assert fresh["windows"] == 12
    assert fresh["scores"] == facts["scores"]
    assert fresh["span"] is None
    # Another file is another matter: all of it is new.
    frame = pd.read_csv(fitted_table / "table.csv").iloc[:30]
    frame.to_csv(tmp_path / "other.csv", index=False)
    assert found("evaluate", fitted_table / "model", tmp_path / "other.csv")["windows"] == 30


def test_scores_are_those_of_the_library(fitted_table: Path) -> None:
    frame = pd.read_csv(fitted_table / "table.csv")
    model = scrollmt.load(fitted_table / "model")
    expected = model.evaluate(frame[["a", "b", "c"]], frame[["state", "event", "regime"]])
    stated = found("evaluate", fitted_table / "model", fitted_table / "table.csv", "--all")
    for task, row in expected.iterrows():
        assert stated["scores"][task] == pytest.approx(row.dropna().to_dict())
    printed = done("evaluate", fitted_table / "model", fitted_table / "table.csv", "--all")
    assert f"{expected.loc['state', 'nll']:.3f}" in printed
    # References stand beside, a model that loses against them is named, and 80 columns suffice.
    assert f"{expected.loc['state', 'climatology']:.3f}" in printed
    worse = [task for task, row in expected.iterrows() if row["skill"] < 0.0]
    assert all(f"{task}: worse than a constant forecast (NLL " in printed for task in worse)


def test_predict_of_a_table_is_tidy(fitted_table: Path, tmp_path: Path) -> None:
    target = tmp_path / "laws.parquet"
    model, data = fitted_table / "model", fitted_table / "table.csv"
    summary = found("predict", model, data, "-o", target, "--quantiles", "0.9,0.1")
    assert summary == {
        "file": str(target),
        "rows": 180,
        "windows": 60,
        "tasks": ["state", "event", "regime"],
    }
    table = pd.read_parquet(target)
    columns = ["task", "row", "mean", "sd", "q0.1", "q0.9", "prob_0", "prob_1", "prob_2"]
    assert list(table.columns) == columns
    laws = scrollmt.load(model).predict(pd.read_csv(data)[["a", "b", "c"]])
    state = table[table["task"] == "state"]
    np.testing.assert_array_equal(state["row"], np.arange(60))
    np.testing.assert_array_equal(state["mean"], laws["state"].mean)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(state["q0.1"], laws["state"].quantile(0.1))  # type: ignore[attr-defined]
    assert state.filter(like="prob").isna().all(axis=None)
    event = table[table["task"] == "event"]
    np.testing.assert_array_equal(event["prob_1"], laws["event"].prob)  # type: ignore[attr-defined]
    assert event[["mean", "sd", "q0.1", "prob_2"]].isna().all(axis=None)
    regime = table[table["task"] == "regime"].filter(like="prob")
    np.testing.assert_allclose(regime.sum(axis=1), 1.0)


def test_a_row_far_outside_the_training_range_is_marked(fitted_table: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(fitted_table / "table.csv").iloc[:5]
    frame.loc[3, "a"] = 1e3
    frame.to_csv(tmp_path / "far.csv", index=False)
    model, data, target = fitted_table / "model", tmp_path / "far.csv", tmp_path / "laws.csv"
    for verb in (("predict", model, data, "-o", target), ("evaluate", model, data)):
        result = run(*verb)
        assert result.exit_code == 0
        assert result.stderr.count("far outside the training data: column 'a' is 1000") == 1
    table = pd.read_csv(target)
    assert list(table)[-1] == "extrapolation"
    assert (table.loc[table["row"] == 3, "extrapolation"] > 1.0).all()
    assert (table.loc[table["row"] != 3, "extrapolation"] <= 1.0).all()


def test_predict_of_a_series_reaches_the_newest_hours(fitted_series: Path) -> None:
    model, data = fitted_series / "model", fitted_series / "series.csv"
    table = pd.read_csv(io.StringIO(done("predict", model, data)), parse_dates=["t", "until"])
    assert (table["until"] - table["t"] == pd.Timedelta("3h")).all()
    level = table[table["task"] == "level"]
    # Answers that are still to come are asked as well.
    assert level["until"].max() > series()["time"].max()
    # A law of log1p(x) has no mean in the units of x; its quantiles go over.
    assert "mean" not in table
    assert (level["q0.05"] < level["q0.95"]).all()
    assert (level["units"] == "ug/m3").all()
    # Every row is an origin of the fit, and so of the forecasts.
    assert done("predict", model, data, "--every-row") == done("predict", model, data)
    # By row number, time and task, the same law as a forecast gives.
    stated = found("forecast", model, data, "--at", str(level["t"].iloc[-1]))
    assert stated["tasks"]["level"]["median"] == pytest.approx(level["q0.5"].iloc[-1])


@pytest.mark.slow
def test_streams_and_formats_agree(fitted_series: Path, tmp_path: Path) -> None:
    model = fitted_series / "model"
    plain = done("predict", model, fitted_series / "series.csv")
    assert done("predict", model, "-", given=(fitted_series / "series.csv").read_bytes()) == plain
    series().to_parquet(tmp_path / "series.parquet")
    assert done("predict", model, tmp_path / "series.parquet") == plain
    done("predict", model, tmp_path / "series.parquet", "-o", tmp_path / "laws.csv")
    assert (tmp_path / "laws.csv").read_text() == plain
    records = found("predict", model, tmp_path / "series.parquet")
    assert len(records) == len(plain.splitlines()) - 1
    assert records[0]["prob_0"] is None


@pytest.mark.slow
def test_names_from_files_reach_neither_terminal_nor_spreadsheet_as_commands(
    tmp_path: Path,
) -> None:
    """A task and a file with controls in their names, in tables, JSON, remarks and complaints."""
    write_table(tmp_path)
    evil = "=\x1b[2J\u202estate\x9b"
    frame = pd.read_csv(tmp_path / "table.csv").rename(columns={"state": evil})
    frame.to_csv(tmp_path / "table.csv", index=False)
    config = (tmp_path / "config.toml").read_text()
    config = config.replace("[targets.state]", f"[targets.{json.dumps(evil)}]")
    (tmp_path / "config.toml").write_text(config)
    model, data = tmp_path / "model", tmp_path / "table.csv"
    printed = [
        run("fit", tmp_path / "config.toml"),
        run("evaluate", model, data),
        run("evaluate", model, data, "--json"),
        run("predict", model, data, "--json"),
        run("predict", model, data, "-o", tmp_path / "laws.csv"),
        run("predict", model, tmp_path / "none\x1b]0;x\x07.csv"),
        run("predict", model, data, "\x1b[2J"),
        run("\x1b[2J"),
    ]
    assert [result.exit_code for result in printed] == [0, 0, 0, 0, 0, 2, 2, 2]
    for result in printed:
        for stream in (result.stdout, result.stderr):
            assert not set("\x1b\x07\x9b\u202e") & set(stream), stream
    assert "=\\x1b[2J\\u202estate\\x9b" in printed[1].stdout
    assert evil in json.loads(printed[2].stdout)["scores"]
    assert {row["task"] for row in json.loads(printed[3].stdout)} == {evil, "event", "regime"}
    # In the file it is data, but no formula; our reader takes it.
    laws, _ = tables.read(Source((str(tmp_path / "laws.csv"),)))
    assert set(laws["task"]) == {f"'{evil}", "event", "regime"}
    assert pd.api.types.is_float_dtype(laws["mean"])


def test_a_table_on_a_terminal_holds_no_controls(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, its_end = os.openpty()
    with open(its_end, "w") as screen:
        monkeypatch.setattr(sys, "stdout", screen)
        tables.write(pd.DataFrame({"\x1b[2J": ["\x9b31m"], "n": [-1.5]}), "-")
        monkeypatch.undo()
    shown = os.read(terminal, 1000).decode()
    os.close(terminal)
    assert shown.split() == ["\\x1b[2J,n", "\\x9b31m,-1.5"]


def test_forecast_says_it_in_words(fitted_series: Path) -> None:
    printed = done(
        "forecast", fitted_series / "model", fitted_series / "series.csv", "--level", "0.5"
    )
    assert "Forecast from t = 2023-01-10 23:00:00" in printed
    assert re.search(r"level: x at t \+ 3 h .*: about [\d.]+ ug/m3, with 50 percent", printed)
    assert re.search(r"high day: whether the mean of x .* is above 5 .*: yes with", printed)


def test_forecast_passes_over_missing_hours_and_takes_one_by_name(
    fitted_series: Path, tmp_path: Path
) -> None:
    frame = series()
    frame.iloc[-3:, 1] = np.nan
    frame.to_csv(tmp_path / "late.csv", index=False)
    model = fitted_series / "model"
    assert found("forecast", model, tmp_path / "late.csv")["t"] == "2023-01-10T20:00:00"
    printed = done("forecast", model, tmp_path / "late.csv")
    assert "passed over for missing values: 3 later origins" in printed
    at = found("forecast", model, tmp_path / "late.csv", "--at", "2023-01-09 05:00")
    assert at["t"] == "2023-01-09T05:00:00"
    said = refused("forecast", model, tmp_path / "late.csv", "--at", "2023-01-10T23:00")
    assert "None of 1 windows is complete" in said
    assert "--at soon" in refused("forecast", model, tmp_path / "late.csv", "--at", "soon")


def test_a_table_has_no_newest_window(fitted_table: Path) -> None:
    said = refused("forecast", fitted_table / "model", fitted_table / "table.csv")
    assert "scrollmt predict" in said


def test_nothing_is_overwritten_unasked(fitted_series: Path, tmp_path: Path) -> None:
    model, data = fitted_series / "model", fitted_series / "series.csv"
    before = contents(fitted_series)
    target = tmp_path / "laws.csv"
    target.write_text("mine")
    assert "--force" in refused("predict", model, data, "-o", target)
    assert target.read_text() == "mine"
    done("predict", model, data, "-o", target, "--force")
    assert target.read_text().startswith("task,t,")
    assert list(tmp_path.iterdir()) == [target]
    # Not even by force: what is being read.
    for victim in (data, model / "model.json", model / "config.toml"):
        said = refused("predict", model, data, "-o", victim, "--force")
        assert "belongs to what is read" in said or "ending" in said
    assert "--force" in refused("fit", fitted_series / "config.toml")
    assert contents(fitted_series) == before


def test_force_replaces_a_model_and_nothing_else(fitted_table: Path, tmp_path: Path) -> None:
    write_table(tmp_path)
    done("fit", tmp_path / "config.toml", "-o", tmp_path / "new")
    first = contents(tmp_path / "new")
    config = (tmp_path / "config.toml").read_text().replace("[model]", "[model]\nseed = 1")
    (tmp_path / "config.toml").write_text(config)
    done("fit", tmp_path / "config.toml", "-o", tmp_path / "new", "--force")
    second = contents(tmp_path / "new")
    assert second["config.toml"] == config.encode() != first["config.toml"]
    # A folder with anything else in it stays.
    (tmp_path / "new" / "notes.txt").write_text("mine")
    said = refused("fit", tmp_path / "config.toml", "-o", tmp_path / "new", "--force")
    assert "'notes.txt'" in said
    assert contents(tmp_path / "new") == {**second, "notes.txt": b"mine"}
    said = refused("fit", tmp_path / "config.toml", "-o", tmp_path / "table.csv", "--force")
    assert "is not a folder" in said
    assert not [one for one in tmp_path.iterdir() if one.name.startswith(".")]


KILLED = """
import os, signal, sys
from pathlib import Path
import scrollmt
from scrollmt.cli import models

model, target, kill_at = scrollmt.load(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
rename, count = Path.rename, 0

def counted(path, to):
    global count
    count += 1
    if count == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)
    return rename(path, to)

Path.rename = counted
models.save(model, target, (Path(sys.argv[1]) / "config.toml").read_text() + "# new", {})
"""


@pytest.mark.slow
def test_a_fit_killed_while_it_replaces_a_model_loses_none(
    fitted_table: Path, tmp_path: Path
) -> None:
    """Killed before each rename: of the arrays, of the old model, of the new one, and after."""
    model, target = fitted_table / "model", tmp_path / "model"
    laws = done("predict", model, fitted_table / "table.csv")
    shutil.copytree(model, target)
    vanished = 0
    for kill_at in (1, 2, 3, 4):
        process = subprocess.run([sys.executable, "-c", KILLED, model, target, str(kill_at)])
        assert process.returncode == (-signal.SIGKILL if kill_at < 4 else 0)
        vanished += not target.exists()
        assert done("predict", target, fitted_table / "table.csv") == laws
        new = (target / "config.toml").read_text().endswith("# new")
        assert new == (kill_at == 4)
    assert vanished == 1
    # Nothing is left of those that were killed.
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_target_that_cannot_be_written_is_told_before_any_work(tmp_path: Path) -> None:
    """There is no data and no model either, but what comes first is told first."""
    write_series(tmp_path)
    (tmp_path / "series.csv").unlink()
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link.csv").symlink_to("file")
    (tmp_path / "link.html").symlink_to("file")
    config, below = tmp_path / "config.toml", tmp_path / "file" / "deep"
    model, data = tmp_path / "none", tmp_path / "none.csv"
    commands: list[tuple[Any, ...]] = [
        ("fit", config, "-o", below),
        ("predict", model, data, "-o", below / "laws.csv"),
        ("report", model, data, "-o", below / "report.html"),
        ("backtest", config, "-o", below / "scores.csv"),
        ("backtest", config, "--records", below),
        ("demo", "--out", below),
        ("reproduce", "main", "--out", below),
        ("reproduce", "main", "--records", below / "records.sqlite", "--out", tmp_path / "out"),
    ]
    for command in commands:
        said = refused(*command)
        assert "cannot be written" in said, said
        assert f"{tmp_path / 'file'} is not a folder" in said
    for command in (
        ("predict", model, data, "-o", tmp_path / "link.csv", "--force"),
        ("report", model, data, "-o", tmp_path / "link.html", "--force"),
    ):
        assert "is a link to file" in refused(*command)
    assert (tmp_path / "file").read_text() == "mine"


def test_check_fits_nothing(fitted_series: Path) -> None:
    before = contents(fitted_series)
    stated = found("fit", fitted_series / "config.toml", "--check")
    facts = json.loads((fitted_series / "model" / "fit.json").read_text())
    assert stated["windows"] == facts["windows"]
    assert stated["tasks"]["high day"].startswith("whether the mean of x")
    assert contents(fitted_series) == before
    result = run("fit", fitted_series / "config.toml", "--check")
    assert "3 of 240 rows are absent" in result.stderr
    assert "level: log1p(x) at t + 3 h" in result.stdout


def test_a_model_from_python_needs_no_config(fitted_table: Path, tmp_path: Path) -> None:
    model = scrollmt.load(fitted_table / "model")
    model.save(tmp_path / "bare")
    data = fitted_table / "table.csv"
    assert done("predict", tmp_path / "bare", data) == done("predict", fitted_table / "model", data)
    assert found("evaluate", tmp_path / "bare", data)["windows"] == 60


def test_a_series_model_from_python_reads_the_same_file(
    fitted_series: Path, tmp_path: Path
) -> None:
    scrollmt.load(fitted_series / "model").save(tmp_path / "bare")
    data = fitted_series / "series.csv"
    bare = found("forecast", tmp_path / "bare", data)
    assert bare == found("forecast", fitted_series / "model", data)


@pytest.mark.parametrize("verb", ["predict", "evaluate", "forecast"])
def test_bad_models_and_bad_data_are_told_in_one_sentence(
    verb: str, fitted_series: Path, tmp_path: Path
) -> None:
    model, data = fitted_series / "model", fitted_series / "series.csv"
    assert "is not a folder" in refused(verb, tmp_path / "none", data)
    assert "no such file" in refused(verb, model, tmp_path / "none.csv")
    (tmp_path / "empty.csv").write_text("")
    assert "empty.csv cannot be read as CSV" in refused(verb, model, tmp_path / "empty.csv")
    (tmp_path / "header.csv").write_text("time,x,wind,site\n")
    assert "no rows" in refused(verb, model, tmp_path / "header.csv")
    series().drop(columns="x").to_csv(tmp_path / "lacking.csv", index=False)
    assert "'x'" in refused(verb, model, tmp_path / "lacking.csv")
    series().drop(columns="time").to_csv(tmp_path / "lacking.csv", index=False)
    assert "no time column 'time'" in refused(verb, model, tmp_path / "lacking.csv")
    series().assign(time="soon").to_csv(tmp_path / "lacking.csv", index=False)
    assert "data.time_format" in refused(verb, model, tmp_path / "lacking.csv")
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for name, content in contents(model).items():
        (damaged / name).write_bytes(content[: len(content) // 2])
    assert "damaged" in refused(verb, damaged, data)
    for name in ("model.json", "model.safetensors", "config.toml"):
        (damaged / name).write_bytes((model / name).read_bytes())
    assert "fit.json is damaged" in refused(verb, damaged, data)


def test_parquet_without_pyarrow_says_what_to_install(
    fitted_series: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    series().to_parquet(tmp_path / "series.parquet")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    model = fitted_series / "model"
    assert "scrollmt[parquet]" in refused("predict", model, tmp_path / "series.parquet")
    said = refused("predict", model, fitted_series / "series.csv", "-o", tmp_path / "x.parquet")
    assert "use .csv" in said


def test_options_are_checked_before_any_work(fitted_series: Path) -> None:
    model, data = fitted_series / "model", fitted_series / "series.csv"
    assert "between 0 and 1" in refused("predict", model, data, "--quantiles", "0.5,1.5")
    assert "between 0 and 1" in refused("predict", model, data, "--quantiles", "half")
    assert "ending" in refused("predict", model, data, "-o", "laws.xlsx")
    assert run("forecast", model, data, "--level", "2").exit_code == 2
    assert run("predict", model).exit_code == 2
    assert run("predcit", model, data).exit_code == 2


def test_a_fault_of_our_own_is_not_blamed_on_the_user(
    fitted_series: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("on\npurpose")

    monkeypatch.setattr("scrollmt.cli.verbs.evaluate", broken)
    arguments = ("evaluate", fitted_series / "model", fitted_series / "series.csv")
    result = run(*arguments)
    assert result.exit_code == 1
    assert "Traceback" not in result.output
    assert "a fault in scrollmt, not in your input: RuntimeError: on purpose" in result.stderr
    monkeypatch.setenv("SCROLLMT_TRACEBACK", "1")
    assert isinstance(run(*arguments).exception, RuntimeError)


@pytest.mark.slow
def test_report_is_a_page_on_unseen_windows(fitted_series: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    arguments = ("report", fitted_series / "model", fitted_series / "series.csv", "-o", page)
    stated = found(*arguments, "--title", "Air in a small town")
    facts = json.loads((fitted_series / "model" / "fit.json").read_text())
    assert stated == {
        "report": str(page),
        "windows": facts["windows"]["test"],
        "scores": facts["scores"],
    }
    text = page.read_text()
    assert "Air in a small town" in text
    assert "high day" in text
    assert "--force" in refused(*arguments)
    assert page.read_text() == text
    victim = fitted_series / "series.csv"
    assert "belongs to what is read" in refused(*arguments[:-1], victim, "--force")
    assert "browser" in refused(*arguments[:-1], "-")


@pytest.mark.slow
def test_a_fair_comparison_needs_the_data_of_the_fit(fitted_table: Path, tmp_path: Path) -> None:
    write_table(tmp_path)
    text = (tmp_path / "table.csv").read_text().splitlines()
    (tmp_path / "table.csv").write_text("\n".join(text[:-1]) + "\n")
    data = fitted_table / "table.csv"
    arguments = ("report", fitted_table / "model", data, "-o", tmp_path / "report.html")
    said = refused(*arguments, "--alone", tmp_path / "config.toml")
    assert "is not what" in said
    done(*arguments, "--alone", fitted_table / "config.toml")
    assert (tmp_path / "report.html").exists()


@pytest.mark.slow
def test_a_series_with_a_stride_in_step_with_the_day_keeps_to_its_hours(tmp_path: Path) -> None:
    write_series(tmp_path)
    config = tmp_path / "config.toml"
    config.write_text(config.read_text().replace("lead = 3", "lead = 3\nstride = 6"))
    done("fit", config)
    model, data = tmp_path / "model", tmp_path / "series.csv"
    table = pd.read_csv(io.StringIO(done("predict", model, data)), parse_dates=["t"])
    assert table["t"].dt.hour.nunique() == 4
    every = pd.read_csv(io.StringIO(done("predict", model, data, "--every-row")))
    assert len(every) > 5 * len(table)
    # The newest hour of the series is none of them.
    said = run("forecast", model, data)
    assert "the fit learned from origins every 6 h from 2023-01-01 03:00:00 alone" in said.stderr
    off_grid = "learned from origins"
    assert sum(off_grid in one for one in found("forecast", model, data)["notices"]) == 1
    assert off_grid not in str(found("forecast", model, data, "--on-grid")["notices"])


@pytest.mark.slow
def test_a_forecast_of_many_leads_is_readable_on_a_narrow_terminal(tmp_path: Path) -> None:
    write_series(tmp_path)
    config = tmp_path / "config.toml"
    config.write_text(config.read_text().replace("lead = 3", "leads = [1, 3, 6]"))
    printed = CliRunner().invoke(app, ["fit", str(config)], env={"COLUMNS": "80"}).stdout
    table = printed[printed.index("NLL in nats") :].splitlines()
    assert max(len(line) for line in table if "@" in line and ":" not in line) <= 80
    # One row a task, none of them folded or cut.
    for task in ("level@6", "high day@6", "band@6"):
        assert any(line.split("  ")[0].strip() == task for line in table), task
