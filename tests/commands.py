"""Small files for the command line, and a way to run it in this process.

All fits share few shapes, so that they share compiled programs.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from typer.testing import CliRunner, Result

import small
from scrollmt.cli import app

# A few steps of the paper's smallest candidate.
QUICK = """
[model]
preset = "paper"
backbone = "tanh"

[training]
steps = 5
"""
SERIES = """
out = "model"

[data]
file = "series.csv"
time = "time"
step = "1h"

[windows]
history = 4
lead = 3
fill_limit = 2

[questions.level]
kind = "value"
column = "x"
transform = "log1p"
units = "ug/m3"

[questions."high day"]
kind = "event"
column = "x"
over = "mean"
above = 5

[questions.band]
kind = "bands"
column = "x"
quantiles = 3

[[inputs]]
kind = "lags"
columns = ["x"]

[[inputs]]
kind = "current"
columns = ["wind"]

[[inputs]]
kind = "one_hot"
columns = ["site"]

[[inputs]]
kind = "calendar"
parts = ["hour"]
"""
TABLE = """
out = "model"

[data]
file = "table.csv"

[table]
inputs = ["a", "b", "c"]

[targets.state]
head = "gaussian"

[targets.event]
head = "event"

[targets.regime]
head = "ordinal"
classes = 3
"""


def series(hours: int = 240, seed: int = 0) -> pd.DataFrame:
    """An hourly series with a daily wave, a gap of two hours and three hours that are absent."""
    rng = np.random.default_rng(seed)
    t = np.arange(hours)
    x = 5 + 3 * np.sin(2 * np.pi * t / 24) + 0.5 * rng.normal(size=hours)
    frame = pd.DataFrame(
        {
            "time": pd.date_range("2023-01-01", periods=hours, freq="h"),
            "x": x.round(3),
            "wind": rng.normal(size=hours).round(3),
            "site": rng.choice(["north", "south"], size=hours),
        }
    )
    frame.loc[50:51, "x"] = np.nan
    return frame.drop(index=[30, 90, 91])


def write_series(folder: Path, **kinds: Any) -> Path:
    """The series and its config in a folder."""
    series(**kinds).to_csv(folder / "series.csv", index=False)
    (folder / "config.toml").write_text(SERIES + QUICK)
    return folder


def write_table(folder: Path) -> Path:
    X, Y = small.tables()
    X.join(Y).to_csv(folder / "table.csv", index=False)
    (folder / "config.toml").write_text(TABLE + QUICK)
    return folder


def run(*arguments: Any, given: str | bytes | None = None) -> Result:
    words = [str(one) for one in arguments]
    return CliRunner().invoke(app, words, input=given, env={"COLUMNS": "120"})


def done(*arguments: Any, given: str | bytes | None = None) -> str:
    """What a command that must succeed prints on standard output."""
    result = run(*arguments, given=given)
    assert result.exit_code == 0, result.output
    return result.stdout


def found(*arguments: Any, given: str | bytes | None = None) -> Any:
    return json.loads(done(*arguments, "--json", given=given))


def refused(*arguments: Any, given: str | bytes | None = None) -> str:
    """The one sentence that a command says about bad input."""
    result = run(*arguments, given=given)
    assert result.exit_code == 2, result.output
    said = result.stderr.strip().splitlines()
    assert result.stdout == ""
    complaint = said[-1]
    assert complaint.startswith("scrollmt: ")
    return complaint.removeprefix("scrollmt: ")


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
