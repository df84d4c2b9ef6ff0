"""Answers about one quantity are paired and compared: probabilities read off the value's law."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import ndtr

from scrollmt import Gaussian, Windowing, agreement, at_lead, over_window
from scrollmt._data.cutting import Question
from scrollmt.laws import CensoredLaw, CountLaw, EventLaw, GaussianLaw, HeadLaw, Law, OrdinalLaw

MEAN, SD = np.array([0.5, 1.0, 2.0, 0.0]), np.array([0.3, 1.0, 0.5, 2.0])


def event(p: Any) -> EventLaw:
    p = np.asarray(p, dtype=float)
    with np.errstate(divide="ignore"):
        return EventLaw(np.log(np.stack([1.0 - p, p], axis=1)))


def bands(upper: Any) -> OrdinalLaw:
    """Ordered classes given P(class r or above), (N, R-1)."""
    edges = np.pad(np.asarray(upper, dtype=float), ((0, 0), (1, 1)), constant_values=(1.0, 0.0))
    probs = edges[:, :-1] - edges[:, 1:]
    return OrdinalLaw(np.log(np.maximum(probs, 1e-300)))


def asked(**questions: Any) -> dict[str, Question]:
    return {name: Question(one, 3) for name, one in questions.items()}


@pytest.mark.parametrize(
    ("compare", "side"),
    [
        (lambda x: x > 1.2, 1.0),
        (lambda x: x >= 1.2, 1.0),
        (lambda x: x < 1.2, -1.0),
        (lambda x: x <= 1.2, -1.0),
    ],
)
def test_an_event_of_the_same_law_agrees(compare: Callable[[Any], Any], side: float) -> None:
    law = GaussianLaw(MEAN, SD)
    own = event(ndtr(side * (MEAN - 1.2) / SD))
    (found,) = agreement.compare(
        {"x": law, "above": own}, asked(x=at_lead("x"), above=compare(at_lead("x")))
    )
    assert (found.about, found.value) == ("above", "x")
    np.testing.assert_allclose(found.difference, 0.0, atol=1e-12)
    assert (found.mean, found.share_far) == (pytest.approx(0.0, abs=1e-12), 0.0)


@pytest.mark.parametrize(
    ("value", "threshold", "at"),
    [
        (at_lead("x").log1p(), at_lead("x") > 2.0, np.log1p(2.0)),
        (at_lead("x"), at_lead("x").log() > 1.0, np.exp(1.0)),
        (at_lead("x").sqrt(), at_lead("x").log1p() > 1.0, np.sqrt(np.expm1(1.0))),
        # Below the domain of the value's scale the event is certain.
        (at_lead("x").log(), at_lead("x") > -1.0, -np.inf),
        (over_window("x").max().log1p(), over_window("x").log().max() > 1.0, np.log1p(np.exp(1.0))),
    ],
)
def test_thresholds_move_through_original_units(value: Any, threshold: Any, at: float) -> None:
    laws: dict[str, Law] = {"v": GaussianLaw(MEAN, SD), "e": event(np.full(4, 0.5))}
    (found,) = agreement.compare(laws, asked(v=value, e=threshold))
    np.testing.assert_allclose(found.read, ndtr((MEAN - at) / SD), atol=1e-12)


def test_a_count_has_mass_on_the_threshold() -> None:
    law = CountLaw(np.log([2.0]), np.array([1e-12]))
    for ask, chance in (
        (at_lead("n") > 2, stats.poisson(2).sf(2)),
        (at_lead("n") >= 2, stats.poisson(2).sf(1)),
        (at_lead("n") < 2, stats.poisson(2).cdf(1)),
        (at_lead("n") <= 2, stats.poisson(2).cdf(2)),
    ):
        (found,) = agreement.compare({"n": law, "e": event([0.5])}, asked(n=at_lead("n"), e=ask))
        assert found.read[0] == pytest.approx(chance, rel=1e-5), ask


def test_a_detection_limit_has_mass_too() -> None:
    law = CensoredLaw(GaussianLaw(MEAN, SD), 0.5, np.inf)
    (found,) = agreement.compare(
        {"x": law, "e": event(np.full(4, 0.5))}, asked(x=at_lead("x"), e=at_lead("x") <= 0.5)
    )
    np.testing.assert_allclose(found.read, ndtr((0.5 - MEAN) / SD))


def test_bands_count_by_the_edge_with_the_largest_difference() -> None:
    edges = np.array([0.0, 1.0, 2.0])
    upper = ndtr((MEAN[:, None] - edges) / SD[:, None])
    moved = upper.copy()
    moved[1, 2] -= 0.05
    moved[2, 1] -= 0.1
    moved[3, 0] += 0.3
    questions = asked(x=at_lead("x"), band=at_lead("x").bands(edges.tolist()))
    (found,) = agreement.compare({"x": GaussianLaw(MEAN, SD), "band": bands(moved)}, questions)
    np.testing.assert_allclose(found.difference, [0.0, -0.05, -0.1, 0.3], atol=1e-9)
    assert found.which[1:].tolist() == [2, 1, 0]
    assert [one.threshold for one in found.events] == edges.tolist()
    np.testing.assert_allclose(found.own[3], moved[3, 0])
    assert found.mean == pytest.approx(0.45 / 4)
    assert found.share_far == 0.25


@pytest.mark.parametrize(
    ("value", "other"),
    [
        (at_lead("x"), at_lead("y") > 1.0),
        (at_lead("x"), over_window("x").mean() > 1.0),
        (over_window("x").max(), over_window("x").min() > 1.0),
        (over_window("x").mean(), over_window("x", include_start=True).mean() > 1.0),
        (over_window("x").mean(), over_window("x").log().mean() > 1.0),
        (over_window("x").log().mean(), over_window("x").mean().log() > 1.0),
    ],
)
def test_other_quantities_are_not_compared(value: Any, other: Any) -> None:
    laws: dict[str, Law] = {"v": GaussianLaw(MEAN, SD), "e": event(np.full(4, 0.5))}
    assert agreement.compare(laws, asked(v=value, e=other)) == []


def test_other_leads_and_laws_without_a_distribution_function_are_not_compared() -> None:
    value, ask = at_lead("x"), at_lead("x") > 1.0
    laws: dict[str, Law] = {"v": GaussianLaw(MEAN, SD), "e": event(np.full(4, 0.5))}
    assert agreement.compare(laws, {"v": Question(value, 3), "e": Question(ask, 4)}) == []
    bare = HeadLaw(Gaussian(), MEAN, SD)
    assert agreement.compare({**laws, "v": bare}, asked(v=value, e=ask)) == []
    assert len(agreement.compare(laws, asked(v=value, e=ask))) == 1


def test_units_and_every_value_about_the_quantity_count() -> None:
    laws: dict[str, Law] = {
        "raw": GaussianLaw(MEAN, SD),
        "log": GaussianLaw(MEAN, SD),
        "e": event(np.full(4, 0.5)),
    }
    questions = asked(
        raw=at_lead("x", units="mm"), log=at_lead("x").log1p(), e=at_lead("x", units="cm") > 1.0
    )
    assert [one.value for one in agreement.compare(laws, questions)] == ["raw", "log"]


def test_laws_and_questions_of_different_models_are_refused() -> None:
    laws: dict[str, Law] = {"x": GaussianLaw(MEAN, SD), "band": bands(np.full((4, 2), 0.5))}
    with pytest.raises(ValueError, match=r"'band' has 3 classes, but .* has 2"):
        agreement.compare(laws, asked(x=at_lead("x"), band=at_lead("x").bands([1.0])))
    with pytest.raises(ValueError, match=r"edges .* are not known"):
        agreement.compare(laws, asked(x=at_lead("x"), band=at_lead("x").quantile_bands(3)))


def test_a_window_whose_answers_contradict_gets_a_notice() -> None:
    hours = pd.date_range("2024-01-01", periods=40, freq="h")
    frame = pd.DataFrame({"x": np.arange(40.0)}, index=hours)
    x = at_lead("x", units="mm")
    window = Windowing(history=2, lead=3).cut(frame, {"level": x, "wet": x > 1.0}).take(5)
    level = GaussianLaw([1.0], [1.0])
    assert agreement.notice({"level": level, "wet": event([0.69])}, window) is None
    said = agreement.notice({"level": level, "wet": event([0.82])}, window)
    assert said is not None
    assert "whether x at t + 3 h is above 1 mm" in said
    assert "'wet' gives it 82 percent and 'level' 50 percent" in said
