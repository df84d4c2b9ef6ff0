"""Train a preset's candidates and let the validation score choose.

Candidates of one architecture differ only in numbers and run as one batch. Without a
committee the run with the lowest validation NLL, added over tasks, speaks for all of them.
With one, the best few runs on a task's own validation NLL speak for that task, and their
laws are mixed: what a value needs in capacity is often too much for an event. Tasks that are
coupled by their noise are one question here, with the joint NLL as its score.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, PRNGKeyArray

from scrollmt.couplings import Groups
from scrollmt.fit import Fits, Schedule, fit, stack
from scrollmt.heads import AbstractHead
from scrollmt.model import Backbone, Model, build
from scrollmt.objective import Data, composed_objective, mean_nll
from scrollmt.presets import Candidate, Preset

Report = Callable[[str, int, int, float], None]


@dataclass(frozen=True)
class Selection:
    """The chosen models, who speaks for which task, and how every run did.

    `committee` names, by task, the members whose laws are mixed; `lead` is the member with
    the lowest validation NLL added over tasks, who speaks for all tasks under a preset
    without committees.
    """

    members: list[Model]
    lead: int
    committee: dict[str, tuple[int, ...]]
    table: pd.DataFrame
    history: pd.DataFrame
    stop_reason: str
    interrupted: bool


def _groups(candidates: Sequence[Candidate]) -> dict[object, list[Candidate]]:
    grouped: dict[object, list[Candidate]] = {}
    for candidate in candidates:
        grouped.setdefault(candidate.architecture, []).append(candidate)
    return grouped


def features_of(backbone: Backbone, in_size: int) -> int:
    """How many features a backbone makes of one point; a clear error when it cannot."""
    point = jax.ShapeDtypeStruct((in_size,), jnp.result_type(float))
    try:
        out = eqx.filter_eval_shape(backbone, point)
    except Exception as error:
        raise ValueError(
            f"the backbone does not accept one point of shape ({in_size},): {error}; "
            "it must map (D,) to (H,), batching happens outside"
        ) from error
    if not hasattr(out, "shape") or len(out.shape) != 1:
        shape = getattr(out, "shape", type(out).__name__)
        raise ValueError(
            f"the backbone maps ({in_size},) to {shape}, expected features of shape (H,)"
        )
    return int(out.shape[0])


def train(
    preset: Preset,
    heads: Mapping[str, AbstractHead],
    *,
    belief: str,
    train: Data,
    valid: Data,
    keys: Sequence[PRNGKeyArray],
    joint: Groups = (),
    backbone: Backbone | None = None,
    report: Report | None = None,
) -> list[Selection]:
    """For every key, fit all candidates and let their validation NLL choose among them.

    Keys differ in starting values and, where the data has a leading axis of that length,
    in their windows. Everything of one architecture runs as one batch. A given `backbone`
    takes the place of the candidates' architectures; their numbers are still tried. An
    interrupt keeps the best of what has been trained so far.
    """
    schedule = preset.schedule_for(len(train))
    groups = (
        {"given": list(preset.candidates)} if backbone is not None else _groups(preset.candidates)
    )
    results: list[list[_Result]] = [[] for _ in keys]
    interrupted = False
    try:
        for members in groups.values():
            batch = _train_group(
                preset,
                heads,
                belief,
                joint,
                train,
                valid,
                keys,
                backbone,
                members,
                schedule,
                report,
            )
            for mine, new in zip(results, batch, strict=True):
                mine += new
            interrupted = batch[0][0].fits.interrupted
            if interrupted:
                break
    except KeyboardInterrupt:
        if not results[0]:
            raise
        interrupted = True
    return [_choose(mine, preset.committee, schedule.eval_every, interrupted) for mine in results]


def _train_group(
    preset: Preset,
    heads: Mapping[str, AbstractHead],
    belief: str,
    joint: Groups,
    train: Data,
    valid: Data,
    keys: Sequence[PRNGKeyArray],
    backbone: Backbone | None,
    members: list[Candidate],
    schedule: Schedule,
    report: Report | None,
) -> list[list[_Result]]:
    """All runs of the candidates of one architecture as one batch; results by key."""
    in_size = train.x.shape[-1]
    label = members[0].name if backbone is None else type(backbone).__name__
    # Keyed by name, so that a candidate starts alike whichever others are tried with it.
    tag = zlib.crc32(label.encode())
    starts, run_keys = [], []
    for place, key in enumerate(keys):
        mine = train if train.x.ndim == 2 else jax.tree.map(lambda a, i=place: a[i], train)
        # A head may start from what its own training labels look like, never from those of others.
        begun = {n: head.started(mine.y[n], mine.weight[n]) for n, head in heads.items()}
        for start_key in jax.random.split(jax.random.fold_in(key, tag), preset.starts):
            net_key, task_key, run_key = jax.random.split(start_key, 3)
            shape = members[0].architecture
            net = backbone
            if net is None:
                net = shape.build(in_size, net_key, uniform=preset.begin.uniform)
            start = build(
                net,
                begun,
                features=features_of(net, in_size),
                belief=belief,
                key=task_key,
                cov_floor=preset.cov_floor,
                joint=joint,
                start=preset.begin,
            )
            starts += [start] * len(members)
            run_keys += [*jax.random.split(run_key, len(members))]
    each = preset.starts * len(members)

    def progress(step: int, steps: int, best: np.ndarray) -> None:
        if report is not None:
            report(label, step, steps, float(best.min()))

    judged = _repeated(valid, each)
    began = time.perf_counter()
    fits = fit(
        stack(starts),
        _repeated(train, each),
        judged,
        objective=composed_objective,
        hyper={
            name: jnp.tile(
                jnp.asarray([getattr(c, name) for c in members], dtype=train.x.dtype),
                len(keys) * preset.starts,
            )
            for name in ("learning_rate", "backbone_l2")
        },
        schedule=schedule,
        keys=jnp.stack(run_keys),
        progress=progress,
    )
    seconds = time.perf_counter() - began
    by_task = {name: np.asarray(v) for name, v in _task_nll(fits.models, judged).items()}
    results: list[list[_Result]] = [[] for _ in keys]
    for run in range(len(fits)):
        owner, place = divmod(run, each)
        attempt, member = divmod(place, len(members))
        nll = {name: float(values[run]) for name, values in by_task.items()}
        results[owner].append(_Result(members[member], attempt, fits, run, nll, seconds))
    return results


@eqx.filter_jit
def _task_nll(models: Model, valid: Data) -> dict[str, Array]:
    axis = None if valid.x.ndim == 2 else 0
    return eqx.filter_vmap(mean_nll, in_axes=(eqx.if_array(0), axis))(models, valid)


class _Result(NamedTuple):
    """One run: what it was and what it scored on validation, by task."""

    candidate: Candidate
    start: int
    fits: Fits
    run: int
    nll: dict[str, float]
    seconds: float


def _repeated(data: Data, times: int) -> Data:
    """Data of their own for every run of a candidate batch; shared data stays shared."""
    if data.x.ndim == 2:
        return data
    return jax.tree.map(lambda a: jnp.repeat(a, times, axis=0), data)


def _choose(
    results: list[_Result], committee: int | None, eval_every: int, interrupted: bool
) -> Selection:
    table = pd.DataFrame(
        {
            "candidate": r.candidate.name,
            "learning_rate": r.candidate.learning_rate,
            "backbone_l2": r.candidate.backbone_l2,
            "start": r.start,
            "validation_nll": float(r.fits.best_score[r.run]),
            **{f"{name}_nll": nll for name, nll in r.nll.items()},
            "best_step": int(r.fits.best_step[r.run]),
            "steps": int(r.fits.steps[r.run]),
            "stop_reason": r.fits.stop_reason[r.run],
            "batch_seconds": r.seconds,
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
    tasks = list(results[0].nll)
    if committee is None:
        speakers = {name: [best] for name in tasks}
    else:
        # A task without validation labels scores zero everywhere: then the sum decides.
        together: dict[str, tuple[str, ...]] = {name: (name,) for name in tasks}
        for coupling in results[0].fits.models.couplings:
            together |= dict.fromkeys(coupling.names, coupling.names)
        speakers = {}
        for name, group in together.items():
            own = finite[[f"{one}_nll" for one in group]].sum(axis=1)
            ranked = finite.assign(own_nll=own).nsmallest(committee, ["own_nll", "validation_nll"])
            speakers[name] = [*ranked.index]
    kept = sorted({best}.union(*speakers.values()))
    table["speaks_for"] = [
        ", ".join(name for name in tasks if run in speakers[name]) for run in table.index
    ]
    lead = results[best]
    history = pd.DataFrame({name: v[lead.run] for name, v in lead.fits.history.items()})
    history.insert(0, "step", eval_every * np.arange(1, len(history) + 1))
    return Selection(
        members=[results[run].fits.model(results[run].run) for run in kept],
        lead=kept.index(best),
        committee={name: tuple(kept.index(r) for r in runs) for name, runs in speakers.items()},
        table=table,
        history=history.dropna(subset="validation").reset_index(drop=True),
        stop_reason=lead.fits.stop_reason[lead.run],
        interrupted=interrupted,
    )


def joined(selections: Sequence[Selection], labels: Sequence[int]) -> Selection:
    """Several selections as one ensemble: every task hears the committees of all of them.

    `labels` tells them apart in the table; the best of them all leads.
    """
    best = min(selections, key=lambda s: float(s.table["validation_nll"].min()))
    members: list[Model] = []
    committee: dict[str, tuple[int, ...]] = {name: () for name in best.committee}
    lead = 0
    for selection in selections:
        if selection is best:
            lead = len(members) + selection.lead
        for name, speakers in selection.committee.items():
            committee[name] += tuple(len(members) + i for i in speakers)
        members += selection.members
    tables = (s.table.assign(seed=label) for s, label in zip(selections, labels, strict=True))
    return Selection(
        members=members,
        lead=lead,
        committee=committee,
        table=pd.concat(tables, ignore_index=True),
        history=best.history,
        stop_reason=best.stop_reason,
        interrupted=any(s.interrupted for s in selections),
    )
