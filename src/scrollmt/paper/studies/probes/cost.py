"""What an arm costs: the time of its four backbones, each trained with nothing beside it.

The job's backbone is the arm that is timed. Every fit runs twice and the second one counts, so
that a time is training and not compilation; what the first one took is recorded beside it.
"""

from __future__ import annotations

import json
import time

from scrollmt._fitting.memory import cores
from scrollmt.backbone import PAPER_BACKBONES
from scrollmt.paper.arena.jobs import Job, execute, make_job
from scrollmt.paper.arena.probes import COST, Rows, probe
from scrollmt.paper.protocol import Protocol

NAME = COST
SEEDS = 2


@probe(NAME, alone=True)
def seconds_by_backbone(job: Job, protocol: Protocol) -> Rows:
    """Seconds per seed on each backbone, with all settings and members of the arm."""
    rows: Rows = {seed: [] for seed in job.seeds}
    for backbone in PAPER_BACKBONES:
        timed = make_job(job.corpus, job.backbone, backbone, protocol, job.seeds)
        began = time.perf_counter()
        execute(timed, protocol)
        first = time.perf_counter() - began
        again = execute(timed, protocol).seconds
        for mine in rows.values():
            mine.append(
                {
                    "setting": json.dumps({"backbone": backbone}),
                    "fit_seconds": again / len(job.seeds),
                    "first_seconds": first / len(job.seeds),
                    "cores": cores(),
                }
            )
    return rows
