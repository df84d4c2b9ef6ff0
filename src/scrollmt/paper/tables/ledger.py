"""The ledger: every claim of the paper, its figure, ours, and a verdict, from records alone.

    ledger.md     counts, what differs and why, where the paper contradicts itself, and all rows
    ledger.csv    one line a claim: id, study, statement, paper, ours, uncertainty, verdict, note

Why ours differs is found by people; their words are in `data/reasons.csv`, by claim.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import get_args

import numpy as np
import pandas as pd

from scrollmt.paper.data import published
from scrollmt.paper.tables.contradictions import CONTRADICTIONS
from scrollmt.paper.tables.markdown import escaped, pipe_table, write_texts
from scrollmt.paper.tables.verdicts import Finding, Verdict

COLUMNS = ("id", "study", "statement", "paper", "ours", "uncertainty", "verdict", "note")
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
NO_REASON = "Reason not found yet."
# The share of checkable claims that ought to hold.
WANTED = 0.9


def tabulated(found: Iterable[Finding]) -> pd.DataFrame:
    """One row for each finding; `note` has remarks, contradictions and reasons."""
    claims = published.claims().set_index("id")
    rows = []
    for finding in found:
        claim = claims.loc[finding.claim]
        rows.append(
            {
                "id": finding.claim,
                "study": finding.study,
                "statement": claim["statement"],
                "paper": _paper(claim),
                "ours": finding.value,
                "uncertainty": _uncertainty(finding.uncertainty),
                "verdict": finding.verdict,
                "note": _note(finding),
            }
        )
    return pd.DataFrame(rows, columns=[*COLUMNS])


def counts(table: pd.DataFrame) -> pd.DataFrame:
    """Verdicts by study, in the order of the studies, with a last row for all."""
    found = pd.crosstab(table["study"], table["verdict"])
    found = found.reindex(index=table["study"].unique(), columns=[*VERDICTS], fill_value=0)
    found.loc["all"] = found.sum()
    return found


def share_that_holds(table: pd.DataFrame) -> float:
    """Of the claims that could be checked; NaN if none could."""
    checked = table[table["verdict"] != "not checkable"]
    return float((checked["verdict"] == "holds").mean()) if len(checked) else float("nan")


def write(
    folder: str | Path, found: Sequence[Finding], *, name: str = "ledger", command: str = ""
) -> list[Path]:
    """Write findings to a folder, as a page and as CSV."""
    texts = {
        f"{name}.md": page(found, command=command),
        f"{name}.csv": tabulated(found).to_csv(index=False, lineterminator="\n"),
    }
    return write_texts(folder, texts)


def page(found: Sequence[Finding], *, command: str = "") -> str:
    """The ledger as Markdown."""
    table = tabulated(found)
    written = f"Written by `{command}` from the records. " if command else ""
    checked = int((table["verdict"] != "not checkable").sum())
    parts = [
        "# Ledger",
        f"{written}Every claim of the paper with its figure, ours, and a verdict. A claim holds "
        "if ours is within its tolerance. Uncertainties are standard errors over seeds of paired "
        "differences; over rolling origins, between the origins. What the paper leaves open was "
        "read as fits its figures best (open-choices.md), so the share below is not that of a "
        "protocol fixed beforehand.",
        f"Claims: {len(table)}. Checkable: {checked}. Of these {share_that_holds(table):.1%} hold "
        f"(wanted: {WANTED:.0%}).",
        _table(counts(table).reset_index()),
        "## What differs",
        *_differing(found, table),
        "## Where the paper contradicts itself",
        _listed(
            f"{f.claim}: {_escaped(CONTRADICTIONS[f.claim].told(f))}"
            for f in found
            if f.claim in CONTRADICTIONS
        ),
        "## Not checkable",
        _listed(_unchecked(found)),
        "## All claims",
    ]
    for name, rows in table.groupby("study", sort=False):
        parts += [f"### {name}", _table(rows.drop(columns="study"))]
    return "\n\n".join(parts) + "\n"


def _differing(found: Iterable[Finding], table: pd.DataFrame) -> list[str]:
    """A paragraph for each claim that ours differs from."""
    rows = table.set_index("id")
    paragraphs = []
    for finding in found:
        if finding.verdict == "differs":
            row = rows.loc[finding.claim]
            error = f" ± {row['uncertainty']}" if row["uncertainty"] else ""
            more = f" ({finding.note})" if finding.note else ""
            head = f"**{finding.claim}: {_escaped(row['statement'])}.**"
            body = f"Paper: {row['paper']}. Ours: {row['ours']}{error}{more}. {_remarks(finding)}"
            paragraphs.append(f"{head} {_escaped(body)}")
    return paragraphs or ["Nothing."]


def _unchecked(found: Iterable[Finding]) -> Iterator[str]:
    """Claims by why they could not be checked."""
    why: dict[str, list[str]] = {}
    for finding in found:
        if finding.verdict == "not checkable":
            why.setdefault(finding.note, []).append(finding.claim)
    return (f"{_escaped(note)}: {', '.join(ids)}" for note, ids in why.items())


def _listed(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines) or "Nothing."


def _paper(claim: pd.Series) -> str:
    error = claim["paper_uncertainty"]
    return f"{claim['paper_value']} ± {error}" if error else str(claim["paper_value"])


def _uncertainty(errors: Iterable[float]) -> str:
    """Two digits each; empty where none is known."""
    known = [*errors]
    if not np.isfinite(known).any():
        return ""
    return "; ".join(f"{v:.2g}" if np.isfinite(v) else "" for v in known)


def _note(finding: Finding) -> str:
    """Everything beside the value: what was computed, contradictions, the reason."""
    parts = (finding.note, _remarks(finding))
    return ". ".join(part for part in parts if part)


def _remarks(finding: Finding) -> str:
    """A contradiction of the paper, and the reason for a difference, as sentences."""
    remarks = []
    if finding.claim in CONTRADICTIONS:
        remarks.append(CONTRADICTIONS[finding.claim].told(finding))
    if finding.verdict == "differs":
        remarks.append(published.reasons().get(finding.claim) or NO_REASON)
    return " ".join(remarks)


_escaped = partial(escaped, signs=r"\|*_<")


def _table(frame: pd.DataFrame) -> str:
    rule = f"| {'|'.join(['---'] * frame.shape[1])} |"
    lines = ([_escaped(str(value)) for value in row] for row in frame.itertuples(index=False))
    return pipe_table(map(str, frame.columns), rule, lines)
