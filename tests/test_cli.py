"""The command line runs the real job, on few windows."""

import re
from pathlib import Path

from typer.testing import CliRunner

from scrollmt.cli import app


def test_demo_prints_a_table_and_draws_a_picture(tmp_path: Path) -> None:
    arguments = ["demo", "--out", str(tmp_path / "d"), "--windows", "300", "--seed", "1"]
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "120"})
    assert result.exit_code == 0, result.output
    assert "60 test windows" in result.output
    rows = {
        name: [float(v) for v in re.findall(r"-?\d+\.\d+", line)]
        for name in ("state", "event", "regime")
        for line in result.output.splitlines()
        if re.match(rf"\W*{name}\b", line)
    }
    ours, oracle, difference, error, half, most = rows["state"]
    assert abs(ours - oracle - difference) < 2e-4
    # Trained on 180 windows of a chaotic system, no forecaster comes close to the true law.
    assert difference > 10 * error
    assert half < most
    # Intervals are a matter of values: the other rows leave those cells empty.
    assert len(rows["event"]) == len(rows["regime"]) == 4
    assert (tmp_path / "d" / "lorenz63.png").read_bytes().startswith(b"\x89PNG")


def test_no_arguments_prints_help() -> None:
    result = CliRunner().invoke(app, [])
    assert "demo" in result.output
    assert result.exit_code in (0, 2)
