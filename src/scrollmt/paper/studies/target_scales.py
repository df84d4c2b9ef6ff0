"""Lorenz with the state target times c, backbones fixed: who depends on the unit."""

from __future__ import annotations

from functools import partial

from scrollmt.paper.protocol import TARGET_SCALES
from scrollmt.paper.studies.base import Study, sweep
from scrollmt.paper.studies.evidence import TOTAL, Evidence, Measured, extent

# At c = 1 the runs are those of the headline corpus.
CORPORA = {c: "lorenz63" if c == 1.0 else f"lorenz63*{c:g}" for c in TARGET_SCALES}
BACKBONES = ("tanh", "tanh+ln")


def margins(e: Evidence, *, arm: str, backbones: tuple[str, ...]) -> Measured:
    """An arm's total less that of the fair CE grid: the smallest and the largest over scales."""
    return extent(
        {
            f"c = {c:g}, {backbone}": e.less(TOTAL, corpus, arm, "map-ce-grid", backbone)
            for c, corpus in CORPORA.items()
            for backbone in backbones
        }
    )


STUDY = Study(
    "target-scales",
    "Lorenz targets times c on fixed backbones",
    [
        partial(
            sweep,
            CORPORA.values(),
            ["scroll-diag", "scroll-full", "map-ce-grid"],
            backbones=BACKBONES,
        )
    ],
    {
        "C088": partial(margins, arm="scroll-diag", backbones=("tanh+ln",)),
        "C089": partial(margins, arm="scroll-full", backbones=BACKBONES),
        "C090": partial(margins, arm="scroll-diag", backbones=("tanh",)),
    },
)
