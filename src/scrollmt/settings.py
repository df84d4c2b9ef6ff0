"""The settings of a `Forecaster`, checked when it is fitted and not before, as in scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scrollmt.arguments import is_whole, shown
from scrollmt.beliefs import read_beliefs
from scrollmt.heads import AbstractHead


def read_heads(tasks: Any, belief: Any) -> dict[str, AbstractHead]:
    """Heads by task; a choice of beliefs that does not suit them is refused."""
    if not isinstance(tasks, Mapping) or not tasks:
        raise ValueError(
            "tasks must be a non-empty mapping of name to head, "
            "such as {'state': Gaussian(), 'event': Event()}"
        )
    for name, head in tasks.items():
        if not isinstance(name, str) or not isinstance(head, AbstractHead):
            raise ValueError(
                f"task {name!r}: expected a text name and a head such as Gaussian(), got {head!r}"
            )
    read_beliefs(belief, tasks)
    return dict(tasks)


def read_seeds(seed: Any, ensemble: Any, seeds: Any) -> list[int]:
    """One seed a member of the ensemble."""
    if not is_whole(ensemble) or ensemble < 1:
        raise ValueError(f"ensemble must be a whole number from 1 on, got {shown(ensemble)}")
    if seeds is not None:
        try:
            members: list[Any] = list(seeds)
        except TypeError:
            raise ValueError(
                f"seeds must be a list with one seed a member, such as [1, 2, 3], got "
                f"{shown(seeds)}; ensemble=M chooses M seeds by itself"
            ) from None
        if not members or ensemble != 1:
            raise ValueError("give either ensemble=M or a non-empty seeds=[...], not both")
    else:
        members = []
    for one in (seed, *members):
        if not is_whole(one) or not 0 <= one < 2**32:
            raise ValueError(f"seed must be a whole number from 0 to 2**32 - 1, got {shown(one)}")
    if members:
        return [int(one) for one in members]
    return [int(seed) + 1000 * k for k in range(ensemble)]
