"""Labels of classes: texts in the order that a head was given, yes and no, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import small
from scrollmt import Categorical, Event, Ordinal, load
from scrollmt.heads import AbstractHead

LOW_TO_HIGH = ["low", "mid", "high"]


@pytest.mark.parametrize("family", [Ordinal, Categorical])
@pytest.mark.parametrize("kind", [list, np.array, pd.Series, pd.Categorical])
def test_texts_are_read_in_the_order_of_the_head(family: Any, kind: Any) -> None:
    head = family(LOW_TO_HIGH)
    assert head.classes == 3
    assert head.labels == ("low", "mid", "high")
    y, seen = head.read_labels("regime", kind(["high", "low", "mid", "high"]))
    assert y.tolist() == [2, 0, 1, 2]
    assert y.dtype == np.int32
    assert seen.all()


def test_a_text_may_be_missing() -> None:
    y, seen = Ordinal(LOW_TO_HIGH).read_labels("regime", ["mid", None, float("nan"), "", "high"])
    assert seen.tolist() == [True, False, False, False, True]
    assert y.tolist() == [1, 0, 0, 0, 2]
    assert not Ordinal(LOW_TO_HIGH).read_labels("regime", np.full(4, np.nan))[1].any()


@pytest.mark.parametrize("bad", ["High", " high", 2, True])
def test_another_text_is_refused_with_its_row(bad: object) -> None:
    given = np.array(["low", "mid", bad, bad], dtype=object)
    with pytest.raises(ValueError, match=r"task 'regime': row 2 is .* \(2 of 4 .*'low', 'mid', 'h"):
        Ordinal(LOW_TO_HIGH).read_labels("regime", given)


def test_the_second_text_of_an_event_is_the_event() -> None:
    y, seen = Event(labels=("dry", "wet")).read_labels("rain", ["wet", "dry", None])
    assert y.tolist() == [1, 0, 0]
    assert seen.tolist() == [True, True, False]
    with pytest.raises(ValueError, match="row 0 is 'yes'"):
        Event(labels=("dry", "wet")).read_labels("rain", ["yes"])


@pytest.mark.parametrize(
    "given",
    [
        [True, False, True],
        np.array([True, False, True], dtype=object),
        ["yes", "no", "yes"],
        np.array(["Yes", "no", "YES"]),
        pd.Series(["true", "false", "true"]),
        ["True", "False", "yes"],
    ],
)
def test_an_event_takes_yes_and_no(given: Any) -> None:
    y, seen = Event().read_labels("rain", given)
    assert y.tolist() == [1, 0, 1]
    assert seen.all()


def test_other_words_are_no_event() -> None:
    assert Event().read_labels("rain", ["yes", None, ""])[1].tolist() == [True, False, False]
    for given in (["yes", "maybe"], ["yes", 1]):
        with pytest.raises(ValueError, match=r"task 'rain' must hold numbers.* labels as texts"):
            Event().read_labels("rain", np.array(given, dtype=object))
    with pytest.raises(ValueError, match="must hold numbers"):
        Ordinal(2).read_labels("rain", ["yes", "no"])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Ordinal(["low"]), "at least two different texts"),
        (lambda: Ordinal(["low", "low"]), "at least two different texts"),
        (lambda: Categorical(["low", ""]), "at least two different texts"),
        (lambda: Event(labels=LOW_TO_HIGH), "an event has two labels"),
    ],
)
def test_labels_that_are_none(make: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()


def test_heads_with_labels_print_as_users_write_them() -> None:
    heads: list[Any] = [Event(labels=["no", "yes"]), Ordinal(LOW_TO_HIGH), Categorical(LOW_TO_HIGH)]
    texts = ["Event(labels=('no', 'yes'))", *(f"{h}({LOW_TO_HIGH})" for h in ("Ordinal", "Cat"))]
    assert [repr(head) for head in heads] == [t.replace("Cat", "Categorical") for t in texts]
    for head in heads:
        assert eval(repr(head)).labels == head.labels


@pytest.mark.slow
def test_texts_go_through_a_fit_and_a_folder(tmp_path: Path) -> None:
    X, Y = small.tables()
    texts = pd.DataFrame(
        {
            "event": Y["event"].map({0: "dry", 1: "wet"}),
            "regime": Y["regime"].map(dict(enumerate(LOW_TO_HIGH))),
        }
    )
    tasks: dict[str, AbstractHead] = {
        "event": Event(labels=("dry", "wet")),
        "regime": Ordinal(LOW_TO_HIGH),
    }
    plain: dict[str, AbstractHead] = {"event": Event(), "regime": Ordinal(3)}
    named = small.tiny(tasks).fit(X, texts)
    numbered = small.tiny(plain).fit(X, Y[["event", "regime"]])
    named.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.tasks_["event"].labels == ("dry", "wet")  # type: ignore[attr-defined]
    assert again.tasks_["regime"].labels == ("low", "mid", "high")  # type: ignore[attr-defined]
    pd.testing.assert_frame_equal(again.evaluate(X, texts), named.evaluate(X, texts))
    small.assert_same(small.numbers(again, X), small.numbers(numbered, X))
