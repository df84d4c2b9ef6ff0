r"""Values with heavy tails: Student-t noise around the latent line.

A t is a normal of random precision, $y = a + s\,\varepsilon/\sqrt\lambda$ with
$\lambda \sim \text{Gamma}(\nu/2, \nu/2)$, so that the belief integrates out in closed form and only
the precision is left, in $u = \log\lambda$:

$$m(y) = \int g_\nu(u)\, \mathcal{N}\bigl(y;\, \text{mean},\, \text{var} + s^2 e^{-u}\bigr)\, du,
  \qquad \log g_\nu(u) = -k\,(e^u - 1 - u) + \tfrac12\log\frac{k}{2\pi} - \delta(k),
  \quad k = \nu/2,$$

with $\delta$ the error of Stirling's formula. The integrand is analytic and dies out on both sides,
where the trapezoid rule converges exponentially. On the latent line itself it may have two
modes (the label is an outlier, or the belief is wrong) that no single rule can be centred on.

Shapes: elementwise over windows in the head; `(N, M)` for the M members of a mixture in the law.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self, final

import jax
import jax.numpy as jnp
import numpy as np
import scoringrules
from jax.scipy.special import logsumexp as jax_logsumexp
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.optimize.elementwise import find_root
from scipy.special import gammaln, log_ndtr, logsumexp, ndtr, ndtri

from scrollmt._numerics.normal import LOG_SQRT_2PI
from scrollmt._numerics.special import exp_rest, stirling_error
from scrollmt._numerics.weighted import weighted_quantiles
from scrollmt.heads import AbstractHead, mean_and_sd
from scrollmt.laws import Members, Vector
from scrollmt.laws.latent import LatentLaw, parts
from scrollmt.predictive import Numbers, real_labels

# With these nodes the error is below 1e-6 nats for 2 < df <= 300, labels up to 10^12 scales out and
# belief variances up to 10^6 squared scales (tests/test_extra_heads.py).
NODES = 64
# In a law the nodes are the same for all labels; as many as this reach out as far.
_LAW_NODES = 256
# exp(-CUT) relative to the integral is negligible in either precision.
_CUT = 30.0
# The interquartile range of a standard normal.
_IQR = 2.0 * float(ndtri(0.75))


def _step(df: Any, sqrt: Any) -> Any:
    """Width of the trapezoids in log precision: a fraction of the integrand's own."""
    return 1.0 / sqrt(0.5 * (df + 1.0) + 3.0)


def _top(df: Any, sqrt: Any, log1p: Any) -> Any:
    """A log precision beyond which nothing is left."""
    return log1p(8.5 / sqrt(df) + 36.0 / df)


