r"""What a detector with limits records of a Gaussian value, or of a mixture of such values.

    y = min(max(x, lower), upper),    x ~ sum_c w_c N(m_c, s_c^2)

A label is a number, or a pair of bounds where the value is known to lie between them. At a limit,
and for a pair, `log_prob` is the logarithm of a mass. Shapes: labels `(N,)` or `(N, 2)`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
from jaxtyping import Float, PRNGKeyArray
from scipy.special import log_ndtr, logsumexp, ndtr

from scrollmt.laws.base import MemberWeights, Numbers, Vector, real_labels
from scrollmt.laws.gaussian import GaussianLaw
from scrollmt.laws.gaussian_mixture import GaussianMixtureLaw
from scrollmt.laws.mixture import mix, moment_matched
from scrollmt.laws.normals import Table
from scrollmt.laws.real import Atoms, RealLaw

Bounds = Float[np.ndarray, "N 2"]


def read_bounds(y: Numbers, n: int, lower: float, upper: float, name: str = "y") -> Bounds:
    """Labels as pairs of bounds, NaN where missing.

    A plain label at a limit, or beyond it, is known to lie beyond; any other is known. Pairs are
    taken as they are; -inf or inf is no bound.
    """
    given = np.asarray(y)
    if given.ndim == 2:
        pairs = np.stack([real_labels(given[:, j], n, name) for j in (0, 1)], axis=1)
        missing = np.isnan(pairs).any(axis=1) | (np.isinf(pairs).all(axis=1))
        bad = ~missing & ((pairs[:, 0] > pairs[:, 1]) | np.isposinf(pairs[:, 0]))
        bad |= ~missing & np.isneginf(pairs[:, 1])
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise ValueError(
                f"{name}: the bounds of row {row} are {pairs[row].tolist()}; a lower bound comes "
                "first, and is equal to the upper one where the value is known"
            )
        return np.where(missing[:, None], np.nan, pairs)
    values = real_labels(given, n, name)
    # A limit that went through a logarithm and back is the same limit, but for rounding.
    under, over = values <= lower + _slack(lower), values >= upper - _slack(upper)
    low = np.where(under, -np.inf, np.where(over, upper, values))
    high = np.where(over, np.inf, np.where(under, lower, values))
    infinite = (low == high) & np.isinf(values)
    if infinite.any():
        row = int(np.flatnonzero(infinite)[0])
        raise ValueError(
            f"{name}: row {row} is {values[row]:g}, but there is no limit on that side; give the "
            "head one, or use NaN for a missing label"
        )
    return np.stack([low, high], axis=1)


def _slack(limit: float) -> float:
    return 8.0 * float(np.spacing(abs(limit))) if math.isfinite(limit) else 0.0


@final
@dataclass(frozen=True, eq=False, repr=False)
class CensoredLaw(RealLaw):
    """What a detector with limits records of a Gaussian value: at a limit, all that is beyond.

    `latent` is the law of the value itself, recorded or not; it may be a mixture of Gaussians, as
    `mix` makes it. All else is about what is recorded: min(max(x, lower), upper).
    `moment_matched` keeps the first two moments of the value, as for Gaussian laws.
    """

    latent: GaussianLaw | GaussianMixtureLaw
    lower: float = -math.inf
    upper: float = math.inf

    def __len__(self) -> int:
        return len(self.latent)

    def _rows(self, rows: np.ndarray) -> Self:
        return type(self)(self.latent[rows], self.lower, self.upper)

    @classmethod
    def _mix(cls, laws: Sequence[Any], weights: MemberWeights | None) -> Any:
        # What is recorded of a mixture is the mixture of what is recorded.
        return cls(mix([law.latent for law in laws], weights), *cls._limits(laws))

    @classmethod
    def _moment_matched(cls, laws: Sequence[Any]) -> Self:
        return cls(moment_matched([law.latent for law in laws]), *cls._limits(laws))

    @staticmethod
    def _limits(laws: Sequence[Any]) -> tuple[float, float]:
        """Those that all laws have."""
        limits: set[tuple[float, float]] = {(law.lower, law.upper) for law in laws}
        if len(limits) > 1:
            raise ValueError(f"mix: the laws have different limits: {sorted(limits)}")
        return limits.pop()

    def affine(self, offset: float, scale: float) -> Self:
        """The law of `offset + scale * y`, limits included, for scale > 0."""
        limits = (offset + scale * limit for limit in (self.lower, self.upper))
        law = type(self)(self.latent.affine(offset, scale), *limits)
        return law._at_inputs_of(self)

    @property
    def below(self) -> Vector:
        """Chance that the value lies at or below the lower limit."""
        return self.latent.cdf(self.lower)

    @property
    def above(self) -> Vector:
        """Chance that the value lies at or above the upper limit."""
        return self.latent.sf(self.upper)

    @property
    def atoms(self) -> Atoms:
        return "some"

    @property
    def metrics(self) -> tuple[str, ...]:
        # Labels that are bounds have no distance to a mean or median.
        return "coverage", "crps"

    def _standardised(self, y: float | np.ndarray) -> Table:
        """Values in sds of each component from its mean, (N, C)."""
        values = np.broadcast_to(np.asarray(y, dtype=np.float64), (len(self),))[:, None]
        return np.asarray((values - self.latent.normals.means) / self.latent.normals.sds)

    def _moments(self) -> tuple[Table, Table]:
        """Mean and variance of what is recorded, by component, in its sds around its mean."""
        a, b = (self._standardised(limit) for limit in (self.lower, self.upper))
        inside = np.exp(log_mass(a, b))
        density = [np.exp(-0.5 * z**2) / math.sqrt(2.0 * math.pi) for z in (a, b)]
        # An infinite limit has no mass, and no say.
        finite = [np.where(np.isfinite(z), z, 0.0) for z in (a, b)]
        mass = [ndtr(a), ndtr(-b)]
        mean = density[0] - density[1] + finite[0] * mass[0] + finite[1] * mass[1]
        second = inside + finite[0] * density[0] - finite[1] * density[1]
        second = second + finite[0] ** 2 * mass[0] + finite[1] ** 2 * mass[1]
        return mean, np.maximum(second - mean**2, 0.0)

    @property
    def mean(self) -> Vector:
        means, sds, weights = self.latent.normals
        return np.asarray(np.sum(weights * (means + sds * self._moments()[0]), axis=1))

    @property
    def sd(self) -> Vector:
        means, sds, weights = self.latent.normals
        centre, spread = self._moments()
        apart = means + sds * centre - self.mean[:, None]
        return np.asarray(np.sqrt(np.sum(weights * (sds**2 * spread + apart**2), axis=1)))

    def is_atom(self, y: Numbers) -> np.ndarray:
        pairs = self._bounds(y)
        return pairs[:, 0] < pairs[:, 1]

    def log_prob(self, y: Numbers) -> Vector:
        """Log density where the value is known, log mass beyond a limit; NaN where missing."""
        pairs = self._bounds(y)
        lo, hi = (self._standardised(pairs[:, j]) for j in (0, 1))
        known = pairs[:, 0] == pairs[:, 1]
        density = self.latent.log_prob(np.where(known, pairs[:, 0], 0.0))
        between = ~known[:, None]
        mass = log_mass(np.where(between, lo, -np.inf), np.where(between, hi, np.inf))
        with np.errstate(divide="ignore"):
            mixed = logsumexp(mass + np.log(self.latent.normals.weights), axis=1)
        return np.where(known, density, mixed)

    def cdf(self, y: Numbers) -> Vector:
        return self.cdf_pair(y)[1]

    def cdf_pair(self, y: Numbers) -> tuple[Vector, Vector]:
        """P(Y_n < y_n) and P(Y_n <= y_n); of pairs of bounds, the mass below and up to them."""
        pairs = self._bounds(y)
        low, high = self.latent.cdf(pairs[:, 0]), self.latent.cdf(pairs[:, 1])
        if np.ndim(y) == 2:
            return low, high
        values = real_labels(y, len(self))
        # Strictly beyond a limit nothing is recorded.
        low = np.where(values > self.upper, 1.0, low)
        return low, np.where(values < self.lower, 0.0, high)

    def sf(self, y: Numbers) -> Vector:
        """P(Y_n > y_n) of what is recorded; of pairs of bounds, the mass above them."""
        above = self.latent.sf(self._bounds(y)[:, 1])
        if np.ndim(y) == 2:
            return above
        return np.where(real_labels(y, len(self)) < self.lower, 1.0, above)

    def crps(self, y: Numbers) -> Vector:
        r"""CRPS of what is recorded; NaN for bounds other than the law's own limits.

        $\int_\text{lower}^y F^2 + \int_y^\text{upper} (1 - F)^2$, where
        $\int_{-\infty}^z \Phi^2 = z\Phi^2 + 2\Phi\phi - \Phi(\sqrt2\,z)/\sqrt\pi$. Of a mixture by
        quadrature, to about four digits.
        """
        if self.latent.normals.means.shape[1] > 1:
            return super().crps(self.recorded(y))
        shown = (self.recorded(y), self.lower, self.upper)
        z, a, b = (self._standardised(values)[:, 0] for values in shown)
        below, above = _square_integral(z) - _square_integral(a), _square_integral(-z)
        return np.asarray(self.latent.sd * (below + above - _square_integral(-b)))

    def recorded(self, y: Numbers) -> Vector:
        """Labels as the detector shows them: a limit where the value lies beyond it.

        NaN where a label is missing, or a pair of bounds other than the law's own limits.
        """
        pairs = self._bounds(y)
        low, high = pairs[:, 0], pairs[:, 1]
        shown = np.where(low == high, low, np.nan)
        shown = np.where(np.isneginf(low) & (high == self.lower), self.lower, shown)
        return np.where(np.isposinf(high) & (low == self.upper), self.upper, shown)

    def _quantile(self, p: float) -> Vector:
        return np.asarray(np.clip(self.latent.quantile(p), self.lower, self.upper))

    def _sample(self, key: PRNGKeyArray, n: int) -> Float[np.ndarray, "n N"]:
        return np.asarray(np.clip(self.latent._sample(key, n), self.lower, self.upper))

    def _bounds(self, y: Numbers) -> Bounds:
        return read_bounds(y, len(self), self.lower, self.upper)


def _square_integral(z: Vector) -> Vector:
    r"""$\int_{-\infty}^z \Phi(t)^2\, dt$."""
    finite = np.where(np.isneginf(z), 0.0, z)
    cdf, density = ndtr(finite), np.exp(-0.5 * finite**2) / math.sqrt(2.0 * math.pi)
    rest = ndtr(math.sqrt(2.0) * finite) / math.sqrt(math.pi)
    return np.where(np.isneginf(z), 0.0, finite * cdf**2 + 2.0 * cdf * density - rest)


def log_mass(lo: Float[np.ndarray, "*n"], hi: Float[np.ndarray, "*n"]) -> Float[np.ndarray, "*n"]:
    """log[Phi(hi) - Phi(lo)] in the tail where neither rounds to one."""
    with np.errstate(divide="ignore", invalid="ignore"):
        flip = lo + hi > 0.0
        left, right = np.where(flip, -hi, lo), np.where(flip, -lo, hi)
        top = log_ndtr(right)
        return np.asarray(top + np.log1p(-np.exp(log_ndtr(left) - top)))
