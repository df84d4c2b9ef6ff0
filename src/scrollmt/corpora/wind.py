r"""Power of seven wind farms, hourly from July 2009, with weather forecasts by issue time and lead.

Source: the wind track of GEFCom2012, through github.com/snunez1/temus. Power is a share of the
farm's capacity in [0, 1], zero in a tenth to a quarter of all hours. Forecasts of the wind at the
farm (u, v, speed, direction) are issued at 0 and 12 h for leads of 1 to 48 h.

A window with origin t knows the power up to t and, for the target t + 24 h, the forecast of the
newest issue at or before t: no issue after t is read. Questions about one farm:

    power   the share at t + 24 h, a value that is censored at 0 and 1 (see ``heads``)
    ramp    whether it differs by more than 0.2 from that six hours earlier, at t + 18 h
    band    the share at t + 24 h, cut at 0.05, 0.25 and 0.6

The first 13,176 hours (to the end of 2010) are complete and are what ``load`` takes; later on 48 of
each 84 hours are missing. Windows start every three hours.
"""

from __future__ import annotations

import os

import numpy as np
import pandas as pd

from scrollmt.corpora.located import located
from scrollmt.heads import AbstractHead, Censored
from scrollmt.inputs import calendar, current, lags
from scrollmt.observables import Observable, at_lead
from scrollmt.windows import Windowing, Windows

POWER_FILE = "wind_power.csv.gz"
FARMS = range(1, 8)
LIMITS = (0.0, 1.0)
HISTORY, LEAD, RAMP_HOURS, STRIDE = 19, 24, 6, 3
LONGEST_LEAD = 48
COMPLETE_UNTIL = pd.Timestamp("2010-12-31 23:00")
WEATHER = ("u", "v", "ws", "wd")
QUESTIONS: dict[str, Observable] = {
    "power": at_lead("power", units="of capacity"),
    "ramp": at_lead("change", units="of capacity") > 0.2,
    "band": at_lead("power", units="of capacity").bands([0.05, 0.25, 0.6]),
}
_FORECASTS = ("u", "v", "speed", "speed_cubed")
INPUTS = (
    lags("power", (0, 1, 2, 3, 6, 12, 18)),
    current(*(f"{name}_{ahead}h" for ahead in (18, 21, 24) for name in _FORECASTS)),
    current("issued_ago"),
    calendar("hour", "dayofyear"),
)


def heads(windows: Windows) -> dict[str, AbstractHead]:
    """The heads of the questions, with the value censored at the limits of a share."""
    return {**windows.heads, "power": Censored(*LIMITS)}


def load(
    path: str | os.PathLike[str] | None = None,
    *,
    farm: int = 1,
    until: pd.Timestamp = COMPLETE_UNTIL,
    stride: int = STRIDE,
) -> Windows:
    """The windows of one farm; fit them with ``Forecaster(heads(windows), recipe=...)``."""
    frame = load_frame(path, farm=farm).loc[:until]
    return Windowing(history=HISTORY, lead=LEAD, stride=stride).cut(frame, QUESTIONS, INPUTS)


def load_frame(path: str | os.PathLike[str] | None = None, *, farm: int = 1) -> pd.DataFrame:
    """The hourly table of one farm, indexed by time, gaps as NaN.

    - ``power``; ``change``, by how much it differs from that six hours earlier.
    - ``u_24h``, ``v_24h``, ``speed_24h``, ``speed_cubed_24h`` (and for 18 and 21 h): what the
      newest issue at or before t says of the wind at t + 24 h.
    - ``issued_ago``: hours since that issue.

    ``path`` is a folder that holds the files. Without it the folder is the one named by the
    environment variable SCROLLMT_DATA, or the folder ``series`` in it.
    """
    if farm not in FARMS:
        raise ValueError(f"There is no farm {farm!r}; farms are numbered 1 to {max(FARMS)}.")
    power = load_power(path)[f"wp{farm}"]
    frame = pd.DataFrame({"power": power, "change": (power - power.shift(RAMP_HOURS)).abs()})
    forecasts = load_forecasts(path, farm=farm)
    for ahead in (18, 21, 24):
        known = newest_issue(forecasts, frame.index, ahead)
        frame[f"u_{ahead}h"], frame[f"v_{ahead}h"] = known["u"], known["v"]
        frame[f"speed_{ahead}h"] = known["ws"]
        # The power in moving air grows with the cube of its speed.
        frame[f"speed_cubed_{ahead}h"] = known["ws"] ** 3
        frame["issued_ago"] = known["issued_ago"]
    return frame


def load_power(path: str | os.PathLike[str] | None = None) -> pd.DataFrame:
    """Power of all farms, wp1 to wp7, on an unbroken hourly index, gaps as NaN."""
    frame = pd.read_csv(located(path, "series", POWER_FILE))
    frame.index = _times(frame.pop("date"))
    hours = pd.date_range(frame.index[0], frame.index[-1], freq="h", name="time")
    return frame.reindex(hours)


def load_forecasts(
    path: str | os.PathLike[str] | None = None, *, farm: int = 1
) -> dict[str, pd.DataFrame]:
    """Forecasts of a farm: for each of ``WEATHER`` a table of issue times by leads in hours."""
    frame = pd.read_csv(located(path, "series", f"wind_forecast_{farm}.csv.gz"))
    frame["issue"] = _times(frame["date"])
    return {name: frame.pivot(index="issue", columns="hors", values=name) for name in WEATHER}


def newest_issue(
    forecasts: dict[str, pd.DataFrame], times: pd.DatetimeIndex, ahead: int
) -> pd.DataFrame:
    """For every t the forecast for t + ``ahead`` h of the newest issue at or before t.

    NaN where that issue does not reach so far, or has no number there.
    """
    issues = pd.DatetimeIndex(next(iter(forecasts.values())).index)
    which = issues.searchsorted(times, side="right") - 1
    ago = np.asarray((times - issues[np.maximum(which, 0)]) / pd.Timedelta("1h"))
    leads = np.where((which >= 0) & (ago + ahead <= LONGEST_LEAD), ago + ahead, 0).astype(int)
    known = {"issued_ago": np.where(leads > 0, ago, np.nan)}
    for name, table in forecasts.items():
        values = table.reindex(columns=range(LONGEST_LEAD + 1)).to_numpy()
        known[name] = values[np.maximum(which, 0), leads]
    return pd.DataFrame(known, index=times)


def _times(dates: pd.Series) -> pd.DatetimeIndex:
    return pd.DatetimeIndex(pd.to_datetime(dates.astype(str), format="%Y%m%d%H"), name="time")
