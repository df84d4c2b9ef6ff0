"""Tables, labels, series and settings as strangers hand them over: right, or refused in a sentence.

Every row and column carries its own name in its values, so that a wrong match is seen at once. A
handful of cases runs here; for as many as you like:

    SCROLLMT_FUZZ_EXAMPLES=2500 pytest tests/test_fuzz_api.py
"""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jaxtyping
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import xarray
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scrollmt import Event, Forecaster, Gaussian, Ordinal, Windowing, at_lead, lags, over_window
from scrollmt._fitting import training
from scrollmt.windows import Windows
from small import TINY, assert_same, numbers, tables, tiny

EXAMPLES = int(os.environ.get("SCROLLMT_FUZZ_EXAMPLES", "60"))
fuzz = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    derandomize=EXAMPLES == 60,
    suppress_health_check=list(HealthCheck),
)
COLUMNS = ["a", "b", "c"]
ODD: list[Any] = [
    *(
        None,
        np.nan,
        np.inf,
        -1,
        10**400,
        1e308,
        1j,
        "x",
        "",
        b"\xff",
        True,
        [1],
        {"a": 1},
        object(),
    ),
    *(pd.NA, pd.NaT, pd.Timestamp("2024-01-01"), np.float32(3.5), np.array([1.0, 2.0])),
]


@pytest.fixture(autouse=True)
def _as_users_have_it() -> Iterator[None]:
    """Without the tests' checker of types, which users do not have either."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@contextmanager
def refused_or_right() -> Any:
    """A complaint is a ValueError or TypeError of one sentence; warnings are none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (ValueError, TypeError) as error:
        said = str(error).strip()
        if len(said) < 15 or "\n" in said or "jaxtyping" in type(error).__module__:
            raise AssertionError(f"not a sentence of our own: {error!r}") from error


@pytest.fixture(scope="module")
def fitted() -> Forecaster:
    return tiny().fit(*tables())


def frames(table: pd.DataFrame) -> dict[str, Callable[[], Any]]:
    """One table as every library has it."""
    columns = {name: table[name].to_numpy() for name in table}
    return {
        "pandas": lambda: table,
        "polars": lambda: pl.DataFrame(columns),
        "pyarrow": lambda: pa.table(columns),
        "mapping": lambda: columns,
        "dataset": lambda: xarray.Dataset({name: ("row", v) for name, v in columns.items()}),
        "array": lambda: xarray.DataArray(
            table.to_numpy(), dims=("row", "column"), coords={"column": list(table)}
        ),
    }


# Inputs


@pytest.mark.slow
@fuzz
@given(
    order=st.permutations(COLUMNS),
    library=st.sampled_from(["pandas", "polars", "pyarrow", "mapping", "dataset", "array"]),
    rows=st.integers(1, 16),
    dtype=st.sampled_from(["float64", "float32", "int64", "Float64", "object", "string"]),
    change=st.sampled_from(["none", "none", "drop", "add", "rename", "odd", "index"]),
    odd=st.sampled_from(ODD),
    where=st.integers(0, 15),
)
def test_inputs_are_matched_by_name_or_refused(
    fitted: Forecaster,
    order: list[str],
    library: str,
    rows: int,
    dtype: str,
    change: str,
    odd: Any,
    where: int,
) -> None:
    # Eighths are exact in every type.
    parts = 1 if dtype == "int64" else 8
    X = (parts * tables(16, seed=3)[0].iloc[:rows]).round() / parts
    expected = numbers(fitted, X)
    with refused_or_right():
        given_as = X[order].astype(dtype)
        if change == "drop":
            given_as = given_as.drop(columns=order[0])
        elif change == "add":
            given_as = given_as.assign(more=1.0)
        elif change == "rename":
            given_as = given_as.rename(columns={order[0]: "A"})
        elif change == "odd":
            given_as = given_as.astype(object)
            given_as.iat[where % rows, 0] = odd
        elif change == "index":
            given_as.index = pd.Index(np.arange(rows)[::-1])
        try:
            handed = frames(given_as)[library]()
        except (ValueError, TypeError, OverflowError, pa.ArrowException, pl.exceptions.PolarsError):
            return  # what a library cannot hold cannot be handed over
        found = numbers(fitted, handed)
        if change == "odd":
            # A number that was read is that number.
            X = X.astype(float)
            X.loc[where % rows, order[0]] = float(odd)
            expected = numbers(fitted, X)
        else:
            assert change in ("none", "index"), change
        assert_same(found, expected)


# Labels and weights


def labelled(index: pd.Index | None, values: np.ndarray) -> Any:
    return values if index is None else pd.Series(values, index=index)


INDEXES = st.sampled_from(["none", "range", "dates", "shuffled", "texts", "late", "double"])


