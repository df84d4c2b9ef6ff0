"""Minibatches from memory maps and Parquet: each window once a pass, memory that does not grow."""

import tracemalloc
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import scrollmt.streams as streams
from scrollmt.fit import Schedule, fit, stack
from scrollmt.objective import Data
from scrollmt.streams import ArrayStream, ParquetStream
from test_batching import data, objective, start


def numbered(n: int) -> Data:
    """Windows whose every value says which row it is."""
    row = np.arange(n, dtype=np.float32)
    return Data(np.stack([row, row], axis=1), {"a": row}, {"a": np.ones(n, np.float32)})


def in_memory(source: Data) -> Data:
    return jax.tree.map(np.asarray, source)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "BLOCK", 7)
    monkeypatch.setattr(streams, "MIXED_BLOCKS", 3)


@pytest.mark.usefixtures("small_blocks")
def test_every_pass_shows_each_window_once_and_keeps_rows_together() -> None:
    stream = ArrayStream(numbered(60))
    parts = [*islice(stream.minibatches(jax.random.key(0), 3, 5), 8)]
    assert {p.x.shape for p in parts} == {(3, 5, 2)}
    for part in parts:
        np.testing.assert_array_equal(part.x[..., 0], part.y["a"])
        np.testing.assert_array_equal(part.x[..., 0], part.x[..., 1])
    seen = np.concatenate([np.asarray(p.y["a"]).ravel() for p in parts])
    for one_pass in (seen[:60], seen[60:]):
        np.testing.assert_array_equal(np.sort(one_pass), np.arange(60))
    assert (seen[:60] != seen[60:]).any()
    again = next(stream.minibatches(jax.random.key(0), 3, 5))
    np.testing.assert_array_equal(again.y["a"], parts[0].y["a"])
    other = next(stream.minibatches(jax.random.key(1), 3, 5))
    assert (np.asarray(other.y["a"]) != np.asarray(parts[0].y["a"])).any()


@pytest.mark.slow
@pytest.mark.usefixtures("small_blocks")
def test_the_scaled_gradient_of_a_pass_averages_to_that_of_the_whole() -> None:
    """60 windows in 12 minibatches of 5, each scaled by 12: the mean over a pass is exact."""
    with jax.enable_x64(True):
        windows, model = in_memory(data(60, 0)), start(0)
        stream = ArrayStream(windows)
        params, static = jax.tree.flatten(model)

        def slope(rows: Data, scale: float) -> list[jax.Array]:
            def loss(leaves: list[jax.Array]) -> jax.Array:
                return objective(jax.tree.unflatten(static, leaves), rows, None, scale)

            return jax.grad(loss)(params)

        jitted = jax.jit(slope)
        (chunk,) = islice(stream.minibatches(jax.random.key(0), 12, 5), 1)
        pieces = [
            jitted(jax.tree.map(lambda a, i=i: jnp.asarray(a[i]), chunk), 12.0) for i in range(12)
        ]
        mean = [sum(leaf) / 12 for leaf in zip(*pieces, strict=True)]
        for got, want in zip(mean, slope(data(60, 0), 1.0), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def train(source: Any, **options: Any) -> Any:
    return fit(
        stack([start(0), start(1)]),
        source,
        data(30, 9),
        objective=objective,
        hyper={"learning_rate": jnp.asarray([0.02, 0.03])},
        schedule=Schedule(steps=60, batch_size=20, eval_every=6, average=0.9),
        keys=jax.random.split(jax.random.key(0), 2),
        **options,
    )


def written(windows: Data, folder: Path) -> Data:
    """The same windows as memory maps."""
    leaves, structure = jax.tree.flatten(windows)
    maps = []
    for i, leaf in enumerate(leaves):
        np.save(folder / f"{i}.npy", np.asarray(leaf))
        maps.append(np.load(folder / f"{i}.npy", mmap_mode="r"))
    return jax.tree.unflatten(structure, maps)


def test_fit_reads_a_memory_map_and_learns_from_it(tmp_path: Path) -> None:
    windows = data(200, 0)
    mapped = written(windows, tmp_path)
    assert isinstance(mapped.x, np.memmap)
    fits = train(ArrayStream(mapped))
    assert fits.stop_reason == ("steps", "steps")
    assert (fits.steps == 60).all()
    assert fits.history["validation"].shape == (2, 10)
    assert (fits.best_score < fits.history["validation"][:, 0] - 0.1).all()
    held = train(ArrayStream(in_memory(windows)))
    np.testing.assert_array_equal(held.history["validation"], fits.history["validation"])


def test_what_is_held_does_not_grow_with_the_data(tmp_path: Path) -> None:
    """Ten times the windows on disk, the same traced memory while minibatches are drawn."""
    peaks = []
    for n in (200_000, 2_000_000):
        x = np.lib.format.open_memmap(tmp_path / f"{n}.npy", "w+", np.float32, (n, 4))
        stream = ArrayStream(Data(x, {"a": x[:, 0]}, {"a": x[:, 1]}))
        tracemalloc.start()
        for _ in islice(stream.minibatches(jax.random.key(0), 4, 256), 150):
            pass
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]
    assert peaks[1] < 2_000_000 * 4 * 4 / 2


