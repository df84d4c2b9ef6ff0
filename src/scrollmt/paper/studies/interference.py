"""The price of sharing: a head in the joint Diag model less the same head trained alone."""

from __future__ import annotations

from functools import partial

from scrollmt.paper.data.published import CORPORA
from scrollmt.paper.studies.base import Study, sweep
from scrollmt.paper.studies.evidence import (
    HEADS,
    Answer,
    Evidence,
    Measured,
    extent,
    largest,
    order,
)
from scrollmt.paper.tables.statistics import Estimate

JOINT = "scroll-diag"
ALONE = {head: f"alone-{head}" for head in HEADS}


def price(e: Evidence, *, corpus: str, head: str) -> Estimate:
    return e.less(HEADS[head], corpus, JOINT, ALONE[head])


def prices(e: Evidence, corpus: str, heads: tuple[str, ...] = tuple(HEADS)) -> dict[str, Estimate]:
    return {head: price(e, corpus=corpus, head=head) for head in heads}


def sharing_helps(e: Evidence) -> Measured:
    found = prices(e, "pm25", ("event", "regime"))
    return order(all(v.mean < 0.0 for v in found.values()), found)


# Nine claims in a row, corpus by corpus and head by head.
_CELLS = [(corpus, head) for corpus in CORPORA for head in HEADS]
ANSWERS: dict[str, Answer] = {
    f"C{175 + n}": partial(price, corpus=corpus, head=head)
    for n, (corpus, head) in enumerate(_CELLS)
}
ANSWERS |= {
    "C184": lambda e: largest(prices(e, "ou")),
    "C185": lambda e: extent(prices(e, "lorenz63", ("state", "regime"))),
    "C186": sharing_helps,
}
STUDY = Study(
    "interference",
    "each head in the joint model against the head alone",
    [partial(sweep, CORPORA, [JOINT, *ALONE.values()])],
    ANSWERS,
)
