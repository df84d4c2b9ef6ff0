"""scrollmt as a user gets it: the default preset on the paper's splits."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from scrollmt.arms import questions
from scrollmt.forecaster import Forecaster
from scrollmt.laws import RealLaw
from scrollmt.paper.probes.registry import Rows, probe
from scrollmt.paper.problems import problem, true_var
from scrollmt.paper.protocol import Protocol
from scrollmt.paper.scoring import spread_columns, test_columns, validation_columns
from scrollmt.presets import DEFAULT

if TYPE_CHECKING:
    from scrollmt.paper.jobs import Job

NAME = "probe-default"


@probe(NAME, settings={"preset": asdict(DEFAULT)})
def default_preset(job: Job, protocol: Protocol) -> Rows:
    """One fit a seed; windows and splits are those of every other arm."""
    of = problem(job.corpus, protocol)
    truth = true_var(of, protocol)
    rows: Rows = {}
    for seed in job.seeds:
        split = of.split(seed)
        factor = of.target_factor(split)
        train, valid, test = (of.part(p, factor) for p in (split.train, split.valid, split.test))
        began = time.perf_counter()
        model = Forecaster(questions(), validation=valid, seed=seed).fit(*train)
        seconds = time.perf_counter() - began
        spoken, judged = model.predict(test[0]), model.predict(valid[0])
        row = {"setting": json.dumps({}), "seconds": seconds, "target_factor": factor}
        row |= validation_columns(judged, valid[1]) | test_columns(spoken, test[1])
        state = spoken["state"]
        assert isinstance(state, RealLaw)
        row |= spread_columns(state, test[1]["state"], None if truth is None else truth[split.test])
        rows[seed] = [row]
    return rows
