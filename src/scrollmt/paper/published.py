"""What the paper printed: its tables and its claims, as data of the package.

Means are over 10 seeds; NLLs in nats, coverage errors as fractions, accuracies in percent,
times in seconds a seed. A metric `m` of a table has a companion `m_mark`: bold, italic or none.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from io import StringIO
from typing import Any, Literal, get_args

import pandas as pd

from scrollmt.paper.statistics import Better

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
}
# The body table leaves these out of the full one.
NOT_IN_BODY = ("mle-sigma-ce", "laplace-full-probit")


@dataclass(frozen=True)
class Claim:
    """One checkable statement of the paper, in our words, with the number that it prints.

    `check` says how a computed value is compared with `paper_value`; `scrollmt.paper.verdicts`
    does it.
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
    """One of the paper's tables: full, alpha, routing or interference."""
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
    frame = claims()
    rows = frame[frame["id"] == id]
    if rows.empty:
        raise ValueError(f"no claim {id!r}; ids run from C001 to {frame['id'].iloc[-1]}")
    fields: dict[str, Any] = rows.iloc[0].to_dict()
    return Claim(**fields)


def arms() -> tuple[str, ...]:
    """The arms of the full table, in its order."""
    return tuple(table("full")["arm"].unique())


def _read(name: str) -> pd.DataFrame:
    text = (files("scrollmt.paper") / "data" / f"{name}.csv").read_text(encoding="utf-8")
    return pd.read_csv(StringIO(text), dtype=str, keep_default_na=False)
