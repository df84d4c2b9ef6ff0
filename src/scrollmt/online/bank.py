r"""Several ways to go on learning side by side, weighed by how well each has predicted so far.

With $p_{b,t}$ the probability that setting b gave the label of row t, and q the weights that the
bank starts with,

$$w_{b,t+1} = (1 - \rho)\,\frac{w_{b,t}\,p_{b,t}}{\sum_c w_{c,t}\,p_{c,t}} + \rho\,q_b.$$

This is the fixed share of Herbster and Warmuth (1998). The mixture loses to any single setting b at
most $-\log q_b - T\log(1 - \rho)$ nats over T labels, and to the best sequence of n + 1 settings,
$b_0$ at first and $b_1 \dots b_n$ after changes, at most

$$-\log q_{b_0} - (T - n)\log(1 - \rho) - \sum_{i=1}^n \log(\rho\,q_{b_i}).$$
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from scrollmt._io.arguments import check_number
from scrollmt._numerics.compiling import on_device
from scrollmt.online.recursion import Settings


@dataclass(frozen=True)
class Bank:
    """Which rates of forgetting and steps of the scale run side by side.

    `forgetting` are rates from 0 to 1; with a rate r a row counts for r after one more row, so that
    1 forgets nothing and 0.998 remembers about 500 rows. `steps` are those of the scale of noise
    and spread; 0 keeps it. Every rate runs with every step. With `frozen`, the model as it was
    fitted runs beside them, with that share of the weight at the start; 0 leaves it out. `switch`
    is the probability with which another setting is taken to be better from one label to the next.
    """

    forgetting: tuple[float, ...] = (1.0, 0.9995, 0.998, 0.99)
    steps: tuple[float, ...] = (0.0, 0.005)
    frozen: float = 0.5
    switch: float = 0.0005

    def __post_init__(self) -> None:
        for name, values in (("forgetting", self.forgetting), ("steps", self.steps)):
            if not isinstance(values, Sequence) or isinstance(values, str) or not values:
                raise ValueError(
                    f"Bank: {name} must be a tuple of at least one number, got {values!r:.60}"
                )
            for value in values:
                check_number(f"Bank: {name}", value, 0.0, 1.0)
            object.__setattr__(self, name, tuple(float(v) for v in values))
        if min(self.forgetting) <= 0.0:
            raise ValueError("Bank: a forgetting rate of 0 remembers nothing; use rates above 0")
        check_number("Bank: frozen", self.frozen, 0.0, 1.0)
        if self.frozen == 1.0:
            raise ValueError("Bank: frozen=1 learns nothing; use a share below 1")
        check_number("Bank: switch", self.switch, 0.0, 1.0)

    @property
    def rows(self) -> list[tuple[float, float, bool]]:
        """Forgetting rate, step, and whether anything is learned, by setting."""
        settings = [(*pair, True) for pair in itertools.product(self.forgetting, self.steps)]
        return [(1.0, 0.0, False), *settings] if self.frozen else settings

    def settings(self) -> Settings:
        forgetting, step, learns = map(np.array, zip(*self.rows, strict=True))
        return Settings(on_device(forgetting), on_device(step), on_device(learns.astype(float)))

    @property
    def names(self) -> list[str]:
        """The settings in words, for tables."""
        return [
            f"forgetting {rate:g}, step {step:g}" if learns else "frozen"
            for rate, step, learns in self.rows
        ]

    @property
    def start(self) -> Float[np.ndarray, " B"]:
        """The weights at the start; those that learn have equal ones."""
        count = len(self.forgetting) * len(self.steps)
        share = np.full(count, (1.0 - self.frozen) / count)
        return np.concatenate([[self.frozen], share]) if self.frozen else share


def shared(
    log_scores: Float[np.ndarray, "B T"],
    log_weights: Float[np.ndarray, " B"],
    bank: Bank,
) -> tuple[Float[np.ndarray, "B T"], Float[np.ndarray, " B"]]:
    """Log weights before each label, and after the last one.

    A score of NaN is that of a missing label, which changes nothing.
    """
    start = np.log(bank.start)
    stay = math.log1p(-bank.switch) if bank.switch < 1.0 else -math.inf
    move = math.log(bank.switch) if bank.switch > 0.0 else -math.inf
    before = np.empty(log_scores.shape)
    now = np.asarray(log_weights, np.float64)
    for t, scores in enumerate(log_scores.T):
        before[:, t] = now
        if np.isnan(scores).any():
            continue
        after = now + scores
        after = after - np.logaddexp.reduce(after)
        now = np.logaddexp(stay + after, move + start)
    return before, now
