"""Tables by task from records of any tasks, written by hand."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from scrollmt.paper.tables.by_task import score_table


def records() -> pd.DataFrame:
    """Two arms at three seeds; the better backbone by validation has another test score."""
    rows = []
    for seed in (1, 2, 3):
        for backbone, shift in (("tanh", 0.0), ("relu", 1.0)):
            row: dict[str, Any] = {"corpus": "mine", "arm": "ours"}
            row |= {"backbone": backbone, "seed": seed}
            row |= {"setting": "{}", "valid_nats": 2.0 + shift, "valid.level.nll": 9.0}
            row |= {"level.nll": 1.0 + 0.01 * seed + shift, "rain.accuracy": 0.9}
            rows.append(row | {"rain.nll": 0.2, "rain.coverage_50": 0.5})
        row = {"corpus": "mine", "arm": "theirs", "backbone": "none", "seed": seed}
        row |= {"setting": "{}", "valid_nats": 1.0, "level.nll": 2.0 + 0.02 * seed}
        rows.append(row)
        rows.append(row | {"corpus": "other", "arm": "third"})
    return pd.DataFrame(rows)


def test_a_cell_is_the_mean_of_the_selected_runs() -> None:
    table = score_table(records(), "mine", ["nll", "accuracy"])
    assert [(c.group, c.label) for c in table.columns] == [
        ("level", "nll"),
        ("rain", "nll"),
        ("rain", "accuracy"),
    ]
    ours, theirs = table.rows
    assert (ours.label, theirs.label) == ("ours", "theirs")
    assert ours.cells["level.nll"].value == pytest.approx(1.02)
    assert ours.cells["level.nll"].se == pytest.approx(0.01 / np.sqrt(3))
    assert theirs.cells["level.nll"].value == pytest.approx(2.04)
    # The lower NLL and the higher accuracy are best; a task that an arm has no law for is empty.
    assert (ours.cells["level.nll"].mark, theirs.cells["level.nll"].mark) == ("bold", "")
    assert ours.cells["rain.accuracy"].mark == "bold"
    assert theirs.cells.keys() == {"level.nll"}


def test_more_accuracy_is_better_and_coverage_has_no_best() -> None:
    frame = records()
    frame.loc[frame["arm"] == "theirs", ["rain.nll", "rain.accuracy"]] = (0.1, 0.8)
    table = score_table(frame, "mine", ["accuracy", "coverage_50"])
    ours, theirs = table.rows
    assert (ours.cells["rain.accuracy"].mark, theirs.cells["rain.accuracy"].mark) == ("bold", "")
    assert ours.cells["rain.coverage_50"].mark == ""


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match=r"no records of corpus 'x'; .*'mine', 'other'"):
        score_table(records(), "x")
    with pytest.raises(ValueError, match=r"metrics \['crps'\]; they have .*'level.nll'"):
        score_table(records(), "mine", ["crps"])
