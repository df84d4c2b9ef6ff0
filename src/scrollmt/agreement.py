r"""Whether an event or a band says the same as the value's law about the same quantity.

A model gives every question a law of its own, so that two answers about one quantity x can
contradict each other. For a question x > c, with p the probability in the question's own law and
F the distribution function of the value's law,

    difference = p - (1 - F(c))

Bands with edges e_1 < .. < e_{R-1} are the questions x >= e_r; the one with the largest
difference counts. Thresholds on another scale than that of the value (log1p(x) > 3) are moved
through original units. Shapes: laws hold N forecasts, differences are (N,).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from scrollmt._data.cutting import Question
from scrollmt._data.series import duration
from scrollmt.laws import DiscreteLaw, Law, NumberLaw
from scrollmt.observables import Bands, Condition, Value
from scrollmt.windows import Windows

# Beyond this two answers lead to different decisions.
FAR = 0.2

Vector = Float[np.ndarray, " N"]


@dataclass(frozen=True, eq=False)
class Agreement:
    """The law of the task `about` beside that of the value task `value`, forecast by forecast.

    `events` are what both laws give a probability to; `which` is the number of the event, (N,), in
    which the two differ most. `own` and `read` are its probabilities, (N,): in the law of `about`,
    and read off the law of `value`.
    """

    about: str
    value: str
    events: tuple[Condition, ...]
    which: np.ndarray
    own: Vector
    read: Vector

    @property
    def difference(self) -> Vector:
        """`own` minus `read`."""
        return np.asarray(self.own - self.read)

    @property
    def mean(self) -> float:
        """Mean absolute difference."""
        return float(np.mean(np.abs(self.difference)))

    @property
    def share_far(self) -> float:
        """Share of the forecasts with a difference of more than 0.2."""
        return float(np.mean(np.abs(self.difference) > FAR))


def compare(laws: Mapping[str, Law], tasks: Mapping[str, Question]) -> list[Agreement]:
    """Every event or band beside every value task about the same quantity at the same lead.

    `tasks` are those of a recipe (`windows.recipe.tasks`), with known edges. Laws without a
    distribution function are left out.
    """
    found = []
    for about, (asked, lead) in tasks.items():
        own = laws.get(about)
        if not isinstance(asked, Condition | Bands) or not isinstance(own, DiscreteLaw):
            continue
        for name, (value, value_lead) in tasks.items():
            law = laws.get(name)
            if (
                isinstance(value, Value)
                and isinstance(law, NumberLaw)
                and lead == value_lead
                and _quantity(value) == _quantity(asked.value)
            ):
                found.append(_agreement((about, own, asked), (name, law, value)))
    return found


def notice(laws: Mapping[str, Law], windows: Windows) -> str | None:
    """A sentence on the largest contradiction in the laws of one window; None without one."""
    recipe = windows.recipe
    far = [one for one in compare(laws, recipe.tasks) if np.any(np.abs(one.difference) > FAR)]
    if not far:
        return None
    worst = max(far, key=lambda one: float(np.max(np.abs(one.difference))))
    row = int(np.argmax(np.abs(worst.difference)))
    lead = duration(recipe.tasks[worst.about].lead, recipe.step)
    event = worst.events[worst.which[row]].sentence(lead)
    more = f"; {len(far) - 1} more pairs of answers differ by over {FAR:g}" if len(far) > 1 else ""
    return (
        f"two answers contradict each other on {event}: {worst.about!r} gives it "
        f"{100 * worst.own[row]:.0f} percent and {worst.value!r} {100 * worst.read[row]:.0f} "
        f"percent{more}; the section 'Do the answers agree?' of a report shows how often they do"
    )


def _quantity(value: Value) -> tuple[object, ...]:
    """What a value is about: everything but its last change of scale and its units."""
    start = value.include_start if value.reducer is not None else False
    return value.column, value.reducer, start, value.before


def _agreement(
    about: tuple[str, DiscreteLaw, Condition | Bands],
    value: tuple[str, NumberLaw, Value],
) -> Agreement:
    (task, own, asked), (name, law, scale) = about, value
    events = _events(asked)
    if own.num_classes != len(events) + 1:
        raise ValueError(
            f"the law of task {task!r} has {own.num_classes} classes, but '{asked}' has "
            f"{len(events) + 1}: pass the laws and the questions of one model"
        )
    # P(class r or above) for r = 1 .. R-1: of a condition the chance of its "yes".
    said = np.cumsum(own.probs[:, :0:-1], axis=1)[:, ::-1]
    read = np.stack([_chance(law, scale, event) for event in events], axis=1)
    which = np.argmax(np.abs(said - read), axis=1)
    rows = np.arange(len(which))
    return Agreement(task, name, events, which, said[rows, which], read[rows, which])


def _events(asked: Condition | Bands) -> tuple[Condition, ...]:
    if isinstance(asked, Condition):
        return (asked,)
    if asked.edges is None:
        raise ValueError(f"the edges of '{asked}' are not known; pass the questions of a fit")
    return tuple(asked.value >= edge for edge in asked.edges)


def _chance(law: NumberLaw, value: Value, event: Condition) -> Vector:
    """P(event) according to the law of `value`."""
    at = np.full(len(law), event.threshold)
    # The same scale needs no way there and back, which could round across a mass.
    if event.value.after != value.after:
        at = value.after.forward(event.value.after.inverse(at))
    below, upto = law.cdf_pair(at)
    chances = {">": 1.0 - upto, ">=": 1.0 - below, "<": below, "<=": upto}
    return chances[event.comparison]
