"""One self-contained HTML report on a fitted model: a model card, then the diagnostics.

    write_report(model, test, None, "report.html")

The same model and windows give the same report, byte for byte.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pandas as pd

from scrollmt._io.atomic import refuse_existing
from scrollmt.forecaster import Forecaster
from scrollmt.report import agreeing, gallery, leads, pages
from scrollmt.report.assessment import gather
from scrollmt.report.card import model_card
from scrollmt.report.groups import groups
from scrollmt.report.pages import Section

__all__ = ["write_report"]


def write_report(
    model: Forecaster,
    X: Any,
    Y: Any,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    interference: pd.DataFrame | None = None,
    force: bool = False,
) -> Path:
    """Judge `model` on windows that it was not fitted on, and write what was found to `path`.

    `X` and `Y` as in `Forecaster.evaluate`; with `Y=None`, `X` is `Windows`, or a series that
    the model's recipe can cut. `interference` is what `plots.compare_alone` returned, for a section
    on what the tasks gain from each other. An existing file is replaced only with `force`.
    """
    model._check_fitted()
    refuse_existing(path, force=force)
    assessment = gather(model, X, Y)
    asked = groups(assessment)
    sections = [Section("Model card", model_card(assessment))]
    sections += [leads.section(assessment, group) for group in asked]
    agreed = agreeing.section(assessment, asked)
    sections += [] if agreed is None else [agreed]
    sections += [
        gallery.surprises_section(assessment, asked),
        gallery.inside_section(assessment, asked),
    ]
    if interference is not None:
        sections.append(gallery.sharing_section(interference))
    names = ", ".join(group.name for group in asked)
    most = max(len(group.tasks) for group in asked)
    lead = pages.paragraph(
        f"{len(asked)} questions{f' at {most} leads' if most > 1 else ''}, one model, judged on "
        f"{len(assessment):,} windows."
    )
    heading = title if title is not None else f"Forecasts of {names}"
    return pages.write(path, pages.page(heading, sections, lead=lead), force=force)
