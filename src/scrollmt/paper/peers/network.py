"""What the torch peers share: minibatch training, stopped where validation is best.

The number of steps is found on the validation part and kept for the refit on all rows.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from scrollmt import scores

from .protocol import ClassCodes, Peer, Rows, Standardised, threads

BATCH, CHECK_EVERY, PATIENCE = 256, 50, 10


def most_steps(rows: int) -> int:
    """At least 4,000 steps, and 60 passes over large data."""
    return max(4000, 60 * rows // BATCH)


def mlp(inputs: int, *widths: int) -> nn.Sequential:
    """Dense layers with SiLU between and after them."""
    layers: list[nn.Module] = []
    for width in widths:
        layers += [nn.Linear(inputs, width), nn.SiLU()]
        inputs = width
    return nn.Sequential(*layers)


def descend(
    model: nn.Module,
    loss: Callable[[torch.Tensor], torch.Tensor],
    count: int,
    steps: int,
    *,
    rate: float,
    decay: float,
    score: Callable[[], float] | None,
) -> int:
    """Minibatch steps of AdamW on `loss(rows)`; the number of steps that the model has then.

    With a `score`, the smaller the better, the model is left as it was at its best check.
    """
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay)
    best, best_state, best_step, waited = np.inf, None, steps, 0
    order = torch.randperm(count)
    at = 0
    for step in range(1, steps + 1):
        if at >= count:
            order, at = torch.randperm(count), 0
        batch = order[at : at + BATCH]
        at += BATCH
        optimiser.zero_grad()
        loss(batch).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimiser.step()
        if score is None or step % CHECK_EVERY:
            continue
        with torch.random.fork_rng():
            model.eval()
            found = score()
            model.train()
        if found < best:
            best, best_state, best_step = found, copy.deepcopy(model.state_dict()), step
            waited = 0
        else:
            waited += 1
            if waited >= PATIENCE:
                break
    if best_state is not None:
        model.load_state_dict(best_state)
    model.eval()
    return best_step


class Network(Peer):
    """A module on standardised inputs; subclasses say how it is built, trained and read."""

    learning_rate = 1e-3
    codes: ClassCodes | None = None

    @abstractmethod
    def build(self, X: torch.Tensor, outputs: int) -> nn.Module:
        """A module with starting values, given the training inputs."""

    @abstractmethod
    def loss(self, X: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """What a step makes smaller."""

    def finished(self, X: torch.Tensor, y: torch.Tensor) -> None:
        """Called after training, and before every score."""

    def select(self, train: Rows, valid: Rows) -> None:
        self._train(train, valid, most_steps(len(train)))

    def refit(self, rows: Rows) -> None:
        self._train(rows, None, self.steps)

    def _train(self, rows: Rows, valid: Rows | None, steps: int) -> None:
        torch.manual_seed(self.seed)
        torch.set_num_threads(threads(len(rows)))
        self.scale = Standardised(rows)
        X = self.tensor(rows.X)
        if self.asked.kind == "classes":
            self.codes = ClassCodes(self.asked, rows.y)
            y = torch.as_tensor(self.codes.code(rows.y))
            outputs = len(self.codes.seen)
        else:
            y = torch.as_tensor(self.scale.targets(rows.y), dtype=torch.float32)
            outputs = 1
        self.rows = len(rows)
        self.model = self.build(X, outputs)
        self.steps = descend(
            self.model,
            lambda batch: self.loss(X[batch], y[batch]),
            len(X),
            steps,
            rate=self.learning_rate,
            decay=self.setting.get("weight_decay", 1e-4),
            score=None if valid is None else lambda: self._validation_nll(X, y, valid),
        )
        self.finished(X, y)

    def _validation_nll(self, X: torch.Tensor, y: torch.Tensor, valid: Rows) -> float:
        self.finished(X, y)
        try:
            return float(np.mean(scores.nll(self.law(valid.X), valid.y)))
        except ValueError:
            # Laws refuse numbers that are not finite; training has diverged.
            return np.inf

    def tensor(self, X: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(self.scale.inputs(X), dtype=torch.float32)

    def in_units(self, mean: Any, sd: Any) -> Any:
        """The law of targets in their own units, given mean and sd of standardised ones."""
        mean, sd = (np.asarray(one, np.float64) for one in (mean, sd))
        scale = self.scale
        return self.asked.law(scale.y_mean + scale.y_sd * mean, scale.y_sd * sd)
