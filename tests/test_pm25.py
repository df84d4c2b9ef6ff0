"""The PM2.5 corpus: downloads from a local server, the paper's counts where the file exists."""

import hashlib
import io
import os
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from scrollmt.corpora import pm25
from scrollmt.corpora.located import FOLDER_VARIABLE
from scrollmt.heads import Event, Ordinal, Real

DAYS = 90
GAPS = {(300, 304), (500, 540), (900, 907), (1300, 1306), (1999, 2000)}


def generated() -> pd.DataFrame:
    """Ninety days in the schema of the archive, with gaps of known places and lengths."""
    rng = np.random.default_rng(0)
    hours = pd.date_range("2010-01-01", periods=24 * DAYS, freq="h")
    n = len(hours)
    pm = np.round(np.exp(4.2 + 0.9 * np.sin(np.arange(n) / 60) + 0.3 * rng.standard_normal(n)))
    for start, end in GAPS:
        pm[start:end] = np.nan
    return pd.DataFrame(
        {
            "No": np.arange(1, n + 1),
            "year": hours.year,
            "month": hours.month,
            "day": hours.day,
            "hour": hours.hour,
            "pm2.5": pm,
            "DEWP": rng.integers(-30, 20, n),
            "TEMP": rng.integers(-15, 30, n),
            "PRES": rng.integers(1000, 1040, n),
            "cbwd": rng.choice(["NE", "NW", "SE", "cv"], n),
            "Iws": np.round(rng.gamma(1.0, 20.0, n), 2),
            "Is": rng.integers(0, 2, n),
            "Ir": rng.integers(0, 3, n),
        }
    )


def as_csv(frame: pd.DataFrame) -> bytes:
    return frame.to_csv(index=False, na_rep="NA", lineterminator="\r\n").encode()


def as_zip(csv: bytes, name: str = pm25.FILE) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"data/{name}", csv)
    return packed.getvalue()


@pytest.fixture(scope="module")
def csv() -> bytes:
    return as_csv(generated())


@pytest.fixture
def known(csv: bytes, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The generated table, taken for the one whose checksum is known."""
    monkeypatch.setattr(pm25, "SHA256", hashlib.sha256(csv).hexdigest())
    return csv


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, str]]:
    """A folder served over HTTP on the loopback address, and its address."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    folder = tmp_path / "site"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder that does not exist yet, named by the environment."""
    folder = tmp_path / "data" / "scrollmt"
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder))
    return folder


@pytest.mark.parametrize("packed", [False, True])
def test_download_keeps_the_table_and_is_done_once(
    known: bytes, site: tuple[Path, str], cache: Path, packed: bool
) -> None:
    folder, address = site
    (folder / "file").write_bytes(as_zip(known) if packed else known)
    windows = pm25.load(url=f"{address}/file")
    assert (cache / pm25.FILE).read_bytes() == known
    assert os.listdir(cache) == [pm25.FILE]
    (folder / "file").unlink()
    again = pm25.load(url=f"{address}/file")
    np.testing.assert_array_equal(again.X, windows.X)


@pytest.mark.parametrize("packed", [False, True])
def test_a_download_with_another_checksum_is_refused_and_not_kept(
    csv: bytes, site: tuple[Path, str], cache: Path, packed: bool
) -> None:
    folder, address = site
    (folder / "file").write_bytes(as_zip(csv) if packed else csv)
    found = hashlib.sha256(csv).hexdigest()
    with pytest.raises(ValueError, match=f"{found}, expected 4127f86.*verify=False"):
        pm25.load(url=f"{address}/file")
    assert os.listdir(cache) == []
    assert len(pm25.load(url=f"{address}/file", verify=False)) > 0
    # what was accepted on purpose is not taken for the real one later
    with pytest.raises(ValueError, match=r"not the known PM2\.5 table"):
        pm25.load(url=f"{address}/file")


def test_a_download_that_fails_says_what_to_do(site: tuple[Path, str], cache: Path) -> None:
    folder, address = site
    with pytest.raises(OSError, match=r"404.*pass its path.*SCROLLMT_DATA"):
        pm25.load(url=f"{address}/nothing")
    (folder / "other.zip").write_bytes(as_zip(b"a,b\n", name="other.csv"))
    with pytest.raises(ValueError, match=r"holds \['data/other.csv'\], but no PRSA_data"):
        pm25.load(url=f"{address}/other.zip")
    assert os.listdir(cache) == []


def test_local_files_and_folders(known: bytes, tmp_path: Path, cache: Path) -> None:
    file = tmp_path / "mine.csv"
    file.write_bytes(known)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / pm25.FILE).write_bytes(known)
    by_file, by_folder = pm25.load(file), pm25.load(str(tmp_path / "folder"))
    np.testing.assert_array_equal(by_file.X, by_folder.X)
    cache.mkdir(parents=True)
    (cache / pm25.FILE).write_bytes(known)
    np.testing.assert_array_equal(pm25.load().X, by_file.X)
    with pytest.raises(ValueError, match="There is no file"):
        pm25.load(tmp_path / "none.csv")


