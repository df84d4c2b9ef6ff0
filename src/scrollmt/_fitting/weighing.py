r"""Weigh the runs of a cross-fit by their out-of-fold log scores, for each task.

A label is predicted by the runs that did not train on it. Weights are those of candidates, and of
the answers to a task (`_data.answers`), by `stacking`; the folds of a candidate share its weight:

    law of a task:  sum_c sum_a w_ca (1/K) sum_k  answer a of candidate c trained for fold k
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.special import logsumexp

from scrollmt._data.answers import Answer
from scrollmt._fitting import members
from scrollmt._fitting.fold_runs import Run, Setting, mean_nll, question_weight
from scrollmt._fitting.selection import LAST, Selection
from scrollmt._fitting.stacking import stacked
from scrollmt.laws import Law
from scrollmt.model import Model
from scrollmt.presets import Candidate


class _Part(NamedTuple):
    """What a task takes from a run: the parameters that a criterion kept, and an answer."""

    run: Run
    criterion: int
    answer: Answer


def weighed(setting: Setting, runs: Sequence[Run], interrupted: bool) -> Selection:
    """The weights of the complete candidates, by question, and the members that have any."""
    complete = list(_complete(setting, runs).values())
    selected: dict[str, list[_Part]] = {}
    weights: dict[str, tuple[float, ...]] = {}
    out_of_fold: dict[str, np.ndarray] = {}
    for group in setting.groups:
        if group[0] not in setting.plan.answers:
            continue
        # Tasks that are coupled have one answer each.
        options = [(own, k) for k in range(len(setting.plan.answers[group[0]])) for own in complete]
        scores = np.stack([_answered(setting, own, group, k) for own, k in options])
        # Of the first task, the first two, and so on.
        joint = np.cumsum(scores, axis=1)
        # An interrupt may leave rows that no run has judged.
        judged = ~np.isnan(joint[0, -1])
        weight = np.where(judged, question_weight(setting, group), 0.0)
        shares = stacked(joint[:, -1], weight)
        with np.errstate(divide="ignore"):
            mixed = np.asarray(logsumexp(joint + np.log(shares)[:, None, None], axis=0))
        out_of_fold |= dict(zip(group, np.diff(mixed, axis=0, prepend=0.0), strict=True))
        used = [(s, *option) for s, option in zip(shares, options, strict=True) if s > 0.0]
        for name in group:
            answers = setting.plan.answers[name]
            selected[name] = [
                _Part(run, setting.criterion(answers[k].head), answers[k])
                for _, own, k in used
                for run in own
            ]
            weights[name] = tuple(float(s) / len(own) for s, own, _ in used for _ in own)
    best = min((run for own in complete for run in own), key=lambda run: run.total)
    return _selection(setting, runs, selected, weights, out_of_fold, best, interrupted)


def _answered(
    setting: Setting, runs: Sequence[Run], group: tuple[str, ...], number: int
) -> Float[np.ndarray, "G N"]:
    """Log scores of one answer to a question at all rows, each from the fold that left it out."""
    name, answer = group[0], setting.plan.answers[group[0]][number]
    if answer.cut is None:
        scores = _at_all_rows(setting, runs, setting.criterion(answer.head))
        scale = setting.scales.scale
        # Variants of a head may be fitted in other units; the score is in those of the task's own.
        return scores + math.log(scale.get(name, 1.0)) - math.log(scale.get(answer.head, 1.0))
    out = np.full((1, len(setting.data)), np.nan)
    labels, seen = np.asarray(setting.data.y[name]), np.asarray(setting.data.weight[name]) > 0
    for run in runs:
        rows = setting.folds.valid[run.fold]
        law = answer.law(_law_at(setting, run, answer.head, rows))
        out[0, rows] = np.where(seen[rows], law.log_prob(labels[rows]), 0.0)
    return out


def _law_at(setting: Setting, run: Run, head: str, rows: np.ndarray) -> Law:
    """The law of a head at some rows, by the parameters that its own criterion kept."""
    model = run.model(setting.criterion(head))
    line = members.project(model, np.asarray(setting.data.x)[rows])[head]
    return members.law(model.tasks[head].head, line, head, setting.scales)[: len(rows)]


def _complete(setting: Setting, runs: Sequence[Run]) -> dict[tuple[Candidate, int], list[Run]]:
    """Runs by candidate and start, of those with a finite score in all folds.

    An interrupt may leave none of them; those with the most folds are taken then.
    """
    owned: dict[tuple[Candidate, int], list[Run]] = {}
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


def _at_all_rows(setting: Setting, runs: Sequence[Run], criterion: int) -> Float[np.ndarray, "G N"]:
    """Log scores of a candidate at all rows, each from the fold that did not train on it.

    NaN at rows of folds that an interrupt left out.
    """
    out = np.full((len(setting.groups[criterion]), len(setting.data)), np.nan)
    for run in runs:
        out[:, setting.folds.valid[run.fold]] = run.log_scores[criterion]
    return out


def _selection(
    setting: Setting,
    runs: Sequence[Run],
    selected: Mapping[str, Sequence[_Part]],
    weights: Mapping[str, tuple[float, ...]],
    out_of_fold: Mapping[str, np.ndarray],
    best: Run,
    interrupted: bool,
) -> Selection:
    # Two questions whose run was best at the same step share one member.
    kept: dict[tuple[int, int, int], Model] = {}
    folds: list[int] = []

    def member(run: Run, criterion: int) -> int:
        place = id(run.batch), run.place, run.best_step(criterion)
        if place not in kept:
            kept[place] = run.model(criterion)
            folds.append(run.fold)
        return list(kept).index(place)

    committee = {
        name: tuple(member(part.run, part.criterion) for part in parts)
        for name, parts in selected.items()
    }
    lead = member(best, LAST)
    history = pd.DataFrame({name: v[best.place] for name, v in best.fits.history.items()})
    every = best.batch.schedule.eval_every
    history.insert(0, "step", every * np.arange(1, len(history) + 1))
    models = list(kept.values())
    return Selection(
        members=models,
        validated=models,
        lead=lead,
        committee=committee,
        table=_table(setting, runs, selected, best),
        history=history.dropna(subset="validation").reset_index(drop=True),
        stop_reason=best.fits.stop_reason[best.place],
        interrupted=interrupted,
        weights=dict(weights),
        answers={name: tuple(part.answer for part in parts) for name, parts in selected.items()},
        out_of_fold=dict(out_of_fold),
        fold_of=folds,
    )


def _table(
    setting: Setting,
    runs: Sequence[Run],
    selected: Mapping[str, Sequence[_Part]],
    best: Run,
) -> pd.DataFrame:
    """One row a run: what it was, its scores and prior precisions, and which tasks use it."""
    lines = []
    for run in runs:
        nll = dict(zip(setting.groups, mean_nll(setting, run), strict=True))
        used = [name for name, own in selected.items() if any(run is part.run for part in own)]
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