class StudentT(AbstractHead):
    r"""A value with heavy-tailed noise: $(y - a)/s$ is Student-t with $\nu$ degrees of freedom.

    `df` is $\nu > 2$; `scale_obs` is $s$, and the noise has sd $s\sqrt{\nu/(\nu - 2)}$. Both are
    learned. Targets are shifted and scaled by median and interquartile range, which
    outliers do not move.
    """

    log_scale_obs: Float[Array, ""]
    log_df_excess: Float[Array, ""]

    def __init__(self, df: float = 4.0, scale_obs: float = 1.0):
        if not 2.0 < df < math.inf:
            raise ValueError(f"df must be > 2, so that there is a variance, and finite; got {df}")
        if not 0.0 < scale_obs < math.inf:
            raise ValueError(f"scale_obs must be > 0 and finite, got {scale_obs}")
        self.log_scale_obs = jnp.log(jnp.asarray(scale_obs, dtype=float))
        self.log_df_excess = jnp.log(jnp.asarray(df - 2.0, dtype=float))

    @property
    def description(self) -> str:
        return "a value with heavy tails: Student-t"

    @property
    def df(self) -> Float[Array, ""]:
        """Degrees of freedom; the fewer, the heavier the tails."""
        return 2.0 + jnp.exp(self.log_df_excess)

    @property
    def scale_obs(self) -> Float[Array, ""]:
        return jnp.exp(self.log_scale_obs)

    def units(self, labels: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
        low, median, high = weighted_quantiles(labels, weight, (0.25, 0.5, 0.75))
        centre, spread = float(median), float(high - low) / _IQR
        # More than half of the labels may be one and the same.
        return (centre, spread) if spread > 0.0 else mean_and_sd(labels, weight)

    def log_predictive(self, y: Array, mean: Array, var: Array) -> Array:
        df, noise = self.df, jnp.exp(2.0 * self.log_scale_obs)
        square = (y - mean) ** 2
        u = self._nodes(*jax.lax.stop_gradient((square, var, df, noise)))
        # By way of the logarithm, since the square of a variance that large is no float32.
        log_total = jnp.log(var + noise * jnp.exp(-u))
        half = 0.5 * df
        log_weight = -half * exp_rest(u) + 0.5 * jnp.log(half) - stirling_error(half)
        terms = log_weight - 0.5 * log_total - 0.5 * square * jnp.exp(-log_total)
        step = jax.lax.stop_gradient(_step(df, jnp.sqrt))
        return jax_logsumexp(terms, axis=0) + jnp.log(step) - 2.0 * LOG_SQRT_2PI

    def _nodes(self, square: Array, var: Array, df: Array, noise: Array) -> Array:
        """Log precisions, downwards from where the integrand begins, along a new first axis."""
        top = _top(df, jnp.sqrt, jnp.log1p)
        # Far out the noise alone can explain a label, by log1p(..) nats: a total variance under
        # which the label would cost CUT nats more than that adds nothing.
        least = square / ((df + 1.0) * jnp.log1p(square / (df * noise)) + 2.0 * _CUT)
        spare = least > var
        lower = jnp.log(noise / jnp.where(spare, least - var, noise))
        top = jnp.where(spare, jnp.minimum(top, lower), top)
        down = jnp.arange(NODES, dtype=top.dtype).reshape(-1, *(1,) * top.ndim)
        return top - _step(df, jnp.sqrt) * down

    def law(self, mean: np.ndarray, var: np.ndarray) -> StudentTLaw:
        scale, excess = (np.exp(np.float64(x)) for x in (self.log_scale_obs, self.log_df_excess))
        return StudentTLaw(mean, var, scale, 2.0 + excess)

    def __repr__(self) -> str:
        return "StudentT()"


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
        return law._at_index(self.index)

    @property
    def mean(self) -> Vector:
        return self.latent_mean.mean(axis=1)

    @property
    def noise_var(self) -> Vector:
        """Variance of the noise, averaged over members."""
        noise = np.mean(self.scale_obs**2 * self.df / (self.df - 2.0))
        return np.full(len(self), noise)

    @property
    def belief_var(self) -> Vector:
        """What the belief adds, and the members' disagreement."""
        return self.latent_var.mean(axis=1) + self.latent_mean.var(axis=1)

    @property
    def var(self) -> Vector:
        return self.noise_var + self.belief_var

    @property
    def sd(self) -> Vector:
        return np.sqrt(self.var)

    def log_prob(self, y: Numbers) -> Vector:
        return self._log_mixture(y, lambda z, var: -0.5 * z**2 - 0.5 * np.log(var)) - LOG_SQRT_2PI

    def sf(self, y: Numbers) -> Vector:
        # Far out, what is left comes from precisions that have next to no mass themselves.
        return np.exp(np.minimum(self._log_mixture(y, lambda z, _: log_ndtr(-z)), 0.0))

    def _log_mixture(self, y: Numbers, log_term: Callable[..., np.ndarray]) -> Vector:
        """The mixture over precisions of a function of normals: of residuals z, and variances."""
        y = real_labels(y, len(self))
        out = np.empty(len(self))
        u, log_weight = self._precisions()
        for part in parts(u.size, len(self)):
            total = self._variances(part, u)
            z = (y[part, None] - self.latent_mean[part])[:, :, None] / np.sqrt(total)
            out[part] = logsumexp(log_weight + log_term(z, total), axis=(1, 2))
        return out - logsumexp(log_weight)

    def cdf(self, y: Numbers) -> Vector:
        return np.exp(np.minimum(self._log_mixture(y, lambda z, _: log_ndtr(z)), 0.0))

    def crps(self, y: Numbers) -> Vector:
        labels = real_labels(y, len(self))
        out = np.empty(len(self))
        for rows, mean, sd, weight in self.normal_mixture():
            shares = np.broadcast_to(weight, mean.shape)
            out[rows] = scoringrules.crps_mixnorm(labels[rows], mean, sd, shares, backend="numpy")
        return out

    def _quantile(self, p: float) -> Vector:
        if p in (0.0, 1.0):
            return np.full(len(self), -np.inf if p == 0.0 else np.inf)
        z = float(ndtri(p))
        out = np.empty(len(self))
        mean, sd, weight = self._nodes()
        for part in parts(weight.size, len(self)):
            # The quantile of a mixture lies between those of its parts, which may all agree.
            centres, spreads = mean(part), sd(part)
            each, some = centres + z * spreads, 1e-3 * spreads.min(axis=1)

            def excess(x: np.ndarray, row: np.ndarray, m: Any = centres, s: Any = spreads) -> Any:
                return ndtr((x[:, None] - m[row]) / s[row]) @ weight - p

            bracket = each.min(axis=1) - some, each.max(axis=1) + some
            found = find_root(excess, bracket, args=(np.arange(len(each)),))
            out[part] = found.x
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
        return line + self.scale_obs[member] * e / np.sqrt(chi)

    def normal_mixture(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
        """The law as a mixture of C normals, in parts: rows, means (n, C), sds (n, C), weights."""
        mean, sd, weight = self._nodes()
        for part in parts(weight.size**2, len(self)):
            yield part, mean(part), sd(part), weight

    def _nodes(self) -> tuple[Any, Any, np.ndarray]:
        """Means and sds of the normals by part, and their weights; what has no mass is left out."""
        u, log_weight = self._precisions()
        share = np.exp(log_weight)
        member, node = np.nonzero(share > 1e-17 * share.max())
        weight = share[member, node] / share[member, node].sum()
        noise = self.scale_obs[member] ** 2 * np.exp(-u[member, node])
        return (
            lambda part: self.latent_mean[part][:, member],
            lambda part: np.sqrt(self.latent_var[part][:, member] + noise),
            weight,
        )

    def _precisions(self) -> tuple[np.ndarray, np.ndarray]:
        """Log precisions (M, Q) and the logarithms of their masses, which sum to one."""
        df = self.df[:, None]
        step = _step(df, np.sqrt)
        u = _top(df, np.sqrt, np.log1p) - step * np.arange(_LAW_NODES)
        half = 0.5 * df
        log_mass = half * (u - np.exp(u) + np.log(half)) - gammaln(half) + np.log(step)
        return u, log_mass - math.log(self.df.size)

    def _variances(self, part: np.ndarray, u: np.ndarray) -> np.ndarray:
        return self.latent_var[part][:, :, None] + self.scale_obs[:, None] ** 2 * np.exp(-u)
