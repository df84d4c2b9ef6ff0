"""What keeps the time of compilation short: few programs, and little work on those that run once.

An operation of `jnp` outside of `jit` is a program of its own. It is compiled for every shape,
which takes far longer than its work. So arrays outside of programs are made, stacked and cut in
NumPy and copied to the device as they are. Arrays of keys have no form in NumPy and stay with
`jnp`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

# Options of programs that run once or twice in a fit: to optimise them takes longer than it saves.
RUNS_ONCE = {"xla_backend_optimization_level": 0}
_Function = TypeVar("_Function", bound=Callable[..., Any])


def runs_once(function: _Function) -> _Function:
    """`eqx.filter_jit` with these options, which its annotation leaves out."""
    jit: Any = eqx.filter_jit
    compiled: _Function = jit(function, compiler_options=RUNS_ONCE)
    return compiled


def on_device(values: Any, dtype: Any = None) -> Array:
    """Values as an array of JAX, by default in its current precision."""
    dtype = jnp.result_type(float) if dtype is None else dtype
    array: Array = jax.device_put(np.asarray(values, dtype))
    return array


def taken(tree: Any, places: Any) -> Any:
    """Places along the first axes of every array of a tree, on the devices that it is on."""

    def take(leaf: Any) -> Any:
        if not eqx.is_array(leaf) or _is_key(leaf):
            return leaf[places] if eqx.is_array(leaf) else leaf
        return jax.device_put(np.asarray(leaf)[places], leaf.sharding)

    return jax.tree.map(take, tree)


def stacked(trees: Sequence[Any]) -> Any:
    """Trees of one structure as one, with a leading axis of every array."""

    def join(*leaves: Any) -> Any:
        if not eqx.is_array(leaves[0]) or _is_key(leaves[0]):
            return jnp.stack(leaves) if eqx.is_array(leaves[0]) else leaves[0]
        return jax.device_put(np.stack([np.asarray(leaf) for leaf in leaves]))

    return jax.tree.map(join, *trees)


def _is_key(leaf: Array) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))
