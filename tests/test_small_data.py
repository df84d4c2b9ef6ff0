"""The default preset where a simple model is right, and where rows are few."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("optimised")]


@pytest.fixture(scope="module")
def benchmark() -> Iterator[Any]:
    """The script that measured what is asked here, over more seeds and systems."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield importlib.import_module("small_data")
    finally:
        sys.path.remove(str(BENCHMARKS))


def test_intervals_from_twelve_rows_cover_on_average(benchmark: Any) -> None:
    """Coverage differs by 0.10 (sd) from fit to fit around 0.895, so that the mean of six is
    below 0.80 in one draw of eighty. The seeds are fixed."""
    shares = []
    for seed in range(6):
        rng = np.random.default_rng([seed, 12])
        x, mean, sd = benchmark.plane(rng, 12)
        new, middle, wide = benchmark.plane(rng, benchmark.FRESH)
        y, fresh = rng.normal(mean, sd), rng.normal(middle, wide)
        shares.append(benchmark.ours(x, y, new, fresh, seed)[0])
    assert np.mean(shares) > 0.80


def test_on_data_of_a_linear_model_the_default_is_as_good_as_ridge(benchmark: Any) -> None:
    assert benchmark.beyond_ridge(seed=0) < 0.003
