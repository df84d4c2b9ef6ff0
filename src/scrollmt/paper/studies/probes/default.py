"""scrollmt as a user gets it: the default preset on the splits of any corpus."""

from __future__ import annotations

import json
import time
from dataclasses import asdict

from scrollmt.forecaster import Forecaster
from scrollmt.paper.arena.jobs import Job
from scrollmt.paper.arena.probes import DEFAULT, Rows, probe
from scrollmt.paper.arena.problems import problem, true_var
from scrollmt.paper.protocol import Protocol
from scrollmt.presets import DEFAULT as PRESET

NAME = DEFAULT


@probe(NAME, settings={"preset": asdict(PRESET)})
def default_preset(job: Job, protocol: Protocol) -> Rows:
    """One fit per seed; windows and splits are those of every other arm."""
    of = problem(job.corpus, protocol)
    truth = true_var(of, protocol)
    rows: Rows = {}
    for seed in job.seeds:
        split = of.split(seed)
        factor = of.target_factor(split)
        train, valid, test = (of.part(p, factor) for p in (split.train, split.valid, split.test))
        began = time.perf_counter()
        model = Forecaster(of.source.tasks(), validation=valid, seed=seed).fit(*train)
        seconds = time.perf_counter() - began
        test_laws, valid_laws = model.predict(test[0]), model.predict(valid[0])
        row = {"setting": json.dumps({}), "seconds": seconds}
        if of.source.scaled is not None:
            row["target_factor"] = factor
        V = None if truth is None else truth[split.test]
        scoring = of.source.scoring
        row |= scoring.valid(valid_laws, valid[1]) | scoring.test(test_laws, test[1], V)
        rows[seed] = [row]
    return rows
