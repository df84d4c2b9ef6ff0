"""Every awkward file ends in a right answer or in one sentence, whatever verb it is given to.

Reports are drawn for some of the cases; all of them, which takes longer:

    SCROLLMT_ZOO=all pytest tests/test_zoo.py
"""

import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from commands import done, found, refused, run
from scrollmt.cli.asking import Questions, Targets
from scrollmt.cli.config import Config, parse_config
from zoo import CASES, Case

# A few steps of the paper's smallest candidate.
WHOLE, SHORT = 'preset = "default"', 'preset = "paper"\nbackbone = "tanh"'
FEW_STEPS = "\n[training]\nsteps = 30\neval_every = 15\nstarts = 1\n"
GOOD = {name: one for name, one in CASES.items() if one.refused is None}
BAD = {name: one for name, one in CASES.items() if one.refused is not None}


def test_there_are_many() -> None:
    assert len(CASES) > 60
    assert len(GOOD) > 40


def laid_out(one: Case, folder: Path) -> tuple[Path, Path]:
    data = folder / "data.csv"
    data.write_bytes(one.raw)
    return data, folder / "config.toml"


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_will_not_do_is_refused_in_one_sentence(name: str, tmp_path: Path) -> None:
    one = BAD[name]
    data, config = laid_out(one, tmp_path)
    said = refused("init", data, "-o", config, *one.options)
    assert str(one.refused) in said
    assert "fault" not in said
    assert list(tmp_path.iterdir()) == [data]


@pytest.mark.slow
@pytest.mark.parametrize("name", GOOD)
def test_a_file_is_read_fitted_and_forecast(name: str, tmp_path: Path) -> None:
    one = GOOD[name]
    data, path = laid_out(one, tmp_path)
    result = run("init", data, "-o", path, *one.options)
    assert result.exit_code == 0, result.output
    for note in one.notes:
        assert note in result.stderr
    text = path.read_text(encoding="utf-8")
    for part in one.writes:
        assert part in text
    config = parse_config(text.encode(), "config.toml", tmp_path)
    assert asked_about(config) == {one.asks}
    assert config.source.step == (None if one.step is None or one.table else pd.Timedelta(one.step))
    # What init writes is fitted as it is; only the training is cut short here.
    path.write_text(text.replace(WHOLE, SHORT) + FEW_STEPS, encoding="utf-8")
    fitted = found("fit", path, "--quiet")
    assert fitted["windows"]["train"] >= 5
    use(one, tmp_path / "model", data, path)


def asked_about(config: Config) -> set[str]:
    if isinstance(config.task, Targets):
        return set(config.task.columns.values())
    assert isinstance(config.task, Questions)
    return {name for asked in config.task.asked.values() for name in asked.columns()}


def use(one: Case, model: Path, data: Path, config: Path) -> None:
    later = dict(one.later)
    if one.table:
        later = {"forecast": "fitted on a table", "backtest": "need a series"} | later
    drawn = one.report or "report" in later or os.environ.get("SCROLLMT_ZOO") == "all"
    commands: dict[str, tuple[Any, ...]] = {
        "forecast": (model, data),
        "evaluate": (model, data),
        "backtest": (config, "--origins", 2, "--quiet"),
        "report": (model, data, "-o", data.with_suffix(".html")),
    }
    for verb, arguments in commands.items():
        if verb in later:
            assert later[verb] in refused(verb, *arguments)
        elif verb != "report":
            check(one, verb, found(verb, *arguments))
        elif drawn:
            done(verb, *arguments)


def check(one: Case, verb: str, said: Any) -> None:
    if verb == "forecast":
        assert str(said["t"]) == one.newest
        value = said["tasks"].get("value")
        if one.between is not None:
            low, high = one.between
            assert low < value["median"] < high
            assert low - high < value["lower"] < value["upper"] < 2 * high
    elif verb == "evaluate":
        assert said["windows"] > 0
        assert all(scores["nll"] is not None for scores in said["scores"].values())
    else:
        assert said["origins"] == 2
