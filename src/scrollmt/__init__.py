"""Forecast several observables of a noisy system at once, each with a calibrated law.

Names are imported when they are first used: JAX, scikit-learn and pandas take seconds, and
`scrollmt --help` needs none of them.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scrollmt.backtests import Backtest, backtest
    from scrollmt.forecaster import Forecaster, load
    from scrollmt.heads import (
        Categorical,
        Censored,
        Count,
        Event,
        Gaussian,
        Mixture,
        Ordinal,
        Poisson,
        Real,
        SinhArcsinh,
        StudentT,
    )
    from scrollmt.inputs import calendar, current, lags, one_hot
    from scrollmt.laws import EventLaw, GaussianLaw, OrdinalLaw, mix
    from scrollmt.laws.frozen import frozen
    from scrollmt.laws.joint import JointLaw
    from scrollmt.laws.transformed import TransformedLaw, original_units
    from scrollmt.model import Model, rescale_task
    from scrollmt.objective import composed, data_terms, shared_cavity
    from scrollmt.observables import at_lead, over_window
    from scrollmt.presets import Preset
    from scrollmt.splits import chronological_split, random_split, rolling_origins
    from scrollmt.windows import Windowing
    from scrollmt.windows.answers import tidy

    __version__: str

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
    "Mixture",
    "Model",
    "Ordinal",
    "OrdinalLaw",
    "Poisson",
    "Preset",
    "Real",
    "SinhArcsinh",
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

# The same as above, for the run of the program; a test compares the two.
_NAMES_BY_MODULE = {
    "backtests": ("Backtest", "backtest"),
    "forecaster": ("Forecaster", "load"),
    "heads": (
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
        "StudentT",
    ),
    "inputs": ("calendar", "current", "lags", "one_hot"),
    "laws": ("EventLaw", "GaussianLaw", "OrdinalLaw", "mix"),
    "laws.frozen": ("frozen",),
    "laws.joint": ("JointLaw",),
    "laws.transformed": ("TransformedLaw", "original_units"),
    "model": ("Model", "rescale_task"),
    "objective": ("composed", "data_terms", "shared_cavity"),
    "observables": ("at_lead", "over_window"),
    "presets": ("Preset",),
    "splits": ("chronological_split", "random_split", "rolling_origins"),
    "windows": ("Windowing",),
    "windows.answers": ("tidy",),
}
# Modules that version 0.1 documents under other names; each warns when it is imported.
__path__ = [*__path__, *(f"{folder}/_moved" for folder in __path__)]
_MODULE_OF = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names}


def __getattr__(name: str) -> Any:
    value: Any
    if name in _MODULE_OF:
        value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    elif name == "__version__":
        from importlib.metadata import version

        value = version(__name__)
    elif not name.startswith("_") and find_spec(f"{__name__}.{name}") is not None:
        # `import scrollmt` alone is enough for `scrollmt.scores.crps`.
        value = import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
