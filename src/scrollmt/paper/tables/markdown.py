"""Markdown tables with pipes, and pages written whole or not at all."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from scrollmt._io.atomic import replacing


def escaped(text: str, signs: str = r"\`*_<|") -> str:
    """Text in which none of the signs means something to Markdown."""
    return re.sub(f"([{re.escape(signs)}])", r"\\\1", text)


def pipe_table(header: Iterable[str], rule: str, rows: Iterable[Iterable[str]]) -> str:
    """A header, the rule below it and one line for each row of cells."""
    head, *body = (f"| {' | '.join(cells)} |" for cells in (header, *rows))
    return "\n".join([head, rule, *body])


def write_texts(folder: str | Path, texts: Mapping[str, str]) -> list[Path]:
    """Write each text to its file in a folder; a file is replaced as a whole."""
    written = []
    for name, text in texts.items():
        path = Path(folder) / name
        with replacing(path) as draft:
            draft.write_text(text, encoding="utf-8", newline="\n")
        written.append(path)
    return written
