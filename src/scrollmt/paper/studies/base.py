"""A study declares the jobs that it needs and answers claims from their records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from scrollmt.backbone import PAPER_BACKBONES
from scrollmt.paper.arena.jobs import Job, make_job
from scrollmt.paper.arena.probes import PREFIX
from scrollmt.paper.arms import ARMS
from scrollmt.paper.data import published
from scrollmt.paper.protocol import PROTOCOL, Protocol, draws_of
from scrollmt.paper.studies.evidence import Answer, Evidence, judged
from scrollmt.paper.tables.verdicts import Finding

Jobs = Callable[[Protocol], list[Job]]


@dataclass(frozen=True)
class Study:
    """One study of the paper.

    - `name`: as in the column `study` of the claims.
    - `needs`: functions of the protocol that give the jobs to be recorded. Studies share jobs,
      which are computed once.
    - `answers`: for each claim a function of the evidence; what the records lack makes a claim
      not checkable.
    """

    name: str
    summary: str
    needs: Sequence[Jobs]
    answers: Mapping[str, Answer]

    def __post_init__(self) -> None:
        others = [id for id in self.answers if published.claim(id).study != self.name]
        if others:
            raise ValueError(f"the claims {others} belong to another study than {self.name!r}")

    def jobs(self, protocol: Protocol) -> list[Job]:
        return [job for need in self.needs for job in need(protocol)]

    def findings(self, frame: pd.DataFrame) -> list[Finding]:
        """One finding for each claim of the study."""
        return self.judged(Evidence(frame))

    def judged(self, evidence: Evidence) -> list[Finding]:
        return [
            judged(published.claim(id), answer, evidence) for id, answer in self.answers.items()
        ]


def sweep(
    corpora: Iterable[str],
    arms: Iterable[str],
    protocol: Protocol = PROTOCOL,
    backbones: Sequence[str] | None = None,
) -> list[Job]:
    """Every arm on every corpus, on all of its draws; a probe on the first.

    `backbones` are by default those of each arm, and the paper's for a probe.
    """
    arms = list(arms)
    return [
        make_job(drawn, arm, backbone, protocol)
        for corpus in corpora
        for arm in arms
        for drawn in ([corpus] if arm.startswith(PREFIX) else draws_of(corpus))
        for backbone in backbones or (ARMS[arm].backbones if arm in ARMS else PAPER_BACKBONES)
    ]


def unique(jobs: Iterable[Job]) -> list[Job]:
    """Each job once, in the order of its first mention."""
    return list(dict.fromkeys(jobs))
