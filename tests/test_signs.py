"""Differences are judged a second time, by sign and by whether they are told apart from zero."""

from dataclasses import replace

import pytest
from scipy.stats import ttest_1samp

from scrollmt.paper.data import published
from scrollmt.paper.tables.samples import NO_RUNS, Sample, sample
from scrollmt.paper.tables.signs import expected, sign_of, told_apart
from scrollmt.paper.tables.statistics import estimate
from scrollmt.paper.tables.verdicts import Finding

TEN, FIVE = Sample("10 seeds", 10), Sample("5 origins x 10 seeds", 5)


def finding(
    id: str, numbers: tuple[float, ...], errors: tuple[float, ...], over: Sample
) -> Finding:
    return Finding(id, "ours", numbers, errors, "holds", published.claim(id).study, sample=over)


def test_told_apart_is_the_t_test() -> None:
    for shift in (0.1, 0.5, 0.55, 0.6, 2.0):
        values = [shift - 1.0, shift + 1.0, shift, shift + 0.5, shift - 0.4]
        found = estimate(values)
        apart = told_apart(found.mean, found.se, found.count)
        assert apart == (ttest_1samp(values, 0.0).pvalue < 0.05)
    assert not told_apart(1.0, float("nan"), 10)
    assert not told_apart(1.0, 0.1, 1)
    assert not told_apart(0.0, 0.0, 10)
    assert told_apart(0.1, 0.0, 10)


@pytest.mark.parametrize(
    ("id", "signs"),
    [
        ("C178", ("+",)),  # 0.057 ± 0.009
        ("C161", ("+",)),  # 0.023 ± 0.007 between five origins
        ("C193", ("(-)",)),  # -0.010 ± 0.007 between five origins
        ("C175", ("0",)),  # 0.000 ± 0.001
        ("C164", ("+", "+")),  # 0.03..0.29, no error
        ("C195", ("majority",)),
        ("C113", ()),  # a correlation, no difference
    ],
)
def test_what_the_paper_has(id: str, signs: tuple[str, ...]) -> None:
    assert expected(published.claim(id)) == signs


def test_listed_signs_are_those_of_the_printed_numbers() -> None:
    for id, signs in published.signs().items():
        claim = published.claim(id)
        assert not claim.paper_uncertainty, f"{id} has an error, which says more"
        assert set(signs) <= set("+-0.;()") or signs == "majority"
        if claim.check != "ordering" and signs in ("+", "-"):
            assert (float(claim.paper_value) > 0.0) == (signs == "+")


@pytest.mark.parametrize(
    ("id", "numbers", "errors", "over", "said"),
    [
        ("C178", (0.05,), (0.01,), TEN, "reproduced"),
        ("C178", (0.0147,), (0.015,), TEN, "not reproduced"),
        ("C178", (-0.05,), (0.01,), TEN, "not reproduced"),
        ("C193", (-0.002,), (0.011,), FIVE, "reproduced"),
        ("C193", (0.0085,), (0.011,), FIVE, "not reproduced"),
        ("C193", (-0.05,), (0.011,), FIVE, "not reproduced"),
        ("C175", (0.0001,), (0.0005,), TEN, "reproduced"),
        ("C175", (0.005,), (0.0005,), TEN, "not reproduced"),
        ("C164", (0.02, 0.3), (0.005, 0.01), TEN, "reproduced"),
        ("C164", (0.004, 0.3), (0.005, 0.01), TEN, "not reproduced"),
        ("C195", (5.0, 3.0, 3.0), (), FIVE, "reproduced"),
        ("C195", (5.0, 2.0, 2.0), (), FIVE, "not reproduced"),
        # One figure of the paper, several of ours.
        ("C091", (0.2, 0.8), (0.01, 0.01), TEN, "reproduced"),
        ("C113", (0.6,), (0.01,), TEN, ""),
    ],
)
def test_sign_and_significance(
    id: str, numbers: tuple[float, ...], errors: tuple[float, ...], over: Sample, said: str
) -> None:
    found = finding(id, numbers, errors, over)
    assert sign_of(found) == said
    assert sign_of(replace(found, verdict="not checkable")) == ""


def test_a_wrong_number_of_values_is_told() -> None:
    with pytest.raises(ValueError, match=r"C164: 2 signs are expected \(\+; \+\), got 3 numbers"):
        sign_of(finding("C164", (1.0, 2.0, 3.0), (0.1, 0.1, 0.1), TEN))


def test_samples_say_what_was_read() -> None:
    seeds = [5, 6, 7]
    draws = [s + 1000 * k for k in range(4) for s in seeds]
    assert sample([]) == NO_RUNS
    assert sample([("pm25", seeds), ("pm25", seeds)]) == Sample("3 seeds", 3, 1)
    assert sample([("pm25", seeds), ("pm25", seeds[:1])]) == Sample("1 seed", 1, 1)
    assert sample([("ou", draws)]) == Sample("4 draws x 3 seeds", 12, 4)
    origins = [(f"pm25/{k}", seeds) for k in range(5)]
    assert sample(origins) == Sample("5 origins x 3 seeds", 5, 1)
    both = sample([("ou", draws), ("pm25", seeds), ("lorenz63", seeds)])
    assert both == Sample("4 draws x 3 seeds (ou); 3 seeds (pm25, lorenz63)", 3, 4)
