r"""Rules that make one gradient of the gradients of several tasks: loss weighting and surgery.

$$g_\text{shared} = \sum_k w_k\, \nabla_\text{shared} L_k, \qquad \textstyle\sum_k w_k = K
  \text{ for equal gradients}$$

`fit(combine=rule)` asks a rule in every step. A rule is a function
`combine(gradients, losses, hyper, key)`, or an object with a state in the manner of Optax:
`init(names) -> state` and `update(gradients, losses, state, hyper, key) -> (gradient, state)`.

Every rule of this file is a choice of the weights $w$. Surgery (`PCGrad`, `UPGrad`, `MGDA`) finds
them from the inner products of the tasks' gradients in the parameters that the tasks share, and
acts on these alone: each head's own parameters get the gradient of their own task as it is. That
is not the same as the rule on the whole vector: the gradients of the other tasks are zero there,
but the task's own gradient is not, and it would enter the lengths that the rule divides by. Loss
weighting (`GradNorm`, `RandomWeighting`, `UncertaintyWeighting`, `DynamicAverage`) multiplies a
task's loss, so its weight counts for the head's own parameters too.

All have the scale of the sum: where the tasks' gradients are equal, the result is their sum, as it
is without a rule. `MGDA` and `UPGrad` are therefore K times what is often written, a convex
combination and a mean.
"""

from scrollmt.combining.base import AbstractRule, Combine, Rule, backbone_of
from scrollmt.combining.surgery import MGDA, PCGrad, UPGrad
from scrollmt.combining.weighting import (
    DynamicAverage,
    GradNorm,
    RandomWeighting,
    UncertaintyWeighting,
    log_ratio,
    nats,
)

__all__ = [
    "MGDA",
    "AbstractRule",
    "Combine",
    "DynamicAverage",
    "GradNorm",
    "PCGrad",
    "RandomWeighting",
    "Rule",
    "UPGrad",
    "UncertaintyWeighting",
    "backbone_of",
    "log_ratio",
    "nats",
]
