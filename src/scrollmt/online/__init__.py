"""Forecasters that go on learning: one pass over new rows, each predicted before its label is seen.

    model = model.update(X_new, Y_new)          # a new model; the old one is unchanged
    found = online.filter(model, X_new, Y_new)  # forecasts before each label, scores, the model

`recursion` has the mathematics of a row, `bank` how several rates of forgetting are weighed,
`state` what a model keeps of it.
"""

from __future__ import annotations

from scrollmt.online.bank import Bank
from scrollmt.online.passes import Filtered, filter, prepare, update

__all__ = ["Bank", "Filtered", "filter", "prepare", "update"]
