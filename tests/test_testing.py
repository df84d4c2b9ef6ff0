"""The checks for heads pass what is right and name what is wrong."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from helpers import HEADS
from scrollmt.heads import AbstractHead, AbstractQuadrature, Gaussian
from scrollmt.laws import GaussianLaw, HeadLaw, Law
from scrollmt.laws.transformed import TransformedLaw
from scrollmt.testing import check_head
from scrollmt.transforms import Transform


@pytest.mark.slow
@pytest.mark.parametrize("name", HEADS)
def test_heads_of_the_registry_pass(name: str) -> None:
    case = HEADS[name]
    check_head(case.make(), case.near(), seed=3)


class Plain(AbstractHead):
    """A Gaussian of unit noise in as few lines as there can be."""

    def log_predictive(self, y: Array, mean: Array, var: Array) -> Array:
        total = 1.0 + var
        return -0.5 * jnp.log(2.0 * jnp.pi * total) - 0.5 * (y - mean) ** 2 / total


class Durations(AbstractQuadrature):
    """Exponential times with a log mean on the latent line."""

    log_mean: Float[Array, ""]

    def __init__(self) -> None:
        self.log_mean = jnp.zeros(())

    @property
    def missing_fill(self) -> float:
        return 1.0

    def log_likelihood(self, y: Array, a: Array) -> Array:
        return -(self.log_mean + a) - y * jnp.exp(-(self.log_mean + a))


LABELS = [-2.0, 0.1, 0.9, 3.0]


def test_a_head_of_one_method_passes() -> None:
    check_head(Plain(), LABELS)
    law = Plain().law(np.zeros(4), np.ones(4))
    assert isinstance(law, HeadLaw)
    want = GaussianLaw(np.zeros(4), np.full(4, math.sqrt(2.0))).log_prob(LABELS)
    np.testing.assert_allclose(law.log_prob(LABELS), want, rtol=1e-5)


@pytest.mark.slow
def test_a_head_with_nothing_but_a_likelihood_passes() -> None:
    check_head(Durations(), [0.01, 0.7, 1.0, 12.0])


def test_a_head_with_names_of_version_0_1_works_and_warns() -> None:
    with pytest.warns(DeprecationWarning, match="is called") as said:

        class Old(AbstractQuadrature):
            harmless = 1.0

            def units(self, labels: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
                return 0.0, 2.0

            def log_likelihood(self, y: Array, a: Array) -> Array:
                return -a - y * jnp.exp(-a)

    assert [str(one.message).split(";")[0] for one in said] == [
        "Old.harmless is called missing_fill now",
        "Old.units is called target_scale now",
    ]
    assert Old().missing_fill == 1.0
    assert Old().target_scale(np.ones(2), np.ones(2)) == (0.0, 2.0)
    check_head(Old(), [0.01, 0.7, 1.0, 12.0])


class NoBelief(Plain):
    """Forgets the belief's variance."""

    def log_predictive(self, y: Array, mean: Array, var: Array) -> Array:
        return super().log_predictive(y, mean, 0.0 * var)


class NoGradient(Plain):
    """Does not let the mean learn."""

    def log_predictive(self, y: Array, mean: Array, var: Array) -> Array:
        return super().log_predictive(y, jax.lax.stop_gradient(mean), var)


class Neighbours(Plain):
    """Looks at the rows before it."""

    def log_predictive(self, y: Array, mean: Array, var: Array) -> Array:
        return super().log_predictive(jnp.cumsum(y), mean, var)


class Total(Plain):
    """Adds up what should stay apart."""

    def log_predictive(self, y: Array, mean: Array, var: Array) -> Array:
        return jnp.sum(super().log_predictive(y, mean, var))


class Clamped(Plain):
    """Its probabilities underflow."""

    def log_predictive(self, y: Array, mean: Array, var: Array) -> Array:
        total = 1.0 + var
        return jnp.log(jnp.exp(-0.5 * (y - mean) ** 2 / total) / jnp.sqrt(2.0 * jnp.pi * total))


