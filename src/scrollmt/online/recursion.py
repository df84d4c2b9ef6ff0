r"""One pass over labels in order: what is believed about the mean weights, and how wide laws are.

A trained belief N(mu, Sigma) is predictive spread: it holds what the labels scatter, and more of
them do not narrow it. So Sigma stays as it is, and the weights have a posterior N(m, P) beside it,
which starts at m = mu. With $v = \psi^\top P\psi$, the spread $s = \psi^\top\Sigma\psi$, the
head's own noise b and a scale g that starts at zero, a label y is scored by

$$Z = \log m\bigl(y;\ \psi^\top m,\ v + e^g(b + s) - b\bigr), \qquad
  k = \partial Z/\partial\text{mean}, \quad h = \partial^2 Z/\partial\text{mean}^2,$$

and then

$$m \leftarrow m + P\psi\,k, \qquad P \leftarrow P + (P\psi)(P\psi)^\top h, \qquad
  g \leftarrow g + \eta\,\frac{\partial Z/\partial g}{F}.$$

For a Gaussian head this is the Kalman filter of the weights; for a head whose integral over the
line is exact, it matches the two moments of the exact posterior along $\psi$. F is the mean square
of $\partial Z/\partial g$ over training rows, which estimates the Fisher information about g: one
that went along with the stream would grow with the surprise that g is to answer.

After each row the past is forgotten at a rate r, and what is forgotten is given back to the prior
around the trained weights, one weight after the other, $i = t \bmod H$:

$$P^{-1} \leftarrow r P^{-1} + (1 - r)\,\alpha H\, e_i e_i^\top, \qquad
  P^{-1} m \leftarrow r P^{-1} m + (1 - r)\,\alpha H\, \mu_i e_i.$$

Over H rows this is $(1 - r)\alpha I$ a row. Without it P would grow without end in directions
that no row looks in.

P is carried as a root, $P = SS^\top$. With $\varphi = S^\top\psi$ the update is

$$S \leftarrow S + \frac{h}{1 + \sqrt{1 + hv}}\,(S\varphi)\,\varphi^\top,$$

so that P is never indefinite, whatever the rounding. Shapes: L lines of a head, H features and a
constant one after them.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from scrollmt._numerics.compiling import on_device
from scrollmt.heads import AbstractHead


class Posterior(eqx.Module):
    """What is known of one head of one member at one setting of the bank."""

    mean: Float[Array, "*B L H"]
    root: Float[Array, "*B L H H"]
    log_scale: Float[Array, "*B"]


class Settings(NamedTuple):
    """How fast the past is forgotten, and the step of the scale; one entry a setting of the bank.

    Where `learns` is zero, the posterior stays where it starts.
    """

    forgetting: Float[Array, "*B"]
    step: Float[Array, "*B"]
    learns: Float[Array, "*B"]


class Prior(NamedTuple):
    """The trained weights, their prior precision, and the information F about the scale."""

    mean: Float[Array, "*M L H"]
    precision: Float[Array, "*M"]
    information: Float[Array, "*M"]


class Events(NamedTuple):
    """What happens, in order: a row is predicted, its label arrives, or both, label last.

    `passed` is the number of rows that pass with the event, `turn` the weight that is given back to
    the prior then; `age` is how many rows ago that of the label was, 0 for the row itself and 1 for
    the newest that has passed. An event of weight zero brings no label.
    """

    psi: Float[Array, "T H"]
    spread: Float[Array, "T L"]
    y: Array
    weight: Float[Array, " T"]
    passed: Float[Array, " T"]
    turn: Int[Array, " T"]
    age: Float[Array, " T"]


def begin(
    mean: Float[np.ndarray, "L H"], root: Float[np.ndarray, "L H H"], settings: Settings
) -> Posterior:
    """The posterior before the first label, at every setting of the bank.

    Where nothing is learned, the weights are taken to be known: their root is zero.
    """
    dtype, count = mean.dtype, len(settings.learns)
    roots = np.asarray(settings.learns)[:, None, None, None] * root
    return Posterior(
        on_device(np.broadcast_to(mean, (count, *mean.shape)), dtype),
        on_device(roots, dtype),
        on_device(np.zeros(count), dtype),
    )


def line(
    posterior: Posterior, noise: Array | None, psi: Float[Array, "*N H"], spread: Array
) -> tuple[Float[Array, "*N L"], Float[Array, "*N L"]]:
    """Mean and variance of every line at features, the trained `spread` of each line given."""
    mean = jnp.einsum("lh,...h->...l", posterior.mean, psi)
    across = jnp.einsum("lhf,...h->...lf", posterior.root, psi)
    var = jnp.sum(across * across, axis=-1)
    return mean, var + _spread(posterior.log_scale, noise, spread)


def _spread(
    log_scale: Array, noise: Array | None, spread: Array, share: float | Array = 1.0
) -> Array:
    """What the head is to add to its noise: the scaled sum of both, less the noise itself."""
    if noise is None:
        return spread
    return jnp.exp(log_scale) * (noise + spread) / share - noise


@eqx.filter_jit
def squared_slopes(
    head: AbstractHead, mean: Array, var: Array, y: Array
) -> tuple[Float[Array, "N L"], Float[Array, " N"]]:
    """Squared derivatives of each log score: in the mean of each line, and in the scale."""
    noise = head.line_noise

    def one(mean: Array, var: Array, y: Array) -> tuple[Array, Array]:
        def score(at: Array, log_scale: Array) -> Array:
            return head.log_predictive(y, at, _spread(log_scale, noise, var))

        slopes: tuple[Array, Array] = jax.grad(score, argnums=(0, 1))(
            mean, jnp.zeros((), mean.dtype)
        )
        return slopes

    by_mean, by_scale = jax.vmap(one)(mean, var, y)
    return by_mean.reshape(len(mean), -1) ** 2, by_scale**2


@eqx.filter_jit
def run(
    head: AbstractHead,
    posterior: Posterior,
    settings: Settings,
    events: Events,
    prior: Prior,
) -> tuple[Posterior, Float[Array, "B T L"], Float[Array, "B T L"]]:
    """All events at every setting of the bank; mean and variance of each event's line before its
    label."""
    noise = head.line_noise

    def one(
        posterior: Posterior, settings: Settings
    ) -> tuple[Posterior, tuple[Float[Array, "T L"], Float[Array, "T L"]]]:
        def step(now: Posterior, event: Events) -> tuple[Posterior, tuple[Array, Array]]:
            return _step(head, noise, now, settings, event, prior)

        return jax.lax.scan(step, posterior, events)

    moved, (mean, var) = jax.vmap(one)(posterior, settings)
    return moved, mean, var


def _step(
    head: AbstractHead,
    noise: Array | None,
    now: Posterior,
    settings: Settings,
    event: Events,
    prior: Prior,
) -> tuple[Posterior, tuple[Float[Array, " L"], Float[Array, " L"]]]:
    root = now.root
    across = jnp.einsum("lhf,h->lf", root, event.psi)
    v = jnp.sum(across * across, axis=-1)
    mean = now.mean @ event.psi
    # Labels that come late count for what they would by now if they had come at once.
    share = settings.forgetting**event.age
    exact = noise is not None

    def score(mean: Array, log_scale: Array) -> Array:
        added = _spread(log_scale, noise, event.spread, share)
        if head.rows == 1:
            value = head.log_predictive(event.y, mean[0], (v + added)[0])
        else:
            value = head.log_predictive(event.y, mean, v + added)
        return value if exact else share * value

    def slope(mean: Array) -> Array:
        by_line: Array = jax.grad(score)(mean, now.log_scale)
        return by_line

    by_mean = slope(mean)
    curvature = jnp.diagonal(jax.jacfwd(slope)(mean))
    if head.point_only:
        # The head reads means alone: its curvature is that of the likelihood, not of the integral.
        curvature = curvature / (1.0 - jnp.minimum(curvature, 0.0) * v)
    by_scale = jax.grad(score, argnums=1)(mean, now.log_scale)
    weight = event.weight * settings.learns
    h = weight * curvature
    along = jnp.einsum("lhf,lf->lh", root, across)
    # 1 + hv is the share of the variance along psi that is left: positive, but for rounding.
    gain = h / (1.0 + jnp.sqrt(jnp.maximum(1.0 + h * v, 0.0)))
    moved = Posterior(
        now.mean + along * (weight * by_mean)[:, None],
        root + gain[:, None, None] * along[:, :, None] * across[:, None, :],
        now.log_scale + settings.step * weight * by_scale / prior.information,
    )
    line = mean, v + _spread(now.log_scale, noise, event.spread)
    return _forgotten(moved, settings, event, prior), line


def _forgotten(now: Posterior, settings: Settings, event: Events, prior: Prior) -> Posterior:
    """The posterior after rows have passed: a part of what was known is the prior's again."""
    kept = settings.forgetting**event.passed
    root = now.root / jnp.sqrt(kept)
    size = root.shape[-1]
    given = (1.0 - kept) * prior.precision * size * settings.learns
    own = root[:, event.turn, :]
    v = jnp.sum(own * own, axis=-1)
    h = -given / (1.0 + given * v)
    along = jnp.einsum("lhf,lf->lh", root, own)
    off = prior.mean[:, event.turn] - now.mean[:, event.turn]
    gain = h / (1.0 + jnp.sqrt(1.0 + h * v))
    return Posterior(
        now.mean - along * (h * off)[:, None],
        root + gain[:, None, None] * along[:, :, None] * own[:, None, :],
        now.log_scale,
    )
