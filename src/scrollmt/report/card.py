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
from scrollmt.laws.base import FAR_OUT
from scrollmt.presets import get_preset
from scrollmt.report import pages
from scrollmt.report.assessment import LEVEL, Assessment, score_table
from scrollmt.report.groups import ahead, groups
from scrollmt.report.pages import Html
from scrollmt.report.verdict import Verdict, judge
from scrollmt.routing import FREE, Fixed, read_routing

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
    Fixed: "covariance of the last layer's weights, computed and not trained",
}


def model_card(assessment: Assessment) -> Html:
    """The section that opens a report."""
    verdicts = {
        task: judge(law, assessment.labels[task], assessment.overlap)
        for task, law in assessment.laws.items()
    }
    parts = (
        ("Skill in words", _skill(assessment)),
        ("Calibration in words", _verdicts(assessment, verdicts)),
        ("Questions and likelihoods", _questions(assessment)),
        ("Scores", _scores(assessment)),
        ("Data", pages.facts(_data(assessment))),
        ("How it was fitted", pages.facts(_fit(assessment))),
        ("Limits of use", pages.bullets(_limits(assessment))),
    )
    return Html("").join(pages.tag("h3", heading) + body for heading, body in parts)


def _skill(assessment: Assessment) -> Html:
    """Every task against the best of its references."""
    table = evaluation.evaluate(assessment.compared, assessment.overlap)
    verdicts = {}
    for task, found in evaluation.comparisons(table).items():
        row = table.loc[task]
        words, kind = BADGES[found.kind]
        by = f", by {row['skill']:.3f} nats a label with a standard error of {row['skill_se']:.3f}"
        sentence = f"{found.words[:1].upper()}{found.words[1:]}{'' if kind == 'plain' else by}"
        verdicts[task] = Verdict(kind, words, f"{sentence}, on {row['labels']:,.0f} labels.")
    return _verdicts(assessment, verdicts)


def _verdicts(assessment: Assessment, verdicts: dict[str, Verdict]) -> Html:
    """One line a question; of several leads the worst, and how many fare as it does."""
    said = []
    for group in groups(assessment):
        worst = max(group.tasks, key=lambda task: SEVERITY.index(verdicts[task].kind))
        verdict = verdicts[worst]
        text = verdict.sentences
        if len(group.tasks) > 1:
            counts = Counter(verdicts[task].word for task in group.tasks)
            told = ", ".join(f"{word} at {n} leads" for word, n in counts.most_common())
            text = f"Of {len(group.tasks)} leads: {told}. At {ahead(assessment, worst)}: {text}"
        said.append((group.name, pages.badge(verdict.word, verdict.kind) + f" {text}"))
    return pages.facts(said)


def _questions(assessment: Assessment) -> Html:
    rows = []
    for task, head in assessment.model.tasks_.items():
        y = assessment.labels[task]
        sentence = "" if assessment.recipe is None else assessment.recipe.sentence(task)
        rows.append(
            (
                task,
                sentence,
                head.description,
                assessment.count(task),
                _summary(assessment, task, y),
            )
        )
    columns = ["task", "question", "likelihood", "labels", "what came true"]
    frame = pd.DataFrame(rows, columns=columns)
    return pages.table(frame if assessment.recipe is not None else frame.drop(columns="question"))


def _summary(assessment: Assessment, task: str, y: np.ndarray) -> str:
    seen = y[~np.isnan(y)]
    law = assessment.laws[task]
    if not isinstance(law, DiscreteLaw):
        return f"mean {seen.mean():.4g}, sd {seen.std():.4g}"
    names = assessment.names(task) or [str(r) for r in range(law.num_classes)]
    share = np.bincount(seen.astype(int), minlength=law.num_classes) / len(seen)
    return ", ".join(f"{name} {part:.0%}" for name, part in zip(names, share, strict=True))


def _scores(assessment: Assessment) -> Html:
    found = score_table(assessment)
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
    return pages.table(shown) + pages.paragraph(note)


def _data(assessment: Assessment) -> list[tuple[str, object]]:
    model, windows, recipe = assessment.model, assessment.windows, assessment.recipe
    facts: list[tuple[str, object]] = [("Judged on", f"{len(assessment):,} windows")]
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


def _fit(assessment: Assessment) -> list[tuple[str, object]]:
    model = assessment.model
    table = model.candidates_
    selected = set().union(*model.committee_.values())
    runs = f"{len(table):,} runs, of which {len(selected):,} are selected for tasks"
    backbone = model.backbone if isinstance(model.backbone, str) else type(model.backbone).__name__
    routing = read_routing(model.routing)
    chosen = ", ".join(dict.fromkeys(table.loc[table["speaks_for"] != "", "candidate"].map(str)))
    return [
        ("Preset", get_preset(model.preset).name),
        ("Belief", _beliefs(assessment)),
        *([] if routing is FREE else [("Routing", f"{routing.name}: {routing.words}")]),
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


def _beliefs(assessment: Assessment) -> str:
    """The families that were fitted; the tasks of each where there are several."""
    names = {kind: name for name, kind in BELIEFS.items()}
    families: dict[type[AbstractBelief], list[str]] = {}
    for task in assessment.tasks:
        families.setdefault(type(assessment.belief(task)), []).append(task)
    said = []
    for kind, tasks in families.items():
        of = f" ({', '.join(tasks)})" if len(families) > 1 else ""
        words = f": {BELIEF_WORDS[kind]}" if kind in BELIEF_WORDS else ""
        said.append(f"{names.get(kind, kind.__name__)}{of}{words}")
    return "; ".join(said)


def _limits(assessment: Assessment) -> list[object]:
    limits: list[object] = []
    routing = read_routing(assessment.model.routing)
    with_belief = [t for t in assessment.tasks if not isinstance(assessment.belief(t), Point)]
    computed = [t for t in with_belief if isinstance(assessment.belief(t), Fixed)]
    # Where posteriors are those of Gaussian tasks, the others are trained freely.
    known = computed if routing.conjugate else with_belief * routing.is_posterior
    trained = [task for task in with_belief if task not in known]
    if known:
        of = f" of {', '.join(known)}" if trained else ""
        limits.append(
            f"The belief's spread{of} says how well the last layer's weights are known, the "
            "features taken as given. It shrinks as data grows, and does not follow noise that "
            "depends on the inputs."
        )
    if trained:
        of = f" of {', '.join(trained)}" if known else ""
        limits.append(
            f"The belief's spread{of} was trained to predict: it is the part of the forecast's "
            "spread that depends on the inputs. It is no claim about how well the weights are "
            "known, and does not shrink as data grows."
        )
    limits += [
        "The verdicts hold for windows like those judged here. They say nothing about a system "
        "that has changed since, and nothing if these windows had a part in the fit.",
        "Each law is judged on its own question. Two laws that are right one by one say nothing "
        "yet about how often both outcomes come together.",
    ]
    outside, far = (_share(assessment.extrapolation > least) for least in (0.0, FAR_OUT))
    limits.append(
        f"Far from the training data a forecast is a guess. Of the windows judged here {outside} "
        f"have an input outside its training range, and {far} one as far outside as that range is "
        "wide."
    )
    named = assessment.model.scales_.far_out(*assessment.model._read(assessment.X))
    if named is not None:
        limits.append(f"Among these windows are inputs {named}.")
    return limits


def _share(which: np.ndarray) -> str:
    return f"{which.mean():.1%}" if which.any() else "none"
