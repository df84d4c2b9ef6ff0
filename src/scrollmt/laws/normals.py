r"""Mixtures of normals as arrays: quantiles, CRPS and modes.

    F(y) = sum_c w_c Phi((y - m_c) / s_c),    p(y) = sum_c w_c phi((y - m_c) / s_c) / s_c

Shapes: means, sds and weights, which sum to one, are (n, C) for n forecasts and C components. Roots
are sought relative to the mean of a forecast, so that they keep their digits where it is large.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scoringrules
from jaxtyping import Float, Int
from scipy.optimize.elementwise import find_root
from scipy.special import log_ndtr, logsumexp, ndtr, ndtri

Table = Float[np.ndarray, "n C"]
Column = Float[np.ndarray, " n"]
# Between neighbouring places where the slope of a density is read, in sds of a component.
_MODE_STEP = 0.1
_CHUNK = 4_000_000
# Below this, differences of distribution functions are taken in logarithms.
_SMALLEST = 1e-250


class Normals(NamedTuple):
    """A law as a mixture of normals."""

    means: Table
    sds: Table
    weights: Table


def parts(width: int, count: int) -> Iterator[np.ndarray]:
    """Row numbers 0 .. count-1, few enough at a time for arrays of `width` columns."""
    size = max(1, _CHUNK // max(width, 1))
    for start in range(0, count, size):
        yield np.arange(start, min(start + size, count))


def quantiles(p: float, normals: Normals) -> Column:
    """The quantile of each forecast at the level p, from a bracket."""
    means, sds, weights = normals
    if p in (0.0, 1.0):
        return np.full(len(means), -np.inf if p == 0.0 else np.inf)
    centre = np.sum(weights * means, axis=1)
    apart = means - centre[:, None]
    # Of both tails the smaller one, which keeps its digits.
    side, tail = (1.0, p) if p <= 0.5 else (-1.0, 1.0 - p)

    def excess(x: np.ndarray, row: np.ndarray) -> np.ndarray:
        z = (x[:, None] - apart[row]) / sds[row]
        return np.asarray(side * (np.sum(weights[row] * ndtr(side * z), axis=1) - tail))

    # The quantile of a mixture lies between those of its components, which may all agree.
    each, some = apart + float(ndtri(p)) * sds, 1e-3 * sds.min(axis=1)
    bracket = each.min(axis=1) - some, each.max(axis=1) + some
    return np.asarray(centre + find_root(excess, bracket, args=(np.arange(len(means)),)).x)


def log_masses(edges: Float[np.ndarray, " E"], normals: Normals) -> Float[np.ndarray, "n E+1"]:
    """Logarithms of the masses between increasing edges, with the two tails outside of them."""
    means, sds, weights = normals
    scaled = [(edge - means) / sds for edge in (-np.inf, *edges, np.inf)]
    columns = []
    for low, high in itertools.pairwise(scaled):
        masses = np.sum(weights * normal_mass(low, high), axis=1)
        with np.errstate(divide="ignore"):
            column = np.log(masses)
            # Farther out masses have no digits, or are zero, but their logarithms do not.
            far = np.flatnonzero(masses < _SMALLEST)
            terms = np.log(weights[far]) + log_normal_mass(low[far], high[far])
        column[far] = logsumexp(terms, axis=1)
        columns.append(column)
    return np.stack(columns, axis=1)


def normal_mass(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Phi(high) - Phi(low), elementwise, with its digits in both tails."""
    flip = low > 0.0
    return np.asarray(ndtr(np.where(flip, -low, high)) - ndtr(np.where(flip, -high, low)))


def log_normal_mass(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """log(Phi(high) - Phi(low)), elementwise, with its digits in both tails."""
    # The tail to the left keeps its digits; the other one is its mirror image.
    flip = low > 0.0
    low, high = np.where(flip, -high, low), np.where(flip, -low, high)
    top = log_ndtr(high)
    with np.errstate(divide="ignore"):
        return np.asarray(top + np.log1p(-np.exp(log_ndtr(low) - top)))


def crps(y: Column, normals: Normals) -> Column:
    r"""$\sum_i w_i A(y - m_i, s_i^2) - \tfrac12\sum_{ij} w_i w_j A(m_i - m_j, s_i^2 + s_j^2)$.

    $A(m, v)$ is the mean distance from zero of a normal with that mean and variance.
    """
    return np.asarray(scoringrules.crps_mixnorm(y, *normals, backend="numpy"))


def modes(normals: Normals) -> Float[np.ndarray, "n K"]:
    """Local maxima of the density of each forecast, ascending; NaN where there are fewer than K.

    They lie between the smallest and the largest mean, and are roots of the slope. A
    maximum and a minimum closer than a tenth of every component's sd may be missed.
    """
    means, sds, weights = normals
    centre = np.sum(weights * means, axis=1)
    apart = means - centre[:, None]
    end = _MODE_STEP * sds.min(axis=1)
    steps = np.arange(-3.0, 3.0 + _MODE_STEP, _MODE_STEP)
    places = (apart[:, :, None] + sds[:, :, None] * steps).reshape(len(means), -1)
    low, high = apart.min(axis=1) - end, apart.max(axis=1) + end
    places = np.sort(np.clip(places, low[:, None], high[:, None]), axis=1)

    def slope(x: np.ndarray, row: np.ndarray) -> np.ndarray:
        z = (x[:, None] - apart[row]) / sds[row]
        return np.asarray(np.sum(-weights[row] * z * np.exp(-0.5 * z**2) / sds[row] ** 2, axis=1))

    rows = np.arange(len(means))
    rises = np.stack([slope(x, rows) > 0.0 for x in places.T], axis=1)
    row, place = np.nonzero(rises[:, :-1] & ~rises[:, 1:])
    bracket = places[row, place], places[row, place + 1]
    found = centre[row] + find_root(slope, bracket, args=(row,)).x
    return by_row(row, found, len(means))


def by_row(row: Int[np.ndarray, " F"], found: Float[np.ndarray, " F"], count: int) -> Table:
    """What was found in each row, in order, as a table with NaN where a row has less."""
    position = np.arange(row.size) - np.searchsorted(row, row)
    out = np.full((count, int(position.max(initial=-1)) + 1), math.nan)
    out[row, position] = found
    return out
