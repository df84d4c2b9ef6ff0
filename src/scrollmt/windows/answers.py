r"""A forecast in words and numbers: the questions of a model, answered for one window.

    x at t + 24 h (2021-03-02 05:00:00): about 3.1, with 90 percent between 1.2 and 7.9
    whether the mean of x over (t, t + 24 h] is above 2 (until 2021-03-02 05:00:00): yes with 37
    percent

Numbers are in original units: a question about log1p(x) is answered in x. ``laws`` stay on the
scale of the questions, ``original`` holds the same laws in original units. Shapes: every law
holds one forecast.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from scrollmt._data.series import duration
from scrollmt.laws import DiscreteLaw, Law, NumberLaw
from scrollmt.laws.base import FAR_OUT
from scrollmt.laws.joint import QUANTILES, JointLaw, Laws
from scrollmt.laws.transformed import original_units
from scrollmt.observables import Bands, Condition, Observable, Value
from scrollmt.transforms import Transform
from scrollmt.windows import Windows

_NUMBERS = ("units", "median", "lower", "upper", "probability", "band")


@dataclass(frozen=True, eq=False, repr=False)
class Forecast:
    """Answers for the window with origin ``t``; ``print`` shows them as sentences.

    - ``window``: what was read, as ``Windows`` of length one; ``window.dropped`` lists later
      origins that had to be passed over because of missing values.
    - ``laws``: the law of each task, on the scale of its question.
    - ``notices``: reasons not to trust this forecast, one sentence each.
    """

    window: Windows
    laws: Laws
    notices: tuple[str, ...] = ()

    @property
    def t(self) -> Any:
        """The last time that the forecast knows of."""
        return self.window.t[0]

    @property
    def until(self) -> dict[str, Any]:
        """The time t + lead that each answer is about, or up to."""
        ends = self.window.target_times
        return {task: ends[task].iloc[0] for task in self.laws}

    @property
    def original(self) -> dict[str, Law]:
        """The laws in original units: that of log1p(x), for instance, as a law of x."""
        asked = self.window.questions
        return {task: original_units(law, asked[task]) for task, law in self.laws.items()}

    def joint(self, tasks: Sequence[str]) -> JointLaw:
        """The joint law of Gaussian tasks, on the scale of their questions."""
        return self.laws.joint(tasks)

    def question(self, task: str) -> str:
        """What the answer is about, in words, without a change of scale."""
        asked, lead = self.window.recipe.tasks[task]
        if isinstance(asked, Value):
            asked = replace(asked, after=Transform())
        return asked.sentence(duration(lead, self.window.recipe.step))

    def sentence(self, task: str, level: float = 0.9) -> str:
        """One task's question with its time, and the answer; marked where inputs are far out."""
        law, asked = self.original[task], self.window.questions[task]
        about = asked.value if isinstance(asked, Condition | Bands) else asked
        at = "" if isinstance(about, Value) and about.reducer is None else "until "
        answer = _answer(law, asked, level)
        return f"{self.question(task)} ({at}{self.until[task]}): {answer}{self._mark}"

    @property
    def _distance(self) -> float:
        """How far outside the training range the window is; zero where that is not known."""
        return 0.0 if self.laws.extrapolation is None else float(self.laws.extrapolation[0])

    @property
    def _mark(self) -> str:
        distance = self._distance
        if not distance > FAR_OUT:
            return ""
        if math.isinf(distance):
            return " (extrapolated: an input was constant in training and no longer is)"
        return f" (extrapolated: an input is {distance:.3g} training ranges outside of its own)"

    def to_frame(self, level: float = 0.9) -> pd.DataFrame:
        """One row a task; cells that do not suit the question are missing.

        Values: ``median``, ``lower``, ``upper`` (the central interval at ``level``) in original
        ``units``. Events: ``probability``. Bands: the likeliest one as ``band``, with its
        ``probability``; ``laws[task].probs`` has them all. Far outside the training range
        ``extrapolation`` says how far.
        """
        asked, until = self.window.questions, self.until
        rows = {
            task: {"question": self.question(task), "t": self.t, "until": until[task]}
            | _numbers(law, asked[task], level)
            for task, law in self.original.items()
        }
        columns = ["question", "t", "until", *_NUMBERS]
        frame = pd.DataFrame.from_dict(rows, orient="index")
        frame = frame.reindex(columns=columns).rename_axis("task")
        return frame.assign(extrapolation=self._distance) if self._mark else frame

    def lines(self, level: float = 0.9) -> list[str]:
        """The origin, one sentence a task, and how many later origins were passed over."""
        lines = [f"Forecast from t = {self.t}"]
        lines += [f"  {task}: {self.sentence(task, level)}" for task in self.laws]
        skipped = len(self.window.dropped)
        if skipped:
            lines.append(f"  passed over for missing values: {skipped} later origins")
        return lines

    def __str__(self) -> str:
        return "\n".join([*self.lines(), *(f"  Notice: {text}" for text in self.notices)])

    __repr__ = __str__


