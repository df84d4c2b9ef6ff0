"""Forecast several observables of a noisy system at once, each with a calibrated law."""

from scrollmt.answers import tidy
from scrollmt.backtests import Backtest, backtest
from scrollmt.forecaster import Forecaster, load
from scrollmt.frozen import frozen
from scrollmt.heads import Categorical, Event, Gaussian, Ordinal
from scrollmt.inputs import calendar, current, lags, one_hot
from scrollmt.joint import JointLaw
from scrollmt.likelihoods import Censored, Count, Poisson, StudentT
from scrollmt.model import Model, rescale_task
from scrollmt.objective import composed, data_terms, shared_cavity
from scrollmt.observables import at_lead, over_window
from scrollmt.predictive import EventLaw, GaussianLaw, OrdinalLaw, mix
from scrollmt.presets import Preset
from scrollmt.splits import chronological_split, random_split, rolling_origins
from scrollmt.units import TransformedLaw, original_units
from scrollmt.windows import Windowing

__all__ = [
    "Backtest",
    "Categorical",
    "Censored",
    "Count",
    "Event",
    "EventLaw",
    "Forecaster",
    "Gaussian",
    "GaussianLaw",
    "JointLaw",
    "Model",
    "Ordinal",
    "OrdinalLaw",
    "Poisson",
    "Preset",
    "StudentT",
    "TransformedLaw",
    "Windowing",
    "at_lead",
    "backtest",
    "calendar",
    "chronological_split",
    "composed",
    "current",
    "data_terms",
    "frozen",
    "lags",
    "load",
    "mix",
    "one_hot",
    "original_units",
    "over_window",
    "random_split",
    "rescale_task",
    "rolling_origins",
    "shared_cavity",
    "tidy",
]
