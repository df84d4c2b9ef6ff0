r"""Windows that do not fit into memory, and windows that are spread over devices.

A stream yields minibatches of $b$ of the $N$ windows for `fit`, which scales their data
terms by $N/b$, so that the expected gradient is that of the full objective (`eq:fmt`):

$$\mathbb{E}\Bigl[\tfrac{N}{b} \sum_{n \in B} \nabla \ell_n\Bigr] = \sum_n \nabla \ell_n.$$

Every pass shows each window once. Blocks of neighbouring rows are read in random order, a
few at a time, and the rows of these are shuffled: what is held does not grow with N.
Leaves of the yielded `Data` begin with `(steps, batch)`.
"""

from __future__ import annotations

import abc
import importlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Key

from scrollmt.objective import Data

BLOCK = 4096
MIXED_BLOCKS = 16
_AXIS = "windows"


class AbstractStream(abc.ABC):
    """Blocks of rows, served as shuffled minibatches."""

    mesh: Mesh | None

    @abc.abstractmethod
    def __len__(self) -> int:
        """How many windows there are."""

    @property
    @abc.abstractmethod
    def blocks(self) -> int:
        """In how many blocks they are stored."""

    @abc.abstractmethod
    def read(self, block: int) -> Data:
        """The rows of one block, as NumPy arrays in memory."""

    def minibatches(self, key: Key[Array, ""], steps: int, batch: int) -> Iterator[Data]:
        """Without end: shuffled minibatches, `steps` of them at a time."""
        wanted = steps * batch
        held: list[Data] = []
        count = 0
        for part in self._shuffled(key):
            held.append(part)
            count += len(part)
            while count >= wanted:
                rows = _joined(held)
                head, rest = _cut(rows, wanted)
                held, count = [rest], count - wanted
                yield self._placed(
                    jax.tree.map(lambda a: a.reshape(steps, batch, *a.shape[1:]), head)
                )

    def _shuffled(self, key: Key[Array, ""]) -> Iterator[Data]:
        rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist())
        while True:
            order = rng.permutation(self.blocks)
            for first in range(0, len(order), MIXED_BLOCKS):
                rows = _joined([self.read(int(b)) for b in order[first : first + MIXED_BLOCKS]])
                yield _rows(rows, rng.permutation(len(rows)))

    def _placed(self, data: Data) -> Data:
        if self.mesh is None:
            return data
        placed: Data = jax.device_put(data, NamedSharding(self.mesh, PartitionSpec(None, _AXIS)))
        return placed


class ArrayStream(AbstractStream):
    """A stream over arrays; a `np.memmap` stays on the disk until a block of it is read."""

    def __init__(self, data: Data, *, mesh: Mesh | None = None):
        rows = {len(leaf) for leaf in jax.tree.leaves(data)}
        if len(rows) != 1 or not len(data):
            raise ValueError(
                f"inputs, labels and weights must have the same number of rows, at least one; "
                f"got {sorted(rows)}"
            )
        self.data = data
        self.mesh = mesh

    def __len__(self) -> int:
        return len(self.data)

    @property
    def blocks(self) -> int:
        return math.ceil(len(self) / BLOCK)

    def read(self, block: int) -> Data:
        begin, end = block * BLOCK, (block + 1) * BLOCK
        part: Data = jax.tree.map(lambda a: np.array(a[begin:end]), self.data)
        return part


