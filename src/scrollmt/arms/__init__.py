"""The comparators: each a composition of heads, beliefs, an objective and a selection rule.

An arm of your own joins every study and table:

    register(Arm("ridge-probit", "...", objective=my_objective))
"""

from scrollmt.arms import composition, ensembles, posterior, weighted
from scrollmt.arms.base import ARMS, Arm, get_arm, questions, register

__all__ = [
    "ARMS",
    "Arm",
    "composition",
    "ensembles",
    "get_arm",
    "posterior",
    "questions",
    "register",
    "weighted",
]
