"""Backbones of one's own that read a window as a table, or that draw random numbers in training.

    Windowed      x (D,) ──▶ (T, C) ──▶ module ──▶ psi (H,)
    Keyed         x_n (D,), key_n ──▶ module ──▶ psi_n (H,)      in a training step alone

T steps of time, oldest first, of C columns.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeGuard

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Key, PRNGKeyArray


def makes_backbones(given: Any) -> TypeGuard[Callable[..., Any]]:
    """Whether this is a function or class that takes a `key`, rather than a backbone itself."""
    return not isinstance(given, eqx.Module) and callable(given) and _has_key(given)


def _has_key(function: Any) -> bool:
    try:
        return "key" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # a builtin that does not tell its parameters
        return False


@dataclass(frozen=True)
class Layout:
    """The place of each flat input in a window `(T, C)`; a `Recipe` of lags has one."""

    names: tuple[str, ...]
    order: tuple[tuple[int, ...], ...]


class Windowed(eqx.Module):
    """A module from `(T, C)` to `(H,)` as a backbone from the flat inputs `(D,)` of a layout."""

    module: Any
    layout: Layout = eqx.field(static=True)

    def __call__(self, x: Float[Array, " D"], **key: PRNGKeyArray) -> Float[Array, " H"]:
        names = self.layout.names
        if x.shape != (len(names),):
            raise ValueError(
                f"the layout has {len(names)} inputs, from {names[0]} to {names[-1]}, and a window "
                f"of shape {x.shape} came"
            )
        features: Array = self.module(x[np.asarray(self.layout.order)], **key)
        return features


@dataclass(frozen=True)
class WindowedMaker:
    """Makes a `Windowed` backbone from a key."""

    make: Callable[..., Any]
    layout: Layout

    def __call__(self, *, key: PRNGKeyArray) -> Windowed:
        return Windowed(self.make(key=key), self.layout)


def windowed(backbone: Any, layout: Layout) -> Windowed | WindowedMaker:
    """A backbone from a module that reads windows `(T, C)`, or from a function of a key to one.

    Row 0 is the oldest step. `layout` is that of the recipe, `windows.recipe.layout`: inputs are
    found by their names, so that a table with columns in another order is read alike.
    """
    if makes_backbones(backbone):
        return WindowedMaker(backbone, layout)
    return Windowed(backbone, layout)


def columns_of(backbone: Any) -> list[str] | None:
    """The names of the inputs that a backbone needs in this order; None where it has none."""
    if isinstance(backbone, Windowed | WindowedMaker):
        return list(backbone.layout.names)
    return None


# Dropout


class Keyed(eqx.Module):
    """A backbone within one training step, where every window has a key of its own."""

    module: Any
    key: Key[Array, ""]

    def features(self, x: Float[Array, "N D"]) -> Float[Array, "N H"]:
        keys = jax.random.split(self.key, x.shape[0])
        features: Array = jax.vmap(lambda one, key: self.module(one, key=key))(x, keys)
        return features


def mapped(backbone: Any, x: Float[Array, "N D"]) -> Float[Array, "N H"]:
    """The features of many windows."""
    return backbone.features(x) if isinstance(backbone, Keyed) else jax.vmap(backbone)(x)


def takes_key(backbone: Any) -> bool:
    """Whether a backbone, called with one window, takes a `key` too."""
    return _has_key(backbone.module if isinstance(backbone, Windowed) else backbone)


def at_rest(backbone: Any) -> Any:
    """The backbone in inference mode, where dropout does nothing.

    One that takes no key stays as it is: its dropout could not be switched on for training, and
    Equinox then raises an error.
    """
    return eqx.nn.inference_mode(backbone) if takes_key(backbone) else backbone


def in_training(model: Any, key: Key[Array, ""]) -> Any:
    """The model with a backbone that draws from this key, as `fit` takes it."""
    drawing = Keyed(eqx.nn.inference_mode(model.backbone, value=False), key)
    return eqx.tree_at(lambda one: one.backbone, model, drawing)
