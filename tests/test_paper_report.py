"""The reproduction's page, made from the committed records and seen by a real browser."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import browser
from scrollmt.paper import archive, report
from scrollmt.paper.archive import ArrayKey

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return archive.load(ROOT / "docs" / "results" / "records")


@pytest.fixture(scope="module")
def written(frame: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    truth = rng.lognormal(size=300)
    arrays = {}
    for arm in ("scroll-diag", "scroll-full", "closed"):
        for name, values in (("var", truth * rng.lognormal(size=300)), ("true_var", truth)):
            arrays[ArrayKey("lorenz63", arm, "tanh+ln", 5, name)] = values
    folder = tmp_path_factory.mktemp("report")
    report.write(folder, frame, command="scrollmt reproduce report", arrays=arrays)
    return folder


def test_the_cloud_is_drawn_with_the_columns_that_the_paper_reads(written: Path) -> None:
    header = (written / "figures" / "perstate_lorenz.dat").read_text().split("\n", 1)[0].split()
    assert header == ["vstar", "v_diag", "v_full", "v_closed"]
    assert (written / "figures" / "perstate_lorenz.pdf").exists()


def test_a_figure_over_leads_needs_more_than_one_lead(frame: pd.DataFrame) -> None:
    assert report.over_leads(frame, "ou") is None
    mine = frame[(frame["corpus"] == "ou") & (frame["arm"] == "scroll-diag")]
    later = mine.assign(corpus="ou@1", mean_true_var=0.8647, mean_sd=mine["mean_sd"] * 1.1)
    columns = report.over_leads(pd.concat([mine, later]), "ou")
    assert columns is not None
    np.testing.assert_array_equal(columns["delta"], [0.5, 1.0])
    np.testing.assert_allclose(
        columns["sd_star"], [np.sqrt(1 - np.exp(-1)), 0.8647**0.5], rtol=1e-4
    )


def test_on_lorenz_the_truth_and_its_band_are_simulated(frame: pd.DataFrame) -> None:
    mine = frame[(frame["corpus"] == "lorenz63") & (frame["arm"] == "scroll-diag")]
    both = pd.concat([mine, mine.assign(corpus="lorenz63@1")])
    assert report.over_leads(both, "lorenz63") is None
    facts = [
        {"corpus": c, "arm": "probe-corpus", "backbone": "none", "seed": 5, "setting": "{}"}
        | {"spread_mean_var": v, "spread_sd_p10": 0.5, "spread_sd_p90": 9.0}
        for c, v in (("lorenz63", 4.0), ("lorenz63@1", 25.0))
    ]
    columns = report.over_leads(pd.concat([both, pd.DataFrame(facts)]), "lorenz63")
    assert columns is not None
    np.testing.assert_allclose(columns["sd_star"], [2.0, 5.0])
    np.testing.assert_array_equal(columns["sd_p90"], [9.0, 9.0])


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_the_page_opens_filters_and_fits(written: Path, width: int, scheme: str) -> None:
    with browser.served(written) as address, browser.browser() as page:
        page.open(f"{address}/report.html", width=width, scheme=scheme)
        assert page.console() == []
        assert len(page.requests()) == 1
        assert page.run("return document.documentElement.scrollWidth") == width
        boxes = page.run(
            "return [...document.querySelectorAll('figure svg')].map(s => "
            "[s.getBoundingClientRect().width, s.getAttribute('aria-label')])"
        )
        assert len(boxes) == 1
        assert all(box > 100 and label for box, label in boxes)
        rows = "[...document.querySelectorAll('[data-table] tbody tr')].filter(r => !r.hidden)"
        everything = page.run(f"return {rows}.length")
        assert everything == 263
        page.run(
            "const menu = [...document.querySelectorAll('[data-table] select')].find(s => "
            "[...s.options].some(o => o.text === 'differs'));"
            "menu.value = [...menu.options].find(o => o.text === 'differs').value;"
            "menu.dispatchEvent(new Event('input', {bubbles: true}));"
            "menu.dispatchEvent(new Event('change', {bubbles: true}));"
        )
        shown = page.run(f"return {rows}.map(r => r.innerText)")
        assert 0 < len(shown) < everything
        assert all("differs" in text for text in shown)
