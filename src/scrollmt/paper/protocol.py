"""The paper's protocol as one frozen value (`app:details`).

What the paper leaves open is decided here, once; docs/results/open-choices.md gives the
evidence for each choice.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from scrollmt.beliefs import Start
from scrollmt.fit import Schedule
from scrollmt.presets import PAPER

NOISES = ("one", "targets")
# Fields that came after the first records, which were computed at these values: with them they
# are no part of a key, so that the keys of those records still hold.
_OF_FIRST_RECORDS = {
    "penalty_beside_means": 2.0,
    "initial_precision": 1.0,
    "initial_noise": "one",
}


@dataclass(frozen=True)
class Protocol:
    """Every constant that all arms share. Seeds are numbered as the ensembles number them.

    - `penalty_beside_means`: by how much the penalty on the backbone counts beside mean losses.
      The paper writes half the squared norm for every objective, which is 1.
    - `initial_noise`: the sd of a Gaussian head's noise starts at one, or at the sd of the
      training targets.
    """

    seeds: tuple[int, ...] = tuple(range(5, 15))
    learning_rate: float = 0.03
    backbone_l2: float = 0.01
    cov_floor: float = PAPER.cov_floor
    initial_mu: float = PAPER.begin.mu
    initial_log_sd: float = PAPER.begin.log_sd
    initial_uniform: bool = PAPER.begin.uniform
    steps: int = PAPER.schedule.steps
    eval_every: int = PAPER.schedule.eval_every
    patience: int = PAPER.schedule.patience
    corpus_seed: int = 0
    corpus_windows: int = 6500
    truth_members: int = 200
    # Raised by hand whenever a change of the code changes results beyond rounding.
    revision: int = 1
    penalty_beside_means: float = 2.0
    initial_precision: float = PAPER.begin.prior_precision
    initial_noise: str = "one"

    def __post_init__(self) -> None:
        if self.initial_noise not in NOISES:
            raise ValueError(
                f"unknown initial_noise {self.initial_noise!r}; choose from {', '.join(NOISES)}"
            )
        self.start()

    def schedule(self) -> Schedule:
        return Schedule(steps=self.steps, eval_every=self.eval_every, patience=self.patience)

    def start(self) -> Start:
        return Start(
            self.initial_mu,
            self.initial_log_sd,
            self.initial_uniform,
            prior_precision=self.initial_precision,
        )

    def determinants(self) -> dict[str, Any]:
        """What determines one seed's result; the number of seeds does not."""
        values = asdict(self)
        del values["seeds"]
        for name, first in _OF_FIRST_RECORDS.items():
            if values[name] == first:
                del values[name]
        return values


PROTOCOL = Protocol()
LEADS = {"ou": (0.1, 0.25, 0.5, 1.0, 2.0), "lorenz63": (0.1, 0.25, 0.5, 1.0)}
# The arms differ by less on OU than one draw of it does from another, so it is drawn four times.
DRAWS = {"ou": 4}
TARGET_SCALES = (0.125, 0.5, 1.0, 2.0, 8.0)
ORIGINS = 5


def draws_of(corpus: str) -> list[str]:
    """The ids of all draws of a corpus that the studies train on, the first being its own."""
    return [corpus, *(f"{corpus}~{k}" for k in range(1, DRAWS.get(corpus, 1)))]
