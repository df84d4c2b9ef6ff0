"""The parameters of one run as one vector `(P,)`, and back in the shapes of the model."""

from __future__ import annotations

from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from scrollmt._numerics.compiling import on_device

# A model, or what has its shape: training never looks inside.
Tree: TypeAlias = Any


def flattened(params: Tree) -> Float[Array, " P"]:
    leaves = jax.tree.leaves(params)
    dtype = jnp.result_type(*leaves) if leaves else float
    return jnp.concatenate([jnp.zeros(0, dtype), *(leaf.ravel() for leaf in leaves)])


def shaped(flat: Float[Array, " P"], template: Tree) -> Tree:
    """Parameters in the shapes of a template, which holds one run's `ShapeDtypeStruct`s."""
    leaves, structure = jax.tree.flatten(template)
    ends = np.cumsum([leaf.size for leaf in leaves])
    parts = jnp.split(flat, ends[:-1]) if leaves else []
    return jax.tree.unflatten(
        structure,
        [p.reshape(t.shape).astype(t.dtype) for p, t in zip(parts, leaves, strict=True)],
    )


def shaped_on_host(flat: Float[Array, "*BJ P"], template: Tree) -> Tree:
    """`shaped` of many vectors, cut in NumPy, where `jnp` would compile a program for it."""
    leaves, structure = jax.tree.flatten(template)
    whole = np.asarray(flat)
    parts = np.split(whole, np.cumsum([leaf.size for leaf in leaves])[:-1], axis=-1)
    return jax.tree.unflatten(
        structure,
        [
            on_device(part.reshape(*whole.shape[:-1], *leaf.shape), leaf.dtype)
            for part, leaf in zip(parts, leaves, strict=True)
        ],
    )


def template_of(params: Tree) -> Tree:
    """The shapes of one run of a batch."""
    shape_of: Any = jax.ShapeDtypeStruct
    return jax.tree.map(lambda a: shape_of(a.shape[1:], a.dtype), params)


def check_like(template: Tree, tree: Tree, what: str) -> None:
    """Refuse a tree that has another structure or other shapes than the template."""
    wanted: Any = jax.tree.structure(template)
    found: Any = jax.tree.structure(tree)
    if wanted != found:
        raise ValueError(f"{what} with the structure {found}, and the model has {wanted}")
    shapes = [[jnp.shape(a) for a in jax.tree.leaves(t)] for t in (tree, template)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"{what} of the shapes {shapes[0]}, and the model has {shapes[1]}")
