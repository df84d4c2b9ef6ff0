"""Several heads for one task, and questions about one number that share its law."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import onnxruntime
import pandas as pd
import pytest
from scipy import integrate, stats
from scipy.special import logsumexp

import scrollmt
from scrollmt import (
    Event,
    Forecaster,
    Gaussian,
    Mixture,
    Ordinal,
    Real,
    Windowing,
    at_lead,
    over_window,
)
from scrollmt._data import answers, edges
from scrollmt._data import numbers as behind
from scrollmt._data.answers import Answer
from scrollmt._fitting import members
from scrollmt.export import to_onnx
from scrollmt.heads import AbstractHead, StudentT
from scrollmt.laws import (
    CensoredLaw,
    CountLaw,
    Cut,
    EventLaw,
    GaussianLaw,
    GaussianMixtureLaw,
    OrdinalLaw,
    StudentTLaw,
)
from scrollmt.presets import DEFAULT

pytestmark = pytest.mark.slow

ROWS = 400
TASKS = {
    "value": Real(),
    "alarm": Event(of="value", above=0.8),
    "band": Ordinal(of="level", edges=[-1.0, 0.0, 1.0]),
}


def rows(count: int = ROWS, seed: int = 0) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """A value with two modes, and a number beside it that only the bands ask for."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 2))
    side = np.where(rng.uniform(size=count) < 0.5, -1.0, 1.0)
    value = X[:, 0] + side + 0.2 * rng.normal(size=count)
    return X, {"value": value, "level": X[:, 1] + rng.normal(size=count)}


@pytest.fixture(scope="module")
def fitted() -> Forecaster:
    return Forecaster(TASKS, steps=300, verbose=False).fit(*rows())


# Cuts of laws


@pytest.mark.parametrize(
    "law",
    [
        GaussianLaw([0.3, -2.0], [0.5, 2.0]),
        GaussianMixtureLaw([[0.0, 1.0], [3.0, -1.0]], [[0.5, 0.1], [1.0, 2.0]], [0.3, 0.7]),
        StudentTLaw([[0.3], [-2.0]], [[0.1], [0.5]], [0.5], [4.0]),
    ],
    ids=lambda law: type(law).__name__,
)
def test_masses_between_edges_are_integrals_of_the_density(law: Any) -> None:
    edges = [-1.0, 0.2, 1.5]
    masses = np.exp(law.log_masses(edges))
    for row in range(len(law)):
        one = law[row]
        ends = [-60.0, *edges, 60.0]
        for band, (low, high) in enumerate(pairwise(ends)):
            mass, _ = integrate.quad(
                lambda y, one=one: np.exp(one.log_prob(y)[0]), low, high, limit=500
            )
            # The t law has a share of its mass beyond the ends.
            assert masses[row, band] == pytest.approx(mass, abs=3e-6)
    np.testing.assert_allclose(masses.sum(axis=1), 1.0, rtol=1e-9)


def test_masses_of_normals_keep_their_digits_in_both_tails() -> None:
    law = GaussianLaw([0.0, 0.0], [1.0, 1.0])
    table = law.log_masses([-40.0, -39.0, 39.0, 40.0])
    for column, (low, high) in {1: (-40.0, -39.0), 3: (39.0, 40.0)}.items():
        upper = max(abs(low), abs(high)), min(abs(low), abs(high))
        tails = stats.norm.logsf(upper[1]), stats.norm.logsf(upper[0])
        expected = tails[0] + np.log1p(-np.exp(tails[1] - tails[0]))
        np.testing.assert_allclose(table[:, column], expected, rtol=1e-12)


