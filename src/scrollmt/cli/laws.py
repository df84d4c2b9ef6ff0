"""Laws as one tidy table: a row for each task and window.

    task, t (or row), until, units, mean, sd, q0.05 .., prob_0 ..

Quantiles are in original units. `mean` and `sd` are missing where the question is asked on another
scale, since a mean of logarithms is no logarithm of a mean. `prob_r` is the chance of class r: of
an event, prob_1 is the chance that it happens; of bands, prob_0 that of the lowest. Cells that
do not suit a task are missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from scrollmt.observables import Value
from scrollmt.predictive import DiscreteLaw, Law
from scrollmt.units import original_units
from scrollmt.windows import Windows

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def tidy(
    laws: Mapping[str, Law],
    index: pd.Index,
    *,
    windows: Windows | None = None,
    quantiles: Sequence[float] = QUANTILES,
) -> pd.DataFrame:
    """The laws of a prediction at rows or origins ``index``; ``windows`` know times and units."""
    frames = []
    for task, law in laws.items():
        cells: dict[str, Any] = {"task": task, index.name or "t": index}
        if windows is not None:
            asked = windows.questions[task]
            law = original_units(law, asked)
            cells["until"] = windows.target_times[task].to_numpy()
            cells["units"] = asked.original_units if isinstance(asked, Value) else None
        frames.append(pd.DataFrame(cells | numbers(law, quantiles)))
    table = pd.concat(frames, ignore_index=True)
    classes = sorted((c for c in table if c.startswith("prob_")), key=lambda c: int(c[5:]))
    moments = [c for c in ("mean", "sd") if c in table]
    levels = [c for c in table if c.startswith("q")]
    lead = [c for c in table if c not in {*classes, *moments, *levels}]
    return table[[*lead, *moments, *levels, *classes]]


def numbers(law: Law, quantiles: Sequence[float]) -> dict[str, np.ndarray]:
    """The columns that suit a law, each (N,)."""
    if isinstance(law, DiscreteLaw):
        return {f"prob_{r}": law.probs[:, r] for r in range(law.num_classes)}
    cells = {name: getattr(law, name) for name in ("mean", "sd") if hasattr(law, name)}
    # The law of a head of one's own may know no more than its log score.
    ask = getattr(law, "quantile", None)
    return cells if ask is None else cells | {f"q{p:g}": ask(p) for p in quantiles}
