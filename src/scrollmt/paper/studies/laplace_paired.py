"""Composed beliefs against curvature beliefs, backbone by backbone."""

from __future__ import annotations

from functools import partial

from scrollmt.backbone import PAPER_BACKBONES
from scrollmt.paper.data.published import CORPORA
from scrollmt.paper.studies.base import Study, sweep
from scrollmt.paper.studies.evidence import (
    Evidence,
    Measured,
    each,
    extent,
    largest,
    order,
    size,
)
from scrollmt.paper.tables.statistics import Estimate

FAMILIES = ("diag", "full")
PAIRS = tuple(arm for f in FAMILIES for arm in (f"scroll-{f}", f"laplace-{f}-probit"))


def behind(e: Evidence, corpus: str, family: str) -> dict[str, Estimate]:
    """State NLL of Laplace less that of the composed fit, by backbone."""
    return {
        b: e.less("reg_nll", corpus, f"laplace-{family}-probit", f"scroll-{family}", b)
        for b in PAPER_BACKBONES
    }


def behind_from_to(e: Evidence, *, corpus: str, family: str) -> Measured:
    return extent(behind(e, corpus, family))


def tie_on_ou(e: Evidence) -> Measured:
    found = {
        f"{family}, {b}": size(v) for family in FAMILIES for b, v in behind(e, "ou", family).items()
    }
    return largest(found)


def ahead_on_one(e: Evidence) -> Measured:
    found = behind(e, "pm25", "diag")
    where = [b for b, v in found.items() if v.mean < 0.0]
    return order(where == ["tanh+ln"], found, "Laplace less scroll-diag")


def curvature_changes_nothing(e: Evidence) -> Measured:
    arms = [f"laplace-{family}-probit" for family in FAMILIES]
    found = {arm: size(e.less("reg_nll", "lorenz63", arm, "map-probit")) for arm in arms}
    return largest(found)


def selected(e: Evidence) -> Measured:
    arms = ("laplace-diag-probit", "scroll-diag")
    return each({corpus: e.less("reg_nll", corpus, *arms) for corpus in CORPORA})


STUDY = Study(
    "laplace-paired",
    "composed against curvature beliefs, paired by backbone",
    [partial(sweep, CORPORA, PAIRS), partial(sweep, ["lorenz63"], ["map-probit"])],
    {
        "C163": tie_on_ou,
        "C164": partial(behind_from_to, corpus="lorenz63", family="diag"),
        "C165": partial(behind_from_to, corpus="lorenz63", family="full"),
        "C166": partial(behind_from_to, corpus="pm25", family="full"),
        "C167": partial(behind_from_to, corpus="pm25", family="diag"),
        "C168": ahead_on_one,
        "C169": curvature_changes_nothing,
        "C170": selected,
    },
)
