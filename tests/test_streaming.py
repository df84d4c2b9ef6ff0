"""`Forecaster.fit` on streams: the same scales and laws as from memory, in bounded memory."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scrollmt import Event, Forecaster, Gaussian, StudentT, load
from scrollmt._data import reading, sources, streaming
from scrollmt._data.scaling import Scales
from scrollmt._numerics.weighted import Moments, weighted_moments
from scrollmt.objective import Data
from scrollmt.presets import QUICK, Preset
from scrollmt.streams import ArrayStream, ParquetStream
from small import assert_close, assert_same, numbers
from test_crossfit import TASKS, rows
from test_crossfit import small as small_preset
from test_large import RULE

ROWS = 150
LABELS = {name: name for name in TASKS}


def preset(**changes: Any) -> Preset:
    """Every training row is in the sample, so that a fit from memory has the same one."""
    return small_preset(large=replace(RULE, race_rows=1000, **changes))


def table() -> pd.DataFrame:
    X, Y = rows(ROWS)
    return pd.DataFrame({"a": X[:, 0], "b": X[:, 1], **Y})


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "CHUNK", 16)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files of several chunks, one row group each."""
    path = tmp_path / "rows"
    path.mkdir()
    for number, part in enumerate((table()[:70], table()[70:])):
        part.to_parquet(path / f"{number}.parquet", index=False)
    return path


def fitted(source: Any, sample_weight: Any = None, **settings: Any) -> Forecaster:
    given = {"preset": preset(), "seed": 1, **settings}
    return Forecaster(TASKS, **given).fit(source, sample_weight=sample_weight)


def held_out(seed: int = 1) -> np.ndarray:
    return streaming._drawn(ROWS, RULE.held_out, preset().large, seed)[0]  # type: ignore[arg-type]


# Scales


def test_merged_moments_are_those_of_all_rows() -> None:
    rng = np.random.default_rng(0)
    values = 1e8 + rng.normal(size=(1000, 3)) * np.array([1.0, 1e-3, 100.0])
    weight = rng.integers(0, 4, size=1000).astype(float)
    merged = None
    for at in np.split(np.arange(1000), [1, 17, 500, 930]):
        if weight[at].any():
            part = Moments(weight[at].sum(), *weighted_moments(values[at], weight[at]))
            merged = part if merged is None else merged.merged(part)
    assert merged is not None
    mean, sd = weighted_moments(values, weight)
    np.testing.assert_allclose(merged.mean, mean, rtol=1e-15)
    # A sum of squares around zero would have lost all digits here.
    np.testing.assert_allclose(merged.sd, sd, rtol=1e-5)
    assert merged.weight == weight.sum()


