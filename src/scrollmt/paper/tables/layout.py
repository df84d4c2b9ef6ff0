"""One table object and four ways to write it: Markdown, CSV, LaTeX and HTML."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from scrollmt.paper.tables.markdown import escaped, pipe_table
from scrollmt.paper.tables.statistics import Mark

# Unescaped, each of these means something to LaTeX; a bracket does after a line's end.
_TEX = {c: rf"\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "[": "{[}",
    "±": r"$\pm$",
}


@dataclass(frozen=True)
class Column:
    """A column of numbers; without `decimals` they are rounded as times are, 37 and 0.8."""

    key: str
    label: str
    group: str = ""
    decimals: int | None = 3

    def write(self, v: float) -> str:
        if not np.isfinite(v):
            return str(v)
        if self.decimals is not None:
            return f"{v:.{self.decimals}f}"
        return f"{v:.0f}" if abs(v) >= 9.95 else f"{v:.1f}" if abs(v) >= 0.095 else f"{v:.2g}"


@dataclass(frozen=True)
class Cell:
    """A value with its standard error and mark, and the paper's value where there is one."""

    value: float
    se: float = float("nan")
    mark: Mark = ""
    paper: float | None = None
    within: bool | None = None


@dataclass(frozen=True)
class Row:
    """A row's label and its cells by column key; a key that is not there stays empty."""

    label: str
    cells: Mapping[str, Cell]
    group: str = ""


