"""Do the answers agree? Events and bands beside the laws of the values that they are about."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from scrollmt import agreement, plots
from scrollmt.agreement import FAR, Agreement
from scrollmt.report import pages
from scrollmt.report.assessment import Assessment
from scrollmt.report.gallery import CLOUD, WORST, when
from scrollmt.report.groups import Group, ahead
from scrollmt.report.pages import Html, Section

NOTE = (
    "Every question has a law of its own. An event or a band asks about a quantity that a value "
    "question asks about too, so that its probability can be read off the value's law as well. "
    "Where the two differ much, at least one of them is wrong."
)


def section(assessment: Assessment, groups: Sequence[Group]) -> Section | None:
    """The section, or None where no two questions are about the same quantity."""
    if assessment.recipe is None:
        return None
    question = {task: group.name for group in groups for task in group.tasks}
    pairs: dict[tuple[str, str], list[Agreement]] = {}
    for one in agreement.compare(assessment.laws, assessment.recipe.tasks):
        pairs.setdefault((question[one.about], question[one.value]), []).append(one)
    if not pairs:
        return None
    said = pages.bullets(_sentence(assessment, pair, found) for pair, found in pairs.items())
    figures = pages.pictures(_picture(pair, found) for pair, found in pairs.items())
    rows = pd.concat(
        [_worst(assessment, pair, found) for pair, found in pairs.items()], ignore_index=True
    )
    table = pages.table(
        rows,
        caption=f"The {WORST} windows of each pair that differ most, with both probabilities",
        digits=2,
        search=True,
        filters=["event or band", "value"],
    )
    body = pages.paragraph(NOTE) + said + figures + table
    return Section("Do the answers agree?", body)


def _gaps(found: Sequence[Agreement]) -> np.ndarray:
    """Absolute differences of one pair of questions at all leads."""
    return np.asarray(np.abs(np.concatenate([one.difference for one in found])))


def _sentence(assessment: Assessment, pair: tuple[str, str], found: Sequence[Agreement]) -> str:
    gaps = _gaps(found)
    share = np.mean(gaps > FAR)
    often = "none" if share == 0.0 else f"{100 * share:.{0 if share >= 0.01 else 2}f} percent"
    text = (
        f"{pair[0]} and {pair[1]} differ by {gaps.mean():.3f} on average, by more than {FAR:g} in "
        f"{often} of the windows"
    )
    if len(found) > 1:
        worst = max(found, key=lambda one: one.mean)
        text += f", over {len(found)} leads; most at {ahead(assessment, worst.about)} ahead"
    return f"{text}."


def _picture(pair: tuple[str, str], found: Sequence[Agreement]) -> Html:
    own = np.concatenate([one.own for one in found])
    read = np.concatenate([one.read for one in found])
    far = int(np.sum(np.abs(own - read) > FAR))
    more = " For bands: the edge where the two differ most." if len(found[0].events) > 1 else ""
    return pages.picture(
        plots.agreement(own, read, far=FAR, points=CLOUD),
        alt=f"Probabilities of {pair[0]} against those read off {pair[1]}: {far:,} of {len(own):,} "
        f"differ by more than {FAR:g}.",
        caption=f"{pair[0]} beside {pair[1]}. On the diagonal both say the same.{more}",
    )


def _worst(
    assessment: Assessment, pair: tuple[str, str], found: Sequence[Agreement]
) -> pd.DataFrame:
    tables = []
    for one in found:
        rows = np.argsort(-np.abs(one.difference), kind="stable")[:WORST]
        lead = ahead(assessment, one.about)
        # The lead is in the words of the question, and a phone has no room for both times.
        times = {k: v for k, v in when(assessment, one.about, rows).items() if k != "origin"}
        tables.append(
            pd.DataFrame(
                {
                    **times,
                    "own law": one.own[rows],
                    "value's law": one.read[rows],
                    "difference": one.difference[rows],
                    "event or band": pair[0],
                    "value": pair[1],
                    "asked": [one.events[one.which[n]].sentence(lead) for n in rows],
                }
            )
        )
    table = pd.concat(tables, ignore_index=True)
    order = np.argsort(-table["difference"].abs().to_numpy(), kind="stable")[:WORST]
    return table.iloc[order]
