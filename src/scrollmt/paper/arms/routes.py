"""Beliefs trained with a KL: the heads, features and prior of `scroll-diag` and `scroll-full`.

`elbo-*` minimise minus the evidence lower bound, as a variational last layer does; `ppgpr-*` keep
the log score and take the KL in the place of the overlap. The paper has neither.
"""

from __future__ import annotations

from scrollmt.paper.arms.base import Arm, register
from scrollmt.routing import elbo_objective, ppgpr_objective

for family, words in (("diag", "diagonal"), ("full", "unrestricted")):
    register(
        Arm(
            f"elbo-{family}",
            f"evidence lower bound, {words} beliefs",
            belief=family,
            objective=elbo_objective,
            any_tasks=True,
        )
    )
    register(
        Arm(
            f"ppgpr-{family}",
            f"log score with the KL to the prior, {words} beliefs",
            belief=family,
            objective=ppgpr_objective,
            any_tasks=True,
        )
    )
