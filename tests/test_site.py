"""The documentation as a site: it builds strictly, hangs together and needs no other host."""

import html.parser
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
import yaml
from matplotlib.image import imread

import scrollmt
from browser import browser, served
from scrollmt import plots, report
from test_architecture import ROOMS

pytestmark = pytest.mark.site

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
CONFIG = ROOT / "mkdocs.yml"


def build(config: Path, target: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(target)],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )


class Page(NamedTuple):
    """What matters of a page: the places in it, where it leads, and what it loads."""

    anchors: set[str]
    links: list[str]
    loaded: list[str]
    text: str


class _Reader(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page({""}, [], [], "")
        self.words: list[str] = []
        self.inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.page.anchors.update(given[name] for name in ("id", "name") if name in given)
        if tag == "a" and "href" in given:
            self.page.links.append(given["href"])
        elif tag in ("img", "script", "source", "iframe") and "src" in given:
            self.page.loaded.append(given["src"])
        elif tag == "link" and "href" in given:
            self.page.loaded.append(given["href"])
        if tag in ("script", "style", "code", "pre"):
            self.inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.inside and self.inside[-1] == tag:
            self.inside.pop()

    def handle_data(self, data: str) -> None:
        if not self.inside:
            self.words.append(data)


def read_page(path: Path) -> Page:
    reader = _Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    return reader.page._replace(text="".join(reader.words))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    done = build(CONFIG, target)
    assert done.returncode == 0, done.stdout + done.stderr
    return target


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    built = (site / path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md"))
    return {path: read_page(path) for path in built}


class _Loader(yaml.SafeLoader):
    """YAML with the tags of MkDocs taken as text."""


_Loader.add_multi_constructor("!", lambda loader, suffix, node: str(node.value))


def files_of(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    else:
        for item in nav.values() if isinstance(nav, dict) else nav:
            yield from files_of(item)


def test_every_page_is_in_the_navigation_once() -> None:
    listed = list(files_of(yaml.load(CONFIG.read_text(encoding="utf-8"), _Loader)["nav"]))
    written = [str(path.relative_to(DOCS).as_posix()) for path in DOCS.rglob("*.md")]
    assert sorted(listed) == sorted(written), "nav in mkdocs.yml and the pages in docs differ"


def test_every_link_within_the_site_leads_somewhere(site: Path, pages: dict[Path, Page]) -> None:
    dead = []
    for path, page in pages.items():
        # Behind the name of a picture stands which theme it is for, and no place in it.
        for link in page.links + [address.partition("#")[0] for address in page.loaded]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            known = pages[target].anchors if target in pages else {""}
            if not target.is_file() or unquote(parts.fragment) not in known:
                dead.append(f"{path.relative_to(site)}: {link}")
    assert not dead, "\n".join(dead)


def test_nothing_is_loaded_from_another_host(site: Path, pages: dict[Path, Page]) -> None:
    abroad = [
        f"{path.relative_to(site)}: {address}"
        for path, page in pages.items()
        for address in page.loaded
        if urlsplit(address).scheme not in ("", "data") or urlsplit(address).netloc
    ]
    for sheet in site.rglob("*.css"):
        found = re.findall(r"url\(\s*[\"']?(?:https?:)?//[^)]*|@import[^;]*", sheet.read_text())
        abroad += [f"{sheet.relative_to(site)}: {address}" for address in found]
    assert not abroad, "\n".join(abroad)


def test_every_formula_is_drawn(site: Path, pages: dict[Path, Page]) -> None:
    assert (site / "theory.html").read_text(encoding="utf-8").count("<math") > 30
    assert (site / "reference" / "heads.html").read_text(encoding="utf-8").count("<math") > 5
    left = re.compile(r"\$\$|\\\(|\\\[|\\(?:mu|psi|Sigma|text|log|frac)\b|arithmatex")
    raw = [
        f"{path.relative_to(site)}: ...{page.text[max(0, found.start() - 30) : found.end() + 30]}"
        for path, page in pages.items()
        for found in left.finditer(page.text)
    ]
    assert not raw, "\n".join(raw)


def test_the_reference_has_every_public_name(site: Path, pages: dict[Path, Page]) -> None:
    described = {
        anchor.rsplit(".", 1)[-1]
        for path, page in pages.items()
        if path.parent == site / "reference"
        for anchor in page.anchors
        if anchor.startswith("scrollmt.")
    }
    for names in (scrollmt.__all__, plots.__all__, report.__all__):
        assert not set(names) - described, "name them in docs/reference"
    index = pages[site / "reference" / "index.html"]
    linked = {link.rsplit(".", 1)[-1] for link in index.links if "#scrollmt." in link}
    assert not set(scrollmt.__all__) - linked, "name them in docs/reference/index.md"


def test_the_glossary_has_every_word_and_every_guide_leads_to_it() -> None:
    rows = re.findall(r"^\| ([^|]+) \| .+ \|$", (DOCS / "glossary.md").read_text("utf-8"), re.M)
    words = {word.strip("` ") for row in rows for word in row.split(",")}
    asked = (
        "law belief head lead origin regime window backbone preset calibration skill climatology "
        "persistence PIT coverage nats embargo task history stride event band candidate committee "
        "ensemble backtest NLL CRPS quantile interval recipe oracle patience"
    )
    assert set(asked.split()) - words == set()
    assert len(rows) - 5 == len(set(rows) - {"word"}), "a word is explained twice"
    pages = [DOCS / "index.md", *sorted((DOCS / "guide").glob("*.md"))]
    lacking = [p.name for p in pages if "glossary.md)" not in p.read_text(encoding="utf-8")]
    assert not lacking


def test_the_walks_of_the_design_name_what_is_there() -> None:
    text = (DOCS / "design.md").read_text(encoding="utf-8").split("## Four walks")[1]
    names = re.findall(r"`(\w+(?:\.\w+)+)`", text.split("\n## ")[0])
    assert len(names) > 30
    for name in names:
        assert pkgutil.resolve_name(f"scrollmt.{name}") is not None


def test_the_design_names_every_room() -> None:
    table = (DOCS / "design.md").read_text(encoding="utf-8").split("## Rooms")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = [room for row in rows for room in re.findall(r"`([\w.]+)`", row)]
    assert named == [room for room in ROOMS if not room.startswith("__")]


def rows_of(page: str, *begin: str) -> list[list[str]]:
    """Cells of the table rows in a Markdown file that begin with the given cells."""
    lines = (DOCS / page).read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines if "|" in line]
    return [row for row in rows if row[: len(begin)] == list(begin)]


def test_quoted_results_are_those_of_the_results_pages() -> None:
    page = "guide/choosing-a-belief.md"
    for name, corpus in (("Lorenz-63", "lorenz63"), ("Ornstein-Uhlenbeck", "ou")):
        for place, belief in enumerate(("none", "diag", "full"), 1):
            row = next(row for row in rows_of(page) if row[0].startswith(name))
            ours = {
                r[3]: float(r[5]) for r in rows_of("results/core.md") if r[1:3] == [corpus, belief]
            }
            want = f"{ours['state_nll']:.3f} ({ours['coverage_error']:.3f})"
            assert row[place] == want, f"{page}: {name}, {belief}"
    row = next(row for row in rows_of(page) if row[0].startswith("[Beijing"))
    for place, belief in enumerate(("none", "diag", "full"), 1):
        (nll,) = rows_of("results/pm25.md", "C011", belief)
        (coverage,) = rows_of("results/pm25.md", "C014", belief)
        assert row[place] == f"{nll[5]} ({coverage[5]})", f"{page}: PM2.5, {belief}"

    words = " ".join((DOCS / "compare.md").read_text(encoding="utf-8").split())
    here, there = {}, {}
    for head in ("state", "event", "regime"):
        for baseline in ("ngboost", "linear"):
            ((_, _, there[head, baseline], here[head], *_),) = rows_of(
                "results/pm25.md", head, baseline
            )
    assert f"{here['state']} nats here and {there['state', 'ngboost']} there" in words
    assert f"event {here['event']} and {there['event', 'ngboost']}" in words
    assert f"bands {here['regime']} and {there['regime', 'ngboost']}" in words
    linear = [there[head, "linear"] for head in ("state", "event", "regime")]
    assert "{}, {} and {} nats".format(*linear) in words


def test_the_strict_build_names_what_is_wrong(tmp_path: Path) -> None:
    pages = tmp_path / "docs"
    pages.mkdir()
    (pages / "lost.md").write_text("# Not in the navigation\n")
    (pages / "index.md").write_text(
        "# Faults\n\n[a page](gone.md), [a place](#nowhere), [a name][scrollmt.heads.Nobody], "
        "$\\nonsense{x}$\n"
    )
    config = tmp_path / "mkdocs.yml"
    config.write_text(
        f"INHERIT: {CONFIG}\ndocs_dir: {pages}\nhooks: [{DOCS / 'mathml.py'}]\n"
        "nav: [index.md]\nextra_css: []\n"
    )
    done = build(config, tmp_path / "site")
    assert done.returncode != 0
    for fault in ("lost.md", "gone.md", "#nowhere", "scrollmt.heads.Nobody", "\\nonsense"):
        assert fault in done.stderr, f"{fault} is not reported:\n{done.stderr}"


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pictures_suit_the_theme_of_the_page(site: Path, scheme: str, tmp_path: Path) -> None:
    with served(site) as address, browser() as reader:
        for page, pictures in (("index.html", 1), ("design.html", 1), ("results/speed.html", 1)):
            reader.open(f"{address}/{page}", scheme=scheme)
            boxes = reader.run(
                "return [...document.querySelectorAll('article img')]"
                ".filter(i => i.getBoundingClientRect().width > 0).map(i => {"
                " const b = i.getBoundingClientRect();"
                " return [b.left + scrollX, b.top + scrollY, b.right + scrollX, b.bottom + scrollY]"
                "})"
            )
            assert len(boxes) == pictures, page
            reader.screenshot(tmp_path / "page.png")
            shot = imread(tmp_path / "page.png")[:, :, :3].mean(axis=2)
            for left, top, right, bottom in (map(int, box) for box in boxes):
                # Most of a picture is its ground, which is as bright as the page about it.
                ground = np.median(shot[top:bottom, left:right])
                about = np.median(shot[top:bottom, left - 12 : left - 2])
                assert abs(ground - about) < 0.15, f"{page}: {ground:.2f} on {about:.2f}"
                assert (about < 0.3) == (scheme == "dark")


def test_the_readme_has_its_picture_for_both_themes() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (picture,) = re.findall(r"<picture>.*?</picture>", text, flags=re.S)
    files = re.findall(r'(?:src|srcset)="([^"]+)"', picture)
    assert files == ["docs/results/lorenz63-dark.png", "docs/results/lorenz63.png"]
    assert all((ROOT / name).is_file() for name in files)
    assert 'media="(prefers-color-scheme: dark)"' in picture


@pytest.mark.browser
def test_pages_work_in_a_browser(site: Path) -> None:
    with served(site) as address, browser() as reader:
        for width, scheme in ((1280, "light"), (390, "dark")):
            for page in ("index.html", "theory.html", "design.html", "reference/heads.html"):
                reader.open(f"{address}/{page}", width=width, scheme=scheme)
                asked = [url for url in reader.requests() if not url.startswith(("data:", "blob:"))]
                assert asked
                assert all(url.startswith(address) for url in asked), asked
                assert reader.console() == []
                wide = reader.run("return document.documentElement.scrollWidth")
                assert wide <= width, f"{page} is {wide} pixels wide on a screen of {width}"
        # The signs of integrals are set large, whichever font the machine has for them.
        heights = reader.run(
            "return [...document.querySelectorAll('.formula math')]"
            ".map(formula => formula.getBoundingClientRect().height)"
        )
        assert max(heights) > 20
