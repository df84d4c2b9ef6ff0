"""One self-contained HTML page: sections, pictures, tables that can be searched.

A page needs no network: styles, script and pictures are inside it, and its content policy
forbids the rest. Pictures are SVG whose text is text; they use the text colour of the page, so that
they suit a light and a dark page alike. A wide table scrolls in its own box, never the page.

    page("Title", [Section("Scores", table(frame)), Section("Pictures", pictures([...]))])

The markup is in `report/templates`; whatever is not `Html` is escaped there.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader
from markupsafe import Markup as Html
from markupsafe import escape

from scrollmt._io.atomic import refuse_existing, replacing
from scrollmt.report.pages.drawing import svg as svg

__all__ = [
    "Html",
    "Section",
    "badge",
    "bullets",
    "details",
    "facts",
    "number",
    "page",
    "paragraph",
    "picture",
    "pictures",
    "svg",
    "table",
    "tag",
    "write",
]

# Longer lists are folded, and longer tables scroll in their box.
MOST_FACTS = 12
MOST_ROWS = 25
# A longer cell of text may break into several lines.
MOST_LETTERS = 32
BADGES = ("good", "fair", "bad", "plain")


@cache
def _templates() -> Environment:
    loader = PackageLoader("scrollmt.report", "templates")
    return Environment(loader=loader, autoescape=True, keep_trailing_newline=True)


def _part(macro: str, *given: object) -> Html:
    """A macro of parts.html with its arguments."""
    made: Html = getattr(_templates().get_template("parts.html").module, macro)(*given)
    return made


def tag(name: str, content: object, **attributes: str) -> Html:
    """An element; `class_` stands for the attribute `class`."""
    listed = Html("").join(
        Html(' {}="{}"').format(key.rstrip("_").replace("_", "-"), value)
        for key, value in attributes.items()
    )
    return Html("<{0}{1}>{2}</{0}>").format(name, listed, content)


def paragraph(content: object) -> Html:
    return tag("p", content)


def bullets(items: Iterable[object]) -> Html:
    return _part("bullets", items)


def badge(content: object, kind: str) -> Html:
    """A coloured word; `kind` is one of `BADGES`. The word itself says it too."""
    if kind not in BADGES:
        raise ValueError(f"a badge is 'good', 'fair', 'bad' or 'plain', got {kind!r}")
    return tag("span", content, class_=f"badge {kind}")


def details(summary: object, content: object) -> Html:
    """Content that is folded until a reader opens it."""
    return _part("details", summary, content)


def facts(pairs: Iterable[tuple[object, object]]) -> Html:
    """Terms with their descriptions; those after the first `MOST_FACTS` are folded."""
    return _part("facts", list(pairs), MOST_FACTS)


def number(value: Any, digits: int = 4) -> str:
    """A number with so many significant digits; an empty cell where it is missing."""
    if value is None or (isinstance(value, float | np.floating) and np.isnan(value)):
        return ""
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, int | np.integer):
        return f"{value:,}"
    if isinstance(value, float | np.floating):
        return f"{value:.{digits}g}"
    return str(value)


@dataclass(frozen=True)
class Section:
    """A part of a page under a heading, reached from the contents at its top."""

    heading: str
    body: Html

    @property
    def anchor(self) -> str:
        return re.sub(r"\W+", "-", self.heading.lower()).strip("-") or "section"


def page(title: str, sections: Sequence[Section], *, lead: object = "") -> str:
    """A whole page as text; `lead` stands below the title."""
    style, script = (_asset(name) for name in ("page.css", "table.js"))
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{allowed}'"
    )
    anchors = _unlike(section.anchor for section in sections)
    return (
        _templates()
        .get_template("page.html")
        .render(
            title=title,
            sections=list(zip(anchors, sections, strict=True)),
            lead=lead,
            style=style,
            script=script,
            policy=policy,
        )
    )


def _asset(name: str) -> Html:
    """A style sheet or a script as it is."""
    return Html(Path(__file__).parents[1].joinpath("templates", name).read_text(encoding="utf-8"))


def _unlike(names: Iterable[str]) -> list[str]:
    """The names, with a number behind those that occur again."""
    out: list[str] = []
    for name in names:
        rank, new = 1, name
        while new in out:
            rank += 1
            new = f"{name}-{rank}"
        out.append(new)
    return out


def write(path: str | os.PathLike[str], content: str, *, force: bool = False) -> Path:
    """Write a page; a file that is there already is replaced only with `force`."""
    target = refuse_existing(path, force=force)
    with replacing(target) as draft:
        draft.write_text(content, encoding="utf-8", newline="\n")
    return target


@dataclass(frozen=True)
class _Column:
    """A column of a table: cells as markup, numbers to the right."""

    place: int
    name: str
    numeric: bool
    cells: list[Html]

    @property
    def options(self) -> list[str]:
        """The different cells as a reader sees them."""
        return list(dict.fromkeys(map(_bare, self.cells)))

    @property
    def kinds(self) -> list[str]:
        """How each cell is set: a short text stays on one line, since the box can scroll."""
        if self.numeric:
            return ["number"] * len(self.cells)
        return ["short" if len(_bare(cell)) <= MOST_LETTERS else "long" for cell in self.cells]


def _bare(cell: Html) -> str:
    """What a reader sees of a cell; unlike `striptags` it keeps the spaces inside."""
    return Html(re.sub(r"<[^>]+>", "", cell)).unescape().strip()


def table(
    frame: pd.DataFrame,
    *,
    caption: object = "",
    digits: int = 4,
    search: bool = False,
    filters: Sequence[str] = (),
    markup: Sequence[str] = (),
) -> Html:
    """A table in a box of its own; the index is its first column where it has a name.

    The box scrolls sideways where it is too narrow, and up and down from 25 rows on.

    `search` adds a field that keeps the rows with all of its words, `filters` a menu for each of
    these columns. Cells are escaped, but for those of the columns named in `markup`.
    """
    shown = frame.reset_index() if any(name is not None for name in frame.index.names) else frame
    names = [str(column) for column in shown.columns]
    unknown = [name for name in (*filters, *markup) if name not in names]
    if unknown:
        raise ValueError(f"no columns {unknown} to filter by or to mark up; there are {names}")
    columns = []
    for place, name in enumerate(names):
        values = shown.iloc[:, place]
        # pandas stores markup as plain text, so `markup` has to name its columns.
        cells = [Html(v) if name in markup else escape(number(v, digits)) for v in values]
        numeric = pd.api.types.is_numeric_dtype(values.dtype)
        columns.append(_Column(place, name, numeric, cells))
    cells_and_kinds = [zip(one.cells, one.kinds, strict=True) for one in columns]
    rows = list(zip(*cells_and_kinds, strict=True))
    menus = [one for one in columns if one.name in filters]
    return _part("table", columns, rows, caption, len(rows) > MOST_ROWS, search, menus)


def pictures(figures: Iterable[Html]) -> Html:
    """Pictures side by side where there is room."""
    return tag("div", Html("").join(figures), class_="pictures")


def picture(drawn: Any, *, alt: str, caption: object = "") -> Html:
    """A matplotlib figure, or the figure of some axes, with a text for those who cannot see it."""
    return _part("picture", svg(drawn, alt=alt), caption)
