"""The comparators: each a composition of heads, beliefs, an objective and a selection rule.

An arm of your own joins every study and table:

    register(Arm("ridge-probit", "...", objective=my_objective))  # trained by the arena
    register(OwnArm("forest", "...", forecast=fit_and_predict))  # trains in its own way
"""

from scrollmt.paper.arms import (
    combined,
    composition,
    ensembles,
    event_bias,
    foreign,
    posterior,
    routes,
    weighted,
)
from scrollmt.paper.arms.base import ARMS, AbstractArm, Arm, get_arm, questions, register
from scrollmt.paper.arms.own import Fold, Forecasts, OwnArm

__all__ = [
    "ARMS",
    "AbstractArm",
    "Arm",
    "Fold",
    "Forecasts",
    "OwnArm",
    "combined",
    "composition",
    "ensembles",
    "event_bias",
    "foreign",
    "get_arm",
    "posterior",
    "questions",
    "register",
    "routes",
    "weighted",
]
