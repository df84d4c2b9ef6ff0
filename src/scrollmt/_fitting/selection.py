"""Train a preset's candidates and let the validation score choose.

Candidates of one architecture differ only in numbers and run as one batch. Without a
committee the run with the lowest validation NLL, added over tasks, answers for all of them.
With one, each task stops a run at the step that was best for itself, the best few runs on its
own validation NLL are selected for it, and their laws are mixed: what a value needs in capacity
is often too much for an event, and a label of one task must not stop another. Tasks that are
coupled by their noise are one question here, with the joint NLL as its score.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, PRNGKeyArray
from scipy.special import logsumexp

from scrollmt._data.answers import Answer
from scrollmt._fitting.batches import Batch, Factory, Report, start_batch
from scrollmt._numerics.compiling import runs_once
from scrollmt.beliefs import Choices
from scrollmt.couplings import Groups
from scrollmt.fit import Fits, Optimizer, Stream
from scrollmt.heads import AbstractHead
from scrollmt.model import Backbone, Model
from scrollmt.objective import Data, TaskScores, mean_nll
from scrollmt.presets import Candidate, Preset
from scrollmt.routing import FREE, Routing

# The criterion that scores all tasks together stands last.
LAST = -1


@dataclass(frozen=True)
class Selection:
    """The chosen models, which of them are mixed for a task, and how every run did.

    `committee` names, by task, the members whose laws are mixed; `lead` is the member with
    the lowest validation NLL added over tasks, which is used for all tasks under a preset
    without committees. `validated` are the members as they were when validation chose them: the
    same, unless the members have been trained again since.
    """

    members: list[Model]
    validated: list[Model]
    lead: int
    committee: dict[str, tuple[int, ...]]
    table: pd.DataFrame
    history: pd.DataFrame
    stop_reason: str
    interrupted: bool
    # How the members of a task are weighed; None is equally.
    weights: dict[str, tuple[float, ...]] | None = None
    # What is read off the members of a task; None is its own head.
    answers: dict[str, tuple[Answer, ...]] | None = None
    # The log score of the mixed law at every row, from runs that did not train on it, by question.
    out_of_fold: dict[str, np.ndarray] | None = None
    # The fold that each member did not train on; None without folds.
    fold_of: list[int] | None = None


def by_architecture(
    candidates: Sequence[Candidate], backbone: Backbone | Factory | None
) -> list[list[Candidate]]:
    """Candidates that differ only in numbers; with a backbone of the user's own, all of them."""
    if backbone is not None:
        return [list(candidates)]
    grouped: dict[object, list[Candidate]] = {}
    for candidate in candidates:
        grouped.setdefault(candidate.architecture, []).append(candidate)
    return list(grouped.values())


def best_in_turn(means: pd.DataFrame, count: int) -> list[int]:
    """Numbers of the best rows: in turn, the best of each column that is not chosen yet.

    `means` has one row a candidate and one column a question, lower is better; NaN never wins.
    """
    ranked = [means[question].sort_values().dropna().index for question in means]
    chosen: list[int] = []
    for position in range(len(means)):
        for order in ranked:
            if position < len(order) and order[position] not in chosen:
                chosen.append(int(order[position]))
    return sorted(chosen[:count])


def train(
    preset: Preset,
    heads: Mapping[str, AbstractHead],
    *,
    belief: Choices,
    train: Data,
    valid: Data,
    keys: Sequence[PRNGKeyArray],
    joint: Groups = (),
    backbone: Backbone | Factory | None = None,
    optimizer: Optimizer | None = None,
    everything: Data | None = None,
    report: Report | None = None,
    routing: Routing = FREE,
) -> list[Selection]:
    """For every key, fit all candidates and let their validation NLL choose among them.

    Keys differ in starting values and, where the data has a leading axis of that length,
    in their windows. Everything of one architecture runs as one batch. A given `backbone`
    takes the place of the candidates' architectures; their numbers are still tried. A given
    `optimizer` takes the place of Adam, as in `fit`. The chosen
    runs are trained again on `everything`, where it is given, for as many steps as were best. An
    interrupt keeps the best of what has been trained so far.
    """
    schedule = preset.schedule_for(len(train))
    batches: list[Batch] = []
    interrupted = False
    try:
        for candidates in by_architecture(preset.candidates, backbone):
            batch = start_batch(
                preset,
                heads,
                belief,
                joint,
                train,
                valid,
                jnp.stack(keys),
                backbone,
                candidates,
                schedule,
                optimizer,
                routing=routing,
            )
            batches.append(batch.trained(report))
            interrupted = batches[-1].interrupted
            if interrupted:
                break
    except KeyboardInterrupt:
        if not batches:
            raise
        interrupted = True
    chosen = [
        choose(batches, owner, preset.committee, schedule.eval_every, interrupted)
        for owner in range(len(keys))
    ]
    if everything is None or interrupted:
        return [one.selection for one in chosen]
    return refitted(batches, chosen, everything, report)