def index_of(kind: str, n: int, turn: int) -> pd.Index | None:
    dates = pd.date_range("2024-01-01", periods=n)
    return {
        "none": None,
        "range": pd.RangeIndex(n),
        "dates": dates[np.roll(np.arange(n), turn)],
        "shuffled": pd.Index(np.roll(np.arange(n), 7 + turn)),
        "texts": pd.Index([f"r{k}" for k in np.roll(np.arange(n), turn)]),
        "late": pd.RangeIndex(100 + turn, 100 + turn + n),
        "double": pd.Index(np.roll(np.arange(n) // 2, turn)),
    }[kind]


@fuzz
@given(
    kinds=st.tuples(INDEXES, INDEXES, INDEXES),
    turns=st.tuples(*[st.integers(0, 2)] * 3),
    form=st.sampled_from(["mapping", "frame", "polars"]),
    order=st.permutations(["state", "event"]),
)
def test_labels_and_weights_stay_with_their_rows_or_are_refused(
    kinds: tuple[str, str, str], turns: tuple[int, int, int], form: str, order: list[str]
) -> None:
    n = 60
    mark = np.arange(n, dtype=float)
    x_index, y_index, w_index = (index_of(k, n, t) for k, t in zip(kinds, turns, strict=True))
    X = pd.DataFrame({"a": mark, "b": -mark}, index=x_index)
    columns = {"state": mark + 0.25, "event": (mark % 2).astype(int)}
    Y: Any = {name: labelled(y_index, columns[name]) for name in order}
    if form == "frame":
        Y = pd.DataFrame(Y)
    elif form == "polars":
        Y, y_index = pl.DataFrame({name: columns[name] for name in order}), None
    weight = labelled(w_index, 1.0 + mark)
    model = Forecaster({"state": Gaussian(), "event": Event()}, preset=TINY)
    plain = pd.RangeIndex(n)
    given_indexes = [i for i in (x_index, y_index, w_index) if i is not None]
    labels = [i for i in given_indexes if not i.equals(plain)]
    with refused_or_right():
        ready = model._ready(X if x_index is not None else X.to_numpy(), Y, weight)
        for part in (ready.fitted, ready.judged):
            np.testing.assert_array_equal(part.labels["state"], part.x[:, 0] + 0.25)
            np.testing.assert_array_equal(part.labels["event"], part.x[:, 0] % 2)
            np.testing.assert_array_equal(part.weights["state"], part.x[:, 0] + 1.0)
        # Whatever passed had no two indexes that tell rows apart and disagree.
        assert all(one.equals(labels[0]) for one in labels), kinds


# Series


@fuzz
@given(
    rows=st.integers(1, 60),
    step=st.sampled_from(["1h", "15min", "1D", "7h", "number", "row"]),
    disorder=st.sampled_from(["none", "none", "drop", "swap", "double", "nat"]),
    zone=st.sampled_from([None, "UTC", "Europe/Berlin"]),
    form=st.sampled_from(["index", "column", "text", "polars", "mapping"]),
    history=st.integers(1, 6),
    lead=st.integers(1, 6),
    stride=st.sampled_from([None, 1, 3, 24]),
    fill_limit=st.integers(0, 2),
    holes=st.lists(st.integers(0, 59), max_size=6),
    at=st.integers(0, 59),
)
def test_windows_hold_the_cells_that_they_name_or_are_refused(
    rows: int,
    step: str,
    disorder: str,
    zone: str | None,
    form: str,
    history: int,
    lead: int,
    stride: int | None,
    fill_limit: int,
    holes: list[int],
    at: int,
) -> None:
    x = np.arange(rows, dtype=float)
    lost = [h for h in holes if h < rows]
    seen = x.copy()
    seen[lost] = np.nan
    if step == "number":
        time: Any = pd.Index(0.5 * np.arange(rows))
    elif step == "row":
        time = pd.RangeIndex(rows)
    else:
        time = pd.date_range("2024-03-30", periods=rows, freq=step, tz=zone)
    frame = pd.DataFrame({"x": seen, "time": time})
    if disorder == "drop" and rows > 3:
        frame = frame.drop(index=at % rows)
    elif disorder == "swap" and rows > 1:
        frame = frame.iloc[::-1]
    elif disorder == "double":
        frame = pd.concat([frame, frame.iloc[[at % rows]]])
    elif disorder == "nat":
        frame["time"] = frame["time"].astype(object)
        frame.iloc[at % rows, 1] = None
    questions = {"state": at_lead("x"), "event": over_window("x").mean() > rows / 2}
    windowing = Windowing(history=history, lead=lead, stride=stride, fill_limit=fill_limit)
    with refused_or_right():
        name: Any = "time"
        table: Any = frame
        if form == "index":
            table, name = frame.set_index("time"), None
        elif form == "text":
            table = frame.assign(time=frame["time"].astype(str))
        elif form == "polars":
            table = pl.from_pandas(frame.reset_index(drop=True))
        elif form == "mapping":
            table = {column: frame[column].to_numpy() for column in frame}
        cut = windowing.cut(table, questions, [lags("x")], time=name)
        _check_cells(cut, history, lead)


def _check_cells(cut: Windows, history: int, lead: int) -> None:
    """The value of x is its own row number, and filled cells lie on the line between."""
    for n in range(len(cut)):
        last = cut.X[n, -1]
        np.testing.assert_allclose(cut.X[n], last - np.arange(history)[::-1], atol=1e-9)
        assert cut.values["state"][n] == pytest.approx(last + lead)
        assert cut.values["event"][n] == pytest.approx(last + (lead + 1) / 2)
        earlier = cut.past["persistence"]["state"][n]
        assert np.isnan(earlier) or earlier == pytest.approx(last)
    assert (np.diff(cut.rows) > 0).all()


# Settings


SETTINGS: dict[str, list[Any]] = {
    "preset": ["default", "quick", "x", 3, None, TINY],
    "steps": [None, 1, 0, -3, 1.5, "9", 10**400],
    "patience": [None, 1, 0, "x", [1]],
    "belief": ["diag", "full", "none", "x", 3, None, ["diag"]],
    "joint": [None, ["state"], ["state", "other"], 3, "state", [["state", "event"]], [[]]],
    "backbone": ["select", "tanh", "x", 3, None, lambda: None, lambda x: x],
    "validation": [0.2, 0, 1, -1, "x", None, (1,), (None, None), np.ones((3, 3)), {}],
    "refit": [False, True],
    "calibrate": ["none", "isotonic", "conformal", "x", 3, None],
    "seed": [0, -1, 1.5, None, "x", 2**40, np.int64(3)],
    "ensemble": [1, 0, None, 1.5, "x"],
    "seeds": [None, [], 5, [1, 1], ["x"], "12"],
}


@fuzz
@given(
    changes=st.lists(st.sampled_from(list(SETTINGS)), min_size=1, max_size=3, unique=True),
    picks=st.lists(st.integers(0, 9), min_size=3, max_size=3),
    tasks=st.sampled_from(
        [{"state": Gaussian()}, {}, None, 3, {"state": Gaussian}, {3: Gaussian()}, ["state"]]
    ),
)
def test_settings_are_taken_or_refused_before_anything_is_trained(
    changes: list[str], picks: list[int], tasks: Any
) -> None:
    chosen = {
        name: SETTINGS[name][pick % len(SETTINGS[name])]
        for name, pick in zip(changes, picks, strict=False)
    }
    X, Y = tables()
    model = Forecaster(tasks, **{"preset": TINY, **chosen})
    with refused_or_right():
        model._seeds()
        heads, preset, _ = training.settings_of(model)
        model._ready(X, {name: Y[name] for name in heads}, None)
        assert preset.schedule.steps >= 1


@fuzz
@given(
    history=st.sampled_from([1, 24, 0, -1, 1.5, None, "x", True]),
    lead=st.sampled_from([1, 0, None, "x", [1], 2.5]),
    leads=st.sampled_from([None, None, [1, 2], 3, [], "12", [1, 1], [0], [1.5], np.array([1, 2])]),
    stride=st.sampled_from([None, 1, 0, "x", 1.5]),
    inputs=st.sampled_from([None, ["x"], "x", [], [lags("x")], 3, [None], lags("x")]),
    column=st.sampled_from(["x", "y", 3, None, ""]),
)
def test_windowings_are_taken_or_refused(
    history: Any, lead: Any, leads: Any, stride: Any, inputs: Any, column: Any
) -> None:
    frame = {"x": np.arange(60.0)}
    with refused_or_right():
        windowing = Windowing(history=history, lead=lead, leads=leads, stride=stride)
        cut = windowing.cut(frame, {"state": at_lead(column)}, inputs)
        assert len(cut) > 0


# Laws


@fuzz
@given(
    y=st.sampled_from([0, 1, 1.5, -1, None, np.nan, np.inf, "x", [0] * 16, [0] * 3, 10**400, b"x"]),
    p=st.sampled_from([0.5, 0, 1, -1, 2, None, "x", [0.1, 0.9], [[0.5]], np.nan, 10**400]),
    n=st.sampled_from([0, 1, 3, -1, None, "x", 1.5, True, jax.random.key(0)]),
    task=st.sampled_from(["state", "event", "regime"]),
    ask=st.sampled_from(["log_prob", "cdf", "sf", "quantile", "interval", "sample", "row"]),
)
def test_laws_answer_or_refuse(
    fitted: Forecaster, y: Any, p: Any, n: Any, task: str, ask: str
) -> None:
    law: Any = fitted.predict(tables(16, seed=3)[0])[task]
    if not hasattr(law, ask) and ask != "row":
        return
    with refused_or_right():
        if ask == "row":
            try:
                assert len(law[y]) <= 16
            except IndexError:
                return
        elif ask == "sample":
            assert law.sample(n, seed=0).shape == (n, 16)
        elif ask in ("quantile", "interval"):
            found = np.asarray(getattr(law, ask)(p))
            assert not np.isnan(found).any()
        else:
            found = getattr(law, ask)(y)
            assert found.shape == (16,)
            assert (found[~np.isnan(found)] <= (np.inf if ask == "log_prob" else 1.0)).all()


def test_the_oracle_of_the_fuzz_sees_a_wrong_match(fitted: Forecaster) -> None:
    """Columns in another order, without their names, give other numbers: what must never happen."""
    X = tables(16, seed=3)[0]
    with pytest.raises(AssertionError):
        assert_same(numbers(fitted, X[["b", "a", "c"]].to_numpy()), numbers(fitted, X))
    assert Ordinal(3).classes == 3
