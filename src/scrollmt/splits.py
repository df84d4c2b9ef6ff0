r"""Splits of N windows into training, validation and test index arrays.

A window with origin t reads the hours ``[t - history + 1, t]`` and is scored on
``(t, t + lead]``. Two windows whose origins are d steps apart share

    target hours           when  d <= lead - 1
    target with history    when  d <= lead + history - 1

so an embargo of ``lead + history - 1`` steps between the parts is the smallest one after
which no part's history holds target hours of another part. (With ``stride = lead =
history = 24`` hours that is one window.)

What leaks and what does not:

* independent draws, one window each (OU): nothing leaks, under any split;
* ``chronological_split`` and ``rolling_origins`` without embargo: the first windows of the
  later part have read, as history, the last target hours of the earlier one. Those hours lie
  in the past at forecast time, so a score is not flattered by it: it is what a forecaster in
  service would know. With ``stride < lead`` the target hours themselves are shared as well,
  and then the score is flattered;
* ``random_split`` of one series without embargo: training windows lie on both sides of a
  test window, so its target hours are the history of a training window. That is information
  from the future; scores on it are optimistic;
* an embargo removes shared hours. It does not remove correlation over longer times, nor
  anything computed from the whole series before the split (quantile edges, fills).

An embargo drops windows from the earlier part (random: from training first, then from
validation), never from the test part, so that scores with and without it are comparable.
Shapes: every part is an increasing integer array; the parts are disjoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

PAPER_FRACTIONS = (0.6, 0.2, 0.2)


class Split(NamedTuple):
    """Index arrays of the three parts; windows in none of them fell to the embargo."""

    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray

    def __repr__(self) -> str:
        return f"Split(train={len(self.train)}, valid={len(self.valid)}, test={len(self.test)})"


def random_split(
    n: int,
    seed: int,
    fractions: Sequence[float] = PAPER_FRACTIONS,
    *,
    embargo: int = 0,
    positions: Sequence[int] | np.ndarray | None = None,
) -> Split:
    """Disjoint random parts, drawn by a NumPy generator seeded with the integer ``seed``.

    ``positions`` (increasing integers, one per window) say where the windows lie on the time
    axis; ``embargo`` is in their unit and removes every training window within that distance
    of a validation or test window, and every validation window within it of a test window.
    Without positions the windows count as neighbours in the order given. The loss is heavy:
    at 60/20/20 and a reach of one window about 0.6^2 of the training part is left.
    """
    bounds = _bounds(n, fractions)
    places = _positions(n, positions, embargo)
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"random_split: seed must be an integer >= 0, got {seed!r}.")
    order = np.random.default_rng(int(seed)).permutation(n)
    train, valid, test = (np.sort(part) for part in np.split(order, bounds))
    return _embargoed(train, valid, test, places, embargo, "random_split")


def chronological_split(
    n: int,
    fractions: Sequence[float] = PAPER_FRACTIONS,
    *,
    embargo: int = 0,
    positions: Sequence[int] | np.ndarray | None = None,
) -> Split:
    """The first windows train, the next validate, the last test (windows in time order).

    ``embargo`` drops the windows at the end of an earlier part that lie within it of the
    start of a later one: a number of windows, or in the unit of ``positions`` where given.
    """
    bounds = _bounds(n, fractions)
    places = _positions(n, positions, embargo)
    train, valid, test = np.split(np.arange(n), bounds)
    return _embargoed(train, valid, test, places, embargo, "chronological_split")


def rolling_origins(
    n: int,
    origins: int = 5,
    *,
    first: float = 0.4,
    block: float = 0.1,
    embargo: int = 0,
    positions: Sequence[int] | np.ndarray | None = None,
) -> list[Split]:
    """One split per origin: a growing training part, then a validation and a test block.

    Origin j trains on the first ``(first + j step) n`` windows; validation and test blocks of
    ``block n`` windows follow at once. The step spreads the origins evenly so that the last
    test block ends with the series; the defaults give the paper's 0.4, 0.5, ..., 0.8.
    """
    if not isinstance(origins, int | np.integer) or origins < 1:
        raise ValueError(f"rolling_origins: origins must be an integer >= 1, got {origins!r}.")
    if not (0 < first < 1 and 0 < block < 1 and first + 2 * block <= 1 + 1e-9):
        raise ValueError(
            f"rolling_origins: first={first} and block={block} do not fit: a training share, a "
            "validation block and a test block need first + 2 * block <= 1."
        )
    _check_n(n)
    places = _positions(n, positions, embargo)
    splits = []
    for j, share in enumerate(np.linspace(first, 1 - 2 * block, origins)):
        a, b, c = (_cut(n, share + k * block) for k in range(3))
        parts = np.arange(a), np.arange(a, b), np.arange(b, c)
        if min(map(len, parts)) == 0:
            raise ValueError(
                f"rolling_origins: origin {j} of n={n} windows has parts of "
                f"{[len(p) for p in parts]} windows; use fewer origins or a larger block."
            )
        splits.append(_embargoed(*parts, places, embargo, f"rolling_origins, origin {j}"))
    return splits


def shared_hours(
    split: Split, positions: Sequence[int] | np.ndarray, history: int, lead: int
) -> list[dict[str, Any]]:
    """For each pair of parts, how many windows of ``part`` hold target hours of ``other``.

    ``history`` counts those that hold them among the hours they read, ``targets`` among the
    hours they are scored on; ``positions``, ``history`` and ``lead`` are in steps of the series.
    """
    places = np.asarray(positions)
    table = []
    for part, mine in split._asdict().items():
        for other, theirs in split._asdict().items():
            if part == other:
                continue
            at, them = places[mine], np.sort(places[theirs])
            read = _any_between(them, at - history - lead + 1, at - 1)
            scored = _any_between(them, at - lead + 1, at + lead - 1)
            table.append(
                {
                    "part": part,
                    "other": other,
                    "history": int(read.sum()),
                    "targets": int(scored.sum()),
                }
            )
    return table


def _any_between(places: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Whether a member of the sorted ``places`` lies in ``[low, high]``."""
    return np.searchsorted(places, low, "left") < np.searchsorted(places, high, "right")


