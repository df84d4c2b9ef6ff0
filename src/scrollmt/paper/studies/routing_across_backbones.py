"""Four routes of the state head on four backbones: state NLL, tracking, flatness."""

from __future__ import annotations

from functools import partial

from scrollmt.backbone import PAPER_BACKBONES
from scrollmt.paper.studies.base import Study, sweep
from scrollmt.paper.studies.evidence import (
    Evidence,
    Measured,
    each,
    extent,
    largest,
    order,
    size,
    spread,
    table_cells,
)
from scrollmt.paper.studies.kernel_recovery import true_sd
from scrollmt.paper.tables.statistics import Estimate

ROUTES = {"none": "scroll-none", "closed": "closed", "diag": "scroll-diag", "full": "scroll-full"}


def routing_cells(e: Evidence, *, id: str, column: str, routes: tuple[str, ...]) -> Measured:
    """Every cell of one column of the routing table."""

    def ours(metric: str, corpus: str, row: tuple[str, str]) -> float:
        backbone, route = row
        return e.mean(column, "lorenz63", ROUTES[route], backbone).mean

    return table_cells(id, [(b, route) for b in PAPER_BACKBONES for route in routes], ours)


def selects(e: Evidence, *, arm: str, backbone: str) -> Measured:
    """Seeds at which validation gives an arm this backbone."""
    chosen = e.runs("lorenz63", arm)["backbone"]
    counts = ", ".join(f"{name} {n}" for name, n in chosen.value_counts().items())
    return Measured(int((chosen == backbone).sum()), total=len(chosen), note=counts)


def behind_closed(e: Evidence, *, arm: str, backbone: str) -> Estimate:
    """State NLL of the closed route less that of an arm."""
    return e.less("reg_nll", "lorenz63", "closed", arm, backbone)


def by_backbone(e: Evidence, column: str, corpus: str, arm: str) -> dict[str, Estimate]:
    return {b: e.mean(column, corpus, arm, b) for b in PAPER_BACKBONES}


def full_beats_closed(e: Evidence) -> Measured:
    return extent({b: behind_closed(e, arm="scroll-full", backbone=b) for b in PAPER_BACKBONES})


def closed_does_not_track(e: Evidence) -> Measured:
    found = by_backbone(e, "pearson", "lorenz63", "closed")
    return largest({b: size(v) for b, v in found.items()})


def tracking_needs_norm(e: Evidence) -> Measured:
    found = {b: e.mean("pearson", "lorenz63", "scroll-diag", b) for b in ("tanh", "tanh+ln")}
    return order(found["tanh"].mean < found["tanh+ln"].mean, found)


def routes_tie(e: Evidence) -> Measured:
    ranges = [spread(e.means("reg_nll", "ou", ROUTES.values(), b), b) for b in PAPER_BACKBONES]
    return max(ranges, key=lambda m: m.value)


def sd_ratio(e: Evidence, arm: str, backbone: str, column: str = "mean_sd") -> Estimate:
    found = e.mean(column, "ou", arm, backbone)
    truth = true_sd(0.5)
    return Estimate(found.mean / truth, found.se / truth, found.count)


def belief_adds_spread(e: Evidence) -> Measured:
    found = {}
    for backbone in PAPER_BACKBONES:
        for arm in ("scroll-diag", "scroll-full"):
            gap = e.less("mean_sd", "ou", arm, "scroll-none", backbone)
            found[f"{arm}, {backbone}"] = Estimate(
                abs(gap.mean) / true_sd(0.5), gap.se / true_sd(0.5), gap.count
            )
    return largest(found)


def noise_ratios(e: Evidence, *, backbones: tuple[str, ...]) -> Measured:
    return each({b: sd_ratio(e, "scroll-none", b, "sigma_obs") for b in backbones})


STUDY = Study(
    "routing-across-backbones",
    "four routes of the state head on four backbones",
    [partial(sweep, ["lorenz63", "ou"], ROUTES.values())],
    {
        "C128": partial(routing_cells, id="C128", column="reg_nll", routes=tuple(ROUTES)),
        "C129": partial(
            routing_cells, id="C129", column="pearson", routes=("closed", "diag", "full")
        ),
        "C130": partial(selects, arm="scroll-diag", backbone="tanh+ln"),
        "C131": partial(selects, arm="scroll-full", backbone="tanh"),
        "C132": full_beats_closed,
        "C133": partial(behind_closed, arm="scroll-diag", backbone="relu+ln"),
        "C134": partial(behind_closed, arm="scroll-diag", backbone="tanh+ln"),
        "C135": partial(behind_closed, arm="scroll-diag", backbone="relu"),
        "C136": partial(behind_closed, arm="scroll-diag", backbone="tanh"),
        "C137": lambda e: largest(
            {b: e.var_range("lorenz63", "closed", b) for b in PAPER_BACKBONES}
        ),
        "C138": closed_does_not_track,
        "C139": lambda e: e.var_range("lorenz63", "scroll-diag", "tanh+ln"),
        "C140": lambda e: e.var_range("lorenz63", "scroll-diag", "tanh"),
        "C141": tracking_needs_norm,
        "C142": routes_tie,
        "C143": belief_adds_spread,
        "C144": partial(noise_ratios, backbones=("relu", "tanh", "tanh+ln")),
        "C145": partial(noise_ratios, backbones=("relu+ln",)),
    },
)
