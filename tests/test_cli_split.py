"""[split]: which rows train, validate and test, by folds or by a share that is held out."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import scrollmt
from commands import (
    QUICK,
    SERIES,
    TABLE,
    done,
    found,
    refused,
    run,
    series,
    write_series,
    write_table,
)
from scrollmt.cli.config import SplitShares, parse_config, read_config
from scrollmt.cli.data import Prepared, prepare
from scrollmt.cli.shell import Problem
from scrollmt.splits import Folds

FOLDS = "\n[split]\nvalidation = 3\n"


def split_of(preset: str, lines: str = "") -> SplitShares:
    text = f'{TABLE}\n[split]\n{lines}\n[model]\npreset = "{preset}"\n'
    return parse_config(text.encode(), "config.toml", Path()).split


def in_folder(folder: Path, config: str, hours: int = 240) -> Path:
    """The config beside the files of `commands`."""
    write_series(folder, hours=hours)
    write_table(folder)
    (folder / "config.toml").write_text(config)
    return folder / "config.toml"


def prepared(folder: Path, config: str, hours: int = 240) -> Prepared:
    return prepare(read_config(str(in_folder(folder, config, hours))))


def test_validation_is_the_preset_s_where_none_is_named() -> None:
    default = split_of("default")
    assert default.folds == 5
    assert default.fractions == pytest.approx((0.8, 0.0, 0.2))
    assert split_of("default", "test = 0").fractions == (1.0, 0.0, 0.0)
    for preset in ("quick", "held-out", "paper"):
        assert split_of(preset).folds is None
        assert split_of(preset).fractions == pytest.approx((0.6, 0.2, 0.2))
        assert split_of(preset, "validation = 3").folds == 3
    shares = split_of("default", "validation = 0.3\ntest = 0.1")
    assert shares.folds is None
    assert shares.fractions == pytest.approx((0.6, 0.3, 0.1))


@pytest.mark.parametrize("value", ["1", "0", "-2", "1.0", "2.5", "0.001", "true", '"all"'])
def test_validation_is_folds_or_a_share(value: str) -> None:
    with pytest.raises(Problem) as problem:
        split_of("default", f"validation = {value}")
    assert str(problem.value).startswith(
        "config.toml: split.validation must be a number of folds from 2 on, or a share from 0.01 "
        "to below 1 to hold out, got "
    )


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("validation = 0.5\ntest = 0.5", "left by split.validation = 0.5 and split.test = 0.5"),
        ("validation = 5\ntest = 0.995", "left by split.test = 0.995; what is kept"),
        ("train = 0.8", "unknown key 'split.train'; [split] takes order, validation, test"),
    ],
)
def test_shares_that_leave_nothing_to_train_on(lines: str, said: str) -> None:
    with pytest.raises(Problem) as problem:
        split_of("default", lines)
    assert said in str(problem.value)


@pytest.mark.parametrize("config", [SERIES, TABLE])
def test_more_folds_than_windows_are_refused(config: str, tmp_path: Path) -> None:
    path = in_folder(tmp_path, config + "\n[split]\nvalidation = 500\n" + QUICK)
    said = refused("fit", path, "--check")
    assert "[split]: validation = 500 is more folds than the " in said
    assert "windows that train; use fewer folds" in said


def test_a_series_with_folds_has_two_parts(tmp_path: Path) -> None:
    folds = prepared(tmp_path, SERIES + FOLDS + QUICK)
    shares = prepared(tmp_path, SERIES + QUICK)
    assert (folds.valid, folds.folds) == (None, 3)
    assert folds.model.validation == 3
    assert shares.valid is not None
    assert shares.folds is None
    # The test part is the same, and what validated before trains as well.
    assert folds.test is not None
    assert shares.test is not None
    assert folds.test.X.t.equals(shares.test.X.t)
    assert folds.train.X.t[-1] == shares.valid.X.t[-1]
    assert folds.train.size > shares.train.size + shares.valid.size
    assert folds.new_from == folds.test.X.t[0]
    assert folds.train.X.target_times.max().max() < folds.new_from
    # Without a test part, new is what comes after the last answer that trained.
    whole = prepared(tmp_path, SERIES + FOLDS + "test = 0\n" + QUICK)
    assert whole.test is None
    assert whole.train.size == whole.whole.size
    assert whole.new_from == whole.whole.X.target_times.max().max()


def test_the_embargo_of_the_config_is_that_of_the_folds(tmp_path: Path) -> None:
    none = prepared(tmp_path, SERIES + FOLDS + "embargo = 0\n" + QUICK)
    expected = none.train.X.block_folds(3, embargo=0)
    assert isinstance(none.model.validation, Folds)
    for part, wanted in zip(none.model.validation, expected, strict=True):
        np.testing.assert_array_equal(part, wanted)
    ready = none.model._ready(*none.train)
    assert ready.folds is not None
    assert sum(ready.sizes) == none.train.size


def test_a_series_too_short_for_folds_holds_a_share_out(tmp_path: Path) -> None:
    config = SERIES.replace("history = 4", "history = 16") + FOLDS + QUICK
    with pytest.warns(UserWarning, match="the newest 20% are held out instead"):
        short = prepared(tmp_path, config, hours=120)
    assert short.folds is None
    assert short.valid is not None
    assert short.test is not None
    assert short.train.X.target_times.max().max() < short.valid.X.t[0]
    assert short.valid.X.target_times.max().max() < short.test.X.t[0]
    sizes = short.model._ready(*short.train).sizes
    assert sizes == (short.train.size, short.valid.size)


def test_the_folds_of_a_table_follow_its_order(tmp_path: Path) -> None:
    drawn = prepared(tmp_path, TABLE + FOLDS + QUICK)
    assert (drawn.valid, drawn.folds, drawn.model.validation) == (None, 3, 3)
    assert (drawn.train.size, drawn.new_from) == (48, None)
    ordered = prepared(tmp_path, TABLE + FOLDS + 'order = "chronological"\n' + QUICK)
    assert isinstance(ordered.model.validation, Folds)
    blocks = np.arange(48).reshape(3, 16)
    np.testing.assert_array_equal(ordered.model.validation.valid, blocks)
    assert ordered.train.X.index.tolist() == list(range(48))


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with a series fitted by folds, and what the fit printed."""
    folder = tmp_path_factory.mktemp("folds")
    return folder, done("fit", in_folder(folder, SERIES + FOLDS + QUICK))


