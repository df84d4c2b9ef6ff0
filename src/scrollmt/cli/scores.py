"""Scores on the terminal: one row a task, narrow enough for 80 columns, and skill in words."""

from __future__ import annotations

import pandas as pd

from scrollmt._scoring import evaluation
from scrollmt._scoring.references import NAMES
from scrollmt.cli.shell import say, show

# Column titles by metric, in tables that fit beside each other's tasks.
_LOG_SCORES = {
    "labels": "labels",
    "nll": "NLL",
    "nll_se": "±",
    **{kind: kind for kind in NAMES},
}
_VALUES = {
    "coverage_50": "in 50%",
    "coverage_90": "in 90%",
    "crps": "CRPS",
    "rmse": "RMSE",
    "mae": "MAE",
}
_CLASSES = {"accuracy": "accuracy", "brier": "Brier", "rps": "RPS"}


def show_scores(scores: pd.DataFrame, title: str) -> None:
    """The scores of `Forecaster.evaluate`, or cells of text under the same names."""
    show(_part(scores, _LOG_SCORES), f"{title}: NLL in nats, and that of references", digits=3)
    for titles, name in ((_VALUES, "Values, in original units"), (_CLASSES, "Classes")):
        part = _part(scores, titles)
        if not part.empty:
            show(part, name)


def _part(scores: pd.DataFrame, titles: dict[str, str]) -> pd.DataFrame:
    """Some metrics, of the tasks that have any of them."""
    chosen = scores[[name for name in titles if name in scores]].dropna(how="all")
    chosen = chosen.dropna(axis=1, how="all")
    if "labels" in chosen:
        chosen = chosen.astype({"labels": int})
    return chosen.set_axis([titles[name] for name in chosen.columns], axis=1)


def say_skill(scores: pd.DataFrame) -> None:
    """Every task that does not clearly beat its references, and the names of those that do."""
    found = evaluation.comparisons(scores)
    good = [task for task, one in found.items() if one.kind == "better"]
    for task, one in found.items():
        if one.kind not in ("better", "none"):
            say(f"{task}: {one.words}")
    if good:
        say(f"clearly better than every reference forecast: {', '.join(good)}")
