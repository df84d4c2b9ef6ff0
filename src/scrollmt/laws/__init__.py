"""What laws have in common: the contract, laws of a number, and the law that any head has.

Ensembles (``mix``) of laws of a number are exact mixtures unless a law says otherwise: densities,
masses and distribution functions are averaged. Shapes as in ``scrollmt.predictive``; members of a
mixture stand along a last axis M.
"""

from scrollmt.laws.base import Law, Vector
from scrollmt.laws.by_score import HeadLaw, Scored
from scrollmt.laws.derived import AffineLaw, MixtureLaw, mix
from scrollmt.laws.latent import LatentLaw
from scrollmt.laws.real import Members, NumberLaw, RealLaw, members

__all__ = [
    "AffineLaw",
    "HeadLaw",
    "LatentLaw",
    "Law",
    "Members",
    "MixtureLaw",
    "NumberLaw",
    "RealLaw",
    "Scored",
    "Vector",
    "members",
    "mix",
]
