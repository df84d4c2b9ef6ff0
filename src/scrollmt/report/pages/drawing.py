"""matplotlib figures as SVG that belongs to the page it stands on.

Text stays text, black becomes the page's text colour (`currentColor`), the data colours become the
page's variables, with a brighter set on a dark page, fonts are the page's, ids are unlike those of
other pictures, and coordinates have two decimals.
"""

from __future__ import annotations

import io
import re
import warnings
import zlib
from typing import Any

from markupsafe import Markup

from scrollmt.plots import canvas

COLOURS = {
    canvas.BLUE: "blue",
    canvas.RED: "red",
    canvas.GREEN: "green",
    canvas.PINK: "pink",
    canvas.GREY: "grey",
}


def svg(drawn: Any, *, alt: str) -> Markup:
    """A matplotlib figure, or the figure of some axes, as an inline `<svg>` named by `alt`."""
    import matplotlib

    if not alt.strip():
        raise ValueError("a picture needs an alt text that says what it shows")
    figure = getattr(drawn, "figure", drawn)
    stream = io.StringIO()
    with (
        matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "scrollmt"}),
        warnings.catch_warnings(),
    ):
        # Text stays text: the reader's browser has the letters that matplotlib's font lacks.
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    source = stream.getvalue()
    first, body = re.split(r">", source[source.index("<svg") :], maxsplit=1)
    box = re.search(r'viewBox="([^"]+)"', first)
    assert box is not None, "matplotlib writes a viewBox"
    _, _, width, height = (float(side) * 4.0 / 3.0 for side in box[1].split())
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", body, flags=re.S)
    body = re.sub(r"\s*<defs>\s*</defs>", "", body)
    body = re.sub(r"(fill|stroke): #000000", r"\1: currentColor", body)
    for value, name in COLOURS.items():
        body = body.replace(f": {value}", f": var(--{name}, {value})")
    body = re.sub(r"font-family: [^;\"]*", "font-family: inherit", body)
    body = re.sub(r' (d|x|y|transform)="[^"]*"', _rounded, body)
    used = set(re.findall(r'(?:url\(|href=")#([\w.-]+)', body))
    # Several pictures share one page, and an id may occur only once in it.
    mark = f"p{zlib.crc32(body.encode()):08x}"
    body = re.sub(r' id="([^"]+)"', lambda m: f' id="{mark}-{m[1]}"' if m[1] in used else "", body)
    body = re.sub(r'(url\(|href=")#', rf"\1#{mark}-", body)
    opening = Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        'role="img" aria-label="{}" fill="currentColor" viewBox="{}" width="{:.0f}" '
        'height="{:.0f}">'
    ).format(alt, box[1], width, height)
    return opening + Markup(body)


def _rounded(attribute: re.Match[str]) -> str:
    """Coordinates to a hundredth of a point: half the size, and no eye can tell."""
    short = re.sub(r"-?\d+\.\d{3,}", lambda m: f"{float(m[0]):.2f}", attribute[0])
    return re.sub(r"\s*\n\s*", " ", short)
