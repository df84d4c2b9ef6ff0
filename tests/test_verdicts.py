"""The paper's numbers agree with each other, and every kind of check gives the right verdict."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from scrollmt.paper.data import published
from scrollmt.paper.data.published import (
    BETTER,
    CHECKS,
    CORPORA,
    METRICS,
    NLLS,
    Claim,
    claim,
    claims,
)
from scrollmt.paper.tables.verdicts import OWN_CLAIM, cells, column_of, judge, ordered, target

FULL = published.table("full").set_index(["corpus", "arm"])
ALPHA = published.table("alpha").set_index(["corpus", "arm"])
ROUTING = published.table("routing").set_index(["backbone", "route"])
BACKBONES = ("relu", "relu+ln", "tanh", "tanh+ln")
GRIDS = ("map-ce-grid", "map-probit-grid")


def made(check: str, paper_value: str, tolerance: float = 0.0) -> Claim:
    return Claim("C999", "", "a-study", "", "", paper_value, "", check, tolerance)  # type: ignore[arg-type]


# The data


def test_claims_are_complete() -> None:
    frame = claims()
    assert [*frame["id"]] == [f"C{n:03d}" for n in range(1, 264)]
    assert set(frame["check"]) == set(CHECKS)
    assert (frame["tolerance"] >= 0.0).all()
    for name in ("label", "study", "statement", "quantity", "paper_value"):
        assert (frame[name].str.strip() == frame[name]).all()
        assert (frame[name] != "").all(), name
    assert frame["statement"].is_unique
    assert frame["study"].nunique() == 24


def test_every_claim_can_be_read() -> None:
    """It has numbers, or points to a column that is there, or is an ordering."""
    for id in claims()["id"]:
        row = claim(id)
        pointer = column_of(row.paper_value)
        if row.check == "ordering":
            assert pointer is None
        elif pointer is not None:
            name, column, corpus = pointer
            assert column in published.table(name)
            assert corpus in (None, *CORPORA)
            assert len(cells(row, {})) in (9, 12, 15, 16)
        else:
            assert target(row).numbers


def test_the_metric_cells_fall_under_fifteen_claims() -> None:
    pointers = [column_of(text) for text in claims()["paper_value"][:15]]
    assert set(pointers) == {("full", m, c) for m in METRICS for c in CORPORA}
    counted = sum(len(cells(claim(f"C{n:03d}"), {})) for n in range(1, 16))
    assert counted + len(OWN_CLAIM) == 240


def test_tables_have_their_shape() -> None:
    assert FULL.shape == (48, 12)
    assert [*FULL.index.unique("corpus")] == [*CORPORA]
    assert published.arms()[0] == "scroll-diag"
    assert len(published.arms()) == 16
    assert ALPHA.shape == (27, 8)
    assert ROUTING.shape == (16, 2)
    assert published.table("interference").shape == (9, 4)
    assert {*FULL["reg_nll_mark"]} == {"bold", "italic", ""}


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="no table 'fuller'"):
        published.table("fuller")
    with pytest.raises(ValueError, match="no claim 'C264'"):
        claim("C264")


def test_bold_is_the_best_mean_of_its_column() -> None:
    bold = 0
    for corpus in CORPORA:
        for metric in METRICS:
            column, mark = FULL.loc[corpus][metric], FULL.loc[corpus][f"{metric}_mark"]
            best = column.min() if BETTER[metric] == "lower" else column.max()
            assert (column[mark == "bold"] == best).all()
            bold += (mark == "bold").sum()
    # In two columns of OU the paper's full table prints none.
    assert bold == 13


def total(corpus: str, arm: str) -> float:
    return float(FULL.loc[(corpus, arm), list(NLLS)].sum())


def lead(corpus: str, arm: str) -> float:
    return total(corpus, arm) - min(total(corpus, grid) for grid in GRIDS)


def nll(corpus: str, arm: str, metric: str = "reg_nll") -> float:
    return float(FULL.loc[(corpus, arm), metric])


def gaps(one: str, other: str) -> list[float]:
    return [
        float(ROUTING.loc[(b, one), "reg_nll"] - ROUTING.loc[(b, other), "reg_nll"])
        for b in BACKBONES
    ]


def strong(metric: str) -> pd.Series:
    return ALPHA.loc[[("lorenz63", f"fixed-{a}") for a in (100, 1000, 10000)], metric]


# Claims whose number follows from the printed tables, up to the rounding of what is printed.
DERIVED = {
    "C025": lambda: min(nll("lorenz63", f"mle-sigma-{h}") for h in ("ce", "probit")) - 2.333,
    "C026": lambda: max(
        nll("ou", "scroll-diag", m) - min(nll("ou", g, m) for g in GRIDS) for m in NLLS
    ),
    "C027": lambda: np.ptp(FULL.loc["ou"]["reg_nll"]),
    "C028": lambda: lead("ou", "scroll-diag"),
    "C029": lambda: lead("lorenz63", "scroll-diag"),
    "C030": lambda: lead("lorenz63", "scroll-full"),
    "C031": lambda: total("lorenz63", "scroll-none") - total("lorenz63", "map-ce-grid"),
    "C032": lambda: lead("pm25", "scroll-diag"),
    "C033": lambda: nll("lorenz63", "map-ce-grid") - nll("lorenz63", "scroll-diag"),
    "C036": lambda: nll("lorenz63", "scroll-none") - nll("lorenz63", "map-probit"),
    "C038": lambda: FULL.loc["lorenz63"]["evt_nll"].agg(["min", "max"]),
    "C040": lambda: nll("pm25", "mle-sigma-probit"),
    "C050": lambda: nll("ou", "map-ce", "evt_acc_pct"),
    "C060": lambda: total("lorenz63", "map-ce") - total("lorenz63", "map-ce-grid"),
    "C061": lambda: total("lorenz63", "map-probit") - total("lorenz63", "map-probit-grid"),
    "C132": lambda: (min(gaps("closed", "full")), max(gaps("closed", "full"))),
    "C133": lambda: gaps("closed", "diag")[1],
    "C134": lambda: gaps("closed", "diag")[3],
    "C135": lambda: gaps("closed", "diag")[0],
    "C136": lambda: gaps("closed", "diag")[2],
    "C157": lambda: nll("lorenz63", "scroll-full") - nll("lorenz63", "scroll-diag"),
    "C158": lambda: (
        nll("lorenz63", "scroll-full", "ord_nll") - nll("lorenz63", "scroll-diag", "ord_nll")
    ),
    "C160": lambda: nll("pm25", "scroll-full", "evt_nll") - nll("pm25", "scroll-diag", "evt_nll"),
    "C169": lambda: abs(nll("lorenz63", "laplace-full-probit") - nll("lorenz63", "map-probit")),
    "C170": lambda: [nll(c, "laplace-diag-probit") - nll(c, "scroll-diag") for c in CORPORA],
    "C173": lambda: [
        nll("lorenz63", "scroll-diag-ens5", m) - nll("lorenz63", "scroll-diag", m)
        for m in ("reg_nll", "reg_calerr")
    ],
    "C206": lambda: max(
        abs(ALPHA.loc[(c, "self-tuned"), "reg_nll"] - ALPHA.loc[(c, "grid"), "reg_nll"])
        for c in CORPORA
    ),
    "C210": lambda: strong("reg_nll").mean() - ALPHA.loc[("lorenz63", "self-tuned"), "reg_nll"],
    "C212": lambda: (
        ALPHA.loc[("pm25", "self-tuned"), "reg_calerr"] - ALPHA.loc[("pm25", "grid"), "reg_calerr"]
    ),
    "C215": lambda: 7**3,
    "C221": lambda: 1.0 - np.exp(-2.0 * np.array([0.1, 0.25, 0.5, 1.0, 2.0])),
}


@pytest.mark.parametrize("id", DERIVED)
def test_a_claim_follows_from_the_tables(id: str) -> None:
    found = np.atleast_1d(np.asarray(DERIVED[id](), dtype=float))
    want = target(claim(id)).numbers
    decimals = len(claim(id).paper_value.split(";")[0].partition(".")[2].split(".")[0])
    np.testing.assert_allclose(found, want, atol=0.5 * 10.0**-decimals + 0.0011)


def test_interference_is_claimed_cell_by_cell() -> None:
    rows = published.table("interference")
    for n, (_, row) in enumerate(rows.iterrows(), 175):
        stated = claim(f"C{n}")
        assert float(stated.paper_value) == row["interference"]
        assert float(stated.paper_uncertainty) == row["interference_pm"]


def test_self_tuned_is_the_diag_arm() -> None:
    for corpus in CORPORA:
        for metric in ("reg_nll", "reg_calerr", "ord_nll"):
            here = ALPHA.loc[(corpus, "self-tuned"), metric]
            assert here == FULL.loc[(corpus, "scroll-diag"), metric]


# The judge


@pytest.mark.parametrize(
    ("check", "paper", "tolerance", "value", "verdict"),
    [
        # one number, and several of ours against it
        ("approx", "1.204", 0.03, 1.234, "holds"),
        ("approx", "1.204", 0.03, 1.174, "holds"),
        ("approx", "1.204", 0.03, 1.2341, "differs"),
        ("approx", "-0.000", 0.015, -0.02, "differs"),
        ("approx", "0.417", 0.02, [0.42, 0.41], "holds"),
        ("approx", "0.417", 0.02, [0.42, 0.39], "differs"),
        ("at-most", "0.003", 0.006, 0.009, "holds"),
        ("at-most", "0.003", 0.006, -5.0, "holds"),
        ("at-most", "0.003", 0.006, 0.0091, "differs"),
        ("at-least", "4.8", 2.5, 2.3, "holds"),
        ("at-least", "4.8", 2.5, 100.0, "holds"),
        ("at-least", "4.8", 2.5, 2.29, "differs"),
        ("exact", "6500", 0.0, 6500, "holds"),
        ("exact", "6500", 0.0, 6501, "differs"),
        ("exact", "0", 1e-8, 2e-8, "differs"),
        # a range: the smallest and the largest of ours with its ends
        ("approx", "0.166..0.189", 0.02, [0.17, 0.18, 0.2], "holds"),
        ("approx", "0.166..0.189", 0.02, (0.2, 0.17), "holds"),
        ("approx", "0.166..0.189", 0.02, (0.145, 0.19), "differs"),
        ("approx", "0.166..0.189", 0.02, (0.17, 0.21), "differs"),
        ("approx", "-0.31..-0.19", 0.08, (-0.35, -0.2), "holds"),
        ("at-least", "12.0..33.5", 6.0, (6.0, 900.0), "holds"),
        ("at-least", "12.0..33.5", 6.0, 5.9, "differs"),
        ("at-most", "12.0..33.5", 6.0, (1.0, 39.5), "holds"),
        ("at-most", "12.0..33.5", 6.0, (1.0, 39.6), "differs"),
        ("exact", "0.4..0.8", 0.0, (0.4, 0.8), "holds"),
        # counts
        ("count", "38 of 40", 6.0, 32, "holds"),
        ("count", "38 of 40", 6.0, 31, "differs"),
        ("count", "9 of 10", 2.0, [7, 10], "holds"),
        ("count", "9 of 10", 2.0, [7, 6], "differs"),
        ("count", "3..4 of 5", 1.0, [2, 5, 4], "holds"),
        ("count", "3..4 of 5", 1.0, [1, 4, 4], "differs"),
        ("count", "3..4 of 5", 1.0, [2, 2, 2], "differs"),
        ("count", "0", 0.0, 0, "holds"),
        ("count", "0", 0.0, 1, "differs"),
        # several numbers, in order
        ("approx", "-0.038; +0.017", 0.03, [-0.01, 0.04], "holds"),
        ("approx", "-0.038; +0.017", 0.03, [0.04, -0.01], "differs"),
        ("exact", "65; 100", 0.0, (65, 100), "holds"),
        # what is not a number does not pass
        ("approx", "1.204", 0.03, np.nan, "differs"),
        ("at-most", "1.204", 0.03, np.nan, "differs"),
        ("at-least", "1.204", 0.03, np.inf, "holds"),
        ("approx", "0.166..0.189", 0.02, [0.17, np.nan, 0.19], "differs"),
    ],
)
def test_numbers(check: str, paper: str, tolerance: float, value: object, verdict: str) -> None:
    found = judge(made(check, paper, tolerance), value)  # type: ignore[arg-type]
    assert found.verdict == verdict
    assert found.claim == "C999"
    assert found.study == "a-study"
    np.testing.assert_equal(found.numbers, tuple(np.atleast_1d(np.asarray(value, float))))


def test_a_finding_says_what_was_found() -> None:
    c = made("approx", "0.166..0.189", 0.02)
    found = judge(c, [0.18, 0.17, 0.19], uncertainty=0.001, note="on two seeds")
    assert found.value == "0.17..0.19"
    assert found.uncertainty == (0.001,)
    assert found.note == "on two seeds"
    assert judge(made("count", "38 of 40", 6.0), 37, total=40).value == "37 of 40"
    named = judge(made("approx", "1.25; 2.5", 0.1), {"ou": 1.25, "pm25": 2.46219})
    assert named.value == "ou 1.25; pm25 2.462"
    assert judge(made("exact", "12345", 0.0), 12345).value == "12345"


def test_numbers_come_as_they_are_computed() -> None:
    c = made("count", "3 of 4", 0.0)
    counted = np.array([True, True, True, False]).sum()
    for value in (counted, [counted], np.array([3]), pd.Series([3]), {"seeds": counted}):
        found = judge(c, value)
        assert (found.verdict, found.numbers) == ("holds", (3.0,))


def test_a_count_over_other_seeds_is_not_comparable() -> None:
    c = made("count", "10 of 10", 2.0)
    found = judge(c, 2, total=2)
    assert found.verdict == "not checkable"
    assert found.note == "counted over 2, the paper over 10"
    assert judge(c, 9, total=10).verdict == "holds"


def test_an_order_is_judged_by_whether_it_holds() -> None:
    c = made("ordering", "scroll-full < scroll-diag")
    shown = {"scroll-full": 2.23, "scroll-diag": 2.333}
    found = judge(c, ordered(*shown.values()), numbers=shown)
    assert (found.verdict, found.value) == ("holds", "scroll-full 2.23; scroll-diag 2.333")
    assert found.numbers == (2.23, 2.333)
    assert judge(c, np.bool_(False), numbers=[2.4, 2.3]).verdict == "differs"


@pytest.mark.parametrize(
    ("values", "slack", "want"),
    [
        ((1.0, 2.0, 3.0), 0.0, True),
        ((1.0, 1.0), 0.0, False),
        ((1.0, 3.0, 2.0), 0.0, False),
        ((1.0, 0.96), 0.05, True),
        ((1.0, 0.94), 0.05, False),
        ((0.0, np.nan), 0.0, False),
    ],
)
def test_ordered(values: tuple[float, ...], slack: float, want: bool) -> None:
    assert ordered(*values, slack=slack) is want


def test_what_cannot_be_checked_says_why() -> None:
    found = judge(made("approx", "1"), None, note="needs a corpus that was not run")
    assert (found.verdict, found.value, found.numbers) == ("not checkable", "", ())
    with pytest.raises(ValueError, match="needs a note"):
        judge(made("approx", "1"), None)


@pytest.mark.parametrize(
    ("c", "value", "fault"),
    [
        (made("approx", "1.2"), True, "an ordering takes a bool"),
        (made("ordering", "a < b"), 1.0, "an ordering takes a bool"),
        (made("ordering", "a < b"), True, "give the `numbers`"),
        (made("approx", "1; 2; 3"), [1.0, 2.0], r"3 numbers in order .* got 2"),
        (made("approx", "1..2"), 1.0, "smallest and the largest"),
        (made("count", "3 of 5"), 2.5, "not all whole numbers"),
        (made("approx", "about one"), 1.0, "no numbers to compare"),
        (made("approx", "1; 2..3"), [1.0, 2.0], "no numbers to compare"),
        (made("approx", "1"), [], "no value given"),
        (made("approx", "full.csv reg_nll"), pd.DataFrame({"x": [1]}), "columns paper and ours"),
        (made("approx", "full.csv reg_nll"), pd.DataFrame({"paper": [], "ours": []}), "0 rows"),
    ],
)
def test_misuse_is_refused(c: Claim, value: object, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        judge(c, value)  # type: ignore[arg-type]


# Cell by cell


def test_a_column_holds_when_every_cell_does() -> None:
    c = claim("C001")
    ours = {arm: value + 0.029 for arm, value in FULL.loc["ou"]["reg_nll"].items()}
    found = judge(c, cells(c, ours))
    assert (found.verdict, found.value) == ("holds", "16 of 16 cells agree")
    assert found.numbers == (16.0, 16.0)
    ours["map-ce"] += 0.01
    found = judge(c, cells(c, ours), note="ten seeds")
    assert (found.verdict, found.value) == ("differs", "15 of 16 cells agree")
    assert found.note == "ten seeds; outside: map-ce 1.242 against 1.203"


def test_a_column_with_cells_that_were_not_run_is_not_checkable() -> None:
    c = claim("C001")
    found = judge(c, cells(c, {"scroll-diag": 1.21, "map-ce": 9.0}))
    assert (found.verdict, found.value) == ("not checkable", "1 of 2 cells agree")
    assert found.note.startswith("14 of 16 cells not run; outside: map-ce")
    # A run that failed is no such cell.
    ours = {**FULL.loc["ou"]["reg_nll"], "map-ce": np.nan}
    assert judge(c, cells(c, ours)).verdict == "differs"


def test_the_cell_with_its_own_claim_is_left_out_of_its_column() -> None:
    ours = dict(FULL.loc["pm25"]["reg_nll"])
    ours["mle-sigma-probit"] = 99.0
    frame = cells(claim("C011"), ours)
    assert "mle-sigma-probit" not in frame.index
    assert judge(claim("C011"), frame).value == "15 of 15 cells agree"
    assert judge(claim("C040"), 99.0).verdict == "holds"
    assert judge(claim("C040"), 1.3).verdict == "differs"
    assert "mle-sigma-probit" in cells(claim("C012"), {}).index


def test_cells_of_the_routing_table_are_keyed_by_backbone_and_route() -> None:
    c = claim("C129")
    ours = dict(ROUTING["pearson_r"].dropna())
    frame = cells(c, ours)
    # The route without a belief has no correlation.
    assert len(frame) == 12
    assert judge(c, frame).verdict == "holds"
    ours["tanh", "diag"] += 0.2
    note = judge(c, cells(c, ours)).note
    assert note.startswith("outside: tanh diag ")


def test_cells_refuse_keys_that_the_table_lacks() -> None:
    with pytest.raises(ValueError, match=r"no cells \['scrol'\]"):
        cells(claim("C001"), {"scrol": 1.0})
    with pytest.raises(ValueError, match="points to no column"):
        cells(claim("C060"), {})


def test_the_paper_agrees_with_itself_through_the_judge() -> None:
    """Each column of its own table passes, and fails once a tolerance is taken away from it."""
    for n in range(1, 16):
        c = claim(f"C{n:03d}")
        _, metric, corpus = column_of(c.paper_value) or ("", "", "")
        ours = dict(FULL.loc[corpus][metric])
        assert judge(c, cells(c, ours)).verdict == "holds"
        ours["scroll-full"] += 1.01 * c.tolerance
        assert judge(c, cells(c, ours)).verdict == "differs"
        assert judge(replace(c, tolerance=1.02 * c.tolerance), cells(c, ours)).verdict == "holds"
