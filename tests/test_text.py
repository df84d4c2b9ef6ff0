"""Text of strangers: no control reaches a terminal, no cell becomes a formula."""

import io
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrollmt._io.text import neutral, neutral_table, original, visible, visible_json

CONTROLS = ["\x1b[2J", "\x00", "\x07", "\x7f", "\x9b31m", "\u202e", "\u2066", "\u2028", "\udc9b"]
CONTROLS += ["\U000e0041", "\ufeff", "\r", "\n", "\t"]


@pytest.mark.parametrize("control", CONTROLS)
def test_controls_are_spelled_out(control: str) -> None:
    shown = visible(f"a{control}b")
    assert shown.startswith("a\\")
    assert shown.endswith("b")
    assert shown.isprintable()


@pytest.mark.parametrize(
    "text", ["", "PM2.5 µg/m³", "日本", "👩‍🔬", "می‌خواهم", "[red]x[/red]", "a b"]
)
def test_other_text_stays_as_it_is(text: str) -> None:
    assert visible(text) == text


@pytest.mark.slow
@given(st.text())
def test_json_stays_the_same_json(text: str) -> None:
    written = json.dumps({text: [text]}, indent=2, ensure_ascii=False)
    shown = visible_json(written)
    assert json.loads(shown) == {text: [text]}
    assert visible(shown.replace("\n", "")) == shown.replace("\n", "")


@pytest.mark.parametrize(
    "cell", ["=1+1", "+x", "-x", "@SUM(A1)", "\tx", "\r=x", "-1+2", "-", "'=x"]
)
def test_what_a_spreadsheet_would_compute_is_text(cell: str) -> None:
    assert neutral(cell) == f"'{cell}"
    assert original(neutral(cell)) == cell


@pytest.mark.parametrize("cell", ["", "x", "a=b", "-1.5", "+3", "-1e-05", ".5", "'quoted'", "{}"])
def test_other_cells_stay_as_they_are(cell: str) -> None:
    assert neutral(cell) == cell == original(cell)


@given(st.text(alphabet="'=+-@\t\n1.5ex"))
def test_every_cell_comes_back(cell: str) -> None:
    assert original(neutral(cell)) == cell


def test_numbers_of_a_table_stay_numbers() -> None:
    frame = pd.DataFrame(
        {
            "=name": ["-1.5", "=x", None],
            "n": [-1.5, 2.0, np.nan],
            "kind": pd.Categorical(["@a", "b", "@a"]),
            "day": pd.to_datetime(["2023-01-01"] * 3),
            "mixed": [-1, "+b", True],
        }
    )
    before = frame.copy(deep=True)
    text = neutral_table(frame).to_csv(index=False)
    assert text.splitlines()[:3] == [
        "'=name,n,kind,day,mixed",
        "-1.5,-1.5,'@a,2023-01-01,-1",
        "'=x,2.0,b,2023-01-01,'+b",
    ]
    back = pd.read_csv(io.StringIO(text))
    assert back["n"].dtype == np.float64
    pd.testing.assert_frame_equal(frame, before)
