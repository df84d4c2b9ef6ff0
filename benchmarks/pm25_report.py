"""The page docs/results/pm25.md, computed from the records that pm25.py wrote."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

TASKS = ("state", "event", "regime")
# Two weeks of daily windows: neighbouring days are alike, blocks of them much less so.
BLOCK = 14


def _read(folder: Path, name: str) -> dict[str, Any]:
    return json.loads((folder / f"{name}.json").read_text())


def _table(frame: pd.DataFrame) -> str:
    head = "| " + " | ".join(map(str, frame.columns)) + " |"
    rule = "|" + "|".join("---" for _ in frame.columns) + "|"
    body = ["| " + " | ".join(map(_cell, row)) + " |" for row in frame.itertuples(index=False)]
    return "\n".join([head, rule, *body])


def _cell(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, float | np.floating):
        return f"{value:.1e}" if 0.0 < abs(value) < 5e-4 else f"{value:.3f}"
    return str(value)


def agreement(runs: pd.DataFrame, reference: Path) -> pd.DataFrame:
    """Ours beside the paper's, cell by cell."""
    rows = []
    for cell in pd.read_csv(reference).itertuples():
        mine = runs[
            (runs["arm"] == cell.arm)
            & (runs["task"] == cell.task)
            & (runs["metric"] == cell.metric)
        ]["value"]
        rows.append(
            {
                "claim": cell.claim,
                "belief": cell.arm,
                "head": cell.task,
                "metric": cell.metric,
                "paper": float(cell.paper),
                "ours": float(mine.mean()),
                "se over seeds": float(mine.sem()),
                "tolerance": float(cell.tolerance),
                "agrees": abs(float(mine.mean()) - cell.paper) <= cell.tolerance,
            }
        )
    return pd.DataFrame(rows)


def by_checks(folder: Path, reference: Path) -> pd.DataFrame:
    """How many cells agree when the validation part is scored every so many steps."""
    rows = []
    for every, runs in pd.DataFrame(_read(folder, "checks")["records"]).groupby("every"):
        found = agreement(runs, reference)
        missed = found[~found["agrees"]]
        cells = [
            f"{one.belief} {one.head} {one.metric} {one.ours:.3f} [{one.paper:.3f}]"
            for one in missed.itertuples()
        ]
        nll = found[found["metric"] == "nll"].groupby("belief", sort=False)["ours"]
        rows.append(
            {
                "scored every": f"{every} steps",
                **{belief: " / ".join(f"{v:.3f}" for v in values) for belief, values in nll},
                "cells that agree": f"{found['agrees'].sum()} of {len(found)}",
                "outside the tolerance": ", ".join(cells) or "none",
            }
        )
    return pd.DataFrame(rows)


def against_baselines(folder: Path) -> pd.DataFrame:
    """Mean NLL of the default and of each baseline, with the two tests of being worse."""
    content = _read(folder, "default")
    runs = pd.DataFrame(content["records"])
    runs = runs[runs["metric"] == "nll"]
    rows = []
    for one in content["baselines"]:
        if one["metric"] != "nll":
            continue
        mine = runs[runs["task"] == one["task"]]["value"].to_numpy()
        lost = np.asarray(content["differences"][f"{one['model']}/{one['task']}"])
        blocks = [block.mean() for block in np.array_split(lost, round(len(lost) / BLOCK))]
        over_seeds = stats.ttest_1samp(mine, one["value"], alternative="greater")
        over_blocks = stats.ttest_1samp(blocks, 0.0, alternative="greater")
        rows.append(
            {
                "head": one["task"],
                "baseline": one["model"],
                "its NLL": one["value"],
                "default": float(mine.mean()),
                "difference": float(mine.mean() - one["value"]),
                "se over seeds": float(stats.sem(mine)),
                "p over seeds": float(over_seeds.pvalue),
                "se over blocks": float(stats.sem(blocks)),
                "p over blocks": float(over_blocks.pvalue),
            }
        )
    order = {task: number for number, task in enumerate(TASKS)}
    return pd.DataFrame(rows).sort_values(["head", "its NLL"], key=lambda c: c.map(order).fillna(c))


def between_origins(folder: Path) -> pd.DataFrame:
    """NLL of both arms and their difference: seeds first, then mean and se over origins."""
    runs = pd.DataFrame(_read(folder, "origins")["records"])
    runs = runs[runs["metric"] == "nll"]
    means = runs.groupby(["arm", "task", "origin"])["value"].mean().unstack("origin")
    rows = []
    for task in TASKS:
        diag, summed = means.loc[("diag", task)], means.loc[("weighted sum", task)]
        lost = diag - summed
        se = float(lost.sem())
        rows.append(
            {
                "head": task,
                "diag": _pm(diag),
                "weighted sum": _pm(summed),
                "difference": _pm(lost),
                "in se": float(lost.mean() / se),
                "origins in favour": f"{int((lost < 0).sum())} of {len(lost)}",
            }
        )
    return pd.DataFrame(rows)


def _pm(values: pd.Series) -> str:
    return f"{values.mean():.3f} +- {values.sem():.3f}"