@pytest.mark.slow
def test_parquet_gives_the_same_windows(tmp_path: Path) -> None:
    windows = data(50, 0)
    x = np.asarray(windows.x)
    state = np.asarray(windows.y["state"]).astype(object)
    state[7] = None
    columns = {
        **{f"x{i}": x[:, i] for i in range(3)},
        "value": pa.array(list(state), pa.float64()),
        "warned": np.asarray(windows.y["event"]),
        "band": np.asarray(windows.y["regime"]),
        "trust": np.linspace(0.0, 1.0, 50),
    }
    table = pa.table(columns)
    for part in range(2):
        rows = table.slice(25 * part, 25)
        pq.write_table(rows, tmp_path / f"{part}.parquet", row_group_size=10)
    stream = ParquetStream(
        tmp_path,
        inputs=["x0", "x1", "x2"],
        labels={"state": "value", "event": "warned", "regime": "band"},
        weights={"event": "trust"},
    )
    assert len(stream) == 50
    assert stream.blocks == 6
    (chunk,) = islice(stream.minibatches(jax.random.key(0), 5, 10), 1)
    flat = jax.tree.map(lambda a: a.reshape(50, *a.shape[2:]), chunk)
    order = np.argsort(flat.x[:, 0])
    want = np.argsort(x[:, 0])
    np.testing.assert_allclose(flat.x[order], x[want], rtol=1e-6)
    for name, kind in (("event", np.int32), ("regime", np.int32), ("state", np.float32)):
        seen = flat.weight[name][order] > 0
        np.testing.assert_allclose(
            flat.y[name][order][seen], np.asarray(windows.y[name])[want][seen], rtol=1e-6
        )
        assert flat.y[name].dtype == kind
    assert (flat.weight["state"] == 0).sum() == 1
    np.testing.assert_allclose(flat.weight["event"][order], columns["trust"][want], rtol=1e-6)
    assert train(stream).stop_reason == ("steps", "steps")


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="batch_size"):
        fit(
            stack([start(0)]),
            ArrayStream(in_memory(data(20, 0))),
            data(10, 1),
            objective=objective,
            hyper={"learning_rate": jnp.ones(1)},
            schedule=Schedule(steps=5),
            keys=jax.random.split(jax.random.key(0), 1),
        )
    good = numbered(10)
    with pytest.raises(ValueError, match=r"same number of rows.*\[9, 10\]"):
        ArrayStream(Data(good.x, {"a": good.y["a"][:9]}, good.weight))
    pq.write_table(pa.table({"x": [1.0, None], "y": [0.0, 1.0]}), tmp_path / "a.parquet")

    def parquet(**options: Any) -> ParquetStream:
        settings: Any = {"inputs": ["x"], "labels": {"a": "y"}, **options}
        return ParquetStream(tmp_path / "a.parquet", **settings)

    with pytest.raises(ValueError, match="no column 'z'"):
        parquet(inputs=["z"])
    with pytest.raises(ValueError, match="'b', which is not a task"):
        parquet(weights={"b": "y"})
    with pytest.raises(ValueError, match="input column 'x' has missing"):
        parquet().read(0)
