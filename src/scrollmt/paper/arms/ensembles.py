"""Five runs from other starting values, their laws mixed: moments for the state, averaged
probabilities for the classes (`app:results`, ensembles)."""

from __future__ import annotations

from dataclasses import replace

from scrollmt._io.settings import MEMBER_STRIDE
from scrollmt.paper.arms import composition, weighted
from scrollmt.paper.arms.base import ARMS, register

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
