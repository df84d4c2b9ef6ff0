r"""Counts as a user reads them: a negative binomial (or Poisson) whose log rate is Gaussian.

    y_n | a ~ NB(mean e^a, variance e^a + alpha e^2a),    a ~ N(latent_mean_n, latent_var_n)

with dispersion alpha, zero for a Poisson. Moments are closed forms,

    E[y] = e^{m + v/2},    Var[y] = E[y] + (1 + alpha) e^{2m + 2v} - E[y]^2.

Masses go through Gauss-Hermite quadrature centred at the mode of the integrand; distribution
functions through the trapezoid rule over the belief, with as many nodes as the narrowest count
asks for. Shapes: `(N, M)` for the M members of a mixture. All in NumPy float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, final

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray
from scipy.optimize.elementwise import find_root
from scipy.special import betainc, betaln, expit, gammainc, gammaincc, gammaln, logsumexp

from scrollmt.laws.base import Numbers, Vector, real_labels
from scrollmt.laws.latent import LatentLaw
from scrollmt.laws.normals import parts
from scrollmt.laws.real import Atoms, Members

_NODES = 64
# For distribution functions the belief is read this many sds to either side, in steps of at most
# this many sds and at most this share of the count's own width: good to 1e-6.
_REACH, _STEP, _SHARE = 7.0, 0.6, 0.5
_MOST = 4001
# The density of a standard normal is no float beyond.
_FARTHEST = 38.0
# The largest log rate whose exponential is a float.
_LOG_MOST = 700.0
# Between these quantiles a distribution function is smooth enough for a few Legendre nodes.
_LEVELS = (1e-8, 1e-3, 0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98, 0.999, 1.0 - 1e-5, 1.0 - 1e-8)
_LEGENDRE = 8
# Up to as many counts are added up one by one.
_FEW = 1000


@final
@dataclass(frozen=True, eq=False, repr=False, init=False)
class CountLaw(LatentLaw):
    """N forecasts of a count.

    `latent_mean` and `latent_var`, mean and variance of the log rate, are (N,), or (N, M) for an
    equal-weight mixture of M members; `dispersion` is a scalar or (M,). An ensemble (`mix`) is
    the exact mixture.
    """

    learned: ClassVar[tuple[str, ...]] = ("dispersion",)
    latent_mean: Members
    latent_var: Members
    dispersion: Float[np.ndarray, " M"]

    def __init__(
        self, latent_mean: Numbers, latent_var: Numbers, dispersion: Numbers = 0.0
    ) -> None:
        super().__init__(latent_mean, latent_var, dispersion)
        alpha = self.dispersion
        if not ((alpha >= 0.0) & np.isfinite(alpha)).all():
            raise ValueError(f"CountLaw: dispersion must be finite and >= 0, got {alpha}")

    @property
    def noise(self) -> tuple[Float[np.ndarray, " M"], ...]:
        return (self.dispersion,)

    @property
    def atoms(self) -> Atoms:
        return "all"

    @property
    def _means(self) -> Members:
        with np.errstate(over="ignore"):
            return np.exp(self.latent_mean + 0.5 * self.latent_var)

    @property
    def mean(self) -> Vector:
        return np.asarray(self._means.mean(axis=1))

    @property
    def sd(self) -> Vector:
        means = self._means
        with np.errstate(over="ignore", invalid="ignore"):
            # Var[y] with the large terms taken apart: those of the rate, and of the dispersion.
            within = means + means**2 * (
                np.expm1(self.latent_var) + self.dispersion * np.exp(self.latent_var)
            )
            return np.asarray(np.sqrt(within.mean(axis=1) + means.var(axis=1)))

    def pmf(self, y: Numbers) -> Vector:
        """P(Y_n = y_n); NaN where y_n is missing."""
        return np.asarray(np.exp(self.log_prob(y)))

    def log_prob(self, y: Numbers) -> Vector:
        """Log mass in nats; -inf for what is no count, NaN where the label is missing."""
        y = real_labels(y, len(self))
        possible = (y >= 0.0) & (y == np.floor(y)) & np.isfinite(y)
        counts = np.where(possible, y, 0.0)
        out = np.empty(len(self))
        for part in parts(_NODES, len(self)):
            table = [
                _log_mass(counts[part], self.latent_mean[part, m], self.latent_var[part, m], alpha)
                for m, alpha in enumerate(self.dispersion.tolist())
            ]
            out[part] = logsumexp(table, axis=0) - math.log(len(table))
        return np.where(np.isnan(y), np.nan, np.where(possible, out, -np.inf))

    def cdf(self, y: Numbers) -> Vector:
        return self._share(y, above=False)

    def sf(self, y: Numbers) -> Vector:
        """P(Y_n > y_n), to five digits up to counts of about 10^4 and to one or two far beyond."""
        return self._share(y, above=True)

    def _share(self, y: Numbers, *, above: bool) -> Vector:
        """P(Y <= y), or P(Y > y)."""
        y = real_labels(y, len(self))
        counts = np.floor(y)
        inside = np.isfinite(counts) & (counts >= 0.0)
        out = self._cdf(np.where(inside, counts, 0.0), np.arange(len(self)), above=above)
        return np.where(np.isnan(y), np.nan, np.where(inside, out, (counts > 0.0) != above))

    def cdf_pair(self, y: Numbers) -> tuple[Vector, Vector]:
        y = real_labels(y, len(self))
        return self.cdf(np.ceil(y) - 1.0), self.cdf(y)

    def _cdf(self, counts: np.ndarray, rows: np.ndarray, *, above: bool = False) -> Vector:
        """P(Y <= counts) for some rows, of counts that are there; or P(Y > counts)."""
        z, weight = self._rule(counts, rows, above=above)
        out = np.zeros(len(rows))
        for part in parts(len(z), len(rows)):
            for a, alpha in self._log_rates(rows[part], z):
                out[part] += _conditional_cdf(counts[part, None], a, alpha, above) @ weight
        return np.minimum(out / self.dispersion.size, 1.0)

    def _rule(
        self, counts: np.ndarray, rows: np.ndarray, *, above: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Nodes in sds of the belief, near enough for such counts, and their weights."""
        # In the log rate a count has a width of its own.
        width = np.sqrt(1.0 / (counts[:, None] + 1.0) + self.dispersion)
        ratio = float(np.max(np.sqrt(self.latent_var[rows]) / width, initial=0.0))
        if ratio == 0.0:
            return np.zeros(1), np.ones(1)
        top = _REACH
        if above:
            # What lies far above comes from rates near the count itself, however unlikely they are.
            sd = np.sqrt(self.latent_var[rows])
            gap = np.log1p(counts)[:, None] - self.latent_mean[rows]
            far = np.divide(gap, sd, out=np.zeros_like(gap), where=sd > 0.0)
            top += float(np.clip(np.max(far, initial=0.0), 0.0, _FARTHEST))
        nodes = math.ceil((_REACH + top) * max(1.0 / _STEP, ratio / _SHARE)) + 1
        z = np.linspace(-_REACH, top, min(nodes, _MOST))
        weight = np.exp(-0.5 * z**2)
        return z, weight / weight.sum()

    def _log_rates(self, rows: np.ndarray, z: np.ndarray) -> Iterator[tuple[np.ndarray, float]]:
        """By member, log rates at the nodes (rows, nodes), and the dispersion."""
        for m, alpha in enumerate(self.dispersion.tolist()):
            mean, var = self.latent_mean[rows, m, None], self.latent_var[rows, m, None]
            yield mean + np.sqrt(var) * z, alpha

    def _quantile(self, p: float) -> Vector:
        if p == 1.0:
            return np.full(len(self), np.inf)
        rows = np.arange(len(self))
        with np.errstate(over="ignore"):
            top = np.ceil(self.mean + self.sd)
        lo, hi = np.full(len(self), -1.0), np.where(np.isfinite(top), top, 1.0)
        # First out, until the count is bracketed; then by a root of the smooth cdf, and up from it.
        short = rows[self._cdf(hi, rows) < p]
        while short.size:
            lo[short] = hi[short]
            hi[short] = 2.0 * hi[short] + 1.0
            short = short[self._cdf(hi[short], short) < p]
        open_ = rows[hi - lo > 1.0]
        if open_.size:
            found = find_root(
                lambda k, row: self._cdf(k, row) - p,
                (np.maximum(lo[open_], -0.999), hi[open_]),
                args=(open_,),
                tolerances={"xatol": 0.1, "xrtol": 1e-15},
            )
            # No root means that even a count of zero is enough.
            root = np.where(found.success, found.x, -0.999)
            guess = np.clip(np.ceil(root - 0.2), 0.0, hi[open_])
            hi[open_] = guess + (self._cdf(guess, open_) < p)
        return hi

    def crps(self, y: Numbers) -> Vector:
        """sum_k (P(Y <= k) - 1{y <= k})^2 over k = 0, 1, 2, ...

        Count by count up to a thousand; beyond, by quadrature, to about four digits.
        """
        y = real_labels(y, len(self))
        label = np.where(np.isnan(y), 0.0, np.maximum(np.ceil(y), 0.0))
        last = self._quantile(_LEVELS[-1])
        out = np.zeros(len(self))
        for small in (True, False):
            rows = np.flatnonzero((last <= _FEW) == small)
            if rows.size:
                add = self._added if small else self._integrated
                out[rows] = add(rows, label[rows], last[rows])
        return np.where(np.isnan(y), np.nan, out)

    def _added(self, rows: np.ndarray, label: Vector, last: Vector) -> Vector:
        """The sum of `crps`, masses following from one another: p(k) = p(k-1) (k-1+r) q / k."""
        z, weight = self._rule(last, rows)
        # Beyond the last count that can occur, each costs one.
        out = np.maximum(label - last - 1.0, 0.0)
        for part in parts(len(z), len(rows)):
            lines = [
                (
                    _conditional_log_mass(np.zeros(1), a, alpha),
                    a - np.log1p(alpha * np.exp(a)),
                    alpha,
                )
                for a, alpha in self._log_rates(rows[part], z)
            ]
            cdf = np.zeros(len(part))
            for k in range(int(last[part].max()) + 1):
                for log_mass, log_step, alpha in lines:
                    if k > 0:
                        log_mass += log_step + math.log((1.0 + alpha * (k - 1)) / k)
                    cdf += np.exp(log_mass) @ weight / len(lines)
                gap = np.minimum(cdf, 1.0) - (k >= label[part])
                out[part] += np.where(k <= last[part], gap**2, 0.0)
        return np.asarray(out)

    def _integrated(self, rows: np.ndarray, label: Vector, last: Vector) -> Vector:
        """The sum of `crps` by Legendre nodes between quantiles and the label."""
        inner = self[rows].quantile(_LEVELS[:-1])
        ends = [np.zeros_like(label), last + 1.0, label]
        edges = np.sort(np.column_stack([*ends, inner]), axis=1)
        out = np.zeros(len(rows))
        for first, after in zip(edges.T[:-1], edges.T[1:], strict=True):
            for place, weight in _places(first, after):
                part = np.flatnonzero(weight > 0.0)
                if part.size:
                    gap = self._cdf(place[part], rows[part]) - (place > label - 0.75)[part]
                    out[part] += weight[part] * gap**2
        return out

    def _sample(self, key: PRNGKeyArray, n: int) -> Float[np.ndarray, "n N"]:
        which, latent, gamma, count = jax.random.split(key, 4)
        shape = (n, len(self))
        member = np.asarray(jax.random.randint(which, shape, 0, self.dispersion.size))
        row = np.arange(len(self))
        z = np.asarray(jax.random.normal(latent, shape), np.float64)
        a = self.latent_mean[row, member] + np.sqrt(self.latent_var[row, member]) * z
        alpha = self.dispersion[member]
        spread = np.where(alpha > 0.0, alpha, 1.0)
        excess = np.asarray(jax.random.gamma(gamma, 1.0 / spread), np.float64) * spread
        rate = np.exp(a) * np.where(alpha > 0.0, excess, 1.0)
        # NumPy's sampler takes rates of any size; JAX's stops short of 2^31.
        seed = np.asarray(jax.random.bits(count, (4,)))
        return np.asarray(np.random.default_rng(seed).poisson(rate).astype(np.float64))


