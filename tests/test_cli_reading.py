"""Files as they are: how they are written, what stands for missing, and what time a row has."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import scrollmt
from commands import QUICK, SERIES, done, found, refused, run, series, write_series
from scrollmt.cli import tables
from scrollmt.cli.asking import Questions
from scrollmt.cli.config import Source, parse_config
from scrollmt.cli.csvs import style_of
from scrollmt.cli.data import prepare
from scrollmt.cli.shell import Problem


def source(folder: Path, content: str | bytes | pd.DataFrame, **how: Any) -> Source:
    """A file in a folder as a source."""
    if isinstance(content, pd.DataFrame):
        content = content.to_csv(index=False)
    path = folder / "data.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return Source((str(path),), **how)


def read(folder: Path, content: str | bytes | pd.DataFrame, **how: Any) -> pd.DataFrame:
    return tables.read(source(folder, content, **how))[0]


def dated(folder: Path, content: str | bytes | pd.DataFrame, **how: Any) -> pd.DataFrame:
    one = source(folder, content, time="time", **how)
    return tables.dated(tables.read(one)[0], one)


# ---- separators, decimals, encodings -----------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "style"),
    [
        ("t,x\n2020-01-01,1.5\n", (",", ".", None)),
        ("t;x\n2020-01-01;1,5\n2020-01-02;\n", (";", ",", None)),
        ("t\tx\n1.2.2020\t1.5\n", ("\t", ".", None)),
        ("t|x\n2020|1,5\n", ("|", ",", None)),
        ("t;x\n1;1.234,5\n2;900,25\n", (";", ",", ".")),
        ("t;x\n1;1.234.567\n2;900\n", (";", ",", ".")),
        ('t,x\n1,"1,234.5"\n2,900.25\n', (",", ".", ",")),
        ('t,x\n1,"1,234,567"\n2,900\n', (",", ".", ",")),
        ("t;x\n1;1 234,5\n2;900,25\n", (";", ",", " ")),
        ("t;x\n1;1'234.5\n2;900.25\n", (";", ".", "'")),
        # Three digits behind a point are decimals where no number goes without them.
        ("t;x\n1;1.234\n2;5.123\n", (";", ".", None)),
        # A comma in a name is no separator.
        ("Temp, C;Hum, %\n1,5;2,5\n3,5;4,5\n", (";", ",", None)),
        # A single column has no separator, whatever it is written with.
        ("x\n1,5\n2,5\n", (";", ",", None)),
    ],
)
def test_how_a_file_is_written_is_found(text: str, style: tuple[str, str, str | None]) -> None:
    assert style_of(text, "data.csv", None, None, None) == style


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("t;x\n1;1.234\n2;900\n", "1234 or 1.234; set data.thousands = '.'"),
        ('t,x\n1,"1,234"\n2,900\n', "1234 or 1.234; set data.thousands = ','"),
        ("t;x;y\n1;1,5;2.5\n", "both as '1,5' and as '2.5'"),
        ("a,b;c,d\nx,y;z,w\n", "separated by ',' or by ';'"),
    ],
)
def test_what_can_be_read_in_two_ways_is_refused(text: str, said: str) -> None:
    with pytest.raises(Problem, match=said.replace(".", r"\.")):
        style_of(text, "data.csv", None, None, None)


def test_marks_of_thousands_stand_before_three_digits(tmp_path: Path) -> None:
    frame = read(tmp_path, "a;b\n1.234,5;1.2\n900;7\n", separator=";", decimal=",", thousands=".")
    assert frame["a"].tolist() == [1234.5, 900.0]
    # pandas alone would read 1.2 as 12.
    assert frame["b"].tolist() == ["1.2", "7"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_encodings_that_can_be_told(encoding: str, tmp_path: Path) -> None:
    assert read(tmp_path, "ü,b\n1,2\n".encode(encoding)).columns.tolist() == ["ü", "b"]


def test_encodings_that_cannot(tmp_path: Path) -> None:
    old = "ü,b\n1,2\n".encode("cp1252")
    with pytest.raises(Problem, match=r'data\.encoding = "cp1252"'):
        read(tmp_path, old)
    assert read(tmp_path, old, encoding="cp1252").columns.tolist() == ["ü", "b"]
    with pytest.raises(Problem, match="'cp99999' is no encoding"):
        read(tmp_path, old, encoding="cp99999")
    with pytest.raises(Problem, match="zero bytes"):
        read(tmp_path, "a,b\n1,2\n".encode("utf-16-le"))


def test_cells_are_not_moved_under_other_names(tmp_path: Path) -> None:
    # More cells than names: pandas makes an index of the first.
    assert read(tmp_path, "a,b\n1,2,\n3,4,\n").to_dict("list") == {"a": [1, 3], "b": [2, 4]}
    with pytest.raises(Problem, match="has 2 column names, but 3 cells"):
        read(tmp_path, "a,b\nr1,1,2\nr2,3,4\n")
    with pytest.raises(Problem, match=r"cannot be read as CSV: .*saw 3"):
        read(tmp_path, "a,b\n1,2\n3,4,5\n")
    with pytest.raises(Problem, match="more than one column 'a'"):
        read(tmp_path, "a,a\n1,2\n")
    # An empty line in a single column is a gap, not nothing.
    assert read(tmp_path, "x\n1\n\n3\n\n")["x"].tolist()[::2] == [1.0, 3.0]


@pytest.mark.slow
def test_a_model_without_a_config_finds_out_how_a_file_is_written(tmp_path: Path) -> None:
    write_series(tmp_path)
    done("fit", tmp_path / "config.toml")
    scrollmt.load(tmp_path / "model").save(tmp_path / "bare")
    stated = found("forecast", tmp_path / "bare", tmp_path / "series.csv")
    series().to_csv(tmp_path / "other.csv", index=False, sep=";", decimal=",")
    result = run("forecast", tmp_path / "bare", tmp_path / "other.csv")
    assert "columns are separated by ';', decimals by ','" in result.stderr
    assert found("forecast", tmp_path / "bare", tmp_path / "other.csv") == stated
    # A config says it, and is taken at its word.
    said = refused("forecast", tmp_path / "model", tmp_path / "other.csv")
    assert "set data.separator = ';' if that is between them" in said


# ---- missing values ----------------------------------------------------------------------------


def marked(*markers: str) -> pd.DataFrame:
    frame = series().astype(object)
    for n, marker in enumerate(markers):
        frame.iloc[10 + 20 * n, 1] = marker
    return frame


def test_known_markers_are_missing_and_counted(tmp_path: Path) -> None:
    write_series(tmp_path)
    markers = ("-", "-", "k.A.", "NA", "n/a", "#N/A", "--", "missing", "?", "null")
    marked(*markers).to_csv(tmp_path / "series.csv", index=False)
    result = run("fit", tmp_path / "config.toml", "--check", "--json")
    assert result.exit_code == 0, result.output
    assert "read as missing are 2 cells '-' of 'x', 1 cell 'k.A.' of 'x'" in result.stderr
    assert "and 4 more (data.missing lists such texts)" in result.stderr
    empty = marked(*markers).replace(dict.fromkeys(markers, ""))
    empty.to_csv(tmp_path / "series.csv", index=False)
    assert found("fit", tmp_path / "config.toml", "--check") == json.loads(result.stdout)


def test_an_unknown_text_among_numbers_is_refused(tmp_path: Path) -> None:
    write_series(tmp_path)
    marked("<5", "<5").to_csv(tmp_path / "series.csv", index=False)
    said = refused("fit", tmp_path / "config.toml", "--check")
    assert "column 'x' holds numbers but for 2 cells such as '<5' in row 11 below" in said
    assert "questions.level.column needs numbers" in said
    assert 'data.missing = ["<5"]' in said
    text = (tmp_path / "config.toml").read_text()
    (tmp_path / "config.toml").write_text(text.replace("step =", 'missing = ["<5"]\nstep ='))
    result = run("fit", tmp_path / "config.toml", "--check")
    assert result.exit_code == 0, result.output
    # What was asked for is no news.
    assert "read as missing" not in result.stderr


def test_a_text_in_a_column_that_nobody_asks_for_does_not_matter(tmp_path: Path) -> None:
    write_series(tmp_path)
    notes = np.where(series().index == 7, "see below", series().index.astype(str))
    series().assign(notes=notes).to_csv(tmp_path / "series.csv", index=False)
    done("fit", tmp_path / "config.toml", "--check")
    series().assign(x=series()["x"].map("{:,}".format).str.replace(".", ",")).to_csv(
        tmp_path / "series.csv", index=False
    )
    assert "data.decimal and data.thousands" in refused("fit", tmp_path / "config.toml", "--check")


def test_a_number_may_stand_for_missing(tmp_path: Path) -> None:
    frame = read(tmp_path, "a,b\n1.5,2\n-999,3\n-999.0,4\n", missing=("-999",))
    assert frame["a"].isna().tolist() == [False, True, True]


def test_a_category_that_looks_like_a_marker_can_be_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "site,x\nNA,1\nEU,2\n-,3\n"
    assert read(tmp_path, text)["site"].isna().tolist() == [True, False, False]
    assert "1 cell 'NA' of 'site'" in capsys.readouterr().err
    assert read(tmp_path, text, missing=())["site"].tolist() == ["NA", "EU", "-"]


# ---- times -------------------------------------------------------------------------------------


def hours(start: str, rows: int = 12) -> pd.DataFrame:
    times = pd.date_range(start, periods=rows, freq="h", tz="Europe/Berlin")
    return pd.DataFrame({"time": times.tz_localize(None), "x": np.arange(float(rows))})


def test_a_time_in_several_columns(tmp_path: Path) -> None:
    frame = series()
    expected = found("fit", write_series(tmp_path) / "config.toml", "--check")
    parts = {p: getattr(frame["time"].dt, p) for p in ("year", "month", "day", "hour")}
    ways: list[tuple[str, dict[str, Any]]] = [
        ('["year", "month", "day", "hour"]', parts),
        (
            '["day", "clock"]',
            {"day": frame["time"].dt.date, "clock": frame["time"].dt.strftime("%H:%M")},
        ),
        ('["day", "hour"]', {"day": frame["time"].dt.date, "hour": parts["hour"]}),
    ]
    config = tmp_path / "config.toml"
    text = config.read_text()
    for time, columns in ways:
        frame.drop(columns="time").assign(**columns).to_csv(tmp_path / "series.csv", index=False)
        config.write_text(text.replace('time = "time"', f"time = {time}"))
        assert found("fit", config, "--check") == expected
    config.write_text(text.replace('time = "time"', 'time = ["day", "minute"]'))
    assert "data.time = 'minute' is no column" in refused("fit", config, "--check")


def test_local_times_of_a_zone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = pd.date_range("2023-10-28 20:00", periods=12, freq="h", tz="Europe/Berlin")
    frame = hours("2023-10-28 20:00")
    zone = {"timezone": "Europe/Berlin", "step": pd.Timedelta("1h")}
    assert dated(tmp_path, frame, **zone)["time"].tolist() == expected.tolist()
    said = capsys.readouterr().err
    assert "2 rows lie in the hour that clocks of Europe/Berlin repeat" in said
    assert "the first row of each such time is read as summer time" in said
    # The newest first: the order of the rows counts from the end.
    backwards = dated(tmp_path, frame[::-1], **zone)
    assert backwards["time"].tolist() == expected.tolist()
    assert backwards["x"].tolist() == list(range(12))
    # Times with an offset are taken to the zone.
    offsets = frame.assign(time=[one.isoformat() for one in expected])
    assert dated(tmp_path, offsets, **zone)["time"].tolist() == expected.tolist()
    assert dated(tmp_path, offsets, **zone)["time"].iloc[-1].hour == 6


def test_clocks_that_change_are_hinted_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    step = pd.Timedelta("1h")
    with pytest.raises(Problem, match=r"first 2023-10-29 02:00:00 .*data\.timezone = "):
        dated(tmp_path, hours("2023-10-28 20:00"), step=step)
    dated(tmp_path, hours("2023-03-25 20:00"), step=step)
    assert "Sunday 2023-03-26; if these are local times" in capsys.readouterr().err
    # Two hours are missing, or one on another day: no clock did that.
    dated(tmp_path, hours("2023-03-25 20:00").drop(index=7), step=step)
    dated(tmp_path, hours("2023-03-22 20:00").drop(index=5), step=step)
    assert "Sunday" not in capsys.readouterr().err
    winter = pd.date_range("2023-03-25 20:00", periods=12, freq="h")
    wrong = hours("2023-01-01").assign(time=winter)
    with pytest.raises(Problem, match=r"02:00:00 does not exist in Europe/Berlin \(1 such rows\)"):
        dated(tmp_path, wrong, timezone="Europe/Berlin")


def test_a_zone_gives_local_hours_and_steps_of_equal_length(tmp_path: Path) -> None:
    write_series(tmp_path)
    zoned = pd.date_range("2023-10-25", periods=240, freq="h", tz="Europe/Berlin")
    frame = series().assign(time=zoned.tz_localize(None)[series().index])
    frame.to_csv(tmp_path / "series.csv", index=False)
    text = (SERIES + QUICK).replace("step =", 'timezone = "Europe/Berlin"\nstep =')
    prepared = prepare(parse_config(text.encode(), "c", tmp_path))
    windows = prepared.whole.X
    assert windows.recipe.timezone == "Europe/Berlin"
    assert windows.recipe.step == pd.Timedelta("1h")
    assert set(windows.t) <= set(zoned)
    hour = windows.X_frame()["sin(hour)"]
    np.testing.assert_allclose(hour, np.sin(2 * np.pi * hour.index.hour / 24), atol=1e-9)


@pytest.mark.parametrize(
    ("policy", "x", "site"),
    [("first", [0.0, 1.0, 2.0], "a"), ("last", [0.0, 5.0, 2.0], "b"), ("mean", [0, 3, 2], "a")],
)
def test_repeated_times(policy: str, x: list[float], site: str, tmp_path: Path) -> None:
    text = "time,x,site\n2023-01-01,0,a\n2023-01-02,1,a\n2023-01-03,2,a\n2023-01-02,5,b\n"
    frame = dated(tmp_path, text, duplicates=policy, step=pd.Timedelta("1D"))
    assert frame["x"].tolist() == x
    assert frame["site"].tolist() == ["a", site, "a"]
    with pytest.raises(
        Problem, match=r"first 2023-01-02 00:00:00 \(1 such rows\).*data\.duplicates = 'first'"
    ):
        dated(tmp_path, text)


def test_taking_the_first_of_two_hours_is_hinted_at_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = dated(tmp_path, hours("2023-10-28 20:00"), duplicates="first")
    assert len(frame) == 11
    assert "set data.timezone" in capsys.readouterr().err


def test_counts_since_1970(tmp_path: Path) -> None:
    for form, factor in (("unix", 1), ("unix_ms", 1000)):
        text = f"time,x\n{1672531200 * factor},1\n{1672534800 * factor},2\n"
        times = dated(tmp_path, text, time_format=form)["time"]
        assert times.tolist() == list(pd.date_range("2023-01-01", periods=2, freq="h", tz="UTC"))


def test_parquet_with_periods_in_its_index(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [1.0, 2.0]}, pd.period_range("2023-01-01", periods=2, freq="h"))
    buffer = io.BytesIO()
    frame.rename_axis("time").to_parquet(buffer)
    times = dated(tmp_path, buffer.getvalue(), step=pd.Timedelta("1h"))["time"]
    assert times.tolist() == list(pd.date_range("2023-01-01", periods=2, freq="h"))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('timezone = "Berlin"', "data.timezone must be the name of a time zone"),
        ('timezone = "Europe/Berlin"\nstep = "1D"', "data.timezone is for steps below a day"),
        ('duplicates = "some"', "data.duplicates must be one of 'error', 'first', 'last', 'mean'"),
        ('thousands = "."', "data.decimal and data.thousands are both '.'"),
        ("missing = [1]", "data.missing must be text in quotes"),
        ('time = ["time", "time"]', "data.time must be text in quotes"),
    ],
)
def test_mistakes_in_the_new_keys(line: str, said: str) -> None:
    text = SERIES.replace('step = "1h"', line)
    if line.startswith("time ="):
        text = SERIES.replace('time = "time"', line)
    with pytest.raises(Problem) as problem:
        parse_config(text.encode(), "config.toml", Path())
    assert said in str(problem.value)
    right = SERIES.replace("step =", 'missing = []\nduplicates = "mean"\nstep =')
    config = parse_config(right.encode(), "config.toml", Path())
    assert isinstance(config.task, Questions)
    assert config.source.missing == ()