def test_an_edge_with_a_mass_belongs_to_one_band() -> None:
    """Of a censored value the mass at the limit; of counts that of every number."""
    censored = CensoredLaw(GaussianLaw([0.5], [1.0]), lower=0.0)
    left, right = (np.exp(censored.log_masses([0.0], closed)) for closed in ("left", "right"))
    below = stats.norm.cdf(-0.5)
    np.testing.assert_allclose(left[0], [0.0, 1.0], atol=1e-12)
    np.testing.assert_allclose(right[0], [below, 1.0 - below], rtol=1e-9)
    counts = CountLaw([[np.log(3.0)]], [[1e-12]])
    left, right = (np.exp(counts.log_masses([2.0, 5.0], closed)) for closed in ("left", "right"))
    poisson = stats.poisson(3.0)
    np.testing.assert_allclose(left[0, 0], poisson.cdf(1), rtol=1e-5)
    np.testing.assert_allclose(right[0, 0], poisson.cdf(2), rtol=1e-5)
    np.testing.assert_allclose(left[0, 2], poisson.sf(4), rtol=1e-5)


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (Event(of="x", above=1.0), [0, 0, 1]),
        (Event(of="x", at_least=1.0), [0, 1, 1]),
        (Event(of="x", below=1.0), [1, 0, 0]),
        (Event(of="x", at_most=1.0), [1, 1, 0]),
        (Ordinal(of="x", edges=[1.0, 1.5]), [0, 1, 2]),
    ],
    ids=repr,
)
def test_labels_and_laws_of_a_cut_agree(head: Any, expected: list[int]) -> None:
    values = np.array([0.0, 1.0, 2.0])
    cut = head.asked_of.cut
    np.testing.assert_array_equal(cut.labels([*values, np.nan]), [*expected, np.nan])
    # A law so narrow that it is all at the value, moved off the edge to the side that holds it.
    nudge = 0.01 if cut.closed == "left" else -0.01
    law = cut.law(GaussianLaw(values + nudge, np.full(3, 1e-4)))
    np.testing.assert_array_equal(law.mode, expected)
    assert isinstance(law, EventLaw if head.cut_into == "event" else OrdinalLaw)
    scaled = cut.scaled(3.0, 2.0)
    np.testing.assert_array_equal(scaled.labels((values - 3.0) / 2.0), expected)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Event(of="x"), "one comparison"),
        (lambda: Event(above=1.0), "name the number"),
        (lambda: Event(of="x", above=1.0, below=2.0), "one comparison"),
        (lambda: Event(of="x", above=np.nan), "must be a number"),
        (lambda: Ordinal(of="x"), "its edges"),
        (lambda: Ordinal(), "number of classes"),
        (lambda: Ordinal(of="x", edges=[2.0, 1.0]), "increasing"),
        (lambda: Ordinal(4, of="x", edges=[1.0, 2.0]), "2 edges make 3 bands, got 4"),
        (lambda: Real(Gaussian(), Event()), "heads of a number"),
        (lambda: Real(Real()), "heads of a number"),
    ],
)
def test_bad_questions_are_refused(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


# Which heads are trained


def test_a_plan_has_one_head_for_every_answer(fitted: Forecaster) -> None:
    heads = set(fitted.model_.tasks)
    assert heads == {"value", "value|Mixture", "alarm", "band", "level"}
    assert fitted.answers_ is not None
    for name, own in fitted.answers_.items():
        assert len(own) == len(fitted.committee_[name])
    assert {one.cut is None for one in fitted.answers_["value"]} == {True}
    assert list(fitted.predict(rows()[0])) == list(TASKS)


@pytest.mark.slow
def test_two_modes_are_found_and_a_threshold_between_them_is_read_off(fitted: Forecaster) -> None:
    X, Y = rows(2_000, seed=1)
    laws: Any = fitted.predict(X)
    plain = Forecaster({"value": Gaussian()}, steps=300, verbose=False)
    gaussian = plain.fit(*rows_of("value")).predict(X)
    gain = laws["value"].log_prob(Y["value"]) - gaussian["value"].log_prob(Y["value"])
    assert gain.mean() > 0.2
    assert any(one.head == "value|Mixture" for one in fitted.answers_["value"])  # type: ignore[index]
    truth = stats.norm.sf(0.8, X[:, 0] - 1.0, 0.2) / 2 + stats.norm.sf(0.8, X[:, 0] + 1.0, 0.2) / 2
    # The chance is near 0, a half and 1 in turn: the base rate alone is 0.3 off.
    assert np.abs(laws["alarm"].prob - truth).mean() < 0.12


def rows_of(*names: str) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    X, Y = rows()
    return X, {name: Y[name] for name in names}


@pytest.mark.slow
def test_out_of_fold_scores_are_those_of_the_laws_by_fold(fitted: Forecaster) -> None:
    """An oracle by hand: predict each fold by the members that did not train on it."""
    X, Y = rows()
    model = Forecaster(TASKS, steps=60, verbose=False)
    ready = model._ready(X, Y, None)
    from scrollmt._fitting import training

    (chosen,) = training.trained(model, ready, [0])
    assert chosen.fold_of is not None
    assert chosen.out_of_fold is not None
    mixing = members.Mixing(chosen.committee, chosen.weights, False, chosen.answers)
    labels = ready.judged.labels
    assert ready.folds is not None
    for fold, part in enumerate(ready.folds.valid):
        own = mixing.only([n for n, of in enumerate(chosen.fold_of) if of == fold])
        x = ready.scales.inputs(X[part])
        laws = members.laws(TASKS, chosen.members, own, ready.scales, x)
        for name in TASKS:
            shift = np.log(ready.scales.scale.get(name, 1.0))
            np.testing.assert_allclose(
                laws[name].log_prob(labels[name][part]) + shift,
                chosen.out_of_fold[name][part],
                rtol=2e-4,
                atol=2e-4,
            )


def test_weights_favour_the_answer_with_the_better_score(fitted: Forecaster) -> None:
    assert fitted.weights_ is not None
    assert fitted.answers_ is not None
    shares = pd.Series(fitted.weights_["value"]).groupby(
        [one.head for one in fitted.answers_["value"]]
    )
    assert shares.sum()["value|Mixture"] > 0.8


@pytest.mark.slow
def test_without_folds_the_first_variant_is_the_head() -> None:
    X, Y = rows()
    options: dict[str, Any] = {"steps": 60, "verbose": False, "preset": "quick"}
    real = Forecaster({"value": Real()}, **options).fit(X, {"value": Y["value"]})
    plain = Forecaster({"value": Gaussian()}, **options).fit(X, {"value": Y["value"]})
    assert real.answers_ is None
    np.testing.assert_array_equal(
        real.predict(X)["value"].log_prob(Y["value"]),
        plain.predict(X)["value"].log_prob(Y["value"]),
    )


def test_a_preset_can_leave_further_heads_out() -> None:
    model = Forecaster(TASKS, preset=replace(DEFAULT, further_heads=False))
    assert set(model._ready(*rows(), None).heads) == set(TASKS)


def test_few_labels_train_no_further_heads() -> None:
    X, Y = rows(60)
    ready = Forecaster(TASKS, steps=30)._ready(X, Y, None)
    assert set(ready.heads) == set(TASKS)


def test_coupled_tasks_keep_one_head() -> None:
    X, Y = rows()
    model = Forecaster({"value": Real(), "level": Real()}, joint=["value", "level"])
    assert set(model._ready(X, Y, None).heads) == {"value", "level"}


def test_variants_of_one_class_have_names_of_their_own() -> None:
    X, Y = rows()
    head = Real(Gaussian(), Mixture(2), Mixture(3), StudentT())
    ready = Forecaster({"value": head})._ready(X, {"value": Y["value"]}, None)
    assert len(ready.heads) == 4
    assert len({repr(one) for one in ready.heads.values()}) == 4


@pytest.mark.slow
def test_beliefs_by_task_hold_for_all_heads_of_the_task() -> None:
    X, Y = rows()
    belief = {"value": "none", "alarm": "diag", "band": "full"}
    model = Forecaster(TASKS, belief=belief, steps=15, verbose=False).fit(X, Y)
    kinds = {name: type(task.belief).__name__ for name, task in model.model_.tasks.items()}
    assert kinds["value|Mixture"] == kinds["value"]
    assert kinds["level"] == kinds["band"]
    assert kinds["alarm"] != kinds["band"]


# Labels


def test_labels_of_a_question_come_from_its_number() -> None:
    X, Y = rows()
    ready = Forecaster(TASKS)._ready(X, Y, None)
    np.testing.assert_array_equal(ready.fitted.labels["alarm"], Y["value"] > 0.8)
    np.testing.assert_array_equal(
        ready.fitted.labels["band"], np.digitize(Y["level"], [-1.0, 0.0, 1.0])
    )


def test_a_missing_number_is_a_missing_label_unless_the_label_is_known(fitted: Forecaster) -> None:
    X, Y = rows()
    value, alarm = Y["value"].copy(), (Y["value"] > 0.8).astype(float)
    value[:10] = np.nan
    alarm[5:] = np.nan
    ready = Forecaster(TASKS)._ready(X, {**Y, "value": value, "alarm": alarm}, None)
    np.testing.assert_array_equal(ready.fitted.weights["alarm"][:12], [1] * 5 + [0] * 5 + [1] * 2)
    np.testing.assert_array_equal(ready.fitted.weights["value|Mixture"][:11], [0] * 10 + [1])


def test_texts_name_the_classes_of_a_number() -> None:
    X, Y = rows()
    heads = {
        "dry": Event(labels=("no", "yes"), of="level", below=0.0),
        "band": Ordinal(["low", "high"], of="level", edges=[0.0]),
    }
    ready = Forecaster(heads)._ready(X, {"level": Y["level"]}, None)
    np.testing.assert_array_equal(ready.fitted.labels["dry"], Y["level"] < 0.0)
    np.testing.assert_array_equal(ready.fitted.labels["band"], Y["level"] >= 0.0)


def test_evaluation_takes_the_number_or_the_label(fitted: Forecaster) -> None:
    X, Y = rows(100, seed=3)
    labels = {"alarm": Y["value"] > 0.8, "band": np.digitize(Y["level"], [-1.0, 0.0, 1.0])}
    by_number = fitted.evaluate(X, Y)["nll"]
    by_label = fitted.evaluate(X, {"value": Y["value"], **labels})["nll"]
    pd.testing.assert_series_equal(by_number, by_label)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"alarm": np.zeros(ROWS)}, "task 'alarm' is 0 at row .*where 'value' is"),
        ({"level": None}, "task 'band' is asked of 'level'"),
        ({"level": np.zeros((ROWS, 2))}, "column 'level' has shape"),
        ({"level": np.full(ROWS, np.inf)}, "column 'level' is infinite at row 0"),
        ({"other": np.zeros(ROWS)}, "unknown \\['other'\\]"),
    ],
)
def test_bad_targets_are_named(change: dict[str, Any], words: str) -> None:
    X, Y = rows()
    given = {name: y for name, y in {**Y, **change}.items() if y is not None}
    with pytest.raises(ValueError, match=words):
        Forecaster(TASKS, steps=15).fit(X, given)


