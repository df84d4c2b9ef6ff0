r"""Rows of a stream made ready to train on: two passes, in memory that does not grow with them.

    first pass    scales of the training rows; some of these as a sample; the held-out rows
    second pass   training rows standardised, as float32, into memory or a temporary file

Which rows are held out and which are the sample depends on the seed and the number of rows alone.
Means and sds are merged from those of the chunks, exactly. Shapes: inputs `(N, D)`, labels and
weights `(N,)` by task.
"""

from __future__ import annotations

import itertools
import math
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import jax
import numpy as np
import pandas as pd

from scrollmt._data import answers, holdout, reading
from scrollmt._data.holdout import Ready, Stored
from scrollmt._data.reading import Rows
from scrollmt._data.scaling import Scales
from scrollmt._data.sources import AbstractSource, read_chunk
from scrollmt._numerics.weighted import Moments, is_constant, weighted_moments
from scrollmt.couplings import Groups
from scrollmt.heads import AbstractHead
from scrollmt.objective import Data
from scrollmt.presets import HELD_OUT_SHARE, Large


@dataclass
class Summary:
    """What a pass over training rows learns of them: scales, ranges, which labels differ."""

    heads: Mapping[str, AbstractHead]
    inputs: Moments | None = None
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    targets: dict[str, Moments] = field(default_factory=dict)
    # By task, the first label and whether another one followed.
    first: dict[str, np.ndarray] = field(default_factory=dict)
    varied: set[str] = field(default_factory=set)

    def add(self, rows: Rows) -> None:
        weight = np.mean([rows.weights[name] for name in self.heads], axis=0)
        if weight.any():
            found = Moments(float(weight.sum()), *weighted_moments(rows.x, weight))
            self.inputs = found if self.inputs is None else self.inputs.merged(found)
            counted = rows.x[weight > 0]
            low, high = counted.min(axis=0), counted.max(axis=0)
            self.low = low if self.low is None else np.minimum(self.low, low)
            self.high = high if self.high is None else np.maximum(self.high, high)
        for name, head in self.heads.items():
            seen = rows.weights[name] > 0
            labels, share = rows.labels[name][seen], rows.weights[name][seen]
            if not len(labels):
                continue
            first = self.first.setdefault(name, labels[0])
            if (labels != first).any():
                self.varied.add(name)
            units = head.target_scale(labels, share)
            if units is not None:
                part = Moments(float(share.sum()), *map(np.asarray, units))
                known = self.targets.get(name)
                self.targets[name] = part if known is None else known.merged(part)

    def scales(self, *, scale_targets: bool) -> Scales:
        """Exact where a head's units are a mean and an sd; else those of the chunks, averaged."""
        assert self.inputs is not None
        assert self.low is not None
        assert self.high is not None
        constant = is_constant(np.stack([self.low, self.high]))
        mean = np.where(constant, self.low, self.inputs.mean)
        sd = np.where(constant, 0.0, self.inputs.sd)
        units = {name: (float(one.mean), float(one.sd)) for name, one in self.targets.items()}
        by_task = {name: units.get(name) for name in self.heads}
        return Scales.summarised(
            (mean, sd, self.low, self.high), by_task, scale_targets=scale_targets
        )


def ready(
    source: AbstractSource,
    validation: Any,
    heads: Mapping[str, AbstractHead],
    rule: Large | None,
    *,
    joint: Groups,
    seed: int,
    scale_targets: bool,
    columns: list[str] | None,
    further_heads: bool,
    one_line: bool,
    usual: Callable[[int], float],
) -> Ready:
    """The training and the validation part of a source.

    So few rows that the rule does not apply are read as a whole, and then go the usual way.
    """
    if rule is None or len(source) <= rule.above:
        return holdout.ready(
            _whole(source, rule),
            validation,
            heads,
            joint=joint,
            seed=seed,
            scale_targets=scale_targets,
            recipe=None,
            columns=columns,
            further_heads=further_heads,
            one_line=one_line,
            usual=usual,
        )
    plan = answers.first_heads(heads)
    heads, names = plan.heads, source.names

    def chunks() -> Iterator[Rows]:
        first = 0
        for chunk in source.chunks():
            rows = read_chunk(chunk, heads, joint, first)
            first += len(chunk)
            yield rows._replace(x=holdout.in_order(rows.x, names, columns)[0])

    held, picked = _drawn(len(source), _held_out(validation, len(source), rule), rule, seed)
    summary = Summary(heads)
    judged_parts, sample_parts = [], []
    for rows in chunks():
        judged_parts.append(rows.take(np.isin(rows.where, held)))
        sample_parts.append(rows.take(np.isin(rows.where, picked)))
        summary.add(rows.take(~np.isin(rows.where, held)))
    sample, judged = _joined(sample_parts), _joined(judged_parts)
    names = columns if names is not None and columns is not None else names
    if not len(held):
        _, judged = holdout.parts(sample, validation, names, heads, joint, seed)
    constant = {name: head for name, head in heads.items() if name not in summary.varied}
    reading.check_learnable(sample.labels, sample.weights, constant)
    reading.check_validation(judged.weights)
    scales = summary.scales(scale_targets=scale_targets)
    stored = _stored(chunks(), held, len(source), judged, scales, heads, names, rule)
    return Ready(plan, sample, judged, scales, names, None, {}, stored=stored)