class _Result(NamedTuple):
    """One run: what it was, and its validation NLL by task and added over tasks."""

    batch: Batch
    run: int
    nll: dict[str, float]
    total: float

    @property
    def fits(self) -> Fits:
        assert self.batch.fits is not None
        return self.batch.fits

    @property
    def candidate(self) -> Candidate:
        return self.batch.candidates[self.run % len(self.batch.candidates)]

    @property
    def start(self) -> int:
        each = len(self.fits) // self.batch.owners
        return self.run % each // len(self.batch.candidates)

    def best_step(self, criterion: int) -> int:
        return int(np.atleast_1d(self.fits.best_step[self.run])[criterion])

    def model(self, criterion: int) -> Model:
        """The parameters that a criterion has kept; there may be but one."""
        place = (self.run,) if self.fits.best_step.ndim == 1 else (self.run, criterion)
        model: Model = self.fits.model(*place)
        return model


def _results(batch: Batch, owner: int) -> list[_Result]:
    """The runs of one key."""
    fits, score, valid = batch.fits, batch.score, batch.valid
    assert fits is not None
    assert valid is not None
    each = len(fits) // batch.owners
    if isinstance(score, TaskScores):
        kept = {name: j for j, group in enumerate(score.groups) for name in group}
        by_task = _task_nll(fits.models, valid, score.bound)
        by_task = {name: values[:, kept[name]] for name, values in by_task.items()}
        total = fits.best_score[:, -1]
    else:
        by_task, total = _task_nll(fits.models, valid, None), fits.best_score
    own = {name: np.asarray(values) for name, values in by_task.items()}
    return [
        _Result(batch, run, {n: float(v[run]) for n, v in own.items()}, float(total[run]))
        for run in range(owner * each, (owner + 1) * each)
    ]


@runs_once
def _task_nll(models: Model, valid: Data, bound: float | None) -> dict[str, Array]:
    """Mean NLL by task of every run, or of every run and criterion."""

    def one(model: Model, data: Data) -> dict[str, Array]:
        return mean_nll(model, data, bound)

    if next(iter(models.tasks.values())).log_prior_precision.ndim == 2:
        one = eqx.filter_vmap(one, in_axes=(eqx.if_array(0), None))
    axis = None if valid.x.ndim == 2 else 0
    means: dict[str, Array] = eqx.filter_vmap(one, in_axes=(eqx.if_array(0), axis))(models, valid)
    return means


class Chosen(NamedTuple):
    """A selection, and for each of its members the run and the criterion that it came from."""

    selection: Selection
    origin: list[tuple[_Result, int]]


def choose(
    batches: Sequence[Batch],
    owner: int,
    committee: int | None,
    eval_every: int,
    interrupted: bool,
) -> Chosen:
    """What the validation scores of one key's runs select."""
    results = [result for batch in batches for result in _results(batch, owner)]
    tasks = list(results[0].nll)
    table = pd.DataFrame(
        {
            "candidate": r.candidate.name,
            "learning_rate": r.candidate.learning_rate,
            "backbone_l2": r.candidate.backbone_l2,
            "start": r.start,
            "validation_nll": r.total,
            **{f"{name}_nll": nll for name, nll in r.nll.items()},
            "best_step": r.best_step(LAST),
            "steps": int(r.fits.steps[r.run]),
            "stop_reason": r.fits.stop_reason[r.run],
            "batch_seconds": r.batch.seconds,
        }
        for r in results
    )
    finite = table[np.isfinite(table["validation_nll"])]
    if finite.empty:
        raise ValueError(
            "no candidate has a finite validation score, not even at its starting values; "
            "look for extreme values in the inputs or targets"
        )
    best = int(finite["validation_nll"].idxmin())
    table["chosen"] = np.arange(len(table)) == best
    # By task, the runs whose laws are mixed, and the criterion whose parameters they use.
    selected = {name: [(best, LAST)] for name in tasks}
    score = results[0].batch.score
    if committee is not None and isinstance(score, TaskScores):
        for criterion, group in enumerate(score.groups):
            own = finite[[f"{one}_nll" for one in group]].sum(axis=1)
            ranked = finite.assign(own_nll=own).nsmallest(committee, ["own_nll", "validation_nll"])
            selected |= {name: [(run, criterion) for run in ranked.index] for name in group}
    table["speaks_for"] = [
        ", ".join(name for name in tasks if run in dict(selected[name])) for run in table.index
    ]
    # Two criteria of a run that were best at the same step share one member.
    wanted = sorted({(best, LAST), *(pair for pairs in selected.values() for pair in pairs)})
    kept = {(run, results[run].best_step(j)): (run, j) for run, j in reversed(wanted)}
    places = {step: place for place, step in enumerate(sorted(kept))}

    def member(run: int, criterion: int) -> int:
        return places[run, results[run].best_step(criterion)]

    origin = [(results[run], j) for run, j in (kept[step] for step in sorted(kept))]
    lead = results[best]
    history = pd.DataFrame({name: v[lead.run] for name, v in lead.fits.history.items()})
    history.insert(0, "step", eval_every * np.arange(1, len(history) + 1))
    members = [result.model(criterion) for result, criterion in origin]
    selection = Selection(
        members=members,
        validated=members,
        lead=member(best, LAST),
        committee={
            name: tuple(member(*pair) for pair in pairs) for name, pairs in selected.items()
        },
        table=table,
        history=history.dropna(subset="validation").reset_index(drop=True),
        stop_reason=lead.fits.stop_reason[lead.run],
        interrupted=interrupted,
    )
    return Chosen(selection, origin)


