r"""The German day-ahead power price, hourly 2015 to 2020, with forecasts known beforehand.

Source: github.com/gmarcjasz/distributionalnn (GPL-3). For every hour t (52,608 rows) the file has
the price in EUR/MWh, the transmission operators' day-ahead forecasts of load and of wind and solar
power in MW for that hour, and daily closing prices of emission rights, coal, gas and oil.

The price of every hour of a day is set at noon of the day before. So for the target t + 24 h these
are known, and nothing else is used:

    price       up to t: the hour t lies on the day before the target and was sold a day earlier
    forecasts   of load and renewables for t + 24 h, published before the auction
    fuels       of the day before t, as in the source's own models (two days before the target)

Questions (all about the price at t + 24 h): its value; whether it is negative; whether it is over
100; its band, cut at 20, 30, 40 and 50 EUR/MWh. The edges are round numbers; of the prices of 2015
to 2017, 15, 46, 79 and 93 percent lie below them. Windows start every five hours, out of step with
the day and the week.
"""

from __future__ import annotations

import os

import pandas as pd

from scrollmt.corpora.located import located
from scrollmt.inputs import calendar, current, lags
from scrollmt.observables import Observable, at_lead
from scrollmt.windows import Windowing, Windows

FILE = "de_price.csv.gz"
LEAD = 24
STRIDE = 5
UNITS = "EUR/MWh"
COLUMNS = {
    "Price": "price",
    "Load_DA_Forecast": "load_forecast",
    "Renewables_DA_Forecast": "renewables_forecast",
    "EUA": "emissions",
    "API2_Coal": "coal",
    "TTF_Gas": "gas",
    "Brent_oil": "oil",
}
QUESTIONS: dict[str, Observable] = {
    "price": at_lead("price", units=UNITS),
    "negative": at_lead("price", units=UNITS) < 0,
    "over_100": at_lead("price", units=UNITS) > 100,
    "band": at_lead("price", units=UNITS).bands([20, 30, 40, 50]),
}
# The hour of the target on each of the seven days before it, and the hours just before t.
_PRICES = (0, 1, 2, 3, 6, 12, 24, 48, 72, 96, 120, 144)
INPUTS = (
    lags("price", _PRICES),
    current("load_ahead", "renewables_ahead", "load_forecast", "renewables_forecast"),
    *(lags(fuel, [24]) for fuel in ("emissions", "coal", "gas", "oil")),
    calendar("hour", "weekday", "dayofyear"),
)


def load(path: str | os.PathLike[str] | None = None, *, stride: int = STRIDE) -> Windows:
    """The windows of the questions above; ``path`` as in ``load_frame``."""
    return windows_of(load_frame(path), stride=stride)


def windows_of(frame: pd.DataFrame, *, stride: int = STRIDE) -> Windows:
    """Windows of such a table; the forecasts for t + 24 h are read at t, where they are known."""
    ahead = {
        "load_ahead": frame["load_forecast"].shift(-LEAD),
        "renewables_ahead": frame["renewables_forecast"].shift(-LEAD),
    }
    windowing = Windowing(history=max(_PRICES) + 1, lead=LEAD, stride=stride)
    return windowing.cut(frame.assign(**ahead), QUESTIONS, INPUTS)


def load_frame(path: str | os.PathLike[str] | None = None) -> pd.DataFrame:
    """The hourly table, indexed by time; columns as in ``COLUMNS``.

    ``path`` is the file or a folder that holds it. Without it the folder is the one named by the
    environment variable SCROLLMT_DATA, or the folder ``series`` in it.
    """
    file = located(path, "series", FILE)
    frame = pd.read_csv(file, index_col=0)
    lacking = [column for column in COLUMNS if column not in frame.columns]
    if lacking:
        raise ValueError(f"{file} has no columns {lacking}; it has {list(frame.columns)}.")
    frame.index = pd.DatetimeIndex(pd.to_datetime(frame.index), name="time")
    return frame[list(COLUMNS)].rename(columns=COLUMNS).sort_index()
