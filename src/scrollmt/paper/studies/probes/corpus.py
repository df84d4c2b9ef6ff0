"""Facts of a corpus, and of its re-simulation, that need no training."""

from __future__ import annotations

import inspect
import json
from typing import Any

import numpy as np

from scrollmt.corpora import lorenz63
from scrollmt.paper.arena.jobs import Job
from scrollmt.paper.arena.probes import CORPUS, Rows, probe
from scrollmt.paper.arena.problems import STATE, Problem, problem, true_var
from scrollmt.paper.protocol import Protocol

NAME = CORPUS
# Facts of a corpus have no backbone, but every job names one.
BACKBONE = "none"
# How many attractor states the averaged figure and its percentiles are taken over.
STATES = 2000
BAND_EDGES = (35.0, 75.0, 150.0)


@probe(NAME)
def facts(job: Job, protocol: Protocol) -> Rows:
    """One row per seed; only what depends on the split differs between seeds."""
    of = problem(job.corpus, protocol)
    truth = true_var(of, protocol)
    common = _of_windows(of) | ({} if of.corpus is None else _of_simulator(of, protocol))
    rows: Rows = {}
    for seed in job.seeds:
        split = of.split(seed)
        row = {"setting": json.dumps({}), **common}
        row["train_target_var"] = float(np.var(of.Y[STATE][split.train].astype(np.float64)))
        if truth is not None:
            test = truth[split.test]
            row["true_var_range"] = float(test.max() / test.min())
        rows[seed] = [row]
    return rows


def _of_windows(of: Problem) -> dict[str, Any]:
    """Counts, variances and shares over all windows."""
    y, event, regime = (of.Y[name] for name in (STATE, "event", "regime"))
    rate = 100.0 * float(np.mean(event == 1))
    bands = np.digitize(np.round(np.expm1(y.astype(np.float64)), 6), BAND_EDGES)
    return {
        "windows": len(of.X),
        "inputs": of.X.shape[1],
        "input_var": float(np.var(of.X[:, 0].astype(np.float64))),
        "target_var": float(np.var(y.astype(np.float64))),
        "majority_pct": max(rate, 100.0 - rate),
        "sign_rule_pct": 100.0 * float(np.mean((of.X[:, 0] > 0) == (event == 1))),
        "event_is_sign_of_state": float(np.mean((y > 0) == (event == 1))),
        "regime_is_band_of_state": float(np.mean(bands == regime)),
        **{f"regime_share_{r}": float(np.mean(regime == r)) for r in range(4)},
    }


def _of_simulator(of: Problem, protocol: Protocol) -> dict[str, Any]:
    """V* over attractor states: its mean, and percentiles of its root."""
    corpus = of.corpus
    assert corpus is not None
    states = corpus.X[:STATES]
    row: dict[str, Any] = {}
    if isinstance(corpus, lorenz63.Lorenz63):
        var = corpus.true_var(states, members=protocol.truth_members)
        chains = inspect.signature(lorenz63.draw).parameters["chains"].default
        row |= {"chains": chains, "windows_per_chain": len(corpus) / chains}
    else:
        var = corpus.true_var(states)
    low, high = np.percentile(np.sqrt(var), [10, 90])
    return row | {
        "spread_mean_var": float(var.mean()),
        "spread_sd_p10": float(low),
        "spread_sd_p90": float(high),
    }
