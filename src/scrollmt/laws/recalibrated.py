r"""Laws of a number whose distribution function goes through a monotone map.

With F the law's distribution function and z = Phi^{-1}(F(y)) its normal score at y,

    F'(y) = Phi(h(z)),    quantile'(p) = F^{-1}(Phi(h^{-1}(Phi^{-1}(p)))),
    log p'(y) = log p(y) + log h'(z) + log phi(h(z)) - log phi(z)

where h is piecewise linear and strictly increasing. In normal scores, and not on [0, 1] itself, the
tails beyond the last knot are scaled as the law next to them: h(z) = z / 2 gives a Gaussian law
twice its sd, and a label of eight sds keeps a finite score. Where the law has a mass, both ends of
it go through the map. Shapes as in ``scrollmt.laws``.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self, final

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray
from scipy.special import ndtr, ndtri

from scrollmt.laws.base import Calibrated, MemberWeights, Numbers, Vector, probabilities
from scrollmt.laws.censored import log_mass
from scrollmt.laws.real import Atoms, RealLaw, bisected

Scores = Float[np.ndarray, "N 2"]
# Beyond, a float64 tail mass is zero.
_FARTHEST = 38.0
# Up to this score `quantile(p)` keeps the digits of 1 - p.
_LAST_BY_LEVEL = 5.0
# Between these scores lies all but 1e-15 of the mass.
_WIDEST = 8.0
# Pieces of quadrature where quantiles are smooth, and where they jump because a law has masses.
_SMOOTH_PIECES, _JUMPING_PIECES = 8, 80
_LEGENDRE = np.polynomial.legendre.leggauss(4)


def upto_scores(law: RealLaw, y: Numbers) -> Vector:
    """Phi^{-1} of P(Y <= y), with all digits in both tails."""
    upto = law.cdf(y)
    return np.asarray(np.where(upto < 0.5, ndtri(upto), -ndtri(law.sf(y))))


def normal_scores(law: RealLaw, y: Numbers) -> Scores:
    """Phi^{-1} of P(Y < y) and of P(Y <= y), with all digits in both tails."""
    from_high = upto_scores(law, y)
    if law.atoms == "none":
        return np.stack([from_high, from_high], axis=1)
    low = law.cdf_pair(y)[0]
    mass = np.exp(np.where(law.is_atom(y), law.log_prob(y), -np.inf))
    from_low = np.where(low < 0.5, ndtri(low), -ndtri(np.minimum(law.sf(y) + mass, 1.0)))
    # A mass so small that it is lost in rounding has two equal ends.
    return np.stack([np.minimum(from_low, from_high), from_high], axis=1)


@final
@dataclass(frozen=True)
class PitMap:
    """A piecewise linear map h of normal scores, through the knots `at` to the values `to`.

    Beyond the knots it goes on as the first and the last piece. `lower` and `upper` are order
    statistics of `labels` out-of-fold scores, by `ranks` from either end: central intervals
    then end at them (split conformal). They are empty without conformal intervals. `share` is how
    far the map goes from the identity, `gain` its cross-validated gain in nats a label.
    """

    kind: ClassVar[Calibrated] = "number"
    at: tuple[float, ...] = (-1.0, 1.0)
    to: tuple[float, ...] = (-1.0, 1.0)
    ranks: tuple[int, ...] = ()
    lower: tuple[float, ...] = ()
    upper: tuple[float, ...] = ()
    labels: int = 0
    share: float = 0.0
    gain: float = 0.0

    def __post_init__(self) -> None:
        good = len(self.at) == len(self.to) >= 2
        good = good and all(_increasing(knots) for knots in (self.at, self.to))
        good = good and len(self.ranks) == len(self.lower) == len(self.upper)
        if not good or not _increasing(self.ranks) or min(self.ranks, default=1) < 1:
            raise ValueError(
                "PitMap: need two or more finite, strictly increasing knots `at` with as many "
                "values `to`, and one lower and one upper score for each of the increasing ranks"
            )

    @property
    def identity(self) -> bool:
        return self.at == self.to

    @property
    def conformal(self) -> bool:
        return bool(self.ranks)

    @property
    def guaranteed(self) -> float:
        """The highest level at which a conformal interval is finite: 1 - 2 / (labels + 1)."""
        return 1.0 - 2.0 / (self.labels + 1)

    def forward(self, z: Numbers) -> np.ndarray:
        return _piecewise(np.asarray(z, np.float64), self.at, self.to)

    def inverse(self, z: Numbers) -> np.ndarray:
        return _piecewise(np.asarray(z, np.float64), self.to, self.at)

    def log_slope(self, z: Numbers) -> np.ndarray:
        slope = np.diff(self.to) / np.diff(self.at)
        return np.asarray(np.log(slope)[_pieces(np.asarray(z), self.at)])

    def shrunk(self, share: float) -> Self:
        """The map with only a share of its way from the identity."""
        to = tuple(a + share * (b - a) for a, b in zip(self.at, self.to, strict=True))
        return replace(self, to=to, share=share)

    def log_gain(self, scores: Scores) -> Vector:
        """What each label's log score gains, given the normal scores of the law at it."""
        low, high = np.clip(scores, -_FARTHEST, _FARTHEST).T
        density = self.log_slope(high) + 0.5 * (high**2 - self.forward(high) ** 2)
        after = log_mass(self.forward(low), self.forward(high))
        with np.errstate(invalid="ignore"):
            mass = after - log_mass(low, high)
        return np.asarray(np.where(low < high, mass, density))

    def central(self, level: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The levels of the mapped law between which its central intervals lie."""
        tail = 0.5 * (1.0 - level)
        if not self.conformal:
            return np.asarray(tail), np.asarray(1.0 - tail)
        # Rounded outwards: of the kept ranks the last one that has no more than the tail.
        rank = np.floor((self.labels + 1) * tail + 1e-9)
        place = np.searchsorted(self.ranks, rank, side="right")
        lower = np.array([-np.inf, *self.lower])[place]
        upper = np.array([np.inf, *self.upper])[place]
        return np.asarray(ndtr(self.forward(lower))), np.asarray(ndtr(self.forward(upper)))

    def nodes(self) -> tuple[np.ndarray, np.ndarray]:
        """Scores z and weights that sum to one: quadrature over the mapped law, by piece."""
        edges = self.inverse(np.linspace(-_WIDEST, _WIDEST, _SMOOTH_PIECES + 1))
        edges = np.union1d(edges, np.clip(self.at, edges[0], edges[-1]))
        start, width = edges[:-1, None], np.diff(edges)[:, None]
        z = (start + 0.5 * width * (1.0 + _LEGENDRE[0])).ravel()
        spread = (0.5 * width * _LEGENDRE[1]).ravel()
        weight = spread * np.exp(self.log_slope(z) - 0.5 * self.forward(z) ** 2)
        return z, weight / weight.sum()

    def of(self, law: RealLaw) -> RealLaw:
        """The law with this map; the law itself where the map changes nothing."""
        return law if self.identity and not self.conformal else RecalibratedLaw(law, self)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        knots = {k: tuple(map(float, stored[k])) for k in ("at", "to", "lower", "upper")}
        ranks = tuple(map(int, stored["ranks"]))
        numbers = int(stored["labels"]), float(stored["share"]), float(stored["gain"])
        return cls(knots["at"], knots["to"], ranks, knots["lower"], knots["upper"], *numbers)


def _increasing(values: Sequence[float]) -> bool:
    return all(map(math.isfinite, values)) and bool((np.diff(values) > 0.0).all())


def _pieces(z: np.ndarray, at: Sequence[float]) -> np.ndarray:
    return np.asarray(np.clip(np.searchsorted(at, z) - 1, 0, len(at) - 2))


def _piecewise(z: np.ndarray, at: Sequence[float], to: Sequence[float]) -> np.ndarray:
    k, x, y = _pieces(z, at), np.asarray(at), np.asarray(to)
    slope = np.diff(y) / np.diff(x)
    return np.asarray(y[k] + slope[k] * (z - x[k]))


@final
class RecalibratedLaw(RealLaw):
    """N forecasts of a number, with a map of the normal scores of another law."""

    def __init__(self, law: RealLaw, pit_map: PitMap) -> None:
        self.law, self.pit_map = law, pit_map
        self.index, self.extrapolation = law.index, law.extrapolation

    def __len__(self) -> int:
        return len(self.law)

    def _rows(self, rows: np.ndarray) -> Self:
        return type(self)(self.law[rows], self.pit_map)

    @classmethod
    def _mix(cls, laws: Sequence[Any], weights: MemberWeights | None) -> Any:
        return RealLaw._mix(laws, weights)

    def affine(self, offset: float, scale: float) -> Self:
        """The law of `offset + scale * y`, for scale > 0."""
        return type(self)(self.law.affine(offset, scale), self.pit_map)

    @property
    def atoms(self) -> Atoms:
        return self.law.atoms

    @property
    def metrics(self) -> tuple[str, ...]:
        return self.law.metrics

    def is_atom(self, y: Numbers) -> np.ndarray:
        return self.law.is_atom(y)

    def recorded(self, y: Numbers) -> np.ndarray:
        return self.law.recorded(y)

    def log_prob(self, y: Numbers) -> Vector:
        scores = normal_scores(self.law, y)
        low, high = self.pit_map.forward(scores).T
        inside = self.law.log_prob(y)
        with np.errstate(invalid="ignore"):
            density = inside + self.pit_map.log_gain(np.stack([scores[:, 1]] * 2, axis=1))
        return np.where(self.law.is_atom(y), log_mass(low, high), density)

    def cdf(self, y: Numbers) -> Vector:
        """P(Y_n <= y_n)."""
        return np.asarray(ndtr(self.pit_map.forward(upto_scores(self.law, y))))

    def cdf_pair(self, y: Numbers) -> tuple[Vector, Vector]:
        """P(Y_n < y_n) and P(Y_n <= y_n)."""
        low, high = ndtr(self.pit_map.forward(normal_scores(self.law, y))).T
        return low, high

    def sf(self, y: Numbers) -> Vector:
        """P(Y_n > y_n), with all digits far to the right."""
        return np.asarray(ndtr(-self.pit_map.forward(upto_scores(self.law, y))))

    def _central(self, level: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.pit_map.central(level)

    def interval(self, level: Numbers) -> tuple[np.ndarray, np.ndarray]:
        """The central interval as (lower, upper); as wide as the law's support where conformal
        intervals have too few labels for the level, with a warning."""
        most = self.pit_map.guaranteed
        if self.pit_map.conformal and (probabilities(level, "level") > most + 1e-9).any():
            warnings.warn(
                f"{self.pit_map.labels} labels guarantee conformal intervals up to the level "
                f"{most:.4g}; above it they are as wide as the law's support: ask for a lower "
                "level, or fit on more labels",
                UserWarning,
                stacklevel=2,
            )
        return super().interval(level)

    def crps(self, y: Numbers) -> Vector:
        return super().crps(self.recorded(y))

    @cached_property
    def _moments(self) -> tuple[Vector, Vector]:
        """Mean and sd by quadrature, to about four digits; half a percent where it has masses."""
        if self.law.atoms != "none":
            return self._moments_with_masses()
        z, weight = self.pit_map.nodes()
        values = np.stack([self._at_score(float(one)) for one in z])
        # Not by a matrix product, whose rounding depends on the number of forecasts.
        mean = np.sum(weight[:, None] * values, axis=0)
        return mean, np.sqrt(np.sum(weight[:, None] * (values - mean) ** 2, axis=0))

    def _moments_with_masses(self) -> tuple[Vector, Vector]:
        r"""E[g(Y)] = g(y_0) + \int g' P(Y > y) dy, by the trapezoidal rule between quantiles."""
        z = self.pit_map.inverse(np.linspace(-_WIDEST, _WIDEST, _JUMPING_PIECES + 1))
        values = np.stack([self._at_score(float(one)) for one in z])
        after = np.stack([self.sf(one) for one in values[:-1]])
        before = 1.0 - np.stack([self.cdf_pair(one)[0] for one in values[1:]])
        above = 0.5 * (after + before)
        mean = values[0] + np.sum(above * np.diff(values, axis=0), axis=0)
        squares = (values - mean) ** 2
        return mean, np.sqrt(squares[0] + np.sum(above * np.diff(squares, axis=0), axis=0))

    @property
    def mean(self) -> Vector:
        return self._moments[0]

    @property
    def sd(self) -> Vector:
        return self._moments[1]

    def _quantile(self, p: float) -> Vector:
        if p in (0.0, 1.0):
            return self.law.quantile(p)
        return self._at_score(float(self.pit_map.inverse(ndtri(p))))

    def _sample(self, key: PRNGKeyArray, n: int) -> Float[np.ndarray, "n N"]:
        z = np.asarray(jax.random.normal(key, (n, len(self))), np.float64)
        scores = self.pit_map.inverse(z).ravel()
        rows = np.tile(np.arange(len(self)), n)
        out = np.empty(len(rows))
        # Brackets are quantiles of one level for many rows, which laws have in closed form.
        for floor in np.unique(np.floor(scores)):
            here = np.floor(scores) == floor
            ends = self._at_score(float(floor)), self._at_score(float(floor) + 1.0)
            law, each = self._rows(rows[here]), (end[rows[here]] for end in ends)
            out[here] = law._between(scores[here], *each)
        return out.reshape(n, len(self))

    def _at_score(self, z: float) -> Vector:
        """The smallest y whose score in the other law is at least z."""
        if z <= _LAST_BY_LEVEL:
            return self.law.quantile(float(ndtr(z)))
        low, middle = self.law.quantile(float(ndtr(_LAST_BY_LEVEL))), self.law.median
        step = np.where(low > middle, low - middle, 1.0)
        high, tail = low + step, ndtr(-z)
        while (short := self.law.sf(high) > tail).any():
            step = np.where(short, 2.0 * step, step)
            high = np.where(short, high + step, high)
        return self._between(np.full(len(self), z), low, high)

    def _between(self, z: Vector, low: Vector, high: Vector) -> Vector:
        def score(y: Numbers) -> Vector:
            return upto_scores(self.law, y)

        return np.where(score(low) >= z, low, bisected(score, z, low, high))
