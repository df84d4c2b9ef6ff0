"""The simulator's own law on the paper's test windows: how hard a draw of a corpus is.

A corpus that is drawn anew is easier or harder than another draw by more than the arms differ.
The true law's score on the same windows tells by how much, with nothing trained.
"""

from __future__ import annotations

import json

import numpy as np

from scrollmt import scores
from scrollmt.corpora import lorenz63
from scrollmt.laws import GaussianLaw
from scrollmt.paper.arena.jobs import Job
from scrollmt.paper.arena.probes import ORACLE, Rows, probe
from scrollmt.paper.arena.problems import problem
from scrollmt.paper.arena.scoring import COLUMNS
from scrollmt.paper.protocol import Protocol

NAME = ORACLE
# The bias of a logarithm of simulated shares is removed, so that few members are enough.
MEMBERS = 400


@probe(NAME)
def oracle(job: Job, protocol: Protocol) -> Rows:
    """The columns of the paper's tables for the true law, by seed."""
    of = problem(job.corpus, protocol)
    if of.corpus is None:
        raise ValueError(f"corpus {job.corpus!r} is no simulation: its law is not known")
    options = {"members": MEMBERS} if isinstance(of.corpus, lorenz63.Lorenz63) else {}
    truth = of.corpus.oracle(of.X, of.Y, **options)
    law = GaussianLaw(truth.mean, np.sqrt(truth.var))
    rows: Rows = {}
    for seed in job.seeds:
        test = of.split(seed).test
        true_law = GaussianLaw(law.mean[test], law.sd[test])
        said = np.argmax(truth.probs["event"][test], axis=1) == of.Y["event"][test]
        row: dict[str, float | str] = {"setting": json.dumps({})}
        row |= {column: float(truth.nll[name][test].mean()) for name, column in COLUMNS.items()}
        row["reg_calerr"] = scores.coverage_error(true_law, of.Y["state"][test])
        row["evt_acc_pct"] = 100.0 * float(np.mean(said))
        rows[seed] = [row]
    return rows
