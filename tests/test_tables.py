"""From synthetic records to selections, comparisons and tables that other programs can read."""

import json
import re
from html.parser import HTMLParser
from io import StringIO

import numpy as np
import pandas as pd
import pytest

from printed import times_as_printed
from scrollmt.paper.data import published
from scrollmt.paper.data.published import CORPORA, METRICS, NLLS
from scrollmt.paper.studies.probes import cost
from scrollmt.paper.tables.comparison import compare_cells, full_table, main_table
from scrollmt.paper.tables.layout import Cell, Column, Row, Table
from scrollmt.paper.tables.selection import arm_seconds, drop_unselected, select, together

BACKBONES = ("relu", "tanh+ln")
SEEDS = (5, 6, 7, 8)
FULL = published.table("full").set_index(["corpus", "arm"])


def records(shift: float = 0.0, arms: tuple[str, ...] | None = None) -> pd.DataFrame:
    """Every arm on two backbones; the second is selected and scores the paper's numbers + shift."""
    rng = np.random.default_rng(1)
    rows = []
    for (corpus, arm), printed in FULL.iterrows():
        if arms is not None and arm not in arms:
            continue
        settings = [{"event_weight": w} for w in (0.1, 10.0)] if "grid" in arm else [{}]
        # The noise of four seeds adds up to none, and so the means are the paper's.
        noise = rng.normal(0.0, 1e-3, size=len(SEEDS))
        for place, backbone in enumerate(BACKBONES):
            for at, setting in enumerate(settings):
                for seed, wiggle in zip(SEEDS, noise - noise.mean(), strict=True):
                    chosen = place == 1 and at == 0
                    row = {"corpus": corpus, "arm": arm, "backbone": backbone, "seed": seed}
                    row |= {"setting": json.dumps(setting), "seconds": 2.0 + place}
                    row |= {"valid_nats": 1.0 if chosen else 2.0}
                    row |= {"valid_mixed": 3.0 if chosen else 3.0 - at}
                    row |= {m: printed[m] + wiggle + shift + 9.0 * (not chosen) for m in METRICS}
                    rows.append(row)
    return pd.DataFrame(rows)


RECORDS = records()


# Draws


def test_what_some_criterion_selects_is_not_dropped() -> None:
    settings = json.dumps({"event_weight": 30.0})
    worse = RECORDS.assign(setting=settings, valid_nats=9.0, valid_mixed=9.0)
    tried = pd.concat([RECORDS, worse[worse["arm"].isin(published.GRIDS)]])
    further = tried[tried["corpus"] == "ou"].assign(corpus="ou~1")
    frame = pd.concat([tried, further], ignore_index=True)
    short = drop_unselected(frame)
    gone = frame.drop(short.index)
    assert set(gone["corpus"]) == {"ou~1"}
    assert set(gone["arm"]) == {*published.GRIDS}
    assert set(gone["setting"]) == {settings}
    for by in ("valid_nats", "valid_mixed"):
        pd.testing.assert_frame_equal(select(short, by), select(frame, by))
    # Every backbone is still there: a seed that lacks one would not count.
    assert short.groupby(["corpus", "arm", "seed"])["backbone"].nunique().eq(2).all()


def test_tables_average_over_the_draws_of_a_corpus() -> None:
    further = RECORDS[RECORDS["corpus"] == "ou"].assign(corpus="ou~1")
    further[[*METRICS]] += 1.0
    frame = together(pd.concat([RECORDS, further], ignore_index=True))
    assert set(frame["corpus"]) == set(RECORDS["corpus"])
    means = select(frame).groupby(["corpus", "arm"])["reg_nll"].agg(["mean", "size"])
    ours, theirs = means.loc["ou"], FULL.loc["ou"]["reg_nll"]
    assert (ours["size"] == 2 * len(SEEDS)).all()
    np.testing.assert_allclose(ours["mean"], theirs.loc[ours.index] + 0.5)


# Selection


def test_selection_takes_the_lowest_criterion_at_each_seed() -> None:
    chosen = select(RECORDS)
    assert len(chosen) == 48 * len(SEEDS)
    assert set(chosen["backbone"]) == {"tanh+ln"}
    means = chosen.groupby(["corpus", "arm"])[[*METRICS]].mean()
    pd.testing.assert_frame_equal(
        means.sort_index(), FULL[[*METRICS]].sort_index(), check_dtype=False, atol=1e-9
    )


