"""A corpus of five tasks and an arm over scikit-learn, written outside the package, in one arena.

Nothing here belongs to scrollmt but what it imports. The same steps are in
docs/guide/own-comparator.md.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm, poisson
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge

from scrollmt import Count, Event, Gaussian, Ordinal
from scrollmt.heads import AbstractHead
from scrollmt.laws import CountLaw, EventLaw, GaussianLaw, OrdinalLaw
from scrollmt.paper.arena import archive
from scrollmt.paper.arena.jobs import execute, make_job
from scrollmt.paper.arena.problems import problem
from scrollmt.paper.arena.records import Records
from scrollmt.paper.arena.sources import SOURCES, Asked, Source, register_corpus
from scrollmt.paper.arena.sweep import compute
from scrollmt.paper.arms import ARMS, Fold, Forecasts, OwnArm, register
from scrollmt.paper.protocol import Protocol
from scrollmt.paper.tables.by_task import score_table
from tiny_jobs import quick_compiler

PROTOCOL = Protocol(seeds=(1, 2), steps=40, eval_every=20, corpus_windows=200)
NAMES = ["temperature", "wind", "storm", "band", "alarms"]


def tasks() -> dict[str, AbstractHead]:
    return {
        "temperature": Gaussian(),
        "wind": Gaussian(),
        "storm": Event(),
        "band": Ordinal(3),
        "alarms": Count(),
    }


def station(asked: Asked) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    rng = np.random.default_rng(asked.seed)
    X = rng.normal(size=(asked.windows, 3))
    warm, windy = X[:, 0] + 0.5 * X[:, 1], X[:, 2] - 0.5 * X[:, 0]
    wind = windy + 0.3 * rng.normal(size=len(X))
    return X, {
        "temperature": warm + 0.5 * rng.normal(size=len(X)),
        "wind": wind,
        "storm": (wind > 1.0).astype(int),
        "band": np.digitize(warm + 0.3 * rng.normal(size=len(X)), [-0.5, 0.5]),
        "alarms": rng.poisson(np.exp(0.5 * windy)),
    }


def linear_laws(fold: Fold, alpha: float, X: np.ndarray) -> dict[str, Any]:
    """Ridge with the spread of its validation residuals, logistic and Poisson regression."""
    laws: dict[str, Any] = {}
    for name, head in fold.tasks.items():
        y = fold.Y_train[name]
        if isinstance(head, Gaussian):
            ridge = Ridge(alpha=alpha).fit(fold.X_train, y)
            sd = np.std(fold.Y_valid[name] - ridge.predict(fold.X_valid))
            laws[name] = GaussianLaw(ridge.predict(X), np.full(len(X), sd))
        elif isinstance(head, Count):
            rate = PoissonRegressor(alpha=alpha / len(y)).fit(fold.X_train, y).predict(X)
            laws[name] = CountLaw(np.log(rate), np.zeros(len(X)))
        else:
            classes = LogisticRegression(C=1.0 / alpha).fit(fold.X_train, y)
            kind = EventLaw if isinstance(head, Event) else OrdinalLaw
            laws[name] = kind(classes.predict_log_proba(X))
    return laws


def linear(fold: Fold, setting: Mapping[str, float]) -> Forecasts:
    alpha = setting["alpha"]
    valid, test = (linear_laws(fold, alpha, X) for X in (fold.X_valid, fold.X_test))
    return Forecasts(valid, test, {"coefficients": 4.0})


@pytest.fixture
def outside() -> Iterator[OwnArm]:
    """Both registered for a test; a user registers once, at the top of a module."""
    register_corpus(Source("station", tasks, station, determinants={"revision": 1}))
    settings = ({"alpha": 1.0}, {"alpha": 1e6})
    yield register(OwnArm("linear", "linear models of scikit-learn", linear, settings=settings))
    del ARMS["linear"], SOURCES["station"]


def test_an_arena_of_our_arm_and_theirs_on_their_corpus(
    outside: OwnArm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [
        make_job("station", "scroll-diag", "tanh", PROTOCOL),
        make_job("station", "linear", "none", PROTOCOL),
    ]

    def interrupted(job):
        if job.arm == "linear":
            raise KeyboardInterrupt
        return execute(job)

    path = tmp_path / "records.sqlite"
    with quick_compiler(), Records(path) as records, pytest.raises(KeyboardInterrupt):
        compute(jobs, records, execute=interrupted, progress=False)
    with Records(path) as records:
        assert len(records) == 2  # our arm's two seeds are there
        done = compute(jobs, records, progress=False)
        assert (done.recorded, done.computed) == (2, 2)
        assert compute(jobs, records, progress=False).computed == 0
        frame = records.frame(jobs)
        records.export(tmp_path / "export", jobs)

    # One row a seed and setting, with the metrics that suit each task.
    assert [*frame["arm"]] == ["linear"] * 4 + ["scroll-diag"] * 2
    for name in NAMES:
        assert np.isfinite(frame[f"{name}.nll"]).all()
    assert np.isfinite(frame["temperature.crps"]).all()
    assert np.isfinite(frame[["storm.brier", "band.rps", "alarms.rmse"]]).all(axis=None)
    assert frame["coefficients"].notna().sum() == 4
    sums = frame[[f"valid.{name}.nll" for name in NAMES]].sum(axis=1)
    np.testing.assert_allclose(frame["valid_nats"], sums, rtol=1e-12)

    # Their scores are those that SciPy gives.
    row = frame.iloc[0]
    assert (row["seed"], row["setting"]) == (1, '{"alpha": 1.0}')
    of = problem("station", PROTOCOL)
    train, valid, test = (of.part(rows, 1.0) for rows in of.split(1))
    laws = linear_laws(Fold(1, "none", tasks(), *train, *valid, test[0]), 1.0, test[0])
    expected = -norm.logpdf(test[1]["wind"], laws["wind"].mean, laws["wind"].sd).mean()
    assert row["wind.nll"] == pytest.approx(expected, rel=1e-9)
    expected = -poisson.logpmf(test[1]["alarms"], laws["alarms"].mean).mean()
    assert row["alarms.nll"] == pytest.approx(expected, rel=1e-6)

    # What is exported has all columns, whatever the tasks.
    assert {*archive.load(tmp_path / "export")} == {*frame}

    # A table by task, in which validation has selected the sensible penalty.
    print(score_table(frame, "station").markdown())
    printed = capsys.readouterr().out
    assert all(f"{name}: nll" in printed for name in NAMES)
    assert "| scroll-diag |" in printed
    sensible = frame[frame["setting"] == '{"alpha": 1.0}']["wind.nll"]
    assert "| linear | " in printed
    assert f"{sensible.mean():.3f}" in printed


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
    np.testing.assert_array_equal(labels["temperature"], other.Y["temperature"][split.test])
    assert max(problem("station/0", PROTOCOL).split(1).train) < 120
    found = execute(make_job("station*8", "linear", "none", PROTOCOL, seeds=[1]))
    assert found.rows[1][0]["target_factor"] == 8.0
