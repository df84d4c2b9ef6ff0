"""The model card: what the model was asked, how it was fitted, how well it does, and its limits."""

from __future__ import annotations

from collections import Counter
from importlib.metadata import version

import numpy as np
import pandas as pd

from scrollmt._data.series import duration
from scrollmt._scoring import evaluation, references
from scrollmt.beliefs import BELIEFS, AbstractBelief, Diag, Full, LowRank, Point
from scrollmt.laws import DiscreteLaw
from scrollmt.presets import get_preset
from scrollmt.report import pages
from scrollmt.report.evidence import LEVEL, Evidence, out_of_range, score_table
from scrollmt.report.groups import ahead, groups
from scrollmt.report.pages import Html
from scrollmt.report.verdict import Verdict, judge

SCORES = {
    "nll": "negative log score, nats",
    "coverage_error": "mean error of the coverage, 19 levels",
    "coverage_50": "share inside 50 percent intervals",
    "coverage_90": "share inside 90 percent intervals",
    "crps": "CRPS, units of the target",
    "rmse": "root mean squared error of the mean",
    "mae": "mean absolute error of the median",
    "accuracy": "likeliest class is right",
    "brier": "Brier score",
    "rps": "ranked probability score",
}
BADGES = {
    "better": ("better", "good"),
    "unclear": ("not clearly better", "fair"),
    "worse": ("worse", "bad"),
    "none": ("no reference", "plain"),
}
# The worst last.
SEVERITY = ("plain", "good", "fair", "bad")
BELIEF_WORDS: dict[type[AbstractBelief], str] = {
    Diag: "diagonal covariance of the last layer's weights",
    LowRank: "low-rank plus diagonal covariance of the last layer's weights",
    Full: "full covariance of the last layer's weights",
    Point: "point estimate, no belief",
}


def model_card(evidence: Evidence) -> Html:
    """The section that opens a report."""
    verdicts = {
        task: judge(law, evidence.labels[task], evidence.overlap)
        for task, law in evidence.laws.items()
    }
    parts = (
        ("Skill in words", _skill(evidence)),
        ("Calibration in words", _verdicts(evidence, verdicts)),
        ("Questions and likelihoods", _questions(evidence)),
        ("Scores", _scores(evidence)),
        ("Data", pages.facts(_data(evidence))),
        ("How it was fitted", pages.facts(_fit(evidence))),
        ("Limits of use", pages.bullets(_limits(evidence))),
    )
    return Html("".join(pages.tag("h3", heading) + body for heading, body in parts))


def _skill(evidence: Evidence) -> Html:
    """Every task against the best of its references."""
    table = evaluation.evaluate(evidence.compared, evidence.overlap)
    verdicts = {}
    for task, found in evaluation.comparisons(table).items():
        row = table.loc[task]
        words, kind = BADGES[found.kind]
        by = f", by {row['skill']:.3f} nats a label with a standard error of {row['skill_se']:.3f}"
        sentence = f"{found.words[:1].upper()}{found.words[1:]}{'' if kind == 'plain' else by}"
        verdicts[task] = Verdict(kind, words, f"{sentence}, on {row['labels']:,.0f} labels.")
    return _verdicts(evidence, verdicts)


def _verdicts(evidence: Evidence, verdicts: dict[str, Verdict]) -> Html:
    """One line a question; of several leads the worst, and how many fare as it does."""
    said = []
    for group in groups(evidence):
        worst = max(group.tasks, key=lambda task: SEVERITY.index(verdicts[task].kind))
        verdict = verdicts[worst]
        text = verdict.sentences
        if len(group.tasks) > 1:
            counts = Counter(verdicts[task].word for task in group.tasks)
            told = ", ".join(f"{word} at {n} leads" for word, n in counts.most_common())
            text = f"Of {len(group.tasks)} leads: {told}. At {ahead(evidence, worst)}: {text}"
        badge = pages.badge(verdict.word, verdict.kind)
        said.append((group.name, Html(badge + " " + pages.text(text))))
    return pages.facts(said)


def _questions(evidence: Evidence) -> Html:
    rows = []
    for task, head in evidence.model.tasks_.items():
        y = evidence.labels[task]
        sentence = "" if evidence.recipe is None else evidence.recipe.sentence(task)
        rows.append(
            (task, sentence, head.description, evidence.count(task), _summary(evidence, task, y))
        )
    columns = ["task", "question", "likelihood", "labels", "what came true"]
    frame = pd.DataFrame(rows, columns=columns)
    return pages.table(frame if evidence.recipe is not None else frame.drop(columns="question"))


def _summary(evidence: Evidence, task: str, y: np.ndarray) -> str:
    seen = y[~np.isnan(y)]
    law = evidence.laws[task]
    if not isinstance(law, DiscreteLaw):
        return f"mean {seen.mean():.4g}, sd {seen.std():.4g}"
    names = evidence.names(task) or [str(r) for r in range(law.num_classes)]
    share = np.bincount(seen.astype(int), minlength=law.num_classes) / len(seen)
    return ", ".join(f"{name} {part:.0%}" for name, part in zip(names, share, strict=True))


