"""The state belief tied to the posterior while its score stays: is it the closed route again?"""

from __future__ import annotations

from functools import partial

from scrollmt.backbone import PAPER_BACKBONES
from scrollmt.paper.jobs import Job
from scrollmt.paper.protocol import Protocol
from scrollmt.paper.studies.base import study, sweep
from scrollmt.paper.studies.evidence import Evidence, Measured, answered, each, largest, size

NAME = "binding-map-only"
ARM, REFERENCE = "binding-map", "closed"


def apart(e: Evidence, *, corpus: str) -> Measured:
    """The largest difference of the two arms' state NLLs over backbones."""
    found = {b: e.less("reg_nll", corpus, ARM, REFERENCE, b) for b in PAPER_BACKBONES}
    return largest({b: size(v) for b, v in found.items()})


def jobs(protocol: Protocol) -> list[Job]:
    return sweep(["lorenz63", "ou"], [ARM, REFERENCE], protocol)


study(NAME, "the binding map alone against the closed route", jobs)(
    answered(
        NAME,
        {
            "C146": partial(apart, corpus="lorenz63"),
            "C147": partial(apart, corpus="ou"),
            "C148": lambda e: each({b: e.var_range("lorenz63", ARM, b) for b in PAPER_BACKBONES}),
        },
    )
)
