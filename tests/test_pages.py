"""Pages are whole, safe to open and fit to be read: markup, escaping, pictures, files."""

import html
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

import browser
from scrollmt import plots
from scrollmt.laws import GaussianLaw
from scrollmt.report import pages
from scrollmt.report.pages import Html, Section


def css_colour(css: str) -> np.ndarray:
    """A colour as the browser names it, rgb(r, g, b), from 0 to 1."""
    return np.array([int(part) for part in re.findall(r"\d+", css)[:3]]) / 255


def drawn(label: str = "a < b & c") -> Any:
    ax = plots.forecasts(GaussianLaw([0.0, 1.0], [1.0, 2.0]), [0.5, 0.5])
    ax.set_xlabel(label)
    return ax


def test_a_page_needs_nothing_from_outside() -> None:
    page = pages.page("T", [Section("One", pages.picture(drawn(), alt="two forecasts"))])
    addresses = set(re.findall(r"""(?:src|href)=["']?([^"'\s>]+)""", page))
    assert {a for a in addresses if not a.startswith(("#", "data:"))} == set()
    named = set(re.findall(r"https?://[^\"' ]+", page))
    assert named == {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert "default-src 'none'" in html.unescape(page)


def test_text_from_users_is_escaped_everywhere() -> None:
    bad = "<img src=x onerror=alert(1)>"
    frame = pd.DataFrame({bad: [bad], "n": [1.5]}, index=pd.Index([bad], name=f"{bad}2"))
    page = pages.page(
        bad,
        [
            Section(
                bad,
                Html(
                    pages.paragraph(bad)
                    + pages.facts([(bad, bad)])
                    + pages.bullets([bad])
                    + pages.table(frame, caption=bad, search=True, filters=[bad])
                    + pages.picture(drawn(bad), alt=bad, caption=bad)
                    + pages.details(bad, bad)
                    + pages.badge(bad, "plain")
                ),
            )
        ],
        lead=bad,
    )
    assert "<img" not in page
    assert page.count("&lt;img src=x onerror=alert(1)&gt;") >= 14


def test_only_named_columns_are_markup() -> None:
    frame = pd.DataFrame({"plain": ["<i>a</i>"], "marked": [str(pages.badge("holds", "good"))]})
    made = pages.table(frame, markup=["marked"], filters=["marked"])
    assert "&lt;i&gt;a&lt;/i&gt;" in made
    assert '<span class="badge good">holds</span>' in made
    # The menu shows what a reader sees in the cell.
    assert '<option value="holds">holds</option>' in made


def test_long_lists_are_folded_and_long_tables_scroll() -> None:
    short, long = (pages.facts((f"term {n}", n) for n in range(count)) for count in (12, 15))
    assert "<details>" not in short
    shown, folded = long.split("<details>")
    assert shown.count("<dt>") == 12
    assert folded.startswith("<summary>3 more</summary>")
    assert folded.count("<dt>") == 3
    for rows, tall in ((25, False), (26, True)):
        assert ('class="wide tall"' in pages.table(pd.DataFrame({"n": range(rows)}))) == tall


def right_edge(reader: browser.Browser, box: str, path: Path) -> np.ndarray:
    """Colours (H, 3) of the last column of pixels of a box, from 0 to 1."""
    place = reader.run(
        f"const b = document.querySelector('{box}').getBoundingClientRect();"
        "return [b.right + scrollX, b.top + scrollY, b.bottom + scrollY]"
    )
    reader.screenshot(path)
    right, top, bottom = (int(side) for side in place)
    return imread(path)[top + 2 : bottom - 2, right - 2, :3]


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_table_that_goes_on_shows_it_at_its_edge(scheme: str, tmp_path: Path) -> None:
    wide = pages.table(pd.DataFrame({f"column {n}": ["a word", ""] for n in range(9)}))
    narrow = pages.table(pd.DataFrame({"a": ["a word", ""]}))
    (tmp_path / "p.html").write_text(
        pages.page("T", [Section("Wide", wide), Section("Narrow", narrow)])
    )
    with browser.served(tmp_path) as address, browser.browser() as reader:
        reader.open(f"{address}/p.html", width=390, height=844, scheme=scheme)
        assert reader.run("return document.documentElement.scrollWidth") == 390
        page = css_colour(reader.run("return getComputedStyle(document.body).backgroundColor"))
        edges = {}
        for box in ("#wide", "#narrow"):
            edges[box] = right_edge(reader, f"{box} .wide", tmp_path / "shot.png")
        reader.run("document.querySelector('#wide .wide').scrollLeft = 9999")
        edges["end"] = right_edge(reader, "#wide .wide", tmp_path / "shot.png")
    shade = {name: np.abs(edge - page).mean(axis=1) for name, edge in edges.items()}
    # Of 255 levels about 80 where the table goes on, and none at its end or where it fits; the
    # lines between rows are the exception there.
    assert np.median(shade["#wide"]) > 0.15
    assert np.median(shade["#narrow"]) < 0.01
    assert np.median(shade["end"]) < 0.01


@pytest.mark.parametrize("given", [{"filters": ["x"]}, {"markup": ["x"]}])
def test_a_column_that_is_not_there_is_named(given: Any) -> None:
    with pytest.raises(ValueError, match=r"\['x'\].*\['a'\]"):
        pages.table(pd.DataFrame({"a": [1]}), **given)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.123456, "0.1235"),
        (np.nan, ""),
        (None, ""),
        (12345, "12,345"),
        (np.int64(7), "7"),
        (True, "yes"),
        (np.bool_(False), "no"),
        (-1.5, "-1.5"),
        ("text", "text"),
        (np.inf, "inf"),
    ],
)
def test_cells_are_short_and_missing_ones_empty(value: Any, shown: str) -> None:
    assert pages.number(value) == shown


