r"""A value drawn from one of C Gaussian components, which a latent choice selects.

The choice is a latent categorical task that is summed out. Lines $a_1 \dots a_C$ shift the
components. Lines $g_1 \dots g_{C-1}$ are the gate, which breaks a stick by probits. Given them,

$$p(y \mid a, g) = \sum_j \pi_j\, \mathcal{N}(y;\, a_j + \mu_j, \sigma_j^2), \qquad
  \pi_j = v_j \prod_{i<j} (1 - v_i), \quad v_j = \Phi\bigl((g_j + b_j)/c\bigr), \quad v_C = 1.$$

The beliefs about the lines are independent, and each line is in a product at most once. So the
integral over all of them is exact: $\sigma_j^2$ becomes $\sigma_j^2 + \text{var}_j$, and $c$
becomes $\sqrt{c^2 + \text{var}}$ of that line of the gate.

Shapes: `mean` and `var` are `(N, 2C-1)`, components first, then the gate.
"""

from __future__ import annotations

from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int
from scipy.special import ndtr, ndtri, softmax

from scrollmt._io.arguments import is_whole, shown
from scrollmt._numerics import graph
from scrollmt._numerics.graph import Value
from scrollmt._numerics.normal import LOG_SQRT_2PI, log_bucket_mass
from scrollmt.heads.base import AbstractHead, mean_and_sd
from scrollmt.heads.exported import ExportedMixture
from scrollmt.heads.probit import PROBIT_BASE_SCALE
from scrollmt.laws import GaussianMixtureLaw

# Without a least width the density is unbounded where a label occurs several times: a component
# shrinks onto it. Labels are scaled to an sd of one.
SIGMA_FLOOR = 1e-3
# Of the starting values: rounds of EM, and how many labels of the constructor's law, as a share,
# each component has beside its own. So none is ever empty, or as narrow as one label.
_ROUNDS = 30
_PRIOR_SHARE = 0.01