def tidy(laws: Laws, windows: Windows, quantiles: Sequence[float] = QUANTILES) -> pd.DataFrame:
    """``laws.to_frame()`` in original units, with the time ``until`` that an answer is about.

    ``mean`` and ``sd`` are missing where a question is asked on another scale, since a mean of
    logarithms is no logarithm of a mean. ``units`` are those of a value.
    """
    asked, ends = windows.questions, windows.target_times
    original = {task: original_units(law, asked[task]) for task, law in laws.items()}
    table = Laws(original, index=laws.index).to_frame(quantiles)
    after = 1 + laws.index.nlevels
    units = {t: one.original_units if isinstance(one, Value) else None for t, one in asked.items()}
    table.insert(after, "until", pd.concat([ends[task] for task in laws]).array)
    table.insert(after + 1, "units", [units[task] for task in table["task"]])
    return table


def _numbers(law: Law, asked: Observable, level: float) -> dict[str, Any]:
    """The answer as cells of a table."""
    if isinstance(law, NumberLaw):
        lower, upper = law.interval(level)
        return {
            "units": asked.original_units if isinstance(asked, Value) else None,
            "median": float(law.quantile(0.5)[0]),
            "lower": float(lower[0]),
            "upper": float(upper[0]),
        }
    if isinstance(law, DiscreteLaw) and law.is_event:
        return {"probability": float(law.probs[0, 1])}
    chances = _chances(law, asked)
    band = max(chances, key=lambda name: chances[name])
    return {"probability": chances[band], "band": band}


def _answer(law: Law, asked: Observable, level: float) -> str:
    """The answer in words."""
    if isinstance(law, NumberLaw):
        cells = _numbers(law, asked, level)
        units = f" {cells['units']}" if isinstance(asked, Value) and asked.units else ""
        return (
            f"about {cells['median']:.3g}{units}, with {100 * level:g} percent between "
            f"{cells['lower']:.3g} and {cells['upper']:.3g}{units}"
        )
    if isinstance(law, DiscreteLaw) and law.is_event:
        return f"yes with {_percent(float(law.probs[0, 1]))}"
    return ", ".join(f"{name} with {_percent(p)}" for name, p in _chances(law, asked).items())


def _chances(law: Law, asked: Observable) -> dict[str, float]:
    if not isinstance(law, DiscreteLaw) or not isinstance(asked, Bands):
        raise ValueError(f"a {type(law).__name__} does not answer '{asked}'")
    return dict(zip(asked.names, law.probs[0].tolist(), strict=True))


def _percent(p: float) -> str:
    if 0.005 <= p <= 0.995:
        return f"{100 * p:.0f} percent"
    return "under 0.5 percent" if p < 0.5 else "over 99.5 percent"
