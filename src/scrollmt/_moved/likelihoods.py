"""Moved: heads to `scrollmt.heads`, their laws to `scrollmt.laws`."""

import warnings

from scrollmt._io.moved import alias
from scrollmt.heads import Censored, Count, Poisson, StudentT
from scrollmt.laws import CensoredLaw, CountLaw, StudentTLaw

__all__ = [
    "Censored",
    "CensoredLaw",
    "Count",
    "CountLaw",
    "Poisson",
    "StudentT",
    "StudentTLaw",
]

# The modules of these heads import their laws, so that both are found there as before.
for name in ("censored", "counts", "student"):
    alias(f"{__name__}.{name}", f"scrollmt.heads.{name}")
alias(f"{__name__}.count_law", "scrollmt.laws.counts")
warnings.warn(
    f"{__name__} has moved to scrollmt.heads and scrollmt.laws; the old name goes with version 0.3",
    DeprecationWarning,
    stacklevel=2,
)
