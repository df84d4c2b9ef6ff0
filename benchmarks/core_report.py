"""The page docs/results/core.md, computed from the records that core.py wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

TASKS = ("state", "event", "regime")
NAMES = {"ou": "OU", "lorenz63": "Lorenz-63"}
DEFAULT_TARGETS = {
    "lorenz63": {"state": 0.10, "event": 0.02, "regime": 0.08, "coverage_error": 0.02},
    "ou": {"state": 0.01, "event": 0.01, "regime": 0.01},
}


def _records(folder: Path, name: str) -> tuple[pd.DataFrame, dict[str, Any]]:
    content = json.loads((folder / f"{name}.json").read_text())
    return pd.DataFrame(content["records"]), content["environment"]


def _selected(runs: pd.DataFrame) -> pd.DataFrame:
    """The backbone that validation picks, by corpus, belief and seed."""
    best = runs.groupby(["corpus", "belief", "seed"])["validation_nll"].idxmin()
    return runs.loc[best]


def _shift(folder: Path, default: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Oracle NLL on our test windows minus its mean over redraws of the corpus."""
    redraws, _ = _records(folder, "redraws")
    typical = redraws[redraws["seed"] > 0].groupby("corpus")[list(TASKS)].mean()
    return {
        (corpus, f"{task}_nll"): float(rows[f"{task}_oracle"].mean() - typical.loc[corpus, task])
        for corpus, rows in default.groupby("corpus")
        for task in TASKS
    }


def comparison(folder: Path, reference: Path) -> pd.DataFrame:
    """Ours beside the paper's, cell by cell, as measured and with the draw's luck removed."""
    runs, _ = _records(folder, "paper")
    default, _ = _records(folder, "default")
    shift = _shift(folder, default)
    chosen = _selected(runs)
    rows = []
    for cell in pd.read_csv(reference).itertuples():
        pool = chosen if cell.backbone == "selected" else runs[runs["backbone"] == cell.backbone]
        values = pool[(pool["corpus"] == cell.corpus) & (pool["belief"] == cell.belief)][
            cell.metric
        ]
        ours = float(values.mean())
        typical = ours - shift.get((cell.corpus, cell.metric), 0.0)
        rows.append(
            {
                "claim": cell.claim,
                "corpus": cell.corpus,
                "belief": cell.belief,
                "backbone": cell.backbone,
                "metric": cell.metric,
                "paper": cell.paper,
                "ours": ours,
                "se": float(values.sem()),
                "typical draw": typical,
                "tolerance": cell.tolerance,
                "agrees": abs(ours - cell.paper) <= cell.tolerance,
                "agrees typical": abs(typical - cell.paper) <= cell.tolerance,
            }
        )
    return pd.DataFrame(rows)


def over_draws(folder: Path, reference: Path) -> pd.DataFrame:
    """Cells near the edge of their tolerance, on three draws of the corpus."""
    frozen, _ = _records(folder, "paper")
    others, _ = _records(folder, "redrawn")
    runs = pd.concat([frozen.assign(corpus_seed=0), others], ignore_index=True)
    paper = pd.read_csv(reference)
    wanted = paper[
        ((paper["claim"] == "routing") & (paper["backbone"].isin(("tanh", "tanh+ln"))))
        | ((paper["corpus"] == "ou") & (paper["belief"] == "diag"))
    ]
    rows = []
    for cell in wanted.itertuples():
        pool = runs[(runs["corpus"] == cell.corpus) & (runs["belief"] == cell.belief)]
        if cell.backbone == "selected":
            best = pool.groupby(["corpus_seed", "seed"])["validation_nll"].idxmin()
            pool = pool.loc[best]
        else:
            pool = pool[pool["backbone"] == cell.backbone]
        draws = pool.groupby("corpus_seed")[cell.metric].mean()
        if len(draws) < 2:
            continue
        rows.append(
            {
                "corpus": NAMES[cell.corpus],
                "belief": cell.belief,
                "backbone": cell.backbone,
                "metric": cell.metric,
                "paper": cell.paper,
                **{f"draw {seed}": value for seed, value in draws.items()},
                "mean": float(draws.mean()),
                "tolerance": cell.tolerance,
                "agrees": bool(abs(draws.mean() - cell.paper) <= cell.tolerance),
            }
        )
    return pd.DataFrame(rows)


def _table(frame: pd.DataFrame) -> str:
    head = "| " + " | ".join(str(c) for c in frame.columns) + " |"
    rule = "|" + "|".join("---" for _ in frame.columns) + "|"
    body = [
        "| " + " | ".join(_cell(v) for v in row) + " |" for row in frame.itertuples(index=False)
    ]
    return "\n".join([head, rule, *body])


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "**no**"
    return (
        f"{value:.4g}"
        if isinstance(value, float) and abs(value) >= 10
        else (f"{value:.4f}" if isinstance(value, float) else str(value))
    )


