"""The report of a model: what it says is so, and a real browser shows it as it should."""

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from markupsafe import escape
from scipy import integrate, stats
from scipy.special import ndtr

import browser
import small
from scrollmt import (
    Categorical,
    Forecaster,
    Gaussian,
    Windowing,
    at_lead,
    over_window,
    plots,
    scores,
)
from scrollmt.heads import Poisson, StudentT
from scrollmt.laws import CategoricalLaw, EventLaw, GaussianLaw, Law, OrdinalLaw
from scrollmt.report import gallery, leads, write_report
from scrollmt.report.assessment import gather, score_table
from scrollmt.report.groups import groups
from scrollmt.report.verdict import class_moments, judge, judged_cuts, spread_factor

# A name that is markup, a formula and more, as a task of a stranger's table may have.
HOSTILE = '<b>$x_$</b>"&'


def series(n: int = 700, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    level = np.exp(np.convolve(rng.normal(size=n + 23), np.ones(24) / 10, "valid"))
    return pd.DataFrame({"x": level}, index=pd.date_range("2024-01-01", periods=n, freq="h"))


@pytest.fixture(scope="module")
def windowed() -> tuple[Forecaster, Any]:
    """A model of a series, and windows to judge it on."""
    x = at_lead("x", units="mm")
    asked = {HOSTILE: x.log1p(), "wet": x > 1.0, "band": x.bands([0.5, 1.5])}
    parts = Windowing(history=6, lead=3).cut(series(), asked).split()
    settings = {"preset": small.TINY, "validation": parts.valid}
    return Forecaster.for_windows(parts.train, **settings).fit(parts.train), parts.test


@pytest.fixture(scope="module")
def site(windowed: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a folder with a report that has every section, and the folder."""
    folder = tmp_path_factory.mktemp("site")
    model, test = windowed
    alone = pd.DataFrame(
        {"joint": 1.0, "alone": [1.1, 0.9, 1.0], "difference": [-0.1, 0.1, 0.0], "se": 0.01},
        index=pd.Index(list(model.tasks_), name="task"),
    )
    write_report(
        model,
        test,
        None,
        folder / "report.html",
        title="<script>document.title = 'broken'</script>",
        interference=alone,
    )
    with browser.served(folder) as address:
        yield f"{address}/report.html", folder


@pytest.fixture(scope="module")
def many_leads() -> tuple[Forecaster, Any]:
    """A model of two questions at nine leads, and windows to judge it on."""
    x = at_lead("x", units="mm")
    asked = {"level": x.log1p(), "wet": x > 1.0}
    parts = Windowing(history=6, leads=range(1, 10)).cut(series(400), asked).split()
    settings = {"preset": small.TINY, "validation": parts.valid}
    return Forecaster.for_windows(parts.train, **settings).fit(parts.train), parts.test


@pytest.fixture(scope="module")
def chromium() -> Iterator[browser.Browser]:
    with browser.browser() as one:
        yield one


# In a browser


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_opens_without_complaint_or_request_and_shows_all(
    site: Any, chromium: browser.Browser, width: int, scheme: str
) -> None:
    address, _ = site
    chromium.open(address, width=width, scheme=scheme)
    assert chromium.console() == []
    assert [a for a in chromium.requests() if not a.startswith("data:")] == [address]
    boxes = chromium.run(
        "return [...document.querySelectorAll('figure svg')].map(s => {"
        " const b = s.getBoundingClientRect();"
        " return [b.width, b.height, s.getAttribute('role'), s.getAttribute('aria-label')] })"
    )
    # Three tasks, two pairs of answers, the fit, and sharing.
    assert len(boxes) == (5 + 3 + 3) + 2 + 3 + 1
    for wide, high, role, alt in boxes:
        assert wide > 250
        assert high > 150
        assert role == "img"
        assert len(alt) > 20
    # The page itself never scrolls sideways; what is too wide scrolls in a box of its own.
    assert chromium.run("return document.documentElement.scrollWidth") == width
    inside = chromium.run(
        "return [...document.querySelectorAll('main *')].filter(e => !e.closest('.wide, svg, "
        "details:not([open])') && e.getBoundingClientRect().right > innerWidth + 0.5)"
        ".map(e => e.outerHTML.slice(0, 80))"
    )
    assert inside == []


@pytest.mark.browser
def test_light_and_dark_follow_the_reader(site: Any, chromium: browser.Browser) -> None:
    address, _ = site
    seen = {}
    for scheme in ("light", "dark"):
        chromium.open(address, scheme=scheme)
        seen[scheme] = chromium.run(
            "const c = (e, what) => getComputedStyle(e)[what].match(/\\d+/g).slice(0, 3)"
            ".reduce((a, b) => a + Number(b), 0);"
            "return [c(document.body, 'backgroundColor'), c(document.body, 'color'),"
            " c(document.querySelector('figure text'), 'fill'),"
            " c(document.querySelector('figure path[style*=\"currentColor\"]'), 'stroke')]"
        )
    # Sums of three channels from 0 to 255: the page, its ink, a picture's text and frame.
    assert seen["light"][0] > 700
    assert max(seen["light"][1:]) < 150
    assert seen["dark"][0] < 150
    assert min(seen["dark"][1:]) > 600


@pytest.mark.browser
def test_search_and_menu_filter_the_rows(site: Any, chromium: browser.Browser) -> None:
    address, _ = site
    chromium.open(address)
    rows = (
        "return [...document.querySelectorAll('#surprises tbody tr')]"
        ".filter(r => r.offsetParent !== null).map(r => r.cells[2].textContent)"
    )
    everything = chromium.run(rows)
    assert set(everything) == {HOSTILE, "wet", "band"}
    menu = chromium.find("#surprises select")
    menu.find_element("css selector", "option:nth-child(3)").click()
    assert set(chromium.run(rows)) == {"wet"}
    count = len(chromium.run(rows))
    assert chromium.find("#surprises output").text == f"{count} of {len(everything)} rows"
    search = chromium.find("#surprises input")
    when = chromium.run(rows.replace("cells[2]", "cells[0]"))
    search.send_keys(f"WET {when[0]}")
    assert len(chromium.run(rows)) == when.count(when[0]) < count
    search.send_keys(" nowhere")
    assert chromium.run(rows) == []
    search.clear()
    menu.find_element("css selector", "option:nth-child(1)").click()
    assert chromium.run(rows) == everything


@pytest.mark.browser
def test_text_of_pictures_can_be_selected(site: Any, chromium: browser.Browser) -> None:
    address, _ = site
    chromium.open(address)
    chosen = chromium.run(
        "const t = [...document.querySelectorAll('figure text')]"
        ".find(e => e.textContent.includes('promised share'));"
        "getSelection().selectAllChildren(t); return getSelection().toString()"
    )
    assert "promised share" in chosen


@pytest.mark.browser
def test_names_of_tasks_are_text_and_nothing_more(site: Any, chromium: browser.Browser) -> None:
    address, _ = site
    chromium.open(address)
    assert chromium.run("return document.title") == "<script>document.title = 'broken'</script>"
    assert chromium.run("return document.querySelectorAll('main b').length") == 0
    assert HOSTILE in chromium.run("return document.querySelector('#model-card').textContent")
    labels = chromium.run("return [...document.querySelectorAll('text')].map(t => t.textContent)")
    assert HOSTILE in labels
    ids = chromium.run("return [...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))


@pytest.mark.browser
def test_the_contents_lead_to_every_section(site: Any, chromium: browser.Browser) -> None:
    address, _ = site
    chromium.open(address)
    broken = chromium.run(
        "return [...document.querySelectorAll('nav a')]"
        ".filter(a => document.querySelector(a.getAttribute('href')) === null).length"
    )
    assert broken == 0
    assert chromium.run("return document.querySelector('main h2').textContent") == "Model card"


@pytest.mark.browser
def test_screenshots_show_a_whole_page(
    site: Any, chromium: browser.Browser, tmp_path: Path
) -> None:
    address, _ = site
    chromium.open(address, width=390, height=844)
    chromium.screenshot(tmp_path / "phone.png")
    png = (tmp_path / "phone.png").read_bytes()
    wide, high = (int.from_bytes(png[a : a + 4], "big") for a in (16, 20))
    assert (wide, high) == (390, chromium.run("return document.documentElement.scrollHeight"))


@pytest.mark.slow
@pytest.mark.browser
def test_many_leads_are_one_section_a_question_on_a_page_of_bounded_height(
    many_leads: Any, chromium: browser.Browser, tmp_path: Path
) -> None:
    model, test = many_leads
    page = write_report(model, test, None, tmp_path / "r.html").read_text(encoding="utf-8")
    headings = re.findall(r"<h2>([^<]+)</h2>", page)
    assert headings == [
        "Model card",
        "Question: level",
        "Question: wet",
        "Do the answers agree?",
        "Surprises",
        "Inside the model",
    ]
    assert "Forecasts of level, wet</h1>" in page
    assert "2 questions at 9 leads" in page
    # Over leads, in detail at three of them, both answers beside each other, the fit.
    assert page.count("<svg") == (3 + 3) + 3 * (5 + 3) + 1 + 3
    with browser.served(tmp_path) as address:
        chromium.open(f"{address}/r.html")
        assert chromium.console() == []
        assert chromium.run("return document.documentElement.scrollHeight") < 10_000
        seen = (
            "return [...document.querySelectorAll('svg')].filter(s => s.checkVisibility()).length"
        )
        assert chromium.run(seen) == (3 + 3) + 1 + 3
        # What is folded away opens: pictures of the shortest, a middle and the longest lead.
        chromium.run("document.querySelector('#question-level details summary').click()")
        assert chromium.run(seen) == (3 + 3) + 3 * 5 + 1 + 3
        opened = chromium.run(
            "return [...document.querySelectorAll('#question-level h3')].map(h => h.textContent)"
        )
        assert opened == ["1 h ahead", "5 h ahead", "9 h ahead"]


# What it says


def told(page: str) -> str:
    """The words of a page, without its markup."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """What the pictures that matter were given, by name: pairs of arguments and options."""
    calls: dict[str, list[Any]] = {
        name: [] for name in ("over_leads", "fan", "regimes", "forecasts")
    }
    for name, seen in calls.items():
        draw = getattr(plots, name)

        def spied(*args: Any, draw: Any = draw, seen: Any = seen, **given: Any) -> Any:
            seen.append((args, given))
            return draw(*args, **given)

        monkeypatch.setattr(plots, name, spied)
    return calls


@pytest.mark.slow
def test_pictures_over_leads_show_scores_coverage_and_the_newest_forecast(
    many_leads: Any, drawn: Any
) -> None:
    model, test = many_leads
    assessment = gather(model, test)
    level, _ = (leads.section(assessment, group) for group in groups(assessment))
    scores = model.evaluate(test)
    nll, coverage, event_nll, accuracy = (args for args, _ in drawn["over_leads"])
    every = np.arange(1, 10)
    for (at, lines), kind, score in (
        (nll, "level", "nll"),
        (event_nll, "wet", "nll"),
        (accuracy, "wet", "accuracy"),
    ):
        np.testing.assert_array_equal(at, every)
        wanted = [scores.loc[f"{kind}@{lead}", score] for lead in every]
        np.testing.assert_allclose(lines["model"], wanted)
    np.testing.assert_allclose(
        nll[1]["climatology"], [scores.loc[f"level@{k}", "climatology"] for k in every]
    )
    np.testing.assert_allclose(
        coverage[1]["90% interval"], [scores.loc[f"level@{k}", "coverage_90"] for k in every]
    )
    ((laws, truth), given) = drawn["fan"][0]
    newest = test.t[-1]
    hours = [newest + pd.Timedelta(k, "h") for k in range(1, 10)]
    assert list(given["x"]) == hours
    np.testing.assert_allclose(truth, series(400)["x"][hours])
    np.testing.assert_allclose(
        [law.quantile(0.5)[0] for law in laws],
        [np.expm1(model.predict(test.X[-1:])[f"level@{k}"].mean[0]) for k in every],
        rtol=1e-4,
    )
    times, values = given["past"]
    assert list(times) == list(pd.date_range(end=newest, periods=14, freq="h"))
    np.testing.assert_allclose(values, series(400)["x"][times])
    assert f"The newest forecast, from {newest}" in level.body


@pytest.mark.slow
def test_over_leads_bands_with_learned_edges_have_numbers_and_maxima_no_past(drawn: Any) -> None:
    asked = {"band": at_lead("x").quantile_bands(3), "top": over_window("x").max()}
    parts = Windowing(history=2, leads=[3, 1]).cut(series(200), asked).split()
    settings = {"preset": small.TINY, "validation": parts.valid}
    model = Forecaster.for_windows(parts.train, **settings).fit(parts.train)
    assessment = gather(model, parts.test)
    found = groups(assessment)
    assert [group.tasks for group in found] == [("band@1", "band@3"), ("top@1", "top@3")]
    band, _ = (leads.section(assessment, group) for group in found)
    assert "quantiles over the training corpus, at 2 leads from 1 h to 3 h" in band.body
    assert drawn["regimes"][0][1]["names"] == ["band 1", "band 2", "band 3"]
    assert drawn["fan"][0][1]["past"] is None
    # Plain rows have no times: the leads themselves are the places.
    plain = gather(model, parts.test.X, parts.test.Y)
    leads.section(plain, found[1])
    assert drawn["fan"][1][1]["x"] == [1.0, 3.0]
    # Steps too short for words are counted.
    recipe = model.recipe_
    assert recipe is not None
    model.recipe_ = dataclasses.replace(recipe, step=pd.Timedelta("250ms"))
    section = leads.section(gather(model, parts.test.X, parts.test.Y), found[1])
    assert drawn["over_leads"][-1][0][0] == [1, 3]
    assert "lead (rows)" in section.body


def test_forecasts_are_drawn_at_the_time_they_are_for(windowed: Any, drawn: Any) -> None:
    model, test = windowed
    assessment = gather(model, test)
    for task in assessment.tasks:
        gallery.task_section(assessment, task)
    placed = [given["x"] for _, given in drawn["forecasts"] + drawn["regimes"]]
    assert len(placed) == 3
    for x in placed:
        assert list(x) == list(test.t[-60:] + pd.Timedelta("3h"))


def test_answers_about_one_quantity_are_laid_side_by_side(windowed: Any, site: Any) -> None:
    model, test = windowed
    laws = model.predict(test)
    page = (site[1] / "report.html").read_text(encoding="utf-8")
    section = page[page.index("<h2>Do the answers agree?</h2>") :].split("</section>")[0]
    words = told(section)
    value = laws[HOSTILE]
    assert isinstance(value, GaussianLaw)
    read = 1.0 - ndtr((np.log1p(1.0) - value.mean) / value.sd)
    gap = laws["wet"].prob - read
    share = 100 * np.mean(np.abs(gap) > 0.2)
    name = escape(HOSTILE)
    assert (
        f"wet and {name} differ by {np.abs(gap).mean():.3f} on average, by more than 0.2 in "
        f"{share:.0f} percent of the windows." in words
    )
    worst = int(np.argmax(np.abs(gap)))
    row = (
        f"{test.t[worst] + pd.Timedelta('3h')} {laws['wet'].prob[worst]:.2g} {read[worst]:.2g} "
        f"{gap[worst]:.2g} wet {name} whether x at t + 3 h is above 1 mm"
    )
    assert row in words
    upper = 1.0 - ndtr((np.log1p([0.5, 1.5]) - value.mean[:, None]) / value.sd[:, None])
    apart = np.abs(laws["band"].probs[:, ::-1].cumsum(axis=1)[:, 1::-1] - upper).max(axis=1)
    assert f"band and {name} differ by {apart.mean():.3f} on average" in words
    assert section.count("<svg") == 2


def test_the_card_says_what_was_asked_fitted_and_judged(site: Any, windowed: Any) -> None:
    model, test = windowed
    page = (site[1] / "report.html").read_text(encoding="utf-8")
    words = told(page)
    for said in (
        f"{len(test)} windows",
        "a value: Gaussian",
        "yes or no: probit",
        "3 ordered classes: probit with learned cutpoints",
        "the band (of 3) of x at t + 3 h, cut at 0.5, 1.5 mm",
        f"origins from {test.t[0]} to {test.t[-1]}",
        "Preset tiny",
        "diag: diagonal covariance",
        "no claim about how well the weights are known",
        "sharing helps &lt;b&gt;$x_$&lt;/b&gt;&#34;&amp; and hurts wet",
    ):
        assert said in words, said
    table = model.evaluate(test)
    assert f"Brier score {table.loc['wet', 'brier']:.4g}" in words


@pytest.mark.slow
def test_the_same_windows_give_the_same_report(windowed: Any, tmp_path: Path) -> None:
    model, test = windowed
    first = write_report(model, test, None, tmp_path / "a.html").read_bytes()
    assert write_report(model, test, None, tmp_path / "b.html").read_bytes() == first
    # The series itself will do: the model knows how to cut it. Only its tail is new here.
    tail = series().loc[test.t[0] - pd.Timedelta("5h") :]
    cut = write_report(model, tail, None, tmp_path / "c.html").read_text(encoding="utf-8")
    assert f"{len(test)} windows" in cut


@pytest.mark.slow
def test_plain_rows_and_unordered_classes_are_reported_too(tmp_path: Path) -> None:
    X, Y = small.windows(60)
    model = small.tiny({"kind": Categorical(3), "state": Gaussian()}, belief="none")
    asked = {"kind": Y["regime"], "state": Y["state"]}
    model.fit(X, asked)
    page = write_report(model, X, asked, tmp_path / "r.html").read_text(encoding="utf-8")
    assert "3 classes: softmax" in page
    assert "Do the answers agree?" not in page
    assert "belief&#39;s spread" not in page
    assert "prior precision" not in page
    assert page.count("<svg") == 2 + 5 + 2


@pytest.mark.slow
def test_counts_and_heavy_tails_are_judged_by_their_own_laws(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(160, 2))
    Y = {"hits": rng.poisson(np.exp(0.5 * X[:, 0])), "size": X[:, 1] + rng.standard_t(3, size=160)}
    model = small.tiny({"hits": Poisson(), "size": StudentT()}).fit(
        X[:80], {k: v[:80] for k, v in Y.items()}
    )
    tested = X[80:], {k: v[80:] for k, v in Y.items()}
    page = write_report(model, *tested, tmp_path / "r.html").read_text(encoding="utf-8")
    assert "a count: Poisson" in page
    assert "a value with heavy tails: Student-t" in page
    # Forecasts, coverage and PIT of each task, training and precisions.
    assert page.count("<svg") == 3 + 3 + 2


@pytest.mark.slow
def test_windows_outside_the_training_range_are_marked(tmp_path: Path) -> None:
    X, Y = small.tables()
    model = small.tiny().fit(X, Y)
    low, high = model.scales_.x_low, model.scales_.x_high
    assert low is not None
    assert high is not None
    inside = np.clip(X[:20], low, high)
    write_report(model, inside, Y[:20], tmp_path / "inside.html")
    page = told((tmp_path / "inside.html").read_text())
    assert "judged here none have an input outside its training range, and none one" in page
    assert "extrapolation" not in page
    inside.iloc[7, 0] = high[0] + 4.0 * (high[0] - low[0])
    with pytest.warns(UserWarning, match="far outside"):
        write_report(model, inside, Y[:20], tmp_path / "outside.html")
    page = told((tmp_path / "outside.html").read_text())
    assert "judged here 5.0% have an input outside its training range, and 5.0% one" in page
    assert "extrapolation" in page
    with pytest.warns(UserWarning, match="far outside"):
        found = gather(model, inside, Y[:20])
    rows = gallery._surprises(found, "state").set_index("window")["extrapolation"]
    assert rows["7"] == pytest.approx(4.0)
    assert (rows.drop("7") == 0.0).all()


@pytest.mark.slow
def test_nothing_is_written_where_something_is(windowed: Any, tmp_path: Path) -> None:
    model, test = windowed
    path = tmp_path / "r.html"
    path.write_text("mine")
    with pytest.raises(FileExistsError, match="force=True"):
        write_report(model, test, None, path)
    assert path.read_text() == "mine"
    write_report(model, test, None, path, force=True)
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_missing_outcomes_are_named(tmp_path: Path) -> None:
    X, Y = small.windows(60)
    model = small.tiny().fit(X, Y)
    with pytest.raises(ValueError, match=r"\['event'\] have no observed label in these 60"):
        write_report(model, X, {**Y, "event": np.full(60, np.nan)}, tmp_path / "r.html")
    with pytest.raises(ValueError, match="pass Y with one entry for each of the tasks"):
        write_report(model, X, None, tmp_path / "r.html")
    assert list(tmp_path.iterdir()) == []


# Scores


def test_scores_come_with_intervals_labels_and_references() -> None:
    X, Y = small.windows(60)
    model = small.tiny().fit(X, Y)
    new = small.windows(200, seed=7)
    table = score_table(gather(model, *new)).set_index(["task", "score"])
    expected = model.evaluate(*new)
    for (task, score), row in table.iterrows():
        assert row["value"] == pytest.approx(expected.loc[task, score])
        assert row["low"] <= row["value"] <= row["high"] or score == "coverage_error"
        assert row["labels"] == 200
        if score == "nll":
            assert row["climatology"] == pytest.approx(expected.loc[task, "climatology"])
    # Other scores of the reference are beside those of the model too.
    law: Any = model.references(new[0])["climatology"]["event"]
    assert table.loc[("event", "brier"), "climatology"] == pytest.approx(
        np.mean((law.probs[:, 1] - new[1]["event"]) ** 2)
    )


def test_a_score_is_computed_once_for_all_stretches_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, Y = small.windows(60)
    assessment = gather(small.tiny().fit(X, Y), *small.windows(200, seed=7))
    calls: list[Law] = []

    def counted(law: Law, y: Any) -> Any:
        calls.append(law)
        return scores.crps(law, y)

    monkeypatch.setitem(scores._SCORES, "crps", counted)
    table = score_table(assessment)
    first = len(calls)
    assert 0 < first <= 1 + len(assessment.compared["state"].references)
    assert score_table(assessment).equals(table)
    assert len(calls) == first


@pytest.mark.slow
def test_a_model_that_is_worse_than_a_constant_forecast_is_told_so(tmp_path: Path) -> None:
    X, Y = small.windows(60)
    model = small.tiny().fit(X, Y)
    # What came true has nothing to do with the inputs, and the labels are those of training.
    page = write_report(model, X, {n: np.roll(y, 29) for n, y in Y.items()}, tmp_path / "r.html")
    told = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.read_text(encoding="utf-8")))
    assert re.search(
        r"state worse Worse than a constant forecast \(NLL [\d.]+ against [\d.]+\)", told
    )


# Verdicts


def outcomes(n: int, seed: int) -> tuple[dict[str, Law], dict[str, np.ndarray]]:
    """Laws of three kinds, and labels drawn from them."""
    rng = np.random.default_rng(seed)
    latent, sd = rng.normal(size=n), np.exp(0.3 * rng.normal(size=n))
    p = ndtr(latent)
    probs = np.diff(ndtr(np.array([-np.inf, -0.5, 0.7, np.inf]) - latent[:, None]), axis=1)
    laws: dict[str, Law] = {
        "value": GaussianLaw(latent, sd),
        "event": EventLaw(np.log(np.stack([1 - p, p], axis=1))),
        "band": OrdinalLaw(np.log(probs)),
    }
    noise = latent + rng.normal(size=n)
    return laws, {
        "value": latent + sd * rng.normal(size=n),
        "event": (noise > 0.0).astype(float),
        "band": np.digitize(noise, [-0.5, 0.7]).astype(float),
    }


def sharper(law: Law, factor: float) -> Law:
    """The same law with its spread divided, or its latent line multiplied, by a factor."""
    if isinstance(law, GaussianLaw):
        return GaussianLaw(law.mean, law.sd / factor)
    assert isinstance(law, EventLaw | OrdinalLaw)
    cuts = stats.norm.ppf(np.pad(law.cdfs[:, :-1], ((0, 0), (1, 1)), constant_values=(0.0, 1.0)))
    probs = np.diff(ndtr(factor * cuts), axis=1)
    return type(law)(np.log(np.maximum(probs, 1e-300)))


@pytest.mark.parametrize("task", ["value", "event", "band"])
def test_verdicts_tell_calibrated_from_too_sure_and_too_cautious(task: str) -> None:
    laws, labels = outcomes(1500, seed=4)
    law, y = laws[task], labels[task]
    assert judge(law, y).kind == "good"
    sure = judge(sharper(law, 1.6), y)
    assert (sure.kind, sure.word) == ("bad", "too sure")
    cautious = judge(sharper(law, 1 / 1.6), y)
    assert (cautious.kind, cautious.word) == ("bad", "too cautious")


def test_verdicts_see_a_bias_and_its_direction() -> None:
    laws, labels = outcomes(1500, seed=4)
    law, y = laws["value"], labels["value"]
    # A shift leaves the spread alone: neither too sure nor too cautious.
    assert judge(law, y + 0.3).word == "forecasts lie too low"
    assert judge(law, y - 0.3).word == "forecasts lie too high"
    slight = judge(law, y + 0.04)
    assert (slight.kind, slight.word) == ("fair", "forecasts lie too low")
    assert judge(law, y - 0.02).kind == "good"
    rare = np.where(np.arange(1500) % 8 == 0, 1.0, labels["event"])
    assert "too low" in judge(laws["event"], rare).word


def test_verdicts_seldom_accuse_calibrated_laws() -> None:
    accused = 0
    for seed in range(60):
        laws, labels = outcomes(400, seed)
        accused += judge(laws["value"], labels["value"]).kind != "good"
    # Two tests at five percent: about 6 of 60, more than 16 once in several thousand.
    assert accused <= 16


def test_the_slope_of_an_event_is_that_of_a_straight_line_through_its_outcomes() -> None:
    laws, labels = outcomes(500, seed=1)
    law, y = laws["event"], labels["event"]
    y[:20] = np.nan
    assert isinstance(law, EventLaw)
    ((bias, slope),) = class_moments(law, y, np.ones((1, 500)))
    assert slope == pytest.approx(np.polyfit(law.prob[20:], y[20:], 1)[0])
    assert bias == pytest.approx((y - law.prob)[20:].mean())
    never = EventLaw(np.log(np.full((500, 2), 0.5)))
    assert class_moments(never, y, np.ones((1, 500)))[0, 1] == 1.0


def test_verdicts_admit_what_cannot_be_said() -> None:
    laws, labels = outcomes(40, seed=0)
    verdict = judge(laws["value"], labels["value"])
    assert (verdict.kind, verdict.word) == ("plain", "too few to judge")
    assert "40 labels, and 50 are needed" in verdict.sentences


@pytest.mark.parametrize(("events", "judged"), [(0, False), (3, False), (9, False), (10, True)])
def test_an_event_that_hardly_ever_happens_is_not_judged(events: int, judged: bool) -> None:
    n = 400
    law = EventLaw(np.log(np.tile([0.99, 0.01], (n, 1))))
    y = np.zeros(n)
    y[np.linspace(0, n - 1, events).astype(int)] = 1.0
    verdict = judge(law, y)
    if judged:
        assert verdict.word != "too few to judge"
    else:
        assert (verdict.kind, verdict.word) == ("plain", "too few to judge")
        assert f"{events} events in 400 labels" in verdict.sentences


def test_bands_are_judged_at_the_edges_that_labels_reach() -> None:
    laws, labels = outcomes(1500, seed=4)
    law, y = laws["band"], labels["band"]
    assert isinstance(law, OrdinalLaw)
    # No label lies in the highest band, so only the lower edge can be judged.
    low = np.minimum(y, 1.0)
    assert judged_cuts(law, low).tolist() == [True, False]
    merged = OrdinalLaw(np.log(np.stack([law.probs[:, 0], 1.0 - law.probs[:, 0]], axis=1)))
    both = class_moments(law, low, np.ones((1, 1500)), judged_cuts(law, low))
    np.testing.assert_allclose(both, class_moments(merged, low, np.ones((1, 1500))))
    assert judge(law, np.zeros(1500)).word == "too few to judge"


def test_overlapping_windows_are_not_taken_for_independent_ones() -> None:
    """Runs of 24 equal outcomes: many labels, few of them independent."""
    accused = {1: 0, 24: 0}
    law = GaussianLaw(np.zeros(288), np.ones(288))
    for seed in range(60):
        y = np.repeat(np.random.default_rng(seed).normal(size=12), 24)
        for overlap in accused:
            accused[overlap] += judge(law, y, overlap).kind not in ("good", "plain")
    assert accused[24] < accused[1] / 2
    few = judge(law, y, overlap=36)
    assert few.word == "too few to judge"
    assert "288 windows, of which 36 in a row overlap, so that only about 8" in few.sentences


def test_a_verdict_prints_the_statistic_that_decided_it() -> None:
    laws: Any
    laws, labels = outcomes(1500, seed=4)
    shifted = judge(laws["value"], labels["value"] + 0.3)
    found = re.search(r"calibration: The mean PIT is ([\d.]+) \(95% interval", shifted.sentences)
    assert found is not None
    assert float(found[1]) == pytest.approx(
        ndtr(laws["value"].standardise(labels["value"] + 0.3)).mean(), abs=1e-3
    )
    sure = judge(sharper(laws["event"], 1.6), labels["event"])
    assert "calibration: Where a law says 10 points more" in sure.sentences


def test_classes_without_an_order_are_judged_by_the_likeliest() -> None:
    laws, labels = outcomes(1500, seed=4)
    band = laws["band"]
    assert isinstance(band, OrdinalLaw)
    assert judge(CategoricalLaw(band.log_probs), labels["band"]).kind == "good"
    sharp = sharper(band, 2.0)
    assert isinstance(sharp, OrdinalLaw)
    assert judge(CategoricalLaw(sharp.log_probs), labels["band"]).word == "too sure"


@pytest.mark.parametrize("factor", [0.5, 0.9, 1.0, 1.3, 3.0])
def test_the_spread_factor_inverts_the_variance_of_the_pit(factor: float) -> None:
    square, _ = integrate.quad(lambda z: ndtr(factor * z) ** 2 * stats.norm.pdf(z), -12, 12)
    assert spread_factor(12.0 * (square - 0.25)) == pytest.approx(factor, rel=1e-6)
    assert spread_factor(3.0) == np.inf


# The browser itself


def test_a_missing_browser_is_an_error_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("CHROME", "CHROMEDRIVER"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(browser.NoBrowserError, match="apt-get install chromium chromium-driver"):
        browser.install()
    monkeypatch.setenv("CHROME", "nonsense")
    with pytest.raises(browser.NoBrowserError, match="CHROME=nonsense is no program"):
        browser.install()


def test_a_missing_browser_is_installed_once_the_packages_are_listed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def program(name: str, script: str) -> None:
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)

    program("sudo", 'exec "$@"')
    program(
        "apt-get",
        f"""cd {tmp_path}
if [ "$1" = update ]; then : > listed; exit 0; fi
[ -e listed ] || exit 100
for one in chromium chromedriver; do : > $one; /bin/chmod +x $one; done
echo "$@" > asked""",
    )
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("CHROME", "CHROMEDRIVER"):
        monkeypatch.delenv(name, raising=False)
    browser.install()
    assert browser.find() == (str(tmp_path / "chromium"), str(tmp_path / "chromedriver"))
    assert (tmp_path / "asked").read_text().split()[-2:] == ["chromium", "chromium-driver"]
    (tmp_path / "asked").unlink()
    browser.install()
    assert not (tmp_path / "asked").exists()
