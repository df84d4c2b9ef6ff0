"""A cross-fit: what all of its runs share, and what is known of one of them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PRNGKeyArray

from scrollmt._data.answers import Plan
from scrollmt._data.scaling import Scales
from scrollmt._fitting.batches import Batch, Factory, start_batch, together
from scrollmt._fitting.selection import LAST, by_architecture
from scrollmt._numerics.compiling import RUNS_ONCE
from scrollmt.beliefs import Choices
from scrollmt.couplings import Groups
from scrollmt.fit import Fits, Optimizer
from scrollmt.heads import AbstractHead
from scrollmt.model import Backbone, Model
from scrollmt.objective import Data
from scrollmt.presets import Candidate, Preset
from scrollmt.routing import FREE, Routing
from scrollmt.splits import Folds


@dataclass(frozen=True)
class Setting:
    """What all runs of a cross-fit share."""

    preset: Preset
    plan: Plan
    scales: Scales
    belief: Choices
    joint: Groups
    data: Data
    folds: Folds
    backbone: Backbone | Factory | None
    optimizer: Optimizer | None
    routing: Routing = FREE

    @property
    def heads(self) -> Mapping[str, AbstractHead]:
        """All heads that are trained."""
        return self.plan.heads

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The heads that are scored by themselves: coupled ones are one group."""
        return together(self.heads, self.joint)

    def criterion(self, head: str) -> int:
        """The number of the group that a head is in."""
        return next(number for number, group in enumerate(self.groups) if head in group)

    def batches(
        self, candidates: Sequence[Candidate], numbers: range, key: PRNGKeyArray
    ) -> Iterator[Batch]:
        """The candidates on the folds of these numbers, one batch an architecture."""
        keys = _fold_keys(key, len(self.folds))
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
                self.folds,
                numbers,
                self.routing,
            )


@functools.partial(jax.jit, static_argnums=1, compiler_options=RUNS_ONCE)
def _fold_keys(key: PRNGKeyArray, folds: int) -> Key[Array, " K"]:
    keys: Array = jax.vmap(lambda number: jax.random.fold_in(key, number))(jnp.arange(folds))
    return keys


class Run(NamedTuple):
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


def question_weight(setting: Setting, group: tuple[str, ...]) -> Float[np.ndarray, " N"]:
    """What a row counts for a question: the weight of any of its labels."""
    weights = [np.asarray(setting.data.weight[name], np.float64) for name in group]
    return np.asarray(np.max(weights, axis=0))


def mean_nll(setting: Setting, run: Run) -> list[float]:
    """The mean NLL of each question over the fold's labels, NaN without any; the score of one
    label is bounded."""
    rows, out = setting.folds.valid[run.fold], []
    bound = setting.preset.score_bound
    for group, scores in zip(setting.groups, run.log_scores, strict=True):
        weight = question_weight(setting, group)[rows]
        nll = -scores if bound is None else np.minimum(-scores, bound)
        out.append(float(nll.sum(axis=0) @ weight / weight.sum()) if weight.any() else np.nan)
    return out