def test_selection_by_hand() -> None:
    frame = pd.DataFrame(
        [
            ("ou", "a", "tanh", 1, "{}", 2.0, 9.0),
            ("ou", "a", "relu", 1, "{}", 1.0, 8.0),
            ("ou", "a", "tanh", 2, "{}", 0.5, 7.0),
            ("ou", "a", "relu", 2, "{}", np.nan, 1.0),
            ("pm25", "a", "relu", 1, "{}", np.nan, 5.0),
        ],
        columns=["corpus", "arm", "backbone", "seed", "setting", "valid_nats", "valid_mixed"],
    )
    assert [*select(frame)["backbone"]] == ["relu", "tanh", "relu"]
    assert [*select(frame, by="valid_mixed")["backbone"]] == ["relu", "relu", "relu"]
    # The frame comes back as it was recorded, a criterion that failed with it.
    assert np.isnan(select(frame)["valid_nats"].iloc[-1])
    by_backbone = select(frame, keys=("corpus", "arm", "backbone", "seed"))
    assert len(by_backbone) == len(frame)


def test_both_criteria_select_among_the_same_runs() -> None:
    grid = RECORDS[RECORDS["arm"] == "map-ce-grid"]
    nats, mixed = select(grid), select(grid, by="valid_mixed")
    assert set(nats["setting"]) == {'{"event_weight": 0.1}'}
    assert set(mixed["setting"]) == {'{"event_weight": 10.0}'}
    assert len(nats) == len(mixed)


def test_selection_does_not_depend_on_the_order_of_records() -> None:
    tied = RECORDS.assign(valid_nats=1.0)
    shuffled = tied.sample(frac=1.0, random_state=0)
    pd.testing.assert_frame_equal(select(tied), select(shuffled))


def test_selection_names_what_is_missing() -> None:
    with pytest.raises(ValueError, match=r"lacks the columns \['valid_sum'\]"):
        select(RECORDS, by="valid_sum")


def test_time_adds_backbones_and_leaves_compilation_apart() -> None:
    seconds = arm_seconds(times_as_printed())
    assert len(seconds) == 48 * cost.SEEDS
    full = seconds[(seconds["corpus"] == "pm25") & (seconds["arm"] == "scroll-full")]
    assert full["time_s"].to_list() == pytest.approx([1.3, 1.3])
    assert full["compile_s"].to_list() == pytest.approx([4.0, 4.0])
    assert arm_seconds(RECORDS).empty


# Comparison


def test_cells_that_are_the_papers_are_all_within() -> None:
    compared = compare_cells(select(RECORDS))
    assert len(compared) == 240
    assert compared["run"].all()
    assert compared["within"].all()
    np.testing.assert_allclose(compared["difference"], 0.0, atol=1e-9)
    np.testing.assert_allclose(compared["ours"], compared["paper"], atol=1e-9)
    assert (compared["se"] > 0.0).all()


def test_each_cell_is_judged_by_its_own_tolerance() -> None:
    compared = compare_cells(select(records(shift=0.025)))
    tolerance = {"C001": 0.03, "C002": 0.02, "C004": 0.006, "C005": 1.5, "C006": 0.07}
    for claim, allowed in tolerance.items():
        rows = compared[compared["claim"] == claim]
        assert (rows["tolerance"] == allowed).all()
        assert (rows["within"] == (allowed > 0.025)).all()
    np.testing.assert_allclose(compared["difference"], 0.025, atol=1e-9)


def test_the_arm_that_failed_in_the_paper_has_its_own_claim() -> None:
    def cell(value: float) -> pd.Series:
        frame = RECORDS.copy()
        frame.loc[(frame["corpus"] == "pm25") & (frame["arm"] == "mle-sigma-probit"), "reg_nll"] = (
            value
        )
        compared = compare_cells(select(frame))
        return compared[compared["claim"] == "C040"].squeeze()

    assert (cell(1.5)["arm"], cell(1.5)["metric"]) == ("mle-sigma-probit", "reg_nll")
    assert cell(1.5)["within"]
    assert cell(30.0)["within"]
    assert not cell(1.4)["within"]


