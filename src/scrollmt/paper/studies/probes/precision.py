r"""Two tasks that want different prior precisions: a shared one, one each, or fitted ones.

The paper does not describe the data of this probe (`app:future`, per task), so these are our own.
Features are given and stay as they are, $\psi_n \sim \mathcal{N}(0, I_H)$ with H = 50, so that
precisions are all that runs differ in. Both tasks are linear in them,

$$y_n \sim \mathcal{N}(w_1^\top\psi_n, 1), \qquad
  r_n = \#\{j : \tau_j < w_2^\top\psi_n + 1.005\,\epsilon_n\},\ r_n \in \{0, \dots, 3\},$$

with cutpoints $\tau$ at the quartiles of $w_2^\top\psi$. Directions of $w_k$ are drawn anew for
every seed; their lengths are those of weights of precision 16 (sd 1/4) and 1. These are the sizes
that the paper's fitted precisions speak of, so that a fit that works must tell the two apart by
about as much as the paper's does.

Under a diagonal belief, 49 runs a seed freeze the two precisions at all pairs of seven values,
and one run fits them.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from scrollmt.backbone import PAPER_WIDTH
from scrollmt.heads import PROBIT_BASE_SCALE, Gaussian, Ordinal
from scrollmt.model import Model, build
from scrollmt.objective import Data, mean_nll
from scrollmt.paper.arena.jobs import Job
from scrollmt.paper.arena.probes import Rows, probe
from scrollmt.paper.arena.scoring import COLUMNS
from scrollmt.paper.arena.training import fit_runs, stacked, start_heads
from scrollmt.paper.arms.base import REGIME, STATE, map_runs
from scrollmt.paper.arms.composition import FROZEN_PRECISIONS, without_precisions
from scrollmt.paper.protocol import PROTOCOL, Protocol
from scrollmt.paper.studies.given import Given

NAME = "probe-precision"
# Jobs name a corpus and a backbone; this probe has data of its own and features as given.
CORPUS, BACKBONE = "pair", "none"
TASKS = (STATE, REGIME)
TRUE_PRECISION = {STATE: 16.0, REGIME: 1.0}
SIGMA_OBS = 1.0
CLASSES = 4
TRAIN, VALID, TEST = 2000, 1000, 2000
PAIRS = tuple(itertools.product(FROZEN_PRECISIONS, FROZEN_PRECISIONS))


@probe(NAME)
def precisions(job: Job, protocol: Protocol) -> Rows:
    """One row per seed and pair, and one whose setting is `{"fitted": 1}`."""
    # Fewer windows than the protocol's make a test, in the same proportion.
    share = protocol.corpus_windows / PROTOCOL.corpus_windows
    sizes = [max(CLASSES, round(share * n)) for n in (TRAIN, VALID, TEST)]
    parts = [draw(seed, sizes) for seed in job.seeds]
    starts = [
        _start(seed, train, protocol) for seed, (train, *_) in zip(job.seeds, parts, strict=True)
    ]
    rows: Rows = {seed: [] for seed in job.seeds}
    frozen = [_frozen(model, pair) for model in starts for pair in PAIRS]
    settings = [{f"alpha_{n}": a for n, a in zip(TASKS, p, strict=True)} for p in PAIRS]
    for models, repeat, names in (
        (frozen, len(PAIRS), settings),
        (starts, 1, [{"fitted": 1}]),
    ):
        found = _fit(models, parts, repeat, protocol)
        for run, row in enumerate(found):
            setting = json.dumps(names[run % repeat], sort_keys=True)
            rows[job.seeds[run // repeat]].append({"setting": setting, **row})
    return rows


def draw(seed: int, sizes: Sequence[int]) -> tuple[Data, ...]:
    """Training, validation and test windows of one seed's truth."""
    rng = np.random.default_rng([seed, 0])
    psi = rng.normal(size=(sum(sizes), PAPER_WIDTH))
    lines = {}
    for name in TASKS:
        direction = rng.normal(size=PAPER_WIDTH)
        length = np.sqrt(PAPER_WIDTH / TRUE_PRECISION[name])
        lines[name] = psi @ (length * direction / np.linalg.norm(direction))
    noise = rng.normal(size=(2, len(psi)))
    cuts = np.quantile(lines[REGIME], np.arange(1, CLASSES) / CLASSES)
    labels = {
        STATE: lines[STATE] + SIGMA_OBS * noise[0],
        REGIME: np.searchsorted(cuts, lines[REGIME] + PROBIT_BASE_SCALE * noise[1]),
    }
    ends = np.cumsum(sizes)
    real = jnp.result_type(float)
    return tuple(
        Data(
            jnp.asarray(psi[a:b], real),
            {
                STATE: jnp.asarray(labels[STATE][a:b], real),
                REGIME: jnp.asarray(labels[REGIME][a:b], jnp.int32),
            },
            {name: jnp.ones(b - a, real) for name in TASKS},
        )
        for a, b in zip([0, *ends[:-1]], ends, strict=True)
    )


def _start(seed: int, train: Data, protocol: Protocol) -> Model:
    return build(
        Given(),
        start_heads({STATE: Gaussian(), REGIME: Ordinal(CLASSES)}, train, protocol),
        features=PAPER_WIDTH,
        belief="diag",
        key=jax.random.key(seed),
        cov_floor=protocol.cov_floor,
        start=protocol.start(),
    )


def _frozen(model: Model, pair: Sequence[float]) -> Model:
    logs = [jnp.log(jnp.asarray(alpha, float)) for alpha in pair]
    frozen: Model = eqx.tree_at(
        lambda m: [m.tasks[n].log_prior_precision for n in TASKS], model, logs
    )
    return frozen


def _fit(
    models: Sequence[Model], parts: Sequence[tuple[Data, ...]], repeat: int, protocol: Protocol
) -> list[dict[str, Any]]:
    """Rows of all runs; `repeat` of them in a row share a seed's windows."""
    train, valid, test = (stacked(data, repeat) for data in zip(*parts, strict=True))
    trainable = without_precisions if repeat > 1 else None
    fits = fit_runs(models, train, valid, protocol, trainable=trainable)
    measured = jax.tree.map(np.asarray, map_runs(_measure, fits.models, valid, test))
    return [
        {name: float(values[run]) for name, values in measured.items()}
        | {"steps": int(fits.steps[run]), "stop_reason": fits.stop_reason[run]}
        for run in range(len(models))
    ]


def _measure(model: Model, valid: Data, test: Data) -> dict[str, Array]:
    out: dict[str, Array] = {}
    for name in TASKS:
        out[f"valid_{COLUMNS[name]}"] = mean_nll(model, valid)[name]
        out[COLUMNS[name]] = mean_nll(model, test)[name]
        out[f"alpha_{name}"] = model.tasks[name].prior_precision
    return out | {"valid_nats": sum(mean_nll(model, valid).values(), start=jnp.zeros(()))}
