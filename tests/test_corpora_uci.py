"""The UCI sets: made-up files of the same format, and the public ones where they exist."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from scrollmt.corpora import uci
from scrollmt.corpora.located import FOLDER_VARIABLE

ROWS = 30


def write_set(folder: Path, splits: int = 3, *, packed: bool = True) -> np.ndarray:
    """A set of 30 rows with columns target, input, input, unused; gives the numbers written."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    data = np.round(rng.normal(size=(ROWS, 4)), 3)
    text = "\n".join(" ".join(f"{one:.3f}" for one in row) for row in data) + "\n\n"
    if packed:
        (folder / "data.txt.gz").write_bytes(gzip.compress(text.encode()))
    else:
        (folder / "data.txt").write_text(text)
    (folder / "index_features.txt").write_text("2\n1\n")
    (folder / "index_target.txt").write_text("0\n")
    for k in range(splits):
        order = rng.permutation(ROWS)
        for part, rows in (("train", order[:27]), ("test", order[27:])):
            text = "".join(f"{row:.1f}\n" for row in rows)
            (folder / f"index_{part}_{k}.txt").write_text(text)
    return data


@pytest.mark.parametrize("packed", [True, False])
def test_a_set_has_its_inputs_target_and_splits(tmp_path: Path, packed: bool) -> None:
    data = write_set(tmp_path / "bostonHousing", packed=packed)
    loaded = uci.load("boston", tmp_path)
    np.testing.assert_array_equal(loaded.X, data[:, [2, 1]])
    np.testing.assert_array_equal(loaded.y, data[:, 0])
    assert list(loaded.frame) == ["x0", "x1", "y"]
    assert len(loaded) == ROWS
    assert len(loaded.splits) == 3
    for split in loaded.splits:
        assert sorted(np.concatenate(split)) == list(range(ROWS))
        assert len(split.test) == 3


def test_the_folder_is_found_in_three_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_set(tmp_path / "uci" / "yacht")
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    here = (None, tmp_path, tmp_path / "uci", tmp_path / "uci" / "yacht")
    assert len({uci.load("yacht", path).y.tobytes() for path in here}) == 1


def test_what_is_missing_or_wrong_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    with pytest.raises(ValueError, match="no UCI set 'bosten'"):
        uci.load("bosten", tmp_path)
    with pytest.raises(ValueError, match=FOLDER_VARIABLE):
        uci.load("boston")
    with pytest.raises(ValueError, match="no bostonHousing in"):
        uci.load("boston", tmp_path)
    folder = tmp_path / "bostonHousing"
    write_set(folder)
    (folder / "index_test_1.txt").write_text("30\n")
    with pytest.raises(ValueError, match=r"split 1 names row 30, but data\.txt has 30 rows"):
        uci.load("boston", tmp_path)
    (folder / "index_test_1.txt").write_text((folder / "index_train_1.txt").read_text())
    with pytest.raises(ValueError, match="split 1 has a row twice"):
        uci.load("boston", tmp_path)
    (folder / "index_target.txt").write_text("7\n")
    with pytest.raises(ValueError, match="has 4 columns"):
        uci.load("boston", tmp_path)


BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"
REAL = Path(os.environ.get(FOLDER_VARIABLE) or BESIDE)


@pytest.mark.skipif(not (REAL / "uci").is_dir(), reason="the public files are not on this machine")
@pytest.mark.parametrize(
    ("name", "rows", "inputs", "splits"),
    [("boston", 506, 13, 20), ("energy", 768, 8, 20), ("naval", 11934, 16, 20)],
)
def test_the_public_files(name: str, rows: int, inputs: int, splits: int) -> None:
    loaded = uci.load(name, REAL)
    assert loaded.X.shape == (rows, inputs)
    assert len(loaded.splits) == splits
    assert np.isfinite(loaded.frame.to_numpy()).all()
    assert all(len(np.concatenate(split)) == rows for split in loaded.splits)
