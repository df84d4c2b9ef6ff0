r"""Maps of class probabilities that recalibrate a law of classes.

Ordered classes, an event among them, by the log odds of being above each of the R - 1 cuts,

    s_r = logit P(Y > r),    s'_r = m_r(s_r),    P'(Y = r) = sigmoid(s'_{r-1}) - sigmoid(s'_r),

with m_r monotone and piecewise linear; classes without an order by a temperature and biases,

    log P'(Y = r) = b log P(Y = r) + c_r + const.

Masses stay positive and sum to one. Shapes: log masses (N, R), log odds (N, R - 1).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self, TypeAlias, TypeVar, final

import numpy as np
from jaxtyping import Float
from scipy.special import expit, logsumexp

from scrollmt.laws.base import Calibrated
from scrollmt.laws.discrete import DiscreteLaw, Matrix
from scrollmt.laws.recalibrated import PitMap

Odds = Float[np.ndarray, "N C"]
DiscreteT = TypeVar("DiscreteT", bound=DiscreteLaw)
# Where the maps of two cuts cross, a class keeps this share of the mass it had.
LEAST_SHARE = 1e-3
# Log masses below this one are as good as zero.
_SMALLEST = -700.0


def log_odds(log_probs: Matrix) -> Odds:
    """logit P(Y > r) at each cut r = 0 .. R-2."""
    cuts = range(1, log_probs.shape[1])
    with np.errstate(invalid="ignore"):
        above = [logsumexp(log_probs[:, r:], axis=1) for r in cuts]
        below = [logsumexp(log_probs[:, :r], axis=1) for r in cuts]
    return np.asarray(np.stack(above, axis=1) - np.stack(below, axis=1))


@final
@dataclass(frozen=True)
class OrderedMap:
    """A monotone map of the log odds at each cut, through the knots `at` to the values `to`.

    Beyond its knots a map keeps its last shift. `share` is how far the maps go from the identity,
    `gain` their cross-validated gain in nats a label, `labels` how many they come from.
    """

    kind: ClassVar[Calibrated] = "ordered"
    at: tuple[tuple[float, ...], ...]
    to: tuple[tuple[float, ...], ...]
    labels: int = 0
    share: float = 0.0
    gain: float = 0.0

    def __post_init__(self) -> None:
        good = len(self.at) == len(self.to) >= 1
        for at, to in zip(self.at, self.to, strict=False):
            good = good and len(at) == len(to) >= 1 and bool(np.isfinite([at, to]).all())
            good = good and bool((np.diff(at) > 0.0).all() and (np.diff(to) >= 0.0).all())
        if not good:
            raise ValueError(
                "OrderedMap: each cut needs finite, strictly increasing knots `at` and as many "
                "increasing values `to`"
            )

    @property
    def identity(self) -> bool:
        return self.at == self.to

    def shrunk(self, share: float) -> Self:
        """The maps with only a share of their way from the identity."""
        to = []
        for knots in zip(self.at, self.to, strict=True):
            moved = [a + share * (b - a) for a, b in zip(*knots, strict=True)]
            # Equal values may differ by rounding now.
            to.append(tuple(np.maximum.accumulate(moved).tolist()))
        return replace(self, to=tuple(to), share=share)

    def log_probs(self, log_probs: Matrix) -> Matrix:
        """Log masses after the maps."""
        if log_probs.shape[1] != len(self.at) + 1:
            raise ValueError(
                f"OrderedMap: {len(self.at)} cuts do not suit log_probs of shape {log_probs.shape}"
            )
        odds = log_odds(log_probs)
        for cut, (at, to) in enumerate(zip(self.at, self.to, strict=True)):
            inside = np.clip(odds[:, cut], at[0], at[-1])
            odds[:, cut] += np.interp(inside, at, to) - inside
        mass = _masses(odds)
        mass = np.maximum(mass, LEAST_SHARE * np.exp(log_probs))
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(mass / mass.sum(axis=1, keepdims=True)))

    def of(self, law: DiscreteT) -> DiscreteT:
        """The law with these maps; the law itself where they change nothing."""
        return law if self.identity else _with_masses(law, self.log_probs(law.log_probs))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        at, to = (tuple(tuple(map(float, cut)) for cut in stored[k]) for k in ("at", "to"))
        return cls(at, to, int(stored["labels"]), float(stored["share"]), float(stored["gain"]))


def _masses(odds: Odds) -> Matrix:
    """Masses between the cuts, of both tails by the smaller one; not positive where cuts cross."""
    ends = np.pad(odds, ((0, 0), (1, 1)), constant_values=-np.inf)
    ends[:, 0] = np.inf
    upper, lower = ends[:, :-1], ends[:, 1:]
    with np.errstate(invalid="ignore"):
        right = upper + lower < 0.0
    left = expit(-lower) - expit(-upper)
    return np.asarray(np.where(right, expit(upper) - expit(lower), left))


@final
@dataclass(frozen=True)
class UnorderedMap:
    """A temperature and a bias for each class; `share`, `gain` and `labels` as in `OrderedMap`."""

    kind: ClassVar[Calibrated] = "unordered"
    log_power: float
    bias: tuple[float, ...]
    labels: int = 0
    share: float = 0.0
    gain: float = 0.0

    def __post_init__(self) -> None:
        numbers = (self.log_power, *self.bias)
        if len(self.bias) < 2 or not all(math.isfinite(x) and abs(x) < 50.0 for x in numbers):
            raise ValueError("UnorderedMap: need a power and two or more biases, all finite")

    @property
    def identity(self) -> bool:
        return not (self.log_power or any(self.bias))

    def shrunk(self, share: float) -> Self:
        """The map with only a share of its way from the identity."""
        bias = tuple(share * one for one in self.bias)
        return replace(self, log_power=share * self.log_power, bias=bias, share=share)

    def log_probs(self, log_probs: Matrix) -> Matrix:
        """Log masses after the map."""
        if log_probs.shape[1] != len(self.bias):
            raise ValueError(
                f"UnorderedMap: {len(self.bias)} biases do not suit log_probs of shape "
                f"{log_probs.shape}"
            )
        raised = math.exp(self.log_power) * np.maximum(log_probs, _SMALLEST) + self.bias
        return np.asarray(raised - logsumexp(raised, axis=1, keepdims=True))

    def of(self, law: DiscreteT) -> DiscreteT:
        """The law with this map; the law itself where it changes nothing."""
        return law if self.identity else _with_masses(law, self.log_probs(law.log_probs))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        bias: Sequence[float] = tuple(map(float, stored["bias"]))
        numbers = int(stored["labels"]), float(stored["share"]), float(stored["gain"])
        return cls(float(stored["log_power"]), tuple(bias), *numbers)


def _with_masses(law: DiscreteT, log_probs: Matrix) -> DiscreteT:
    return type(law)(log_probs)._at_inputs_of(law)


Map: TypeAlias = PitMap | OrderedMap | UnorderedMap
_MAPS: dict[str, type[Map]] = {one.kind: one for one in (PitMap, OrderedMap, UnorderedMap)}


def map_from_dict(kind: str, stored: Mapping[str, Any]) -> Map:
    """The map that `to_dict` of one of this kind wrote."""
    return _MAPS[kind].from_dict(stored)
