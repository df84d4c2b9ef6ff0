"""Corpora by their ids: what an id asks for, how windows are split, and what errors say."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scrollmt.backbone import PAPER_BACKBONES
from scrollmt.corpora import lorenz63, ou, pm25
from scrollmt.paper.arena import problems
from scrollmt.paper.arena.problems import Changes, problem, read_id, true_var
from scrollmt.paper.protocol import LEADS, ORIGINS, PROTOCOL, TARGET_SCALES, Protocol
from scrollmt.presets import PAPER
from scrollmt.splits import chronological_split, random_split, rolling_origins
from test_pm25 import as_csv, generated

SMALL = Protocol(corpus_windows=60, truth_members=8)


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A generated table takes the place of the real one; how many windows it holds."""
    folder = tmp_path_factory.mktemp("data")
    csv = as_csv(generated())
    Path(folder, pm25.FILE).write_bytes(csv)
    problems._series.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pm25, "SHA256", hashlib.sha256(csv).hexdigest())
        patch.setenv(pm25.FOLDER_VARIABLE, str(folder))
        yield len(pm25.load())
    problems._series.cache_clear()


# The protocol


def test_the_protocol_has_the_papers_constants() -> None:
    assert PROTOCOL.seeds == (5, 6, 7, 8, 9, 10, 11, 12, 13, 14)
    assert (PROTOCOL.learning_rate, PROTOCOL.backbone_l2) == (0.03, 0.01)
    assert (PROTOCOL.steps, PROTOCOL.cov_floor) == (5000, 1e-4)
    assert (PROTOCOL.corpus_windows, PROTOCOL.truth_members) == (6500, 200)
    assert LEADS == {"ou": (0.1, 0.25, 0.5, 1.0, 2.0), "lorenz63": (0.1, 0.25, 0.5, 1.0)}
    assert TARGET_SCALES == (1 / 8, 1 / 2, 1, 2, 8)
    assert ORIGINS == 5


def test_the_protocol_is_that_of_the_papers_preset() -> None:
    assert PROTOCOL.schedule() == PAPER.schedule
    assert PROTOCOL.cov_floor == PAPER.cov_floor
    assert not PAPER.scale_targets
    assert tuple(c.name for c in PAPER.candidates) == PAPER_BACKBONES
    for candidate in PAPER.candidates:
        assert candidate.learning_rate == PROTOCOL.learning_rate
        assert candidate.backbone_l2 == PROTOCOL.backbone_l2


def test_the_seeds_are_no_determinant_and_all_else_is() -> None:
    names = set(Protocol.__dataclass_fields__)
    later = {"penalty_beside_means": 1.0, "initial_precision": 0.1, "initial_noise": "targets"}
    assert PROTOCOL.determinants().keys() == names - {"seeds"} - later.keys()
    assert Protocol(**PROTOCOL.determinants()) == PROTOCOL
    changed = Protocol(**later)
    assert changed.determinants().keys() == names - {"seeds"}
    assert Protocol(**changed.determinants()) == changed


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"initial_noise": "small"}, "unknown initial_noise 'small'; choose from one, targets"),
        ({"initial_precision": 0.0}, "prior_precision must be > 0, got 0.0"),
    ],
)
def test_a_start_that_there_is_not_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Protocol(**given)


# Ids


@pytest.mark.parametrize(
    ("corpus", "expected"),
    [
        ("ou", Changes("ou", 0.5, 1.0, False, None, None)),
        ("lorenz63@0.1", Changes("lorenz63", 0.1, 1.0, False, None, None)),
        ("ou@2", Changes("ou", 2.0, 1.0, False, None, None)),
        ("lorenz63*0.125", Changes("lorenz63", 0.5, 0.125, False, None, None)),
        ("lorenz63-std", Changes("lorenz63", 0.5, 1.0, True, None, None)),
        ("ou~3", Changes("ou", 0.5, 1.0, False, None, 3)),
        ("ou~12", Changes("ou", 0.5, 1.0, False, None, 12)),
        ("ou@0.25*2~7", Changes("ou", 0.25, 2.0, False, None, 7)),
        ("pm25", Changes("pm25", 0.5, 1.0, False, None, None)),
        ("pm25/4", Changes("pm25", 0.5, 1.0, False, 4, None)),
        ("pm25-std/0", Changes("pm25", 0.5, 1.0, True, 0, None)),
    ],
)
def test_an_id_says_what_is_changed(corpus: str, expected: Changes) -> None:
    assert read_id(corpus) == expected


@pytest.mark.parametrize(
    "corpus",
    [
        "",
        "lorenz",
        "OU",
        "ou ",
        "ou@",
        "ou@.",
        "ou@1.2.3",
        "ou*-1",
        "ou*",
        "ou-std*2",
        "ou~",
        "ou~x",
    ],
)
def test_an_unknown_id_is_refused_with_examples(corpus: str) -> None:
    with pytest.raises(ValueError, match="use ou, lorenz63 or pm25") as error:
        read_id(corpus)
    assert f"unknown corpus {corpus!r}" in str(error.value)
    for example in ("ou@0.1", "lorenz63*8", "lorenz63-std", "pm25/0", "ou~3"):
        assert example in str(error.value)
        read_id(example)


