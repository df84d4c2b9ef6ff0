"""Corpora and arms that join the arena from outside: what they may state, and what is refused."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from scrollmt import Gaussian
from scrollmt.laws import GaussianLaw, OrdinalLaw
from scrollmt.paper.arena.jobs import execute, make_job
from scrollmt.paper.arena.problems import problem
from scrollmt.paper.arena.sources import SOURCES, Asked, Source, register_corpus
from scrollmt.paper.arms import ARMS, Fold, Forecasts, OwnArm
from test_outside import PROTOCOL, linear, linear_laws, outside, station, tasks

__all__ = ["outside"]  # a fixture


def test_their_arm_has_the_papers_columns_on_a_corpus_of_the_paper(outside: OwnArm) -> None:
    found = execute(make_job("ou*2", "linear", "none", PROTOCOL, seeds=[1]))
    first, second = found.rows[1]
    assert first["reg_nll"] < second["reg_nll"]
    columns = {"valid_nats", "valid_mixed", "evt_nll", "ord_nll", "evt_acc_pct", "pearson"}
    assert columns - first.keys() == {"pearson"}  # its sd is the same for all windows
    assert first["mean_true_var"] == pytest.approx(4.0 * (1.0 - np.exp(-1.0)))


def test_records_of_another_version_of_the_corpus_are_others(outside: OwnArm) -> None:
    before = make_job("station", "linear", "none", PROTOCOL)
    SOURCES["station"] = Source("station", tasks, station, determinants={"revision": 2})
    assert make_job("station", "linear", "none", PROTOCOL).key(1) != before.key(1)


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        (("station@1", "linear", "none"), "station has one lead and one series"),
        (("station~1", "linear", "none"), "station has one lead and one series"),
        (("station/1", "linear", "none"), "only pm25 has rolling origins"),
        (("station*2", "linear", "none"), "station has no target that is scaled"),
        (("station", "linear", "tanh"), "unknown backbone 'tanh'; choose from none"),
        (("station", "map-ce", "tanh"), r"'map-ce' has heads for \['event', 'regime', 'state'\]"),
        (("statoin", "linear", "none"), "use ou, lorenz63, pm25 or station"),
    ],
)
def test_a_job_that_makes_no_sense_is_named(outside: OwnArm, names: tuple, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        make_job(*names)


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({}, "has laws for .*return one law for each task"),
        ({"wind": 3.0}, "task 'wind': got a float, which is no law"),
        ({"wind": GaussianLaw(np.zeros(3), np.ones(3))}, "3 forecasts for 40 windows"),
        (
            {"alarms": GaussianLaw(np.zeros(40), np.ones(40))},
            "task 'alarms': a GaussianLaw cannot be compared with a CountLaw",
        ),
        ({"band": OrdinalLaw(np.full((40, 4), np.log(0.25)))}, r"classes .* are \[3, 4\]"),
    ],
)
def test_laws_that_cannot_be_compared_are_refused(
    outside: OwnArm, changed: dict[str, Any], fault: str
) -> None:
    def spoiled(fold: Fold, setting: Mapping[str, float]) -> Forecasts:
        laws = linear_laws(fold, 1.0, fold.X_test)
        return Forecasts(laws | changed if changed else {"wind": laws["wind"]}, laws)

    ARMS["linear"] = OwnArm("linear", "", spoiled)
    with pytest.raises(ValueError, match=fault):
        execute(make_job("station", "linear", "none", PROTOCOL, seeds=[1]))


@pytest.mark.slow
def test_an_arm_sees_no_test_labels_and_cannot_change_the_corpus(outside: OwnArm) -> None:
    before = problem("station", PROTOCOL).X.copy()
    seen: list[Fold] = []

    def rude(fold: Fold, setting: Mapping[str, float]) -> Forecasts:
        seen.append(fold)
        given = linear(fold, {"alpha": 1.0})
        fold.X_train[:] = fold.X_test[:] = np.nan
        return given

    ARMS["linear"] = OwnArm("linear", "", rude, settings=({"a": 1.0}, {"a": 2.0}))
    found = execute(make_job("station", "linear", "none", PROTOCOL, seeds=[1]))
    first, second = found.rows[1]
    assert first["wind.nll"] == second["wind.nll"]
    np.testing.assert_array_equal(problem("station", PROTOCOL).X, before)
    assert len(seen[0].X_test) == 40
    assert all(len(y) in (40, 120) for y in (*seen[0].Y_train.values(), *seen[0].Y_valid.values()))


@pytest.mark.parametrize(
    ("labels", "fault"),
    [
        ({"band": np.full(200, 3)}, "band"),
        ({"storm": np.full(200, "yes")}, "task 'storm': labels have dtype"),
        ({"wind": np.zeros(9)}, "task 'wind': 9 labels for 200 windows"),
        ({"rain": np.zeros(200)}, "labels for .*'rain'.*its tasks are"),
    ],
)
def test_labels_that_do_not_suit_the_tasks_are_named(
    outside: OwnArm, labels: dict[str, np.ndarray], fault: str
) -> None:
    def damaged(asked: Asked) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        X, Y = station(asked)
        return X, Y | labels

    SOURCES["station"] = Source("station", tasks, damaged)
    with pytest.raises(ValueError, match=fault):
        problem("station", PROTOCOL)


def test_a_mistake_in_a_corpus_is_named_when_it_is_registered(outside: OwnArm) -> None:
    with pytest.raises(ValueError, match="'station' is registered already"):
        register_corpus(SOURCES["station"])
    for name in ("", "a b", "a@b", "my-std", "7up"):
        with pytest.raises(ValueError, match="cannot be named"):
            register_corpus(Source(name, tasks, station))
    with pytest.raises(ValueError, match="no dot in a name"):
        register_corpus(Source("dotted", lambda: {"a.b": Gaussian()}, station))
    with pytest.raises(ValueError, match="scales the task 'rain'"):
        register_corpus(Source("scaled", tasks, station, scaled="rain"))
    with pytest.raises(ValueError, match="mixes its members itself"):
        OwnArm("many", "", linear, members=5)


def test_a_corpus_may_have_leads_draws_origins_and_a_scaled_target(outside: OwnArm) -> None:
    SOURCES["station"] = Source(
        "station", tasks, station, lead=1.0, redrawn=True, origins=3, scaled="wind"
    )
    plain, other = problem("station", PROTOCOL), problem("station@2*8~3", PROTOCOL)
    assert (plain.asked.lead, other.asked.lead, other.asked.seed) == (1.0, 2.0, 3)
    assert not np.array_equal(plain.X, other.X)
    split = other.split(1)
    labels = other.part(split.test, other.target_factor(split))[1]
    np.testing.assert_array_equal(labels["wind"], 8.0 * other.Y["wind"][split.test])
    np.testing.assert_array_equal(labels["repair"], other.Y["repair"][split.test])
    assert max(problem("station/0", PROTOCOL).split(1).train) < 120
    found = execute(make_job("station*8", "linear", "none", PROTOCOL, seeds=[1]))
    assert found.rows[1][0]["target_factor"] == 8.0