def _scores(evidence: Evidence) -> Html:
    found = score_table(evidence)
    shown = pd.DataFrame(
        {
            "task": found["task"],
            "score": [SCORES.get(name, name) for name in found["score"]],
            "value": found["value"],
            f"{LEVEL:.0%} interval": [
                f"{low:.3g} to {high:.3g}"
                for low, high in zip(found["low"], found["high"], strict=True)
            ],
            "labels": found["labels"],
            **{kind: found[kind] for kind in references.NAMES if kind in found},
        }
    )
    note = (
        "Intervals come from leaving out one stretch of neighbouring windows after the other. "
        "Climatology is one law for all windows, that of the training labels; persistence says "
        "that things stay as they are, seasonal that they are as they were a day (week, year) "
        "before the target. What these score is what is to be beaten."
    )
    return Html(pages.table(shown) + pages.paragraph(note))


def _data(evidence: Evidence) -> list[tuple[str, object]]:
    model, windows, recipe = evidence.model, evidence.windows, evidence.recipe
    facts: list[tuple[str, object]] = [("Judged on", f"{len(evidence):,} windows")]
    if windows is not None:
        facts.append(("Time", f"origins from {windows.t[0]} to {windows.t[-1]}"))
        if len(windows.dropped):
            facts.append(("Left out", f"{len(windows.dropped):,} windows with missing values"))
        if windows.filled:
            filled = ", ".join(f"{n:,} of {name}" for name, n in windows.filled.items())
            facts.append(("Filled", f"missing numbers: {filled}"))
    if recipe is not None:
        windowing = recipe.windowing
        leads = ", ".join(duration(lead, recipe.step) for lead in windowing.each_lead)
        facts += [
            (
                "Each window",
                f"knows {duration(windowing.history, recipe.step)}, asks {leads} ahead",
            ),
            ("Origins", f"every {duration(recipe.stride, recipe.step)}"),
        ]
    names = list(getattr(model, "feature_names_in_", []))
    inputs: object = f"{model.n_features_in_:,} columns"
    if names:
        inputs = pages.details(f"{len(names):,} columns", ", ".join(map(str, names)))
    return [*facts, ("Inputs", inputs)]


def _fit(evidence: Evidence) -> list[tuple[str, object]]:
    model = evidence.model
    table = model.candidates_
    selected = set().union(*model.committee_.values())
    runs = f"{len(table):,} runs, of which {len(selected):,} are selected for tasks"
    backbone = model.backbone if isinstance(model.backbone, str) else type(model.backbone).__name__
    chosen = ", ".join(dict.fromkeys(table.loc[table["speaks_for"] != "", "candidate"].map(str)))
    return [
        ("Preset", get_preset(model.preset).name),
        ("Belief", _beliefs(evidence)),
        ("Backbone", chosen if backbone == "select" else backbone),
        ("Tried", runs),
        ("Stopped by", f"{model.stop_reason_}, in the leading run"),
        ("Validation NLL", f"{model.validation_nll_:.4f} nats, added over tasks"),
        (
            "Seed",
            f"{model.seed}" + (f", ensemble of {model.ensemble}" if model.ensemble > 1 else ""),
        ),
        ("Versions", f"scrollmt {version('scrollmt')}, JAX {version('jax')}"),
    ]


def _beliefs(evidence: Evidence) -> str:
    """The families that were fitted; the tasks of each where there are several."""
    names = {kind: name for name, kind in BELIEFS.items()}
    families: dict[type[AbstractBelief], list[str]] = {}
    for task in evidence.tasks:
        families.setdefault(type(evidence.belief(task)), []).append(task)
    said = []
    for kind, tasks in families.items():
        of = f" ({', '.join(tasks)})" if len(families) > 1 else ""
        words = f": {BELIEF_WORDS[kind]}" if kind in BELIEF_WORDS else ""
        said.append(f"{names.get(kind, kind.__name__)}{of}{words}")
    return "; ".join(said)


def _limits(evidence: Evidence) -> list[object]:
    limits: list[object] = []
    if not all(isinstance(evidence.belief(task), Point) for task in evidence.tasks):
        limits.append(
            "The belief's spread was trained to predict: it is the part of the forecast's spread "
            "that depends on the inputs. It is no claim about how well the weights are known, and "
            "does not shrink as data grows."
        )
    limits += [
        "The verdicts hold for windows like those judged here. They say nothing about a system "
        "that has changed since, and nothing if these windows had a part in the fit.",
        "Each law is judged on its own question. Two laws that are right one by one say nothing "
        "yet about how often both outcomes come together.",
    ]
    share = out_of_range(evidence)
    seldom = "none" if share == 0.0 else f"{share:.1%}"
    limits.append(
        f"Far from the training data a forecast is a guess. Of the windows judged here {seldom} "
        "have an input as far outside its training range as that range is wide."
    )
    far = evidence.model.scales_.far_out(*evidence.model._read(evidence.X))
    if far is not None:
        limits.append(f"Among these windows are inputs {far}.")
    return limits
