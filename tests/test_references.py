"""Reference forecasts against their definitions, and how a model is compared with them."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from scrollmt import Event, Forecaster, Gaussian, Ordinal, Windowing, at_lead, load, over_window
from scrollmt._scoring.evaluation import compare
from scrollmt._scoring.references import Reference
from scrollmt.heads import Count, StudentT
from scrollmt.laws import EventLaw, GaussianLaw, OrdinalLaw
from scrollmt.windows import Windows
from scrollmt.windows.origins import rows_in_a_season
from small import TASKS, TINY, tiny, windows

QUESTIONS = {
    "value": at_lead("x").log1p(),
    "event": over_window("x").mean() > 3.0,
    "band": at_lead("x").quantile_bands(3),
}


def series(rows: int = 24 * 30) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    daily = 1.5 * np.sin(2 * np.pi * np.arange(rows) / 24)
    x = np.maximum(
        3.0 + daily + np.convolve(rng.normal(size=rows + 9), np.ones(10) / 6, "valid"), 0
    )
    return pd.DataFrame({"x": x}, index=pd.date_range("2024-01-01", periods=rows, freq="h"))


@pytest.fixture(scope="module")
def parts() -> tuple[Forecaster, Windows, Windows]:
    cut = Windowing(history=4, lead=6).cut(series(), QUESTIONS)
    train, valid, test = cut.split()
    model = Forecaster.for_windows(train, preset=TINY, validation=valid).fit(train)
    return model, train, test


# What a window knows of the past


def test_the_past_is_the_same_question_one_lead_and_one_day_before() -> None:
    frame = series()
    cut = Windowing(history=4, lead=6).cut(frame, QUESTIONS)
    x = frame["x"].to_numpy()
    for n in (0, 5, 40, len(cut) - 1):
        t = cut.rows[n]
        day = t + 6 - 24  # the row one day before the target
        if t >= 6:
            assert cut.past["persistence"]["value"][n] == pytest.approx(math.log1p(x[t]))
            assert cut.past["persistence"]["event"][n] == pytest.approx(x[t - 5 : t + 1].mean())
        else:
            assert np.isnan(cut.past["persistence"]["value"][n])
        if t >= 24:
            assert cut.past["seasonal"]["value"][n] == pytest.approx(math.log1p(x[day]))
            assert cut.past["seasonal"]["event"][n] == pytest.approx(x[day - 5 : day + 1].mean())
        else:
            assert np.isnan(cut.past["seasonal"]["value"][n])
    some = cut.take([7, 3])
    assert (
        some.past["persistence"]["value"].tolist()
        == cut.past["persistence"]["value"][[7, 3]].tolist()
    )


def test_a_lead_of_a_season_has_one_reference_of_the_past() -> None:
    assert [*Windowing(history=4, lead=24).cut(series(), QUESTIONS).past] == ["persistence"]
    daily = series(100).set_axis(pd.date_range("2024-01-01", periods=100, freq="D"))
    assert [*Windowing(history=4, lead=1).cut(daily, QUESTIONS).past] == ["persistence", "seasonal"]


@pytest.mark.parametrize(
    ("step", "rows"),
    [("1h", 24), ("15min", 96), ("1D", 7), ("7D", 52), ("7h", None), ("30D", None), ("2D", None)],
)
def test_a_season_is_a_day_a_week_or_a_year(step: str, rows: int | None) -> None:
    assert rows_in_a_season(pd.Timedelta(step)) == rows
    assert rows_in_a_season(0.5) is None


# Reference laws


def test_references_are_what_their_names_say(parts: tuple[Forecaster, Windows, Windows]) -> None:
    model, train, test = parts
    found = model.references(test)
    assert list(found) == ["climatology", "persistence", "seasonal"]
    y = train.Y
    constant = found["climatology"]
    value = constant["value"]
    assert isinstance(value, GaussianLaw)
    np.testing.assert_allclose(value.mean, y["value"].mean(), rtol=1e-5)
    np.testing.assert_allclose(value.sd, y["value"].std(), rtol=1e-5)
    event = constant["event"]
    assert isinstance(event, EventLaw)
    n = len(train)
    np.testing.assert_allclose(event.prob, (y["event"].sum() + 0.5) / (n + 1.0), rtol=1e-5)
    band = constant["band"]
    assert isinstance(band, OrdinalLaw)
    np.testing.assert_allclose(
        band.probs[0], (np.bincount(y["band"].astype(int)) + 0.5) / (n + 1.5), rtol=1e-5
    )
    for kind in ("persistence", "seasonal"):
        past, now = train.past_labels[kind], test.past_labels[kind]
        law = found[kind]["value"]
        assert isinstance(law, GaussianLaw)
        np.testing.assert_array_equal(law.mean, now["value"])
        error = np.sqrt(np.nanmean((y["value"] - past["value"]) ** 2))
        np.testing.assert_allclose(law.sd, error, rtol=1e-12)
        chance = found[kind]["event"]
        assert isinstance(chance, EventLaw)
        for before in (0.0, 1.0):
            share = y["event"][past["event"] == before]
            expected = (share.sum() + event.prob[0]) / (len(share) + 1.0)
            np.testing.assert_allclose(chance.prob[now["event"] == before], expected, rtol=1e-6)


def test_where_the_past_is_missing_the_climatology_stands(
    parts: tuple[Forecaster, Windows, Windows],
) -> None:
    model, train, _ = parts
    found = model.references(train)
    lost = np.isnan(train.past["seasonal"]["value"])
    assert lost.any()
    for task in ("value", "band"):
        for y in (1.0, 2.0):
            np.testing.assert_array_equal(
                found["seasonal"][task].log_prob(y)[lost],
                found["climatology"][task].log_prob(y)[lost],
            )


@pytest.mark.slow
def test_plain_rows_have_a_climatology_alone() -> None:
    X, Y = windows()
    model = tiny({**TASKS, "count": Count(), "tail": StudentT()})
    rng = np.random.default_rng(0)
    more = {"count": rng.poisson(3.0, 60), "tail": 1e3 + 20.0 * rng.standard_t(3, 60)}
    model.fit(X, {**Y, **more})
    found = model.references(X)
    assert list(found) == ["climatology"]
    # Of any head: nothing constant does better than what was found.
    tail = found["climatology"]["tail"].log_prob(more["tail"]).mean()
    by_hand = stats.t.logpdf(more["tail"], *stats.t.fit(more["tail"])).mean()
    assert tail > by_hand - 0.05
    count = found["climatology"]["count"].log_prob(more["count"]).mean()
    assert count > stats.poisson.logpmf(more["count"], more["count"].mean()).mean() - 0.05


def test_references_are_stored(
    parts: tuple[Forecaster, Windows, Windows], tmp_path: object
) -> None:
    model, _, test = parts
    model.save(f"{tmp_path}/model")
    back = load(f"{tmp_path}/model")
    pd.testing.assert_frame_equal(back.evaluate(test), model.evaluate(test))
    for name, reference in model.references_.items():
        stored = json.loads(json.dumps(reference.to_dict()))
        again = Reference.from_dict(stored, model.tasks_[name].variants[0])
        np.testing.assert_array_equal(
            again.constant(3).log_prob(1.0), reference.constant(3).log_prob(1.0)
        )


# Evaluation


def test_evaluate_compares_with_every_reference(parts: tuple[Forecaster, Windows, Windows]) -> None:
    model, _, test = parts
    table, laws, against = model.evaluate(test), model.predict(test), model.references(test)
    assert list(table.columns[:8]) == [
        "nll", "nll_se", "labels", "skill", "skill_se", "climatology", "persistence", "seasonal",
    ]  # fmt: skip
    for task, y in test.Y.items():
        row = table.loc[task]
        assert row["labels"] == len(test)
        means = {kind: -law[task].log_prob(y).mean() for kind, law in against.items()}
        for kind, mean in means.items():
            assert row[kind] == pytest.approx(mean)
        assert row["skill"] == pytest.approx(min(means.values()) + laws[task].log_prob(y).mean())
        assert row["nll_se"] > 0.0


def test_errors_of_a_transformed_question_are_in_original_units(
    parts: tuple[Forecaster, Windows, Windows],
) -> None:
    model, _, test = parts
    row = model.evaluate(test).loc["value"]
    law = model.predict(test)["value"]
    assert isinstance(law, GaussianLaw)
    x = np.expm1(test.Y["value"])
    assert row["mae"] == pytest.approx(np.abs(x - np.expm1(law.mean)).mean())
    draws = np.expm1(law.sample(4000, seed=0))
    spread = np.abs(draws[:2000] - draws[2000:]).mean(axis=0)
    assert row["crps"] == pytest.approx(
        (np.abs(draws - x).mean(axis=0) - spread / 2).mean(), rel=0.01
    )
    # The log score stays that of the question, log1p(x).
    assert row["nll"] == pytest.approx(-law.log_prob(test.Y["value"]).mean())


@pytest.mark.parametrize(
    ("row", "kind", "words"),
    [
        ((1.435, 1.346, 1.5), "worse", "worse than a constant forecast (NLL 1.435 against 1.346)"),
        ((1.0, 1.5, 1.2), "better", "better than persistence (NLL 1.000 against 1.200)"),
        ((1.19, 1.5, 1.2), "unclear", "not clearly better than persistence"),
    ],
)
def test_the_comparison_in_words(row: tuple[float, float, float], kind: str, words: str) -> None:
    nll, constant, stays = row
    found = compare(
        {
            "nll": nll,
            "climatology": constant,
            "persistence": stays,
            "skill": min(constant, stays) - nll,
            "skill_se": 0.02,
        }
    )
    assert found.kind == kind
    assert words in found.words
    assert compare({"nll": 1.0}).kind == "none"


def test_heads_of_the_readme_have_references() -> None:
    X, Y = windows()
    model = tiny({"state": Gaussian(), "event": Event(), "regime": Ordinal(3)}).fit(X, Y)
    assert set(model.references_) == {"state", "event", "regime"}