def refitted(
    batches: Sequence[Batch], chosen: Sequence[Chosen], data: Data | Stream, report: Report | None
) -> list[Selection]:
    """The selections with their members trained again, on all of the data."""
    models: dict[tuple[int, int], _Result] = {}
    interrupted = False
    for place, batch in enumerate(batches):
        runs = sorted({r.run for one in chosen for r, _ in one.origin if r.batch is batch})
        if runs and not interrupted:
            again = batch.again(np.array(runs), data).trained(report)
            interrupted = again.interrupted
            models |= {(place, run): _Result(again, n, {}, 0.0) for n, run in enumerate(runs)}
    out, lost = [], 0
    for one in chosen:
        members = list(one.selection.members)
        for number, (result, criterion) in enumerate(one.origin):
            place = next(n for n, batch in enumerate(batches) if batch is result.batch)
            found = models.get((place, result.run))
            if found is None or found.best_step(criterion) != result.best_step(criterion):
                lost += 1
                continue
            members[number] = found.model(criterion)
        out.append(replace(one.selection, members=members, interrupted=interrupted))
    if lost and not interrupted:
        warnings.warn(
            f"{lost} of the chosen runs broke down when they were trained again on all rows; "
            "they are used as they were without the validation part",
            UserWarning,
            stacklevel=4,
        )
    return out


def joined(selections: Sequence[Selection], labels: Sequence[int]) -> Selection:
    """Several selections as one ensemble: a task is mixed over its members in all of them.

    `labels` tells them apart in the table; the best of them all leads.
    """
    best = min(selections, key=lambda s: float(s.table["validation_nll"].min()))
    members: list[Model] = []
    validated: list[Model] = []
    folds: list[int] = []
    committee: dict[str, tuple[int, ...]] = {name: () for name in best.committee}
    lead = 0
    for selection in selections:
        if selection is best:
            lead = len(members) + selection.lead
        for name, chosen in selection.committee.items():
            committee[name] += tuple(len(members) + i for i in chosen)
        members += selection.members
        validated += selection.validated
        folds += selection.fold_of or []
    tables = (s.table.assign(seed=label) for s, label in zip(selections, labels, strict=True))
    return Selection(
        members=members,
        validated=validated,
        lead=lead,
        committee=committee,
        table=pd.concat(tables, ignore_index=True),
        history=best.history,
        stop_reason=best.stop_reason,
        interrupted=any(s.interrupted for s in selections),
        weights=_joined_weights(selections),
        answers=_joined_answers(selections),
        out_of_fold=_joined_scores(selections),
        fold_of=folds or None,
    )


def _joined_weights(selections: Sequence[Selection]) -> dict[str, tuple[float, ...]] | None:
    if any(one.weights is None for one in selections):
        return None
    each = [one.weights for one in selections if one.weights is not None]
    return {name: tuple(w / len(each) for own in each for w in own[name]) for name in each[0]}


def _joined_answers(selections: Sequence[Selection]) -> dict[str, tuple[Answer, ...]] | None:
    each = [one.answers for one in selections if one.answers is not None]
    if len(each) < len(selections):
        return None
    return {name: tuple(a for own in each for a in own[name]) for name in each[0]}


def _joined_scores(selections: Sequence[Selection]) -> dict[str, np.ndarray] | None:
    each = [one.out_of_fold for one in selections if one.out_of_fold is not None]
    if len(each) < len(selections):
        return None
    count = math.log(len(each))
    return {
        name: np.asarray(logsumexp([own[name] for own in each], axis=0)) - count for name in each[0]
    }