def _default_rows(default: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for corpus, runs in default.groupby("corpus"):
        for task in TASKS:
            excess = runs[f"{task}_nll"] - runs[f"{task}_oracle"]
            target = DEFAULT_TARGETS[corpus][task]
            rows.append(
                {
                    "corpus": NAMES[corpus],
                    "head": task,
                    "test NLL": float(runs[f"{task}_nll"].mean()),
                    "oracle NLL": float(runs[f"{task}_oracle"].mean()),
                    "excess": float(excess.mean()),
                    "se over seeds": float(excess.sem()),
                    "at most": target,
                    "reached": bool(excess.mean() <= target),
                }
            )
    return pd.DataFrame(rows)


def page(folder: Path, reference: Path) -> str:
    runs, machine = _records(folder, "paper")
    default, here = _records(folder, "default")
    cells = comparison(folder, reference)
    selected = cells[cells["backbone"] == "selected"]
    routing = cells[cells["claim"] == "routing"]
    cost, _ = _records(folder, "cost")
    warm = cost[cost["repeat"] > 0].groupby("preset")["seconds"].mean()
    cold = cost[cost["repeat"] == 0].set_index("preset")["seconds"]
    redraws, _ = _records(folder, "redraws")
    spread = redraws[redraws["seed"] > 0].groupby("corpus")[list(TASKS)].agg(["mean", "std"])
    ours0 = redraws[redraws["seed"] == 0].set_index("corpus")
    noise = pd.DataFrame(
        {
            "corpus": NAMES[corpus],
            "head": task,
            "this corpus": float(ours0.loc[corpus, task]),
            "mean of redraws": float(spread.loc[corpus, (task, "mean")]),
            "sd of redraws": float(spread.loc[corpus, (task, "std")]),
        }
        for corpus in NAMES
        for task in TASKS
    )
    picks = _selected(runs).groupby(["corpus", "belief", "backbone"]).size().unstack(fill_value=0)
    lorenz = default[default["corpus"] == "lorenz63"]
    columns = ["claim", "corpus", "belief", "metric", "paper", "ours", "se", "typical draw"]
    columns += ["tolerance", "agrees", "agrees typical"]
    route_columns = ["belief", "backbone", "paper", "ours", "se", "typical draw", "agrees"]
    route_columns += ["agrees typical"]
    return f"""# Results of the core

Every figure on this page was computed by `python benchmarks/core.py report` from the records in
`docs/results/core/`, which the commands named below wrote.

Version and presets: all figures are of version 0.1. Those of `preset="paper"` are older than [the
comparison](main.md): validation was scored at every step and the first weights were drawn otherwise
than the preset does now. `held-out` was the default then; today's default is measured on [another
page](default.md).

## The paper's protocol, re-run

`python benchmarks/core.py paper` ({machine["device"]}, JAX {machine["jax"]}): ten seeds,
`preset="paper"`, all four backbones; a seed's backbone is the one with the lowest validation NLL.
`ours` is the mean over seeds with its standard error. `typical draw` removes the luck of one
frozen corpus: it subtracts what the simulator's own law scores on our test windows and adds what
it scores on average over redraws (`python benchmarks/core.py redraws`, table below). It applies to
NLLs only; the paper's own draw is unknown and keeps its luck. The preset of these runs scored
validation at every step and drew its first weights otherwise than it does now (as a prototype did,
see [open-choices.md](open-choices.md)); [the comparison](main.md) has it as it is.

{_table(selected[columns])}

{int(selected["agrees"].sum())} of {len(selected)} cells agree with the paper within the tolerance
as measured, {int(selected["agrees typical"].sum())} on a typical draw.

State NLL on Lorenz-63 by backbone (tolerance 0.06):

{_table(routing[route_columns])}

{int(routing["agrees"].sum())} of {len(routing)} agree as measured,
{int(routing["agrees typical"].sum())} on a typical draw.

The same cells on two more draws of each corpus, ten seeds each
(`python benchmarks/core.py redrawn`; draw 0 is the frozen corpus above):

{_table(over_draws(folder, reference))}

What to make of it. On OU the frozen corpus happens to be an easy one for the regime and a hard
one for the event (the last table of this section); other draws land on the paper's figures. On
Lorenz-63 the full belief fits better here than in the paper on every draw. All other cells agree.

How often validation picks each backbone, of ten seeds:

{_table(picks.reset_index())}

What the oracle scores on other draws of the same corpora (all 6,500 windows):

{_table(noise)}

## The preset `held-out` against the simulator's law

`python benchmarks/core.py default` ({here["device"]}): the default preset of version 0.1 on the
same ten splits, with the same settings for both corpora; `excess` is test NLL minus the oracle's
on the same windows. The oracle's Monte-Carlo error is at most
{default[[f"{t}_oracle_mc_error" for t in TASKS]].to_numpy().max():.4f} nats
(exactly zero on OU).

{_table(_default_rows(default))}

Coverage error of the state intervals on Lorenz-63: {lorenz["coverage_error"].mean():.4f} (asked
for: at most 0.02). Penalty of the leading
member, as validation chose it: {_choices(default)}.

## Cost

`python benchmarks/core.py cost`, two CPU cores, Lorenz-63, fits of the two presets (`diag`)
alternating in one process: held-out {warm["held-out"]:.1f} s, paper with its four backbones
{warm["paper"]:.1f} s (ratio {warm["held-out"] / warm["paper"]:.2f}); the first fit of each, with
compilation, {cold["held-out"]:.1f} s and {cold["paper"]:.1f} s.
"""


def _choices(default: pd.DataFrame) -> str:
    counts = default.groupby("corpus")["backbone_l2"].value_counts().sort_index()
    return "; ".join(f"{NAMES[c]} {p:g} ({n} of 10)" for (c, p), n in counts.items())
