"""Labels that dominate a score: single rows that move a task's mean NLL by themselves."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from scrollmt._data.reading import Rows

# Beyond the median label: so improbable, in nats and in interquartile ranges of the NLL (a model
# that fits badly everywhere has no outliers), and so much of the mean.
IMPROBABLE = 20.0
MOVES_THE_MEAN = 0.05
_SHOWN = 3


def dominating(rows: Rows, log_scores: Mapping[str, np.ndarray]) -> str | None:
    """A sentence on the labels that dominate the score of their task; None where none does.

    `log_scores` has one value a row, by task. Such a label is less likely than the task's median
    label by more than 20 nats and moves the mean by more than 0.05.
    """
    found = []
    for name, scores in log_scores.items():
        weight = rows.weights[name]
        seen = np.flatnonzero((weight > 0) & ~np.isnan(scores))
        if len(seen) == 0:
            continue
        nll = -scores[seen]
        low, middle, high = np.quantile(nll, [0.25, 0.5, 0.75])
        surplus = nll - middle
        moves = surplus * weight[seen] / weight[seen].sum()
        improbable = surplus > IMPROBABLE * max(1.0, high - low)
        for place in np.flatnonzero(improbable & (moves > MOVES_THE_MEAN)):
            row = seen[place]
            found.append((moves[place], name, rows.labels[name][row], rows.where[row]))
    if not found:
        return None
    found.sort(key=lambda one: -one[0])
    said = [
        f"task {name!r} is {label} in row {where} and moves the mean NLL by {moves:.2g} nats"
        for moves, name, label, where in found[:_SHOWN]
    ]
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return f"{'; '.join(said)}{more}; if such a label is a mistake, mark it as missing (NaN)"
