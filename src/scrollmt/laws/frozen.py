r"""Laws under the names of ``scipy.stats``, for tools that expect a frozen distribution.

    log_prob    logpdf, pdf; of masses logpmf, pmf
    cdf         cdf, sf
    quantile    ppf, median, interval
    mean, sd    mean, std, var
    sample      rvs

A Gaussian law becomes SciPy's own `norm(mean, sd)`; any other law is wrapped and behaves like it.
Shapes follow SciPy: the N forecasts stand along the last axis of every result, and arguments are
broadcast against them, so that levels (L, 1) give quantiles (L, N).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, final

import jax
import numpy as np
import scipy.stats

from scrollmt.laws import Law, NumberLaw, OrderedLaw, RealLaw

_ENTROPY_NODES = 120


class FrozenLaw:
    """What laws of a number and of ordered classes have in common.

    A law of both densities and masses, such as that of a censored value, has only this: SciPy has
    no name for its `log_prob`.
    """

    def __init__(self, law: Any) -> None:
        self.law = law

    def cdf(self, x: Any) -> np.ndarray:
        return self._ask(lambda law, flat: law.cdf(flat), x)

    def sf(self, x: Any) -> np.ndarray:
        return self._ask(lambda law, flat: law.sf(flat), x)

    def ppf(self, q: Any) -> np.ndarray:
        return self._ask(_quantiles, q)

    def median(self) -> np.ndarray:
        return self.ppf(0.5)

    def interval(self, confidence: Any) -> tuple[np.ndarray, np.ndarray]:
        tail = 0.5 * (1.0 - np.asarray(confidence, dtype=float))
        return self.ppf(tail), self.ppf(1.0 - tail)

    def mean(self) -> np.ndarray:
        return np.asarray(self.law.mean)

    def std(self) -> np.ndarray:
        return np.asarray(self.law.sd)

    def var(self) -> np.ndarray:
        return self.std() ** 2

    def rvs(self, size: Any = None, random_state: Any = None) -> np.ndarray:
        """Draws of the shape `size`, which ends with N unless there is but one forecast."""
        count = len(self.law)
        shape = (count,) if size is None else tuple(np.atleast_1d(size).tolist())
        if count != 1 and shape[-1:] != (count,):
            raise ValueError(
                f"size = {size} does not end with the number of forecasts: "
                f"pass ({count},) or (n, {count})"
            )
        draws = math.prod(shape if count == 1 else shape[:-1])
        seed = int(np.random.default_rng(random_state).integers(2**32))
        return np.asarray(self.law._sample(jax.random.key(seed), draws).reshape(shape))

    def _ask(self, ask: Callable[[Any, np.ndarray], np.ndarray], x: Any) -> np.ndarray:
        """`ask(law, x)` for one long law with as many forecasts as there are entries of `x`."""
        x = np.asarray(x, dtype=float)
        forecasts = np.arange(len(self.law))
        rows, x = np.broadcast_arrays(forecasts, x)
        return ask(self.law[rows.ravel()], x.ravel()).reshape(x.shape)


def _quantiles(law: Any, levels: np.ndarray) -> np.ndarray:
    """A level for each forecast, where a law takes one for all."""
    out = np.full(len(law), np.nan)
    for level in np.unique(levels[~np.isnan(levels)]):
        rows = np.flatnonzero(levels == level)
        out[rows] = law[rows].quantile(level)
    return out


@final
class FrozenDensity(FrozenLaw):
    """A law with a density."""

    def logpdf(self, x: Any) -> np.ndarray:
        return self._ask(lambda law, flat: law.log_prob(flat), x)

    def pdf(self, x: Any) -> np.ndarray:
        return np.asarray(np.exp(self.logpdf(x)))

    def entropy(self) -> np.ndarray:
        """-E[log p(Y)] in nats, by quadrature over quantiles, to about four digits."""
        nodes, weights = np.polynomial.legendre.leggauss(_ENTROPY_NODES)
        at = self.law.quantile(0.5 * (1.0 + nodes))
        return np.asarray(-0.5 * self.logpdf(at.T).T @ weights)


class FrozenMass(FrozenLaw):
    """A law on whole numbers; elsewhere its mass is zero."""

    def logpmf(self, k: Any) -> np.ndarray:
        return self._ask(lambda law, flat: law.log_prob(flat), k)

    def pmf(self, k: Any) -> np.ndarray:
        return np.asarray(np.exp(self.logpmf(k)))


@final
class FrozenClasses(FrozenMass):
    """Ordered classes as the numbers 0 .. R-1."""

    def mean(self) -> np.ndarray:
        return np.asarray(self.law.probs @ np.arange(self.law.num_classes))

    def std(self) -> np.ndarray:
        apart = np.arange(self.law.num_classes) - self.mean()[:, None]
        return np.asarray(np.sqrt(np.sum(self.law.probs * apart**2, axis=1)))

    def logpmf(self, k: Any) -> np.ndarray:
        return self._ask(_log_mass, k)

    def cdf(self, x: Any) -> np.ndarray:
        return self._ask(_class_cdf, x)

    def sf(self, x: Any) -> np.ndarray:
        return self._ask(_class_sf, x)


def _log_mass(law: OrderedLaw, k: np.ndarray) -> np.ndarray:
    # A law takes a negative class for a missing label; here it is a number without mass.
    known = (k >= 0) & (k < law.num_classes) & (k == np.floor(k))
    inside = law.log_prob(np.where(known, k, 0.0))
    return np.where(np.isnan(k), np.nan, np.where(known, inside, -np.inf))


def _class_cdf(law: OrderedLaw, x: np.ndarray) -> np.ndarray:
    below = np.clip(np.floor(x), 0.0, law.num_classes - 1)
    return np.where(x < 0.0, 0.0, law.cdf(below))


def _class_sf(law: OrderedLaw, x: np.ndarray) -> np.ndarray:
    below = np.clip(np.floor(x), 0.0, law.num_classes - 1)
    return np.where(x < 0.0, 1.0, law.sf(below))


_BY_ATOMS = {"none": FrozenDensity, "some": FrozenLaw, "all": FrozenMass}


def frozen(law: Law) -> Any:
    """A law as a distribution of ``scipy.stats``, or as an object that behaves like one."""
    if isinstance(law, RealLaw) and law.normal:
        return scipy.stats.norm(law.mean, law.sd)
    if isinstance(law, NumberLaw):
        return _BY_ATOMS[law.atoms](law)
    if isinstance(law, OrderedLaw):
        return FrozenClasses(law)
    raise TypeError(
        f"a {type(law).__name__} has no counterpart in scipy.stats: it has no distribution function"
    )
