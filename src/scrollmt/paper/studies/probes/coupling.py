"""The joint observation model as a job: `joint.run` under a protocol, a row per correlation."""

from __future__ import annotations

import json

from scrollmt.paper.arena.jobs import Job
from scrollmt.paper.arena.probes import Rows, probe
from scrollmt.paper.protocol import PROTOCOL, Protocol
from scrollmt.paper.studies.probes import joint

NAME = "probe-joint"
# Jobs name a corpus; this probe draws its own data.
CORPUS, BACKBONE = "correlated", "tanh"
CORRELATIONS = (0.0, 0.8)


@probe(NAME)
def joint_observation(job: Job, protocol: Protocol) -> Rows:
    """One row per seed and noise correlation."""
    # Fewer windows than the protocol's make a test, in the same proportion.
    share = protocol.corpus_windows / PROTOCOL.corpus_windows
    train, valid, test = (max(20, round(share * n)) for n in (joint.TRAIN, joint.VALID, joint.TEST))
    found = joint.run(job.seeds, CORRELATIONS, protocol=protocol, windows=(train, valid, test))
    rows: Rows = {seed: [] for seed in job.seeds}
    for row in found:
        rho, seed = row.pop("rho"), int(row.pop("seed"))
        rows[seed].append({"setting": json.dumps({"rho": rho}), **row})
    return rows
