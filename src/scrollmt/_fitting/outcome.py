"""The outcome of a batch of runs, and of the parts of a batch as one."""

from __future__ import annotations

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from scrollmt._fitting.vectors import Tree
from scrollmt._numerics.compiling import taken


@dataclass(frozen=True)
class Fits:
    """The outcome of a batch of runs; every array has the run axis first.

    Where the score is a vector, models, best scores and best steps have an axis of its criteria
    second; the history shows the last of them.
    """

    models: Tree
    best_score: np.ndarray
    best_step: np.ndarray
    steps: np.ndarray
    stop_reason: tuple[str, ...]
    history: dict[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.best_score)

    @property
    def interrupted(self) -> bool:
        return "interrupted" in self.stop_reason

    def first(self, runs: int) -> Fits:
        """The outcome of the first few runs alone."""
        return Fits(
            models=taken(self.models, slice(runs)),
            best_score=self.best_score[:runs],
            best_step=self.best_step[:runs],
            steps=self.steps[:runs],
            stop_reason=self.stop_reason[:runs],
            history={name: values[:runs] for name, values in self.history.items()},
        )

    def model(self, *place: int) -> Tree:
        """The best model of one run, or of one run by one criterion."""
        return taken(self.models, place)


def together(parts: list[Fits]) -> Fits:
    """The outcomes of the parts of a batch as one; shorter histories end in NaN."""
    length = max(p.history["validation"].shape[1] for p in parts)

    def padded(a: np.ndarray) -> np.ndarray:
        return np.pad(a, ((0, 0), (0, length - a.shape[1])), constant_values=np.nan)

    return Fits(
        models=jax.tree.map(
            lambda *a: jnp.concatenate(a) if eqx.is_array(a[0]) else a[0],
            *(p.models for p in parts),
        ),
        best_score=np.concatenate([p.best_score for p in parts]),
        best_step=np.concatenate([p.best_step for p in parts]),
        steps=np.concatenate([p.steps for p in parts]),
        stop_reason=tuple(reason for p in parts for reason in p.stop_reason),
        history={
            name: np.concatenate([padded(p.history[name]) for p in parts])
            for name in parts[0].history
        },
    )
