"""The whole reproduction as one HTML page that needs no network: tables, figures, ledger, cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from scrollmt.paper.arena.archive import ArrayKey
from scrollmt.paper.arena.probes import CORPUS, DEFAULT
from scrollmt.paper.data import published
from scrollmt.paper.data.published import NOT_IN_BODY
from scrollmt.paper.tables import figures, ledger, main_page
from scrollmt.paper.tables.comparison import full_table, main_table
from scrollmt.paper.tables.figures import CLOUD, LORENZ, OU, Columns
from scrollmt.paper.tables.layout import Table
from scrollmt.paper.tables.main_page import OWN_NAMES
from scrollmt.paper.tables.selection import arm_seconds, select
from scrollmt.paper.tables.verdicts import Finding
from scrollmt.report import pages
from scrollmt.report.pages import Html, Section

Arrays = Mapping[ArrayKey, np.ndarray]
ROUTES = {"diag": "scroll-diag", "full": "scroll-full", "closed": "closed"}
BADGES = {"holds": "good", "differs": "bad", "not checkable": "plain"}
LEDGER = (
    "Every checkable claim of the paper beside what was found here. A claim holds where our number "
    "is within the tolerance of its check; one that is not checkable needs runs that these records "
    "do not have."
)
ALT = {
    OU: "Predictive sd of the state over leads on OU, beside the analytic sd",
    LORENZ: "Root mean predictive variance over leads on Lorenz-63, beside that of the simulator",
    CLOUD: "Predicted variance of each test state against its simulated variance, both on log axes",
}


def over_leads(frame: pd.DataFrame, corpus: str) -> Columns | None:
    """The columns of a figure over leads from the records of `scroll-diag`, if there are two.

    On Lorenz the truth comes from simulated attractor states (`probe-corpus`), whose spread is
    the figure's band; leads without it are left out.
    """
    leads = frame[frame["corpus"].map(_is_lead_of(corpus))]
    leads = leads.assign(lead=leads["corpus"].map(_lead))
    facts = leads[leads["arm"] == CORPUS].groupby("lead").mean(numeric_only=True)
    mine = leads[leads["arm"] == "scroll-diag"]
    if corpus != "ou":
        mine = mine[mine["lead"].isin(facts.index)]
    if mine["lead"].nunique() < 2:
        return None
    chosen = select(mine)
    # The paper takes the mean sd where the variance is constant, and the root of the mean
    # variance where it is not.
    chosen["sd"] = chosen["mean_sd"] if corpus == "ou" else np.sqrt(chosen["mean_var"])
    by_seed = chosen.pivot_table(index="seed", columns="lead", values="sd").dropna()
    noise = chosen.pivot_table(index="seed", columns="lead", values="sigma_obs").dropna()
    band: dict[str, Any] = {}
    if corpus == "ou":
        truth = chosen.groupby("lead")["mean_true_var"].mean()
    else:
        facts = facts.loc[by_seed.columns]
        truth = facts["spread_mean_var"]
        band = {"p10": facts["spread_sd_p10"].to_numpy(), "p90": facts["spread_sd_p90"].to_numpy()}
    return figures.over_leads(
        by_seed.columns.to_numpy(),
        by_seed.to_numpy(),
        np.sqrt(truth.to_numpy()),
        sigma_obs=noise.to_numpy(),
        **band,
    )


def is_drawn(key: ArrayKey) -> bool:
    """Whether a figure needs the array; the others would only make exported records large."""
    return (key.corpus, key.backbone) == ("lorenz63", "tanh+ln") and key.arm in ROUTES.values()


def cloud(arrays: Arrays) -> Columns | None:
    """The columns of the per-state figure: the first seed on the layer-norm backbone."""
    found: dict[str, np.ndarray] = {}
    truth = None
    for key in sorted(arrays):
        for route, arm in ROUTES.items():
            if is_drawn(key) and key.arm == arm:
                if key.name == "var":
                    found.setdefault(route, arrays[key])
                elif truth is None:
                    truth = arrays[key]
    if truth is None or not found:
        return None
    return figures.per_state(truth, {route: found[route] for route in ROUTES if route in found})


def figure_columns(frame: pd.DataFrame, arrays: Arrays) -> dict[str, Columns]:
    """What there is to draw, by the name of the figure's data file."""
    made = {
        OU: over_leads(frame, "ou"),
        LORENZ: over_leads(frame, "lorenz63"),
        CLOUD: cloud(arrays),
    }
    return {name: columns for name, columns in made.items() if columns is not None}


