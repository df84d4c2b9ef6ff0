"""What fixed seeds gave before stays what they give: see `golden`."""

import json
from typing import Any

import numpy as np
import pytest

import golden

RECORDS = json.loads(golden.FILE.read_text())
TOLERANCE = 1e-6


def differences(expected: Any, found: Any, tolerance: float, where: str = "") -> list[str]:
    if isinstance(expected, dict):
        if list(expected) != list(found):
            return [f"{where}: {list(expected)} were there, now {list(found)}"]
        return [
            one
            for key in expected
            for one in differences(expected[key], found[key], tolerance, f"{where}/{key}")
        ]
    same = np.allclose(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
    return [] if same else [f"{where}: {expected} was there, now {found}"]


@pytest.mark.slow
@pytest.mark.parametrize("case", golden.CASES)
def test_results_are_those_of_before(case: str) -> None:
    found = json.loads(json.dumps(golden.computed(case)))
    assert differences(RECORDS[case], found, TOLERANCE) == []


def test_a_difference_is_found() -> None:
    assert differences({"a": [1.0, 2.0]}, {"a": [1.0, 2.00001]}, TOLERANCE)
    assert differences({"a": 1.0}, {"b": 1.0}, TOLERANCE)
    assert not differences({"a": [1.0, 2.0]}, {"a": [1.0, 2.0 + 1e-9]}, TOLERANCE)
