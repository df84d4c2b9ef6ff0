"""What users hand over is read in every usual form, and refused by name where it makes no sense."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from scrollmt import Categorical, Event, Gaussian, Ordinal
from scrollmt.intake import (
    Rows,
    Scales,
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
        ({"a": [1.0]}, ["dict", "(N, D)"]),
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
        (changed(event=["no", "yes", "no"]), ["task 'event'", "must hold numbers"]),
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
    learnable(Event(), [0, 1, -1])
    with pytest.raises(ValueError, match=messages("task 'k'", "no observed label", "3 windows")):
        learnable(Gaussian(), [np.nan] * 3)
    with pytest.raises(ValueError, match=messages("task 'k'", "no observed label")):
        learnable(Event(), [0, 1], [0.0, 0.0])
    for head in (Event(), Ordinal(3), Categorical(3)):
        with pytest.raises(ValueError, match=messages("task 'k'", "only class 1", "two classes")):
            learnable(head, [1, 1, -1])
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
    with pytest.warns(UserWarning, match=messages("['b']", "blind")):
        check_validation({"a": np.ones(2), "b": np.zeros(2)})


# Scales


def scales_of(x: np.ndarray, y: Any, weight: Any = None, **settings: Any) -> Scales:
    rows = read_rows(x, {"state": y}, weight, {"state": Gaussian()})
    return Scales.of(rows, {"state": Gaussian()}, **{"scale_targets": True, **settings})


def test_scales_are_the_moments_of_the_windows() -> None:
    X, Y = windows(30)
    scales = scales_of(X, Y["state"])
    np.testing.assert_allclose(scales.x_mean, X.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(scales.x_sd, X.std(axis=0), rtol=1e-12)
    assert scales.offset["state"] == pytest.approx(Y["state"].mean(), rel=1e-12)
    assert scales.scale["state"] == pytest.approx(Y["state"].std(), rel=1e-12)
    np.testing.assert_allclose(scales.inputs(X).std(axis=0), 1.0, rtol=1e-12)
    assert scales_of(X, Y["state"], scale_targets=False).scale == {"state": 1.0}


def test_weight_two_is_the_row_twice_and_weight_zero_is_no_row() -> None:
    X, Y = windows(30)
    y = Y["state"]
    weight = np.r_[2.0, 0.0, np.ones(28)]
    weighted = scales_of(X, y, weight)
    twice = scales_of(np.r_[X[:1], X[:1], X[2:]], np.r_[y[:1], y[:1], y[2:]])
    np.testing.assert_allclose(weighted.x_mean, twice.x_mean, rtol=1e-12)
    np.testing.assert_allclose(weighted.x_sd, twice.x_sd, rtol=1e-12)
    assert weighted.offset["state"] == pytest.approx(twice.offset["state"], rel=1e-12)
    assert weighted.scale["state"] == pytest.approx(twice.scale["state"], rel=1e-12)


@pytest.mark.parametrize("constant", [0.0, 0.1, -1e9 / 3, 1e-300])
def test_a_constant_column_is_ignored(constant: float) -> None:
    X, Y = windows(49)
    X[:, 1] = constant
    scales = scales_of(X, Y["state"])
    assert scales.x_sd[1] == 0.0
    new = X.copy()
    new[:, 1] = 17.0
    assert (scales.inputs(X)[:, 1] == 0.0).all()
    np.testing.assert_array_equal(scales.inputs(new), scales.inputs(X))


@pytest.mark.parametrize("unit", [1e-200, 1e-30, 1.0, 1e30, 1e200, 3e307])
def test_inputs_of_any_magnitude_are_standardised(unit: float) -> None:
    X, Y = windows(30)
    X /= np.abs(X).max()
    plain = scales_of(X, Y["state"]).inputs(X)
    np.testing.assert_allclose(scales_of(X * unit, Y["state"]).inputs(X * unit), plain, rtol=1e-9)


def test_what_arithmetic_cannot_hold_is_refused_by_name() -> None:
    X, Y = windows(30)
    rows = Rows(X, {"state": Y["state"]}, {"state": np.ones(30)})
    scales = scales_of(X, Y["state"])
    for far in (1e20, -1e60, 1e308):
        new = X.copy()
        new[4, 2] = far
        with pytest.raises(ValueError, match=messages("X: column 'c'", f"{far:g} at row 4")):
            scales.inputs(new, names=["a", "b", "c"])
        labels = {"state": Y["state"].copy()}
        labels["state"][4] = far
        with pytest.raises(ValueError, match=messages("new Y: task 'state'", f"{far:g} at row 4")):
            scales.data(rows._replace(labels=labels), what="new ")
        # The same value below a weight of zero is not there at all.
        hidden = rows._replace(labels=labels, weights={"state": (np.arange(30) != 4) * 1.0})
        assert jnp.isfinite(scales.data(hidden).y["state"]).all()
    for unit in (1e-200, 1e200):
        with pytest.raises(ValueError, match=messages("task 'state'", "change its units")):
            scales_of(X, unit * Y["state"])


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_a_preset_that_does_not_scale_targets_warns_about_their_units(unit: float) -> None:
    X, Y = windows(30)
    scales_of(X, unit * Y["state"])
    with pytest.warns(UserWarning, match=messages("task 'state'", "preset='default'", "sd")):
        scales_of(X, unit * Y["state"], scale_targets=False)


def test_data_follows_the_precision_that_jax_is_set_to() -> None:
    X, Y = windows(30)
    rows = read_rows(X, Y, None, TASKS)
    scales = Scales.of(rows, TASKS, scale_targets=True)

    def floats() -> set[str]:
        leaves = jax.tree.leaves(scales.data(rows))
        return {leaf.dtype.name for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)}

    assert floats() == {"float32"}
    with jax.enable_x64(True):
        assert floats() == {"float64"}
        np.testing.assert_array_equal(scales.data(rows).x, scales.inputs(X))
