r"""Values with heavy tails: Student-t noise around a Gaussian latent line.

A t is a normal of random precision, so that the law is a mixture of normals over the log precision
u (`scrollmt.heads.student` gives the weights g),

    p(y) = int g(u) N(y; latent_mean, latent_var + scale_obs^2 e^-u) du,

which the trapezoid rule reads at fixed nodes. Shapes: `(N, M)` for the M members of a mixture.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self, final

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray
from scipy.special import gammaln, log_ndtr, logsumexp

from scrollmt._numerics.normal import LOG_SQRT_2PI
from scrollmt.laws import normals
from scrollmt.laws.base import Numbers, Vector, real_labels
from scrollmt.laws.latent import LatentLaw
from scrollmt.laws.normals import Normals, parts
from scrollmt.laws.real import Members

# The nodes are the same for all labels; as many as this reach out as far as those of the head.
_NODES = 256


def log_precision_step(df: Any, sqrt: Any) -> Any:
    """Width of the trapezoids in log precision: a fraction of the integrand's own."""
    return 1.0 / sqrt(0.5 * (df + 1.0) + 3.0)


def log_precision_top(df: Any, sqrt: Any, log1p: Any) -> Any:
    """A log precision beyond which nothing is left."""
    return log1p(8.5 / sqrt(df) + 36.0 / df)


@final
@dataclass(frozen=True, eq=False, repr=False, init=False)
class StudentTLaw(LatentLaw):
    """y_n = a_n + scale_obs t, with a_n ~ N(latent_mean_n, latent_var_n) and t Student-t.

    `latent_mean` and `latent_var` are (N,), or (N, M) for an equal-weight mixture of M members;
    `scale_obs` and `df` are scalars or (M,). An ensemble (`mix`) is the exact mixture.
    """

    learned: ClassVar[tuple[str, ...]] = ("scale_obs", "df")
    latent_mean: Members
    latent_var: Members
    scale_obs: Float[np.ndarray, " M"]
    df: Float[np.ndarray, " M"]

    def __init__(
        self, latent_mean: Numbers, latent_var: Numbers, scale_obs: Numbers, df: Numbers
    ) -> None:
        super().__init__(latent_mean, latent_var, scale_obs, df)
        if not ((self.scale_obs > 0.0) & (self.df > 2.0)).all():
            raise ValueError(
                f"StudentTLaw: need scale_obs > 0 and df > 2, got {self.scale_obs}, {self.df}"
            )

    @property
    def noise(self) -> tuple[Float[np.ndarray, " M"], ...]:
        return self.scale_obs, self.df

    def affine(self, offset: float, scale: float) -> Self:
        """The law of `offset + scale * y`, for scale > 0."""
        law = type(self)(
            offset + scale * self.latent_mean,
            scale**2 * self.latent_var,
            scale * self.scale_obs,
            self.df,
        )
        return law._at_inputs_of(self)

    @property
    def mean(self) -> Vector:
        return np.asarray(self.latent_mean.mean(axis=1))

    @property
    def noise_var(self) -> Vector:
        """Variance of the noise, averaged over members."""
        noise = np.mean(self.scale_obs**2 * self.df / (self.df - 2.0))
        return np.full(len(self), noise)

    @property
    def belief_var(self) -> Vector:
        """What the belief adds, and the members' disagreement."""
        return np.asarray(self.latent_var.mean(axis=1) + self.latent_mean.var(axis=1))

    @property
    def var(self) -> Vector:
        return np.asarray(self.noise_var + self.belief_var)

    @property
    def sd(self) -> Vector:
        return np.asarray(np.sqrt(self.var))

    def log_prob(self, y: Numbers) -> Vector:
        return self._log_mixture(y, lambda z, var: -0.5 * z**2 - 0.5 * np.log(var)) - LOG_SQRT_2PI

    def sf(self, y: Numbers) -> Vector:
        # Far out, what is left comes from precisions that have next to no mass themselves.
        return np.asarray(np.exp(np.minimum(self._log_mixture(y, lambda z, _: log_ndtr(-z)), 0.0)))

    def _log_mixture(self, y: Numbers, log_term: Callable[..., np.ndarray]) -> Vector:
        """The mixture over precisions of a function of normals: of residuals z, and variances."""
        y = real_labels(y, len(self))
        out = np.empty(len(self))
        u, log_weight = self._precisions()
        for part in parts(u.size, len(self)):
            total = self._variances(part, u)
            z = (y[part, None] - self.latent_mean[part])[:, :, None] / np.sqrt(total)
            out[part] = logsumexp(log_weight + log_term(z, total), axis=(1, 2))
        return np.asarray(out - logsumexp(log_weight))

    def cdf(self, y: Numbers) -> Vector:
        return np.asarray(np.exp(np.minimum(self._log_mixture(y, lambda z, _: log_ndtr(z)), 0.0)))

    def crps(self, y: Numbers) -> Vector:
        labels, out = real_labels(y, len(self)), np.empty(len(self))
        for rows, one in self._normals(per_row=2):
            out[rows] = normals.crps(labels[rows], one)
        return out

    def _quantile(self, p: float) -> Vector:
        out = np.empty(len(self))
        for rows, one in self._normals(per_row=1):
            out[rows] = normals.quantiles(p, one)
        return out

    def _sample(self, key: PRNGKeyArray, n: int) -> Float[np.ndarray, "n N"]:
        which, latent, noise, precision = jax.random.split(key, 4)
        shape = (n, len(self))
        member = np.asarray(jax.random.randint(which, shape, 0, self.df.size))
        row = np.arange(len(self))
        half = 0.5 * self.df[member]
        chi = np.asarray(jax.random.gamma(precision, half), np.float64) / half
        a = np.asarray(jax.random.normal(latent, shape), np.float64)
        e = np.asarray(jax.random.normal(noise, shape), np.float64)
        line = self.latent_mean[row, member] + np.sqrt(self.latent_var[row, member]) * a
        return np.asarray(line + self.scale_obs[member] * e / np.sqrt(chi))

    def _normals(self, per_row: int) -> Iterator[tuple[np.ndarray, Normals]]:
        """Rows, and their laws as mixtures of C normals; precisions without mass are left out.

        Few rows at a time, for arrays of C ** per_row entries a row. Not as the property `normals`:
        far out in the tails only precisions count that have next to no mass.
        """
        u, log_weight = self._precisions()
        share = np.exp(log_weight)
        member, node = np.nonzero(share > 1e-17 * share.max())
        weight = share[member, node] / share[member, node].sum()
        noise = self.scale_obs[member] ** 2 * np.exp(-u[member, node])
        for rows in parts(weight.size**per_row, len(self)):
            sds = np.sqrt(self.latent_var[rows][:, member] + noise)
            shares = np.broadcast_to(weight, sds.shape)
            yield rows, Normals(self.latent_mean[rows][:, member], sds, shares)

    def _precisions(self) -> tuple[np.ndarray, np.ndarray]:
        """Log precisions (M, Q) and the logarithms of their masses, which sum to one."""
        df = self.df[:, None]
        step = log_precision_step(df, np.sqrt)
        u = log_precision_top(df, np.sqrt, np.log1p) - step * np.arange(_NODES)
        half = 0.5 * df
        log_mass = half * (u - np.exp(u) + np.log(half)) - gammaln(half) + np.log(step)
        return u, log_mass - math.log(self.df.size)

    def _variances(self, part: np.ndarray, u: np.ndarray) -> np.ndarray:
        noise = self.scale_obs[:, None] ** 2 * np.exp(-u)
        return np.asarray(self.latent_var[part][:, :, None] + noise)
