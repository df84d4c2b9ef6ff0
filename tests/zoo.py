"""Awkward files, each a small generator: what people export, copy together and forget to clean.

Most are one hourly series in disguise, so that the fits share compiled programs. A case says what
`scrollmt init` has to make of the file: the sentence that refuses it, or facts that would be
wrong if the file were misread.
"""

import io
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

# Text, bytes, or a frame that is written as CSV.
Content = Any
HOURS = 300
# The last row of the hourly series, where its forecasts start.
NEWEST = "2023-01-13T11:00:00"
# Where all values of the hourly series lie; a misread decimal mark leads far out.
RANGE = (20.0, 80.0)


@dataclass(frozen=True)
class Case:
    """A file, how `init` is called on it, and what must come of it."""

    make: Callable[[], Content]
    options: tuple[str, ...] = ()
    # The sentence with which init refuses the file, in part; None where a config must be written.
    refused: str | None = None
    asks: str = "load"
    step: str | None = "1h"
    newest: str | None = NEWEST
    between: tuple[float, float] | None = RANGE
    # The column that a table is asked about has no time: neither forecast nor backtest.
    table: bool = False
    # Parts of the config, and of what init says beside it.
    writes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    # Later verbs that refuse, with a part of what they say.
    later: dict[str, str] = field(default_factory=dict)
    report: bool = False

    @property
    def raw(self) -> bytes:
        content = self.make()
        if isinstance(content, pd.DataFrame):
            content = content.to_csv(index=False)
        return content.encode() if isinstance(content, str) else content


CASES: dict[str, Case] = {}


def case(**facts: Any) -> Callable[[Callable[[], Content]], Callable[[], Content]]:
    def register(make: Callable[[], Content]) -> Callable[[], Content]:
        CASES[make.__name__] = Case(make, **facts)
        return make

    return register


def hourly(hours: int = HOURS, start: str = "2023-01-01", seed: int = 0) -> pd.DataFrame:
    """A load with a daily course."""
    rng = np.random.default_rng(seed)
    t = np.arange(hours)
    load = 50 + 10 * np.sin(2 * np.pi * t / 24) + 2 * rng.normal(size=hours)
    times = pd.date_range(start, periods=hours, freq="h")
    return pd.DataFrame({"time": times, "load": load.round(2)})


