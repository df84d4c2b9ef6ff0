"""Whether a difference has the sign and the significance that the paper gives it.

A tolerance of the ledger can hold a difference of the other sign. So the claims that are
differences are judged a second time, against zero, by a two-sided t-test at 0.05 over seeds or
origins:

- Where the paper prints a figure with its error, both must agree in whether they are told apart
  from zero. The sign must agree too, unless the paper's figure is within its own error.
- Where it prints no error but says who is ahead (`data/signs.csv`), ours must have that sign, and
  be told apart from zero.

Expectations: `+` and `-` are differences told apart from zero, `(+)` and `(-)` have this sign and
are not told apart, `0` is not told apart, `.` is not judged. `majority` wants a count above half.
"""

from __future__ import annotations

import math
import re
from typing import Literal

import numpy as np
from scipy.stats import t as student

from scrollmt.paper.data import published
from scrollmt.paper.data.published import Claim
from scrollmt.paper.tables.statistics import LEVEL
from scrollmt.paper.tables.verdicts import Finding, target

Sign = Literal["reproduced", "not reproduced", ""]
MAJORITY, UNJUDGED = "majority", "."
# Of the paper's errors: over its seeds, or between its rolling origins.
_PAPER_SEEDS, _PAPER_ORIGINS = 10, 5


def expected(claim: Claim) -> tuple[str, ...]:
    """What the paper has for each number of a claim; empty where it is no difference."""
    printed = re.match(r"[\d.]+", claim.paper_uncertainty)
    if printed is None:
        return tuple(filter(None, published.signs().get(claim.id, "").split(";")))
    error = float(printed[0])
    (value,) = target(claim).numbers
    if abs(value) <= error:
        return ("0",)
    over = _PAPER_ORIGINS if "origins" in claim.paper_uncertainty else _PAPER_SEEDS
    sign = "+" if value > 0.0 else "-"
    return (sign if told_apart(value, error, over) else f"({sign})",)


def told_apart(value: float, error: float, count: int) -> bool:
    """Whether a mean of `count` values differs from zero at the level of the tests."""
    if count < 2 or not math.isfinite(error):
        return False
    if error == 0.0:
        return value != 0.0
    return bool(2.0 * student.sf(abs(value) / error, count - 1) < LEVEL)


def sign_of(finding: Finding) -> Sign:
    """Whether a finding has the paper's sign and significance, where that can be said."""
    claim = published.claim(finding.claim)
    wanted = expected(claim)
    if not wanted or not finding.numbers or finding.verdict == "not checkable":
        return ""
    if wanted == (MAJORITY,):
        total = target(claim).total
        assert total is not None
        return _said(all(2.0 * number > total for number in finding.numbers))
    if len(wanted) == 1:
        # Several of ours beside one figure of the paper.
        wanted *= len(finding.numbers)
    if len(wanted) != len(finding.numbers) or len(finding.uncertainty) != len(wanted):
        raise ValueError(
            f"{claim.id}: {len(wanted)} signs are expected ({'; '.join(wanted)}), got "
            f"{len(finding.numbers)} numbers and {len(finding.uncertainty)} errors"
        )
    each = zip(wanted, finding.numbers, finding.uncertainty, strict=True)
    return _said(all(_agrees(*one, finding.sample.size) for one in each))


def _agrees(wanted: str, value: float, error: float, count: int) -> bool:
    if wanted == UNJUDGED:
        return True
    apart = told_apart(value, error, count)
    if wanted == "0":
        return not apart
    return apart == ("(" not in wanted) and bool(np.sign(value) == (1 if "+" in wanted else -1))


def _said(agreed: bool) -> Sign:
    return "reproduced" if agreed else "not reproduced"
