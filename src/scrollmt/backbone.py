r"""The shared feature map from one window's inputs to its features.

$$x \in \mathbb{R}^D \;\mapsto\; \psi(x) \in \mathbb{R}^H$$

A backbone is any Equinox module that maps one point `(D,)` to features `(H,)`; batching
happens outside. `Dense` covers the four variants of the paper (`app:details`, one
bias-free layer, layer norm after the activation) and the deeper biased ones of the
default preset.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "silu": jax.nn.silu,
    "gelu": jax.nn.gelu,
}

PAPER_BACKBONES = ("relu", "relu+ln", "tanh", "tanh+ln")
PAPER_WIDTH = 50
LAYER_NORM_EPS = 1e-5


def layer_norm(z: Float[Array, "*s H"]) -> Float[Array, "*s H"]:
    r"""Centre and scale the last axis; no gain, no bias, so $\|\psi\|^2 \approx H$."""
    centred = z - jnp.mean(z, axis=-1, keepdims=True)
    var = jnp.mean(centred * centred, axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(var + LAYER_NORM_EPS)


class Dense(eqx.Module):
    """Dense layers, each followed by the activation and, where asked, by a layer norm."""

    weights: tuple[Float[Array, "..."], ...]
    biases: tuple[Float[Array, "..."], ...] | None
    activation: str = eqx.field(static=True)
    norm: bool = eqx.field(static=True)

    def __init__(
        self,
        in_size: int,
        widths: Sequence[int],
        *,
        activation: str,
        bias: bool,
        norm: bool,
        key: PRNGKeyArray,
    ):
        if activation not in ACTIVATIONS:
            raise ValueError(f"unknown activation {activation!r}; choose from {list(ACTIVATIONS)}")
        sizes = (in_size, *widths)
        keys = jax.random.split(key, 2 * len(widths))
        self.weights = tuple(
            jax.random.normal(k, (out, fan_in)) / jnp.sqrt(fan_in)
            for k, fan_in, out in zip(keys[::2], sizes[:-1], sizes[1:], strict=True)
        )
        # Spread biases put the bends of the units inside the data instead of all at zero.
        self.biases = (
            tuple(
                jax.random.normal(k, (out,)) for k, out in zip(keys[1::2], sizes[1:], strict=True)
            )
            if bias
            else None
        )
        self.activation = activation
        self.norm = norm

    def __call__(self, x: Float[Array, " D"]) -> Float[Array, " H"]:
        z = x
        for i, weight in enumerate(self.weights):
            z = weight @ z
            if self.biases is not None:
                z = z + self.biases[i]
            z = ACTIVATIONS[self.activation](z)
            if self.norm:
                z = layer_norm(z)
        return z


def paper_backbone(name: str, in_size: int, key: PRNGKeyArray) -> Dense:
    """One of the paper's four: `relu`, `relu+ln`, `tanh`, `tanh+ln`."""
    if name not in PAPER_BACKBONES:
        raise ValueError(f"unknown paper backbone {name!r}; choose from {list(PAPER_BACKBONES)}")
    activation, _, norm = name.partition("+")
    return Dense(
        in_size, (PAPER_WIDTH,), activation=activation, bias=False, norm=norm == "ln", key=key
    )