def page(folder: Path, reference: Path) -> str:
    counts = _read(folder, "counts")["counts"]
    agreed = agreement(pd.DataFrame(_read(folder, "paper")["records"]), reference)
    baselines = against_baselines(folder)
    best = baselines.loc[baselines.groupby("head", sort=False)["its NLL"].idxmin()]
    leads = _read(folder, "leads")
    curve = pd.DataFrame(leads["records"])
    started = pd.DataFrame(_read(folder, "paper")["chosen"])
    picks = started.groupby("arm")["backbone"].value_counts().unstack(fill_value=0)
    origins = _read(folder, "origins")
    device = _read(folder, "paper")["environment"]
    count_table = pd.DataFrame(
        [
            {
                "gap rule": rule,
                "windows": one["windows"],
                "train / validation / test": " / ".join(map(str, one["parts"])),
                "event rate": f"{one['event_rate']:.4f}",
                "bands": " / ".join(map(str, one["bands"])),
                "hours filled": one["filled"]["pm2.5"],
                "dropped": one["dropped"],
            }
            for rule, one in counts.items()
        ]
    )
    widest = curve.assign(error=curve["error_percent"].abs()).groupby("lead")["error"].max()
    curve_table = (
        curve.groupby("lead")
        .mean(numeric_only=True)
        .reset_index()[["lead", "analytic", "sd", "error_percent", "training_error_percent"]]
        .assign(widest=widest.to_numpy())
    )
    curve_table.columns = pd.Index(
        ["lead", "analytic sd", "predictive sd", "error, %", "training windows, %", "widest, %"]
    )
    verdicts = [
        f"{row['head']}: {row['default']:.3f} against {row['its NLL']:.3f} ({row['baseline']})"
        for row in best.to_dict(orient="records")
    ]
    text = f"""# PM2.5: a real corpus, backtests and joint horizons

Computed by `benchmarks/pm25.py` (JAX {device["jax"]}, {device["device"]}); every number below
comes from the records beside this page. NLLs are in nats a window, coverage errors and accuracies
are shares. Ten seeds (5 to 14) vary starting values only: the windows are the same for all.

Version and presets: all figures are of version 0.1. Those of `preset="paper"` are older than [the
comparison](main.md): validation was scored at every step and the first weights were drawn otherwise
than the preset does now. `held-out` was the default then; today's default is measured on [another
page](default.md).

## The corpus

{_table(count_table)}

The paper's count, 1,680, belongs to the rule that fills the first six hours of longer gaps as
well; its words describe the strict rule. All that follows uses the former.

## The paper's protocol

`preset="paper"`, chronological split, backbone chosen by validation for each seed.
{agreed["agrees"].sum()} of {len(agreed)} cells agree with the paper within the tolerance.

{_table(agreed)}

Backbones that validation chose, of ten seeds: {_picks(picks)}. The best step is number
{started["best_step"].median():.0f} at the median: at a learning rate of 0.03 a thousand windows are
learned, and soon overlearned, within a few dozen steps. So it matters how often the validation
part is scored, which the paper does not say. The cells above score it at every step, as the preset
did when they were computed; it scores every tenth step now and starts from other weights
([main.md](main.md), [open-choices.md](open-choices.md)). The same runs with all intervals that
were tried (NLL of state / event / regime; the paper in brackets). They are held against the
paper's test figures, so an interval that agrees is a guess at what the paper did, not
a better forecaster:

{_table(by_checks(folder, reference))}

## The preset `held-out` against what one would use instead

`held-out` is the default of version 0.1. Every baseline chooses its settings, and a point forecast
its sd, on the validation part. They have no seed that matters, so two tests ask whether it is worse
(one-sided t-tests): over the ten seeds with the baseline's score as a constant, and over the test
windows, paired and averaged in blocks of {BLOCK} days, with its scores averaged over seeds. The
first knows only of starting values; the second also of the draw of the test windows.

{_table(baselines)}

Best baseline of each head: {"; ".join(verdicts)}.

## Five rolling origins

`preset="paper"`, `belief="diag"`, against the weighted sum (MSE plus both discrete losses with
weights of one, point estimates, sd of the state from validation errors). Ten seeds an origin;
mean over the seeds of an origin first, then mean and standard error over the five origins. Test
blocks begin at {", ".join(origins["tested_from"])}.

{_table(between_origins(folder))}

## One fit for a curve of leads

OU, {leads["windows"]:,} windows, five leads as five tasks of one fit of `held-out`, scored on 20
percent of the windows; predictive sd as the root of the mean predictive variance, averaged over
three seeds, and the widest error among them. The column before it says how far the training windows
themselves are from the analytic sd.

{_table(curve_table)}
"""
    return "\n".join(map(_wrapped, text.split("\n")))


def _wrapped(line: str) -> str:
    return line if line.startswith("|") else textwrap.fill(line, 100)


def _picks(picks: pd.DataFrame) -> str:
    return "; ".join(
        f"{arm} " + ", ".join(f"{name} {count}" for name, count in row.items() if count)
        for arm, row in picks.iterrows()
    )
