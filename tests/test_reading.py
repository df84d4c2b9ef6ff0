"""What users hand over is read in every usual form, and refused by name where it makes no sense."""

import re
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse

from scrollmt import Categorical, Event, Gaussian, Ordinal
from scrollmt._data.frames import check_aligned
from scrollmt._data.reading import (
    check_columns,
    check_learnable,
    check_validation,
    hold_out,
    read_inputs,
    read_rows,
    read_targets,
    read_weights,
)
from small import TASKS, windows

GRID = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])


def messages(*parts: str) -> str:
    """A pattern that wants every part, in any order."""
    return "".join(f"(?=.*{re.escape(part)})" for part in parts)


# Inputs


@pytest.mark.parametrize(
    ("X", "names"),
    [
        (GRID, None),
        (GRID.tolist(), None),
        (GRID.astype(np.float32), None),
        (GRID.astype(np.int64), None),
        (GRID.astype(object), None),
        (np.ma.array(GRID), None),
        (jnp.asarray(GRID), None),
        (pd.DataFrame(GRID, columns=["a", "b"]), ["a", "b"]),
        (pd.DataFrame(GRID), ["0", "1"]),
        (pd.DataFrame(GRID, columns=["a", "b"]).astype("Float64"), ["a", "b"]),
        (pd.DataFrame(GRID, columns=["a", "b"]).astype({"a": "Int64", "b": "f4"}), ["a", "b"]),
        (pl.DataFrame(GRID, schema=["a", "b"]), ["a", "b"]),
        (pa.table({"a": GRID[:, 0], "b": GRID[:, 1]}), ["a", "b"]),
        ({"a": GRID[:, 0], "b": GRID[:, 1].tolist()}, ["a", "b"]),
    ],
)
def test_inputs_come_in_many_forms(X: Any, names: list[str] | None) -> None:
    values, found = read_inputs(X)
    assert values.dtype == np.float64
    np.testing.assert_array_equal(values, GRID)
    assert found == names


def test_boolean_columns_are_numbers() -> None:
    table = pd.DataFrame({"a": [True, False], "b": [0.5, 1.5], "c": pd.array([True, False])})
    np.testing.assert_array_equal(read_inputs(table)[0], [[1, 0.5, 1], [0, 1.5, 0]])


def with_value(value: Any, dtype: Any = float) -> np.ndarray:
    out = GRID.astype(dtype)
    out[1, 0] = value
    return out


@pytest.mark.parametrize(
    ("X", "says"),
    [
        (np.zeros(3), ["(3,)", "(N, D)", "reshape"]),
        (np.zeros((2, 2, 2)), ["(2, 2, 2)", "(N, D)"]),
        (np.zeros((0, 2)), ["(0, 2)", "no windows"]),
        (np.zeros((2, 0)), ["(2, 0)", "no columns"]),
        ([[1.0, 2.0], [3.0]], ["not a regular array", "inhomogeneous"]),
        ({"a": [1.0], "b": [1.0, 2.0]}, ["'a': (1,)", "'b': (2,)", "one length"]),
        (pl.DataFrame({"a": [1.0]}).lazy(), ["lazy frame", ".collect()"]),
        (pl.DataFrame({"a": [1.0], "b": ["x"]}), ["column 'b'", "dtype"]),
        (None, ["NoneType", "(N, D)"]),
        ("abc", ["str", "(N, D)"]),
        (scipy.sparse.eye(3), ["dia_matrix", "(N, D)"]),
        (np.array([["1.5", "2"]]), ["must hold numbers", "<U3"]),
        (with_value("x", object), ["must hold numbers"]),
        (np.array([[1 + 2j]]), ["Complex data not supported", "complex128"]),
        (np.array([["2020-01-01"]], "M8[D]"), ["must hold numbers", "datetime64"]),
        (with_value(np.nan), ["column 0", "NaN", "row 1", "1 such"]),
        (with_value(None, object), ["column 0", "NaN", "row 1"]),
        (with_value(np.inf), ["column 0", "inf", "row 1"]),
        (np.ma.array(GRID, mask=GRID == 4.0), ["column 1", "NaN", "row 1"]),
        (pd.DataFrame(with_value(np.nan), columns=["a", "b"]), ["column 'a'", "row 1"]),
        (pd.DataFrame({"a": pd.array([1, None, 2])}), ["column 'a'", "row 1"]),
        (pd.DataFrame({"a": [1.0], "b": ["x"]}), ["column 'b'", "dtype"]),
        (pd.DataFrame({"a": [1.0], "b": pd.Categorical([1])}), ["column 'b'", "category"]),
        (pd.DataFrame({"a": [1j]}), ["column 'a'", "complex"]),
        (pd.DataFrame({"a": pd.to_datetime(["2020-01-01"])}), ["column 'a'", "datetime"]),
        (pd.DataFrame(GRID, columns=["a", "a"]), ["['a']", "more than once"]),
        (pd.DataFrame(GRID, columns=[1, "1"]), ["['1']", "more than once"]),
    ],
)
def test_wrong_inputs_are_refused(X: Any, says: list[str]) -> None:
    with pytest.raises(ValueError, match=messages("the inputs", *says)):
        read_inputs(X, "the inputs")


