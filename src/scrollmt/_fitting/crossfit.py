r"""Train a preset's candidates on folds of the data, and weigh them by out-of-fold scores.

Every fold is the validation part of its own runs, so all rows train and all rows judge:

    fold k:  train on the rows outside of it, stop and score on the rows of it

Candidates race: all of them run on the first folds, and those that are promising for some task on
the others. A label is predicted by the runs that did not train on it; these out-of-fold log
scores give the weights by task (`weighing`) and the validation score that a user reads.
"""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, PRNGKeyArray

from scrollmt._fitting.batches import Batch, Report
from scrollmt._fitting.fold_runs import Run, Setting, mean_nll
from scrollmt._fitting.selection import Selection, best_in_turn
from scrollmt._fitting.weighing import weighed
from scrollmt._numerics.compiling import runs_once
from scrollmt.model import Model
from scrollmt.objective import Data, data_terms
from scrollmt.presets import Candidate

# On so many folds every candidate runs; the finalists run on the others.
RACE_FOLDS = 1


def cross_fit(setting: Setting, key: PRNGKeyArray, report: Report | None) -> Selection:
    """Train the candidates on all folds and weigh them; an interrupt keeps what is complete."""
    candidates, count = list(setting.preset.candidates), len(setting.folds)
    races = len(candidates) > setting.preset.finalists and count > RACE_FOLDS
    runs: list[Run] = []
    interrupted = False
    heats = [range(count)]
    if races:
        # As many runs in each heat as in the first, so that one program serves them all.
        folds = max(1, len(candidates) * RACE_FOLDS // setting.preset.finalists)
        rest = range(RACE_FOLDS, count)
        heats = [range(RACE_FOLDS), *(rest[at : at + folds] for at in range(0, len(rest), folds))]
    try:
        for heat in heats:
            for batch in setting.batches(candidates, heat, key):
                trained = batch.trained(report)
                runs += _runs(setting, trained, heat.start)
                interrupted = interrupted or trained.interrupted
                if interrupted:
                    break
            if interrupted:
                break
            if races and heat is heats[0]:
                candidates = _finalists(setting, runs)
    except KeyboardInterrupt:
        if not runs:
            raise
        interrupted = True
    return weighed(setting, runs, interrupted)


def _runs(setting: Setting, batch: Batch, first_fold: int) -> list[Run]:
    """The runs of a trained batch: first by fold, then by start, then by candidate."""
    assert batch.fits is not None
    rows = batch.hyper["valid_rows"]
    scores = jax.device_get(_log_scores(batch.fits.models, setting.data, rows))
    by_question = [
        np.stack([scores[name][:, criterion] for name in group], axis=1).astype(np.float64)
        for criterion, group in enumerate(setting.groups)
    ]
    alike, starts = len(batch.candidates), setting.preset.starts
    return [
        Run(
            batch,
            place,
            first_fold + place // (alike * starts),
            place // alike % starts,
            batch.candidates[place % alike],
            [one[place] for one in by_question],
        )
        for place in range(len(batch.fits))
    ]


@runs_once
def _log_scores(models: Model, data: Data, rows: Array) -> dict[str, Float[Array, "B J m"]]:
    """Log scores of each task at the rows of each run, by the parameters of each criterion."""

    def one(model: Model, rows: Array) -> dict[str, Array]:
        part = data.take(rows)
        seen = {name: (w > 0).astype(w.dtype) for name, w in part.weight.items()}
        part = Data(part.x, part.y, seen)
        terms = eqx.filter_vmap(data_terms, in_axes=(eqx.if_array(0), None))(model, part)
        return {name: -values for name, values in terms.items()}

    scores: dict[str, Array] = eqx.filter_vmap(one, in_axes=(eqx.if_array(0), 0))(models, rows)
    return scores


def _finalists(setting: Setting, runs: Sequence[Run]) -> list[Candidate]:
    """The candidates that go on: in turn, the best of each question that is not chosen yet."""
    candidates = list(setting.preset.candidates)
    table = pd.DataFrame([mean_nll(setting, run) for run in runs])
    # As an array: pandas would take a list for the names of columns.
    owner = np.array([candidates.index(run.candidate) for run in runs])
    means = table.groupby(owner).mean()
    chosen = best_in_turn(means, setting.preset.finalists)
    return [candidates[number] for number in chosen]
