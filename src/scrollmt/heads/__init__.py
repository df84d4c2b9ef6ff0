"""Likelihoods on the latent line, one module a kind; `scrollmt.heads.base` says what a head is."""

from scrollmt._numerics.quadrature import log_expected
from scrollmt.heads.base import (
    AbstractHead,
    AbstractQuadrature,
    Source,
    best_constant,
    mean_and_sd,
)
from scrollmt.heads.categorical import Categorical
from scrollmt.heads.censored import Censored
from scrollmt.heads.counts import AbstractCount, Count, Poisson
from scrollmt.heads.gaussian import Gaussian
from scrollmt.heads.mixture import Mixture
from scrollmt.heads.probit import PROBIT_BASE_SCALE, AbstractProbit, Event, Ordinal
from scrollmt.heads.real import Real
from scrollmt.heads.skewed import SinhArcsinh
from scrollmt.heads.student import StudentT

__all__ = [
    "PROBIT_BASE_SCALE",
    "AbstractCount",
    "AbstractHead",
    "AbstractProbit",
    "AbstractQuadrature",
    "Categorical",
    "Censored",
    "Count",
    "Event",
    "Gaussian",
    "Mixture",
    "Ordinal",
    "Poisson",
    "Real",
    "SinhArcsinh",
    "Source",
    "StudentT",
    "best_constant",
    "log_expected",
    "mean_and_sd",
]
