"""`scrollmt backtest`: the library's scores, kept by origin, gone on from, in several processes."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest

from commands import QUICK, SERIES, done, found, refused, run, series, write_series, write_table
from scrollmt import Forecaster, at_lead, backtest
from scrollmt.cli import backtesting
from scrollmt.cli.config import parse_config
from scrollmt.windows import Windowing

ONE = SERIES[: SERIES.index("[questions")] + '[questions.level]\nkind = "value"\ncolumn = "x"\n'
BATCHES = QUICK.replace("steps = 5", "steps = 4\nbatch_size = 8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_series(tmp_path)
    (tmp_path / "config.toml").write_text(ONE + QUICK)
    return tmp_path


@pytest.mark.slow
def test_scores_are_those_of_the_library(folder: Path) -> None:
    stated = found("backtest", folder / "config.toml", "--origins", 2, "-o", folder / "all.csv")
    assert (stated["origins"], stated["seeds"]) == (2, [0])
    frame = series().set_index("time").asfreq("h").reset_index()
    windowing = Windowing(history=4, lead=3, fill_limit=2)
    windows = windowing.cut(frame, {"level": at_lead("x")}, time="time")
    settings = parse_config((ONE + QUICK).encode(), "c", Path()).settings
    expected = backtest(windows, Forecaster.for_windows(windows, **settings), origins=2)
    summary = expected.summary().reset_index()
    given = pd.DataFrame(stated["summary"])
    assert list(given["metric"]) == list(summary["metric"])
    for part in ("mean", "se"):
        assert given[part].to_numpy() == pytest.approx(summary[part].to_numpy())
    written = pd.read_csv(folder / "all.csv")
    assert written["value"].to_numpy() == pytest.approx(expected.table["value"].to_numpy())
    assert "--force" in refused("backtest", folder / "config.toml", "-o", folder / "all.csv")


@pytest.mark.slow
def test_it_goes_on_where_it_stopped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second origin is interrupted; the next call runs that one alone."""
    (folder / "config.toml").write_text(ONE + BATCHES)
    ran: list[int] = []
    real = backtesting._Job.run

    def counted(job: Any, splits: Any) -> Any:
        if len(ran) == 1 and not (folder / "again").exists():
            raise KeyboardInterrupt
        ran.append(len(splits[0].train))
        return real(job, splits)

    monkeypatch.setattr(backtesting._Job, "run", counted)
    command = ("backtest", folder / "config.toml", "--origins", 2, "--records", folder / "kept")
    cut_short = run(*command, "--json")
    assert cut_short.exit_code == 130
    assert "interrupted after 1 of 2 origins" in cut_short.stderr
    assert json.loads(cut_short.stdout)["origins"] == 1
    assert len(list((folder / "kept").iterdir())) == 1
    (folder / "again").touch()
    whole = run(*command, "--json")
    assert whole.exit_code == 0
    assert "1 of 2 origins were done before" in whole.stderr
    assert len(ran) == 2
    third = found(*command)
    assert len(ran) == 2
    assert third == json.loads(whole.stdout)
    assert [row["origin"] for row in third["scores"]] == sorted(
        row["origin"] for row in third["scores"]
    )
    # Other data is another question; what was kept for the first stays.
    frame = pd.read_csv(folder / "series.csv")
    frame.assign(x=frame["x"] + 1).to_csv(folder / "series.csv", index=False)
    before = {path: path.read_bytes() for path in (folder / "kept").iterdir()}
    done(*command)
    assert len(ran) == 4
    assert all(path.read_bytes() == content for path, content in before.items())


def test_a_damaged_record_is_told(folder: Path) -> None:
    command = ("backtest", folder / "config.toml", "--origins", 1, "--records", folder / "kept")
    done(*command)
    (record,) = (folder / "kept").iterdir()
    for content in (b"", b"[]", b'{"value": 1}', b"\xff", b'[{"origin": 0}]'):
        record.write_bytes(content)
        assert f"{record} is damaged" in refused(*command)


def test_an_interrupt_before_the_first_origin(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(backtesting._Job, "run", interrupted)
    result = run("backtest", folder / "config.toml")
    assert result.exit_code == 130
    assert "before the first origin" in result.stderr


@contextmanager
def commands_of_children() -> Iterator[list[str]]:
    """With what commands this process started others meanwhile."""
    seen: dict[int, str] = {}
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.05):
            for child in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):
                    seen[child.pid] = " ".join(child.cmdline()) or seen.get(child.pid, "")

    commands: list[str] = []
    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield commands
    finally:
        over.set()
        thread.join()
        commands.extend(seen.values())


@pytest.mark.slow
def test_several_processes_give_the_same_scores(folder: Path) -> None:
    (folder / "config.toml").write_text(ONE + BATCHES)
    command = ("backtest", folder / "config.toml", "--origins", 2, "--seeds", "3,4")
    alone = found(*command)
    assert alone["seeds"] == [3, 4]
    with commands_of_children() as seen:
        together = run(*command, "--jobs", 2, "--json")
    assert together.exit_code == 0, together.output
    # Forks of a process in which JAX has run may wait for ever; they bear their parent's command.
    assert sum("multiprocessing.spawn import spawn_main" in command for command in seen) >= 2
    assert " ".join(psutil.Process().cmdline()) not in seen
    assert json.loads(together.stdout) == alone
    assert together.stderr.count("done (tested from") == 2


def test_what_cannot_be_tested_is_told(folder: Path, tmp_path: Path) -> None:
    config = folder / "config.toml"
    assert "--seeds '1,1'" in refused("backtest", config, "--seeds", "1,1")
    assert "--seeds 'x'" in refused("backtest", config, "--seeds", "x")
    rows = (folder / "series.csv").read_text().splitlines(keepends=True)
    (folder / "series.csv").write_text("".join(rows[:30]))
    assert "--origins 5: rolling_origins" in refused("backtest", config)
    assert run("backtest", config, "--origins", 0).exit_code == 2
    assert "ending" in refused("backtest", config, "-o", folder / "scores.doc")
    write_table(tmp_path)
    assert "need a series" in refused("backtest", config)