def test_cells_that_were_not_run_are_neither_within_nor_outside() -> None:
    compared = compare_cells(select(records(arms=("scroll-diag",))))
    assert len(compared) == 240
    assert compared["run"].sum() == 15
    assert compared["within"].isna().sum() == 225


def test_a_failed_run_is_outside() -> None:
    frame = RECORDS.copy()
    frame.loc[(frame["arm"] == "map-ce") & (frame["seed"] == 5), "ord_nll"] = np.nan
    compared = compare_cells(select(frame))
    outside = compared[compared["within"].eq(False)]
    assert {*zip(outside["arm"], outside["metric"], strict=True)} == {("map-ce", "ord_nll")}
    assert len(outside) == 3


def test_a_frame_that_was_not_selected_is_refused() -> None:
    with pytest.raises(ValueError, match=r"several runs of .*select\(\) first"):
        compare_cells(RECORDS)


# The two tables


def test_main_table_has_the_body_arms_and_their_nlls() -> None:
    table = main_table(RECORDS)
    assert [row.label for row in table.rows] == [
        arm for arm in published.arms() if arm not in published.NOT_IN_BODY
    ]
    assert [c.key for c in table.columns] == [f"{c}_{m}" for c in CORPORA for m in NLLS]
    cell = table.rows[0].cells["lorenz63_reg_nll"]
    assert cell.value == pytest.approx(2.333)
    assert (cell.paper, cell.within) == (2.333, True)
    best = {row.label for row in table.rows if row.cells["lorenz63_reg_nll"].mark == "bold"}
    assert best == {"scroll-full"}


def test_full_table_marks_accuracy_from_above_and_adds_the_time() -> None:
    table = full_table(RECORDS, seconds=arm_seconds(times_as_printed()))
    assert len(table.rows) == 48
    pm25 = {row.label: row.cells for row in table.rows if row.group == "PM2.5"}
    accuracy = {arm: cells["evt_acc_pct"] for arm, cells in pm25.items()}
    assert [a for a, c in accuracy.items() if c.mark == "bold"] == ["scroll-diag-ens5"]
    time = pm25["scroll-full"]["time_s"]
    assert (time.value, time.mark, time.paper, time.within) == (1.3, "", 1.3, None)


def test_an_arm_of_ones_own_is_one_more_row() -> None:
    own = records(shift=-0.5, arms=("scroll-full",)).assign(arm="mine")
    both = pd.concat([own, RECORDS])
    table = main_table(both)
    assert table.rows[-1].label == "mine"
    cell = table.rows[-1].cells["ou_reg_nll"]
    assert (cell.mark, cell.paper, cell.within) == ("bold", None, None)
    apart = main_table(both, compete=published.arms())
    assert apart.rows[-1].cells["ou_reg_nll"].mark == ""
    marks = [row.cells["lorenz63_reg_nll"].mark for row in apart.rows]
    assert marks == [row.cells["lorenz63_reg_nll"].mark for row in main_table(RECORDS).rows] + [""]


def test_rows_can_be_chosen_and_a_part_of_the_study_is_enough() -> None:
    few = RECORDS[RECORDS["corpus"].isin(["ou"]) & (RECORDS["seed"] == 5)]
    table = full_table(few, arms=["map-ce", "mle-sigma-ce"], beside_paper=False)
    assert [row.label for row in table.rows] == ["map-ce", "mle-sigma-ce"]
    cell = table.rows[0].cells["reg_nll"]
    assert np.isnan(cell.se)
    assert cell.paper is None
    assert len(table.notes) == 1
    with pytest.raises(ValueError, match=r"no records of the arms \['mapp'\]"):
        main_table(RECORDS, arms=["mapp"])
    with pytest.raises(ValueError, match="column 'corpus' has none of"):
        main_table(RECORDS.assign(corpus="lorenz63-std"))


def test_an_arm_that_missed_a_corpus_leaves_its_cells_empty() -> None:
    missing = (RECORDS["arm"] == "map-ce") & (RECORDS["corpus"] == "pm25")
    table = main_table(RECORDS[~missing])
    row = next(row for row in table.rows if row.label == "map-ce")
    assert "pm25_reg_nll" not in row.cells
    assert "ou_reg_nll" in row.cells
    assert len(full_table(RECORDS[~missing]).rows) == 47


