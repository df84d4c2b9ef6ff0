"""The state belief tied to the posterior while its score stays: is it the closed route again?"""

from __future__ import annotations

from functools import partial

from scrollmt.backbone import PAPER_BACKBONES
from scrollmt.paper.studies.base import Study, sweep
from scrollmt.paper.studies.evidence import Evidence, Measured, each, largest, size

ARM, REFERENCE = "binding-map", "closed"


def apart(e: Evidence, *, corpus: str) -> Measured:
    """The largest difference of the two arms' state NLLs over backbones."""
    found = {b: e.less("reg_nll", corpus, ARM, REFERENCE, b) for b in PAPER_BACKBONES}
    return largest({b: size(v) for b, v in found.items()})


STUDY = Study(
    "binding-map-only",
    "the binding map alone against the closed route",
    [partial(sweep, ["lorenz63", "ou"], [ARM, REFERENCE])],
    {
        "C146": partial(apart, corpus="lorenz63"),
        "C147": partial(apart, corpus="ou"),
        "C148": lambda e: each({b: e.var_range("lorenz63", ARM, b) for b in PAPER_BACKBONES}),
    },
)
