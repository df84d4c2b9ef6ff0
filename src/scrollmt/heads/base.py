r"""Likelihoods on the latent line, with the belief integrated out.

$$\log m_n(y) = \log \int p(y \mid a; \eta)\, \mathcal{N}(a;\, \text{mean}, \text{var})\, da$$

is the log score of the plate predictive (`cor:mt_score`). A head sees only `(y, mean,
var)`, elementwise over windows, and is at once the question a user asks (`Gaussian()`,
`Event()`, `Ordinal(4)`) and the holder of that question's learned parameters.
"""

from __future__ import annotations

import abc
import inspect
import warnings
from typing import Any, Literal, NamedTuple, Self, TypeVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float
from scipy.optimize import minimize

from scrollmt._numerics.graph import Value
from scrollmt._numerics.quadrature import expected, log_expected
from scrollmt._numerics.weighted import weighted_moments
from scrollmt.heads.exported import Exported
from scrollmt.laws import Cut, HeadLaw, Law, real_labels

HeadT = TypeVar("HeadT", bound="AbstractHead")
# What version 0.1 called these in a head of one's own.
_RENAMED = {"harmless": "missing_fill", "units": "target_scale"}


class Source(NamedTuple):
    """The number behind a class: a task or a further column of Y, and where it is cut."""

    of: str
    cut: Cut


