"""The number of programs that a first fit compiles; their compilation is most of its time."""

from __future__ import annotations

import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scrollmt._numerics.compiling import on_device, stacked, taken

# The step, start and scores; keys for either heat; drawn weights; references of two heads; a few
# small ones. Each operation of jnp outside of jit would be one more.
MOST_PROGRAMS = 16
FIRST_FIT = """
import warnings
import jax
import numpy as np
from scrollmt import Event, Forecaster, Gaussian, Ordinal

warnings.simplefilter("ignore")
jax.config.update("jax_enable_compilation_cache", False)
names = []

def listen(event, seconds, **about):
    if event.endswith("backend_compile_duration"):
        names.append(about.get("fun_name"))

jax.monitoring.register_event_duration_secs_listener(listen)
x = np.random.default_rng(0).normal(size=(60, 2))
value = np.sin(x[:, 0]) + 0.1 * x[:, 1]
Y = {"value": value, "alarm": value > 0.5, "band": np.digitize(value, [-0.3, 0.3])}
heads = {"value": Gaussian(), "alarm": Event(), "band": Ordinal(3)}
Forecaster(heads, steps=40, verbose=False).fit(x, Y)
print(len(names), *names)
"""


@pytest.mark.slow
def test_a_first_fit_compiles_few_programs() -> None:
    run = [sys.executable, "-c", FIRST_FIT]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    count, *names = done.stdout.split()
    assert "jit(advance)" in names, "the listener has heard of no program"
    assert int(count) <= MOST_PROGRAMS, names


class Pair(eqx.Module):
    numbers: jax.Array
    key: jax.Array
    name: str = "pair"


def pair(seed: int) -> Pair:
    return Pair(jnp.arange(6.0).reshape(2, 3) + seed, jax.random.key(seed))


def test_stacked_and_taken_are_inverse() -> None:
    pairs = [pair(0), pair(5)]
    both = stacked(pairs)
    assert both.numbers.shape == (2, 2, 3)
    assert both.name == "pair"
    for place, one in enumerate(pairs):
        again = taken(both, place)
        np.testing.assert_array_equal(again.numbers, one.numbers)
        assert again.numbers.dtype == one.numbers.dtype
        assert again.key == one.key


@pytest.mark.parametrize("x64", [False, True])
def test_an_array_has_the_current_precision_or_the_given_one(x64: bool) -> None:
    with jax.enable_x64(x64):
        assert on_device(0.1).dtype == (np.float64 if x64 else np.float32)
        assert on_device([1, 2], np.int32).dtype == np.int32
