"""Likelihoods beyond the four of the core, each with the law that its head returns."""

from scrollmt.likelihoods.censored import Censored, CensoredLaw
from scrollmt.likelihoods.counts import Count, CountLaw, Poisson
from scrollmt.likelihoods.student import StudentT, StudentTLaw

__all__ = [
    "Censored",
    "CensoredLaw",
    "Count",
    "CountLaw",
    "Poisson",
    "StudentT",
    "StudentTLaw",
]
