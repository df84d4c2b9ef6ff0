"""The pictures of a report, each with a text for those who cannot see it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from scrollmt import plots, scores
from scrollmt.beliefs import Point
from scrollmt.laws import DiscreteLaw, Law, NumberLaw, OrderedLaw, RealLaw
from scrollmt.plots.canvas import words
from scrollmt.report import pages
from scrollmt.report.assessment import Assessment
from scrollmt.report.groups import Group
from scrollmt.report.pages import Html, Section

NEWEST = 60
CLOUD = 400
WORST = 15
EXTRAPOLATION = "extrapolation"


def task_section(assessment: Assessment, task: str) -> Section:
    """All pictures of one task."""
    sentence = "" if assessment.recipe is None else assessment.recipe.sentence(task)
    said = pages.paragraph(f"Asked: {sentence}.") if sentence else Html("")
    return Section(f"Task: {task}", said + pages.pictures(of_task(assessment, task)))


def of_task(assessment: Assessment, task: str) -> Iterator[Html]:
    """Whatever suits the law of a task."""
    law, y, n = assessment.laws[task], assessment.labels[task], assessment.count(task)
    if isinstance(law, DiscreteLaw | NumberLaw):
        yield _outcomes(assessment, task)
    if isinstance(law, NumberLaw):
        most = float(scores.coverage(law, y, 0.9))
        yield pages.picture(
            plots.coverage(law, y),
            alt=f"Coverage of {task}: intervals of 90 percent hold {most:.0%} of {n} labels.",
            caption="Above the diagonal, intervals are wider than they need be; below, too narrow.",
        )
    if isinstance(law, NumberLaw | OrderedLaw):
        yield _pit(law, y, task)
    if isinstance(law, DiscreteLaw) and law.is_event:
        yield pages.picture(
            plots.reliability(law, y),
            alt=f"Reliability of {task}: how often it happened against the probability it was "
            f"given, over {n} labels.",
            caption="Dots outside their grey bar happen too often or too seldom for what was "
            "said. Numbers count the labels.",
        )
    elif isinstance(law, DiscreteLaw):
        right = float(scores.average(scores.accuracy(law, y)))
        yield pages.picture(
            plots.confusion(law, y, names=assessment.names(task)),
            alt=f"Confusion of {task}: the likeliest class came true {right:.0%} of {n} times.",
            caption="Counts of windows; a row holds those in which that class came true.",
        )
    if isinstance(law, RealLaw) and law.normal:
        yield pages.picture(
            plots.spread_error(law, y, points=CLOUD),
            alt=f"Predicted sd of {task} against the absolute residual, sds from "
            f"{law.sd.min():.3g} to {law.sd.max():.3g}.",
            caption="Squares on the line: windows that were given a larger sd had larger errors, "
            "by as much as was said.",
        )
        if law.belief_var is not None:
            share = float(np.mean(law.belief_var / law.var))
            yield pages.picture(
                plots.variance_split(_spread_out(law)),
                alt=f"Variance of {task} by source: the belief holds {share:.0%} on average.",
                caption="What is noise everywhere alike, and what depends on the inputs.",
            )


def _spread_out(law: RealLaw) -> RealLaw:
    """At most so many windows, evenly over the ranks of their variance."""
    order = np.argsort(law.var, kind="stable")
    return law[order[np.linspace(0, len(law) - 1, min(len(law), CLOUD)).round().astype(int)]]


def _pit(law: Law, y: np.ndarray, task: str) -> Html:
    heights = 10 * plots.pit_histogram(law, y)
    return pages.picture(
        plots.pit(law, y),
        alt=f"PIT histogram of {task}: densities from {heights.min():.2f} to {heights.max():.2f}, "
        "where a calibrated law has 1 throughout.",
        caption="Flat is right. A bowl is a law too sure of itself, a hill one too cautious, a "
        "slope one that lies too high or too low.",
    )


def _outcomes(assessment: Assessment, task: str) -> Html:
    """The newest windows of one task, each at the time that its forecast is for."""
    shown = slice(-NEWEST, None)
    law, y, units = assessment.original(task)
    ends = None if assessment.windows is None else assessment.windows.target_times[task]
    x = None if ends is None else pd.Index(ends)[shown]
    few = min(NEWEST, len(assessment))
    if isinstance(law, DiscreteLaw):
        ax = plots.regimes(law[shown], y[shown], x=x, names=assessment.names(task))
        alt = f"Probabilities of {task} in the last {few} windows, with what came true."
    else:
        ax = plots.forecasts(law[shown], y[shown], x=x)
        ax.set_ylabel(words(units))
        alt = f"Forecasts of {task} with intervals in the last {few} windows, with what came true."
    ax.set_xlabel("window" if x is None else "")
    placed = "" if x is None else ", each at the time that it is for"
    return pages.picture(ax, alt=alt, caption=f"The last {few} windows{placed}.")


def inside_section(assessment: Assessment, groups: Sequence[Group]) -> Section:
    """How the fit went and what it learned; of many leads, a few that stand for all."""
    model = assessment.model
    shown = [task for group in groups for task in group.shown]
    few = "" if len(shown) == len(assessment.tasks) else " A few leads of each question."
    best = model.history_["validation"].min()
    figures = [
        pages.picture(
            plots.training(model),
            alt=f"Training of the leading run: the validation NLL falls to {best:.4g}.",
            caption="The run that leads. The parameters of the marked step were kept.",
        )
    ]
    every = plots.effective_weights(model, assessment.X)
    weights = {task: every[task] for task in shown if task in every}
    if weights:
        medians = ", ".join(f"{name} {np.median(w):.3g}" for name, w in weights.items())
        figures.append(
            pages.picture(
                plots.effective_weight(weights),
                alt=f"Effective weight of each task over the windows; medians: {medians}.",
                caption="How hard a label of each task pulls at the shared features: 1/(2V) for "
                "a value, the same curvature for classes. Learned, and different in every window."
                + few,
            )
        )
    with_prior = [task for task in shown if not isinstance(assessment.belief(task), Point)]
    if with_prior:
        count = len(with_prior)
        figures.append(
            pages.picture(
                plots.precisions(model, tasks=with_prior),
                alt=f"Fitted prior precision of {count} tasks, one dot an ensemble member.",
                caption="The prior precision that each task has found for itself." + few,
            )
        )
    runs = model.candidates_.drop(columns=["batch_seconds", "chosen"], errors="ignore")
    table = pages.details(
        f"All {len(runs):,} runs and their validation NLL",
        pages.table(runs, search=True, filters=["stop_reason"]),
    )
    return Section("Inside the model", pages.pictures(figures) + table)


def surprises_section(assessment: Assessment, groups: Sequence[Group]) -> Section:
    """The windows with the worst log scores, to be looked up one by one."""
    tables = []
    for group in groups:
        found = pd.concat([_surprises(assessment, task) for task in group.tasks], ignore_index=True)
        found = found.sort_values("log score (nats)", ascending=False, kind="stable")[:WORST]
        tables.append(found.assign(task=group.name))
    note = (
        f"The {WORST} windows of each question whose outcome was given the lowest probability. A "
        "few are always there; many of one kind are a question that the inputs cannot answer."
    )
    found = pd.concat(tables, ignore_index=True)
    if found[EXTRAPOLATION].any():
        note += (
            " Where a window has inputs outside their training range, the last column says by how "
            "many widths of that range."
        )
    else:
        found = found.drop(columns=EXTRAPOLATION)
    table = pages.table(found, search=True, filters=["task"])
    return Section("Surprises", pages.paragraph(note) + table)


def _surprises(assessment: Assessment, task: str) -> pd.DataFrame:
    """The worst windows of one task, worst first."""
    score = scores.nll(assessment.laws[task], assessment.scored[task])
    seen = np.flatnonzero(~np.isnan(score))
    worst = seen[np.argsort(-score[seen], kind="stable")[:WORST]]
    law, y, _ = assessment.original(task)
    names = assessment.names(task)
    return pd.DataFrame(
        {
            **when(assessment, task, worst),
            "task": task,
            "forecast": [_words(law[int(n)], names) for n in worst],
            "came true": [_name(y[n], law, names) for n in worst],
            "log score (nats)": score[worst],
            EXTRAPOLATION: assessment.extrapolation[worst],
        }
    )


def when(assessment: Assessment, task: str, rows: np.ndarray) -> dict[str, list[str]]:
    """Columns that say which windows these are: their origins, and the times asked about."""
    if assessment.windows is None:
        return {"window": [str(n) for n in rows]}
    ends = pd.Index(assessment.windows.target_times[task])
    return {
        "origin": [str(assessment.windows.t[n]) for n in rows],
        "time asked about": [str(ends[n]) for n in rows],
    }


def _words(law: Law, names: Sequence[str] | None) -> str:
    """One forecast in few words."""
    if isinstance(law, DiscreteLaw):
        said = [str(r) for r in range(law.num_classes)] if names is None else names
        best = int(law.mode[0])
        return f"{said[best]} with {law.probs[0, best]:.0%}"
    if not isinstance(law, NumberLaw):
        return ""
    (lower,), (upper,) = law.interval(0.9)
    return f"90 percent from {lower:.3g} to {upper:.3g}"


def _name(y: float, law: Law, names: Sequence[str] | None) -> str:
    if isinstance(law, DiscreteLaw):
        return str(int(y)) if names is None else names[int(y)]
    if np.isnan(y):
        return "known by its bounds"
    return f"{y:.4g}"


def sharing_section(table: pd.DataFrame) -> Section:
    """Joint against alone, where the user has asked for it."""
    gains = [str(task) for task, row in table.iterrows() if row["difference"] + 2 * row["se"] < 0]
    losses = [str(task) for task, row in table.iterrows() if row["difference"] - 2 * row["se"] > 0]
    said = (
        f"Beyond two standard errors, sharing helps {', '.join(gains) or 'none'} and hurts "
        f"{', '.join(losses) or 'none'}."
    )
    figure = pages.picture(
        plots.interference(table), alt=f"Joint model against each task alone. {said}"
    )
    return Section(
        "Sharing or not",
        pages.paragraph(said) + pages.pictures([figure]) + pages.table(table),
    )