def test_a_question_is_not_asked_of_itself() -> None:
    with pytest.raises(ValueError, match="asked of itself"):
        Forecaster({"level": Event(of="level", above=0.0)}).fit(*rows_of("level"))


# Windows


def series(count: int = 900) -> pd.DataFrame:
    rng = np.random.default_rng(5)
    level = np.zeros(count)
    for step in range(1, count):
        level[step] = 0.9 * level[step - 1] + rng.normal()
    index = pd.date_range("2024-01-01", periods=count, freq="h")
    return pd.DataFrame({"level": np.exp(0.3 * level), "rain": rng.gamma(1.0, size=count)}, index)


def windows() -> Any:
    questions = {
        "value": at_lead("level").log(),
        "alarm": at_lead("level") >= 1.5,
        "band": at_lead("level").sqrt().quantile_bands(3),
        "wet": over_window("rain").sum() > 4.0,
        "soaked": over_window("rain").sum().log1p() > 2.0,
    }
    return Windowing(history=2, lead=3).cut(series(), questions)


def test_windows_know_the_numbers_behind_their_questions() -> None:
    labelled = edges.with_edges(windows())
    found, numbers = behind.of_windows(labelled)
    assert {name: one.of for name, one in found.items()} == {
        "alarm": "value",
        "band": "value",
        "wet": "wet|number",
        "soaked": "wet|number",
    }
    assert list(numbers) == ["wet|number"]
    # On the scale of the value the edges cut the same windows.
    for name, one in found.items():
        values = labelled.values[one.of] if one.of in labelled.values else numbers[one.of].values
        np.testing.assert_array_equal(one.cut.labels(values), labelled.Y[name])


