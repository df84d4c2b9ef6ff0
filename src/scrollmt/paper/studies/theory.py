"""The paper's identities, each evaluated on a small random problem in double precision.

Nothing is trained and nothing recorded: a value is the largest difference between what the
library computes and the other side of the identity, written out beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

import jax

from scrollmt.paper.studies import theory_laws as laws
from scrollmt.paper.studies import theory_objective as objective
from scrollmt.paper.studies.base import Study
from scrollmt.paper.studies.evidence import Answer, Evidence, Measured


def in_double(answer: Callable[[], Measured | float]) -> Answer:
    """An answer that asks for no records, in double precision."""

    @wraps(answer)
    def evaluated(e: Evidence) -> Measured | float:
        with jax.enable_x64(True):
            return answer()

    return evaluated


_IDENTITIES: dict[str, Callable[[], Measured | float]] = {
    "C246": objective.composition,
    "C247": laws.quadrature,
    "C248": objective.best_variance,
    "C249": objective.implicit_weight,
    "C250": objective.scale_map,
    "C251": objective.scale_map_of_the_backbone,
    "C252": objective.raw_weights,
    "C253": objective.inert_weights,
    "C254": laws.two_buckets,
    "C255": laws.overlap,
    "C256": laws.closed_covariance,
    "C257": laws.closed_mean,
    "C258": laws.bethe,
    "C259": laws.split_of_the_variance,
    "C260": laws.feature_scale,
    "C261": objective.no_lower_bound,
    "C262": objective.share_of_the_prior,
    "C263": objective.task_listed_twice,
}
STUDY = Study(
    "theory",
    "the paper's identities, evaluated in double precision",
    [],
    {id: in_double(answer) for id, answer in _IDENTITIES.items()},
)
