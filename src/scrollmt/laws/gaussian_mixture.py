r"""Mixtures of Gaussian laws, such as the members of an ensemble, exactly.

    p(y_n) = sum_m w_nm N(y_n; m_nm, s_nm^2),    sum_m w_nm = 1

The distribution function is the average of the components'; quantiles are its roots. The CRPS has
a closed form. Shapes: ``means``, ``sds`` and ``weights`` are (N, M).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self, final

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray
from scipy.special import logsumexp, ndtr

from scrollmt.laws import normals
from scrollmt.laws.base import Numbers, Vector, real_labels, set_array
from scrollmt.laws.normals import Normals, parts
from scrollmt.laws.real import Members, RealLaw, members, relative, sample_members


@final
@dataclass(frozen=True, eq=False, repr=False, init=False)
class GaussianMixtureLaw(RealLaw):
    """y_n ~ sum_m weights_nm N(means_nm, sds_nm^2).

    `means` and `sds` are (N, M). `weights` are relative, (M,) or (N, M), and equal unless given.
    `noise_var` (scalar or (N,)) is the part of the variance that is noise, on average.
    """

    means: Members
    sds: Members
    weights: Members
    # A field in the place of the property that other laws of a number have; set by `__init__`.
    noise_var: Vector | None = None

    def __init__(
        self, means: Numbers, sds: Numbers, weights: Numbers = None, noise_var: Numbers = None
    ) -> None:
        name = type(self).__name__
        m, s = members(means, name, "means"), members(sds, name, "sds")
        if s.shape != m.shape or m.shape[1] == 0:
            raise ValueError(
                f"{name}: means has shape {m.shape}, sds has shape {s.shape}; they must agree, "
                "with at least one component"
            )
        if not (s > 0.0).all():
            row = int(np.argwhere(~(s > 0.0))[0][0])
            raise ValueError(f"{name}: need sds > 0, row {row} has {s[row]}")
        given = np.ones(m.shape[1]) if weights is None else np.asarray(weights, np.float64)
        if given.shape not in (m.shape[1:], m.shape):
            raise ValueError(
                f"{name}: weights has shape {given.shape}, need {m.shape[1:]} or {m.shape}"
            )
        w = relative(np.broadcast_to(given, m.shape), 1, name)
        w.setflags(write=False)
        # Laws are frozen for their users.
        object.__setattr__(self, "means", m)
        object.__setattr__(self, "sds", s)
        object.__setattr__(self, "weights", w)
        object.__setattr__(self, "noise_var", None)
        if noise_var is not None:
            noise = np.broadcast_to(np.asarray(noise_var, np.float64), (len(m),))
            set_array(self, "noise_var", noise, 1)

    def __len__(self) -> int:
        return len(self.means)

    def _rows(self, rows: np.ndarray) -> Self:
        noise = None if self.noise_var is None else self.noise_var[rows]
        return type(self)(self.means[rows], self.sds[rows], self.weights[rows], noise)

    def affine(self, offset: float, scale: float) -> Self:
        """The law of `offset + scale * y`, for scale > 0."""
        noise = None if self.noise_var is None else scale**2 * self.noise_var
        law = type(self)(offset + scale * self.means, scale * self.sds, self.weights, noise)
        return law._at_inputs_of(self)

    @property
    def normals(self) -> Normals:
        return Normals(self.means, self.sds, self.weights)

    @property
    def mean(self) -> Vector:
        return np.asarray(np.sum(self.weights * self.means, axis=1))

    @property
    def sd(self) -> Vector:
        apart = self.means - self.mean[:, None]
        return np.asarray(np.sqrt(np.sum(self.weights * (self.sds**2 + apart**2), axis=1)))

    @property
    def belief_var(self) -> Vector | None:
        """What beliefs add, and the disagreement of the components; None without the noise."""
        return None if self.noise_var is None else np.maximum(self.var - self.noise_var, 0.0)

    @property
    def effective_weight(self) -> Vector:
        """1 / (2 V_n), as for the Gaussian law of the same mean and variance (``cor:weights``)."""
        return 0.5 / self.var

    @property
    def modes(self) -> Float[np.ndarray, "N K"]:
        """Local maxima of each density, ascending; NaN where there are fewer than K."""
        if len(self) == 0:
            return np.zeros((0, 0))
        found = [normals.modes(self._part(rows)) for rows in parts(self.means.size, len(self))]
        width = max(one.shape[1] for one in found)
        ends = [(0, width - one.shape[1]) for one in found]
        return np.concatenate(
            [
                np.pad(one, ((0, 0), end), constant_values=math.nan)
                for one, end in zip(found, ends, strict=True)
            ]
        )

    def _part(self, rows: np.ndarray) -> Normals:
        return Normals(self.means[rows], self.sds[rows], self.weights[rows])

    def _residuals(self, y: Numbers) -> Members:
        return np.asarray((real_labels(y, len(self))[:, None] - self.means) / self.sds)

    def log_prob(self, y: Numbers) -> Vector:
        terms = -0.5 * self._residuals(y) ** 2 - np.log(self.sds)
        total = logsumexp(terms, axis=1, b=self.weights)
        return np.asarray(total - 0.5 * math.log(2.0 * math.pi))

    def cdf(self, y: Numbers) -> Vector:
        """P(Y_n <= y_n)."""
        return self._averaged(ndtr(self._residuals(y)))

    def sf(self, y: Numbers) -> Vector:
        """P(Y_n > y_n), with all digits far to the right."""
        return self._averaged(ndtr(-self._residuals(y)))

    def _averaged(self, shares: Members) -> Vector:
        # Weights sum to one up to rounding.
        return np.asarray(np.minimum(np.sum(self.weights * shares, axis=1), 1.0))

    def crps(self, y: Numbers) -> Vector:
        labels, out = real_labels(y, len(self)), np.empty(len(self))
        for rows in parts(self.means.shape[1] ** 2, len(self)):
            out[rows] = normals.crps(labels[rows], self._part(rows))
        return out

    def _quantile(self, p: float) -> Vector:
        out = np.empty(len(self))
        for rows in parts(self.means.shape[1], len(self)):
            out[rows] = normals.quantiles(p, self._part(rows))
        return out

    def _sample(self, key: PRNGKeyArray, n: int) -> Float[np.ndarray, "n N"]:
        which, noise = jax.random.split(key)
        chosen = sample_members(which, n, self.weights)
        rows = np.arange(len(self))
        z = np.asarray(jax.random.normal(noise, (n, len(self))), np.float64)
        return np.asarray(self.means[rows, chosen] + self.sds[rows, chosen] * z)