def test_scales_of_a_stream_are_those_of_the_whole_array() -> None:
    X, Y = rows(200)
    X = np.column_stack([X, np.full(200, 7.0)])
    Y["value"][3] = np.nan
    weight = np.random.default_rng(1).uniform(0.5, 2.0, size=200)
    everything = reading.read_rows(X, Y, weight, TASKS)
    summary = streaming.Summary(TASKS)
    for part in np.split(np.arange(200), [3, 4, 90]):
        summary.add(everything.take(part))
    found, expected = (
        summary.scales(scale_targets=True),
        Scales.of(everything, TASKS, scale_targets=True),
    )
    np.testing.assert_allclose(found.x_mean, expected.x_mean, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(found.x_sd, expected.x_sd, rtol=1e-12)
    assert found.x_sd[2] == 0.0
    np.testing.assert_array_equal(found.x_low, expected.x_low)
    np.testing.assert_array_equal(found.x_high, expected.x_high)
    np.testing.assert_allclose(found.offset["value"], expected.offset["value"], rtol=1e-12)
    np.testing.assert_allclose(found.scale["value"], expected.scale["value"], rtol=1e-12)
    assert summary.varied == set(TASKS)


def test_units_that_are_quantiles_are_near_those_of_the_whole() -> None:
    heads = {"value": StudentT()}
    y = np.random.default_rng(0).standard_t(3, size=4000)
    everything = reading.read_rows(y[:, None], {"value": y}, None, heads)
    summary = streaming.Summary(heads)
    for part in np.split(np.arange(4000), 4):
        summary.add(everything.take(part))
    expected = Scales.of(everything, heads, scale_targets=True)
    scale = summary.scales(scale_targets=True).scale["value"]
    np.testing.assert_allclose(scale, expected.scale["value"], rtol=0.1)


# Fits


@pytest.mark.slow
def test_a_folder_is_fitted_like_the_same_rows_in_memory(folder: Path, tmp_path: Path) -> None:
    X, Y = rows(ROWS)
    frame = pd.DataFrame(X, columns=["a", "b"])
    held = held_out()
    kept = np.setdiff1d(np.arange(ROWS), held)

    def part(at: np.ndarray) -> tuple[pd.DataFrame, dict[str, np.ndarray]]:
        return frame.iloc[at].reset_index(drop=True), {n: y[at] for n, y in Y.items()}

    expected = Forecaster(TASKS, preset=preset(), seed=1, validation=part(held)).fit(*part(kept))
    model = fitted(folder)
    assert_close(numbers(model, frame), numbers(expected, frame), rtol=1e-4)
    np.testing.assert_allclose(model.validation_nll_, expected.validation_nll_, rtol=1e-5)
    np.testing.assert_allclose(model.validation_nll_, -model.score(*part(held)), rtol=1e-6)
    assert model.feature_names_in_.tolist() == ["a", "b"]
    # Columns are found by name, whatever their order.
    assert_same(numbers(model, frame[["b", "a"]]), numbers(model, frame))
    model.save(tmp_path / "model")
    assert_same(numbers(load(tmp_path / "model"), frame), numbers(model, frame))
    assert np.isfinite(model.evaluate(frame, Y)["skill"]).all()
    # A file in the place of memory changes nothing, and neither does the way the rows come.
    named = ParquetStream(folder, inputs=["a", "b"], labels=LABELS)
    for same in (
        fitted(folder, preset=preset(memory=0)),
        fitted(str(folder)),
        fitted(named),
    ):
        assert_same(numbers(same, frame), numbers(model, frame))
    # Other chunks round otherwise.
    assert_close(numbers(fitted(pl.scan_parquet(folder)), frame), numbers(model, frame), rtol=1e-4)


@pytest.mark.slow
def test_a_stream_of_arrays_is_fitted_too() -> None:
    X, Y = rows(ROWS)
    seen = {name: ~np.isnan(y) for name, y in Y.items()}
    labels = {name: np.where(seen[name], y, -9.0) for name, y in Y.items()}
    weight = {name: one.astype(np.float32) for name, one in seen.items()}
    stream = ArrayStream(Data(X, labels, weight))
    model = fitted(stream)
    expected = fitted(pl.from_pandas(table()).lazy())
    assert_close(
        numbers(model, X), numbers(expected, pd.DataFrame(X, columns=["a", "b"])), rtol=1e-4
    )
    with pytest.raises(ValueError, match="stream holds its weights"):
        fitted(stream, np.ones(ROWS))
    with pytest.raises(ValueError, match=r"labels for \['band', 'event', 'value'\].*\['other'\]"):
        Forecaster({"other": Gaussian()}).fit(stream)


@pytest.mark.slow
def test_few_rows_of_a_stream_go_the_way_of_rows_in_memory(folder: Path) -> None:
    frame, few = table(), small_preset()
    expected = Forecaster(TASKS, preset=few).fit(frame[["a", "b"]], frame[[*TASKS]])
    model = Forecaster(TASKS, preset=few).fit(folder)
    assert_same(numbers(model, frame[["a", "b"]]), numbers(expected, frame[["a", "b"]]))
    assert model.validation_nll_ == expected.validation_nll_


def test_what_is_held_is_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By rows: chunks, the sample and the held-out part; all rows together are in a file."""
    held = []
    whole = sources.read_chunk

    def counted(chunk: sources.Chunk, *rest: Any) -> reading.Rows:
        held.append(len(chunk))
        return whole(chunk, *rest)

    monkeypatch.setattr(streaming, "read_chunk", counted)
    rule = replace(RULE, memory=0)
    model = Forecaster(TASKS, preset=small_preset(large=rule))
    ready = model._ready(folder, None, None)
    assert max(held) == 16
    assert sum(held) == 2 * ROWS
    assert len(ready.fitted.x) == rule.race_rows
    assert len(ready.judged.x) == rule.held_out
    assert ready.stored is not None
    for leaf in jax.tree.leaves(ready.stored.data):
        assert isinstance(leaf, np.memmap)
        assert len(leaf) == ROWS
    assert len(ready.stored.train) == ROWS - rule.held_out
    # The sample trains, the held-out rows do not.
    assert not set(ready.fitted.where) & set(ready.judged.where)
    x = np.asarray(ready.stored.data.x)
    np.testing.assert_allclose(x[-rule.held_out :], ready.valid.x, rtol=1e-6)
    weight = np.mean([*ready.stored.train.data.weight.values()], axis=0)
    mean, sd = weighted_moments(x[: -rule.held_out].astype(float), weight)
    np.testing.assert_allclose(mean, 0.0, atol=1e-6)
    np.testing.assert_allclose(sd, 1.0, rtol=1e-6)
    small = Forecaster(TASKS, preset=preset())._ready(folder, None, None)
    assert small.stored is not None
    assert not isinstance(small.stored.data.x, np.memmap)


def test_held_out_rows_depend_on_the_seed_and_the_number_of_rows_alone() -> None:
    np.testing.assert_array_equal(held_out(3), held_out(3))
    assert set(held_out(3)) != set(held_out(4))
    assert len(held_out(3)) == RULE.held_out


def test_weights_and_texts_come_from_columns(tmp_path: Path) -> None:
    frame = table()
    frame["trust"] = np.linspace(0.5, 2.0, ROWS)
    frame["event"] = frame["event"].map({0.0: "no", 1.0: "yes"})
    frame.to_parquet(tmp_path / "all.parquet", index=False)
    ready = Forecaster(TASKS, preset=preset())._ready(tmp_path / "all.parquet", None, "trust")
    place = {number: k for k, number in enumerate(ready.judged.where)}
    for number, k in place.items():
        assert ready.judged.weights["value"][k] == frame["trust"][number]
        known = isinstance(frame["event"][number], str)
        assert ready.judged.weights["event"][k] == (frame["trust"][number] if known else 0.0)
        assert not known or ready.judged.labels["event"][k] == (frame["event"][number] == "yes")
    one = Forecaster(TASKS, preset=preset())._ready(
        tmp_path / "all.parquet", None, {"value": "trust"}
    )
    assert set(one.judged.weights["band"]) == {1.0}
    assert one.names == ["a", "b"]


@pytest.mark.slow
def test_rows_of_your_own_validate_a_stream_and_a_refit_trains_on_them(folder: Path) -> None:
    X, Y = rows(40, seed=3)
    other = pd.DataFrame(X, columns=["a", "b"]), Y
    plain = fitted(folder, validation=other)
    assert plain.candidates_["rows"].max() == ROWS
    again = fitted(folder, validation=other, refit=True)
    assert again.validation_nll_ == plain.validation_nll_
    assert fitted(folder, validation=0.3).candidates_["rows"].max() == ROWS - 45


# Mistakes


def test_a_schema_that_changes_midway_is_named(folder: Path) -> None:
    frame = table()[:20]
    frame.drop(columns="b").to_parquet(folder / "2.parquet", index=False)
    with pytest.raises(ValueError, match=r"2\.parquet has no column 'b', which .*0\.parquet has"):
        fitted(folder)
    frame.assign(b="text").to_parquet(folder / "2.parquet", index=False)
    with pytest.raises(ValueError, match=r"column 'b' is \w*string in .*2\.parquet and double in"):
        fitted(folder)
    frame.drop(columns="value").to_parquet(folder / "2.parquet", index=False)
    with pytest.raises(ValueError, match=r"2\.parquet has no column 'value'"):
        fitted(folder)
    # Whole numbers beside floating point are the same values.
    whole = frame.assign(band=frame["band"].astype(int), a=1)
    whole.to_parquet(folder / "2.parquet", index=False)
    assert len(Forecaster(TASKS, preset=preset())._ready(folder, None, None).judged.x) == 30


def test_a_bad_value_is_named_with_its_file_and_row(folder: Path) -> None:
    frame = table()[:40].reset_index(drop=True)
    frame.loc[37, "a"] = np.nan
    frame.to_parquet(folder / "2.parquet", index=False)
    with pytest.raises(
        ValueError, match=r"2\.parquet, rows counted from 32: X: column 'a' is NaN at row 5"
    ):
        fitted(folder)
    frame = table()[:40].reset_index(drop=True)
    frame.loc[3, "band"] = 7.0
    frame.to_parquet(folder / "2.parquet", index=False)
    with pytest.raises(ValueError, match=r"2\.parquet, rows counted from 0: Y: task 'band'"):
        fitted(folder)
    frame.assign(place="here").to_parquet(folder / "2.parquet", index=False)
    for number in (0, 1):
        part = pd.read_parquet(folder / f"{number}.parquet").assign(place="there")
        part.to_parquet(folder / f"{number}.parquet", index=False)
    with pytest.raises(ValueError, match=r"0\.parquet.*column 'place' has dtype"):
        fitted(folder)


def test_other_mistakes_are_one_sentence(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="path 'nowhere', where there is no file or folder"):
        fitted("nowhere")
    with pytest.raises(ValueError, match="holds its labels; call fit"):
        Forecaster(TASKS).fit(folder, {"value": np.zeros(ROWS)})
    with pytest.raises(ValueError, match="no column 'other'"):
        Forecaster({"other": Gaussian()}).fit(folder)
    with pytest.raises(ValueError, match="5 folds need all rows in memory"):
        fitted(folder, validation=5)
    with pytest.raises(ValueError, match="the name of a column, or a mapping of task"):
        fitted(folder, np.ones(ROWS))
    with pytest.raises(ValueError, match="validation must be"):
        fitted(folder, validation="most")
    constant = table().assign(event=1.0)
    constant.to_parquet(tmp_path / "constant.parquet", index=False)
    with pytest.raises(ValueError, match="task 'event' shows only class 1"):
        fitted(tmp_path / "constant.parquet")
    pq.write_table(pa.table({"event": [0.0, 1.0]}), tmp_path / "bare.parquet")
    with pytest.raises(ValueError, match="labels and no further column"):
        Forecaster({"event": Event()}).fit(tmp_path / "bare.parquet")


def test_a_preset_without_the_rule_reads_what_fits_into_memory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert QUICK.large is None
    ready = Forecaster(TASKS, preset="quick")._ready(folder, None, None)
    assert ready.stored is None
    assert len(ready.fitted.x) + len(ready.judged.x) == ROWS
    monkeypatch.setattr(streaming, "Large", lambda: replace(RULE, memory=100))
    with pytest.raises(ValueError, match=r"150 rows take more than .* in memory alone"):
        Forecaster(TASKS, preset="quick")._ready(folder, None, None)


def test_a_full_disk_is_said_before_anything_is_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10})())
    with pytest.raises(ValueError, match="TMPDIR"):
        fitted(folder, preset=preset(memory=0))
