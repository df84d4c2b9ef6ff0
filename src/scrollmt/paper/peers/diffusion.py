"""Treeffuser: a diffusion of boosted trees that draws samples; their kernel density is its law."""

from __future__ import annotations

import warnings

import numpy as np
from treeffuser import Treeffuser

from scrollmt import scores
from scrollmt.laws import Law

from .protocol import Peer, Rows, threads

DRAWS = 100
# The width of the kernel, relative to the sd of a row's draws.
WIDTHS = (0.1, 0.2, 0.3, 0.5, 0.8, 1.3, 2.0)


class TreeffuserValue(Peer):
    """Its own defaults, with its own early stopping; validation chooses the kernel's width."""

    width = WIDTHS[0]

    def select(self, train: Rows, valid: Rows) -> None:
        self.refit(train)
        draws = self._draws(valid.X)
        self.width = min(
            WIDTHS,
            key=lambda width: float(np.mean(scores.nll(self._kernel(draws, width), valid.y))),
        )

    def refit(self, rows: Rows) -> None:
        with warnings.catch_warnings():
            # It calls LightGBM by an argument that is deprecated.
            warnings.simplefilter("ignore")
            self.model = Treeffuser(seed=self.seed, n_jobs=threads(len(rows)))
            self.model.fit(rows.X, rows.y)

    def law(self, X: np.ndarray) -> Law:
        return self._kernel(self._draws(X), self.width)

    def _draws(self, X: np.ndarray) -> np.ndarray:
        draws = self.model.sample(X, n_samples=DRAWS, seed=self.seed, verbose=False)
        return np.asarray(draws, np.float64).reshape(DRAWS, len(X))

    def _kernel(self, draws: np.ndarray, width: float) -> Law:
        spread = draws.std(axis=0)
        sd = width * np.maximum(spread, 1e-3 * float(np.mean(spread)))
        return self.asked.law(draws, np.broadcast_to(sd, draws.shape))
