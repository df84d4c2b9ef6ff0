"""Means, paired tests and marks against scipy's own tests and the paper's rules."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from scrollmt.paper.tables.statistics import between_groups, estimate, geometric, marks, p_worse

RNG = np.random.default_rng(0)
BEST = RNG.normal(2.0, 0.1, size=10)
WORSE = BEST + RNG.normal(0.05, 0.04, size=10)


def test_mean_and_standard_error() -> None:
    found = estimate(WORSE)
    assert found.mean == pytest.approx(np.sum(WORSE) / 10, rel=1e-14)
    assert found.se == pytest.approx(stats.sem(WORSE), rel=1e-12)
    assert found.count == 10


def test_one_seed_has_no_standard_error() -> None:
    found = estimate([1.5])
    assert found.mean == 1.5
    assert np.isnan(found.se)


def test_a_failed_run_is_not_averaged_away() -> None:
    assert np.isnan(estimate([1.0, np.nan, 2.0]).mean)
    assert estimate([1.0, np.inf]).mean == np.inf
    assert np.isnan(estimate([1.0, np.inf]).se)


def test_a_ratio_is_averaged_like_its_inverse() -> None:
    ratios = np.exp(RNG.normal(size=10))
    found, turned = geometric(ratios), geometric(1.0 / ratios)
    assert found.mean == pytest.approx(stats.gmean(ratios), rel=1e-12)
    assert turned.mean == pytest.approx(1.0 / found.mean, rel=1e-12)
    assert turned.se / turned.mean == pytest.approx(found.se / found.mean, rel=1e-12)


@pytest.mark.parametrize("values", [np.zeros(0), np.zeros((1, 2)), np.zeros(())])
def test_what_is_not_one_value_a_seed_is_refused(values: np.ndarray) -> None:
    with pytest.raises(ValueError, match="one value a seed"):
        estimate(values)


@pytest.mark.parametrize(("better", "side"), [("lower", "greater"), ("higher", "less")])
def test_paired_test_is_scipys(better: str, side: str) -> None:
    want = stats.ttest_rel(WORSE, BEST, alternative=side).pvalue
    assert p_worse(WORSE, BEST, better) == pytest.approx(want, rel=1e-10)  # type: ignore[arg-type]


def test_paired_test_with_two_degrees_of_freedom() -> None:
    """Differences 1, 2, 6 have t = 3 / sqrt(7 / 3); this tail is known in closed form."""
    t = 3.0 / np.sqrt(7.0 / 3.0)
    want = 0.5 * (1.0 - t / np.sqrt(2.0 + t**2))
    assert p_worse([1.0, 2.0, 6.0], [0.0, 0.0, 0.0]) == pytest.approx(want, rel=1e-12)


def test_the_test_is_paired() -> None:
    """A small gap at every seed is found even where seeds vary by much more."""
    seeds = np.arange(10.0)
    wiggle = 1e-3 * (-1.0) ** np.arange(10)
    assert p_worse(seeds + 0.01 + wiggle, seeds) < 1e-6
    assert stats.ttest_ind(seeds + 0.01 + wiggle, seeds, alternative="greater").pvalue > 0.4


@pytest.mark.parametrize(
    ("arm", "best", "want"),
    [
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], 0.5),
        ([2.0, 3.0, 4.0], [1.0, 2.0, 3.0], 0.0),
        ([0.0, 1.0, 2.0], [1.0, 2.0, 3.0], 1.0),
        ([2.0], [1.0], np.nan),
        ([], [], np.nan),
        ([1.0, np.nan], [1.0, 2.0], np.nan),
        ([1.0, np.inf], [1.0, 2.0], np.nan),
    ],
)
def test_paired_test_at_its_limits(arm: list[float], best: list[float], want: float) -> None:
    np.testing.assert_equal(p_worse(arm, best), want)


def test_unequal_lengths_do_not_pair() -> None:
    with pytest.raises(ValueError, match=r"\(3,\) and \(2,\)"):
        p_worse([1.0, 2.0, 3.0], [1.0, 2.0])


def column(values: object, seeds: object = range(10)) -> pd.Series:
    return pd.Series(values, index=seeds)


def test_marks_follow_the_papers_rule() -> None:
    noisy = BEST + 5.0 + RNG.normal(0.0, 20.0, size=10)
    scores = {"worse": column(WORSE), "best": column(BEST), "noisy": column(noisy)}
    assert noisy.mean() > BEST.mean()
    assert p_worse(WORSE, BEST) < 0.05 <= p_worse(noisy, BEST)
    # A poor mean does not matter to the test, only whether it is resolved.
    assert marks(scores) == {"worse": "", "best": "bold", "noisy": "italic"}


def test_marks_where_higher_is_better() -> None:
    scores = {"a": column(BEST), "b": column(BEST + np.linspace(0.9, 1.1, 10))}
    assert marks(scores, "higher") == {"a": "", "b": "bold"}
    assert marks(scores, "lower") == {"a": "bold", "b": ""}


def test_equal_best_means_are_both_bold() -> None:
    scores = {"a": column(BEST), "b": column(BEST), "c": column(WORSE)}
    assert marks(scores) == {"a": "bold", "b": "bold", "c": ""}


def test_the_level_decides() -> None:
    p = p_worse(WORSE, BEST)
    scores = {"best": column(BEST), "worse": column(WORSE)}
    assert marks(scores, level=p * 1.01)["worse"] == ""
    assert marks(scores, level=p * 0.99)["worse"] == "italic"


def test_marks_pair_by_seed_not_by_place() -> None:
    shuffled = column(WORSE).sample(frac=1.0, random_state=3)
    assert [*shuffled.index] != [*range(10)]
    assert marks({"best": column(BEST), "worse": shuffled})["worse"] == ""
    # Seeds that the best arm lacks do not enter its test.
    extra = column([*WORSE, -50.0], [*range(10), 99])
    extra[99] = 50.0
    assert marks({"best": column(BEST), "worse": extra})["worse"] == ""


def test_one_seed_gives_a_best_and_no_ties() -> None:
    assert marks({"a": column([1.0], [5]), "b": column([1.1], [5])}) == {"a": "bold", "b": ""}


def test_an_arm_that_failed_is_not_best_and_has_no_mark() -> None:
    failed = column([*BEST[:9] - 9.0, np.nan])
    assert marks({"failed": failed, "fine": column(BEST)}) == {"failed": "", "fine": "bold"}
    assert marks({"failed": failed}) == {"failed": ""}


def test_marks_refuse_several_runs_of_one_seed() -> None:
    with pytest.raises(ValueError, match=r"several scores for one seed in \['a'\]"):
        marks({"a": column([1.0, 2.0], [5, 5])})


def test_interval_between_groups_counts_groups_not_runs() -> None:
    origins = np.array([0.3, 0.1, 0.5, 0.2, 0.45])
    within = np.linspace(-0.05, 0.05, 10)
    values = (origins[:, None] + within).ravel()
    found = between_groups(values, np.repeat(np.arange(5), 10))
    want = stats.ttest_1samp(origins, 0.0).confidence_interval(0.95)
    assert found.count == 5
    assert found.mean == pytest.approx(origins.mean(), rel=1e-12)
    assert found.se == pytest.approx(stats.sem(origins), rel=1e-9)
    assert (found.low, found.high) == pytest.approx((want.low, want.high), rel=1e-9)
    wide = between_groups(values, np.repeat(np.arange(5), 10), confidence=0.99)
    assert wide.high - wide.low > found.high - found.low
    assert found.covers(0.3)
    assert not found.covers(0.0)


def test_groups_of_unequal_size_weigh_the_same() -> None:
    assert between_groups([1.0, 1.0, 1.0, 5.0], ["a", "a", "a", "b"]).mean == 3.0


def test_one_group_has_no_interval() -> None:
    found = between_groups([1.0, 2.0], ["a", "a"])
    assert found.mean == 1.5
    assert np.isnan([found.se, found.low, found.high]).all()
    assert not found.covers(1.5)


def test_each_value_needs_its_group() -> None:
    with pytest.raises(ValueError, match=r"\(3,\) but 2 group labels"):
        between_groups([1.0, 2.0, 3.0], ["a", "b"])
