"""The ledger has every claim once, says why ours differs, and takes sides where the paper does."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from printed import as_printed
from scrollmt.paper.data import published
from scrollmt.paper.protocol import PROTOCOL
from scrollmt.paper.studies import findings
from scrollmt.paper.tables import ledger
from scrollmt.paper.tables.contradictions import (
    CONTRADICTIONS,
    by_error,
    by_size,
    by_verdict,
    nearer,
)
from scrollmt.paper.tables.departures import departures
from scrollmt.paper.tables.verdicts import Finding, Verdict

CLAIMS = published.claims()["id"]


def finding(
    *numbers: float, verdict: Verdict = "holds", errors: tuple[float, ...] = (), id: str = "C035"
) -> Finding:
    study = published.claim(id).study
    return Finding(id, "a value", numbers, errors, verdict, study, "a note")


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return ledger.tabulated(findings(as_printed()))


def test_every_claim_has_one_row(table: pd.DataFrame) -> None:
    assert [*table.columns] == [*ledger.COLUMNS]
    assert [*table["id"]] == [*CLAIMS]
    assert set(table["verdict"]) == {"holds", "differs", "not checkable"}
    assert (table["paper"] != "").all()
    checked = table[table["verdict"] != "not checkable"]
    assert (checked["ours"] != "").all()
    unchecked = table[table["verdict"] == "not checkable"]
    assert unchecked["note"].str.contains("not recorded|not run").all()
    row = table.set_index("id").loc["C029"]
    assert row["ours"] == "-0.159"
    assert float(row["uncertainty"]) < 1e-3


def test_counts_add_up(table: pd.DataFrame) -> None:
    counts = ledger.counts(table)
    assert counts.loc["all"].sum() == len(CLAIMS)
    assert counts.drop(index="all").sum().equals(counts.loc["all"])
    assert counts.loc["theory", "holds"] == 18
    kept = ledger.counted(table)
    assert not kept["kind"].eq("designed").any()
    held, differs, _ = ledger.counts(kept).loc["all"]
    assert ledger.share_that_holds(table) == pytest.approx(held / (held + differs))
    assert np.isnan(ledger.share_that_holds(table[table["verdict"] == "not checkable"]))


def test_a_row_that_differs_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    apart = finding(1.0, verdict="differs", id="C001")
    assert ledger.NO_REASON in ledger.tabulated([apart])["note"].item()
    monkeypatch.setattr(published, "reasons", lambda: {"C001": "The draw was lucky."})
    told = ledger.tabulated([apart, finding(1.0, id="C002")])["note"]
    assert told[0] == "a note. The draw was lucky."
    assert told[1] == "a note"
    assert "The draw was lucky." in ledger.page([apart])


def test_reasons_are_of_claims() -> None:
    given = published.reasons()
    assert set(given) <= set(CLAIMS)
    assert all(text.strip() == text and text for text in given.values())


@pytest.mark.slow
def test_the_ledger_is_written_as_a_page_and_as_a_table(
    table: pd.DataFrame, tmp_path: Path
) -> None:
    page, file = ledger.write(tmp_path, findings(as_printed()), command="scrollmt reproduce ledger")
    assert (page.name, file.name) == ("ledger.md", "ledger.csv")
    again = pd.read_csv(file, keep_default_na=False, dtype=str)
    pd.testing.assert_frame_equal(again, table.astype(str), check_dtype=False)
    text = page.read_text()
    assert "Written by `scrollmt reproduce ledger`" in text
    share = f"{ledger.share_that_holds(table):.1%}"
    assert f"Of the others {share} hold" in text
    for id in table.loc[table["verdict"] == "differs", "id"]:
        assert f"\n**{id}: " in text
    # Every row of a Markdown table has as many cells as its head.
    for block in text.split("\n\n"):
        if block.startswith("| id"):
            widths = {line.replace("\\|", "").count("|") for line in block.splitlines()}
            assert len(widths) == 1, block.splitlines()[0]


def test_one_study_is_written_under_its_own_name(tmp_path: Path) -> None:
    found = findings(as_printed(), "family-choice")
    page, file = ledger.write(tmp_path, found, name="family-choice")
    assert (page.name, file.name) == ("family-choice.md", "family-choice.csv")
    assert set(pd.read_csv(file)["study"]) == {"family-choice"}
    assert "Written by" not in page.read_text()
    with pytest.raises(ValueError, match="unknown study 'nothing'"):
        findings(as_printed(), "nothing")


# Kinds, counts and departures


def test_every_claim_has_a_kind(table: pd.DataFrame) -> None:
    assert [*published.kinds()] == [*CLAIMS]
    kinds = {"identity", "constant", "corpus fact", "designed", "measurement"}
    assert set(published.kinds().values()) == kinds
    designed = [id for id, kind in published.kinds().items() if kind == "designed"]
    assert designed == ["C232", "C233", "C234", "C239", "C241"]
    assert ledger.cannot_fail() == ["C016", "C057", "C070", "C215"]
    notes = table.set_index("id")["note"]
    assert all("designed to match" in notes[id] for id in designed)


def test_what_is_designed_and_what_is_easy_is_counted_apart() -> None:
    found = [
        finding(1.0, id="C232"),
        finding(1.0, id="C246"),
        finding(1.0, id="C001"),
        finding(1.0, id="C003", verdict="differs"),
        finding(id="C002", verdict="not checkable"),
    ]
    table = ledger.tabulated(found)
    alone = ledger.tabulated([*found[:2], replace(found[2], verdict="differs"), *found[3:]])
    shares = ledger.shares(table, alone).set_index("counted")
    assert [*shares.loc["all but those designed to match"]] == [3, 2, "66.7%"]
    assert [*shares.loc["the same with the first draw of OU alone"]] == [3, 1, "33.3%"]
    assert [*shares.loc["without identities, constants and corpus facts"]] == [2, 1, "50.0%"]
    assert [*shares.loc["designed to match"]] == [1, 1, "100.0%"]
    page = ledger.page(found, alone=[*found[:2], replace(found[2], verdict="differs"), *found[3:]])
    assert "Verdicts that change with the first draw of OU alone: C001 (differs)." in page


def test_departures_are_those_of_the_protocol() -> None:
    assert "penalty counts whole" in departures()
    literal = departures(replace(PROTOCOL, penalty_beside_means=1.0))
    assert "penalty" not in literal
    assert literal.count("\n") == departures().count("\n") - 1
    for line in (*departures().splitlines(), "OU is drawn four times"):
        assert line in ledger.page([finding(1.0, id="C001")])


# Sides


def test_contradictions_are_about_claims(table: pd.DataFrame) -> None:
    assert set(CONTRADICTIONS) <= set(CLAIMS)
    notes = table.set_index("id")["note"]
    for id, contradiction in CONTRADICTIONS.items():
        assert contradiction.about in notes[id]
    assert "Ours is on the side of the table" in notes["C035"]
    # Without a value there is no side to take.
    assert "Ours" not in notes["C218"]


def test_a_measurement_takes_the_nearer_side() -> None:
    side = nearer({"low": 1.0, "high": 2.0})
    assert side(finding(1.4)) == "nearer to low"
    assert side(finding(1.4, 1.8)) == "nearer to high"


def test_a_verdict_takes_a_side() -> None:
    side = by_verdict("the text", "the table")
    assert side(finding(1.0)) == "on the side of the text"
    assert side(finding(1.0, verdict="differs")) == "on the side of the table"


def test_a_size_takes_a_side() -> None:
    side = by_size(0.01, "the text", "the table")
    assert side(finding(-0.005, 0.01)) == "on the side of the text"
    assert side(finding(-0.02)) == "on the side of the table"


def test_an_error_takes_a_side() -> None:
    side = by_error("a tie", "no tie")
    assert side(finding(0.01, errors=(0.01,))).endswith("on the side of a tie")
    assert (
        side(finding(-0.03, errors=(0.01,))) == "3.0 standard errors and so on the side of no tie"
    )
    assert "neither" in side(finding(0.01))
    assert "neither" in side(finding(0.01, errors=(float("nan"),)))
