"""Five runs from other starting values, their laws mixed: moments for the state, averaged
probabilities for the classes (`app:results`, ensembles)."""

from __future__ import annotations

from dataclasses import replace

from scrollmt.arms import composition, weighted
from scrollmt.arms.base import ARMS, register
from scrollmt.settings import MEMBER_STRIDE

__all__ = ["MEMBERS", "MEMBER_STRIDE"]

MEMBERS = 5

# The families of the other files, which have to be registered first.
_FAMILIES = (composition, weighted)

for name in ("scroll-diag", "map-ce", "map-probit"):
    arm = ARMS[name]
    register(
        replace(
            arm, name=f"{name}-ens5", summary=f"five runs mixed: {arm.summary}", members=MEMBERS
        )
    )
