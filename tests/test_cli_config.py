"""Config files: what they say is what is asked, and every mistake is named where it stands."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import small
from commands import QUICK, SERIES, TABLE, done, found, refused, run, series, write_series
from scrollmt import (
    Censored,
    Count,
    Event,
    Gaussian,
    Mixture,
    Ordinal,
    Poisson,
    SinhArcsinh,
    StudentT,
    at_lead,
    calendar,
    current,
    lags,
    one_hot,
)
from scrollmt.cli.asking import Questions, Targets
from scrollmt.cli.config import Config, parse_config
from scrollmt.cli.data import forecaster
from scrollmt.cli.shell import Problem
from scrollmt.inputs import Input
from scrollmt.observables import over_window
from scrollmt.presets import PAPER, Preset
from scrollmt.windows import Windowing


def parsed(text: str) -> Config:
    return parse_config(text.encode(), "config.toml", Path("there"))


def complaint(text: str) -> str:
    with pytest.raises(Problem) as problem:
        parsed(text)
    said = str(problem.value)
    assert said.startswith("config.toml")
    assert "\n" not in said
    return said


def test_a_series_config_becomes_the_library_s_own_objects() -> None:
    config = parsed(SERIES + QUICK)
    assert isinstance(config.task, Questions)
    assert config.task.windowing == Windowing(history=4, lead=3, fill_limit=2)
    assert config.task.asked == {
        "level": at_lead("x", units="ug/m3").log1p(),
        "high day": over_window("x").mean() > 5,
        "band": at_lead("x").quantile_bands(3),
    }
    inputs = (lags("x"), current("wind"), one_hot("site"), calendar("hour"))
    assert config.task.inputs == inputs
    assert config.source.files == (str(Path("there") / "series.csv"),)
    assert config.source.step == pd.Timedelta("1h")
    assert config.out == Path("there") / "model"
    assert config.split.fractions == pytest.approx((0.6, 0.2, 0.2))
    preset = config.settings["preset"]
    assert isinstance(preset, Preset)
    assert (preset.schedule.steps, preset.schedule.patience) == (5, PAPER.schedule.patience)


def test_a_table_config_becomes_heads() -> None:
    config = parsed(TABLE + '[model]\nbelief = "full"\nensemble = 3\nseed = 7\n')
    assert isinstance(config.task, Targets)
    assert config.task.inputs == ("a", "b", "c")
    assert [type(head) for head in config.task.heads.values()] == [Gaussian, Event, Ordinal]
    assert config.task.heads["regime"].classes == 3  # type: ignore[attr-defined]
    assert config.split.order == "random"
    # A preset that nobody touched keeps its name.
    expected: dict[str, Any] = {"preset": "default", "belief": "full", "backbone": "select"}
    assert config.settings == expected | {
        "routing": "free",
        "refit": False,
        "calibrate": "none",
        "seed": 7,
        "ensemble": 3,
    }
    # Where nothing is kept back, what was chosen is trained again on all rows.
    assert parsed(TABLE + "[split]\ntest = 0\n").settings["refit"]
    assert not parsed(TABLE + "[split]\ntest = 0\n[model]\nrefit = false\n").settings["refit"]
    assert parsed(TABLE + '[model]\npreset = "quick"\n').settings["preset"] == "quick"
    assert parsed(TABLE + '[model]\nbelief = "low-rank"\n').settings["belief"] == "low-rank"
    assert parsed(TABLE + '[model]\nrouting = "elbo"\n').settings["routing"] == "elbo"
    # Prior precisions of a curvature are chosen on what is held out, which then cannot train.
    curved = parsed(TABLE + '[model]\nrouting = "laplace"\n[split]\ntest = 0\n')
    assert not curved.settings["refit"]


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ('kind = "value"', at_lead("x")),
        ('kind = "value"\nover = "max"\ntransform = "sqrt"', over_window("x").max().sqrt()),
        ('kind = "event"\nat_least = 1', at_lead("x") >= 1),
        ('kind = "event"\nover = "min"\nbelow = 1.5', over_window("x").min() < 1.5),
        ('kind = "event"\nover = "sum"\nat_most = -1', over_window("x").sum() <= -1),
        ('kind = "bands"\nedges = [1, 2.5]', at_lead("x").bands([1, 2.5])),
        ('kind = "bands"\nquantiles = [0.1, 0.9]', at_lead("x").quantile_bands([0.1, 0.9])),
    ],
)
def test_every_question_can_be_asked(line: str, asked: object) -> None:
    text = '[data]\nfile = "s.csv"\n[windows]\nhistory = 2\nlead = 1\n[questions.q]\n'
    config = parsed(f'{text}column = "x"\n{line}\n')
    assert isinstance(config.task, Questions)
    assert config.task.asked == {"q": asked}
    assert config.task.inputs is None


@pytest.mark.parametrize(
    ("line", "inputs"),
    [
        ('kind = "lags"\ncolumns = ["x", "y"]\nsteps = 2', [lags("x", 2), lags("y", 2)]),
        ('kind = "lags"\ncolumns = "x"\nsteps = [0, 3]', [lags("x", [0, 3])]),
        ('kind = "current"\ncolumns = ["x", "y"]\ntransform = "log"', [current("x", "y").log()]),
        ('kind = "one_hot"\ncolumns = "s"\ncategories = ["a", 1]', [one_hot("s", ["a", 1])]),
        (
            'kind = "one_hot"\ncolumns = ["s", "u"]\nunknown = "ignore"',
            [one_hot("s", unknown="ignore"), one_hot("u", unknown="ignore")],
        ),
        ('kind = "calendar"\nparts = ["hour", "month"]', [calendar("hour", "month")]),
    ],
)
def test_every_input_can_be_named(line: str, inputs: list[Input]) -> None:
    config = parsed(SERIES[: SERIES.index("[[inputs]]")] + f"[[inputs]]\n{line}\n")
    assert isinstance(config.task, Questions)
    assert config.task.inputs == tuple(inputs)


@pytest.mark.parametrize(
    ("line", "kind", "limits"),
    [
        ('head = "gaussian"', Gaussian, None),
        ('head = "student_t"', StudentT, None),
        ('head = "mixture"\ncomponents = 3', Mixture, 3),
        ('head = "sinh_arcsinh"', SinhArcsinh, None),
        ('head = "poisson"', Poisson, None),
        ('head = "count"', Count, None),
        ('head = "censored"\nlower = 0.5', Censored, (0.5, None)),
        ('head = "censored"\nlower = 0\nupper = 9', Censored, (0.0, 9.0)),
    ],
)
def test_numbers_may_have_other_likelihoods(line: str, kind: type, limits: Any) -> None:
    targets = TABLE.replace('head = "gaussian"', line)
    series_text = SERIES.replace('transform = "log1p"', line).replace("lead = 3", "leads = [1, 3]")
    table, questions = parsed(targets).task, parsed(series_text).task
    assert isinstance(table, Targets)
    assert isinstance(questions, Questions)
    for head in (table.heads["state"], questions.heads["level"]):
        assert type(head) is kind
        if isinstance(head, Censored):
            assert (head.lower, head.upper) == limits
        if isinstance(head, Mixture):
            assert head.components == limits
    frame = series().set_index("time").asfreq("h").reset_index()
    windows = questions.windowing.cut(frame, questions.asked, questions.inputs, time="time")
    tasks = forecaster(windows, questions).tasks
    assert type(tasks["level@1"]) is type(tasks["level@3"]) is kind
    assert type(tasks["band@3"]) is Ordinal


def test_classes_may_have_names(tmp_path: Path) -> None:
    X, Y = small.tables()
    text = TABLE.replace("classes = 3", 'classes = ["low", "mid", "high"]')
    text = text.replace('head = "event"', 'head = "event"\nlabels = ["2", "8"]')
    task = parsed(text).task
    assert isinstance(task, Targets)
    assert repr(task.heads["regime"]) == "Ordinal(['low', 'mid', 'high'])"
    assert repr(task.heads["event"]) == "Event(labels=('2', '8'))"
    regime = Y["regime"].map({0: "low", 1: "mid", 2: "high"}).where(Y.index != 5)
    # A column of numbers is matched by what stands in the file.
    frame = X.join(Y).assign(regime=regime, event=np.where(Y["event"] == 1, 8, 2))
    frame.to_csv(tmp_path / "table.csv", index=False)
    (tmp_path / "config.toml").write_text(text + QUICK)
    done("fit", tmp_path / "config.toml", "--check")
    frame.assign(regime=regime.replace("mid", "middle")).to_csv(tmp_path / "table.csv", index=False)
    said = refused("fit", tmp_path / "config.toml", "--check")
    assert "task 'regime': row" in said
    assert "is 'middle'" in said
    assert "the labels are 'low', 'mid', 'high'" in said


MISTAKES = {
    "not TOML": ("out =", "out", "is not a TOML file"),
    "unknown table": ("[windows]", "[windws]", "unknown key 'windws'; did you mean 'windows'?"),
    "misspelt key": ("history = 4", "histry = 4", "windows.history is missing (there is 'histry'"),
    "unknown key": ("history = 4", "history = 4\nlags = 3", "unknown key 'windows.lags'"),
    "wrong type": ("history = 4", 'history = "4"', "windows.history must be a whole number from 1"),
    "yes for one": ("history = 4", "history = true", "windows.history must be a whole number"),
    "two leads": ("lead = 3", "lead = 3\nleads = [1]", "only one of windows.lead, windows.leads"),
    "no lead": ("lead = 3", "", "windows.lead is missing"),
    "equal leads": ("lead = 3", "leads = [2, 2]", "windows: leads must be different"),
    "wrong kind": ('kind = "value"', 'kind = "number"', "questions.level.kind must be one of"),
    "no column": ('column = "x"\ntransform', "transform", "questions.level.column is missing"),
    "no threshold": ("above = 5", "", "questions.high day.above, questions.high day.at_least"),
    "two thresholds": ("above = 5", "above = 5\nbelow = 9", "give only one of"),
    "threshold of a value": (
        '"log1p"',
        '"log1p"\nabove = 3',
        "unknown key 'questions.level.above'",
    ),
    "head of an event": (
        "above = 5",
        'above = 5\nhead = "event"',
        "unknown key 'questions.high day.",
    ),
    "head of classes": ('"log1p"', '"log1p"\nhead = "ordinal"', "one of 'gaussian', 'student_t'"),
    "no limit": (
        '"log1p"',
        '"log1p"\nhead = "censored"',
        "give questions.level.lower or its upper",
    ),
    "no bands": ("quantiles = 3", "", "questions.band.edges = [20, 50]"),
    "one band": ("quantiles = 3", "quantiles = 1", "questions.band.quantiles must be"),
    "unsorted": ("quantiles = 3", "edges = [3, 1]", "questions.band.edges: edges of bands"),
    "no transform": ('"log1p"', '"cube"', "one of 'log1p', 'log', 'sqrt'"),
    "calendar part": ('["hour"]', '["minute"]', "inputs[3].parts: calendar(...) takes"),
    "new categories": (
        'kind = "one_hot"',
        'kind = "one_hot"\nunknown = "drop"',
        "inputs[2].unknown must be one of 'error', 'ignore'",
    ),
    "input kind": ('kind = "lags"', 'kind = "lag"', "inputs[0].kind must be one of"),
    "both kinds": ("[windows]", '[targets.y]\nhead = "event"\n[windows]', "keep one"),
    "bad step": ('"1h"', '"often"', "data.step must be a fixed time"),
    "no step": ('"1h"', '"0h"', "data.step must be a fixed time"),
    "step alone": ('time = "time"', "", "data.step needs data.time"),
    "no file": ('file = "series.csv"', "", "data.file is missing; it must be text in quotes"),
    "preset": ('preset = "paper"', 'preset = "best"', "model.preset must be one of 'default'"),
    "backbone": ('"tanh"', '"transformer"', "model.backbone must be one of 'select'"),
    "steps": ("steps = 5", "steps = 0", "training.steps must be a whole number from 1 on"),
    "batch": ("steps = 5", 'batch_size = "some"', "training.batch_size must be"),
    "a number for a table": ("[windows]", "[model]\n[model.seed]\n[windows]", "model.seed must be"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_every_mistake_is_named(name: str) -> None:
    right, wrong, said = MISTAKES[name]
    text = SERIES + (QUICK if "seed" not in wrong else "")
    assert right in text
    assert said in complaint(text.replace(right, wrong, 1))


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ('head = "event"', 'head = "coin"', "targets.event.head must be one of 'gaussian'"),
        ("classes = 3", "", "targets.regime.classes is missing"),
        ('head = "event"', 'head = "event"\nclasses = 2', "unknown key 'targets.event.classes'"),
        ("classes = 3", 'classes = ["a"]', "targets.regime: Ordinal: labels are at least two"),
        ("classes = 3", "classes = [1, 2]", "targets.regime.classes must be a whole number from 2"),
        ('"event"\n', '"event"\nlabels = ["a", "b", "c"]\n', "targets.event: Event: an event has"),
        ('"c"]', '"c", "state"]', "the answer would be given away"),
        ('inputs = ["a", "b", "c"]', "", "table.inputs is missing"),
        ('inputs = ["a", "b", "c"]', "inputs = []", "table.inputs must be text in quotes"),
        ("[table]", '[split]\norder = "shuffled"\n[table]', "split.order must be one of"),
        ("[table]", "[split]\nvalidation = 0.5\ntest = 0.5\n[table]", "nothing to train on"),
        ("[table]", "[split]\ntest = -0.1\n[table]", "split.test must be a number from 0 to below"),
        ("[table]", '[model]\nrouting = "best"\n[table]', "model.routing must be one of 'free'"),
        (
            "[table]",
            '[model]\nrouting = "elbo"\nbelief = "none"\n[table]',
            "model.routing: task 'state': routing='elbo' needs a belief with a variance",
        ),
        ("[table]", "[split]\nembargo = 3\n[table]", "unknown key 'split.embargo'"),
    ],
)
def test_mistakes_in_a_table_s_config(right: str, wrong: str, said: str) -> None:
    assert right in TABLE
    assert said in complaint(TABLE.replace(right, wrong, 1))


def test_a_table_that_is_none() -> None:
    assert "model must be a table such as [model]" in complaint("model = 3\n" + SERIES)
    assert "inputs is a list of tables" in complaint(
        "inputs = 3\n" + SERIES[: SERIES.index("[[inputs]]")]
    )


def test_bytes_that_are_no_config() -> None:
    for raw in (b"\xff\xfe", b"[" * 5000, b"x = " + b"9" * 6000, b"\0"):
        with pytest.raises(Problem, match=r"^c is not a TOML file"):
            parse_config(raw, "c", Path())
    with pytest.raises(Problem, match=r"^c: data.file is missing"):
        parse_config(b"", "c", Path())


def test_columns_are_looked_up_before_anything_is_cut(tmp_path: Path) -> None:
    write_series(tmp_path)
    config = tmp_path / "config.toml"
    right = config.read_text()
    for old, new, key in (
        ('columns = ["wind"]', 'columns = ["wnd"]', "inputs[1].columns = 'wnd' is no column"),
        ('column = "x"', 'column = "y"', "questions.level.column = 'y' is no column"),
        ('time = "time"', 'time = "when"', "data.time = 'when' is no column"),
    ):
        config.write_text(right.replace(old, new, 1))
        said = refused("fit", config, "--check")
        assert key in said
        assert "there are 'time', 'x', 'wind', 'site'" in said


def test_paths_start_at_the_config_and_a_pipe_starts_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deep").mkdir()
    write_series(tmp_path / "deep")
    stated = found("fit", tmp_path / "deep" / "config.toml", "--check")
    monkeypatch.chdir(tmp_path / "deep")
    text = (tmp_path / "deep" / "config.toml").read_text()
    assert found("fit", "-", "--check", given=text) == stated
    assert "no such file" in refused("fit", tmp_path / "none.toml", "--check")


def test_a_series_may_lie_in_several_files_and_in_any_order(tmp_path: Path) -> None:
    write_series(tmp_path)
    stated = found("fit", tmp_path / "config.toml", "--check")
    frame = series()
    frame.iloc[100:].to_csv(tmp_path / "late.csv", index=False)
    frame.iloc[:100].to_csv(tmp_path / "early.csv", index=False)
    text = (tmp_path / "config.toml").read_text()
    two = text.replace('"series.csv"', '["late.csv", "early.csv"]')
    (tmp_path / "config.toml").write_text(two)
    result = run("fit", tmp_path / "config.toml", "--check", "--json")
    assert "it was sorted by time" in result.stderr
    assert found("fit", tmp_path / "config.toml", "--check") == stated
    frame.iloc[:100, :3].to_csv(tmp_path / "early.csv", index=False)
    assert "must agree" in refused("fit", tmp_path / "config.toml", "--check")


def test_other_ways_to_write_numbers_and_times(tmp_path: Path) -> None:
    write_series(tmp_path)
    stated = found("fit", tmp_path / "config.toml", "--check")
    frame = series()
    clock = frame["time"].dt.strftime("%d.%m.%Y %H:%M")
    frame.assign(time=clock).to_csv(tmp_path / "series.csv", index=False, sep=";", decimal=",")
    text = (tmp_path / "config.toml").read_text()
    how = 'separator = ";"\ndecimal = ","\ntime_format = "%d.%m.%Y %H:%M"'
    (tmp_path / "config.toml").write_text(text.replace('step = "1h"', f'step = "1h"\n{how}'))
    assert found("fit", tmp_path / "config.toml", "--check") == stated
    (tmp_path / "config.toml").write_text(text)
    frame.assign(time=clock).to_csv(tmp_path / "series.csv", index=False)
    said = refused("fit", tmp_path / "config.toml", "--check")
    assert "it begins with '01.01.2023 00:00'" in said


def test_clocks_that_change_are_read_in_universal_time(tmp_path: Path) -> None:
    write_series(tmp_path)
    frame = series()
    zoned = pd.date_range("2023-03-20", periods=len(frame), freq="h", tz="Europe/Vienna")
    assert len({stamp.utcoffset() for stamp in zoned}) == 2
    frame.assign(time=[stamp.isoformat() for stamp in zoned]).to_csv(
        tmp_path / "series.csv", index=False
    )
    result = run("fit", tmp_path / "config.toml", "--check")
    assert result.exit_code == 0, result.output
    assert "absent" not in result.stderr


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda f: f.assign(time=f["time"].shift(1)), "the time is missing in 1 rows"),
        (lambda f: pd.concat([f, f.iloc[[5]]]), "times occur more than once"),
        (
            lambda f: f.assign(time=f["time"].replace(f["time"].iloc[9], "2023-01-01 09:30")),
            "no whole",
        ),
        (lambda f: f.assign(time=f["time"].replace(f["time"].iloc[-1], "2093-01-01")), "correct"),
        (
            lambda f: f.assign(x="text"),
            "column 'x' does not hold numbers: 237 cells such as 'text'",
        ),
        (lambda f: f.assign(x=np.nan), "None of"),
        (lambda f: f.assign(x=-2.0), "log1p needs values > -1"),
        (lambda f: f.assign(x=1.0), "the quantiles coincide"),
        (lambda f: f.assign(x=9.0 + f["x"]), "task 'high day' shows only class 1"),
        (lambda f: f.iloc[:4], "The series has 4 rows"),
        (lambda f: f.iloc[:20], "[split]"),
    ],
)
def test_data_that_will_not_do(change: Any, said: str, tmp_path: Path) -> None:
    write_series(tmp_path)
    change(series()).to_csv(tmp_path / "series.csv", index=False)
    assert said in refused("fit", tmp_path / "config.toml", "--check")


def test_one_config_serves_several_leads(tmp_path: Path) -> None:
    write_series(tmp_path)
    text = (tmp_path / "config.toml").read_text().replace("lead = 3", "leads = [1, 3]")
    (tmp_path / "config.toml").write_text(text)
    tasks = found("fit", tmp_path / "config.toml", "--check")["tasks"]
    assert list(tasks)[:2] == ["level@1", "level@3"]


def test_help_says_what_a_verb_does() -> None:
    printing = ("fit", "predict", "evaluate", "forecast", "backtest", "report", "demo")
    for verb in ("init", *printing):
        text = done(verb, "--help")
        assert "Usage" in text
        assert ("--json" in text) == (verb in printing)
