"""Inputs and targets in units of the training part, and inputs far outside of it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scrollmt import Gaussian
from scrollmt._data.reading import Rows, read_rows
from scrollmt._data.scaling import Scales
from scrollmt.heads import AbstractHead
from small import STATE, TASKS, windows
from test_reading import messages


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
    rows = Rows(X, {"state": Y["state"]}, {"state": np.ones(30)}, np.arange(30))
    scales = scales_of(X, Y["state"])
    for far in (1e20, -1e60, 1e308):
        new = X.copy()
        new[4, 2] = far
        with pytest.raises(ValueError, match=messages("X: column 'c'", f"{far:g} at row 4")):
            scales.inputs(new, names=["a", "b", "c"])
        labels = {"state": Y["state"].copy()}
        labels["state"][4] = far
        with pytest.raises(ValueError, match=messages("new Y: task 'state'", f"{far:g} at row 4")):
            scales.data(rows._replace(labels=labels), STATE, what="new ")
        # The same value below a weight of zero is not there at all.
        hidden = rows._replace(labels=labels, weights={"state": (np.arange(30) != 4) * 1.0})
        assert jnp.isfinite(scales.data(hidden, STATE).y["state"]).all()
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
        leaves = jax.tree.leaves(scales.data(rows, TASKS))
        return {leaf.dtype.name for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)}

    assert floats() == {"float32"}
    with jax.enable_x64(True):
        assert floats() == {"float64"}
        np.testing.assert_array_equal(scales.data(rows, TASKS).x, scales.inputs(X))


class Positive(Gaussian):
    """A head whose labels are positive, as those of a log-normal value."""

    @property
    def missing_fill(self) -> float:
        return 1.0

    def target_scale(self, labels: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
        return 0.0, 250.0


def test_a_missing_label_is_filled_as_its_head_says_on_scaled_targets_too() -> None:
    heads: dict[str, AbstractHead] = {"state": Positive()}  # type: ignore[call-arg]
    rows = read_rows(np.ones((3, 1)), {"state": [500.0, np.nan, 1000.0]}, None, heads)
    scales = Scales(np.zeros(1), np.ones(1), {"state": 0.0}, {"state": 250.0})
    assert scales.data(rows, heads).y["state"].tolist() == [2.0, 1.0, 4.0]


def test_distance_is_in_widths_of_the_training_range() -> None:
    scales = scales_of(np.array([[1.0, 5.0], [3.0, 5.0], [2.0, 5.0]]), np.arange(3.0))
    new = np.array([[2.0, 5.0], [1.0, 5.0], [4.0, 5.0], [-3.0, 5.0], [2.0, 5.1]])
    expected = [[0, 0], [0, 0], [0.5, 0], [2, 0], [0, np.inf]]
    np.testing.assert_array_equal(scales.distance(new), expected)
    # Units do not matter.
    moved = scales_of(np.array([[1e6], [3e6], [2e6]]), np.arange(3.0))
    np.testing.assert_allclose(moved.distance(1e6 * new[:, :1]), scales.distance(new)[:, :1])


def test_the_distance_of_a_row_is_the_largest_of_its_inputs() -> None:
    scales = scales_of(np.array([[1.0, 0.0], [3.0, 10.0], [2.0, 5.0]]), np.arange(3.0))
    new = np.array([[2.0, 5.0], [4.0, 13.0], [3.5, -20.0]])
    found: Any = scales.extrapolation(new)
    np.testing.assert_allclose(found, [0.0, 0.5, 2.0])
    # Inside the range of each input, and yet far from the line that the training rows lie on.
    np.testing.assert_array_equal(scales.extrapolation(np.array([[3.0, 0.0]])), [0.0])
    assert len(scales.extrapolation(new[:0])) == 0  # type: ignore[arg-type]
    assert Scales(np.zeros(2), np.ones(2), {}, {}).extrapolation(new) is None


def test_inputs_far_outside_the_training_range_are_named() -> None:
    X, Y = windows(40)
    scales = scales_of(np.column_stack([X, np.full(40, 7.0)]), Y["state"])
    new = np.column_stack([X, np.full(40, 7.0)])
    assert scales.far_out(new) is None
    new[3, 0] = 1e6
    new[5, 3] = 8.0
    said = scales.far_out(new, ["a", "b", "c", "d"])
    assert said is not None
    low, high = X[:, 0].min(), X[:, 0].max()
    assert f"column 'a' is 1e+06 (row 3, 1 rows) and lay between {low:g} and {high:g}" in said
    assert "column 'd' is 8 (row 5, 1 rows) and was always 7 in training and is ignored" in said
    # A record, but none that surprises: less than a range beyond the range.
    near = new[:1].copy()
    near[0, 0] = high + 0.9 * (high - low)
    assert scales.far_out(near) is None


def test_a_model_that_stored_no_range_calls_nothing_far() -> None:
    scales = Scales(np.zeros(1), np.ones(1), {}, {})
    assert scales.far_out(np.array([[1e6]])) is None