class Mixture(AbstractHead):
    r"""A value with any shape of law: several modes, skew, tails. A mixture of Gaussian components.

    The weights of the `components` depend on the inputs, as their means do. Learned besides are
    the offsets $\mu_j$, the noise sds $\sigma_j$ and the offsets $b_j$ of the gate. A noise sd is
    at least a thousandth of the labels' sd, and at least that of rounding where labels are rounded.
    A fit with fewer labels than `fewest_labels` warns.
    """

    offsets: Float[Array, " C"]
    log_sigma: Float[Array, " C"]
    gate_offsets: Float[Array, " G"]
    # The least noise sd in millionths; a whole number, so that it is not trained.
    floor: Int[Array, ""]

    def __init__(self, components: int = 5):
        if not is_whole(components) or components < 2:
            raise ValueError(
                f"Mixture needs a whole number of at least 2 components, got {shown(components)}; "
                "Gaussian() is a single one"
            )
        # Together a law of mean zero and variance one, as the scaled labels have.
        places = ndtri((np.arange(components) + 0.5) / components)
        self.offsets = jnp.asarray(places, dtype=float)
        sigma = np.sqrt(1.0 - np.mean(places**2))
        self.log_sigma = jnp.full(components, np.log(sigma), dtype=float)
        # Equal shares: the first takes 1/C, the next 1/(C-1) of what is left, and so on.
        shares = 1.0 / np.arange(components, 1, -1)
        self.gate_offsets = jnp.asarray(PROBIT_BASE_SCALE * ndtri(shares), dtype=float)
        self.floor = _millionths(SIGMA_FLOOR)

    @property
    def components(self) -> int:
        return self.offsets.shape[-1]

    @property
    def rows(self) -> int:
        return 2 * self.components - 1

    @property
    def point_only(self) -> bool:
        return False

    @property
    def line_noise(self) -> Float[Array, " L"]:
        floor = 1e-6 * self.floor
        noise = jnp.exp(2.0 * self.log_sigma) + floor * floor
        return jnp.concatenate([noise, jnp.full_like(self.gate_offsets, PROBIT_BASE_SCALE**2)])

    @property
    def fewest_labels(self) -> int:
        return 5 * self.components - 2

    @property
    def description(self) -> str:
        return f"a value: mixture of {self.components} Gaussian components"

    def target_scale(self, labels: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
        return mean_and_sd(labels, weight)

    def started(self, y: Array, weight: Array) -> Self:
        """The mixture that fits all training labels at once, by EM from the constructor's law."""
        labels, share = (np.asarray(a, np.float64) for a in (y, weight))
        # A fold may have no label, or one value alone.
        seen = labels[share > 0.0]
        if len(seen) == 0 or np.ptp(seen) == 0.0:
            return self
        centre, spread = mean_and_sd(labels, share)
        offsets, noise, _ = self._numbers()
        first = centre + spread * offsets, spread**2 * noise
        means, variances = first
        shares = np.full(self.components, 1.0 / self.components)
        for _ in range(_ROUNDS):
            z = (labels[:, None] - means) ** 2 / variances
            own = softmax(np.log(shares) - 0.5 * np.log(variances) - 0.5 * z, axis=1)
            own *= (share / share.sum())[:, None]
            count = own.sum(axis=0) + _PRIOR_SHARE
            shares = count / count.sum()
            means = (labels @ own + _PRIOR_SHARE * first[0]) / count
            squares = np.sum(own * (labels[:, None] - means) ** 2, axis=0)
            variances = (squares + _PRIOR_SHARE * first[1]) / count
        left = np.cumsum(shares[::-1])[::-1]
        gate = PROBIT_BASE_SCALE * ndtri(shares / left)[:-1]
        values = means, 0.5 * np.log(variances), gate
        started: Self = eqx.tree_at(
            lambda h: (h.offsets, h.log_sigma, h.gate_offsets, h.floor),
            self,
            (
                *(jnp.asarray(a, self.offsets.dtype) for a in values),
                _millionths(max(SIGMA_FLOOR, _rounding_sd(seen))),
            ),
        )
        return started

    def log_weights(self, mean: Float[Array, "*N L"], var: Float[Array, "*N L"]) -> Array:
        """Logarithms of the components' expected shares, `(*N, C)`."""
        gate = slice(self.components, None)
        z = (mean[..., gate] + self.gate_offsets) / jnp.sqrt(PROBIT_BASE_SCALE**2 + var[..., gate])
        end = jnp.full_like(z, jnp.inf)
        taken, left = log_bucket_mass(-end, z), log_bucket_mass(z, end)
        none = jnp.zeros_like(z[..., :1])
        before = jnp.concatenate([none, jnp.cumsum(left, axis=-1)], axis=-1)
        return jnp.concatenate([taken, none], axis=-1) + before

    def log_predictive(
        self, y: Float[Array, "*N"], mean: Float[Array, "*N L"], var: Float[Array, "*N L"]
    ) -> Float[Array, "*N"]:
        lines = slice(None, self.components)
        floor = 1e-6 * self.floor
        total = jnp.exp(2.0 * self.log_sigma) + floor * floor + var[..., lines]
        residual = y[..., None] - mean[..., lines] - self.offsets
        log_density = -LOG_SQRT_2PI - 0.5 * jnp.log(total) - 0.5 * residual * residual / total
        scores: Array = logsumexp(self.log_weights(mean, var) + log_density, axis=-1)
        return scores

    def law(self, mean: np.ndarray, var: np.ndarray) -> GaussianMixtureLaw:
        mean, var = (np.asarray(a, np.float64) for a in (mean, var))
        offsets, noise, gate = self._numbers()
        C = self.components
        z = (mean[:, C:] + gate) / np.sqrt(PROBIT_BASE_SCALE**2 + var[:, C:])
        # The share that a break takes, and what the breaks before it have left.
        taken = np.pad(ndtr(z), ((0, 0), (0, 1)), constant_values=1.0)
        left = np.pad(np.cumprod(ndtr(-z), axis=1), ((0, 0), (1, 0)), constant_values=1.0)
        weights = taken * left
        return GaussianMixtureLaw(mean[:, :C] + offsets, np.sqrt(noise + var[:, :C]), weights)

    def _numbers(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Offsets, noise variances and offsets of the gate in float64."""
        given = (self.offsets, self.log_sigma, self.gate_offsets)
        offsets, log_sigma, gate = (np.asarray(a, np.float64) for a in given)
        return offsets, np.exp(2.0 * log_sigma) + (1e-6 * np.float64(self.floor)) ** 2, gate

    def onnx_outputs(self, mean: Value, var: Value, offset: float, scale: float) -> ExportedMixture:
        C = self.components
        # Products with parts of an identity matrix pick columns; every entry is finite.
        lines, gate = np.eye(2 * C - 1)[:, :C], np.eye(2 * C - 1)[:, C:]
        offsets, noise, _ = self._numbers()
        spread = (var @ gate + PROBIT_BASE_SCALE**2).apply("Sqrt")
        z = (mean @ gate + np.asarray(self.gate_offsets)) / spread
        edge = z * 0.0
        taken, left = _stick(C)
        log_weights = graph.log_bucket_mass(edge - np.inf, z) @ taken
        log_weights = log_weights + graph.log_bucket_mass(z, edge + np.inf) @ left
        centres = (mean @ lines).cast(np.float64) + offsets
        return ExportedMixture(
            offset + scale * centres,
            scale**2 * ((var @ lines).cast(np.float64) + noise),
            log_weights.cast(np.float64),
        )

    def __repr__(self) -> str:
        return f"Mixture({self.components})"


def _millionths(sd: float) -> Int[Array, ""]:
    # On the device as it is, without a program that makes it.
    whole: Array = jax.device_put(np.asarray(round(1e6 * sd), np.int32))
    return whole


def _rounding_sd(labels: Float[np.ndarray, " N"]) -> float:
    """The sd of an error of rounding to the labels' grid; zero where no label occurs twice.

    Between whole numbers a density has nothing to say. Without this, components as narrow as
    allowed would stand on them, and the score would say how narrow that is.
    """
    known = np.unique(labels)
    return 0.0 if len(known) == len(labels) else float(np.diff(known).min()) / np.sqrt(12.0)


def _stick(components: int) -> tuple[np.ndarray, np.ndarray]:
    """Which log shares of the breaks, taken and left, each component adds up: `(C-1, C)` both."""
    shape = components - 1, components
    return np.eye(*shape), np.triu(np.ones(shape), 1)