class ParquetStream(AbstractStream):
    """A stream over a Parquet file or a folder of them; a block is a row group.

    `inputs` are the columns of x. `labels` names the column of each task; a null or NaN in
    it is a missing label. `weights` names a weight column for some or all of the tasks.
    Whole-number columns are read as classes. Needs pyarrow (`pip install scrollmt[parquet]`).
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        inputs: Sequence[str],
        labels: Mapping[str, str],
        weights: Mapping[str, str] | None = None,
        mesh: Mesh | None = None,
    ):
        try:
            dataset = importlib.import_module("pyarrow.dataset")
        except ImportError as error:
            raise ImportError(
                "reading Parquet needs pyarrow: pip install scrollmt[parquet]"
            ) from error
        self.inputs, self.labels, self.weights = list(inputs), dict(labels), dict(weights or {})
        self.mesh = mesh
        source = dataset.dataset(path, format="parquet")
        self._columns = [*self.inputs, *self.labels.values(), *self.weights.values()]
        missing = [c for c in self._columns if c not in source.schema.names]
        if missing:
            raise ValueError(
                f"the Parquet data has no column {missing[0]!r}; it has {source.schema.names}"
            )
        self.files = list(source.get_fragments())
        _check_one_schema(self.files, self.columns)
        unknown = sorted(set(self.weights) - set(self.labels))
        if unknown:
            raise ValueError(
                f"weights for {unknown[0]!r}, which is not a task: {list(self.labels)}"
            )
        self._groups = [piece for file in self.files for piece in file.split_by_row_group()]
        self._length = sum(int(g.num_rows) for piece in self._groups for g in piece.row_groups)
        if not self._length:
            raise ValueError("the Parquet data has no rows")

    def __len__(self) -> int:
        return self._length

    @property
    def columns(self) -> list[str]:
        """The columns that are read, each once."""
        return list(dict.fromkeys(self._columns))

    @property
    def blocks(self) -> int:
        return len(self._groups)

    def read(self, block: int) -> Data:
        table = self._groups[block].to_table(columns=self.columns)

        def column(name: str) -> np.ndarray:
            values: np.ndarray = table.column(name).to_numpy()
            return values

        x = np.stack([column(name) for name in self.inputs], axis=1).astype(np.float32)
        if not np.isfinite(x).all():
            bad = self.inputs[int(np.flatnonzero(~np.isfinite(x).all(axis=0))[0])]
            raise ValueError(f"input column {bad!r} has missing or infinite values")
        y, weight = {}, {}
        for task, name in self.labels.items():
            values = column(name).astype(np.float64)
            seen = np.isfinite(values)
            whole = str(table.schema.field(name).type).lstrip("u").startswith(("int", "bool"))
            y[task] = np.where(seen, values, 0.0).astype(np.int32 if whole else np.float32)
            given = column(self.weights[task]) if task in self.weights else 1.0
            weight[task] = (seen * given).astype(np.float32)
        return Data(x, y, weight)


def _check_one_schema(files: Sequence[Any], columns: Sequence[str]) -> None:
    """Every file of a folder has the columns, with values of the first file's kind."""
    first = files[0].physical_schema
    for file in files[1:]:
        for name in columns:
            if name not in file.physical_schema.names:
                raise ValueError(
                    f"{file.path} has no column {name!r}, which {files[0].path} has; write the "
                    "column into all files of the folder, or take the file out"
                )
            here, there = file.physical_schema.field(name).type, first.field(name).type
            if _kind(here) != _kind(there):
                raise ValueError(
                    f"column {name!r} is {here} in {file.path} and {there} in {files[0].path}; "
                    "write it with one type into all files of the folder"
                )


def _kind(stored: Any) -> str:
    """Numbers of any width are one kind: a whole-number column with gaps is often written as
    floating point."""
    text = str(stored).lstrip("u")
    number = text.startswith(("int", "float", "double", "halffloat"))
    return "number" if number else text.removeprefix("large_")


def _joined(parts: list[Data]) -> Data:
    return parts[0] if len(parts) == 1 else jax.tree.map(lambda *a: np.concatenate(a), *parts)


def _rows(data: Data, rows: np.ndarray) -> Data:
    taken: Data = jax.tree.map(lambda a: a[rows], data)
    return taken


def _cut(data: Data, count: int) -> tuple[Data, Data]:
    return jax.tree.map(lambda a: a[:count], data), jax.tree.map(lambda a: a[count:], data)


def mesh_of(devices: Sequence[Any] | None = None) -> Mesh:
    """All devices of all processes (or the given ones) in a row, to share windows among."""
    return Mesh(np.asarray(jax.devices() if devices is None else devices), (_AXIS,))


def spread(data: Data, mesh: Mesh) -> Data:
    """Data with its windows shared among devices; `fit` then trains on all of them.

    Where the number of windows does not divide evenly, rows of weight zero fill up the last
    share; they add nothing to a sum of weighted terms. With several processes
    (`jax.distributed.initialize`) each calls this with the same data, such as a memory map,
    and holds only its own share.
    """
    axis = 0 if data.x.ndim == 2 else 1
    extra = -len(data) % mesh.size

    def place(leaf: Any) -> Any:
        shape = list(leaf.shape)
        windows, shape[axis] = shape[axis], shape[axis] + extra
        lead = (slice(None),) * axis

        def share(index: Any) -> np.ndarray:
            begin, end, _ = index[axis].indices(windows + extra)
            part = np.asarray(leaf[(*lead, slice(begin, min(end, windows)))])
            widths = [(0, 0)] * part.ndim
            widths[axis] = (0, end - begin - part.shape[axis])
            return np.pad(part, widths)

        sharding = NamedSharding(mesh, PartitionSpec(*(None,) * axis, _AXIS))
        return jax.make_array_from_callback(tuple(shape), sharding, share)

    placed: Data = jax.tree.map(place, data)
    return placed
