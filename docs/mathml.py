"""A hook of the site: formulas in pages and docstrings become MathML, which browsers draw.

The page then needs no script, no font and no other host to show a formula, and its text can be
selected. What the converter does not know is a warning, and so fails a strict build.
"""

import html
import logging
import re
from typing import Any

from latex2mathml.converter import convert

# As pymdownx.arithmatex marks them, with its option `generic`.
INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
DISPLAY = re.compile(r'<div class="arithmatex">\\\[(.*?)\\\]</div>', re.DOTALL)
# A function is set apart from what it is applied to, unless that stands in brackets.
FUNCTION = re.compile(r"(<mi>(?:exp|log|max|min)</mi>)(?!<mo[^>]*>(?:&#x0*28;|&#x0*5B;|\())")

log = logging.getLogger("mkdocs.hooks.mathml")


def mathml(latex: str, display: str) -> str:
    """One formula as a `math` element; `display` is "inline" or "block"."""
    # Words inside a formula are taken as they stand, escapes and all.
    plain = re.sub(r"\\text\{[^}]*\}", lambda words: words[0].replace(r"\_", "_"), latex)
    drawn = FUNCTION.sub(r'\1<mspace width="0.17em"/>', convert(plain, display=display))
    return drawn.replace("<mo>&#x0002F;</mo>", '<mo lspace="0" rspace="0">&#x0002F;</mo>')


def on_page_content(content: str, page: Any, **_: Any) -> str:
    def replaced(display: str) -> Any:
        def formula(found: re.Match[str]) -> str:
            latex = html.unescape(found[1]).strip()
            drawn = mathml(latex, display)
            if "\\" in drawn:
                log.warning("%s: cannot convert the formula %s", page.file.src_uri, latex)
            return f'<div class="formula">{drawn}</div>' if display == "block" else drawn

        return formula

    return DISPLAY.sub(replaced("block"), INLINE.sub(replaced("inline"), content))