@dataclass(frozen=True)
class Table:
    """A titled table whose columns and rows may come in groups of neighbours."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    notes: Sequence[str] = ()
    heads: tuple[str, str] = ("group", "arm")

    def markdown(self) -> str:
        """A pipe table; groups become a column of their own and a part of the column heads."""
        grouped = any(row.group for row in self.rows)
        heads = [*self.heads] if grouped else [self.heads[1]]
        names = [f"{c.group}: {c.label}" if c.group else c.label for c in self.columns]
        rule = f"| {' | '.join(['---'] * len(heads) + ['---:'] * len(names))} |"
        lines = []
        for row in self.rows:
            labels = [row.group, row.label] if grouped else [row.label]
            cells = [self._markdown_cell(row, column) for column in self.columns]
            lines.append([*map(escaped, labels), *cells])
        body = pipe_table(map(escaped, [*heads, *names]), rule, lines)
        notes = map(escaped, self.notes)
        return "\n\n".join([f"**{escaped(self.title)}**", body, *notes]) + "\n"

    def csv(self) -> str:
        """All numbers in full: `m`, `m_se`, `m_mark`, and `m_paper`, `m_within` where known."""
        beside = {c.key for c in self.columns for r in self.rows if self._has_paper(r, c)}
        parts = {c.key: (5 if c.key in beside else 3) for c in self.columns}
        ends = ("", "_se", "_mark", "_paper", "_within")
        lines = [[*self.heads, *(f"{k}{e}" for k, n in parts.items() for e in ends[:n])]]
        for row in self.rows:
            line = [row.group, row.label]
            for key, n in parts.items():
                line += _fields(row.cells.get(key))[:n]
            lines.append(line)
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(lines)
        return text.getvalue()

    def latex(self) -> str:
        """A `table` float with booktabs rules."""
        width = 1 + len(self.columns)
        lines = [r"\begin{table}", r"\centering", rf"\caption{{{_tex(self.title)}}}"]
        lines += [rf"\begin{{tabular}}{{l{'r' * len(self.columns)}}}", r"\toprule"]
        if any(c.group for c in self.columns):
            heads, rules = [], []
            for name, start, count in self._column_groups():
                heads.append(rf"\multicolumn{{{count}}}{{c}}{{{_tex(name)}}}")
                rules += [rf"\cmidrule(lr){{{start + 2}-{start + 1 + count}}}"] if name else []
            lines += [rf" & {' & '.join(heads)} \\", " ".join(rules)]
        lines.append(" & ".join(_tex(t) for t in [self.heads[1], *(c.label for c in self.columns)]))
        lines[-1] += r" \\"
        for name, rows in groupby(self.rows, key=lambda row: row.group):
            lines.append(r"\midrule")
            if name:
                lines.append(rf"\multicolumn{{{width}}}{{l}}{{\emph{{{_tex(name)}}}}} \\")
            for row in rows:
                cells = [self._latex_cell(row, column) for column in self.columns]
                lines.append(" & ".join([_tex(row.label), *cells]) + r" \\")
        lines += [r"\bottomrule", r"\end{tabular}"]
        lines += [rf"\par\smallskip{{\footnotesize {_tex(note)}}}" for note in self.notes]
        return "\n".join([*lines, r"\end{table}"]) + "\n"

    def html(self) -> str:
        """A `table` element with caption and scopes; a cell has its mark as its class."""
        width = 1 + len(self.columns)
        grouped = any(c.group for c in self.columns)
        lines = [
            "<table>",
            f"<caption>{html.escape(self.title)}</caption>",
            "<colgroup></colgroup>",
        ]
        lines += [f'<colgroup span="{n}"></colgroup>' for _, _, n in self._column_groups()]
        lines.append("<thead>")
        corner = f'<th scope="col" rowspan="{1 + grouped}">{html.escape(self.heads[1])}</th>'
        names = "".join(f'<th scope="col">{html.escape(c.label)}</th>' for c in self.columns)
        if grouped:
            heads = "".join(
                f'<th scope="colgroup" colspan="{n}">{html.escape(name)}</th>'
                for name, _, n in self._column_groups()
            )
            lines += [f"<tr>{corner}{heads}</tr>", f"<tr>{names}</tr>"]
        else:
            lines.append(f"<tr>{corner}{names}</tr>")
        lines.append("</thead>")
        for group, rows in groupby(self.rows, key=lambda row: row.group):
            lines.append("<tbody>")
            if group:
                head = f'<th scope="rowgroup" colspan="{width}">{html.escape(group)}</th>'
                lines.append(f"<tr>{head}</tr>")
            for row in rows:
                cells = "".join(self._html_cell(row, column) for column in self.columns)
                lines.append(f'<tr><th scope="row">{html.escape(row.label)}</th>{cells}</tr>')
            lines.append("</tbody>")
        if self.notes:
            notes = "<br>".join(html.escape(note) for note in self.notes)
            lines.append(f'<tfoot><tr><td colspan="{width}">{notes}</td></tr></tfoot>')
        return "\n".join([*lines, "</table>"]) + "\n"

    def _column_groups(self) -> Iterator[tuple[str, int, int]]:
        """Name, first column and length of each run of neighbours that share a group."""
        start = 0
        for name, members in groupby(self.columns, key=lambda column: column.group):
            count = len([*members])
            yield name, start, count
            start += count

    def _has_paper(self, row: Row, column: Column) -> bool:
        cell = row.cells.get(column.key)
        return cell is not None and cell.paper is not None

    def _pieces(self, row: Row, column: Column) -> tuple[str, str, str, Cell] | None:
        """Value, standard error and paper's value of a cell as text, and the cell itself."""
        cell = row.cells.get(column.key)
        if cell is None:
            return None
        se = "" if np.isnan(cell.se) else f"± {column.write(cell.se)}"
        paper = ""
        if cell.paper is not None:
            paper = f"[{column.write(cell.paper)}{' !' if cell.within is False else ''}]"
        return column.write(cell.value), se, paper, cell

    def _markdown_cell(self, row: Row, column: Column) -> str:
        if (pieces := self._pieces(row, column)) is None:
            return ""
        value, se, paper, cell = pieces
        stars = {"bold": "**", "italic": "*", "": ""}[cell.mark]
        return " ".join(part for part in (f"{stars}{value}{stars}", se, paper) if part)

    def _latex_cell(self, row: Row, column: Column) -> str:
        if (pieces := self._pieces(row, column)) is None:
            return ""
        value, se, paper, cell = (*map(_tex, pieces[:3]), pieces[3])
        command = {"bold": r"\textbf{%s}", "italic": r"\textit{%s}", "": "%s"}[cell.mark]
        small = " ".join(rf"{{\scriptsize {part}}}" for part in (se, paper) if part)
        return f"{command % value} {small}".rstrip()

    def _html_cell(self, row: Row, column: Column) -> str:
        if (pieces := self._pieces(row, column)) is None:
            return "<td></td>"
        value, se, paper, cell = pieces
        tag = {"bold": "strong", "italic": "em", "": "span"}[cell.mark]
        parts = [f"<{tag}>{value}</{tag}>"]
        parts += [f'<span class="se">{se}</span>'] if se else []
        parts += [f'<span class="paper">{paper}</span>'] if paper else []
        classes = [c for c in (cell.mark, "outside" if cell.within is False else "") if c]
        name = f' class="{" ".join(classes)}"' if classes else ""
        return f"<td{name}>{' '.join(parts)}</td>"


def _fields(cell: Cell | None) -> list[str]:
    """Value, se, mark, paper's value and whether ours is within, with no digit lost."""
    if cell is None:
        return [""] * 5
    se = "" if np.isnan(cell.se) else repr(float(cell.se))
    paper = "" if cell.paper is None else repr(float(cell.paper))
    within = "" if cell.within is None else str(bool(cell.within)).lower()
    return [repr(float(cell.value)), se, cell.mark, paper, within]


def _tex(text: str) -> str:
    escaped = "".join(_TEX.get(c, c) for c in text)
    # A hyphen before a digit is a minus, unless it joins a word to it.
    return re.sub(r"(?<![\w-])-(?=\d)", "$-$", escaped)
