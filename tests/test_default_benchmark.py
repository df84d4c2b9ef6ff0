"""The comparison with peers: records that resume, tables from them, and one run end to end."""

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from scrollmt.corpora.located import FOLDER_VARIABLE
from scrollmt.paper.peers.protocol import ClassCodes, Classes, Value
from test_corpora_uci import write_set

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def modules() -> Any:
    """The benchmark's modules, which are scripts beside each other."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        names = ("default", "default_page", "default_problems", "default_records")
        yield {name: importlib.import_module(name) for name in names}
    finally:
        sys.path.remove(str(BENCHMARKS))


def record(method: str, split: int, nll: float, name: str = "boston", **heads: Any) -> dict:
    scored = {"nll": nll, "labels": 40, "blocks": [], "setting": {}}
    return {
        "set": name,
        "method": method,
        "split": split,
        "fit_s": 2.0 + split,
        "predict_s": 0.5,
        "peak_mb": 300.0,
        "device": "cpu",
        "heads": heads or {"y": scored},
        "versions": {"numpy": "2"},
    }


def put_all(modules: Any, folder: Path, records: list[dict]) -> pd.DataFrame:
    for one in records:
        modules["default_records"].put(folder, one, {head: np.zeros(3) for head in one["heads"]})
    modules["default_records"].collect(folder, folder / "table" / "records.csv")
    return modules["default_records"].read(folder / "table" / "records.csv")


def test_what_is_recorded_is_not_missing(modules: Any, tmp_path: Path) -> None:
    records = modules["default_records"]
    assert records.missing(tmp_path, "boston", "linear", [0, 1, 2]) == [0, 1, 2]
    records.put(tmp_path, record("linear", 1, 2.5), {"y": np.arange(3.0)})
    assert records.missing(tmp_path, "boston", "linear", [0, 1, 2]) == [0, 2]
    assert records.missing(tmp_path, "boston", "default", [1]) == [1]
    kept = np.load(tmp_path / "boston" / "linear" / "1.npz")
    np.testing.assert_array_equal(kept["y"], [0.0, 1.0, 2.0])


def test_a_table_keeps_lines_of_other_folders_and_renews_its_own(
    modules: Any, tmp_path: Path
) -> None:
    table = put_all(modules, tmp_path / "a", [record("linear", 0, 2.5), record("linear", 1, 2.7)])
    assert table["nll"].tolist() == [2.5, 2.7]
    records = modules["default_records"]
    records.put(tmp_path / "b", record("linear", 1, 2.9), {"y": np.zeros(3)})
    target = tmp_path / "a" / "table" / "records.csv"
    records.collect(tmp_path / "b", target)
    assert records.read(target)["nll"].tolist() == [2.5, 2.9]


def test_blocks_are_means_of_neighbours(modules: Any) -> None:
    means = modules["default_records"].block_means(np.arange(10.0), 3)
    assert means == [1.5, 5.0, 8.0]
    assert modules["default_records"].block_means(np.arange(10.0), 0) == []


def test_the_best_on_the_same_splits_decides(modules: Any, tmp_path: Path) -> None:
    ours = {0: 2.0, 1: 2.2, 2: 2.4}
    # Behind by 0.1 on every split: no error at all in the paired difference.
    ahead = {k: v - 0.1 for k, v in ours.items()}
    runs = [record("default", k, v) for k, v in ours.items()]
    runs += [record("linear", k, v) for k, v in ahead.items()]
    table = put_all(modules, tmp_path, runs)
    page = modules["default_page"]
    none = pd.DataFrame(columns=["set", "method", "nll", "error", "source"])
    (line,) = page.against_best(table, none).to_dict("records")
    assert line["best peer here"] == "linear"
    assert line["within"] == "no"
    assert line["default minus it"] == "0.100 ± 0.000"
    alone = table[table["method"] == "default"]
    error = np.std([2.0, 2.2, 2.4], ddof=1) / np.sqrt(3)
    for nll, within in ((2.2 - 0.9 * error, "yes"), (2.2 - 1.1 * error, "no")):
        other = pd.DataFrame({"set": ["boston"], "method": ["x"], "nll": [nll], "error": [0.1]})
        assert page.against_best(alone, other)["within"].tolist() == [within]


def test_differences_over_blocks_are_a_t_test(modules: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ours, theirs = rng.normal(1.0, 0.1, 20), rng.normal(1.3, 0.1, 20)

    def scored(blocks: np.ndarray) -> dict:
        return {"nll": float(blocks.mean()), "labels": 200, "blocks": list(blocks), "setting": {}}

    runs = [
        record("default", 0, 0.0, "river", flood=scored(ours), band=scored(ours)),
        record("linear", 0, 0.0, "river", flood=scored(theirs), band=scored(ours)),
    ]
    table = put_all(modules, tmp_path, runs)
    page = modules["default_page"]
    gap, error, p = page.paired(table, "linear", "flood")
    expected = stats.ttest_rel(theirs, ours)
    assert gap == pytest.approx(np.mean(theirs - ours), abs=1e-4)
    assert p == pytest.approx(expected.pvalue, rel=1e-2)
    assert gap / error == pytest.approx(expected.statistic, rel=1e-3)
    assert page.verdict(gap, p) == "worse"
    assert page.verdict(-gap, p) == "better"
    lines, best = page.differences(table, [0])
    assert lines["is"].tolist() == ["", "tied", "", "worse"]
    assert best == {"band": True, "flood": True}
    _, best = page.differences(table.replace({"default": "linear", "linear": "default"}), [0])
    assert best == {"band": True, "flood": False}
    lines, best = page.differences(table[table["method"] == "linear"], [0])
    assert lines["is"].tolist() == ["", ""]
    assert best == {}


def test_methods_carry_keywords(modules: Any) -> None:
    runner = modules["default"]
    read = runner.options_of("default:preset=quick+refit=True+steps=50")
    assert read == {"preset": "quick", "refit": True, "steps": 50}
    assert runner.options_of("default") == {}
    assert runner.splits_of("protein", "0,4,7") == [0, 4]
    assert len(runner.splits_of("boston", "all")) == 20
    for sets, methods in ((["bosten"], ["linear"]), (["boston"], ["linaer"])):
        with pytest.raises(Exception, match=r"bosten|linaer"):
            runner.check(sets, methods)


def test_a_censored_value_is_scored_by_the_mass_at_its_limits() -> None:
    asked = Value((0.0, 1.0))
    law = asked.law(np.array([0.2, 0.2, 0.2]), np.array([0.1, 0.1, 0.1]))
    expected = [stats.norm.logcdf(-2), stats.norm.logpdf(0.3, 0.2, 0.1), stats.norm.logsf(8)]
    np.testing.assert_allclose(law.log_prob(np.array([0.0, 0.3, 1.0])), expected)
    mixed = asked.law(np.array([[0.2], [0.6]]), np.array([[0.1], [0.2]]))
    both = 0.5 * (stats.norm.cdf(-2) + stats.norm.cdf(-3))
    np.testing.assert_allclose(mixed.log_prob(np.array([0.0])), np.log(both))


def test_a_class_that_training_lacks_keeps_a_share() -> None:
    codes = ClassCodes(Classes(3), np.array([0, 2, 2, 0]))
    law = codes.law(np.array([[0.25, 0.75]]))
    np.testing.assert_allclose(law.probs, [[0.25 * 6 / 7, 1 / 7, 0.75 * 6 / 7]])
    assert codes.known(np.array([0, 1, 2])).tolist() == [True, False, True]


@pytest.mark.slow
def test_a_run_end_to_end_resumes_and_makes_a_page(
    modules: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    write_set(tmp_path / "uci" / "yacht")
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    runner, folder = modules["default"], tmp_path / "records"
    methods = "linear,default:preset=quick+steps=5"
    runner.run("yacht", methods, folder, splits="0,1", here=True)
    assert capsys.readouterr().out.count("yacht 1 ") == 2
    runner.run("yacht", methods, folder, splits="0,1", here=True)
    assert capsys.readouterr().out == ""
    runner.collect(folder, tmp_path / "records.csv")
    runner.write(tmp_path / "records.csv", tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text()
    assert "| yacht | 2 |" in page
    assert "WGBoost" in page
    assert "numpy" in page
