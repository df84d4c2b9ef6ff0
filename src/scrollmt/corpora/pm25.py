r"""Beijing PM2.5, hourly 2010 to 2014 (UCI archive, data set 381): the corpus of real windows.

At 23:00 of each day (history = lead = stride = 24 hours) the paper asks

    state   log(1 + PM2.5) at t + 24 h
    event   whether the mean of PM2.5 over (t, t + 24 h] is above 75 ug/m3
    regime  PM2.5 at t + 24 h, cut at 35, 75, 150 ug/m3

from 36 inputs: 24 lags of log(1 + PM2.5), six weather values, four wind indicators and the month's
sine and cosine. X is (N, 36); N = 1,680 with ``gaps="paper"``, 1,671 with ``gaps="strict"``. The
paper's words fit the strict rule, its count the other one (see ``scrollmt._data.series`` for both).
"""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

import pandas as pd
import pooch  # type: ignore[import-untyped]

from scrollmt._data.series import GapRule
from scrollmt._io.atomic import replacing
from scrollmt.corpora.located import FOLDER_VARIABLE
from scrollmt.inputs import calendar, current, lags, one_hot
from scrollmt.observables import Observable, at_lead, over_window
from scrollmt.windows import Windowing, Windows

FILE = "PRSA_data_2010.1.1-2014.12.31.csv"
SHA256 = "4127f868775e31b3956522adc0ec75af8937dde6a3896e8beed3a376c6d27f1c"
URL = "https://archive.ics.uci.edu/static/public/381/beijing+pm2+5+data.zip"

UNITS = "ug/m3"
QUESTIONS: dict[str, Observable] = {
    "state": at_lead("pm2.5", units=UNITS).log1p(),
    "event": over_window("pm2.5", units=UNITS).mean() > 75,
    "regime": at_lead("pm2.5", units=UNITS).bands([35, 75, 150]),
}
INPUTS = (
    lags("pm2.5").log1p(),
    current("DEWP", "TEMP", "PRES", "Iws", "Is", "Ir"),
    one_hot("cbwd", ["NE", "NW", "SE", "cv"]),
    calendar("month"),
)
_COLUMNS = ("year", "month", "day", "hour", "pm2.5", "DEWP", "TEMP", "PRES", "cbwd")


def load(
    path: str | os.PathLike[str] | None = None,
    *,
    verify: bool = True,
    gaps: GapRule = "paper",
    url: str = URL,
) -> Windows:
    """The paper's windows; ``windows.split()`` gives its chronological 60/20/20 parts.

    See ``load_frame`` for where the file is looked for.
    """
    windowing = Windowing(history=24, lead=24, stride=24, fill_limit=6, gaps=gaps)
    return windowing.cut(load_frame(path, verify=verify, url=url), QUESTIONS, INPUTS)


def load_frame(
    path: str | os.PathLike[str] | None = None, *, verify: bool = True, url: str = URL
) -> pd.DataFrame:
    """The hourly table, indexed by time, gaps as NaN.

    ``path`` is the file or a folder that holds it. Without it the folder is the one named by the
    environment variable SCROLLMT_DATA, or the user's cache; a file that is not there yet is
    downloaded into it from ``url`` (the table itself, or a zip archive that holds it). A file
    whose sha256 is not the known one is refused; ``verify=False`` accepts it.
    """
    if path is None:
        folder = Path(os.environ.get(FOLDER_VARIABLE) or pooch.os_cache("scrollmt"))
        file = folder / FILE
        if not file.is_file():
            _download(url, file, verify)
    else:
        file = Path(path) / FILE if Path(path).is_dir() else Path(path)
        if not file.is_file():
            raise ValueError(
                f"There is no file {file}. Pass the path of {FILE} or of its folder, or no path at "
                f"all to use the folder in ${FOLDER_VARIABLE} or a download."
            )
    if verify:
        _check(file, str(file))
    frame = pd.read_csv(file)
    lacking = [column for column in _COLUMNS if column not in frame.columns]
    if lacking:
        raise ValueError(f"{file} has no columns {lacking}; it has {list(frame.columns)}.")
    frame.index = pd.DatetimeIndex(
        pd.to_datetime(frame[["year", "month", "day", "hour"]]), name="time"
    )
    return frame.drop(columns=["No", "year", "month", "day", "hour"], errors="ignore")


def _download(url: str, file: Path, verify: bool) -> None:
    """Fetch the table into ``file``; nothing is left there unless it is the right one."""
    # The archive's zip is packed anew from time to time, so the hash that counts is the table's.
    with replacing(file) as draft:
        fetched = draft.with_name("fetched")
        try:
            pooch.HTTPDownloader()(url, str(fetched), None)
        except OSError as error:
            raise OSError(
                f"Cannot download {url} ({error}). Fetch {FILE} by other means and pass its path, "
                f"or put it in the folder named by ${FOLDER_VARIABLE}."
            ) from error
        if zipfile.is_zipfile(fetched):
            with zipfile.ZipFile(fetched) as archive:
                found = [name for name in archive.namelist() if Path(name).name == FILE]
                if not found:
                    raise ValueError(f"{url} holds {archive.namelist()}, but no {FILE}.")
                fetched = draft.with_name("table.csv")
                with archive.open(found[0]) as packed, fetched.open("wb") as table:
                    shutil.copyfileobj(packed, table)
        if verify:
            _check(fetched, url)
        fetched.rename(draft)


def _check(file: Path, source: str) -> None:
    found = pooch.file_hash(str(file), alg="sha256")
    if found != SHA256:
        raise ValueError(
            f"{source} is not the known PM2.5 table: its sha256 is {found}, expected {SHA256}. "
            "Remove the file to fetch it again, or pass verify=False to read it all the same; "
            "counts and scores may then differ from those published."
        )
