"""The text of a config that `scrollmt init` writes: one function a table of the file."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from scrollmt.cli.config import Source


@dataclass(frozen=True)
class Question:
    """The lines of a question, and why it is left out, where it is."""

    lines: tuple[str, ...]
    why_not: str | None = None

    def text(self) -> list[str]:
        if self.why_not is None:
            return ["", *self.lines]
        return ["", *remark(f"Left out: {self.why_not}"), *("# " + line for line in self.lines)]


@dataclass(frozen=True)
class Draft:
    """All that is chosen for a config of a series."""

    history: int
    lead: int
    validation: float
    test: float
    questions: dict[str, Question]
    lags: str
    others: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    calendar: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()

    def text(self) -> list[str]:
        lines = [
            "",
            "# All lengths are in rows.",
            "[windows]",
            f"history = {self.history}  # rows known at the time t of a forecast, t included",
            f"lead = {self.lead}  # rows ahead; leads = [1, 6, 24] asks for several at once",
            "# stride = 5  # learn from every fifth row only; by default from each, at most 20,000",
            "fill_limit = 3  # gaps of up to so many rows are filled; longer ones cost windows",
            "",
            "# One table a question. kind is value (a number), event (yes or no) or bands (ordered",
            "# classes); over = mean, max, min or sum takes all rows up to the lead, not the last.",
        ]
        for question in self.questions.values():
            lines += question.text()
        lines += [
            "",
            "# What a forecast may know; without [[inputs]] the history of what is asked about.",
            *_input("lags", [self.lags]),
        ]
        if self.others:
            # Many columns with all their rows would be more inputs than windows to learn from.
            steps = min(self.history, 6 if len(self.others) <= 20 else 1)
            lines += [
                "",
                *_input("lags", self.others),
                f"steps = {steps}  # only the latest rows of these",
            ]
        if self.categories:
            lines += [
                "",
                *_input("one_hot", self.categories),
                '# unknown = "ignore"  # a category that the fit has not seen is zeros, no error',
            ]
        if self.calendar:
            lines += ["", "[[inputs]]", 'kind = "calendar"', f"parts = {listed(self.calendar)}"]
        lines += not_used(self.unused)
        held_out = "the newest windows; a gap keeps what is asked of one part from another"
        return lines + common(held_out, self.validation, self.test)


def data_table(source: Source, file: str, *, hint_at_zone: bool = False) -> list[str]:
    """[data]: what is not the default."""
    lines = ["[data]", f"file = {quoted(file)}"]
    for key, value, usual in (
        ("separator", source.separator, ","),
        ("decimal", source.decimal, "."),
        ("thousands", source.thousands, None),
        ("encoding", source.encoding, None),
    ):
        if value is not None and value != usual:
            lines.append(f"{key} = {quoted(value)}")
    if source.missing is not None:
        lines.append(f"missing = {listed(source.missing)}  # texts that stand for a missing value")
    if source.time is None:
        return lines
    time = listed(source.time_parts) if source.time_parts else quoted(source.time)
    lines.append(f"time = {time}")
    if source.time_format is not None:
        lines.append(f"time_format = {quoted(source.time_format)}")
    if source.timezone is not None:
        lines.append(f"timezone = {quoted(source.timezone)}")
    elif hint_at_zone:
        lines.append('# timezone = "Europe/Berlin"  # for local times where clocks change')
    if source.step is not None:
        step = quoted(_length(source.step))
        lines.append(f"step = {step}  # a row that is not there counts as missing")
    if source.duplicates != "error":
        lines.append(f"duplicates = {quoted(source.duplicates)}  # of rows with one time")
    return lines


def value_question(column: str, *, transform: bool, count: bool) -> tuple[str, ...]:
    lines = [
        "[questions.value]",
        'kind = "value"',
        f"column = {quoted(column)}",
        f'{"" if transform else "# "}transform = "log1p"  # or log, sqrt: answers come back in the '
        "file's units",
    ]
    if count:
        lines.append('# head = "count"  # whole numbers from zero on; it takes no transform')
    return (*lines, '# units = "ug/m3"')


def event_question(column: str, key: str, level: float) -> tuple[str, ...]:
    others = ", ".join(one for one in ("above", "at_least", "below", "at_most") if one != key)
    return (
        "[questions.event]",
        'kind = "event"',
        f"column = {quoted(column)}",
        f"{key} = {level!r}  # or {others}",
    )


def band_question(column: str) -> tuple[str, ...]:
    return (
        "[questions.band]",
        'kind = "bands"',
        f"column = {quoted(column)}",
        "quantiles = 4  # equal shares of the training part; edges = [20, 50] cuts where you say",
    )


def table_text(
    inputs: Sequence[str], target: str, head: Sequence[str], unused: Sequence[str], *, test: float
) -> list[str]:
    """A config of a table after its [data]."""
    categorical = any('"categorical"' in line for line in head)
    return [
        "",
        "# No column says the time of a row, so each row is taken for a window.",
        "[table]",
        f"inputs = {listed(inputs)}",
        '# weight = "column"  # of each row',
        "",
        "# One table a target. head is gaussian (a number), event (yes or no), ordinal or",
        "# categorical (classes, with and without an order); a missing label is an empty cell.",
        f"[targets.{quoted(target)}]",
        *head,
        *not_used(unused),
        *common(
            'a random share; order = "chronological" takes the last rows instead',
            0.2,
            test,
            belief="none" if categorical else "diag",
        ),
    ]


def common(held_out: str, validation: float, test: float, belief: str = "diag") -> list[str]:
    return [
        "",
        "# Shares that judge the training and that are kept out of it:",
        f"# {held_out}.",
        "[split]",
        f"validation = {validation:g}",
        f"test = {test:g}  # 0 keeps none back, and trains what was chosen again on all rows",
        "",
        "[model]",
        'preset = "default"  # or "quick", a first look; or "paper", the published protocol',
        f'belief = "{belief}"  # the covariance of the last layer: none, diag, low-rank or full',
        "seed = 0",
        "ensemble = 1  # so many fits are mixed",
        "",
        "# Single numbers of the preset's training can be changed.",
        "# [training]",
        "# steps = 2250",
        "# patience = 60",
    ]


def not_used(columns: Sequence[str]) -> list[str]:
    return ["", *remark(f"Not used: {', '.join(map(quoted, columns))}")] if columns else []


def remark(text: str) -> list[str]:
    """A comment of as many lines as it takes; TOML allows no control characters in one."""
    clean = "".join(one if one.isprintable() else " " for one in text)
    return textwrap.wrap(
        clean, 98, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False
    )


def _input(kind: str, columns: Sequence[str]) -> list[str]:
    return ["[[inputs]]", f'kind = "{kind}"', f"columns = {listed(columns)}"]


def listed(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(quoted, texts))}]"


def quoted(text: str) -> str:
    """A TOML string; what cannot be printed is escaped, and so never reaches a terminal."""
    plain = json.dumps(text, ensure_ascii=False)
    return "".join(one if one.isprintable() else rf"\U{ord(one):08x}" for one in plain)


def _length(step: pd.Timedelta) -> str:
    for unit in ("D", "h", "min", "s"):
        count = step / pd.Timedelta(1, unit)
        if count >= 1 and count == int(count):
            return f"{int(count)}{unit}"
    return f"{step.total_seconds()}s"
