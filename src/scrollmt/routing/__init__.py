"""How a task's belief comes about: trained on forecasts, set in closed form, or variationally.

The paper trains beliefs on the log score of their forecasts (`free`). Its comparators set them in
closed form: `posteriors` at each step, for Gaussian tasks; `curvatures` after training, for heads
of one line. `variational` has the objectives with a KL, `choices` all of them by name.
"""

from scrollmt.routing.choices import (
    FREE,
    LAPLACE_PRECISIONS,
    ROUTINGS,
    Routing,
    read_routing,
)
from scrollmt.routing.curvatures import curvature, laplace
from scrollmt.routing.posteriors import (
    Bound,
    Fixed,
    bind,
    bindable,
    evidence_composed,
    log_evidence,
    posterior,
)
from scrollmt.routing.variational import (
    elbo,
    elbo_objective,
    expected_terms,
    kl_term,
    ppgpr,
    ppgpr_objective,
)

__all__ = [
    "FREE",
    "LAPLACE_PRECISIONS",
    "ROUTINGS",
    "Bound",
    "Fixed",
    "Routing",
    "bind",
    "bindable",
    "curvature",
    "elbo",
    "elbo_objective",
    "evidence_composed",
    "expected_terms",
    "kl_term",
    "laplace",
    "log_evidence",
    "posterior",
    "ppgpr",
    "ppgpr_objective",
    "read_routing",
    "trained_leaves",
]


# Here, and not beside `Bound`: records of the paper's arms know it by the name of this module.
def trained_leaves(bound: Bound) -> Bound:
    """Which leaves training moves: those of the model, without the bound tasks' own beliefs."""
    return bound.trained()