class Unmasked(Plain):
    """Takes a missing label for a zero."""

    def read_labels(self, name: str, values: Any) -> tuple[np.ndarray, np.ndarray]:
        y, seen = super().read_labels(name, values)
        return y, np.ones_like(seen)


class Harmful(Durations):
    """Puts an impossible label where one is missing."""

    @property
    def missing_fill(self) -> float:
        return math.inf


class HarmfulWhenScaled(AbstractHead):
    """A log-normal value in units of its spread, whose fill is a label in those units alone."""

    def target_scale(self, labels: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
        return 0.0, 250.0

    @property
    def missing_fill(self) -> float:
        return 0.0

    def read_labels(self, name: str, values: Any) -> tuple[np.ndarray, np.ndarray]:
        y, seen = super().read_labels(name, values)
        return np.where(seen, y, 1.0), seen

    def log_predictive(self, y: Array, mean: Array, var: Array) -> Array:
        total = 1.0 + var
        gap = 0.5 * (jnp.log(y) - mean) ** 2 / total
        return -jnp.log(y) - 0.5 * jnp.log(2.0 * jnp.pi * total) - gap


class NoUnits(Plain):
    """Has units, but a law that cannot change them."""

    def target_scale(self, labels: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
        return 0.0, 2.0

    def law(self, mean: np.ndarray, var: np.ndarray) -> Law:
        return TransformedLaw(GaussianLaw(mean, np.sqrt(1.0 + var)), Transform())


class OtherLaw(Plain):
    """Its law is another one."""

    def law(self, mean: np.ndarray, var: np.ndarray) -> Law:
        return GaussianLaw(mean, np.sqrt(1.5 + var))


class OtherUnits(Gaussian):
    """Its law forgets the scale."""

    def rescaled_law(self, mean: np.ndarray, var: np.ndarray, offset: float, scale: float) -> Law:
        return self.law(mean, var).affine(offset, 1.0)


class OtherLikelihood(Plain):
    """Says one thing and scores another."""

    def log_likelihood(self, y: Array, a: Array) -> Array:
        return self.log_predictive(y, a + 0.1, jnp.zeros_like(a))


@pytest.mark.parametrize(
    ("head", "labels", "fault"),
    [
        (NoBelief(), LABELS, "the integral over the belief is"),
        (NoGradient(), LABELS, "the gradient by the mean or the variance is 0"),
        (Neighbours(), LABELS, "depends on other rows"),
        (Total(), LABELS, r"shape \(\) for 4 labels"),
        (Clamped(), [*LABELS, 60.0], "not finite"),
        (Unmasked(), LABELS, "must mask a missing label"),
        (Harmful(), [0.01, 0.7, 1.0, 12.0], "set `missing_fill`"),
        (HarmfulWhenScaled(), [60.0, 250.0, 300.0, 900.0], "in scaled units too"),
        (OtherLaw(), LABELS, "the law's log_prob is"),
        (OtherUnits(), LABELS, "rescaled_law is not the law"),
        (OtherLikelihood(), LABELS, "but log_likelihood is"),
        (Plain(), LABELS[:2], "give four labels or more"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, AbstractHead) else None,
)
def test_what_is_wrong_is_named(head: AbstractHead, labels: list[float], fault: str) -> None:
    with pytest.raises(AssertionError, match=fault):
        check_head(head, labels)


def test_a_law_that_cannot_change_its_units_says_what_to_write() -> None:
    with pytest.raises(TypeError, match="write its method affine"):
        check_head(NoUnits(), LABELS)


def test_what_a_head_does_not_say_has_a_default() -> None:
    head, zero = Plain(), jnp.zeros(2)
    assert head.description == repr(head)
    assert head.half_information(zero, zero) is None
    np.testing.assert_array_equal(
        head.log_likelihood(zero, zero), head.log_predictive(zero, zero, zero)
    )
    assert Gaussian().description == "a value: Gaussian"
