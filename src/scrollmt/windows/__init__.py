r"""From a series and questions about its future to windows: inputs X, labels Y, times.

A window with origin t reads rows ``t - history + 1 .. t`` and is asked about ``(t, t + lead]``.
Every row from ``history - 1`` on is an origin, or every ``stride``-th (see ``windows.origins``):

    X[n] = inputs at t_n  (N, D),      Y[task][n] = observable of (t_n, t_n + lead]  (N,)

Simulated paths of S + 1 points fit in end to end: ``Windowing(history=1, lead=S, stride=S + 1)``
on ``{"x": paths.ravel()}`` makes one window of each.

Gaps are filled by the rule of ``_data.series``; a window that still reads a missing cell is
dropped and listed in ``dropped``. Quantile edges are learned from the training windows when the
windows are split or labelled; before that their labels cannot be read, so that no test window
influences them unless ``edges_from="corpus"`` asks for it.
"""

from scrollmt._data.series import read_series
from scrollmt.windows.recipe import Recipe, Windowing
from scrollmt.windows.windowed import Embargo, Parts, Windows

__all__ = ["Embargo", "Parts", "Recipe", "Windowing", "Windows", "read_series"]
