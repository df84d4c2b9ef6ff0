"""What a study beyond the paper is: arms by name, the jobs behind them, and a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd

from scrollmt.paper.arena.jobs import Job, make_job
from scrollmt.paper.arena.runs import LEADING, TRAILING
from scrollmt.paper.arms import ARMS
from scrollmt.paper.data.published import CORPORA, METRICS
from scrollmt.paper.protocol import Protocol
from scrollmt.paper.studies.base import unique
from scrollmt.paper.tables.selection import RESULT, select

# `page(frame, arms, skipped, command)`: the text of the page, from records.
Page = Callable[[pd.DataFrame, Sequence[str], dict[str, str], str], str]
# What the records that are committed keep of a run.
KEPT = ("valid_nats", *METRICS, "steps", "best_step", "stop_reason")


@dataclass(frozen=True)
class BeyondStudy:
    """One study.

    - `arms`: names in the order of the tables. One that is not registered, or whose packages are
      not installed, is skipped.
    - `page`: makes the page from the records.
    """

    name: str
    summary: str
    arms: Sequence[str]
    page: Page
    corpora: Sequence[str] = CORPORA

    def available(self, names: Sequence[str] | None = None) -> tuple[list[str], dict[str, str]]:
        """The arms that can run here, and for each of the others why it cannot."""
        skipped: dict[str, str] = {}
        for name in names or self.arms:
            if name not in ARMS:
                skipped[name] = "no arm of this name is registered"
            elif lacking := ARMS[name].missing_packages():
                skipped[name] = f"{', '.join(lacking)} not installed"
        return [name for name in names or self.arms if name not in skipped], skipped

    def jobs(
        self,
        protocol: Protocol,
        corpora: Sequence[str] | None = None,
        arms: Sequence[str] | None = None,
        backbones: Sequence[str] | None = None,
    ) -> list[Job]:
        """Every available arm on the first draw of every corpus.

        `backbones` are of arms that have some to choose from.
        """
        made = []
        for corpus in corpora or self.corpora:
            for name in self.available(arms)[0]:
                arm = ARMS[name]
                chosen = [b for b in arm.backbones if backbones is None or b in backbones]
                for backbone in chosen or arm.backbones:
                    made.append(make_job(corpus, arm.runs_of or name, backbone, protocol))
        return unique(made)


def with_selections(frame: pd.DataFrame) -> pd.DataFrame:
    """The records, and again the runs of arms that only select from the runs of another."""
    parts = [frame]
    for arm in ARMS.values():
        if arm.runs_of is not None and arm.select == "valid_nats":
            mine = frame["setting"].isin(arm.setting_texts())
            parts.append(frame[(frame["arm"] == arm.runs_of) & mine].assign(arm=arm.name))
    return pd.concat(parts, ignore_index=True)


def lean(frame: pd.DataFrame) -> pd.DataFrame:
    """What the pages read: of many settings only those that some arm selects, and few columns."""
    numbered = with_selections(frame.assign(row=frame.index))
    selected = select(numbered, keys=[*RESULT, "backbone"])["row"].unique()
    columns = [*LEADING, *(name for name in KEPT if name in frame), *TRAILING]
    return frame.loc[sorted(selected), columns]
