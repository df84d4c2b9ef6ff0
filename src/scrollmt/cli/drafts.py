"""The text of a config that `scrollmt init` writes, from the templates in this folder."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import pandas as pd
from jinja2 import Environment, PackageLoader

from scrollmt.cli.config import Source


@dataclass(frozen=True)
class Data:
    """[data]: the source, its file as the config names it, and a comment on time zones."""

    source: Source
    file: str
    hint_at_zone: bool = False

    @property
    def written_otherwise(self) -> dict[str, str]:
        """How the file is written, where that is not the default of a config."""
        source = self.source
        keys = {
            "separator": (source.separator, ","),
            "decimal": (source.decimal, "."),
            "thousands": (source.thousands, None),
            "encoding": (source.encoding, None),
        }
        return {k: value for k, (value, usual) in keys.items() if value not in (None, usual)}

    @property
    def step(self) -> str:
        """The step of the source as short as a user would write it."""
        step = pd.Timedelta(self.source.step)
        for unit in ("D", "h", "min", "s"):
            count = step / pd.Timedelta(1, unit)
            if count >= 1 and count == int(count):
                return f"{int(count)}{unit}"
        return f"{step.total_seconds()}s"


@dataclass(frozen=True)
class Question:
    """A question about the asked column, and the reason where it is left out.

    A value has ``transform`` and ``count``, an event its ``comparison`` with a ``level``.
    """

    kind: str
    transform: bool = False
    count: bool = False
    comparison: str = ""
    level: float = 0.0
    why_not: str | None = None


@dataclass(frozen=True)
class SeriesDraft:
    """All that is chosen for a config of a series."""

    template: ClassVar[str] = "series.toml"
    belief: ClassVar[str] = "diag"

    asked: str
    history: int
    lead: int
    questions: dict[str, Question]
    test: float = 0.2
    others: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    calendar: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()

    @property
    def steps_of_others(self) -> int:
        # Many columns with all their rows would be more inputs than windows to learn from.
        return min(self.history, 6 if len(self.others) <= 20 else 1)


@dataclass(frozen=True)
class TableDraft:
    """All that is chosen for a config of a table; ``texts`` are those of the classes."""

    template: ClassVar[str] = "table.toml"

    asked: str
    inputs: tuple[str, ...]
    head: str
    texts: tuple[str, ...] = ()
    classes: int = 0
    count: bool = False
    test: float = 0.2
    unused: tuple[str, ...] = ()

    @property
    def belief(self) -> str:
        return "none" if self.head == "categorical" else "diag"


Draft = SeriesDraft | TableDraft


def text(data: Data, draft: Draft) -> str:
    """A whole config."""
    template = _templates().get_template(draft.template)
    return template.render(data=data, source=data.source, draft=draft)


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("scrollmt.cli", "templates"),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"toml": toml, "remark": remark, "commented": _commented}
    return environment


def toml(value: str | Sequence[str]) -> str:
    """A TOML string or list; what cannot be printed is escaped, and so never reaches a terminal."""
    if not isinstance(value, str):
        return f"[{', '.join(map(toml, value))}]"
    plain = json.dumps(value, ensure_ascii=False)
    return "".join(one if one.isprintable() else rf"\U{ord(one):08x}" for one in plain)


def remark(text: str) -> str:
    """A comment of as many lines as it takes; TOML allows no control characters in one."""
    clean = "".join(one if one.isprintable() else " " for one in text)
    lines = textwrap.wrap(
        clean, 98, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False
    )
    return "\n".join(lines)


def _commented(text: str) -> str:
    return textwrap.indent(text, "# ")
