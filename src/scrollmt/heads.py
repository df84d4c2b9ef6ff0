r"""Likelihoods on the latent line, with the belief integrated out.

$$\log m_n(y) = \log \int p(y \mid a; \eta)\, \mathcal{N}(a;\, \text{mean}, \text{var})\, da$$

is the log score of the plate predictive (`cor:mt_score`). A head sees only `(y, mean,
var)`, elementwise over windows, and is at once the question a user asks (`Gaussian()`,
`Event()`, `Ordinal(4)`) and the holder of that question's learned parameters.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, Self, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int
from scipy.optimize import minimize
from scipy.special import ndtri

from scrollmt._data.labels import count_and_texts, read_classes, read_texts
from scrollmt._numerics.normal import LOG_SQRT_2PI, log_bucket_mass
from scrollmt._numerics.quadrature import log_expected as log_expected
from scrollmt._numerics.weighted import weighted_moments
from scrollmt.laws import HeadLaw
from scrollmt.predictive import (
    CategoricalLaw,
    EventLaw,
    GaussianLaw,
    Law,
    OrdinalLaw,
    real_labels,
)

PROBIT_BASE_SCALE = 1.005
_PIECE = 4**8
HeadT = TypeVar("HeadT", bound="AbstractHead")


class AbstractHead(eqx.Module):
    """One observable's likelihood: a class with `log_predictive(y, mean, var)`.

    Everything else has a default that suits a real number: labels are read as such, fitted in
    the units that they come in, and the law that a user reads knows its log score.
    """

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

    def read_labels(self, name: str, values: Any) -> tuple[np.ndarray, np.ndarray]:
        """Labels with a harmless value where missing, and which of them are observed."""
        y = real_labels(values, len(values), f"task {name!r}")
        if np.isinf(y).any():
            row = int(np.flatnonzero(np.isinf(y))[0])
            raise ValueError(
                f"task {name!r}: row {row} is infinite; use NaN for a missing label or drop the row"
            )
        seen = ~np.isnan(y)
        return np.where(seen, y, self.harmless), seen

    @property
    def harmless(self) -> float:
        """A label with a finite score, to stand where one is missing."""
        return 0.0

    @property
    def description(self) -> str:
        """The head in words, for a report."""
        return repr(self)

    @property
    def takes_bounds(self) -> bool:
        """Whether a label may be a pair, a lower and an upper bound of a value."""
        return False

    def units(self, labels: np.ndarray, weight: np.ndarray) -> tuple[float, float] | None:
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

    def law(self, mean: np.ndarray, var: np.ndarray) -> Law:
        """The plate predictives as the law a user reads."""
        return HeadLaw(self, mean, var)

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


class Gaussian(AbstractHead):
    r"""A value with additive noise: $V_n = \sigma_\text{obs}^2 + \psi_n^\top\Sigma\psi_n$."""

    log_sigma_obs: Float[Array, ""]

    def __init__(self, sigma_obs: float = 1.0):
        if not sigma_obs > 0.0:
            raise ValueError(f"sigma_obs is a standard deviation and must be > 0, got {sigma_obs}")
        self.log_sigma_obs = jnp.log(jnp.asarray(sigma_obs, dtype=float))

    @property
    def sigma_obs(self) -> Float[Array, ""]:
        return jnp.exp(self.log_sigma_obs)

    def predictive_var(self, var: Array) -> Array:
        return jnp.exp(2.0 * self.log_sigma_obs) + var

    @property
    def description(self) -> str:
        return "a value: Gaussian"

    def half_information(self, mean: Array, var: Array) -> Array:
        return 0.5 / self.predictive_var(var)

    def units(self, labels: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
        return mean_and_sd(labels, weight)

    def constant(self, y: Array, weight: Array) -> tuple[Self, Array]:
        share = weight / jnp.sum(weight)
        mean = jnp.sum(share * y)
        sd = jnp.sqrt(jnp.sum(share * (y - mean) ** 2))
        return eqx.tree_at(lambda h: h.log_sigma_obs, self, jnp.log(sd)), mean

    def log_predictive(self, y: Array, mean: Array, var: Array) -> Array:
        total = self.predictive_var(var)
        residual = y - mean
        return -LOG_SQRT_2PI - 0.5 * jnp.log(total) - 0.5 * residual * residual / total

    def law(self, mean: np.ndarray, var: np.ndarray) -> GaussianLaw:
        noise = float(np.exp(2.0 * np.float64(self.log_sigma_obs)))
        return GaussianLaw(mean, np.sqrt(noise + np.asarray(var, np.float64)), noise_var=noise)

    def scaled(self, factor: float | Array) -> Self:
        return eqx.tree_at(lambda h: h.log_sigma_obs, self, self.log_sigma_obs + jnp.log(factor))

    def __repr__(self) -> str:
        return "Gaussian()"


class AbstractProbit(AbstractHead):
    r"""Ordered classes cut from the latent line at learned cutpoints.

    $P(y = r) = \Phi\bigl((\tau_r - \text{mean})/D\bigr) -
    \Phi\bigl((\tau_{r-1} - \text{mean})/D\bigr)$ with $D = \sqrt{c^2 + \text{var}}$; the scale
    $c = 1.005$ is fixed, since cutpoints and weights already carry every scale.
    """

    @property
    @abc.abstractmethod
    def cutpoints(self) -> Float[Array, " cuts"]:
        """Inner cutpoints, increasing."""

    @property
    def classes(self) -> int:
        return self.cutpoints.shape[-1] + 1

    @abc.abstractmethod
    def with_cutpoints(self, cutpoints: Float[Array, " cuts"]) -> Self:
        """The same head, cut elsewhere."""

    def constant(self, y: Array, weight: Array) -> tuple[Self, Array]:
        below = jnp.cumsum(_class_shares(y, weight, self.classes))[:-1]
        cuts = PROBIT_BASE_SCALE * jax.scipy.special.ndtri(below)
        return self.with_cutpoints(cuts), jnp.zeros(())

    def probit_scale(self, var: Array) -> Array:
        return jnp.sqrt(PROBIT_BASE_SCALE**2 + var)

    def read_labels(self, name: str, values: Any) -> tuple[np.ndarray, np.ndarray]:
        return read_classes(name, values, self.classes, None)

    def log_predictive(self, y: Int[Array, "..."], mean: Array, var: Array) -> Array:
        scale = self.probit_scale(var)
        lower = upper = jnp.zeros_like(mean)
        # A chain of selects over the few cutpoints: its derivative is a sum, whereas that
        # of an indexed read is a scatter, which runs serially on a CPU.
        for r in range(self.classes - 1):
            upper = jnp.where(y == r, self.cutpoints[r], upper)
            lower = jnp.where(y == r + 1, self.cutpoints[r], lower)
        first, last = y == 0, y == self.classes - 1
        lo = jnp.where(first, -jnp.inf, (lower - mean) / scale)
        hi = jnp.where(last, jnp.inf, (upper - mean) / scale)
        return log_bucket_mass(lo, hi)

    def log_probs(self, mean: Array, var: Array) -> Array:
        """Log mass of every class, along a new last axis."""
        labels = jnp.arange(self.classes)
        return jax.vmap(lambda r: self.log_predictive(r, mean, var), out_axes=-1)(labels)

    @eqx.filter_jit
    def half_information(self, mean: Array, var: Array) -> Array:
        log_probs, slope = jax.jvp(lambda m: self.log_probs(m, var), [mean], [jnp.ones_like(mean)])
        return 0.5 * jnp.sum(jnp.exp(log_probs) * slope**2, axis=-1)


@eqx.filter_jit
def _compiled_log_probs(head: AbstractProbit, mean: Array, var: Array) -> Array:
    return head.log_probs(mean, var)


def _log_probs(head: AbstractProbit, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
    """Log mass of every class at every window; long arrays in pieces of one compiled size."""
    starts = range(0, len(mean), _PIECE) or [0]
    pieces = [
        _compiled_log_probs(
            head, jnp.asarray(mean[i : i + _PIECE]), jnp.asarray(var[i : i + _PIECE])
        )
        for i in starts
    ]
    return np.concatenate([np.asarray(piece) for piece in pieces])


class Event(AbstractProbit):
    """A yes/no observable: the two-bucket case, `P(y = 1) = Phi((mean - tau_1) / D)`.

    Labels are 0 and 1, booleans, yes and no, or two texts, the second of which is the event:
    `Event(labels=("dry", "wet"))`.
    """

    cutpoint: Float[Array, ""]
    labels: tuple[str, ...] | None = eqx.field(static=True)

    def __init__(self, cutpoint: float = 0.0, *, labels: Sequence[str] | None = None):
        self.cutpoint = jnp.asarray(cutpoint, dtype=float)
        self.labels = None if labels is None else read_texts("Event", labels)
        if self.labels is not None and len(self.labels) != 2:
            raise ValueError(f"Event: an event has two labels, got {list(self.labels)}")

    @property
    def description(self) -> str:
        return "yes or no: probit"

    @property
    def cutpoints(self) -> Float[Array, " 1"]:
        return self.cutpoint[None]

    def read_labels(self, name: str, values: Any) -> tuple[np.ndarray, np.ndarray]:
        return read_classes(name, values, 2, self.labels, yes_or_no=True)

    def with_cutpoints(self, cutpoints: Float[Array, " cuts"]) -> Self:
        return eqx.tree_at(lambda h: h.cutpoint, self, cutpoints[0])

    def law(self, mean: np.ndarray, var: np.ndarray) -> EventLaw:
        return EventLaw(_log_probs(self, mean, var))

    def __repr__(self) -> str:
        return "Event()" if self.labels is None else f"Event(labels={self.labels!r})"


class Ordinal(AbstractProbit):
    """`R` ordered classes; cutpoints start at the normal quantiles of equal shares.

    Labels are 0 to R-1, or texts in their order: `Ordinal(["low", "mid", "high"])`.
    """

    first_cutpoint: Float[Array, ""]
    log_gaps: Float[Array, " gaps"]
    labels: tuple[str, ...] | None = eqx.field(static=True)

    def __init__(self, R: int | Sequence[str]):
        R, self.labels = count_and_texts("Ordinal", R)
        start = ndtri(np.arange(1, R) / R)
        self.first_cutpoint = jnp.asarray(start[0], dtype=float)
        self.log_gaps = jnp.asarray(np.log(np.diff(start)), dtype=float)

    @property
    def description(self) -> str:
        return f"{self.classes} ordered classes: probit with learned cutpoints"

    @property
    def cutpoints(self) -> Float[Array, " cuts"]:
        steps = jnp.concatenate([jnp.zeros_like(self.log_gaps[:1]), jnp.exp(self.log_gaps)])
        if self.log_gaps.shape[-1] == 0:
            return self.first_cutpoint[None]
        return self.first_cutpoint + jnp.cumsum(steps)

    def read_labels(self, name: str, values: Any) -> tuple[np.ndarray, np.ndarray]:
        return read_classes(name, values, self.classes, self.labels)

    def with_cutpoints(self, cutpoints: Float[Array, " cuts"]) -> Self:
        values = (cutpoints[0], jnp.log(jnp.diff(cutpoints)))
        return eqx.tree_at(lambda h: (h.first_cutpoint, h.log_gaps), self, values)

    def law(self, mean: np.ndarray, var: np.ndarray) -> OrdinalLaw:
        return OrdinalLaw(_log_probs(self, mean, var))

    def __repr__(self) -> str:
        return f"Ordinal({self.classes if self.labels is None else list(self.labels)})"


class Categorical(AbstractHead):
    """`R` unordered classes by a softmax over `R` latent lines; point estimates only.

    Labels are 0 to R-1, or texts: `Categorical(["rain", "snow", "sun"])`.
    """

    classes: int = eqx.field(static=True)
    labels: tuple[str, ...] | None = eqx.field(static=True)

    def __init__(self, R: int | Sequence[str]):
        self.classes, self.labels = count_and_texts("Categorical", R)

    @property
    def description(self) -> str:
        return f"{self.classes} classes: softmax"

    @property
    def rows(self) -> int:
        return self.classes

    def read_labels(self, name: str, values: Any) -> tuple[np.ndarray, np.ndarray]:
        return read_classes(name, values, self.classes, self.labels)

    def constant(self, y: Array, weight: Array) -> tuple[Self, Array]:
        return self, jnp.log(_class_shares(y, weight, self.classes))

    def log_predictive(self, y: Int[Array, "..."], mean: Array, var: Array) -> Array:
        chosen = jax.nn.one_hot(y, self.classes, dtype=mean.dtype)
        return jnp.sum(chosen * jax.nn.log_softmax(mean, axis=-1), axis=-1)

    def law(self, mean: np.ndarray, var: np.ndarray) -> CategoricalLaw:
        return CategoricalLaw(np.asarray(jax.nn.log_softmax(jnp.asarray(mean), axis=-1)))

    def __repr__(self) -> str:
        return f"Categorical({self.classes if self.labels is None else list(self.labels)})"


def _class_shares(y: Array, weight: Array, classes: int) -> Float[Array, " R"]:
    """The weight of each class, half a label more each, so that none is held impossible."""
    counts = 0.5 + jnp.sum(weight[:, None] * jax.nn.one_hot(y, classes), axis=0)
    return counts / jnp.sum(counts)


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
    return eqx.combine(shaped(jnp.asarray(best, flat.dtype)), fixed)


@eqx.filter_jit
@eqx.filter_value_and_grad
def _constant_loss(both: tuple[AbstractHead, Array], y: Array, weight: Array) -> Array:
    head, mean = both
    line = jnp.broadcast_to(mean, (len(weight), *mean.shape))
    terms = weight * head.log_predictive(y, line, jnp.zeros_like(line))
    return -jnp.sum(terms) / jnp.sum(weight)
