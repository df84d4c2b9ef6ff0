"""Rows that are read some at a time, in the same order every time: streams, files, lazy frames.

    Parquet file or folder ─┐
    lazy frame ──▶ file ────┼──▶ chunks of at most `CHUNK` rows: inputs, labels, weights
    stream of arrays ───────┘

Inputs `(n, D)` are float64, labels `(n,)` by task are as they are stored.
"""

from __future__ import annotations

import abc
import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
import pandas as pd

from scrollmt._data import reading
from scrollmt._io.arguments import shown
from scrollmt.heads import AbstractHead
from scrollmt.streams import AbstractStream, ParquetStream

CHUNK = 65_536


class Chunk(NamedTuple):
    """Some rows that follow each other; `where` says in words which they are."""

    x: np.ndarray
    labels: dict[str, np.ndarray]
    weights: dict[str, np.ndarray]
    where: str

    def __len__(self) -> int:
        return len(self.x)


class AbstractSource(abc.ABC):
    """Rows in chunks; `names` are those of the inputs where they have any."""

    names: list[str] | None

    @abc.abstractmethod
    def __len__(self) -> int:
        """How many rows there are."""

    @abc.abstractmethod
    def chunks(self) -> Iterator[Chunk]:
        """All rows, in order."""


class StreamSource(AbstractSource):
    """The rows of any stream, a block at a time."""

    def __init__(self, stream: AbstractStream):
        self.stream = stream
        self.names = None

    def __len__(self) -> int:
        return len(self.stream)

    def chunks(self) -> Iterator[Chunk]:
        first = 0
        for block in range(self.stream.blocks):
            data = self.stream.read(block)
            where = f"the stream, rows counted from {first}"
            with _named(where):
                x, _ = reading.read_inputs(data.x)
            # A label of weight zero may be anything, also one that its head would refuse.
            labels = {
                name: np.where(_rowwise(data.weight[name], y) > 0, y, np.nan)
                for name, y in data.y.items()
            }
            weights = {name: np.asarray(w, np.float64) for name, w in data.weight.items()}
            yield Chunk(x, labels, weights, where)
            first += len(x)


class ParquetSource(AbstractSource):
    """The rows of Parquet files, in the types that they are stored in."""

    def __init__(self, stream: ParquetStream):
        self.stream = stream
        self.names = list(stream.inputs)

    def __len__(self) -> int:
        return len(self.stream)

    def chunks(self) -> Iterator[Chunk]:
        for file in self.stream.files:
            first = 0
            # No more ahead than the next part, so that what is held stays bounded.
            batches = file.to_batches(
                columns=self.stream.columns,
                batch_size=CHUNK,
                batch_readahead=1,
                fragment_readahead=1,
            )
            for batch in batches:
                if batch.num_rows:
                    yield self._chunk(batch, f"{file.path}, rows counted from {first}")
                    first += batch.num_rows

    def _chunk(self, batch: Any, where: str) -> Chunk:
        def column(name: str) -> np.ndarray:
            values: np.ndarray = batch.column(name).to_numpy(zero_copy_only=False)
            return values

        table = pd.DataFrame({name: column(name) for name in self.stream.inputs})
        with _named(where):
            x, _ = reading.read_inputs(table)
        labels = {task: column(name) for task, name in self.stream.labels.items()}
        weights = {task: column(name) for task, name in self.stream.weights.items()}
        return Chunk(x, labels, weights, where)


def _rowwise(weight: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return np.asarray(weight).reshape(-1, *(1,) * (np.ndim(labels) - 1))


@contextlib.contextmanager
def _named(where: str) -> Iterator[None]:
    """An error of reading says in which rows it is."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def read_chunk(chunk: Chunk, heads: Mapping[str, Any], joint: Any, first: int) -> reading.Rows:
    """A chunk's labels and weights read by their heads; `first` is the number of its first row."""
    with _named(chunk.where):
        return reading.read_rows(
            chunk.x,
            chunk.labels,
            chunk.weights or None,
            heads,
            joint=joint,
            where=pd.RangeIndex(first, first + len(chunk)),
        )


@contextlib.contextmanager
def opened(
    X: Any, Y: Any, sample_weight: Any, heads: Mapping[str, AbstractHead]
) -> Iterator[AbstractSource | None]:
    """The source that `fit(X)` was given; None where X holds rows itself.

    A path or a lazy frame has its labels in columns named by the tasks; all other columns are
    inputs, except those that `sample_weight` names: one column, or one for each of some tasks.
    """
    lazy, tasks = _lazy(X), list(heads)
    if lazy is None and not isinstance(X, AbstractStream | str | os.PathLike):
        yield None
        return
    for name, head in heads.items():
        # Such a column would be taken for an input, which knows the label.
        if head.asked_of is not None and head.asked_of.of not in heads:
            raise ValueError(
                f"task {name!r} is asked of {head.asked_of.of!r}, which is no task; that needs "
                f"rows in memory: make {head.asked_of.of!r} a task, or fit on arrays"
            )
    if Y is not None:
        raise ValueError(
            f"X is a {type(X).__name__}, which holds its labels; call fit(X) without Y, with the "
            f"labels in columns named by the tasks {tasks}, or name them in ParquetStream(path, "
            "inputs=[...], labels={...})"
        )
    if isinstance(X, AbstractStream):
        if sample_weight is not None:
            raise ValueError("a stream holds its weights; call fit(stream) without sample_weight")
        _check_tasks(X, tasks)
        yield ParquetSource(X) if isinstance(X, ParquetStream) else StreamSource(X)
    elif lazy is None:
        yield _from_path(X, sample_weight, tasks)
    else:
        with tempfile.TemporaryDirectory(prefix="scrollmt-") as folder:
            path = Path(folder) / "frame.parquet"
            lazy.sink_parquet(path)
            yield _from_path(path, sample_weight, tasks)


def _lazy(X: Any) -> nw.LazyFrame[Any] | None:
    try:
        frame = nw.from_native(X, pass_through=True)
    except nw.exceptions.DuplicateError:  # refused where its rows are read
        return None
    return frame if isinstance(frame, nw.LazyFrame) else None


def _check_tasks(stream: AbstractStream, tasks: list[str]) -> None:
    has = list(stream.labels if isinstance(stream, ParquetStream) else stream.read(0).y)
    if sorted(has) != sorted(tasks):
        raise ValueError(
            f"the stream has labels for {has}, and the tasks are {tasks}; name each label after "
            "its task"
        )


def _from_path(path: Any, sample_weight: Any, tasks: list[str]) -> ParquetSource:
    if not Path(path).exists():
        raise ValueError(
            f"X is the path {str(path)!r}, where there is no file or folder; give a Parquet file, "
            "a folder of them, or an array or DataFrame (N, D)"
        )
    weights = sample_weight
    if weights is None:
        weights = {}
    elif isinstance(weights, str):
        weights = dict.fromkeys(tasks, weights)
    elif not isinstance(weights, Mapping) or not all(isinstance(v, str) for v in weights.values()):
        raise ValueError(
            "sample_weight of files is the name of a column, or a mapping of task to such a name, "
            f"got {shown(sample_weight)}"
        )
    labels = {task: task for task in tasks}
    # To learn the other columns; a folder without a label's column is refused here already.
    known = ParquetStream(path, inputs=[], labels=labels, weights=weights)
    taken = {*labels.values(), *weights.values()}
    inputs = [name for name in known.files[0].physical_schema.names if name not in taken]
    if not inputs:
        raise ValueError(f"{path} has labels and no further column for the inputs")
    return ParquetSource(ParquetStream(path, inputs=inputs, labels=labels, weights=weights))
