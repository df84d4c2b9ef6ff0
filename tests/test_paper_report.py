"""The reproduction's page, made from the committed records and seen by a real browser."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import browser
from scrollmt.paper.arena import archive
from scrollmt.paper.data import published
from scrollmt.paper.studies import findings
from scrollmt.paper.tables import ledger, report
from scrollmt.paper.tables.comparison import TITLES

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return archive.load(RESULTS / "records")


@pytest.fixture(scope="module")
def written(frame: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    arrays = archive.load_arrays(RESULTS / "records")
    report.write(folder, frame, findings(frame), arrays, command="scrollmt reproduce report")
    return folder


@pytest.mark.slow
def test_the_committed_ledger_is_what_the_committed_records_say(
    frame: pd.DataFrame, tmp_path: Path
) -> None:
    ledger.write(tmp_path, findings(frame))
    ours, committed = (
        pd.read_csv(folder / "ledger.csv", dtype=str).set_index("id")
        for folder in (tmp_path, RESULTS)
    )
    assert ours["verdict"].to_dict() == committed["verdict"].to_dict()
    # The identities of the theory are computed on the spot: their residuals are rounding.
    recorded = committed["study"] != "theory"
    pd.testing.assert_frame_equal(ours[recorded], committed[recorded])


def test_the_committed_figures_are_drawn_from_the_committed_records(written: Path) -> None:
    for data in (RESULTS / "figures").glob("*.dat"):
        assert data.read_text() == (written / "figures" / data.name).read_text()
        assert (RESULTS / "figures" / data.name).with_suffix(".svg").exists()


def test_the_cloud_is_drawn_with_the_columns_that_the_paper_reads(written: Path) -> None:
    header = (written / "figures" / "perstate_lorenz.dat").read_text().split("\n", 1)[0].split()
    assert header == ["vstar", "v_diag", "v_full", "v_closed"]
    assert (written / "figures" / "perstate_lorenz.pdf").exists()


def test_a_figure_over_leads_needs_more_than_one_lead(frame: pd.DataFrame) -> None:
    mine = frame[(frame["corpus"] == "ou") & (frame["arm"] == "scroll-diag")]
    assert report.over_leads(mine, "ou") is None
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


def test_every_arm_and_corpus_is_explained_and_ours_comes_first(
    frame: pd.DataFrame, written: Path
) -> None:
    page = (written / "report.html").read_text(encoding="utf-8")
    compared, nll, metrics = (
        page[page.index(f"<h2>{heading}</h2>") :].split("</section>")[0]
        for heading in ("What is compared", "Test NLL", "All metrics")
    )
    words = dict(
        re.findall(r'<td class="short">([^<]+)</td><td class="long">([^<]+)</td>', compared)
    )
    assert list(words) == ["scrollmt (held-out)", *published.arms()]
    assert all(said.endswith(".") and len(said) > 30 for said in words.values())
    assert "belief about its last-layer weights" in words["scroll-diag"]
    for title in TITLES.values():
        assert f"<dt>{title}</dt>" in compared
    rows = re.findall(r'<th scope="row">([^<]+)</th>', nll)
    assert rows == [arm for arm in words if arm not in published.NOT_IN_BODY]
    assert re.findall(r'<th scope="row">([^<]+)</th>', metrics) == [*words] * 3
    # An arm of the paper keeps the mark of the best: ours is not among those compared.
    assert "<strong>" not in nll[: nll.index('<th scope="row">scroll-diag</th>')]


def test_every_table_and_figure_has_a_caption_below_it(written: Path) -> None:
    page = (written / "report.html").read_text(encoding="utf-8")
    figures = re.findall(r"<figure.*?</figure>", page, flags=re.S)
    assert len(figures) == 3 + 4
    for one in figures:
        content, caption = one.split("<figcaption>")
        assert "</svg>" in content or "</table>" in content
        assert len(caption) > 60
    assert "<tfoot>" not in page


@pytest.mark.browser
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
        assert len(boxes) == 3
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