def texts(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.astype(str)


def local(start: str) -> pd.DataFrame:
    """The series on clocks of Berlin, without their offset."""
    times = pd.date_range(start, periods=HOURS, freq="h", tz="Europe/Berlin")
    return hourly().assign(time=times.tz_localize(None))


def table(rows: int = 120) -> pd.DataFrame:
    """Rows without a time: two inputs and what depends on them."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, rows)).round(3)
    return pd.DataFrame({"a": a, "b": b, "y": (a - b + 0.3 * rng.normal(size=rows)).round(3)})


# ---- plain series ------------------------------------------------------------------------------


@case(writes=('parts = ["hour"]', "# stride ="), report=True)
def hourly_load() -> Content:
    return hourly()


@case(
    asks="sales",
    step="1D",
    newest="2023-10-26T00:00:00",
    between=(0.0, 200.0),
    writes=('parts = ["weekday", "month"]', "history = 14", "lead = 1"),
)
def daily_with_a_weekday_effect() -> Content:
    days = pd.date_range("2023-01-01", periods=299, freq="D")
    noise = np.random.default_rng(0).normal(size=299)
    return pd.DataFrame(
        {"day": days, "sales": (100 - 40 * (days.day_of_week > 4) + noise).round(1)}
    )


@case(
    step="1h",
    newest="2023-03-04T23:00:00",
    writes=('parts = ["hour", "weekday"]', "history = 24", "lead = 24"),
)
def nine_weeks_of_hours() -> Content:
    return hourly(63 * 24)


@case(step="10min", newest="2023-01-03T01:50:00", writes=("history = 12", "lead = 1"))
def ten_minutes() -> Content:
    return hourly().assign(time=pd.date_range("2023-01-01", periods=HOURS, freq="10min"))


@case(step="7D", newest="2028-09-24T00:00:00", writes=('parts = ["month"]',))
def weekly() -> Content:
    return hourly().assign(time=pd.date_range("2023-01-01", periods=HOURS, freq="7D"))


@case(step="1D", newest="2023-10-27T00:00:00", notes=("84 of 299 rows are absent",))
def business_days() -> Content:
    days = pd.bdate_range("2023-01-02", "2023-10-27")
    return hourly(len(days)).assign(time=days)


@case(step=None, newest="29.9", writes=('time = "t"',))
def times_that_are_numbers() -> Content:
    return hourly().assign(time=np.arange(HOURS) / 10).rename(columns={"time": "t"})


@case(refused="months are of different length")
def months() -> Content:
    return hourly(48).assign(time=pd.date_range("2019-01-01", periods=48, freq="MS"))


@case(refused="the times keep no common step")
def irregular_times() -> Content:
    minutes = np.random.default_rng(0).integers(1, 90, size=HOURS).cumsum()
    return hourly().assign(time=pd.Timestamp("2023-01-01") + pd.to_timedelta(minutes, unit="min"))


# ---- how a file is written -----------------------------------------------------------------------


@case(
    writes=('separator = ";"', 'decimal = ","', 'time_format = "%d.%m.%Y %H:%M"'),
    notes=("columns are separated by ';', decimals by ','",),
)
def semicolons_and_decimal_commas() -> Content:
    frame = hourly()
    frame["time"] = frame["time"].dt.strftime("%d.%m.%Y %H:%M")
    return frame.to_csv(index=False, sep=";", decimal=",")


@case(writes=(r'separator = "\t"',))
def tabs() -> Content:
    return hourly().to_csv(index=False, sep="\t")


@case(writes=('separator = "|"',))
def pipes() -> Content:
    return hourly().to_csv(index=False, sep="|")


@case(writes=('separator = " "', 'time = ["YR", "MNTH", "DY", "HR"]'))
def columns_of_spaces() -> Content:
    frame = hourly()
    at = frame["time"].dt
    parts = {"YR": at.year, "MNTH": at.month, "DY": at.day, "HR": at.hour}
    return pd.DataFrame(parts).assign(load=frame["load"]).to_string(index=False)


@case(between=(20_000.0, 80_000.0), writes=('decimal = ","', 'thousands = "."'))
def german_thousands() -> Content:
    frame = hourly()
    shown = [f"{1000 * v:,.1f}" for v in frame["load"]]
    swap = str.maketrans(",.", ".,")
    return texts(frame).assign(load=[v.translate(swap) for v in shown]).to_csv(index=False, sep=";")


@case(between=(20_000.0, 80_000.0), writes=('thousands = ","',))
def english_thousands_in_quotes() -> Content:
    frame = hourly()
    return texts(frame).assign(load=[f"{1000 * v:,.1f}" for v in frame["load"]])


@case(refused="set data.thousands = ',' or data.decimal = ','")
def thousands_or_decimals() -> Content:
    frame = hourly()
    shown = [f"{round(1000 * v):,}" for v in frame["load"]]
    return texts(frame).assign(load=shown)


@case(
    options=("--data", "thousands=,"),
    between=(20_000.0, 80_000.0),
    writes=('thousands = ","',),
)
def thousands_that_are_named() -> Content:
    return thousands_or_decimals()


@case(refused="writes numbers both as")
def two_kinds_of_decimals() -> Content:
    frame = texts(hourly()).assign(other=hourly(seed=1)["load"].astype(str).str.replace(".", ","))
    return frame.to_csv(index=False, sep=";")


@case()
def utf8_with_a_mark() -> Content:
    return hourly().to_csv(index=False).encode("utf-8-sig")


@case(asks="Füllstand")
def utf16() -> Content:
    frame = hourly().rename(columns={"load": "Füllstand"})
    return frame.to_csv(index=False).encode("utf-16")


@case(refused='data.encoding = "cp1252"')
def an_old_encoding() -> Content:
    return hourly().rename(columns={"load": "Füllstand"}).to_csv(index=False).encode("cp1252")


@case(options=("--data", "encoding=cp1252"), asks="Füllstand", writes=('encoding = "cp1252"',))
def an_old_encoding_that_is_named() -> Content:
    return an_old_encoding()


@case()
def empty_columns_and_rows_at_the_end() -> Content:
    lines = hourly().to_csv(index=False).splitlines()
    return "\r\n".join([*(line + ",,," for line in lines), ",,,,", ",,,,"]) + "\r\n"


@case()
def blank_rows_before_the_header() -> Content:
    return ",\n,\n\n" + hourly().to_csv(index=False)


@case(
    asks='die "Last", in\nkW [x] ü',
    writes=(r'"die \"Last\", in\nkW [x] ü"',),
    report=True,
)
def names_that_need_quotes() -> Content:
    return hourly().rename(columns={"load": 'die "Last", in\nkW [x] ü', "time": "when it was"})


@case(writes=('"Unnamed: 0"',))
def a_column_that_counts_rows() -> Content:
    return hourly().reset_index().rename(columns={"index": ""})


@case(writes=('time = "Unnamed: 0"',))
def dates_under_no_name() -> Content:
    return hourly().set_index("time").rename_axis(None).to_csv()


@case(writes=('separator = ";"',))
def a_first_line_for_excel() -> Content:
    return "sep=;\r\n" + hourly().to_csv(index=False, sep=";")


@case(refused="more than one column 'load'")
def two_columns_of_one_name() -> Content:
    return "time,load,load\n2023-01-01,1,2\n2023-01-02,3,4\n"


@case(refused="has 2 column names, but 3 cells")
def more_cells_than_names() -> Content:
    return "\n".join(["time,load", *(f"{n},2023-01-{n:02},{n}" for n in range(1, 20))])


@case(refused="no header")
def without_a_header() -> Content:
    return hourly().to_csv(index=False, header=False)


@case(refused="no rows below its header")
def only_a_header() -> Content:
    return "time,load\n"


@case(refused="cannot be read as CSV")
def nothing_at_all() -> Content:
    return ""


@case(refused="is not text in UTF-8")
def garbage() -> Content:
    return np.random.default_rng(0).bytes(2000)


@case(refused="an Excel workbook or a zip file")
def a_workbook() -> Content:
    return b"PK\x03\x04" + bytes(200)


# ---- cells -------------------------------------------------------------------------------------


@case(
    writes=('missing = ["-", "k.A."]',),
    notes=("4 cells '-' of 'load', 3 cells 'k.A.' of 'load', 1 cell '-' of 'wind'",),
    report=True,
)
def markers_of_missing_values() -> Content:
    frame = texts(hourly().assign(wind=1.0 + hourly(seed=1)["load"]))
    frame.loc[[20, 60, 61, 90], "load"] = "-"
    frame.loc[[120, 140, 160], "load"] = "k.A."
    frame.loc[200, "wind"] = "-"
    return frame


@case(refused="column 'load' holds numbers but for 2 cells such as '<5' in row 18 below the header")
def an_unknown_text_among_numbers() -> Content:
    frame = texts(hourly().assign(wind=hourly(seed=1)["load"]))
    frame.loc[[17, 40], "load"] = "<5"
    return frame


@case(options=("--data", 'missing=["<5"]'), writes=('missing = ["<5"]',))
def an_unknown_text_that_is_named() -> Content:
    return an_unknown_text_among_numbers()


@case(refused="column 'load' is infinite, first in row 31 below the header")
def infinite_values() -> Content:
    frame = hourly().assign(wind=hourly(seed=1)["load"])
    frame.loc[30, "load"] = np.inf
    return frame


@case(asks="load", writes=('# Not used: "flat"',))
def a_constant_column_first() -> Content:
    frame = hourly()
    frame.insert(1, "flat", 7.0)
    return frame


@case(asks="load", writes=('# Not used: "broken"',))
def a_column_without_any_value() -> Content:
    frame = hourly()
    frame.insert(1, "broken", np.nan)
    return frame


@case(between=None)
def one_huge_outlier() -> Content:
    frame = hourly()
    frame.loc[50, "load"] = 1e9
    return frame


@case(writes=('kind = "one_hot"', 'columns = ["site"]', '# unknown = "ignore"'))
def a_text_category() -> Content:
    return hourly().assign(site=np.random.default_rng(0).choice(["north", "south", "sea"], HOURS))


@case(writes=('columns = ["site"]',))
def a_category_of_the_last_row_alone() -> Content:
    sites = np.random.default_rng(0).choice(["north", "south"], HOURS).astype(object)
    sites[-1] = "new"
    return hourly().assign(site=sites)


@case(asks="calls", between=(0.0, 9.0), writes=('# head = "count"',))
def counts_with_many_zeros() -> Content:
    calls = np.random.default_rng(0).poisson(0.4, HOURS)
    return hourly().assign(load=calls).rename(columns={"load": "calls"})


@case(
    asks="rain",
    between=None,
    writes=("at_least = 1.0", "# Left out: rain has two values, which is an event"),
)
def a_binary_column() -> Content:
    rain = np.random.default_rng(0).integers(0, 2, HOURS)
    return hourly().assign(load=rain).rename(columns={"load": "rain"})


@case(between=None)
def numbers_in_a_wide_file() -> Content:
    rng = np.random.default_rng(0)
    others = {f"c{n}": rng.normal(size=HOURS).round(2) for n in range(200)}
    return pd.concat([hourly(), pd.DataFrame(others)], axis=1)


@case(writes=("# Not used:",), notes=())
def inputs_with_many_gaps() -> Content:
    rng = np.random.default_rng(0)
    gaps = {f"c{n}": np.where(rng.random(HOURS) < 0.1, np.nan, 1.0 * n) for n in range(30)}
    noise = pd.DataFrame(gaps) + rng.normal(size=(HOURS, 30)).round(2)
    for n in range(30):
        noise.loc[8 * n : 8 * n + 7, f"c{n}"] = np.nan
    noise.iloc[-1] = 0.0
    return pd.concat([hourly(), noise], axis=1)


# ---- times -------------------------------------------------------------------------------------


@case(writes=('time = ["year", "month", "day", "hour"]',), newest=NEWEST)
def year_month_day_hour() -> Content:
    frame = hourly()
    parts = {p: getattr(frame["time"].dt, p) for p in ("year", "month", "day", "hour")}
    number = pd.Series(np.arange(1, HOURS + 1), name="No")
    return pd.concat([number, pd.DataFrame(parts), frame[["load"]]], axis=1)


@case(writes=('time = ["date", "time"]',))
def a_date_and_a_clock() -> Content:
    frame = hourly()
    frame.insert(0, "date", frame["time"].dt.strftime("%Y-%m-%d"))
    return frame.assign(time=frame["time"].dt.strftime("%H:%M"))


@case(writes=('time = ["Datum", "Stunde"]', 'time_format = "%d.%m.%Y %H"'))
def a_german_date_and_an_hour() -> Content:
    frame = hourly()
    frame.insert(0, "Datum", frame["time"].dt.strftime("%d.%m.%Y"))
    return frame.assign(time=frame["time"].dt.hour).rename(columns={"time": "Stunde"})


@case(newest=NEWEST + "+00:00", writes=('time_format = "unix"',))
def unix_seconds() -> Content:
    frame = hourly()
    return frame.assign(time=(frame["time"] - pd.Timestamp(0)) // pd.Timedelta("1s"))


@case(newest=NEWEST + "+00:00", writes=('time_format = "unix_ms"',))
def unix_milliseconds() -> Content:
    frame = hourly()
    return frame.assign(time=(frame["time"] - pd.Timestamp(0)) // pd.Timedelta("1ms"))


@case(writes=('time_format = "%Y%m%d%H"',))
def dates_without_marks() -> Content:
    frame = hourly()
    return frame.assign(time=frame["time"].dt.strftime("%Y%m%d%H"))


@case(refused="can be read as %d/%m/%Y %H:%M or as %m/%d/%Y %H:%M")
def days_that_could_be_months() -> Content:
    frame = hourly(200)
    return frame.assign(time=frame["time"].dt.strftime("%d/%m/%Y %H:%M"))


@case(refused="data.timezone")
def an_hour_that_clocks_repeat() -> Content:
    return local("2023-10-20")


@case(
    options=("--data", "timezone=Europe/Berlin"),
    newest="2023-11-01T10:00:00+01:00",
    writes=('timezone = "Europe/Berlin"',),
    notes=("2 rows lie in the hour that clocks of Europe/Berlin repeat", "first row of each"),
    report=True,
)
def an_hour_that_clocks_repeat_in_a_zone() -> Content:
    return an_hour_that_clocks_repeat()


@case(newest="2023-04-01T11:00:00", notes=("Sunday 2023-03-26", "data.timezone"))
def an_hour_that_clocks_skip() -> Content:
    return local("2023-03-20")[:-1]


@case(newest="2023-11-01T09:00:00+00:00")
def offsets_of_summer_and_winter() -> Content:
    times = pd.date_range("2023-10-20", periods=HOURS, freq="h", tz="Europe/Berlin")
    return hourly().assign(time=[one.isoformat() for one in times])


@case(refused="times occur more than once, first 2023-01-05 03:00:00 (6 such rows)")
def repeated_times() -> Content:
    frame = hourly(HOURS)
    return pd.concat([frame, frame.iloc[99:105].assign(load=0.0)])


@case(
    options=("--data", "duplicates=first"),
    writes=('duplicates = "first"',),
    notes=("6 rows repeat a time",),
)
def repeated_times_of_which_the_first_counts() -> Content:
    return repeated_times()


@case(notes=("it was sorted by time",))
def rows_in_any_order() -> Content:
    return hourly().sample(frac=1, random_state=0)


@case(notes=("6 of 300 rows are absent",))
def absent_rows() -> Content:
    return hourly().drop(index=[50, 51, 100, 101, 150, 200])


# ---- few rows, rare events ---------------------------------------------------------------------


@case(refused="no column of numbers that vary")
def one_row() -> Content:
    return hourly(1)


@case(refused="can be learned from 2 rows")
def two_rows() -> Content:
    return hourly(2)


@case(
    newest="2023-01-01T11:00:00",
    between=None,
    writes=("history = 1", "lead = 1", "test = 0 "),
    later={
        "evaluate": "nothing that the fit has not seen",
        "report": "nothing that the fit has not seen",
        "backtest": "0 of 1 validation windows",
    },
)
def twelve_rows() -> Content:
    return hourly(12)


@case(newest="2023-01-02T05:00:00", between=None, writes=("test = 0.2",))
def thirty_rows() -> Content:
    return hourly(30)


@case(between=None)
def an_event_that_only_the_newest_part_knows() -> Content:
    frame = hourly()
    frame.loc[200:, "load"] += 100
    return frame


@case(between=None)
def an_event_that_the_newest_part_never_sees() -> Content:
    frame = hourly()
    frame.loc[:60, "load"] += 100
    return frame


@case(between=None, later={"backtest": "task 'event' shows only class 0"})
def a_trend_that_leaves_its_range() -> Content:
    frame = hourly()
    return frame.assign(load=frame["load"] + np.arange(HOURS))


@case(refused="is constant (7) in the training part")
def a_value_that_begins_to_vary_late() -> Content:
    frame = hourly()
    return frame.assign(load=np.where(frame.index < 250, 7.0, frame["load"]))


# ---- tables ------------------------------------------------------------------------------------


@case(table=True, asks="y", writes=('head = "gaussian"', 'inputs = ["a", "b"]'))
def a_table() -> Content:
    return table()


@case(table=True, asks="y", writes=('inputs = ["a"]', '# Not used: "b"'))
def a_table_with_a_missing_input() -> Content:
    frame = table()
    frame.loc[3, "b"] = np.nan
    return frame


@case(
    table=True,
    options=("--column", "state"),
    asks="state",
    writes=('head = "categorical"', 'classes = ["dry", "fog", "wet"]', 'belief = "none"'),
    report=True,
)
def classes_with_names() -> Content:
    frame = table()
    return frame.assign(state=pd.cut(frame["y"], [-9, -1, 1, 9], labels=["wet", "fog", "dry"]))


@case(
    table=True,
    options=("--column", "rain"),
    asks="rain",
    writes=('head = "event"', 'labels = ["no", "Yes"]'),
)
def yes_and_no() -> Content:
    frame = table()
    return frame.assign(rain=np.where(frame["y"] > 0, "Yes", "no"))


@case(table=True, refused="shows only class 0 in the training part")
def an_event_that_training_never_sees() -> Content:
    rare = np.zeros(60, dtype=int)
    rare[table_rows_of_the_test_part()[0]] = 1
    return table(60).assign(y=rare)


def table_rows_of_the_test_part() -> np.ndarray:
    from scrollmt.splits import random_split

    return random_split(60, 0).test


# ---- Parquet -----------------------------------------------------------------------------------


def parquet(frame: pd.DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.to_parquet(buffer)
    return buffer.getvalue()


@case(writes=('time = "time"',))
def parquet_with_its_time_in_the_index() -> Content:
    return parquet(hourly().set_index("time"))


@case(writes=('time = "index"',))
def parquet_with_periods() -> Content:
    frame = hourly().set_index("time")
    return parquet(frame.set_index(frame.index.to_period("h").rename(None)))