def test_a_changed_file_is_refused_unless_on_purpose(known: bytes, tmp_path: Path) -> None:
    file = tmp_path / pm25.FILE
    file.write_bytes(known.replace(b"NW", b"SE", 1))
    with pytest.raises(ValueError, match=r"verify=False"):
        pm25.load(tmp_path)
    assert len(pm25.load(tmp_path, verify=False)) > 0
    file.write_bytes(b"a,b\r\n1,2\r\n")
    with pytest.raises(ValueError, match=r"no columns \['year', 'month'"):
        pm25.load(tmp_path, verify=False)


def test_inputs_and_labels_by_plain_loops(csv: bytes, tmp_path: Path) -> None:
    """The 36 inputs and three labels of every window, from the table by their definitions."""
    (tmp_path / pm25.FILE).write_bytes(csv)
    table = generated()
    pm = table["pm2.5"].interpolate("linear", limit=6).tolist()
    windows = pm25.load(tmp_path, verify=False)
    X, rows = [], []
    Y: dict[str, list[float]] = {"state": [], "event": [], "regime": []}
    for t in range(23, len(pm) - 24, 24):
        past, ahead = pm[t - 23 : t + 1], pm[t + 1 : t + 25]
        if np.isnan(past + ahead).any():
            continue
        line = table.iloc[t]
        angle = 2 * np.pi * line["month"] / 12
        weather = [line[name] for name in ("DEWP", "TEMP", "PRES", "Iws", "Is", "Ir")]
        wind = [float(line["cbwd"] == code) for code in ("NE", "NW", "SE", "cv")]
        X.append([*np.log1p(past), *weather, *wind, np.sin(angle), np.cos(angle)])
        Y["state"].append(np.log1p(ahead[-1]))
        Y["event"].append(float(sum(ahead) / 24 > 75))
        Y["regime"].append(float(np.digitize(ahead[-1], [35, 75, 150])))
        rows.append(t)
    assert windows.rows.tolist() == rows
    assert windows.X.shape == (len(rows), 36)
    np.testing.assert_allclose(windows.X, np.array(X, dtype=float), rtol=1e-12)
    for task, labels in Y.items():
        np.testing.assert_allclose(windows.Y[task], labels, rtol=1e-12)
        assert len(np.unique(windows.Y[task])) > 1
    assert set(windows.t.hour) == {23}
    assert len(windows) + len(windows.dropped) == DAYS - 1


def test_the_strict_reading_leaves_long_gaps_whole(csv: bytes, tmp_path: Path) -> None:
    (tmp_path / pm25.FILE).write_bytes(csv)
    paper = pm25.load(tmp_path, verify=False)
    strict = pm25.load(tmp_path, verify=False, gaps="strict")
    lengths = [end - start for start, end in GAPS]
    assert paper.filled == {"pm2.5": sum(min(length, 6) for length in lengths)}
    assert strict.filled == {"pm2.5": sum(length for length in lengths if length <= 6)}
    assert set(strict.rows) < set(paper.rows)


def test_the_questions_read_as_the_papers() -> None:
    assert [type(asked.head()) for asked in pm25.QUESTIONS.values()] == [Real, Event, Ordinal]
    assert str(pm25.QUESTIONS["event"]) == (
        "whether the mean of pm2.5 over (t, t + lead] is above 75 ug/m3"
    )


def real_folder() -> Path | None:
    """Where the archive's own file is, if it is here at all."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    named = os.environ.get(FOLDER_VARIABLE)
    for folder in ([Path(named)] if named else []) + [beside]:
        if (folder / pm25.FILE).is_file():
            return folder
    return None


@pytest.mark.skipif(real_folder() is None, reason="the archive's file is not on this machine")
class TestTheArchivesFile:
    def test_the_papers_reading(self) -> None:
        windows = pm25.load(real_folder())
        assert windows.X.shape == (1680, 36)
        assert [len(part) for part in windows.split()] == [1008, 336, 336]
        assert round(float(windows.Y["event"].mean()), 4) == 0.5226
        assert np.bincount(windows.Y["regime"].astype(int)).tolist() == [350, 444, 455, 431]
        assert len(windows.dropped) == 145
        assert all(not np.isnan(y).any() for y in windows.Y.values())
        assert np.isfinite(windows.X).all()

    def test_the_strict_reading(self) -> None:
        assert len(pm25.load(real_folder(), gaps="strict")) == 1671

    def test_the_table(self) -> None:
        frame = pm25.load_frame(real_folder())
        assert len(frame) == 43_824
        assert frame["pm2.5"].isna().sum() == 2_067

    def test_rolling_origins(self) -> None:
        splits = pm25.load(real_folder()).rolling_origins()
        assert [len(split.train) for split in splits] == [672, 840, 1008, 1176, 1344]
        assert all(len(split.valid) == len(split.test) == 168 for split in splits)

    def test_the_way_it_comes_from_the_archive(self, site: tuple[Path, str], cache: Path) -> None:
        folder = real_folder()
        assert folder is not None
        (site[0] / "data.zip").write_bytes(as_zip((folder / pm25.FILE).read_bytes()))
        assert len(pm25.load(url=f"{site[1]}/data.zip")) == 1680