def test_headings_that_repeat_are_told_apart() -> None:
    page = pages.page("T", [Section("Task: a", Html("")), Section("Task (a)", Html(""))])
    assert re.findall(r'<section id="([^"]+)"', page) == ["task-a", "task-a-2"]
    assert re.findall(r'<a href="#([^"]+)"', page) == ["task-a", "task-a-2"]


def test_a_picture_has_text_ink_of_the_page_and_ids_of_its_own() -> None:
    first, second = pages.svg(drawn("one"), alt="first"), pages.svg(drawn("two"), alt="second")
    assert 'role="img" aria-label="first"' in first
    assert re.search(r"<text[^>]*>one</text>", first)
    assert "#000000" not in first
    assert "currentColor" in first
    assert f"var(--blue, {plots.canvas.BLUE})" in first
    ids = [set(re.findall(r' id="([^"]+)"', svg)) for svg in (first, second)]
    assert ids[0]
    assert not ids[0] & ids[1]
    used = set(re.findall(r'(?:url\(|href=")#([^")]+)', first))
    assert used == ids[0]
    assert pages.svg(drawn("one"), alt="first") == first


def test_a_picture_without_alt_text_is_refused() -> None:
    with pytest.raises(ValueError, match="alt text"):
        pages.picture(Figure(), alt=" ")


def test_drawing_leaves_matplotlib_as_it_was() -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    pages.svg(drawn(), alt="x")
    assert dict(matplotlib.rcParams) == before


def test_a_badge_is_of_a_known_kind() -> None:
    with pytest.raises(ValueError, match="'great'"):
        pages.badge("x", "great")


def test_an_existing_file_is_kept_unless_forced(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "page.html"
    assert pages.write(path, "first") == path
    with pytest.raises(FileExistsError, match="force=True"):
        pages.write(path, "second")
    assert path.read_text() == "first"
    pages.write(path, "second", force=True)
    assert path.read_text() == "second"
    with pytest.raises(FileExistsError, match="is a folder; choose another path"):
        pages.write(tmp_path, "x", force=True)
    assert [p.name for p in path.parent.iterdir()] == ["page.html"]


def test_a_page_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "precious.html").write_text("mine")
    (tmp_path / "page.html").symlink_to("precious.html")
    with pytest.raises(FileExistsError, match=r"page\.html is a link to precious\.html"):
        pages.write(tmp_path / "page.html", "new", force=True)
    assert (tmp_path / "precious.html").read_text() == "mine"


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = pages.write(tmp_path / "page.html", "old")
    with pytest.raises(UnicodeEncodeError):
        pages.write(path, "\ud800", force=True)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]