def test_a_fit_by_folds_is_the_library_s(fitted: tuple[Path, str]) -> None:
    folder, _ = fitted
    model = scrollmt.load(folder / "model")
    assert model.validation == 3
    assert set(model.candidates_["fold"]) == {0, 1, 2}
    facts = json.loads((folder / "model" / "fit.json").read_text())
    parts = prepare(read_config(str(folder / "config.toml")))
    again = parts.model.fit(*parts.train)
    assert facts["validation_nll"] == pytest.approx(again.validation_nll_, rel=1e-6)
    assert parts.test is not None
    scores = again.evaluate(*parts.test)
    for task, one in facts["scores"].items():
        assert one["nll"] == pytest.approx(scores.loc[task, "nll"], rel=1e-6)


def test_outputs_name_folds_and_no_validation_part(fitted: tuple[Path, str]) -> None:
    folder, printed = fitted
    sizes, told = printed.splitlines()[3:5]
    assert sizes.startswith("windows: train ")
    assert "validation" not in sizes
    assert told == "validation: 3 folds of the training windows"
    facts = json.loads((folder / "model" / "fit.json").read_text())
    assert facts["folds"] == 3
    assert facts["windows"]["validation"] == 0
    # The line about folds is that of a fit by folds alone.
    checked = found("fit", in_folder(folder, SERIES + QUICK), "--check")
    assert "folds" not in checked
    assert checked["windows"]["validation"] > 0
    assert "folds" not in done("fit", folder / "config.toml", "--check")


@pytest.mark.slow
def test_verbs_after_a_fit_by_folds(fitted: tuple[Path, str], tmp_path: Path) -> None:
    folder, _ = fitted
    facts = json.loads((folder / "model" / "fit.json").read_text())
    data = folder / "series.csv"
    fresh = found("evaluate", folder / "model", data)
    assert fresh["windows"] == facts["windows"]["test"]
    assert fresh["scores"] == facts["scores"]
    config = in_folder(folder, SERIES + FOLDS + QUICK)
    arguments = ("report", folder / "model", data, "-o", tmp_path / "report.html")
    done(*arguments, "--alone", config)
    assert (tmp_path / "report.html").exists()


@pytest.mark.slow
def test_all_rows_may_train(tmp_path: Path) -> None:
    done("fit", in_folder(tmp_path, SERIES + FOLDS + "test = 0\n" + QUICK))
    assert "nothing that the fit has not seen" in refused(
        "evaluate", tmp_path / "model", tmp_path / "series.csv"
    )
    # Rows that came later are new.
    series(300).to_csv(tmp_path / "later.csv", index=False)
    facts = json.loads((tmp_path / "model" / "fit.json").read_text())
    newer = found("evaluate", tmp_path / "model", tmp_path / "later.csv")
    assert newer["span"][0] >= facts["new_from"]


def test_init_leaves_validation_to_the_preset(tmp_path: Path) -> None:
    frame = series(600)
    frame.to_csv(tmp_path / "data.csv", index=False)
    columns = frame.drop(columns=["time", "site"]).dropna()
    columns.to_csv(tmp_path / "rows.csv", index=False)
    for file in ("data.csv", "rows.csv"):
        text = done("init", tmp_path / file, "-o", "-")
        assert "\ntest = 0.2 " in text
        assert "\n# validation = 5 " in text
        config = parse_config(text.encode(), "config.toml", tmp_path)
        assert config.split.folds == 5
        shares = text.replace("# validation = 5 ", "validation = 0.2 ")
        config = parse_config(shares.encode(), "config.toml", tmp_path)
        assert config.split.fractions == pytest.approx((0.6, 0.2, 0.2))


@pytest.mark.slow
def test_backtests_by_folds_are_the_library_s(tmp_path: Path) -> None:
    config = in_folder(tmp_path, SERIES + FOLDS + QUICK)
    stated = found("backtest", config, "--origins", 2)
    read = read_config(str(config))
    parts = prepare(read)
    settings: dict[str, Any] = {**read.settings, "validation": 3}
    windows = parts.windows
    assert windows is not None
    model = scrollmt.Forecaster.for_windows(windows, **settings)
    expected = scrollmt.backtest(windows, model, origins=2)
    given = pd.DataFrame(stated["scores"])
    assert given["value"].to_numpy() == pytest.approx(expected.table["value"].to_numpy(), rel=1e-5)
    assert set(expected.models[0, 0].candidates_["fold"]) == {0, 1, 2}
    shares = run("backtest", in_folder(tmp_path, SERIES + QUICK), "--origins", 2, "--json")
    other = pd.DataFrame(json.loads(shares.stdout)["scores"])
    # The same test windows, other training windows.
    assert other["tested_from"].tolist() == given["tested_from"].tolist()
    assert not np.allclose(other["value"], given["value"])
