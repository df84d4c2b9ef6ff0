r"""Train a preset's candidates on folds of the data, and weigh them by out-of-fold scores.

Every fold is the validation part of its own runs, so all rows train and all rows judge:

    fold k:  train on the rows outside of it, stop and score on the rows of it
    law of a task:  sum_c w_c (1/K) sum_k law of candidate c trained for fold k

Candidates race: all of them run on the first folds, and those that are promising for some task on
the others. A label is predicted by the runs that did not train on it; these out-of-fold log
scores give the weights by task (`stacking`) and the validation score that a user reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.special import logsumexp

from scrollmt._fitting.batches import Batch, Factory, Report, start_batch, together
from scrollmt._fitting.selection import LAST, Selection, best_in_turn, by_architecture
from scrollmt._fitting.stacking import stacked
from scrollmt.beliefs import Choices
from scrollmt.couplings import Groups
from scrollmt.fit import Fits, Optimizer
from scrollmt.heads import AbstractHead
from scrollmt.model import Backbone, Model
from scrollmt.objective import Data, data_terms
from scrollmt.presets import Candidate, Preset
from scrollmt.splits import Folds

# On so many folds every candidate runs, and so many of them run on the others.
RACE_FOLDS = 2


@dataclass(frozen=True)
class Setting:
    """What all runs of a cross-fit share."""

    preset: Preset
    heads: Mapping[str, AbstractHead]
    belief: Choices
    joint: Groups
    data: Data
    folds: Folds
    backbone: Backbone | Factory | None
    optimizer: Optimizer | None

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The questions that are scored by themselves: coupled tasks are one of them."""
        return together(self.heads, self.joint)

    def batches(
        self, candidates: Sequence[Candidate], numbers: range, key: PRNGKeyArray
    ) -> Iterator[Batch]:
        """The candidates on the folds of these numbers, one batch an architecture."""
        part = Folds(self.folds.train[numbers], self.folds.valid[numbers])
        keys = [jax.random.fold_in(key, number) for number in numbers]
        schedule = self.preset.schedule_for(self.folds.train.shape[1])
        for alike in by_architecture(candidates, self.backbone):
            yield start_batch(
                self.preset,
                self.heads,
                self.belief,
                self.joint,
                self.data,
                None,
                keys,
                self.backbone,
                alike,
                schedule,
                self.optimizer,
                part,
            )


class _Run(NamedTuple):
    """One run: where its parameters are, what it was, and its log scores out of fold."""

    batch: Batch
    place: int
    fold: int
    start: int
    candidate: Candidate
    # By question, for each of its tasks given those before, at the validation rows of the fold;
    # zero where a label is missing.
    log_scores: list[Float[np.ndarray, "G m"]]

    @property
    def fits(self) -> Fits:
        assert self.batch.fits is not None
        return self.batch.fits

    @property
    def name(self) -> tuple[Candidate, int]:
        return self.candidate, self.start

    @property
    def total(self) -> float:
        return float(self.fits.best_score[self.place, LAST])

    @property
    def finite(self) -> bool:
        return all(np.isfinite(scores).all() for scores in self.log_scores)

    def best_step(self, criterion: int) -> int:
        return int(self.fits.best_step[self.place, criterion])

    def model(self, criterion: int) -> Model:
        model: Model = self.fits.model(self.place, criterion)
        return model


def cross_fit(setting: Setting, key: PRNGKeyArray, report: Report | None) -> Selection:
    """Train the candidates on all folds and weigh them; an interrupt keeps what is complete."""
    candidates, count = list(setting.preset.candidates), len(setting.folds)
    races = len(candidates) > setting.preset.finalists and count > RACE_FOLDS
    runs: list[_Run] = []
    interrupted = False
    heats = [range(min(RACE_FOLDS, count)), range(RACE_FOLDS, count)] if races else [range(count)]
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
            candidates = _finalists(setting, runs)
    except KeyboardInterrupt:
        if not runs:
            raise
        interrupted = True
    return _weighed(setting, runs, interrupted)


