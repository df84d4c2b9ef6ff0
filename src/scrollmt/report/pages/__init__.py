"""One self-contained HTML page: sections, pictures, tables that can be searched.

A page needs no network: styles, script and pictures are inside it, and its content policy
forbids the rest. Pictures are SVG whose text is text; their ink is the page's own, so that they
suit a light and a dark page alike. A wide table scrolls in its own box, never the page.

    page("Title", [Section("Scores", table(frame)), Section("Pictures", pictures([...]))])
"""

from __future__ import annotations

import base64
import hashlib
import html
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from scrollmt._io.atomic import refuse_existing, replacing
from scrollmt.report.pages.drawing import svg as svg

# Longer lists are folded, and longer tables scroll in their box: a page stays a page.
MOST_FACTS = 12
MOST_ROWS = 25


class Html(str):
    """Text that is markup already and is not escaped again."""

    __slots__ = ()


def text(value: object) -> Html:
    """Any value as markup: escaped, unless it is markup already."""
    return value if isinstance(value, Html) else Html(html.escape(str(value)))


def tag(name: str, content: object, **attributes: str) -> Html:
    """An element; `class_` stands for the attribute `class`."""
    listed = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(value)}"'
        for key, value in attributes.items()
    )
    return Html(f"<{name}{listed}>{text(content)}</{name}>")


def paragraph(content: object) -> Html:
    return tag("p", content)


def bullets(items: Iterable[object]) -> Html:
    return tag("ul", Html("".join(tag("li", item) for item in items)))


def badge(content: object, kind: str) -> Html:
    """A coloured word; `kind` is "good", "fair", "bad" or "plain". The word itself says it too."""
    if kind not in ("good", "fair", "bad", "plain"):
        raise ValueError(f"a badge is 'good', 'fair', 'bad' or 'plain', got {kind!r}")
    return tag("span", content, class_=f"badge {kind}")


def details(summary: object, content: object) -> Html:
    """Content that is folded away until it is asked for."""
    return tag("details", Html(tag("summary", summary) + text(content)))


def facts(pairs: Iterable[tuple[object, object]]) -> Html:
    """Terms with what there is to say about them; of many, the first, and the rest folded away."""
    rows = [tag("dt", term) + tag("dd", said) for term, said in pairs]
    first, more = (
        tag("dl", Html("".join(part)), class_="facts")
        for part in (rows[:MOST_FACTS], rows[MOST_FACTS:])
    )
    if len(rows) <= MOST_FACTS:
        return first
    return Html(first + details(f"{len(rows) - MOST_FACTS} more", more))


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
    anchors = _unlike(section.anchor for section in sections)
    contents = "".join(
        tag("li", tag("a", section.heading, href=f"#{anchor}"))
        for section, anchor in zip(sections, anchors, strict=True)
    )
    body = "\n".join(
        tag("section", Html(tag("h2", section.heading) + section.body), id=anchor)
        for section, anchor in zip(sections, anchors, strict=True)
    )
    style, script = (_asset(name) for name in ("page.css", "table.js"))
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{allowed}'"
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{html.escape(policy, quote=True)}">
<link rel="icon" href="data:,">
<title>{html.escape(title)}</title>
<style>{style}</style>
</head>
<body>
<header>
{tag("h1", title)}
{text(lead)}
<nav aria-label="Contents"><ul>{contents}</ul></nav>
</header>
<main>
{body}
</main>
<script>{script}</script>
</body>
</html>
"""


def _asset(name: str) -> str:
    return files("scrollmt.report.pages").joinpath(name).read_text(encoding="utf-8")


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
    columns = [str(column) for column in shown.columns]
    unknown = [name for name in (*filters, *markup) if name not in columns]
    if unknown:
        raise ValueError(f"no columns {unknown} to filter by or to mark up; there are {columns}")
    numeric = [pd.api.types.is_numeric_dtype(dtype) for dtype in shown.dtypes]
    head = "".join(
        tag("th", name, scope="col", **({"class_": "number"} if right else {}))
        for name, right in zip(columns, numeric, strict=True)
    )
    # pandas keeps text of any kind as plain text, so that a cell cannot say itself what it is.
    cells = [
        [Html(v) if name in markup else text(number(v, digits)) for v in shown.iloc[:, place]]
        for place, name in enumerate(columns)
    ]
    rows = [
        f"<tr>{''.join(_cell(cell, right) for cell, right in zip(row, numeric, strict=True))}</tr>"
        for row in zip(*cells, strict=True)
    ]
    about = tag("caption", caption) if caption else ""
    grid = (
        f'<div class="wide{" tall" if len(rows) > MOST_ROWS else ""}" tabindex="0" role="region" '
        f'aria-label="Table"><table>{about}'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )
    controls = _controls(dict(zip(columns, cells, strict=True)), search, filters)
    return Html(f'<div class="table"{" data-table" if controls else ""}>{controls}{grid}</div>')


def _cell(content: Html, right: bool) -> Html:
    """A number to the right; a short text on one line, since the box can scroll."""
    kind = "number" if right else "short" if len(_bare(content)) <= 32 else "long"
    return tag("td", content, class_=kind)


def _bare(content: Html) -> str:
    """What a reader sees of a cell, still escaped."""
    return re.sub(r"<[^>]+>", "", content).strip()


def _controls(cells: dict[str, list[Html]], search: bool, filters: Sequence[str]) -> str:
    if not search and not filters:
        return ""
    fields = ""
    if search:
        fields += '<label>Search <input type="search" autocomplete="off"></label>'
    for place, (name, column) in enumerate(cells.items()):
        if name not in filters:
            continue
        options = "".join(
            f'<option value="{value}">{value}</option>'
            for value in dict.fromkeys(map(_bare, column))
        )
        fields += (
            f'<label>{text(name)} <select data-column="{place}">'
            f'<option value="">all</option>{options}</select></label>'
        )
    return f'<form class="controls" hidden>{fields}<output></output></form>'


def pictures(figures: Iterable[Html]) -> Html:
    """Pictures side by side where there is room."""
    return tag("div", Html("".join(figures)), class_="pictures")


def picture(drawn: Any, *, alt: str, caption: object = "") -> Html:
    """A matplotlib figure, or the figure of some axes, with a text for those who cannot see it."""
    below = tag("figcaption", caption) if caption else ""
    return Html(f"<figure>{svg(drawn, alt=alt)}{below}</figure>")
