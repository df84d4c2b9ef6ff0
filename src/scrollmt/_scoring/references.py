r"""Reference forecasts: what a forecast has to beat before it is worth anything.

    climatology   one law for all windows: the task's own head on a constant latent line
    persistence   things stay as they were when the forecast is made
    seasonal      things are as they were a whole number of days (weeks, years) before the target

Persistence and seasonal of a value y with earlier value z, and of a class with earlier class j,
have one number, or one table, learned in training:

    y ~ N(z, s^2),  s^2 = mean (y - z)^2          P(y = r | j) = (n_jr + p_r) / (n_j + 1)

where p is the climatology, which also serves where the earlier value is missing. The earlier value
is the same question, asked of a window that ends at the origin or before (`Windows.past`).
Shapes: labels (N,).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scrollmt._data.reading import Rows
from scrollmt._data.scaling import Scales
from scrollmt._numerics.compiling import on_device
from scrollmt.heads import AbstractHead
from scrollmt.laws import DiscreteLaw, GaussianLaw, Law, RealLaw

CLIMATOLOGY = "climatology"
# In words, for sentences about them.
NAMES = {
    CLIMATOLOGY: "a constant forecast",
    "persistence": "persistence",
    "seasonal": "the same time a season before",
}
Past = Mapping[str, Mapping[str, np.ndarray]]


@dataclass(frozen=True)
class Reference:
    """The reference forecasts of one task, by kind; `shifts` are those from earlier values."""

    head: AbstractHead
    mean: np.ndarray
    offset: float
    scale: float
    shifts: dict[str, np.ndarray]

    def constant(self, n: int) -> Law:
        mean = np.broadcast_to(self.mean, (n, *self.mean.shape))
        # A head compares latent lines of the precision that it was fitted in.
        line = np.asarray(mean, jnp.result_type(float))
        if (self.offset, self.scale) == (0.0, 1.0):
            return self.head.law(line, np.zeros_like(line))
        return self.head.rescaled_law(line, np.zeros_like(line), self.offset, self.scale)

    def laws(self, n: int, past: Mapping[str, np.ndarray]) -> dict[str, Law]:
        """The reference laws of n windows; those from earlier labels only where these are given."""
        constant = self.constant(n)
        found = {CLIMATOLOGY: constant}
        for kind, shift in self.shifts.items():
            if kind in past:
                found[kind] = _shifted(constant, shift, past[kind])
        return found

    def to_dict(self) -> dict[str, Any]:
        return {
            "leaves": [np.asarray(leaf).tolist() for leaf in jax.tree.leaves(self.head)],
            "mean": self.mean.tolist(),
            "offset": self.offset,
            "scale": self.scale,
            "shifts": {kind: shift.tolist() for kind, shift in self.shifts.items()},
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any], head: AbstractHead) -> Reference:
        """The reference that `to_dict` described, for a head of the same kind."""
        leaves, structure = jax.tree.flatten(head)
        arrays = [
            on_device(np.reshape(values, leaf.shape), leaf.dtype)
            for values, leaf in zip(stored["leaves"], leaves, strict=True)
        ]
        return cls(
            jax.tree.unflatten(structure, arrays),
            np.asarray(stored["mean"], dtype=float),
            float(stored["offset"]),
            float(stored["scale"]),
            {str(k): np.asarray(shift, dtype=float) for k, shift in stored["shifts"].items()},
        )


def learned(
    heads: Mapping[str, AbstractHead], rows: Rows, scales: Scales, past: Past
) -> dict[str, Reference]:
    """The references of every task, from the training rows and their earlier labels by kind."""
    targets = scales.targets(rows, heads)
    found = {}
    for name, head in heads.items():
        y, weight = targets[name], on_device(rows.weights[name])
        fitted, mean = head.started(y, weight).constant(y, weight)
        offset, scale = scales.offset.get(name, 0.0), scales.scale.get(name, 1.0)
        bare = Reference(fitted, np.asarray(mean, np.float64), offset, scale, {})
        constant, seen = bare.constant(1), rows.weights[name] > 0
        shifts = {
            kind: shift
            for kind, earlier in past.items()
            if (shift := _shift(constant, rows.labels[name], earlier[name], seen)) is not None
        }
        found[name] = replace(bare, shifts=shifts)
    return found


def _shift(
    constant: Law, y: np.ndarray, earlier: np.ndarray, seen: np.ndarray
) -> np.ndarray | None:
    """What is learned from pairs of labels: an sd, or a table of class probabilities (R, R)."""
    both = seen & ~np.isnan(earlier)
    if isinstance(constant, DiscreteLaw):
        counts = np.zeros((constant.num_classes, constant.num_classes))
        np.add.at(counts, (earlier[both].astype(int), y[both].astype(int)), 1.0)
        return np.asarray((counts + constant.probs) / (counts.sum(axis=1, keepdims=True) + 1.0))
    if not isinstance(constant, RealLaw) or not constant.normal or not both.any():
        return None
    sd = float(np.sqrt(np.mean((y[both] - earlier[both]) ** 2)))
    return np.asarray(sd) if sd > 0.0 else None


def _shifted(constant: Law, shift: np.ndarray, earlier: np.ndarray) -> Law:
    known = ~np.isnan(earlier)
    if isinstance(constant, DiscreteLaw):
        before = np.where(known, earlier, 0.0).astype(int)
        table = np.where(known[:, None], np.log(shift)[before], constant.log_probs)
        return type(constant)(table)
    assert isinstance(constant, RealLaw), "a shift of one number is learned for values alone"
    return GaussianLaw(np.where(known, earlier, constant.mean), np.where(known, shift, constant.sd))