def _runs(setting: Setting, batch: Batch, first_fold: int) -> list[_Run]:
    """The runs of a trained batch: first by fold, then by start, then by candidate."""
    assert batch.fits is not None
    rows = batch.hyper["valid_rows"]
    scores = _log_scores(batch.fits.models, setting.data, rows, setting.groups)
    by_question = [np.asarray(one, np.float64) for one in scores]
    alike, starts = len(batch.candidates), setting.preset.starts
    return [
        _Run(
            batch,
            place,
            first_fold + place // (alike * starts),
            place // alike % starts,
            batch.candidates[place % alike],
            [one[place] for one in by_question],
        )
        for place in range(len(batch.fits))
    ]


@eqx.filter_jit
def _log_scores(
    models: Model, data: Data, rows: Array, groups: tuple[tuple[str, ...], ...]
) -> list[Float[Array, "B G m"]]:
    """Log scores of each question's tasks at the rows of each run, by its own parameters."""

    def one(model: Model, rows: Array) -> list[Array]:
        part = data.take(rows)
        seen = {name: (w > 0).astype(w.dtype) for name, w in part.weight.items()}
        part = Data(part.x, part.y, seen)
        out = []
        for criterion, group in enumerate(groups):
            kept = jax.tree.map(lambda a, j=criterion: a[j] if eqx.is_array(a) else a, model)
            terms = data_terms(kept, part)
            out.append(-jnp.stack([terms[name] for name in group]))
        return out

    scores: list[Array] = eqx.filter_vmap(one, in_axes=(eqx.if_array(0), 0))(models, rows)
    return scores


def _question_weight(setting: Setting, group: tuple[str, ...]) -> Float[np.ndarray, " N"]:
    """What a row counts for a question: the weight of any of its labels."""
    weights = [np.asarray(setting.data.weight[name], np.float64) for name in group]
    return np.asarray(np.max(weights, axis=0))


def _mean_nll(setting: Setting, run: _Run) -> list[float]:
    """The mean NLL of each question over the fold's labels, NaN without any; the score of one
    label is bounded."""
    rows, out = setting.folds.valid[run.fold], []
    bound = setting.preset.score_bound
    for group, scores in zip(setting.groups, run.log_scores, strict=True):
        weight = _question_weight(setting, group)[rows]
        nll = -scores if bound is None else np.minimum(-scores, bound)
        out.append(float(nll.sum(axis=0) @ weight / weight.sum()) if weight.any() else np.nan)
    return out


def _finalists(setting: Setting, runs: Sequence[_Run]) -> list[Candidate]:
    """The candidates that go on: in turn, the best of each question that is not chosen yet."""
    candidates = list(setting.preset.candidates)
    table = pd.DataFrame([_mean_nll(setting, run) for run in runs])
    # As an array: pandas would take a list for the names of columns.
    owner = np.array([candidates.index(run.candidate) for run in runs])
    means = table.groupby(owner).mean()
    chosen = best_in_turn(means, setting.preset.finalists)
    return [candidates[number] for number in chosen]


def _weighed(setting: Setting, runs: Sequence[_Run], interrupted: bool) -> Selection:
    """The weights of the complete candidates, by question, and the members that have any."""
    complete = _complete(setting, runs)
    selected: dict[str, list[tuple[_Run, int]]] = {}
    weights: dict[str, tuple[float, ...]] = {}
    out_of_fold: dict[str, np.ndarray] = {}
    for criterion, group in enumerate(setting.groups):
        scores = np.stack([_at_all_rows(setting, own, criterion) for own in complete.values()])
        # Of the first task, the first two, and so on.
        joint = np.cumsum(scores, axis=1)
        # An interrupt may leave rows that no run has judged.
        judged = ~np.isnan(joint[0, -1])
        weight = np.where(judged, _question_weight(setting, group), 0.0)
        shares = stacked(joint[:, -1], weight)
        with np.errstate(divide="ignore"):
            mixed = np.asarray(logsumexp(joint + np.log(shares)[:, None, None], axis=0))
        out_of_fold |= dict(zip(group, np.diff(mixed, axis=0, prepend=0.0), strict=True))
        used = [(s, own) for s, own in zip(shares, complete.values(), strict=True) if s > 0.0]
        for name in group:
            selected[name] = [(run, criterion) for _, own in used for run in own]
            weights[name] = tuple(float(s) / len(own) for s, own in used for _ in own)
    best = min((run for own in complete.values() for run in own), key=lambda run: run.total)
    return _selection(setting, runs, selected, weights, out_of_fold, best, interrupted)