def _places(first: Vector, after: Vector) -> Iterator[tuple[Vector, Vector]]:
    """Where to read a smooth function, and with what weight, to add it up over [first, after).

    All counts where there are few. Else Legendre nodes: a sum over whole numbers is an integral
    from half a unit before the first, up to the curvature of the function.
    """
    count = after - first
    few = count <= 3 * _LEGENDRE
    for i in range(int(np.max(count, initial=0.0, where=few))):
        yield first + i, np.where(few & (i < count), 1.0, 0.0)
    if few.all():
        return
    for t, w in zip(*np.polynomial.legendre.leggauss(_LEGENDRE), strict=True):
        yield first - 0.5 + 0.5 * count * (1.0 + t), np.where(few, 0.0, 0.5 * count * w)


# Given the log rate a, a count is negative binomial with size 1 / alpha, or Poisson at alpha = 0.


def _conditional_cdf(
    count: np.ndarray, a: np.ndarray, alpha: float, above: bool = False
) -> np.ndarray:
    """P(Y <= count | a), which is smooth in the count; or P(Y > count | a)."""
    if alpha == 0.0:
        share = gammainc if above else gammaincc
        return np.asarray(share(count + 1.0, np.exp(np.minimum(a, _LOG_MOST))))
    if above:
        return np.asarray(betainc(count + 1.0, 1.0 / alpha, expit(a + math.log(alpha))))
    return np.asarray(betainc(1.0 / alpha, count + 1.0, expit(-a - math.log(alpha))))


