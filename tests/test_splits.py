"""Splits: the paper's sizes, an embargo against brute force, and what leaks."""

from itertools import pairwise

import numpy as np
import pytest

from scrollmt.splits import (
    Split,
    chronological_split,
    random_split,
    rolling_origins,
    shared_hours,
)


def sizes(split: Split) -> list[int]:
    return [len(part) for part in split]


def test_the_papers_sizes() -> None:
    assert sizes(chronological_split(1680)) == [1008, 336, 336]
    assert sizes(random_split(6500, seed=3)) == [3900, 1300, 1300]
    assert [sizes(one) for one in rolling_origins(1680)] == [
        [672, 168, 168],
        [840, 168, 168],
        [1008, 168, 168],
        [1176, 168, 168],
        [1344, 168, 168],
    ]


@pytest.mark.parametrize("n", [7, 10, 103, 1671])
def test_parts_are_disjoint_and_cover_the_windows(n: int) -> None:
    for split in (chronological_split(n), random_split(n, seed=1)):
        np.testing.assert_array_equal(np.sort(np.concatenate(split)), np.arange(n))
        assert all(np.all(np.diff(part) > 0) for part in split)


@pytest.mark.parametrize("n", [50, 103, 1671])
def test_rolling_blocks_follow_each_other_and_end_with_the_series(n: int) -> None:
    splits = rolling_origins(n)
    for split in splits:
        np.testing.assert_array_equal(np.concatenate(split), np.arange(split.test[-1] + 1))
    assert splits[-1].test[-1] == n - 1
    assert all(len(a.train) < len(b.train) for a, b in pairwise(splits))


def test_rolling_origins_spread_evenly() -> None:
    trains = [len(one.train) for one in rolling_origins(1000, origins=3)]
    assert trains == [400, 600, 800]
    assert len(rolling_origins(1000, origins=1)) == 1
    assert sizes(rolling_origins(1000, 2, first=0.5, block=0.2)[1]) == [600, 200, 200]


def test_random_split_depends_on_the_seed_alone() -> None:
    same = random_split(200, seed=7), random_split(200, seed=7)
    np.testing.assert_array_equal(same[0].train, same[1].train)
    assert not np.array_equal(same[0].train, random_split(200, seed=8).train)


def test_fractions_may_leave_a_part_out() -> None:
    assert sizes(chronological_split(10, (0.8, 0.2, 0.0))) == [8, 2, 0]
    assert sizes(chronological_split(10, (0.8, 0.2, 0.0), embargo=1)) == [7, 2, 0]


def brute_embargo(split: Split, places: np.ndarray, embargo: int) -> list[list[int]]:
    """By the rule in words: the test part stays, the others give way to the parts above them."""

    def far(part: np.ndarray, others: list[int]) -> list[int]:
        return [int(i) for i in part if all(abs(places[i] - places[j]) > embargo for j in others)]

    test = split.test.tolist()
    valid = far(split.valid, test)
    return [far(split.train, valid + test), valid, test]


@pytest.mark.parametrize("embargo", [1, 5, 47])
def test_embargo_matches_brute_force(embargo: int) -> None:
    rng = np.random.default_rng(0)
    places = np.cumsum(rng.integers(1, 60, size=300))
    for plain, held in [
        (chronological_split(300), chronological_split(300, embargo=embargo, positions=places)),
        (random_split(300, 4), random_split(300, 4, embargo=embargo, positions=places)),
        (rolling_origins(300)[2], rolling_origins(300, embargo=embargo, positions=places)[2]),
    ]:
        assert [part.tolist() for part in held] == brute_embargo(plain, places, embargo)


def test_embargo_counts_windows_without_positions() -> None:
    assert sizes(chronological_split(100, embargo=2)) == [58, 18, 20]
    held = random_split(2000, seed=0, embargo=1)
    # 0.36 of the training windows have both neighbours in training; 1200 of them, sd about 0.02.
    assert 0.33 < len(held.train) / 1200 < 0.45
    assert len(held.test) == 400


def hours_shared(split: Split, places: np.ndarray, history: int, lead: int) -> list[dict]:
    read = [set(range(p - history + 1, p + 1)) for p in places]
    scored = [set(range(p + 1, p + lead + 1)) for p in places]
    table = []
    for part, mine in split._asdict().items():
        for other, theirs in split._asdict().items():
            if part != other:
                targets = set().union(*(scored[j] for j in theirs))
                table.append(
                    {
                        "part": part,
                        "other": other,
                        "history": sum(bool(read[i] & targets) for i in mine),
                        "targets": sum(bool(scored[i] & targets) for i in mine),
                    }
                )
    return table


@pytest.mark.parametrize(("history", "lead", "stride"), [(24, 24, 24), (6, 12, 4), (1, 5, 6)])
def test_shared_hours_match_sets_of_hours(history: int, lead: int, stride: int) -> None:
    places = np.arange(120) * stride + history - 1
    for split in (chronological_split(120), random_split(120, seed=2)):
        expected = hours_shared(split, places, history, lead)
        assert shared_hours(split, places, history, lead) == expected
    if history == 24:
        assert sum(row["history"] for row in expected) > 0


def test_history_plus_lead_minus_one_is_the_smallest_clean_embargo() -> None:
    history, lead = 7, 5
    places = np.arange(400)
    clean = chronological_split(400, embargo=history + lead - 1, positions=places)
    tight = chronological_split(400, embargo=history + lead - 2, positions=places)

    def leaks(split: Split) -> int:
        return sum(row["history"] + row["targets"] for row in shared_hours(split, places, 7, 5))

    assert leaks(clean) == 0
    assert leaks(tight) > 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: chronological_split(0), "positive integer"),
        (lambda: chronological_split(10, (0.5, 0.2, 0.2)), "add up to 1"),
        (lambda: chronological_split(10, (1.2, -0.2, 0.0)), "add up to 1"),
        (lambda: chronological_split(2), "may not be empty"),
        (lambda: random_split(10, seed=-1), "seed"),
        (lambda: chronological_split(10, embargo=-1), "embargo"),
        (lambda: chronological_split(10, embargo=6), "leaves"),
        (lambda: random_split(10, seed=0, embargo=9), "chronological"),
        (lambda: chronological_split(10, positions=[0, 1]), r"10 integers.*\(2,\)"),
        (lambda: chronological_split(3, positions=[0, 2, 1]), "window 2 is at 1, after 2"),
        (lambda: rolling_origins(100, origins=0), "origins"),
        (lambda: rolling_origins(100, first=0.9, block=0.2), "do not fit"),
        (lambda: rolling_origins(6), "fewer origins or a larger block"),
    ],
)
def test_errors_teach(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