def _cut(n: int, share: float) -> int:
    """Floor of ``share * n``, up to the rounding of decimal fractions such as 0.4 + 0.3."""
    return int(np.floor(share * n + 1e-6))


def _check_n(n: int) -> None:
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise ValueError(f"A split needs a positive integer number of windows, got {n!r}.")


def _bounds(n: int, fractions: Sequence[float]) -> list[int]:
    _check_n(n)
    shares = np.asarray(fractions, dtype=float)
    if shares.shape != (3,) or np.any(~(shares >= 0)) or abs(shares.sum() - 1) > 1e-9:
        raise ValueError(
            f"fractions must be three shares (train, valid, test) >= 0 that add up to 1, "
            f"got {tuple(fractions)}."
        )
    bounds = [_cut(n, shares[0]), _cut(n, shares[0] + shares[1])]
    sizes = np.diff([0, *bounds, n])
    if sizes[0] == 0 or np.any((sizes == 0) & (shares > 0)):
        raise ValueError(
            f"fractions {tuple(fractions)} of n={n} windows give parts of {sizes.tolist()} "
            "windows; a part with a fraction > 0 may not be empty, nor may training; add windows."
        )
    return bounds


def _positions(n: int, positions: Sequence[int] | np.ndarray | None, embargo: int) -> np.ndarray:
    if isinstance(embargo, bool) or not isinstance(embargo, int | np.integer) or embargo < 0:
        raise ValueError(f"embargo must be an integer >= 0, got {embargo!r}.")
    if positions is None:
        return np.arange(n)
    places = np.asarray(positions)
    if places.shape != (n,) or not np.issubdtype(places.dtype, np.integer):
        raise ValueError(
            f"positions must be {n} integers, one per window; got shape {places.shape} of "
            f"{places.dtype}."
        )
    if np.any(np.diff(places) <= 0):
        where = int(np.flatnonzero(np.diff(places) <= 0)[0]) + 1
        raise ValueError(
            f"positions must increase: window {where} is at {places[where]}, after "
            f"{places[where - 1]}. Sort the windows by time first."
        )
    return places