def page(
    frame: pd.DataFrame, findings: Sequence[Finding], columns: Mapping[str, Columns], command: str
) -> str:
    """The report as HTML, with a figure for each of the `figure_columns`."""
    table = ledger.tabulated(findings)
    counts = ledger.counts(table).loc["all"]
    kept = main_page.comparable(frame)
    cells = main_page.cells(frame)
    designed = int((table["kind"] == ledger.DESIGNED).sum())
    lead = (
        f"{int(counts['holds'])} of the paper's {len(table)} claims hold, {int(counts['differs'])} "
        f"differ, {int(counts['not checkable'])} could not be checked with these records; "
        f"{designed} of them are about probes that were designed to match. Of its main table "
        f"{main_page.agreement(cells)}"
    )
    rivals, words = published.arms(), published.words("explained")
    shown = table.set_index("id")
    shown["verdict"] = [str(pages.badge(v, BADGES[v])) for v in shown["verdict"]]
    drawn = [
        pages.picture(figures.picture(name, data), alt=ALT[name], caption=words["figures"][name])
        for name, data in columns.items()
    ]
    arms = ours_first(kept)
    body = main_table(kept, arms=[a for a in arms if a not in NOT_IN_BODY], compete=rivals)
    full = full_table(kept, arms=arms, compete=rivals, seconds=arm_seconds(frame))
    claims = pages.table(shown, search=True, filters=("verdict", "study"), markup=("verdict",))
    sections = [
        Section("What is compared", _compared(arms, words)),
        Section(
            "Test NLL",
            _captioned(
                body,
                "Mean negative log score on test windows, in nats: lower is better.",
            ),
        ),
        Section(
            "All metrics",
            _captioned(
                full,
                "NLL in nats and coverage error: lower is better. Coverage error: how far the "
                "share of outcomes inside an interval is from its level, averaged over 19 levels. "
                "Seconds: training at one seed.",
            ),
        ),
        Section("Ledger", _with_caption(claims, LEDGER)),
        Section("Environment and cost", _environment(frame, command)),
    ]
    if drawn:
        sections.insert(3, Section("Figures", pages.pictures(drawn)))
    return pages.page("The paper, reproduced", sections, lead=lead)


def write(
    folder: Path, frame: pd.DataFrame, findings: Sequence[Finding], arrays: Arrays, *, command: str
) -> Path:
    """Write report.html, and the figures with their data files beside it."""
    columns = figure_columns(frame, arrays)
    figures.draw(folder / "figures", columns)
    return pages.write(folder / "report.html", page(frame, findings, columns, command), force=True)


def _environment(frame: pd.DataFrame, command: str) -> Html:
    spent = frame.drop_duplicates(["corpus", "arm", "backbone", "seed"]).groupby("device")[
        "seconds"
    ]
    facts = [
        ("command", command),
        ("runs", f"{len(frame):,} fits and settings, {frame['seed'].nunique()} seeds"),
        *((f"device {name}", f"{s:,.0f} s in all") for name, s in spent.sum().items()),
    ]
    return pages.facts(facts)


def ours_first(kept: pd.DataFrame) -> list[str]:
    """The arms of the tables in order: scrollmt as a user gets it, then those of the paper."""
    present = set(kept["arm"])
    return [arm for arm in (OWN_NAMES[DEFAULT], *published.arms()) if arm in present]


def _compared(arms: Sequence[str], words: Mapping[str, Any]) -> Html:
    what = {OWN_NAMES[DEFAULT]: words["default_arm"], **words["arms"]}
    table = pd.DataFrame({"arm": arms, "what it is": [what[arm] for arm in arms]})
    said = "The arms: every one answers the same three questions about the same windows."
    return Html(pages.facts(words["corpora"].items()) + _with_caption(pages.table(table), said))


def _captioned(table: Table, said: str) -> Html:
    """A table in a box of its own, so that the page never scrolls sideways, with its notes below.

    Notes inside the table would be as wide as the table.
    """
    bare = Html(replace(table, notes=()).html())
    box = pages.tag("div", bare, class_="wide", tabindex="0", role="region", aria_label=table.title)
    return _with_caption(box, " ".join([said, *table.notes]))


def _with_caption(content: Html, said: str) -> Html:
    caption = pages.tag("figcaption", said)
    return pages.tag("figure", Html(content + caption), class_="table")


def _is_lead_of(corpus: str) -> Any:
    return lambda id: id == corpus or (id.startswith(f"{corpus}@") and id.count("@") == 1)


def _lead(corpus_id: str) -> float:
    _, _, lead = corpus_id.partition("@")
    return float(lead) if lead else 0.5
