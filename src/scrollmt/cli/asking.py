"""What a config asks: the tables of a file turned into the library's own questions and inputs.

    [questions.NAME]  kind, column, ...   ->  at_lead(column), over_window(column).mean() > 50
    [[inputs]]        kind, columns, ...  ->  lags(column), current(...), one_hot(...), calendar()
    [targets.NAME]    head, column, ...   ->  Gaussian(), Event(), Ordinal(R)

Every column that is named is noted with its key, to be looked up once the data is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from scrollmt._data.series import GapRule
from scrollmt.cli.schema import Section, choice, either, number, numbers, text, texts, whole, wholes
from scrollmt.cli.shell import Problem
from scrollmt.heads import (
    AbstractHead,
    Categorical,
    Censored,
    Count,
    Event,
    Gaussian,
    Mixture,
    Ordinal,
    Poisson,
    SinhArcsinh,
    StudentT,
)
from scrollmt.inputs import UNKNOWN, Input, calendar, current, lags, one_hot
from scrollmt.observables import Observable, Value, at_lead, over_window
from scrollmt.windows import Windowing

# The key and the name of each column that a config needs.
Columns = list[tuple[str, str]]

_TRANSFORMS = ("log1p", "log", "sqrt")
_REDUCERS = ("mean", "max", "min", "sum")
_THRESHOLDS: dict[str, Callable[[Value, float], Observable]] = {
    "above": Value.__gt__,
    "at_least": Value.__ge__,
    "below": Value.__lt__,
    "at_most": Value.__le__,
}
_NUMBERS: dict[str, Callable[..., AbstractHead]] = {
    "gaussian": Gaussian,
    "student_t": StudentT,
    "mixture": Mixture,
    "sinh_arcsinh": SinhArcsinh,
    "poisson": Poisson,
    "count": Count,
    "censored": Censored,
}
_CLASSES: dict[str, type[AbstractHead]] = {
    "event": Event,
    "ordinal": Ordinal,
    "categorical": Categorical,
}


@dataclass(frozen=True)
class Questions:
    """What is asked of a series: all that `Windowing.cut` takes, and heads by question.

    A question without a head of its own takes the one that its kind calls for.
    """

    windowing: Windowing
    asked: dict[str, Observable]
    inputs: tuple[Input, ...] | None
    heads: dict[str, AbstractHead]

    @property
    def number_columns(self) -> set[str]:
        """The columns that have to hold numbers."""
        asked = (name for one in self.asked.values() for name in one.columns())
        return {*asked, *(name for one in self.inputs or () for name in one.numeric_columns())}


@dataclass(frozen=True)
class Targets:
    """What is asked of a table: input columns, and by task the label's column and the head."""

    inputs: tuple[str, ...]
    columns: dict[str, str]
    heads: dict[str, AbstractHead]
    weight: str | None = None

    @property
    def number_columns(self) -> set[str]:
        """The columns that have to hold numbers; those of classes may hold texts."""
        values = (c for n, c in self.columns.items() if self.heads[n].num_classes is None)
        return {*self.inputs, *values, *([self.weight] if self.weight else [])}


def read_questions(root: Section, columns: Columns) -> Questions:
    windowing = _windowing(root.section("windows"))
    asked, heads = {}, {}
    for name, section in root.named("questions").items():
        asked[name] = _question(section)
        if isinstance(asked[name], Value) and section.has("head"):
            heads[name] = _head(section, _NUMBERS)
        section.close()
        columns.append((section.key("column"), asked[name].columns()[0]))
    if not asked:
        raise Problem("no question is asked; add a table such as [questions.state]")
    inputs: list[Input] = []
    for section in root.listed("inputs"):
        inputs += _inputs(section, columns)
    return Questions(windowing, asked, tuple(inputs) or None, heads)


def _windowing(section: Section) -> Windowing:
    ahead = section.one_of({"lead": whole(1), "leads": wholes(1)})
    if ahead is None:
        raise Problem(
            "windows.lead is missing; say how many rows ahead the questions look, or several "
            "as windows.leads = [1, 6, 24]"
        )
    windowing = {
        "history": section.need("history", whole(1)),
        ahead[0]: ahead[1],
        "stride": section.get("stride", whole(1), None),
        "fill_limit": section.get("fill_limit", whole(0), 0),
        "gaps": section.get("gaps", choice(get_args(GapRule)), "strict"),
        "missing_targets": section.get("missing_targets", choice(("drop", "keep")), "drop"),
    }
    section.close()
    with section.about():
        return Windowing(**windowing)


