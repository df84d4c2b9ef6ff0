"""A study declares the jobs it needs and computes its findings from their records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from scrollmt.backbone import PAPER_BACKBONES
from scrollmt.paper.arms import ARMS
from scrollmt.paper.jobs import Job, make_job
from scrollmt.paper.probes.registry import PREFIX
from scrollmt.paper.protocol import PROTOCOL, Protocol, draws_of
from scrollmt.paper.verdicts import Finding

Jobs = Callable[[Protocol], list[Job]]
Findings = Callable[[pd.DataFrame], list[Finding]]


@dataclass(frozen=True)
class Study:
    """One study of the paper.

    `name` is the one that the claims carry. `jobs(protocol)` lists what has to be recorded;
    studies share jobs, which are computed once. `findings(frame)` judges the study's claims
    by the records; what the records lack comes out as not checkable.
    """

    name: str
    summary: str
    jobs: Jobs
    findings: Findings


STUDIES: dict[str, Study] = {}


def study(name: str, summary: str, jobs: Jobs) -> Callable[[Findings], Findings]:
    """Register a function of the records as the findings of a study."""

    def register(findings: Findings) -> Findings:
        if name in STUDIES:
            raise ValueError(f"a study named {name!r} is registered already")
        STUDIES[name] = Study(name, summary, jobs, findings)
        return findings

    return register


def get_study(name: str) -> Study:
    if name not in STUDIES:
        raise ValueError(f"unknown study {name!r}; choose from {', '.join(STUDIES)}")
    return STUDIES[name]


def sweep(
    corpora: Iterable[str],
    arms: Iterable[str],
    protocol: Protocol = PROTOCOL,
    backbones: Sequence[str] | None = None,
) -> list[Job]:
    """Every arm on every corpus, on all of its draws; a probe on the first.

    `backbones` are by default those that each arm has, and the paper's for a probe.
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