def test_columns_are_matched_by_name() -> None:
    values = check_columns(GRID, ["b", "a"], 2, ["a", "b"])
    np.testing.assert_array_equal(values, GRID[:, ::-1])
    # Without names on one of the sides, position is all there is.
    np.testing.assert_array_equal(check_columns(GRID, None, 2, ["a", "b"]), GRID)
    np.testing.assert_array_equal(check_columns(GRID, ["b", "a"], 2, None), GRID)
    with pytest.raises(ValueError, match=messages("missing ['c']", "unknown ['b']")):
        check_columns(GRID, ["a", "b"], 2, ["a", "c"])
    with pytest.raises(ValueError, match=messages("(3, 2)", "(N, 5)")):
        check_columns(GRID, None, 5, None)


# Targets


@pytest.mark.parametrize(
    "column",
    [
        np.array([0.5, np.nan, 2.0]),
        [0.5, None, 2.0],
        np.array([0.5, None, 2.0], dtype=object),
        np.ma.array([0.5, 9.0, 2.0], mask=[False, True, False]),
        pd.Series([0.5, None, 2.0], index=[7, 8, 9]),
        pd.array([0.5, None, 2.0], dtype="Float64"),
        pd.Series([0.5, pd.NA, 2.0], dtype=object),
    ],
)
def test_a_missing_value_is_unseen(column: Any) -> None:
    labels, seen = read_targets({"v": column}, {"v": Gaussian()}, 3)
    np.testing.assert_array_equal(seen["v"], [True, False, True])
    np.testing.assert_array_equal(labels["v"][seen["v"]], [0.5, 2.0])
    assert np.isfinite(labels["v"]).all()