def _question(section: Section) -> Observable:
    kind = section.need("kind", choice(("value", "event", "bands")))
    column = section.need("column", text)
    units = section.get("units", text, None)
    over = section.get("over", choice(_REDUCERS), None)
    value = at_lead(column, units=units)
    if over is not None:
        value = getattr(over_window(column, units=units), over)()
    asked: Observable
    if kind == "value":
        transform = section.get("transform", choice(_TRANSFORMS), None)
        asked = getattr(value, transform)() if transform else value
    elif kind == "event":
        threshold = section.one_of(dict.fromkeys(_THRESHOLDS, number))
        if threshold is None:
            raise Problem(
                f"{section.name} asks yes or no and has no threshold; add one of "
                f"{', '.join(section.key(key) for key in _THRESHOLDS)}"
            )
        asked = _THRESHOLDS[threshold[0]](value, threshold[1])
    else:
        cuts = section.one_of({"edges": numbers, "quantiles": either(whole(2, 1000), numbers)})
        if cuts is None:
            raise Problem(
                f"{section.name} asks for bands; say where they are cut: "
                f"{section.key('edges')} = [20, 50], or {section.key('quantiles')} = 4 for equal "
                "shares"
            )
        with section.about(cuts[0]):
            asked = value.bands(cuts[1]) if cuts[0] == "edges" else value.quantile_bands(cuts[1])
    return asked


def _head(section: Section, known: Mapping[str, Callable[..., AbstractHead]]) -> AbstractHead:
    """The likelihood that a table names, with what it needs."""
    name = section.need("head", choice(known))
    given: dict[str, Any] = {}
    if name in ("ordinal", "categorical"):
        given["R"] = section.need("classes", either(whole(2, 1000), texts))
    elif name == "mixture":
        given["components"] = section.get("components", whole(2, 100), 5)
    elif name == "event":
        given["labels"] = section.get("labels", texts, None)
    elif name == "censored":
        given = {limit: section.get(limit, number, None) for limit in ("lower", "upper")}
        if given["lower"] is None and given["upper"] is None:
            raise Problem(f"{section.name} is censored; give {section.key('lower')} or its upper")
    with section.about():
        return known[name](**given)


def _inputs(section: Section, columns: Columns) -> list[Input]:
    kind = section.need("kind", choice(("lags", "current", "one_hot", "calendar")))
    if kind == "calendar":
        parts = section.need("parts", texts)
        section.close()
        with section.about("parts"):
            return [calendar(*parts)]
    names = section.need("columns", texts)
    columns += [(section.key("columns"), name) for name in names]
    made: Sequence[Any]
    if kind == "one_hot":
        categories = section.get("categories", _categories, None)
        unknown = section.get("unknown", choice(UNKNOWN), "error")
        with section.about("categories"):
            made = [one_hot(name, categories, unknown=unknown) for name in names]
    else:
        transform = section.get("transform", choice(_TRANSFORMS), None)
        if kind == "lags":
            steps = section.get("steps", either(whole(1), wholes(0)), None)
            with section.about("steps"):
                made = [lags(name, steps) for name in names]
        else:
            made = [current(*names)]
        if transform:
            made = [getattr(one, transform)() for one in made]
    section.close()
    return list(made)


def _categories(value: Any) -> list[Any]:
    good = isinstance(value, list) and all(isinstance(v, str | int | float) for v in value)
    if not good or not value:
        raise ValueError("a list of texts or numbers")
    return list(value)


def read_targets(root: Section, columns: Columns) -> Targets:
    table = root.section("table")
    inputs = table.need("inputs", texts)
    weight = table.get("weight", text, None)
    table.close()
    columns += [("table.inputs", name) for name in inputs]
    if weight is not None:
        columns.append(("table.weight", weight))
    labels, heads = {}, {}
    for name, section in root.named("targets").items():
        labels[name] = section.get("column", text, name)
        heads[name] = _head(section, _NUMBERS | _CLASSES)
        section.close()
        columns.append((section.key("column"), labels[name]))
        if labels[name] in inputs:
            raise Problem(
                f"{section.key('column')} = {labels[name]!r} is one of table.inputs too, so the "
                "answer would be given away; take it out of one of them"
            )
    if not heads:
        raise Problem("no target is named; add a table such as [targets.state]")
    return Targets(inputs, labels, heads, weight)
