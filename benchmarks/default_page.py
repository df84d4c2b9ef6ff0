"""The page docs/results/default.md, computed from the table that default.py collected."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from default_problems import PROBLEMS, SERIES, SIMULATED, UCI_SETS
from default_records import blocks_of
from scipy import stats

DEFAULT = "default"
LEVEL = 0.05
PAIRED = ["minus default", "p", "is"]
# Sets that were looked at while the default preset was changed.
DEVELOPMENT_SETS = ("boston", "concrete", "energy", "wine", "yacht", "pm25", "ou", "lorenz63")


def page(records: pd.DataFrame, published: Path, versions: list[dict[str, str]]) -> str:
    """The whole page."""
    parts = [_introduction()]
    uci = records[records["set"].isin(UCI_SETS)]
    if len(uci):
        parts.append(_uci_part(uci, pd.read_csv(published)))
    for name in SERIES:
        one = records[records["set"] == name]
        if len(one):
            parts.append(_series_part(name, one))
    simulated = records[records["set"].isin(SIMULATED)]
    if len(simulated):
        parts.append("## Simulated systems\n\nMean test NLL over splits, with its standard error.")
        parts.append(markdown(over_splits(simulated)))
    parts.append(_cost_part(records))
    if versions:
        lines = ["; ".join(f"{k} {v}" for k, v in sorted(one.items())) for one in versions]
        parts.append("## Versions\n\n" + "\n\n".join(textwrap.fill(line, 115) for line in lines))
    return "\n\n".join(parts) + "\n"


def order_of(records: pd.DataFrame) -> list[str]:
    """The default first, then its variants, then the peers."""
    found = sorted(records["method"].unique())
    return sorted(found, key=lambda name: (name != DEFAULT, not name.startswith(DEFAULT), name))


def _introduction() -> str:
    text = (
        "The default preset beside its peers, each through the same code: test NLL in nats, lower "
        "is better. A peer trains on a training part, chooses its settings and when to stop on a "
        "validation part, and is trained again on both with what was chosen. The default preset "
        "gets both parts as one and chooses by itself. Nothing is chosen on test rows. Sets that "
        f"were looked at while the default was developed: {', '.join(DEVELOPMENT_SETS)}. Loaders "
        "and questions are in `scrollmt.corpora`; peers and their settings in "
        "`scrollmt.paper.peers`. Not all splits and peers have been run yet: a cell says so where "
        "it has fewer splits than its line, and one split has no standard error. Seconds were "
        "measured beside other work."
    )
    command = "python benchmarks/default.py write"
    return (
        "# The default preset and its peers\n\n"
        + textwrap.fill(text, 115)
        + f"\n\nThis page is written by `{command}` from the records in `docs/results/default`."
    )


# Plain rows


def mean_and_error(values: pd.Series) -> tuple[float, float]:
    """Mean and standard error over splits; NaN for the error of a single split."""
    return float(values.mean()), float(values.sem()) if len(values) > 1 else float("nan")


def shown(mean: float, error: float) -> str:
    return f"{mean:.3f}" if np.isnan(error) else f"{mean:.3f} ± {error:.3f}"


def over_splits(records: pd.DataFrame) -> pd.DataFrame:
    """One line a set and head, one column a method: mean and standard error over splits."""
    lines = []
    for (name, head), one in records.groupby(["set", "head"], sort=False):
        line = {"set": name, "head": head, "splits": one["split"].nunique()}
        for method in order_of(records):
            scored = one.loc[one["method"] == method, "nll"]
            line[method] = shown(*mean_and_error(scored)) if len(scored) else ""
            if 0 < len(scored) < line["splits"]:
                line[method] += f" ({len(scored)} of {line['splits']})"
        lines.append(line)
    return pd.DataFrame(lines)


def against_best(records: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """The default beside the best peer run here, on the same splits, and the best published one.

    "within" is whether the default is at most one standard error behind: of the paired difference
    for peers run here, of the default's own mean for published figures.
    """
    lines = []
    for name, one in records.groupby("set", sort=False):
        scores = one.pivot(index="split", columns="method", values="nll")
        if DEFAULT not in scores:
            continue
        ours = scores[DEFAULT].dropna()
        mean, error = mean_and_error(ours)
        line: dict[str, Any] = {"set": name, "splits": len(ours), "default": shown(mean, error)}
        within = True
        peers = [m for m in scores.columns if not m.startswith(DEFAULT)]
        paired = {m: (ours - scores[m]).dropna() for m in peers}
        paired = {m: gap for m, gap in paired.items() if len(gap)}
        if paired:
            best = max(paired, key=lambda m: paired[m].mean())
            gap, gap_error = mean_and_error(paired[best])
            line |= {"best peer here": best, "default minus it": shown(gap, gap_error)}
            within &= gap <= (0.0 if np.isnan(gap_error) else gap_error)
        others = published[published["set"] == name]
        if len(others):
            lowest = others.loc[others["nll"].idxmin()]
            line |= {"best published": f"{lowest['method']} {lowest['nll']:.2f}"}
            within &= mean <= lowest["nll"] + (0.0 if np.isnan(error) else error)
        lines.append({**line, "within": "yes" if within else "no"})
    return pd.DataFrame(lines)


def _uci_part(records: pd.DataFrame, published: pd.DataFrame) -> str:
    judged = against_best(records, published)
    parts = [
        "## UCI regression",
        "Mean over the public splits and its standard error.",
        markdown(over_splits(records).drop(columns="head")),
    ]
    if len(judged):
        count = int((judged["within"] == "yes").sum())
        parts += [
            f"The default is best, or within one standard error of the best, on {count} of "
            f"{len(judged)} sets, against peers run here and published figures alike.",
            markdown(judged),
        ]
    table = published[published["set"].isin(records["set"])].copy()
    table["cell"] = [
        shown_published(nll, error) for nll, error in zip(table["nll"], table["error"], strict=True)
    ]
    wide = table.pivot(index="set", columns="method", values="cell").reset_index().fillna("")
    sources = "; ".join(
        f"{source}: {', '.join(sorted(set(one['method'])))}"
        for source, one in published.groupby("source")
    )
    parts += [f"Published figures, copied ({sources}).", markdown(wide)]
    return "\n\n".join(parts)


def shown_published(nll: float, error: float) -> str:
    return f"{nll:.2f}" if np.isnan(error) else f"{nll:.2f} ± {error:.2f}"


# Series


def paired(one: pd.DataFrame, method: str, head: str) -> tuple[float, float, float]:
    """Mean, standard error and p-value of the method's NLL minus the default's, over blocks.

    Blocks of all splits count alike; a t test over them.
    """
    chosen = one[one["head"] == head]
    table = chosen.pivot(index="split", columns="method", values="blocks")
    if method not in table or DEFAULT not in table:
        return (float("nan"),) * 3
    both = table[[method, DEFAULT]].dropna()
    gaps = [blocks_of(a) - blocks_of(b) for a, b in both.itertuples(index=False)]
    if not gaps:
        return (float("nan"),) * 3
    gap = np.concatenate(gaps)
    if not np.any(gap):
        return 0.0, 0.0, 1.0
    error = float(np.std(gap, ddof=1) / np.sqrt(len(gap)))
    return float(gap.mean()), error, float(stats.ttest_1samp(gap, 0.0).pvalue)


def verdict(gap: float, p: float) -> str:
    """Of a method against the default."""
    if p >= LEVEL:
        return "tied"
    return "worse" if gap > 0 else "better"


def differences(one: pd.DataFrame, splits: list[int]) -> tuple[pd.DataFrame, dict[str, bool]]:
    """A line a head and method, with the difference to the default; by head if none is better.

    A head that the default has no record of is in the lines alone.
    """
    lines: list[dict[str, Any]] = []
    best: dict[str, bool] = {}
    here = one[one["split"].isin(splits)]
    for head in dict.fromkeys(here["head"]):
        for method in order_of(here):
            scored = here[(here["head"] == head) & (here["method"] == method)]["nll"]
            if not len(scored):
                continue
            line = {"head": head, "method": method, "splits": len(scored), "NLL": scored.mean()}
            gap, error, p = paired(here, method, head)
            if method == DEFAULT:
                best[head] = True
            elif not np.isnan(gap):
                line |= {"minus default": shown(gap, error), "p": f"{p:.3f}"}
                line |= {"is": verdict(gap, p)}
                if not method.startswith(DEFAULT):
                    best[head] &= line["is"] != "better"
            lines.append(line)
    table = pd.DataFrame(lines, columns=["head", "method", "splits", "NLL", *PAIRED])
    return table.astype(dict.fromkeys(PAIRED, object)).fillna(dict.fromkeys(PAIRED, "")), best


def _series_part(name: str, one: pd.DataFrame) -> str:
    parts = [f"## {name}"]
    found = sorted(one["split"].unique())
    groups = {
        "Chronological split": [k for k in found if k == 0],
        "Rolling origins": [k for k in found if k > 0],
    }
    for title, splits in groups.items():
        if not splits:
            continue
        table, best = differences(one, splits)
        heads = [head for head, held in best.items() if held]
        parts += [
            f"{title}: differences are means over blocks of test windows, with a t test over "
            f"blocks at {LEVEL:g}. No peer is better on {len(heads)} of {len(best)} heads"
            + (f" ({', '.join(heads)})." if heads else "."),
            markdown(table),
        ]
    return "\n\n".join(parts)


# Cost


def cost(records: pd.DataFrame) -> pd.DataFrame:
    """Median seconds of a split and the most memory, by set and method."""
    each, methods = records.drop_duplicates(["set", "method", "split"]), order_of(records)
    lines = []
    for name in PROBLEMS:
        line: dict[str, Any] = {"set": name}
        for method in methods:
            one = each[(each["set"] == name) & (each["method"] == method)]
            if len(one):
                seconds = float((one["fit_s"] + one["predict_s"]).median())
                line[method] = f"{seconds:.1f} s, {one['peak_mb'].max():.0f} MB"
        if len(line) > 1:
            lines.append(line)
    return pd.DataFrame(lines).fillna("")


def _cost_part(records: pd.DataFrame) -> str:
    text = (
        "Median seconds for one split, all heads and the choice of settings included, and the peak "
        "memory of the process, imports included. The first split of a set holds compilation."
    )
    return f"## Cost\n\n{textwrap.fill(text, 115)}\n\n{markdown(cost(records))}"


def markdown(frame: pd.DataFrame) -> str:
    head = "| " + " | ".join(map(str, frame.columns)) + " |"
    rule = "|" + "|".join("---" for _ in frame.columns) + "|"
    body = ["| " + " | ".join(map(_cell, row)) + " |" for row in frame.itertuples(index=False)]
    return "\n".join([head, rule, *body])


def _cell(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float | np.floating) else str(value)