@pytest.mark.parametrize(
    "column",
    [
        [1, -1, 0],
        [1.0, np.nan, 0.0],
        [True, None, False],
        np.array([1, None, 0], dtype=object),
        np.array([True, -3, False], dtype=float),
        np.ma.array([1, 77, 0], mask=[False, True, False]),
        pd.array([1, None, 0], dtype="Int64"),
        pd.Series([True, None, False], dtype="boolean"),
        pd.Series([1, None, 0], dtype="category"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*negative and count as missing")
@pytest.mark.parametrize("head", [Event(), Ordinal(2), Categorical(2)], ids=repr)
def test_a_missing_class_is_unseen(column: Any, head: Any) -> None:
    labels, seen = read_targets({"k": column}, {"k": head}, 3)
    np.testing.assert_array_equal(seen["k"], [True, False, True])
    np.testing.assert_array_equal(labels["k"][seen["k"]], [1, 0])
    assert labels["k"].dtype == np.int32
    assert set(labels["k"]) <= {0, 1}


def test_targets_come_as_mapping_table_or_for_a_lone_task_as_they_are() -> None:
    column = np.array([0.5, 1.5])
    heads = {"v": Gaussian()}
    for Y in ({"v": column}, pd.DataFrame({"v": column}), column, [0.5, 1.5], pd.Series(column)):
        labels, seen = read_targets(Y, heads, 2)
        np.testing.assert_array_equal(labels["v"], column)
        assert seen["v"].all()


def changed(**columns: Any) -> dict[str, Any]:
    return {"state": [0.0, 1.0, 2.0], "event": [0, 1, 0], "regime": [0, 1, 2], **columns}


@pytest.mark.parametrize(
    ("Y", "says"),
    [
        (changed(state=[0.0, 1.0]), ["task 'state'", "(2,)", "3 rows", "(3,)"]),
        (changed(state=[0.0, 1.0, 2.0, 3.0]), ["task 'state'", "(4,)", "(3,)"]),
        (changed(state=np.zeros((3, 1))), ["task 'state'", "(3, 1)", "(3,)"]),
        (changed(state=1.0), ["task 'state'", "()", "(3,)"]),
        (changed(state=[[0.0], [1.0, 2.0], 3.0]), ["task 'state'", "not a regular array"]),
        (changed(state=[0.0, np.inf, 1.0]), ["task 'state'", "row 1", "infinite"]),
        (changed(state=["a", "b", "c"]), ["task 'state'", "must hold numbers"]),
        (changed(event=[0, 1, 2]), ["task 'event'", "[2] = 2", "0 to 1"]),
        (changed(event=["no", "maybe", "no"]), ["task 'event'", "must hold numbers"]),
        (changed(regime=[0, 1, 3]), ["task 'regime'", "[2] = 3", "0 to 2"]),
        (changed(regime=[0.5, 1, 2]), ["task 'regime'", "[0] = 0.5"]),
        (changed(regime=[np.inf, 1, 2]), ["task 'regime'", "[0] = inf"]),
        (changed(rain=[0, 1, 0]), ["unknown ['rain']", "missing []", "'regime'"]),
        ({"state": [0.0, 1.0, 2.0]}, ["missing ['event', 'regime']"]),
        (np.zeros((3, 3)), ["ndarray", "mapping or DataFrame", "['state', 'event', 'regime']"]),
        (None, ["target y is None", "mapping or DataFrame"]),
        (pd.DataFrame(np.zeros((3, 2)), columns=["state"] * 2), ["['state']", "more than once"]),
    ],
)
def test_wrong_targets_are_refused(Y: Any, says: list[str]) -> None:
    with pytest.raises(ValueError, match=messages("the labels", *says)):
        read_targets(Y, TASKS, 3, what="the labels")


# Weights


def test_weights_come_as_nothing_array_mapping_or_table() -> None:
    one, two = np.array([1.0, 0.0, 2.0]), np.array([3.0, 1.0, 0.5])
    tasks = ["a", "b"]
    for given, expected in [
        (None, (np.ones(3), np.ones(3))),
        (one, (one, one)),
        (one.tolist(), (one, one)),
        (pd.Series(one), (one, one)),
        ({"a": one, "b": two}, (one, two)),
        ({"b": two}, (np.ones(3), two)),
        (pd.DataFrame({"b": two, "a": one}), (one, two)),
    ]:
        weights = read_weights(given, tasks, 3)
        np.testing.assert_array_equal(weights["a"], expected[0])
        np.testing.assert_array_equal(weights["b"], expected[1])


@pytest.mark.parametrize(
    ("weight", "says"),
    [
        ([1.0, 2.0], ["task 'a'", "(2,)", "(3,)"]),
        (np.ones((3, 2)), ["task 'a'", "(3, 2)", "(3,)"]),
        (1.0, ["task 'a'", "()", "(3,)"]),
        ({"b": [1.0, -1.0, 1.0]}, ["task 'b'", "-1 at row 1"]),
        ({"b": [1.0, np.nan, 1.0]}, ["task 'b'", "nan at row 1"]),
        ({"b": [1.0, None, 1.0]}, ["task 'b'", "nan at row 1"]),
        ([1.0, 1.0, np.inf], ["task 'a'", "inf at row 2"]),
        ([1.0, 1.0, 1e30], ["task 'a'", "1e+30 at row 2"]),
        ([1.0, 1.0, 1e-30], ["task 'a'", "1e-30 at row 2"]),
        (["x", "y", "z"], ["task 'a'", "must hold numbers"]),
        ({"c": [1.0, 1.0, 1.0]}, ["unknown tasks ['c']", "['a', 'b']"]),
        (pd.DataFrame(np.ones((3, 2)), columns=["a", "a"]), ["['a']", "more than once"]),
    ],
)
def test_wrong_weights_are_refused(weight: Any, says: list[str]) -> None:
    with pytest.raises(ValueError, match=messages("the weights", *says)):
        read_weights(weight, ["a", "b"], 3, what="the weights")


def test_a_row_without_a_label_has_no_weight_in_that_task() -> None:
    X, Y = windows(4)
    Y = {**Y, "state": np.where(np.arange(4) == 2, np.nan, Y["state"])}
    rows = read_rows(X, Y, [2.0, 1.0, 1.0, 0.0], TASKS)
    np.testing.assert_array_equal(rows.weights["state"], [2.0, 1.0, 0.0, 0.0])
    np.testing.assert_array_equal(rows.weights["event"], [2.0, 1.0, 1.0, 0.0])


# Splits and what can be learned


def test_hold_out_parts_the_windows() -> None:
    X, Y = windows(50)
    rows = read_rows(X, Y, None, TASKS)
    fitted, judged = hold_out(rows, 0.2, seed=3)
    assert (len(fitted.x), len(judged.x)) == (40, 10)
    together = np.concatenate([fitted.x, judged.x])
    np.testing.assert_array_equal(np.sort(together, axis=0), np.sort(X, axis=0))
    for part in (fitted, judged):
        index = [int(np.flatnonzero((row == X).all(axis=1))[0]) for row in part.x]
        assert index == sorted(index)
        np.testing.assert_array_equal(part.labels["state"], Y["state"][index])
    again, _ = hold_out(rows, 0.2, seed=3)
    other, _ = hold_out(rows, 0.2, seed=4)
    np.testing.assert_array_equal(again.x, fitted.x)
    assert not np.array_equal(other.x, fitted.x)
    # Neither part is ever empty.
    assert [len(part.x) for part in hold_out(rows, 0.001, seed=0)] == [49, 1]
    assert [len(part.x) for part in hold_out(rows, 0.999, seed=0)] == [1, 49]


def learnable(head: Any, labels: Any, weight: Any = None) -> None:
    values, seen = read_targets({"k": labels}, {"k": head}, len(labels))
    weights = read_weights(weight, ["k"], len(labels))
    check_learnable(values, {"k": weights["k"] * seen["k"]}, {"k": head})


def test_every_task_needs_something_to_learn_from() -> None:
    learnable(Gaussian(), [1.0, 1.0 + 1e-9, np.nan])
    learnable(Event(), [0, 1, np.nan])
    with pytest.raises(ValueError, match=messages("task 'k'", "no observed label", "3 windows")):
        learnable(Gaussian(), [np.nan] * 3)
    with pytest.raises(ValueError, match=messages("task 'k'", "no observed label")):
        learnable(Event(), [0, 1], [0.0, 0.0])
    for head in (Event(), Ordinal(3), Categorical(3)):
        with pytest.raises(ValueError, match=messages("task 'k'", "only class 1", "two classes")):
            learnable(head, [1, 1, np.nan])
    with pytest.raises(ValueError, match=messages("task 'k'", "only class 1")):
        learnable(Event(), [0, 1, 1], [0.0, 1.0, 1.0])
    with pytest.raises(ValueError, match=messages("task 'k'", "constant (2.5)", "2 labels")):
        learnable(Gaussian(), [2.5, 2.5, np.nan])
    # Equal but for rounding.
    with pytest.raises(ValueError, match=messages("task 'k'", "constant (0.3)")):
        learnable(Gaussian(), [0.3, 0.1 + 0.2, 0.3])


def test_validation_needs_a_label_and_says_what_it_cannot_see() -> None:
    check_validation({"a": np.ones(2), "b": np.array([0.0, 1.0])})
    with pytest.raises(ValueError, match="validation part has no observed label"):
        check_validation({"a": np.zeros(2), "b": np.zeros(2)})
    with pytest.warns(UserWarning, match=messages("['b']", "ignore them")):
        check_validation({"a": np.ones(2), "b": np.zeros(2)})


# Rows and columns are matched by name


@pytest.mark.parametrize("frame", [pl.DataFrame, pa.table, dict, pd.DataFrame])
def test_columns_of_any_frame_are_matched_by_name(frame: Any) -> None:
    columns = {"b": GRID[:, 1], "a": GRID[:, 0]}
    values, names = read_inputs(frame(columns))
    np.testing.assert_array_equal(check_columns(values, names, 2, ["a", "b"]), GRID)


@pytest.mark.parametrize("frame", [pl.DataFrame, pa.table])
def test_labels_and_weights_of_any_frame_are_matched_by_name(frame: Any) -> None:
    _, Y = windows(6)
    labels, seen = read_targets(frame({name: Y[name] for name in reversed(Y)}), TASKS, 6)
    for name in Y:
        np.testing.assert_array_equal(labels[name], Y[name])
        assert seen[name].all()
    given = {"regime": np.full(6, 2.0), "state": np.arange(6.0)}
    weights = read_weights(frame(given), list(TASKS), 6)
    for name, weight in given.items():
        np.testing.assert_array_equal(weights[name], weight)
    missing = frame({"state": pa.array([None, 1.0, 2.0])}) if frame is pa.table else None
    if missing is not None:
        assert read_targets(missing, {"state": Gaussian()}, 3)[1]["state"].tolist() == [0, 1, 1]


DAYS = pd.date_range("2024-01-01", periods=4)
SHUFFLED = [2, 0, 3, 1]


@pytest.mark.parametrize(
    ("here", "there", "says"),
    [
        (
            DAYS,
            DAYS[::-1],
            "2024-01-04 00:00:00 in row 0, where X has 2024-01-01 00:00:00",
        ),
        (DAYS, DAYS.tz_localize("UTC"), "in row 0"),
        (DAYS, DAYS.shift(1), "in row 0"),
        (["a", "b", "c", "d"], ["a", "c", "b", "d"], "labelled c in row 1, where X has b"),
        (SHUFFLED, range(4), "labelled 0 in row 0, where X has 2"),
        (range(4), SHUFFLED, "labelled 2 in row 0, where X has 0"),
        (range(10, 14), range(20, 24), "labelled 20 in row 0, where X has 10"),
        (DAYS, DAYS, None),
        (SHUFFLED, SHUFFLED, None),
        # A plain range is a position, and says nothing against other labels.
        (DAYS, range(4), None),
        (range(4), DAYS, None),
        (range(10, 14), range(4), None),
        (DAYS, None, None),
        (None, SHUFFLED, None),
    ],
)
def test_rows_whose_labels_disagree_are_refused(here: Any, there: Any, says: str | None) -> None:
    def rows(index: Any) -> Any:
        return np.ones(4) if index is None else pd.Series(np.ones(4), index=index)

    X = rows(here) if here is None else rows(here).to_frame()
    for others in ({"Y": rows(there)}, {"Y": {"a": rows(there)}}, {"sample_weight": rows(there)}):
        if says is None:
            check_aligned(X, others)
        else:
            with pytest.raises(ValueError, match=re.escape(says)):
                check_aligned(X, others)


def test_labels_that_disagree_among_themselves_are_refused() -> None:
    Y = {"a": pd.Series(1.0, DAYS), "b": pd.Series(1.0, DAYS[::-1])}
    with pytest.raises(ValueError, match=r"Y\['b'\] is labelled .* where Y\['a'\] has"):
        check_aligned(np.ones((4, 1)), {"Y": Y})


def test_weights_without_columns_are_refused() -> None:
    with pytest.raises(ValueError, match=messages("without columns", "(6, 0)", "'state'")):
        read_weights(pd.DataFrame(index=range(6)), ["state"], 6)


def test_a_class_that_would_pass_for_missing_is_named() -> None:
    signs = np.array([-1, 0, 1, -1, 1, 0])
    with pytest.warns(UserWarning, match=messages("task 'r'", "33%", "row 0 is -1", "from 0")):
        _, seen = Ordinal(3).read_labels("r", signs)
    assert seen.tolist() == (signs >= 0).tolist()
    # A few gaps marked by -1, or as many NaN as there are, are gaps.
    few = np.r_[-1, np.zeros(10), np.ones(10)]
    assert Ordinal(3).read_labels("r", few)[1].sum() == 20
    assert Event().read_labels("e", np.where(few < 0, np.nan, few))[1].sum() == 20
