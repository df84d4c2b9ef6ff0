"""The laws a model returns: one immutable object per task, holding N forecasts.

Shapes: a vector such as ``mean`` is (N,), class masses are (N, R), members of a mixture stand along
a last axis M. Whatever comes in, laws compute in NumPy float64. A label ``y`` is a scalar (the same
for all forecasts) or (N,). A missing label (NaN or None; for classes any negative number too) gives
NaN.

Ensembles (``mix``) of laws of a number are exact mixtures unless a law says otherwise: densities,
masses and distribution functions are averaged.
"""

from scrollmt.laws.affine import AffineLaw
from scrollmt.laws.base import (
    IntVector,
    Law,
    LawT,
    Numbers,
    Vector,
    class_labels,
    probabilities,
    real_labels,
)
from scrollmt.laws.by_score import HeadLaw, Scored
from scrollmt.laws.censored import CensoredLaw
from scrollmt.laws.counts import CountLaw
from scrollmt.laws.discrete import (
    CategoricalLaw,
    DiscreteLaw,
    EventLaw,
    Matrix,
    OrderedLaw,
    OrdinalLaw,
)
from scrollmt.laws.gaussian import GaussianLaw, central_z
from scrollmt.laws.latent import LatentLaw
from scrollmt.laws.mixture import MixtureLaw, mix
from scrollmt.laws.real import Members, NumberLaw, RealLaw, members
from scrollmt.laws.student import StudentTLaw

__all__ = [
    "AffineLaw",
    "CategoricalLaw",
    "CensoredLaw",
    "CountLaw",
    "DiscreteLaw",
    "EventLaw",
    "GaussianLaw",
    "HeadLaw",
    "IntVector",
    "LatentLaw",
    "Law",
    "LawT",
    "Matrix",
    "Members",
    "MixtureLaw",
    "NumberLaw",
    "Numbers",
    "OrderedLaw",
    "OrdinalLaw",
    "RealLaw",
    "Scored",
    "StudentTLaw",
    "Vector",
    "central_z",
    "class_labels",
    "members",
    "mix",
    "probabilities",
    "real_labels",
]
