"""A number and its law, cut at edges into ordered classes.

    Cut((60, 80, 100))                   bands: below 60, 60 to 80, 80 to 100, from 100
    Cut((110,), closed="right")          an event: above 110
    Cut((110,), falling=True)            an event: below 110

Closed to the left, band r holds `edges[r-1] <= y < edges[r]`. Shapes: labels (N,), laws of N.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from scrollmt._io.arguments import check_number
from scrollmt.laws.base import Numbers, Vector
from scrollmt.laws.discrete import EventLaw, OrderedLaw, OrdinalLaw
from scrollmt.laws.real import Closed, NumberLaw


@dataclass(frozen=True)
class Cut:
    """Edges, which of them a band holds, and whether classes count from the top.

    An `event` has one edge, and its class 1 is the side that it happens on.
    """

    edges: tuple[float, ...]
    closed: Closed = "left"
    falling: bool = False
    event: bool = False

    def __post_init__(self) -> None:
        for edge in self.edges:
            check_number("an edge", edge, -np.finfo(float).max)
        object.__setattr__(self, "edges", tuple(float(edge) for edge in self.edges))
        if not self.edges or any(b <= a for a, b in pairwise(self.edges)):
            raise ValueError(
                f"edges must be at least one number, increasing without ties; got "
                f"{list(self.edges)}"
            )
        if self.event and len(self.edges) > 1:
            raise ValueError(f"an event has one edge, got {list(self.edges)}")

    @property
    def classes(self) -> int:
        return len(self.edges) + 1

    def labels(self, values: Numbers) -> Vector:
        """The class of each value as a float, NaN where the value is missing."""
        numbers = np.asarray(values, np.float64)
        band = np.digitize(numbers, self.edges, right=self.closed == "right")
        number = self.classes - 1 - band if self.falling else band
        return np.where(np.isnan(numbers), np.nan, number)

    def law(self, law: NumberLaw) -> OrderedLaw:
        """The law of the classes, from that of the number."""
        table = law.log_masses(self.edges, self.closed)
        table = table[:, ::-1] if self.falling else table
        cut: OrderedLaw = EventLaw(table) if self.event else OrdinalLaw(table)
        return cut._at_inputs_of(law)

    def scaled(self, offset: float, scale: float) -> Cut:
        """The cut of `(y - offset) / scale`."""
        return replace(self, edges=tuple((edge - offset) / scale for edge in self.edges))