def _whole(source: AbstractSource, rule: Large | None) -> tuple[Any, Any, Any]:
    """All rows as `fit(X, Y, sample_weight)` takes them."""
    limit = Large().memory if rule is None else rule.memory
    parts = []
    held = 0
    for chunk in source.chunks():
        parts.append(chunk)
        held += chunk.x.nbytes
        if rule is None and held > limit:
            raise ValueError(
                f"{len(source)} rows take more than {limit / 2**20:.0f} MiB, and this preset "
                "trains on rows in memory alone; use preset='default', or a Preset with "
                "large=Large()"
            )
    x = np.concatenate([part.x for part in parts])
    X = x if source.names is None else pd.DataFrame(x, columns=source.names)
    first = parts[0]
    Y = {name: np.concatenate([part.labels[name] for part in parts]) for name in first.labels}
    weights = {n: np.concatenate([part.weights[n] for part in parts]) for n in first.weights}
    return X, Y, weights or None


def _held_out(validation: Any, rows: int, rule: Large) -> int:
    """How many rows to hold out; zero where validation rows are given."""
    if validation is None:
        return min(round(HELD_OUT_SHARE * rows), rule.held_out)
    if holdout.is_folds(validation):
        raise ValueError(
            f"{validation} folds need all rows in memory, and {rows} rows of a stream are more "
            f"than {rule.above}; leave validation=None, or give a share or a pair (X, Y)"
        )
    if isinstance(validation, Real) and 0.0 < float(validation) < 1.0:
        return max(1, round(float(validation) * rows))
    return 0


def _drawn(rows: int, held: int, rule: Large, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Sorted numbers of the rows that are held out, and of the training rows in the sample."""
    sample = min(rule.race_rows, rows - held)
    drawn = np.random.default_rng(seed).choice(rows, held + sample, replace=False)
    return np.sort(drawn[:held]), np.sort(drawn[held:])


def _joined(parts: list[Rows]) -> Rows:
    joined: Rows = jax.tree.map(lambda *a: np.concatenate(a), *parts)
    return joined


def _stored(
    chunks: Iterator[Rows],
    held: np.ndarray,
    count: int,
    judged: Rows,
    scales: Scales,
    heads: Mapping[str, AbstractHead],
    names: list[str] | None,
    rule: Large,
) -> Stored:
    """All rows standardised: those that train in the order of the source, then the judged ones."""
    trained = count - len(held)
    space: Data | None = None
    filled = 0
    for rows in itertools.chain(_without(chunks, held), [judged]):
        part = jax.tree.map(np.asarray, scales.data(rows, heads, names=names))
        if space is None:
            space = _space(part, trained + len(judged.x), rule)
        for into, values in zip(jax.tree.leaves(space), jax.tree.leaves(part), strict=True):
            into[filled : filled + len(values)] = values
        filled += len(part)
    assert space is not None
    return Stored(space, trained)


def _without(chunks: Iterator[Rows], held: np.ndarray) -> Iterator[Rows]:
    for rows in chunks:
        yield rows.take(~np.isin(rows.where, held))


def _space(like: Data, rows: int, rule: Large) -> Data:
    """Room for so many rows: in memory, or beyond the rule's budget in a file without a name."""
    each = sum(leaf[:1].nbytes for leaf in jax.tree.leaves(like))
    if rows * each <= rule.memory:
        held: Data = jax.tree.map(lambda a: np.empty((rows, *a.shape[1:]), a.dtype), like)
        return held
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if rows * each > free:
        raise ValueError(
            f"{rows} standardised rows take {rows * each / 2**30:.3g} GiB, and "
            f"{tempfile.gettempdir()} has {free / 2**30:.3g} GiB left; name another folder in the "
            "environment variable TMPDIR, or allow more memory with Large(memory=...)"
        )

    def in_file(leaf: np.ndarray) -> np.ndarray:
        shape = (rows, *leaf.shape[1:])
        # The mapping outlives the file's name and handle: nothing is left behind, whatever happens.
        with tempfile.TemporaryFile() as file:
            file.truncate(math.prod(shape) * leaf.dtype.itemsize)
            return np.memmap(file, leaf.dtype, "r+", shape=shape)

    mapped: Data = jax.tree.map(in_file, like)
    return mapped