def _conditional_log_mass(count: np.ndarray, a: np.ndarray, alpha: float) -> np.ndarray:
    """log P(Y = count | a)."""
    if alpha == 0.0:
        return np.asarray(count * a - np.exp(np.minimum(a, _LOG_MOST)) - gammaln(count + 1.0))
    size, x = 1.0 / alpha, a + math.log(alpha)
    some = np.maximum(count, 1.0)
    # The logarithm of a binomial coefficient; differences of log gammas would cancel.
    ways = np.where(count > 0.0, -betaln(some, size) - np.log(some), 0.0)
    return np.asarray(ways - size * np.logaddexp(0.0, x) - count * np.logaddexp(0.0, -x))


def _conditional_slope(
    count: np.ndarray, a: np.ndarray, alpha: float
) -> tuple[np.ndarray, np.ndarray]:
    """First derivative of the log mass by a, and minus the second."""
    if alpha == 0.0:
        rate = np.exp(np.minimum(a, _LOG_MOST))
        return count - rate, rate
    share = expit(a + math.log(alpha))
    total = (count + 1.0 / alpha) * share
    return count - total, total * (1.0 - share)


def _log_mass(count: Vector, mean: Vector, var: Vector, alpha: float) -> Vector:
    """log P(Y = count) with the Gaussian log rate integrated out."""

    def slope(a: np.ndarray, n: np.ndarray, m: np.ndarray, v: np.ndarray) -> np.ndarray:
        return np.asarray(m - a + v * _conditional_slope(n, a, alpha)[0])

    # The slope of the log integrand falls by at least one a unit of a, which brackets its root.
    reach = slope(mean, count, mean, var)
    bracket = np.minimum(mean, mean + reach), np.maximum(mean, mean + reach)
    found = find_root(slope, bracket, args=(count, mean, var)).x
    centre = np.where(reach == 0.0, mean, found)[:, None]
    # In units of the belief's sd, so that no belief is too narrow.
    sd = np.sqrt(var)[:, None]
    curvature = _conditional_slope(count[:, None], centre, alpha)[1]
    width = 1.0 / np.sqrt(1.0 + var[:, None] * curvature)
    t, weight = np.polynomial.hermite_e.hermegauss(_NODES)
    offset = np.divide(centre - mean[:, None], sd, out=np.zeros_like(sd), where=sd > 0.0)
    z = offset + width * t
    log_weight = np.log(weight / weight.sum()) + 0.5 * t**2 - 0.5 * z**2
    terms = _conditional_log_mass(count[:, None], mean[:, None] + sd * z, alpha)
    return np.asarray(logsumexp(log_weight + terms, axis=1) + np.log(width[:, 0]))
