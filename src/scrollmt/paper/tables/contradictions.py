"""Where the paper disagrees with itself, and which of its statements a measurement supports.

The statements are in `data/contradictions.toml`; each names one of the rules below.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from scrollmt.paper.data import published
from scrollmt.paper.tables.verdicts import Finding

Side = Callable[[Finding], str]


@dataclass(frozen=True)
class Contradiction:
    """Two statements of the paper about one quantity, and which of them a finding supports."""

    about: str
    side: Side

    def told(self, finding: Finding) -> str:
        """The contradiction in words, with the side that ours is on where there is a value."""
        ours = f" Ours is {self.side(finding)}." if finding.numbers else ""
        return f"In the paper {self.about}.{ours}"


def nearer(sides: Mapping[str, float]) -> Side:
    """The side whose number is nearest to the middle of ours."""

    def side(finding: Finding) -> str:
        ours = 0.5 * (min(finding.numbers) + max(finding.numbers))
        name = min(sides, key=lambda s: abs(sides[s] - ours))
        return f"nearer to {name}"

    return side


def by_verdict(holds: str, differs: str) -> Side:
    """The claim itself is one side: where it holds, ours is on it."""
    return lambda finding: f"on the side of {holds if finding.verdict == 'holds' else differs}"


def by_size(limit: float, within: str, beyond: str) -> Side:
    """One side sets a limit to the size of a value, the other is beyond it."""

    def side(finding: Finding) -> str:
        inside = max(abs(v) for v in finding.numbers) <= limit
        return f"on the side of {within if inside else beyond}"

    return side


def by_error(tie: str, apart: str, errors: float = 2.0) -> Side:
    """One side calls a difference a tie: one within so many of its standard errors."""

    def side(finding: Finding) -> str:
        if not finding.uncertainty or not np.isfinite(finding.uncertainty[0]):
            return "without a standard error and so on neither side"
        wide = abs(finding.numbers[0]) / finding.uncertainty[0]
        return f"{wide:.1f} standard errors and so on the side of {apart if wide > errors else tie}"

    return side


RULES: dict[str, Callable[..., Side]] = {
    rule.__name__: rule for rule in (nearer, by_verdict, by_size, by_error)
}


def _read() -> dict[str, Contradiction]:
    found: dict[str, Contradiction] = {}
    for entry in published.words("contradictions")["contradiction"]:
        claims, about, rule = (entry.pop(name) for name in ("claims", "about", "rule"))
        found |= dict.fromkeys(claims, Contradiction(about, RULES[rule](**entry)))
    return found


CONTRADICTIONS = _read()
