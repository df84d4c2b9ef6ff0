"""The ledger: every claim of the paper, its figure, ours, and a verdict, from records alone.

    ledger.md     counts, what differs and why, where the paper contradicts itself, and all rows
    ledger.csv    one line a claim: `COLUMNS`

Why ours differs is found by people; their words are in `data/reasons.csv`, by claim. What kind of
statement a claim is was decided by people too (`data/kinds.csv`): an identity or a constant holds
for whoever computes it, a corpus fact before anything is trained, and a probe that was designed
from the paper's figures is no test of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd

from scrollmt.paper.data import published
from scrollmt.paper.protocol import PROTOCOL, Protocol
from scrollmt.paper.tables.contradictions import CONTRADICTIONS
from scrollmt.paper.tables.departures import departures
from scrollmt.paper.tables.markdown import escaped, pipe_table, write_texts
from scrollmt.paper.tables.signs import sign_of
from scrollmt.paper.tables.verdicts import Finding, Verdict

COLUMNS = (
    "id",
    "study",
    "kind",
    "statement",
    "paper",
    "ours",
    "uncertainty",
    "n",
    "verdict",
    "sign",
    "note",
)
DESIGNED = "designed"
EASY = ("identity", "constant", "corpus fact")
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
                "kind": published.kinds()[finding.claim],
                "statement": claim["statement"],
                "paper": _paper(claim),
                "ours": finding.value,
                "uncertainty": _uncertainty(finding.uncertainty),
                "n": finding.sample.n,
                "verdict": finding.verdict,
                "sign": sign_of(finding),
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


def counted(table: pd.DataFrame) -> pd.DataFrame:
    """The claims that count: those that could be checked, less those designed to match."""
    return table[(table["verdict"] != "not checkable") & (table["kind"] != DESIGNED)]


def share_that_holds(table: pd.DataFrame) -> float:
    """Of the claims that count; NaN if none does."""
    kept = counted(table)
    return float((kept["verdict"] == "holds").mean()) if len(kept) else float("nan")


def shares(table: pd.DataFrame, alone: pd.DataFrame | None = None) -> pd.DataFrame:
    """How many claims hold, by what is counted; `alone` is the table on first draws."""
    kept = counted(table)
    parts = {"all but those designed to match": kept}
    if alone is not None:
        parts["the same with the first draw of OU alone"] = counted(alone)
    parts["without identities, constants and corpus facts"] = kept[~kept["kind"].isin(EASY)]
    parts |= {f"of kind {kind}": kept[kept["kind"] == kind] for kind in (*EASY, "measurement")}
    parts["designed to match"] = table[table["kind"] == DESIGNED]
    rows = []
    for words, part in parts.items():
        holds = int((part["verdict"] == "holds").sum())
        share = f"{holds / len(part):.1%}" if len(part) else ""
        rows.append({"counted": words, "checkable": len(part), "hold": holds, "share": share})
    return pd.DataFrame(rows)


def write(
    folder: str | Path,
    found: Sequence[Finding],
    *,
    name: str = "ledger",
    command: str = "",
    **more: Any,
) -> list[Path]:
    """Write findings to a folder, as a page and as CSV; `more` is what `page` takes."""
    texts = {
        f"{name}.md": page(found, command=command, **more),
        f"{name}.csv": tabulated(found).to_csv(index=False, lineterminator="\n"),
    }
    return write_texts(folder, texts)


def page(
    found: Sequence[Finding],
    *,
    command: str = "",
    alone: Sequence[Finding] | None = None,
    beside: Mapping[str, str] | None = None,
    protocol: Protocol = PROTOCOL,
) -> str:
    """The ledger as Markdown.

    `alone` are the findings with every corpus on its first draw, `beside` are tables by study.
    """
    table = tabulated(found)
    fewer = None if alone is None else tabulated(alone)
    written = f"Written by `{command}` from the records. " if command else ""
    checked = int((table["verdict"] != "not checkable").sum())
    parts = [
        "# Ledger",
        f"{written}Every claim of the paper with its figure, ours, and a verdict. A claim holds "
        "if ours is within its tolerance. Uncertainties are standard errors over seeds of paired "
        "differences; over rolling origins, between the origins; `n` says over how many. The "
        "paper's protocol is followed as it is read here, with the departures listed below. What "
        "it leaves open was read as fits its figures best (open-choices.md), so the share below is "
        "not that of a protocol fixed beforehand.",
        f"Claims: {len(table)}. Checkable: {checked}, of which "
        f"{checked - len(counted(table))} were designed to match and are counted apart. Of the "
        f"others {share_that_holds(table):.1%} hold (wanted: {WANTED:.0%}).",
        _table(shares(table, fewer)),
        *_changed(table, fewer),
        f"Claims that cannot fail, whatever is computed: {', '.join(cannot_fail())}.",
        *_signs(table),
        "## Departures from the paper's text",
        departures(protocol),
        "## Verdicts by study",
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
        if beside and name in beside:
            parts.append(beside[str(name)])
    return "\n\n".join(parts) + "\n"


def cannot_fail() -> list[str]:
    """The claims that hold by construction."""
    return [id for id, remark in published.kind_remarks().items() if "cannot fail" in remark]


def _changed(table: pd.DataFrame, fewer: pd.DataFrame | None) -> Iterator[str]:
    """Which verdicts are others on the first draws."""
    if fewer is None:
        return
    pairs = zip(table["id"], table["verdict"], fewer["verdict"], strict=True)
    changed = [f"{id} ({after})" for id, before, after in pairs if before != after]
    told = ", ".join(changed) or "none"
    yield f"Verdicts that change with the first draw of OU alone: {told}."


def _signs(table: pd.DataFrame) -> Iterator[str]:
    """The second verdict on differences, and where it is another than the first."""
    judged = table[table["sign"] != ""]
    if judged.empty:
        return
    same = judged["sign"] == "reproduced"
    lost = judged[~same & (judged["verdict"] == "holds")]["id"]
    yield (
        f"{len(judged)} claims are differences from zero, by a printed error or by who is said to "
        f"be ahead. The column `sign` says whether ours has the paper's sign and, at 0.05, its "
        f"significance: {int(same.sum())} do. Within tolerance, but not with that sign and "
        f"significance: {', '.join(lost) or 'none'}."
    )


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
    parts = (finding.note, published.kind_remarks()[finding.claim], _remarks(finding))
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
