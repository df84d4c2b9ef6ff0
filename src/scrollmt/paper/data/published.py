"""What the paper printed: its tables and its claims, and what we say about them.

Means are over 10 seeds; NLLs in nats, coverage errors as fractions, accuracies in percent,
times in seconds a seed. A metric `m` of a table has a companion `m_mark`: bold, italic or none.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from io import StringIO
from typing import Any, Literal, get_args

import pandas as pd

Better = Literal["lower", "higher"]
Check = Literal["approx", "at-most", "at-least", "count", "exact", "ordering"]
CHECKS: tuple[Check, ...] = get_args(Check)
CORPORA = ("ou", "lorenz63", "pm25")
GRIDS = ("map-ce-grid", "map-probit-grid")
BETTER: dict[str, Better] = {
    "reg_nll": "lower",
    "reg_calerr": "lower",
    "evt_nll": "lower",
    "evt_acc_pct": "higher",
    "ord_nll": "lower",
}
METRICS = tuple(BETTER)
NLLS = ("reg_nll", "evt_nll", "ord_nll")
# What a row of each table is about; the other columns are numbers and their marks.
KEYS = {
    "full": ("corpus", "arm"),
    "alpha": ("corpus", "arm"),
    "routing": ("backbone", "route"),
    "interference": ("corpus", "head"),
    # Ours, of an earlier measurement at four seeds.
    "equivariance": ("backbone", "n"),
}
# The body table leaves these out of the full one.
NOT_IN_BODY = ("mle-sigma-ce", "laplace-full-probit")


@dataclass(frozen=True)
class Claim:
    """One checkable statement of the paper, in our words, with the number that it prints.

    `check` says how `tables.verdicts` compares a computed value with `paper_value`.
    """

    id: str
    label: str
    study: str
    statement: str
    quantity: str
    paper_value: str
    paper_uncertainty: str
    check: Check
    tolerance: float


def table(name: str) -> pd.DataFrame:
    """One of the paper's tables (full, alpha, routing, interference), or an earlier one of ours."""
    if name not in KEYS:
        raise ValueError(f"no table {name!r} of the paper; there are {sorted(KEYS)}")
    frame = _read(name)
    numbers = [c for c in frame if c not in KEYS[name] and c != "alpha" and "_mark" not in c]
    return frame.assign(**{c: pd.to_numeric(frame[c]) for c in numbers})


def claims() -> pd.DataFrame:
    """All claims, one row each, with the fields of `Claim` as columns."""
    frame = _read("claims")
    return frame.assign(tolerance=pd.to_numeric(frame["tolerance"]))


def claim(id: str) -> Claim:
    """The claim with this id, such as C001."""
    known = _claims()
    if id not in known:
        raise ValueError(f"no claim {id!r}; ids run from C001 to {max(known)}")
    return known[id]


@cache
def _claims() -> dict[str, Claim]:
    rows: list[dict[str, Any]] = claims().to_dict("records")
    return {row["id"]: Claim(**row) for row in rows}


def arms() -> tuple[str, ...]:
    """The arms of the full table, in its order."""
    return tuple(table("full")["arm"].unique())


@cache
def reasons() -> dict[str, str]:
    """Why ours differs, by claim, as far as it is known."""
    return _pairs("reasons")


@cache
def kinds() -> dict[str, str]:
    """Of every claim: identity, constant, corpus fact, designed or measurement."""
    return _pairs("kinds", "kind")


@cache
def kind_remarks() -> dict[str, str]:
    """What else is to be known of a claim's kind, such as that it cannot fail; often empty."""
    return _pairs("kinds", "remark")


@cache
def signs() -> dict[str, str]:
    """The sign that the paper gives a difference without an error, by claim (`tables.signs`)."""
    return _pairs("signs", "expected")


@cache
def cell_reasons() -> dict[str, str]:
    """Why a cell is outside its tolerance, by `corpus/arm/metric`."""
    return _pairs("cell_reasons")


def words(name: str) -> dict[str, Any]:
    """One of the TOML files: contradictions, departures or explained."""
    return tomllib.loads(_text(f"{name}.toml"))


def _pairs(name: str, value: str = "reason") -> dict[str, str]:
    """One column of a file by its first."""
    frame = _read(name)
    return dict(zip(frame.iloc[:, 0], frame[value], strict=True))


def _read(name: str) -> pd.DataFrame:
    return pd.read_csv(StringIO(_text(f"{name}.csv")), dtype=str, keep_default_na=False)


def _text(file: str) -> str:
    return (files("scrollmt.paper.data") / file).read_text(encoding="utf-8")