@pytest.mark.slow
def test_windows_are_fitted_and_answered_with_their_numbers(tmp_path: Path) -> None:
    cut = windows()
    model = Forecaster.for_windows(cut, steps=30, verbose=False).fit(cut)
    assert set(model.model_.tasks) == {*cut.tasks, "value|Mixture", "wet|number"}
    assert set(model.predict(cut)) == set(cut.tasks)
    wet: Any = model.forecast(series()).laws["wet"]
    assert wet.prob.shape == (1,)
    model.save(tmp_path / "model")
    again = scrollmt.load(tmp_path / "model")
    labels = np.zeros(len(cut))
    found, expected = (one.predict(cut)["band"].log_prob(labels) for one in (again, model))
    np.testing.assert_array_equal(found, expected)


def test_a_head_of_another_kind_is_not_read_off_the_number() -> None:
    cut = windows()
    heads = {**cut.heads, "band": scrollmt.Categorical(3)}
    model = Forecaster(heads, recipe=cut.recipe)
    plan = model._ready(cut, None, None).plan
    assert plan.answers["band"] == (Answer("band"),)
    assert len(plan.answers["alarm"]) == 3


# Saved, exported, recalibrated


@pytest.mark.slow
def test_saved_answers_predict_the_same(fitted: Forecaster, tmp_path: Path) -> None:
    X, Y = rows(50, seed=2)
    fitted.save(tmp_path / "model")
    again = scrollmt.load(tmp_path / "model")
    assert repr(again.tasks_) == repr(fitted.tasks_)
    assert again.answers_ == fitted.answers_
    pd.testing.assert_frame_equal(again.evaluate(X, Y), fitted.evaluate(X, Y))