# The writers

ODD = 'a_b & 50% <b>"x"</b> | {1} #$~^\\'
TABLE = Table(
    ODD,
    [Column("m", "NLL", "state"), Column("k", "acc_%", "event", 1), Column("t", "s", "", None)],
    [
        Row("plain", {"m": Cell(-0.1234567890123, 0.002, "bold", -0.1, False)}, "OU"),
        Row(ODD, {"m": Cell(1.0, mark="italic"), "k": Cell(89.26, 0.04, "", 89.3, True)}, "OU"),
        Row("third", {"k": Cell(np.inf), "t": Cell(37.4, 0.03)}, "PM2.5"),
    ],
    [ODD],
    ("corpus", "arm"),
)
UNGROUPED = Table("t", [Column("m", "NLL")], [Row("a", {"m": Cell(1.0)}), Row("b", {})])


def test_markdown() -> None:
    lines = TABLE.markdown().splitlines()
    body = [line for line in lines if line.startswith("| ")]
    cells = [re.split(r"(?<!\\) \| ", line.strip("| ")) for line in body]
    assert cells[0] == ["corpus", "arm", "state: NLL", r"event: acc\_%", "s"]
    assert cells[1] == ["---", "---", "---:", "---:", "---:"]
    assert body[2] == "| OU | plain | **-0.123** ± 0.002 [-0.100 !] |  |  |"
    assert r"\| {1}" in body[3]
    assert "| *1.000* | 89.3 ± 0.0 [89.3] |" in body[3]
    assert body[4] == "| PM2.5 | third |  | inf | 37 ± 0.03 |"
    assert (
        UNGROUPED.markdown() == "**t**\n\n| arm | NLL |\n| --- | ---: |\n| a | 1.000 |\n| b |  |\n"
    )


def test_csv_loses_no_digit() -> None:
    back = pd.read_csv(StringIO(TABLE.csv()), keep_default_na=False)
    assert [*back.columns] == [
        *["corpus", "arm", "m", "m_se", "m_mark", "m_paper", "m_within"],
        *["k", "k_se", "k_mark", "k_paper", "k_within", "t", "t_se", "t_mark"],
    ]
    for (_, line), row in zip(back.iterrows(), TABLE.rows, strict=True):
        assert (line["corpus"], line["arm"]) == (row.group, row.label)
        for key in ("m", "k", "t"):
            cell = row.cells.get(key)
            if cell is None:
                assert (line[key], line[f"{key}_mark"]) == ("", "")
                continue
            assert float(line[key]) == cell.value
            assert line[f"{key}_mark"] == cell.mark
            assert line[f"{key}_se"] == ("" if np.isnan(cell.se) else repr(cell.se))
    assert [*back["m_within"]] == ["false", "", ""]
    assert [*back["k_within"]] == ["", "true", ""]


def test_csv_of_the_full_table_round_trips() -> None:
    back = pd.read_csv(StringIO(full_table(RECORDS).csv()))
    assert len(back) == 48
    np.testing.assert_allclose(back[[*METRICS]], FULL[[*METRICS]], atol=1e-9)
    np.testing.assert_array_equal(back[[f"{m}_paper" for m in METRICS]], FULL[[*METRICS]])
    assert back[[f"{m}_within" for m in METRICS]].all(axis=None)


def unescaped(text: str, character: str) -> int:
    return len(re.findall(rf"(?<!\\){re.escape(character)}", text))


