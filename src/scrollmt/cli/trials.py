"""Drafts of a config tried out on the rows of a file, as `fit --check` reads and checks them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from scrollmt._data.holdout import Ready
from scrollmt.cli import drafts
from scrollmt.cli.config import ONE_DAY, parse_config
from scrollmt.cli.data import Prepared, prepare_rows
from scrollmt.cli.drafts import Draft, Question, SeriesDraft
from scrollmt.cli.shell import Problem
from scrollmt.presets import HELD_OUT_SHARE


class Sizes(NamedTuple):
    """Windows that each part has at least."""

    train: int
    valid: int
    test: int


# Good ones, and what will do for a short file.
SIZES = (Sizes(40, 10, 10), Sizes(20, 5, 5), Sizes(5, 2, 2), Sizes(5, 2, 0))


# Of a config that has no name yet.
_NAME = "the config"


@dataclass(frozen=True)
class Trial:
    """Configs with one beginning, read and checked as `fit --check` does."""

    rows: pd.DataFrame
    data: drafts.Data
    folder: Path
    digests: list[str]

    def text(self, draft: Draft) -> str:
        return drafts.text(self.data, draft)

    def prepared(self, draft: Draft, **split: Any) -> tuple[Prepared, Ready]:
        """The config's parts, ready to train; `split` has other settings of its split."""
        config = parse_config(self.text(draft).encode(), _NAME, self.folder)
        config = replace(config, split=replace(config.split, **split))
        with warnings.catch_warnings():
            # What a fit warns of, it says when it is run.
            warnings.simplefilter("ignore")
            prepared = prepare_rows(config, self.rows, self.digests, verbose=False)
            return prepared, prepared.model._ready(*prepared.train)

    def complaint(self, draft: Draft, sizes: Sizes = SIZES[-1]) -> str | None:
        """Why a config cannot be fitted, or has parts that are too small."""
        try:
            self.prepared(draft)
            # A part to hold out has to be there too: backtests and other presets need one.
            prepared, ready = self.prepared(draft, validation=HELD_OUT_SHARE)
        except ValueError as error:
            return str(error).removeprefix(f"{_NAME}: ").removeprefix("[split]: ")
        test = 0 if prepared.test is None else prepared.test.size
        found = Sizes(*ready.sizes, test)
        if any(have < need for have, need in zip(found, sizes, strict=True)):
            return (
                f"there are {found.train} windows to train and {found.valid} to validate, and at "
                f"least {sizes.train} and {sizes.valid} are needed"
            )
        return None


def long_enough(
    check: Trial, draft: SeriesDraft, step: pd.Timedelta | None, name: str
) -> tuple[SeriesDraft, Prepared]:
    """The draft with the longest history and lead that leave enough windows for all parts."""
    why_not = None
    for sizes in SIZES:
        for history, lead in _shrinking(*_natural(step)):
            tried = replace(draft, history=history, lead=lead, test=0.2 if sizes.test else 0.0)
            why_not = check.complaint(tried, sizes)
            if why_not is None:
                return tried, check.prepared(tried, validation=HELD_OUT_SHARE)[0]
    raise Problem(
        f"{name}: no question about {draft.asked!r} can be learned from {len(check.rows)} rows: "
        f"{why_not}"
    )


def _shrinking(history: int, lead: int) -> Iterator[tuple[int, int]]:
    while True:
        yield history, lead
        if history == lead == 1:
            return
        history, lead = max(1, history // 2), max(1, lead // 2)


def _natural(step: pd.Timedelta | None) -> tuple[int, int]:
    """History and lead in rows: a day of hours, two weeks of days for one, else twelve for one."""
    day = 0.0 if step is None else ONE_DAY / step
    if 2 <= day <= 48:
        return round(day), round(day)
    return (14, 1) if 0.9 <= day < 2 else (12, 1)


def learnable(check: Trial, draft: SeriesDraft) -> dict[str, Question]:
    """The questions, those that cannot be learned with the reason; one at least is asked."""
    active = {name: one for name, one in draft.questions.items() if one.why_not is None}
    if check.complaint(replace(draft, questions=active)) is None:
        return draft.questions
    reasons = {
        name: check.complaint(replace(draft, questions={name: one})) for name, one in active.items()
    }
    judged = {
        name: replace(one, why_not=one.why_not or reasons[name])
        for name, one in draft.questions.items()
    }
    if all(one.why_not for one in judged.values()):
        judged["value"] = replace(judged["value"], why_not=None)
    return judged
