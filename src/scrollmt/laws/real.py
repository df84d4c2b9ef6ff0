r"""Laws of a number: the abstract kinds that scores, pictures and tables ask.

A law with a distribution function F may have atoms, values of positive mass such as counts or a
detection limit; P(Y < y) and P(Y <= y) differ there and nowhere else. All scores of such laws
need only

    cdf_pair(y) = (P(Y < y), P(Y <= y)),    quantile(p) = inf{y : F(y) >= p}.

`NumberLaw` is that; `RealLaw` adds a mean, and defaults for all that can be computed from
`log_prob`, `cdf` and `mean`, mixing and change of units included. Shapes as in
``scrollmt.laws``.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import jax
import numpy as np
import pandas as pd
from jaxtyping import Float, Int, PRNGKeyArray
from scipy.special import ndtr

from scrollmt.laws.base import (
    Calibrated,
    Law,
    MemberWeights,
    Numbers,
    Vector,
    probabilities,
    real_labels,
)
from scrollmt.laws.normals import Normals, log_masses

Members = Float[np.ndarray, "N M"]
Atoms: TypeAlias = Literal["none", "some", "all"]
# Which edge a band between two edges holds; it matters where a value has a mass.
Closed: TypeAlias = Literal["left", "right"]

# Between neighbouring quantiles of these levels a few Legendre nodes read a distribution function.
_TAILS = (1e-10, 1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 5e-3, 0.02)
_LEVELS = (*_TAILS, *np.arange(0.05, 0.96, 0.05), *(1.0 - p for p in reversed(_TAILS)))
_LEGENDRE = np.polynomial.legendre.leggauss(6)
# Standard normal nodes for the second moment: all but 1e-15 of the mass.
_NORMAL_NODES = np.linspace(-8.0, 8.0, 81)
# Halvings that shrink any bracket of floats to neighbouring ones.
_HALVINGS = 200


def members(value: Numbers, law: str, name: str) -> Members:
    """A parameter as a private, read-only float64 array (N, M); (N,) is a single member."""
    array = np.array(value, dtype=np.float64)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2:
        raise ValueError(f"{law}: {name} has shape {array.shape}, need (N,) or (N, M)")
    if not np.isfinite(array).all():
        row = int(np.argwhere(~np.isfinite(array))[0][0])
        raise ValueError(f"{law}: {name} is {array[row]} in row {row}, need finite numbers")
    array.setflags(write=False)
    return array


def relative(weights: np.ndarray, axis: int, name: str) -> np.ndarray:
    """Weights divided by their sum along an axis."""
    total = weights.sum(axis=axis, keepdims=True)
    if not (np.isfinite(weights) & (weights >= 0.0) & (total > 0.0)).all():
        raise ValueError(f"{name}: weights must be finite and >= 0, with a sum > 0")
    return np.asarray(weights / total)


def sample_members(key: PRNGKeyArray, n: int, weights: Members) -> Int[np.ndarray, "n N"]:
    """Numbers 0 .. M-1 of members, drawn by their weights."""
    level = np.asarray(jax.random.uniform(key, (n, len(weights))), np.float64)
    below = np.cumsum(weights, axis=1)[:, :-1]
    return np.asarray(sum((level >= edge for edge in below.T), np.zeros(level.shape, np.int64)))


class NumberLaw(Law):
    """N forecasts of a number, each with a distribution function. Not every one has a mean."""

    @property
    def atoms(self) -> Atoms:
        """Which values have a mass: none (`log_prob` is a density), all, or some of them."""
        return "none"

    @property
    def normals(self) -> Normals | None:
        """The law as a mixture of normals (N, M), exactly; None where it is none."""
        return None

    @property
    def normal(self) -> bool:
        """Whether every forecast is a normal distribution, given by its mean and sd."""
        return False

    @property
    def metrics(self) -> tuple[str, ...]:
        return "coverage", "crps", "mae"

    @abc.abstractmethod
    def cdf(self, y: Numbers) -> Vector:
        """P(Y_n <= y_n)."""

    def sf(self, y: Numbers) -> Vector:
        """P(Y_n > y_n). Laws of scrollmt keep all digits far to the right, where this is small."""
        return 1.0 - self.cdf(y)

    @abc.abstractmethod
    def _quantile(self, p: float) -> Vector:
        """Smallest y with P(Y_n <= y) >= p."""

    def cdf_pair(self, y: Numbers) -> tuple[Vector, Vector]:
        """P(Y_n < y_n) and P(Y_n <= y_n); the same where y_n is no atom."""
        upto = self.cdf(y)
        return upto, upto

    def is_atom(self, y: Numbers) -> np.ndarray:
        """Where `log_prob` is the logarithm of a mass, not of a density."""
        return np.full(len(self), self.atoms == "all")

    def log_masses(self, edges: Sequence[float], closed: Closed = "left") -> np.ndarray:
        """Logarithms of the masses between increasing edges, (N, len(edges) + 1).

        Closed to the left, band r holds `edges[r-1] <= y < edges[r]`.
        """
        normals = self.normals
        if normals is not None:
            return log_masses(np.asarray(edges, np.float64), normals)
        zero, one = np.zeros(len(self)), np.ones(len(self))
        pairs = [self.cdf_pair(edge) for edge in edges]
        below = [pair[0] if closed == "left" else pair[1] for pair in pairs]
        # What lies above an edge, from the law's own upper tail, which keeps its digits.
        above = [
            self.sf(edge) + (pair[1] - pair[0] if closed == "left" else 0.0)
            for edge, pair in zip(edges, pairs, strict=True)
        ]
        left = np.diff(np.stack([zero, *below, one], axis=1), axis=1)
        right = -np.diff(np.stack([one, *above, zero], axis=1), axis=1)
        upper = np.stack([zero, *below], axis=1) > 0.5
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.maximum(np.where(upper, right, left), 0.0)))

    @property
    def median(self) -> Vector:
        """The value that is exceeded at most half of the time."""
        return self.quantile(0.5)

    def quantile(self, p: Numbers) -> np.ndarray:
        """Smallest y with cdf >= p: (N,) for a scalar `p`, (N, len(p)) for a 1-d one."""
        levels = probabilities(p, "p")
        if levels.ndim == 0:
            return self._quantile(float(levels))
        if levels.size == 0:
            return np.zeros((len(self), 0))
        return np.stack([self._quantile(float(one)) for one in levels], axis=1)

    def interval(self, level: Numbers) -> tuple[np.ndarray, np.ndarray]:
        """The central interval as (lower, upper), like `quantile`: no more than half of the
        remaining mass lies to either side."""
        lower, upper = self._central(probabilities(level, "level"))
        return self.quantile(lower), self.quantile(upper)

    def _central(self, level: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Between which levels of the distribution function central intervals lie."""
        return np.asarray(0.5 * (1.0 - level)), np.asarray(0.5 * (1.0 + level))

    def covered(self, y: Numbers, levels: Numbers) -> np.ndarray:
        """1.0 where y lies in the central interval, else 0.0: (N,) for a scalar level, or (N, L).

        A share between the two where y has a mass that the interval's end cuts.
        """
        level = probabilities(levels, "level")
        low, high = self.cdf_pair(y)
        if level.ndim:
            low, high = low[:, None], high[:, None]
        start, stop = self._central(level)
        mass = high - low
        inside = np.minimum(high, stop) - np.maximum(low, start)
        share = np.maximum(inside, 0.0) / np.where(mass > 0.0, mass, 1.0)
        share = np.where(mass > 0.0, share, (low >= start) & (high <= stop))
        return np.where(np.isnan(low), np.nan, share)

    def crps(self, y: Numbers) -> Vector:
        """Continuous ranked probability score in the units of y; NaN where the label is missing.

        By quadrature between quantiles, to about four digits. A law of many small masses should
        have a sum of its own.
        """
        y = real_labels(y, len(self))
        label = np.where(np.isnan(y), self.median, y)
        edges = np.sort(np.column_stack([label, self.quantile(_LEVELS)]), axis=1)
        total = np.zeros(len(self))
        for start, stop in zip(edges.T[:-1], edges.T[1:], strict=True):
            for node, weight in zip(*_LEGENDRE, strict=True):
                at = start + 0.5 * (1.0 + node) * (stop - start)
                gap = np.where(at >= label, self.sf(at), self.cdf(at))
                total += 0.5 * weight * (stop - start) * gap**2
        return np.where(np.isnan(y), np.nan, total)

    def columns(self, quantiles: Sequence[float], *, wide: bool = False) -> dict[str, np.ndarray]:
        return {f"q{p:g}": self.quantile(p) for p in quantiles}

    def to_frame(self, level: float = 0.9) -> pd.DataFrame:
        """Columns median, lower, upper (the central interval at `level`)."""
        lower, upper = self.interval(level)
        return self._table({"median": self.median, "lower": lower, "upper": upper})