class AbstractHead(eqx.Module):
    """One observable's likelihood: a class with `log_predictive(y, mean, var)`.

    Everything else has a default that suits a real number: labels are read as such, fitted in
    the units that they come in, and the law that a user reads knows its log score.
    """

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        for old, new in _RENAMED.items():
            # A field of that name is the head's own parameter.
            if old in vars(cls) and old not in inspect.get_annotations(cls):
                warnings.warn(
                    f"{cls.__name__}.{old} is called {new} now; the old name goes with version 0.3",
                    DeprecationWarning,
                    stacklevel=2,
                )
                setattr(cls, new, vars(cls)[old])

    @property
    def rows(self) -> int:
        """How many latent lines the head reads."""
        return 1

    @property
    def point_only(self) -> bool:
        """Whether the head reads means alone, so that its belief has to be a point estimate.

        A head of several lines that uses their variances says False.
        """
        return self.rows > 1

    @abc.abstractmethod
    def log_predictive(self, y: Array, mean: Array, var: Array) -> Array:
        """Log score of each label under the plate predictive, in nats."""

    def log_likelihood(self, y: Array, a: Array) -> Array:
        """log p(y | a) in nats, elementwise, for a latent value `a`."""
        return self.log_predictive(y, a, jnp.zeros_like(a))

    def expected_log_lik(self, y: Array, mean: Array, var: Array) -> Array:
        r"""$E\,[\log p(y \mid a)]$ over $a \sim \mathcal{N}(\text{mean}, \text{var})$, in nats.

        By Gauss-Hermite quadrature of `log_likelihood`, for heads that read one line.
        """
        if self.rows > 1:
            raise ValueError(
                f"{self!r} reads {self.rows} latent lines: its expected log likelihood has no "
                "quadrature over one line; take a head of one line"
            )
        return expected(self.log_likelihood, y, mean, var)

    def read_labels(self, name: str, values: Any) -> tuple[np.ndarray, np.ndarray]:
        """Labels with `missing_fill` where missing, and which of them are observed."""
        y = real_labels(values, len(values), f"task {name!r}")
        if np.isinf(y).any():
            row = int(np.flatnonzero(np.isinf(y))[0])
            raise ValueError(
                f"task {name!r}: row {row} is infinite; use NaN for a missing label or drop the row"
            )
        seen = ~np.isnan(y)
        return np.where(seen, y, self.missing_fill), seen

    @property
    def missing_fill(self) -> float:
        """A label with a finite score, to stand where one is missing."""
        return 0.0

    @property
    def description(self) -> str:
        """The head in words, for a report."""
        return repr(self)

    @property
    def num_classes(self) -> int | None:
        """How many classes the labels are; None where they are numbers."""
        return None

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The texts that labels of classes are written as; None where they are 0 to R-1."""
        return None

    @property
    def variants(self) -> tuple[AbstractHead, ...]:
        """The heads that are trained for the task, whose laws out-of-fold scores weigh.

        Without folds only the first is trained.
        """
        return (self,)

    @property
    def asked_of(self) -> Source | None:
        """The number that the classes are cut from; None where the head does not know it."""
        return None

    @property
    def cut_into(self) -> Literal["event", "bands"] | None:
        """The kind of ordered classes that the law of a number can be cut into; None for others."""
        return None

    @property
    def takes_bounds(self) -> bool:
        """Whether a label may be a pair, a lower and an upper bound of a value."""
        return False

    @property
    def fewest_labels(self) -> int:
        """The number of training labels below which `fit` warns."""
        return 0

    def target_scale(self, labels: np.ndarray, weight: np.ndarray) -> tuple[float, float] | None:
        """Centre and spread by which targets are shifted and scaled for training, or None."""
        return None

    def started(self, y: Array, weight: Array) -> Self:
        """The head at the values that training starts from, given the training labels."""
        return self

    def constant(self, y: Array, weight: Array) -> tuple[Self, Array]:
        """The head and the latent value that score these labels best, the same for all of them."""
        return best_constant(self, y, weight)

    def half_information(self, mean: Array, var: Array) -> Array | None:
        """Half the Fisher information of a label about the mean; None without a closed form."""
        return None

    @property
    def line_noise(self) -> Float[Array, "*L"] | None:
        """The variance that the head adds to that of each line; None where it adds none.

        Where it does, `log_predictive` and `law` depend on the variance through the sum alone, so
        that a variance above minus the noise is one that they take.
        """
        return None

    def law(self, mean: np.ndarray, var: np.ndarray) -> Law:
        """The plate predictives as the law a user reads."""
        return HeadLaw(self, mean, var)

    def onnx_outputs(self, mean: Value, var: Value, offset: float, scale: float) -> Exported | None:
        """The arguments of `rescaled_law` as tensors of an ONNX graph; None without such a form.

        `mean` and `var` are the latent line in the precision of the fit. `scrollmt.heads.exported`
        has the kinds to return.
        """
        return None

    def rescaled_law(self, mean: np.ndarray, var: np.ndarray, offset: float, scale: float) -> Law:
        """The law of `offset + scale * y`, for a head that was fitted to y."""
        return self.law(mean, var).affine(offset, scale)


class AbstractQuadrature(AbstractHead):
    """A head that is known by its likelihood alone; the belief is integrated out numerically.

    See `scrollmt._numerics.quadrature` for what that asks of `log_likelihood`.
    """

    @abc.abstractmethod
    def log_likelihood(self, y: Array, a: Array) -> Array:
        """log p(y | a) in nats, elementwise, for a latent value `a`."""

    def log_predictive(self, y: Array, mean: Array, var: Array) -> Array:
        return log_expected(self.log_likelihood, y, mean, var)


def mean_and_sd(labels: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """Weighted mean and standard deviation of the labels with positive weight."""
    mean, sd = weighted_moments(labels, weight)
    return float(mean), float(sd)


def class_shares(y: Array, weight: Array, classes: int) -> Float[np.ndarray, " R"]:
    """The weight of each class, half a label more each, so that none is held impossible."""
    counts = 0.5 + np.bincount(np.asarray(y), np.asarray(weight, np.float64), classes)
    return np.asarray(counts / counts.sum())


def best_constant(head: HeadT, y: Array, weight: Array) -> tuple[HeadT, Array]:
    """The parameters of a head and the latent value with the best log score, found by descent."""
    lines = jnp.zeros(() if head.rows == 1 else (head.rows,))
    start, fixed = eqx.partition((head, lines), eqx.is_inexact_array)
    flat, shaped = ravel_pytree(start)

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        both = eqx.combine(shaped(jnp.asarray(values, flat.dtype)), fixed)
        value, slope = _constant_loss(both, y, weight)
        return float(value), np.asarray(ravel_pytree(slope)[0], np.float64)

    found = minimize(loss, np.asarray(flat, np.float64), jac=True, method="L-BFGS-B")
    best = found.x if np.isfinite(found.fun) and np.isfinite(found.x).all() else flat
    fitted: tuple[HeadT, Array] = eqx.combine(shaped(jnp.asarray(best, flat.dtype)), fixed)
    return fitted


@eqx.filter_jit
@eqx.filter_value_and_grad
def _constant_loss(both: tuple[AbstractHead, Array], y: Array, weight: Array) -> Array:
    head, mean = both
    line = jnp.broadcast_to(mean, (len(weight), *mean.shape))
    terms = weight * head.log_predictive(y, line, jnp.zeros_like(line))
    return -jnp.sum(terms) / jnp.sum(weight)
