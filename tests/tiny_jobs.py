"""Real jobs on so few windows and steps that compiling is all they cost, each run once a session.

Every job trains ten runs, whatever its arm: ten seeds, or two seeds of five members or settings.
Arms of one composition then share one compiled program.
"""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import jax

from scrollmt.paper.arena.jobs import Job, Outcome, execute, make_job
from scrollmt.paper.arms import ARMS
from scrollmt.paper.arms.base import ArmT
from scrollmt.paper.protocol import Protocol

PROTOCOL = Protocol(corpus_windows=200, steps=20, eval_every=5, patience=3)
TRAIN, VALID, TEST = 120, 40, 40
RUNS = 10
FIRST, SECOND = 5, 6


@contextmanager
def quick_compiler() -> Iterator[None]:
    """Programs that run for an instant are not worth optimising."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", before)


@contextmanager
def registered(arm: ArmT) -> Iterator[ArmT]:
    """An arm in the registry for a while, in the place of one of its name."""
    before = ARMS.get(arm.name)
    ARMS[arm.name] = arm
    try:
        yield arm
    finally:
        if before is None:
            del ARMS[arm.name]
        else:
            ARMS[arm.name] = before


def shortened(arm: ArmT) -> ArmT:
    """A grid's first, last and middle settings, and two between: five in all."""
    count = len(arm.settings)
    places = sorted({round(i * (count - 1) / 4) for i in range(5)})
    return replace(arm, settings=tuple(arm.settings[i] for i in places))


def tiny_job(name: str, first: int = FIRST) -> Job:
    """A job of ten runs; call it with `shortened` arms registered."""
    arm = ARMS[name]
    each = arm.members * len(arm.settings)
    seeds = range(first, first + RUNS // each)
    return make_job("ou", name, "tanh", PROTOCOL, seeds=tuple(seeds))


@functools.cache
def outcome(name: str, first: int = FIRST) -> Outcome:
    """What a tiny job of an arm gives, from a seed on."""
    with quick_compiler(), registered(shortened(ARMS[name])):
        return execute(tiny_job(name, first))