@pytest.mark.slow
def test_exported_answers_are_those_of_predict(fitted: Forecaster) -> None:
    X, _ = rows(50, seed=2)
    session = onnxruntime.InferenceSession(to_onnx(fitted).SerializeToString())
    names = [one.name for one in session.get_outputs()]
    out = dict(zip(names, session.run(None, {"X": X}), strict=True))
    laws: Any = fitted.predict(X)
    law = GaussianMixtureLaw(out["value_means"], out["value_sds"], out["value_weights"])
    at = laws["value"].median
    np.testing.assert_allclose(law.log_prob(at), laws["value"].log_prob(at), atol=1e-4)
    for name in ("alarm", "band"):
        np.testing.assert_allclose(out[f"{name}_log_probs"], laws[name].log_probs, atol=2e-4)


def test_a_law_without_a_distribution_function_is_not_cut() -> None:
    X, Y = rows()
    ready = Forecaster(TASKS)._ready(X, Y, None)

    class ByScore(AbstractHead):
        def log_predictive(self, y: Any, mean: Any, var: Any) -> Any:
            return -jnp.abs(y - mean)

    heads = {**TASKS, "value": ByScore()}
    found, numbers = behind.of_table(Y, heads, ROWS)
    plan, _ = answers.planned(heads, ready.fitted.only(TASKS), found, numbers, set())
    assert plan.answers["alarm"] == (Answer("alarm"),)


@pytest.mark.slow
def test_recalibration_and_ensembles_go_over_answers() -> None:
    X, Y = rows()
    model = Forecaster(
        TASKS, steps=30, ensemble=2, calibrate="isotonic", verbose=False, seed=3
    ).fit(X, Y)
    assert set(model.calibration_) == set(TASKS)
    assert model.answers_ is not None
    assert len(model.answers_["band"]) == len(model.committee_["band"])
    assert sum(model.weights_["band"]) == pytest.approx(1.0)  # type: ignore[index]


def test_a_mixture_of_answers_is_their_weighted_density(fitted: Forecaster) -> None:
    X, Y = rows(30, seed=4)
    x = fitted.scales_.inputs(X)
    terms = []
    assert fitted.weights_ is not None
    for (number, answer), weight in zip(
        fitted._mixing().places("value"),
        fitted.weights_["value"],
        strict=True,  # type: ignore[index]
    ):
        member = fitted.members_[number]
        line = members.project(member, x)[answer.head]
        law = members.law(member.tasks[answer.head].head, line, answer.head, fitted.scales_)
        terms.append(law[:30].log_prob(Y["value"]) + np.log(weight))
    np.testing.assert_allclose(
        logsumexp(terms, axis=0), fitted.predict(X)["value"].log_prob(Y["value"]), rtol=1e-6
    )


def test_cuts_refuse_what_is_no_order() -> None:
    with pytest.raises(ValueError, match="one edge"):
        Cut((1.0, 2.0), event=True)
    with pytest.raises(ValueError, match="increasing"):
        Cut(())