def _complete(setting: Setting, runs: Sequence[_Run]) -> dict[tuple[Candidate, int], list[_Run]]:
    """Runs by candidate and start, of those with a finite score in all folds.

    An interrupt may leave none of them; those with the most folds are taken then.
    """
    owned: dict[tuple[Candidate, int], list[_Run]] = {}
    for run in runs:
        if run.finite:
            owned.setdefault(run.name, []).append(run)
    if not owned:
        raise ValueError(
            "no candidate has a finite validation score, not even at its starting values; "
            "look for extreme values in the inputs or targets"
        )
    most = max(map(len, owned.values()))
    return {name: own for name, own in owned.items() if len(own) == most}


def _at_all_rows(
    setting: Setting, runs: Sequence[_Run], criterion: int
) -> Float[np.ndarray, "G N"]:
    """Log scores of a candidate at all rows, each from the fold that did not train on it.

    NaN at rows of folds that an interrupt left out.
    """
    out = np.full((len(setting.groups[criterion]), len(setting.data)), np.nan)
    for run in runs:
        out[:, setting.folds.valid[run.fold]] = run.log_scores[criterion]
    return out


def _selection(
    setting: Setting,
    runs: Sequence[_Run],
    selected: Mapping[str, Sequence[tuple[_Run, int]]],
    weights: Mapping[str, tuple[float, ...]],
    out_of_fold: Mapping[str, np.ndarray],
    best: _Run,
    interrupted: bool,
) -> Selection:
    # Two questions whose run was best at the same step share one member.
    members: dict[tuple[int, int, int], Model] = {}
    folds: list[int] = []

    def member(run: _Run, criterion: int) -> int:
        place = id(run.batch), run.place, run.best_step(criterion)
        if place not in members:
            members[place] = run.model(criterion)
            folds.append(run.fold)
        return list(members).index(place)

    committee = {
        name: tuple(member(run, criterion) for run, criterion in pairs)
        for name, pairs in selected.items()
    }
    lead = member(best, LAST)
    history = pd.DataFrame({name: v[best.place] for name, v in best.fits.history.items()})
    every = best.batch.schedule.eval_every
    history.insert(0, "step", every * np.arange(1, len(history) + 1))
    models = list(members.values())
    return Selection(
        members=models,
        validated=models,
        lead=lead,
        committee=committee,
        table=_table(setting, runs, selected, weights, best),
        history=history.dropna(subset="validation").reset_index(drop=True),
        stop_reason=best.fits.stop_reason[best.place],
        interrupted=interrupted,
        weights=dict(weights),
        out_of_fold=dict(out_of_fold),
        fold_of=folds,
    )


def _table(
    setting: Setting,
    runs: Sequence[_Run],
    selected: Mapping[str, Sequence[tuple[_Run, int]]],
    weights: Mapping[str, tuple[float, ...]],
    best: _Run,
) -> pd.DataFrame:
    """One row a run: what it was, its scores and prior precisions, and which tasks use it."""
    lines = []
    for run in runs:
        nll = dict(zip(setting.groups, _mean_nll(setting, run), strict=True))
        used = [name for name, pairs in selected.items() if any(run is one for one, _ in pairs)]
        tasks = run.model(LAST).tasks
        lines.append(
            {
                "candidate": run.candidate.name,
                "learning_rate": run.candidate.learning_rate,
                "backbone_l2": run.candidate.backbone_l2,
                "start": run.start,
                "fold": run.fold,
                "validation_nll": run.total,
                **{f"{name}_nll": nll[group] for group in setting.groups for name in group},
                **{
                    f"{name}_precision": float(tasks[name].prior_precision)
                    for name in setting.heads
                },
                "best_step": run.best_step(LAST),
                "steps": int(run.fits.steps[run.place]),
                "stop_reason": run.fits.stop_reason[run.place],
                "batch_seconds": run.batch.seconds,
                "chosen": run is best,
                "speaks_for": ", ".join(used),
            }
        )
    return pd.DataFrame(lines)
