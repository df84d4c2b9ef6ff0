r"""A mountain river's daily runoff, 1980 to 2010: station 13331500, with weather and snow.

Source: github.com/Hydrology-IFH/diag-eff (GPL-3), a catchment of the CAMELS collection. 11,049
days without gaps: observed runoff, precipitation, snow water equivalent, rain plus melt, potential
and actual evapotranspiration (mm, mm a day), air temperature (degrees C), and the runoff that a
process model simulates from the weather of the same day.

A window knows all columns up to its day t. The simulated runoff of later days is no input: it is
driven by weather that is observed only then. Questions about the runoff three days ahead: its
logarithm; whether there is a flood, more than 6 mm a day; its band, cut at 0.5, 1, 2 and 5 mm a
day. The thresholds are round numbers: 6 is exceeded on about 6 of 100 days before 1999.
"""

from __future__ import annotations

import os

import pandas as pd

from scrollmt.corpora.located import located
from scrollmt.inputs import calendar, current, lags
from scrollmt.observables import Observable, at_lead
from scrollmt.windows import Windowing, Windows

FILE = "river_13331500.txt.gz"
HISTORY, LEAD = 15, 3
UNITS = "mm/day"
COLUMNS = {
    "OBS_RUN": "runoff",
    "MOD_RUN": "simulated",
    "PRCP": "precipitation",
    "TAIR": "temperature",
    "SWE": "snow",
    "RAIM": "rain_and_melt",
    "PET": "potential_evaporation",
    "ET": "evaporation",
}
QUESTIONS: dict[str, Observable] = {
    "runoff": at_lead("runoff", units=UNITS).log(),
    "flood": at_lead("runoff", units=UNITS) > 6,
    "band": at_lead("runoff", units=UNITS).bands([0.5, 1, 2, 5]),
}
_DAYS = (0, 1, 2, 3, 5, 7, 14)
INPUTS = (
    lags("runoff", _DAYS).log(),
    lags("simulated", _DAYS[:4]).log(),
    lags("precipitation", _DAYS[:5]),
    lags("temperature", _DAYS[:5]),
    lags("snow", (0, 1, 7)),
    lags("rain_and_melt", _DAYS[:4]),
    current("potential_evaporation", "evaporation"),
    calendar("dayofyear"),
)


def load(path: str | os.PathLike[str] | None = None) -> Windows:
    """The windows of the questions above, one a day; ``path`` as in ``load_frame``."""
    return Windowing(history=HISTORY, lead=LEAD, stride=1).cut(load_frame(path), QUESTIONS, INPUTS)


def load_frame(path: str | os.PathLike[str] | None = None) -> pd.DataFrame:
    """The daily table, indexed by time; columns as in ``COLUMNS``, a missing number as NaN.

    ``path`` is the file or a folder that holds it. Without it the folder is the one named by the
    environment variable SCROLLMT_DATA, or the folder ``series`` in it.
    """
    file = located(path, "series", FILE)
    frame = pd.read_csv(file, sep=r"\s+")
    lacking = [name for name in ("YR", "MNTH", "DY", *COLUMNS) if name not in frame.columns]
    if lacking:
        raise ValueError(f"{file} has no columns {lacking}; it has {list(frame.columns)}.")
    days = pd.to_datetime({"year": frame["YR"], "month": frame["MNTH"], "day": frame["DY"]})
    frame.index = pd.DatetimeIndex(days, name="time")
    frame = frame[list(COLUMNS)].rename(columns=COLUMNS).sort_index()
    # The collection marks a missing runoff by -999; no runoff is negative.
    return frame.assign(runoff=frame["runoff"].where(frame["runoff"] >= 0))