@pytest.mark.parametrize(
    ("corpus", "fault"),
    [
        ("ou/0", "only pm25 has rolling origins"),
        ("lorenz63/1", "only pm25 has rolling origins"),
        ("pm25/5", "origins are numbered 0 to 4"),
        ("pm25/10", "origins are numbered 0 to 4"),
        ("pm25@1", "one lead and one series"),
        ("pm25~1", "one lead and one series"),
        ("ou*0", "nothing to learn"),
    ],
)
def test_a_change_that_makes_no_sense_is_named(corpus: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault) as error:
        read_id(corpus)
    assert repr(corpus) in str(error.value)


def test_a_lead_between_two_steps_is_refused() -> None:
    with pytest.raises(ValueError, match="not a multiple of the step"):
        problem("ou@0.123", SMALL)


# Problems


@pytest.mark.parametrize(("corpus", "module"), [("ou", ou), ("lorenz63", lorenz63)])
def test_a_simulated_problem_is_its_corpus_at_lead_and_draw(corpus: str, module) -> None:
    for name, lead, seed in ((corpus, 0.5, 0), (f"{corpus}@0.1~3", 0.1, 3)):
        found, drawn = problem(name, SMALL), module.draw(n=60, lead=lead, seed=seed)
        np.testing.assert_array_equal(found.X, drawn.X)
        for task in drawn.Y:
            np.testing.assert_array_equal(found.Y[task], drawn.Y[task])
        assert (found.corpus.lead, found.corpus.seed) == (lead, seed)


def test_the_protocol_gives_the_draw_where_the_id_does_not() -> None:
    third = Protocol(corpus_windows=60, corpus_seed=3)
    np.testing.assert_array_equal(problem("ou", third).X, problem("ou~3", SMALL).X)
    assert not np.array_equal(problem("ou", third).X, problem("ou", SMALL).X)


def test_random_splits_go_with_the_seed_and_share_no_window() -> None:
    of = problem("ou", SMALL)
    for seed in (5, 6):
        for found, expected in zip(of.split(seed), random_split(60, seed), strict=True):
            np.testing.assert_array_equal(found, expected)
        assert [len(part) for part in of.split(seed)] == [36, 12, 12]
        assert sorted(np.concatenate(of.split(seed))) == [*range(60)]
    assert not np.array_equal(of.split(5).test, of.split(6).test)


def test_a_factor_multiplies_the_state_and_nothing_else() -> None:
    plain, eightfold = problem("lorenz63", SMALL), problem("lorenz63*8", SMALL)
    split = eightfold.split(5)
    factor = eightfold.target_factor(split)
    assert (plain.target_factor(split), factor) == (1.0, 8.0)
    X, Y = eightfold.part(split.valid, factor)
    np.testing.assert_array_equal(X, plain.X[split.valid])
    np.testing.assert_array_equal(Y["state"], 8 * plain.Y["state"][split.valid])
    for task in ("event", "regime"):
        np.testing.assert_array_equal(Y[task], plain.Y[task][split.valid])
    # The corpus itself is shared by all its problems and must stay as it is.
    np.testing.assert_array_equal(eightfold.Y["state"], plain.Y["state"])


def test_standardising_divides_by_the_sd_of_the_training_part() -> None:
    of = problem("lorenz63-std", SMALL)
    for seed in (5, 6):
        split = of.split(seed)
        factor = of.target_factor(split)
        assert np.std(of.part(split.train, factor)[1]["state"]) == pytest.approx(1.0, rel=1e-5)
        assert np.std(of.part(split.test, factor)[1]["state"]) != pytest.approx(1.0, rel=1e-3)
    assert of.target_factor(of.split(5)) != of.target_factor(of.split(6))


def test_the_true_variance_comes_in_the_units_of_the_target() -> None:
    np.testing.assert_allclose(true_var(problem("ou", SMALL), SMALL), 1 - np.exp(-1.0))
    np.testing.assert_allclose(true_var(problem("ou@0.1*2", SMALL), SMALL), 4 - 4 * np.exp(-0.2))
    drawn = lorenz63.draw(n=60)
    expected = drawn.true_var(drawn.X, members=8)
    np.testing.assert_allclose(true_var(problem("lorenz63", SMALL), SMALL), expected)
    np.testing.assert_allclose(true_var(problem("lorenz63*8", SMALL), SMALL), 64 * expected)
    # Its units would change with the seed.
    assert true_var(problem("lorenz63-std", SMALL), SMALL) is None


def test_the_series_is_split_by_time_whatever_the_seed(series: int) -> None:
    of = problem("pm25", SMALL)
    assert len(of.X) == series
    assert true_var(of, SMALL) is None
    windows = pm25.load()
    np.testing.assert_array_equal(of.X, windows.X)
    np.testing.assert_array_equal(of.Y["state"], windows.Y["state"])
    for seed in (5, 6):
        for found, expected in zip(of.split(seed), chronological_split(series), strict=True):
            np.testing.assert_array_equal(found, expected)


def test_an_origin_trains_on_all_before_it(series: int) -> None:
    tests = []
    for origin in range(ORIGINS):
        split = problem(f"pm25/{origin}", SMALL).split(5)
        expected = rolling_origins(series, ORIGINS)[origin]
        for found, wanted in zip(split, expected, strict=True):
            np.testing.assert_array_equal(found, wanted)
        assert len(split.train) == int((0.4 + 0.1 * origin) * series + 1e-6)
        assert split.train[-1] < split.valid[0]
        assert split.valid[-1] < split.test[0]
        tests.append(split.test)
    assert len({*np.concatenate(tests)}) == sum(map(len, tests))  # five blocks, none twice
    assert tests[-1][-1] == series - 1