class RealLaw(NumberLaw):
    """N forecasts of a number with a mean.

    A law of your own is a subclass with `__len__`, `_rows`, `log_prob`, `cdf` and `mean`. The rest
    has defaults by quadrature and bisection; `_quantile(p)`, `_sample(key, n)`, `sd` and `crps`
    are worth writing where they have a closed form.
    """

    @property
    @abc.abstractmethod
    def mean(self) -> Vector:
        """E[Y_n]."""

    @property
    def sd(self) -> Vector:
        """Standard deviation of Y_n; by quadrature over quantiles unless a law has its own."""
        weight = np.exp(-0.5 * _NORMAL_NODES**2)
        squares = [(self.quantile(p) - self.mean) ** 2 for p in ndtr(_NORMAL_NODES)]
        return np.asarray(np.sqrt(weight / weight.sum() @ np.stack(squares)))

    @property
    def var(self) -> Vector:
        """Variance of Y_n."""
        return self.sd**2

    @property
    def noise_var(self) -> Vector | None:
        """The part of the variance that is noise; None where the law does not say."""
        return None

    @property
    def belief_var(self) -> Vector | None:
        """The part of the variance that the belief adds; None where the law does not say."""
        return None

    @property
    def metrics(self) -> tuple[str, ...]:
        return "coverage", "crps", "rmse", "mae"

    @property
    def calibrated_by(self) -> Calibrated | None:
        return "number"

    @classmethod
    def _mix(cls, laws: Sequence[Any], weights: MemberWeights | None) -> Any:
        from scrollmt.laws.mixture import mixture_of  # whose laws are RealLaws themselves

        return mixture_of(laws, weights)

    def affine(self, offset: float, scale: float) -> RealLaw:
        """The law of `offset + scale * y`, for scale > 0."""
        from scrollmt.laws.affine import AffineLaw  # which is a RealLaw itself

        return AffineLaw(self, offset, scale)._at_inputs_of(self)

    def _quantile(self, p: float) -> Vector:
        return self._inverted(np.full(len(self), p))

    def _sample(self, key: PRNGKeyArray, n: int) -> Float[np.ndarray, "n N"]:
        levels = np.asarray(jax.random.uniform(key, (n, len(self))), np.float64)
        rows = np.tile(np.arange(len(self)), n)
        return self._rows(rows)._inverted(levels.ravel()).reshape(n, len(self))

    def _inverted(self, p: Vector) -> Vector:
        """The quantile of each forecast at a level of its own, from brackets around the mean."""
        step = np.maximum(np.abs(self.mean), 1.0)
        low, high = self.mean - step, self.mean + step
        inside = (p > 0.0) & (p < 1.0)
        while (short := inside & (self.cdf(high) < p) & np.isfinite(high)).any():
            step = np.where(short, 2.0 * step, step)
            high = np.where(short, self.mean + step, high)
        while (short := inside & (self.cdf(low) >= p) & np.isfinite(low)).any():
            step = np.where(short, 2.0 * step, step)
            low = np.where(short, self.mean - step, low)
        found = bisected(self.cdf, p, low, high)
        return np.where(inside, found, np.where(p > 0.0, np.inf, -np.inf))

    def columns(self, quantiles: Sequence[float], *, wide: bool = False) -> dict[str, np.ndarray]:
        return {"mean": self.mean, "sd": self.sd, **super().columns(quantiles)}

    def to_frame(self, level: float = 0.9) -> pd.DataFrame:
        """Columns mean, sd, lower, upper (the central interval at `level`)."""
        lower, upper = self.interval(level)
        return self._table({"mean": self.mean, "sd": self.sd, "lower": lower, "upper": upper})

    def _point(self) -> Vector:
        return self.mean


def bisected(cdf: Callable[[Numbers], Vector], p: Numbers, low: Vector, high: Vector) -> Vector:
    """Smallest y in each bracket with cdf(y) >= p, where cdf(low) < p <= cdf(high)."""
    for _ in range(_HALVINGS):
        middle = low + 0.5 * (high - low)
        # Neighbouring floats have none between them.
        if ((middle == low) | (middle == high)).all():
            break
        enough = cdf(middle) >= p
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return high
