"""Train a preset's candidates and let the validation score choose.

Candidates of one architecture differ only in numbers and run as one batch. The score is
the validation NLL added over the tasks; ties and failures are visible in the table.
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
from jaxtyping import Array, Float, PRNGKeyArray

from scrollmt.fit import Fits, Hyper, fit, stack
from scrollmt.heads import AbstractHead
from scrollmt.model import Backbone, Model, build
from scrollmt.objective import Data, backbone_penalty, composed
from scrollmt.presets import Candidate, Preset

Report = Callable[[str, int, int, float], None]


def penalised(
    model: Model, data: Data, hyper: Hyper, data_scale: float | Array
) -> Float[Array, ""]:
    """The composed objective plus the backbone penalty: what every preset minimises."""
    return composed(model, data, data_scale=data_scale) + hyper["backbone_l2"] * backbone_penalty(
        model
    )


@dataclass(frozen=True)
class Selection:
    """The chosen model, and how every candidate did."""

    model: Model
    candidate: Candidate
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
    backbone: Backbone | None = None,
    report: Report | None = None,
) -> list[Selection]:
    """For every key, fit all candidates and keep the one with the lowest validation NLL.

    Keys differ in starting values and, where the data has a leading axis of that length,
    in their windows. Everything of one architecture runs as one batch. A given `backbone`
    takes the place of the candidates' architectures; their numbers are still tried. An
    interrupt keeps the best of what has been trained so far.
    """
    in_size = train.x.shape[-1]
    schedule = preset.schedule_for(len(train))
    groups = (
        {"given": list(preset.candidates)} if backbone is not None else _groups(preset.candidates)
    )
    results: list[list[_Result]] = [[] for _ in keys]
    for members in groups.values():
        label = members[0].name if backbone is None else type(backbone).__name__
        # Keyed by name, so that a candidate starts alike whichever others are tried with it.
        tag = zlib.crc32(label.encode())
        starts, run_keys = [], []
        for key in keys:
            net_key, task_key, run_key = jax.random.split(jax.random.fold_in(key, tag), 3)
            shape = members[0].architecture
            net = backbone if backbone is not None else shape.build(in_size, net_key)
            start = build(
                net,
                heads,
                features=features_of(net, in_size),
                belief=belief,
                key=task_key,
                cov_floor=preset.cov_floor,
            )
            starts += [start] * len(members)
            run_keys += [*jax.random.split(run_key, len(members))]

        def progress(step: int, steps: int, best: np.ndarray, label: str = label) -> None:
            if report is not None:
                report(label, step, steps, float(best.min()))

        began = time.perf_counter()
        fits = fit(
            stack(starts),
            _repeated(train, len(members)),
            _repeated(valid, len(members)),
            objective=penalised,
            hyper={
                name: jnp.asarray(
                    [getattr(c, name) for _ in keys for c in members], dtype=train.x.dtype
                )
                for name in ("learning_rate", "backbone_l2")
            },
            schedule=schedule,
            keys=jnp.stack(run_keys),
            progress=progress,
        )
        seconds = time.perf_counter() - began
        for run in range(len(fits)):
            owner, member = divmod(run, len(members))
            results[owner].append(_Result(members[member], fits, run, seconds))
        if fits.interrupted:
            break
    return [_choose(mine, schedule.eval_every) for mine in results]


class _Result(NamedTuple):
    candidate: Candidate
    fits: Fits
    run: int
    seconds: float


def _repeated(data: Data, times: int) -> Data:
    """Data of their own for every run of a candidate batch; shared data stays shared."""
    if data.x.ndim == 2:
        return data
    return jax.tree.map(lambda a: jnp.repeat(a, times, axis=0), data)


def _choose(results: list[_Result], eval_every: int) -> Selection:
    table = pd.DataFrame(
        {
            "candidate": c.name,
            "learning_rate": c.learning_rate,
            "backbone_l2": c.backbone_l2,
            "validation_nll": float(fits.best_score[i]),
            "best_step": int(fits.best_step[i]),
            "steps": int(fits.steps[i]),
            "stop_reason": fits.stop_reason[i],
            "batch_seconds": seconds,
        }
        for c, fits, i, seconds in results
    )
    if not np.isfinite(table["validation_nll"]).any():
        raise ValueError(
            "no candidate has a finite validation score, not even at its starting values; "
            "look for extreme values in the inputs or targets"
        )
    best = int(table["validation_nll"].idxmin())
    table["chosen"] = np.arange(len(table)) == best
    candidate, fits, i, _ = results[best]
    history = pd.DataFrame({name: values[i] for name, values in fits.history.items()})
    history.insert(0, "step", eval_every * np.arange(1, len(history) + 1))
    return Selection(
        model=fits.model(i),
        candidate=candidate,
        table=table,
        history=history.dropna(subset="validation").reset_index(drop=True),
        stop_reason=fits.stop_reason[i],
        interrupted=any(result.fits.interrupted for result in results),
    )
