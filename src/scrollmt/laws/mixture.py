r"""Mixtures of laws: F_mixture(y) = sum_m w_m F_m(y) with weights that sum to one.

`mix` gives the exact mixture; `moment_matched` gives one Gaussian law in the place of several, with
the mean and variance of their mixture,

    m = mean_k m_k,    V = mean_k V_k + var_k m_k.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, final, overload

import jax
import numpy as np
from jaxtyping import Bool, Float, PRNGKeyArray
from scipy.optimize.elementwise import find_minimum
from scipy.special import logsumexp, ndtr

from scrollmt.laws.base import Law, LawT, MemberWeights, Numbers, Vector
from scrollmt.laws.gaussian_mixture import GaussianMixtureLaw
from scrollmt.laws.normals import by_row
from scrollmt.laws.real import Atoms, Closed, RealLaw, bisected, relative, sample_members

# Levels at whose quantiles a density is read to find its modes.
_MODE_LEVELS = ndtr(np.linspace(-4.0, 4.0, 81))
# The least distance of such places, in sds of the mixture.
_MODE_APART = 1e-4


@final
class MixtureLaw(RealLaw):
    """The mixture of laws of a number over the same N forecasts, exactly.

    `weights` are relative, (M,) or (M, N) for M components, and equal unless given.
    """

    def __init__(self, components: Sequence[RealLaw], weights: Numbers = None) -> None:
        self.components = tuple(components)
        sizes = [len(law) for law in self.components]
        if len(set(sizes)) != 1:
            raise ValueError(f"MixtureLaw: components of one length are needed, got {sizes}")
        given = np.ones(len(sizes)) if weights is None else weights
        self.weights = read_weights(given, len(sizes), sizes[0], "MixtureLaw")

    def __len__(self) -> int:
        return len(self.components[0])

    def _rows(self, rows: np.ndarray) -> Self:
        return type(self)([law[rows] for law in self.components], self.weights[:, rows])

    def affine(self, offset: float, scale: float) -> Self:
        law = type(self)([one.affine(offset, scale) for one in self.components], self.weights)
        return law._at_inputs_of(self)

    def _averaged(self, values: Sequence[np.ndarray]) -> np.ndarray:
        return np.asarray(np.sum(self.weights * np.stack(values), axis=0))

    @property
    def atoms(self) -> Atoms:
        kinds = {law.atoms for law in self.components}
        return kinds.pop() if len(kinds) == 1 else "some"

    @property
    def metrics(self) -> tuple[str, ...]:
        shared = set.intersection(*(set(law.metrics) for law in self.components))
        return tuple(name for name in super().metrics if name in shared)

    @property
    def mean(self) -> Vector:
        return self._averaged([law.mean for law in self.components])

    @property
    def sd(self) -> Vector:
        centre = self.mean
        return np.asarray(
            np.sqrt(self._averaged([law.var + (law.mean - centre) ** 2 for law in self.components]))
        )

    @property
    def noise_var(self) -> Vector | None:
        """The noise of the components, averaged; None where one of them does not say."""
        noise = [law.noise_var for law in self.components if law.noise_var is not None]
        return self._averaged(noise) if len(noise) == len(self.components) else None

    @property
    def belief_var(self) -> Vector | None:
        """What beliefs add, and the disagreement of the components; None without the noise."""
        noise = self.noise_var
        return None if noise is None else np.maximum(self.var - noise, 0.0)

    @property
    def modes(self) -> Float[np.ndarray, "N K"]:
        """Local maxima of each density, ascending; NaN where there are fewer than K.

        Sought between quantiles of the components; peaks that are narrower than a thousandth of
        the mixture's sd may be missed.
        """
        if self.atoms != "none":
            raise ValueError(
                "MixtureLaw: modes are those of a density, and here some values have a mass"
            )
        places = np.sort(
            np.concatenate([law.quantile(_MODE_LEVELS) for law in self.components], axis=1), axis=1
        )
        # Components share places; apart from each other, neighbours differ by more than rounding.
        apart = _MODE_APART * self.sd[:, None] * np.arange(places.shape[1])
        places = np.maximum.accumulate(places - apart, axis=1) + apart
        height = np.stack([self.log_prob(x) for x in places.T], axis=1)
        left, middle, right = height[:, :-2], height[:, 1:-1], height[:, 2:]
        row, place = np.nonzero((middle > left) & (middle >= right))
        # Relative to the mean, so that a mode keeps its digits where that is large.
        centre = self.mean[row]
        bracket = tuple(places[row, place + k] - centre for k in range(3))

        def depth(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
            return -self._rows(rows).log_prob(self.mean[rows] + x)

        # SciPy's parabolas divide by zero where they are done.
        with np.errstate(divide="ignore", invalid="ignore"):
            found = find_minimum(depth, bracket, args=(row,)).x
        return by_row(row, centre + found, len(self))

    def is_atom(self, y: Numbers) -> Bool[np.ndarray, " N"]:
        return np.asarray(np.any([law.is_atom(y) for law in self.components], axis=0))

    def log_prob(self, y: Numbers) -> Vector:
        terms = np.stack([law.log_prob(y) for law in self.components])
        atom = np.stack([law.is_atom(y) for law in self.components])
        # Beside a mass, a density has no share.
        terms = np.where(atom.any(axis=0) & ~atom & ~np.isnan(terms), -np.inf, terms)
        return np.asarray(logsumexp(terms, axis=0, b=self.weights))

    def cdf(self, y: Numbers) -> Vector:
        return np.asarray(np.minimum(self._averaged([law.cdf(y) for law in self.components]), 1.0))

    def sf(self, y: Numbers) -> Vector:
        return np.asarray(np.minimum(self._averaged([law.sf(y) for law in self.components]), 1.0))

    def cdf_pair(self, y: Numbers) -> tuple[Vector, Vector]:
        low, high = zip(*(law.cdf_pair(y) for law in self.components), strict=True)
        return np.minimum(self._averaged(low), 1.0), np.minimum(self._averaged(high), 1.0)

    def log_masses(self, edges: Sequence[float], closed: Closed = "left") -> np.ndarray:
        tables = np.stack([law.log_masses(edges, closed) for law in self.components])
        return np.asarray(logsumexp(tables, axis=0, b=self.weights[:, :, None]))

    def recorded(self, y: Numbers) -> np.ndarray:
        return self.components[0].recorded(y)

    def crps(self, y: Numbers) -> Vector:
        return super().crps(self.recorded(y))

    def _quantile(self, p: float) -> Vector:
        # The quantile of a mixture lies between those of its components.
        each, there = np.stack([law.quantile(p) for law in self.components]), self.weights > 0.0
        low = np.min(each, axis=0, where=there, initial=np.inf)
        high = np.max(each, axis=0, where=there, initial=-np.inf)
        if p in (0.0, 1.0):
            return np.asarray(low if p == 0.0 else high)
        return np.where(self.cdf(low) >= p, low, bisected(self.cdf, p, low, high))

    def _sample(self, key: PRNGKeyArray, n: int) -> Float[np.ndarray, "n N"]:
        which, *keys = jax.random.split(key, 1 + len(self.components))
        draws = np.stack([law._sample(k, n) for law, k in zip(self.components, keys, strict=True)])
        chosen = sample_members(which, n, self.weights.T)
        return np.asarray(np.take_along_axis(draws, chosen[None], axis=0)[0])


def read_weights(weights: Numbers, count: int, forecasts: int, name: str) -> MemberWeights:
    """Weights of `count` laws as (M, N), which sum to one for each forecast."""
    given = np.asarray(weights, np.float64)
    if given.shape not in ((count,), (count, forecasts)):
        raise ValueError(
            f"{name}: weights has shape {given.shape}, need ({count},), one per law, or "
            f"({count}, {forecasts}), one per law and forecast"
        )
    table = given[:, None] if given.ndim == 1 else given
    return relative(np.broadcast_to(table, (count, forecasts)), 0, name)


def mixture_of(laws: Sequence[RealLaw], weights: MemberWeights | None) -> RealLaw:
    """The mixture of any laws of a number; as arrays where all of them are made of normals."""
    normals = [law.normals for law in laws if law.normals is not None]
    if len(normals) < len(laws):
        return MixtureLaw(laws, weights)
    shares = np.full((len(laws), len(laws[0])), 1.0) if weights is None else weights
    noise = [law.noise_var for law in laws if law.noise_var is not None]
    return GaussianMixtureLaw(
        np.concatenate([one.means for one in normals], axis=1),
        np.concatenate([one.sds for one in normals], axis=1),
        np.concatenate(
            [share[:, None] * one.weights for share, one in zip(shares, normals, strict=True)],
            axis=1,
        ),
        np.average(noise, axis=0, weights=shares) if len(noise) == len(laws) else None,
    )


@overload
def mix(laws: Sequence[RealLaw], weights: Numbers = None) -> RealLaw: ...
@overload
def mix(laws: Sequence[LawT], weights: Numbers = None) -> LawT: ...


def mix(laws: Sequence[Any], weights: Numbers = None) -> Any:
    """The mixture of laws over the same N forecasts, exactly.

    `weights` are relative: one per law, (M,), or one per law and forecast, (M, N). They are equal
    unless given. Laws of a number may be of different classes. Joint laws keep two moments, as
    `JointLaw` says.
    """
    given = _alike(laws, "mix")
    shares = None if weights is None else read_weights(weights, len(given), len(given[0]), "mix")
    if len(given) == 1:
        return given[0]
    return _kind(given)._mix(given, shares)._at_inputs(_shared_index(given), _farthest(given))


def moment_matched(laws: Sequence[LawT]) -> LawT:
    """One law in the place of several: Gaussian laws become one with their mixture's two moments.

    So do the values behind censored and transformed Gaussian laws. Other laws are mixed, as by
    `mix` with equal weights.
    """
    given = _alike(laws, "moment_matched")
    if len(given) == 1:
        return given[0]
    law: LawT = _kind(given)._moment_matched(given)
    return law._at_inputs(_shared_index(given), _farthest(given))


def _alike(laws: Sequence[LawT], name: str) -> list[LawT]:
    """Laws that can be mixed."""
    given = list(laws)
    if not given:
        raise ValueError(f"{name}: need at least one law")
    kinds = sorted({type(law).__name__ for law in given})
    if len(kinds) > 1 and not all(isinstance(law, RealLaw) for law in given):
        raise ValueError(f"{name}: the laws are of different kinds: {kinds}")
    sizes = [len(law) for law in given]
    if len(set(sizes)) > 1:
        raise ValueError(f"{name}: the laws hold different numbers of forecasts: {sizes}")
    return given


def _kind(laws: Sequence[Law]) -> Any:
    """The class that knows how to mix these laws."""
    return type(laws[0]) if len({type(law) for law in laws}) == 1 else RealLaw


def _shared_index(laws: Sequence[Law]) -> Any:
    first, *others = (law.index for law in laws)
    agree = first is not None and all(one is not None and first.equals(one) for one in others)
    return first if agree else None


def _farthest(laws: Sequence[Law]) -> Vector | None:
    """The distance of a mixture's inputs: the largest that any of its laws knows of."""
    known = [law.extrapolation for law in laws if law.extrapolation is not None]
    return np.max(known, axis=0) if known else None
