"""The laws a model returns: one immutable object per task, holding N forecasts.

Shapes: a vector such as ``mean`` is (N,), class masses are (N, R), members of a mixture stand along
a last axis M. Whatever comes in, laws compute in NumPy float64. A label ``y`` is a scalar (the same
for all forecasts) or (N,). A missing label (NaN or None; for classes any negative number too) gives
NaN.

``mix`` gives exact mixtures: densities, masses and distribution functions are averaged, with
weights where they are given. ``moment_matched`` gives one Gaussian law for several.
"""

from scrollmt.laws.affine import AffineLaw
from scrollmt.laws.base import (
    IntVector,
    Law,
    LawT,
    MemberWeights,
    Numbers,
    Vector,
    averaged,
    class_labels,
    probabilities,
    real_labels,
)
from scrollmt.laws.by_score import HeadLaw, Scored
from scrollmt.laws.censored import CensoredLaw
from scrollmt.laws.counts import CountLaw
from scrollmt.laws.cuts import Cut
from scrollmt.laws.discrete import (
    CategoricalLaw,
    DiscreteLaw,
    EventLaw,
    Matrix,
    OrderedLaw,
    OrdinalLaw,
)
from scrollmt.laws.gaussian import GaussianLaw, central_z
from scrollmt.laws.gaussian_mixture import GaussianMixtureLaw
from scrollmt.laws.latent import LatentLaw
from scrollmt.laws.mixture import MixtureLaw, mix, moment_matched
from scrollmt.laws.real import Members, NumberLaw, RealLaw, members
from scrollmt.laws.recalibrated import PitMap, RecalibratedLaw
from scrollmt.laws.remapped import OrderedMap, UnorderedMap
from scrollmt.laws.skewed import SinhArcsinhLaw
from scrollmt.laws.student import StudentTLaw

__all__ = [
    "AffineLaw",
    "CategoricalLaw",
    "CensoredLaw",
    "CountLaw",
    "Cut",
    "DiscreteLaw",
    "EventLaw",
    "GaussianLaw",
    "GaussianMixtureLaw",
    "HeadLaw",
    "IntVector",
    "LatentLaw",
    "Law",
    "LawT",
    "Matrix",
    "MemberWeights",
    "Members",
    "MixtureLaw",
    "NumberLaw",
    "Numbers",
    "OrderedLaw",
    "OrderedMap",
    "OrdinalLaw",
    "PitMap",
    "RealLaw",
    "RecalibratedLaw",
    "Scored",
    "SinhArcsinhLaw",
    "StudentTLaw",
    "UnorderedMap",
    "Vector",
    "averaged",
    "central_z",
    "class_labels",
    "members",
    "mix",
    "moment_matched",
    "probabilities",
    "real_labels",
]