@pytest.mark.parametrize("table", [TABLE, UNGROUPED, full_table(RECORDS), main_table(RECORDS)])
def test_latex_is_balanced(table: Table) -> None:
    text = table.latex()
    depth = 0
    for step in re.findall(r"(?<!\\)[{}]", text):
        depth += 1 if step == "{" else -1
        assert depth >= 0
    assert depth == 0
    assert unescaped(text, "$") % 2 == 0
    begun, ended = (re.findall(rf"\\{word}{{(\w+)}}", text) for word in ("begin", "end"))
    assert begun == ended[::-1] == ["table", "tabular"]
    for rule in ("toprule", "bottomrule"):
        assert text.count(f"\\{rule}") == 1
    # A line of the table has one column separator fewer than columns.
    lines = [line for line in text.splitlines() if line.endswith(r"\\")]
    plain = [line for line in lines if "multicolumn" not in line]
    assert len(plain) == len(table.rows) + 1
    assert {unescaped(line, "&") for line in plain} == {len(table.columns)}
    assert not any(line.startswith("[") for line in text.splitlines())
    assert unescaped(text, "%") == unescaped(text, "#") == unescaped(text, "_") == 0


def test_latex_marks_and_groups() -> None:
    text = TABLE.latex()
    assert r"\textbf{$-$0.123} {\scriptsize $\pm$ 0.002} {\scriptsize {[}$-$0.100 !]}" in text
    assert r"\textit{1.000}" in text
    assert r"\multicolumn{1}{c}{state} & \multicolumn{1}{c}{event} & \multicolumn{1}{c}{}" in text
    assert r"\cmidrule(lr){2-2} \cmidrule(lr){3-3}" in text
    assert r"\multicolumn{4}{l}{\emph{PM2.5}}" in text
    assert r"a\_b \& 50\% \textless{}b\textgreater{}" in text
    assert text.count(r"\midrule") == 2
    assert (
        r"\cmidrule(lr){2-4} \cmidrule(lr){5-7} \cmidrule(lr){8-10}" in main_table(RECORDS).latex()
    )


class Reader(HTMLParser):
    """Checks that elements nest, and keeps cells as (tag, attributes, text) by row."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows: list[list[tuple[str, dict[str, str | None], str]]] = []
        self.texts: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "br":
            return
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append((tag, dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "td" in self.open or "th" in self.open:
            tag, attrs, text = self.rows[-1][-1]
            self.rows[-1][-1] = (tag, attrs, text + data)
        elif self.open:
            self.texts[self.open[-1]] = self.texts.get(self.open[-1], "") + data


def read_html(table: Table) -> Reader:
    reader = Reader()
    reader.feed(table.html())
    reader.close()
    assert reader.open == []
    return reader


def test_html_reads_back() -> None:
    reader = read_html(TABLE)
    assert reader.texts["caption"] == ODD
    groups, names, first_group, first, second, _, third, notes = reader.rows
    assert [(a["scope"], text) for _, a, text in groups] == [
        *[("col", "arm"), ("colgroup", "state"), ("colgroup", "event"), ("colgroup", "")]
    ]
    assert groups[0][1]["rowspan"] == "2"
    assert [(a["scope"], text) for _, a, text in names] == [
        *[("col", "NLL"), ("col", "acc_%"), ("col", "s")]
    ]
    assert first_group == [("th", {"scope": "rowgroup", "colspan": "4"}, "OU")]
    assert first[0] == ("th", {"scope": "row"}, "plain")
    assert first[1] == ("td", {"class": "bold outside"}, "-0.123 ± 0.002 [-0.100 !]")
    assert first[2:] == [("td", {}, "")] * 2
    assert second[0][2] == ODD
    assert second[1] == ("td", {"class": "italic"}, "1.000")
    assert second[2] == ("td", {}, "89.3 ± 0.0 [89.3]")
    assert [text for _, _, text in third] == ["third", "", "inf", "37 ± 0.03"]
    assert notes == [("td", {"colspan": "4"}, ODD)]


@pytest.mark.parametrize("table", [TABLE, UNGROUPED, full_table(RECORDS), main_table(RECORDS)])
def test_html_rows_fill_the_width(table: Table) -> None:
    reader = read_html(table)
    spare = 0
    for row in reader.rows:
        width = sum(int(a.get("colspan") or 1) for _, a, _ in row)
        assert width + spare == 1 + len(table.columns)
        # The corner cell reaches into the next row of heads.
        spare = int(row[0][1].get("rowspan") or 1) - 1
    marked = [c for row in reader.rows for c in row if c[0] == "td"]
    bold = [c for c in marked if "bold" in (c[1].get("class") or "")]
    assert len(bold) == sum(c.mark == "bold" for r in table.rows for c in r.cells.values())
