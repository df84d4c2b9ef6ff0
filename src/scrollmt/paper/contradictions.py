"""Where the paper disagrees with itself, and how a measurement takes a side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from scrollmt.paper.verdicts import Finding

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
    """One side calls a difference a tie; it is one within so many of its standard errors."""

    def side(finding: Finding) -> str:
        if not finding.uncertainty or not np.isfinite(finding.uncertainty[0]):
            return "without a standard error and so on neither side"
        wide = abs(finding.numbers[0]) / finding.uncertainty[0]
        return f"{wide:.1f} standard errors and so on the side of {apart if wide > errors else tie}"

    return side


_PEARSON = Contradiction(
    "Pearson r of Full is 0.85 in the body, beside a figure on tanh+ln, and 0.81 on tanh+ln in the "
    "appendix",
    nearer({"the body's 0.85": 0.85, "the appendix's 0.81": 0.81}),
)
_EVENT_TIE = by_verdict("the text, a tie", "the table, where the arm has no mark")
CONTRADICTIONS: dict[str, Contradiction] = {
    "C019": Contradiction(
        "the abstract gives the method the best regime NLL on Lorenz, which the table gives to "
        "Full and not to Diag, the declared default",
        by_verdict("Full alone", "neither"),
    ),
    "C028": Contradiction(
        "Diag is within 0.01 nats of the tuned grid on OU in the text, 0.011 in the table's sums",
        by_size(0.01, "the text", "the table"),
    ),
    "C035": Contradiction(
        "Full ties the fair CE grid on the Lorenz event in the text, but has no mark in the table",
        _EVENT_TIE,
    ),
    "C046": Contradiction(
        "no arm is told apart on the PM2.5 event in the text, but Diag has no mark in the table",
        _EVENT_TIE,
    ),
    "C077": Contradiction(
        "the event weights chosen on raw targets are scattered, though the corner chosen on "
        "standardised ones is, by its own scale argument, beyond the upper edge of the raw grid",
        by_verdict("scattered weights", "the scale argument"),
    ),
    "C079": Contradiction(
        "the 61-fold change is one of 1/(2 V_n) in one place and of sigma_obs^2 in another",
        by_verdict("1/(2 V_n)", "no factor near 61 in 1/(2 V_n)"),
    ),
    "C101": Contradiction(
        "the predictive sd on OU is within 2 percent at every lead, yet the routes' 0.812 at lead "
        "0.5 is 2.1 percent over the true sd",
        by_size(0.02, "2 percent or less", "more than 2 percent"),
    ),
    "C107": Contradiction(
        "the five routes have 1.202 to 1.203 on OU in the appendix, 1.204 and 1.205 in the tables",
        nearer({"the appendix": 1.2025, "the tables": 1.2045}),
    ),
    "C114": _PEARSON,
    "C115": _PEARSON,
    "C118": Contradiction(
        "the rank correlation of Full is 0.66 in the body and 0.65 in the appendix",
        nearer({"the body": 0.66, "the appendix": 0.65}),
    ),
    "C119": Contradiction(
        "closed-route variances never track the truth, yet their ranks correlate at 0.41",
        by_size(0.2, "no tracking", "ranks that do track"),
    ),
    "C131": Contradiction(
        "Full has 2.230 in the main tables and 2.238 on tanh, which it selects at every seed, so "
        "that the two should be equal",
        by_size(9, "the two numbers: some seeds select another backbone", "the text: tanh always"),
    ),
    "C135": Contradiction(
        "Diag ties the closed route on relu, at a difference of 3.7 of the printed errors",
        by_error("the text, a tie", "the numbers, no tie"),
    ),
    "C154": Contradiction(
        "learned weights have 2.79 in the layer-norm paragraph, 2.798 and 2.810 in the tables",
        nearer({"the paragraph": 2.79, "the tables": 2.804}),
    ),
    "C155": Contradiction(
        "an sd head has coverage error 0.012 in the layer-norm paragraph, 0.016 and 0.017 in the "
        "tables",
        nearer({"the paragraph": 0.012, "the tables": 0.0165}),
    ),
    "C162": Contradiction(
        "Full is no worse than the fair CE grid on every head in the text, but has no mark on the "
        "Lorenz event in the table",
        by_verdict("the text", "the table"),
    ),
    "C168": Contradiction(
        "Diag is behind Laplace on tanh+ln alone and that is put down to a limit which concerns "
        "backbones without layer norm",
        by_verdict("tanh+ln alone", "another set of backbones"),
    ),
    "C176": Contradiction(
        "sharing is free on OU in the text, while the event pays 0.004 at an error of 0.001",
        by_error("the text, free", "the numbers, a price"),
    ),
    "C186": Contradiction(
        "sharing costs nothing on PM2.5 in the body and pays on both class heads in the appendix",
        by_verdict("the appendix", "the body or worse"),
    ),
    "C207": Contradiction(
        "the text speaks of every head, and the table has no event column; ours has all three",
        by_verdict("the text", "heads that do differ"),
    ),
    "C214": Contradiction(
        "a precision of 0.01 costs or gains at most 0.01 nats in the text, and gains 0.014 on the "
        "Lorenz regime in the table",
        by_verdict("a frozen value that costs nothing", "a frozen value that costs"),
    ),
    "C218": Contradiction(
        "the smallest noise sd on OU at lead 0.1 is 0.19, yet it is within 4 percent of 0.426, the "
        "true sd, at every lead",
        nearer({"0.19": 0.19, "0.426, the true sd": 0.426}),
    ),
}
