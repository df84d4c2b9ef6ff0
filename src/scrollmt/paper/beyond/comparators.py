"""The comparators that the paper lacks, in one arena with the arms that it has.

`scrollmt reproduce beyond --study comparators`. An arm joins by its name in `ARMS`. Every arm gets
the windows, splits and validation parts of the main comparison, on the first draw of each corpus.
"""

from __future__ import annotations

from scrollmt.paper.arms.combined import RULES
from scrollmt.paper.arms.foreign import FOREIGN
from scrollmt.paper.beyond.base import BeyondStudy
from scrollmt.paper.beyond.comparators_page import page

ROUTING = (
    "elbo-diag",
    "elbo-full",
    "ppgpr-diag",
    "ppgpr-full",
    "closed",
    "binding-map",
    "laplace-diag-probit",
    "laplace-full-probit",
)
WEIGHTING = (
    "map-probit",
    "map-probit-grid",
    "random-1",
    "random-7",
    "random-49",
    "kendall-probit",
    *(f"{rule}-probit" for rule in RULES),
    *(f"{rule}-scroll-diag" for rule in RULES),
)
STUDY = BeyondStudy(
    "comparators",
    "routings, loss weighting, gradient surgery, random search and foreign packages",
    ("scroll-diag", "scroll-full", "scroll-none", *ROUTING, *WEIGHTING, *FOREIGN),
    page,
)
