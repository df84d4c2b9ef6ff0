"""Errors of scores: neighbours count as one, and overlapping windows as even fewer."""

import numpy as np
import pytest
from scipy import stats

from scrollmt._scoring.uncertainty import error_of_mean, interval, left_out, stretches


def test_each_label_is_left_out_once_and_with_its_neighbours() -> None:
    seen = np.ones(103, dtype=bool)
    seen[:3] = False
    weights = left_out(seen)
    assert weights.shape == (20, 103)
    assert (weights[:, seen].sum(axis=0) == 19).all()
    first = np.flatnonzero(weights[0] == 0)
    np.testing.assert_array_equal(first, np.arange(3, 8))
    assert left_out(np.ones(7, dtype=bool)).shape == (3, 7)


def test_intervals_are_as_wide_as_theory_says_for_independent_and_repeated_rows() -> None:
    rng = np.random.default_rng(0)
    widths: dict[int, list[float]] = {1: [], 10: []}
    for _ in range(200):
        for copies, found in widths.items():
            values = np.repeat(rng.normal(size=1200 // copies), copies)
            weights = left_out(np.ones(1200, dtype=bool))
            without = (weights @ values) / weights.sum(axis=1)
            low, high = interval(values.mean(), without, 0.9)
            found.append(float(high - low))
    for copies, found in widths.items():
        # Ten copies in a row hold a tenth of the information.
        true = 2 * stats.t.ppf(0.95, 19) * np.sqrt(copies / 1200)
        assert np.mean(found) == pytest.approx(true, rel=0.05)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    rng = np.random.default_rng(1)
    weights = left_out(np.ones(400, dtype=bool))
    held = 0
    for _ in range(400):
        # A root of a mean, as the rmse is, of neighbours that resemble each other.
        noise = rng.normal(size=405)
        squares = (noise[5:] + noise[4:-1] + noise[3:-2]) ** 2 / 3
        without = np.sqrt(weights @ squares / weights.sum(axis=1))
        low, high = interval(np.sqrt(squares.mean()), without, 0.9)
        held += int(low <= 1.0 <= high)
    # 360 of 400 expected, sd 6; this leaves room for what dependence between stretches costs.
    assert 335 <= held <= 382


def test_a_stretch_is_longer_than_windows_overlap() -> None:
    seen = np.ones(1000, dtype=bool)
    assert stretches(seen) == 20
    assert stretches(seen, overlap=24) == 20
    assert stretches(seen, overlap=100) == 5
    assert stretches(seen, overlap=600) == 0
    assert left_out(seen, 100).shape == (5, 1000)


@pytest.mark.slow
def test_the_error_of_a_mean_is_right_for_overlapping_windows_and_absent_where_it_cannot_be() -> (
    None
):
    """Means over 24 neighbours, as targets over a window are: 1,000 draws of 4,800 values."""
    rng = np.random.default_rng(0)
    weight = np.ones(4800)
    means, errors = [], []
    for _ in range(300):
        noise = rng.normal(size=4823)
        values = np.convolve(noise, np.ones(24) / 24, "valid")
        means.append(values.mean())
        errors.append(error_of_mean(values, weight, overlap=24))
    # The sd of 300 draws is known to 4 percent.
    assert np.mean(errors) == pytest.approx(np.std(means), rel=0.12)
    assert np.isnan(error_of_mean(np.ones(100), np.ones(100), overlap=24))
    half = np.where(np.arange(4800) % 2, np.nan, values)
    assert error_of_mean(half, weight) == error_of_mean(values, (np.arange(4800) % 2 == 0) * 1.0)
