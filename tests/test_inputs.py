"""Inputs of windows: categories that a fit has not seen."""

import json

import numpy as np
import pandas as pd
import pytest

from scrollmt.inputs import OneHot, input_from_dict, one_hot
from scrollmt.observables import at_lead
from scrollmt.windows import Recipe, Windowing


def series(categories: list[object]) -> pd.DataFrame:
    n = len(categories)
    times = pd.date_range("2023-01-01", periods=n, freq="h")
    return pd.DataFrame({"x": np.arange(n, dtype=float), "site": categories}, index=times)


def recipe(known: OneHot) -> Recipe:
    """What a model keeps that was fitted on the sites "north" and "south"."""
    fitted = Windowing(history=1, lead=1).cut(
        series(["north", "south"] * 5), {"x": at_lead("x")}, [known]
    )
    return Recipe.from_dict(json.loads(json.dumps(fitted.recipe.to_dict())))


def test_a_new_category_is_an_error_that_names_the_way_out() -> None:
    with pytest.raises(ValueError, match=r"'east' at 2023-01-01 01:00:00 .*unknown=\"ignore\""):
        recipe(one_hot("site")).cut(series(["north", "east", "south"]))


def test_a_new_category_may_be_ignored_with_a_warning() -> None:
    kept = recipe(one_hot("site", unknown="ignore"))
    new = series(["north", "east", None, "east", "west", "south", "south"])
    with pytest.warns(UserWarning, match=r"'east' \(2 windows\), 'west' \(1 windows\)") as said:
        windows = kept.cut(new)
    assert len(said) == 1
    # The missing category is no new one: its window is dropped.
    assert windows.X.tolist() == [[1, 0], [0, 0], [0, 0], [0, 0], [0, 1]]
    assert len(windows.dropped) == 1
    with pytest.warns(UserWarning, match=r"'west'"):
        assert kept.newest(new.iloc[:5]).X.tolist() == [[0, 0]]


def test_what_is_done_with_new_categories_is_stored_where_it_was_asked_for() -> None:
    plain = one_hot("site", ["a", "b"])
    assert plain.to_dict() == {"kind": "one_hot", "column": "site", "categories": ["a", "b"]}
    for one in (plain, one_hot("site", ["a", "b"], unknown="ignore")):
        assert input_from_dict(json.loads(json.dumps(one.to_dict()))) == one
    with pytest.raises(ValueError, match=r"unknown must be one of \('error', 'ignore'\)"):
        one_hot("site", unknown="drop")
