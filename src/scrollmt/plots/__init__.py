"""Pictures, one function each: every function takes `ax=` and returns the axes.

Without `ax` a picture gets a new figure of its own, `ax.figure`; no picture touches pyplot.
matplotlib is imported on the first call, so that the library loads without it.
"""

from scrollmt.plots.alone import compare_alone, interference
from scrollmt.plots.calibration import (
    coverage,
    pit,
    pit_histogram,
    reliability,
    spread_error,
)
from scrollmt.plots.inside import (
    effective_weight,
    effective_weights,
    precisions,
    training,
    variance_split,
)
from scrollmt.plots.leads import fan, over_leads
from scrollmt.plots.outcomes import agreement, confusion, forecasts, regimes
from scrollmt.plots.truth import predictive_sd, sd_over_leads, variance_tracking
from scrollmt.scores import pit_bounds

__all__ = [
    "agreement",
    "compare_alone",
    "confusion",
    "coverage",
    "effective_weight",
    "effective_weights",
    "fan",
    "forecasts",
    "interference",
    "over_leads",
    "pit",
    "pit_bounds",
    "pit_histogram",
    "precisions",
    "predictive_sd",
    "regimes",
    "reliability",
    "sd_over_leads",
    "spread_error",
    "training",
    "variance_split",
    "variance_tracking",
]