def _embargoed(
    train: np.ndarray,
    valid: np.ndarray,
    test: np.ndarray,
    places: np.ndarray,
    embargo: int,
    what: str,
) -> Split:
    """Drop from each part what lies within the embargo of a part that ranks above it."""
    if embargo:
        kept = _far(valid, test, places, embargo)
        near = np.sort(np.concatenate([kept, test]))
        before = len(train), len(valid)
        train, valid = _far(train, near, places, embargo), kept
        if len(train) == 0 or (before[1] and len(valid) == 0):
            raise ValueError(
                f"{what}: an embargo of {embargo} leaves {len(train)} of {before[0]} training "
                f"and {len(valid)} of {before[1]} validation windows; use a smaller one, or a "
                "chronological split, which loses windows at its two borders only."
            )
    return Split(train, valid, test)


def _far(part: np.ndarray, others: np.ndarray, places: np.ndarray, embargo: int) -> np.ndarray:
    """The members of ``part`` that are more than ``embargo`` from all of ``others``."""
    at = places[part]
    kept: np.ndarray = part[~_any_between(places[others], at - embargo, at + embargo)]
    return kept


class Folds(NamedTuple):
    """Rows of K folds: each validates on a part of its own, and trains on what is left.

    All folds have equally many rows of either kind, so that they run as one program.
    """

    train: np.ndarray  # (K, n)
    valid: np.ndarray  # (K, m)

    def __len__(self) -> int:
        return len(self.valid)


def k_folds(n: int, folds: int, seed: int) -> Folds:
    """Random folds of ``n`` exchangeable rows; every row is in the validation part of one.

    Where ``folds`` does not divide ``n``, a few rows are in the validation part of two folds.
    """
    order = np.random.default_rng(seed).permutation(n)
    return _folds(n, [order[rows] for rows in _blocks(n, folds, "k_folds")], None)


def block_folds(
    n: int,
    folds: int,
    *,
    embargo: int = 0,
    positions: Sequence[int] | np.ndarray | None = None,
) -> Folds:
    """Contiguous folds of windows in time order, with an embargo on both sides of each.

    ``embargo`` and ``positions`` as in ``chronological_split``. So that all folds train on
    equally many windows, the first and the last, which have one neighbour only, lose more
    windows on that side.
    """
    places = _positions(n, positions, embargo)
    return _folds(n, _blocks(n, folds, "block_folds"), (places, embargo))


def _blocks(n: int, folds: int, what: str) -> list[np.ndarray]:
    _check_n(n)
    if isinstance(folds, bool) or not isinstance(folds, int | np.integer) or not 2 <= folds <= n:
        raise ValueError(
            f"{what}: folds must be a whole number from 2 to the {n} rows, got {folds!r}."
        )
    size = -(-n // folds)
    return [np.arange(size) + (k * (n - size)) // (folds - 1) for k in range(folds)]


def _folds(n: int, valid: list[np.ndarray], apart: tuple[np.ndarray, int] | None) -> Folds:
    train = []
    for part in valid:
        rest = np.setdiff1d(np.arange(n), part)
        if apart is not None and apart[1]:
            rest = _far(rest, np.sort(part), *apart)
        train.append(rest)
    least = min(map(len, train))
    if least == 0:
        raise ValueError(
            f"block_folds: {len(valid)} folds of {n} windows with this embargo leave none to "
            "train on; use fewer folds or a smaller embargo."
        )
    # What is too many is dropped next to the validation part, where neighbours are most alike.
    kept = []
    for part, rest in zip(valid, train, strict=True):
        distance = np.minimum(np.abs(rest - part.min()), np.abs(rest - part.max()))
        kept.append(np.sort(rest[np.argsort(-distance, kind="stable")[:least]]))
    return Folds(np.stack(kept), np.stack([np.sort(part) for part in valid]))
