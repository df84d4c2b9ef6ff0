"""What a rule is, and what the rules of this folder have in common."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from scrollmt._fitting.vectors import Tree, flattened


@runtime_checkable
class Rule(Protocol):
    """A rule with a state, which is an argument and a result: the rule itself never changes."""

    def init(self, names: tuple[str, ...]) -> Any:
        """The state before the first step, from the names of the losses in their order."""

    def update(
        self,
        gradients: dict[str, Tree],
        losses: dict[str, Array],
        state: Any,
        hyper: dict[str, Any],
        key: Key[Array, ""],
    ) -> tuple[Tree, Any]:
        """One gradient in the shape of the model, and the state after this step."""


# `combine(gradients, losses, hyper, key)`: gradients and losses by task, to one gradient.
Function: TypeAlias = Callable[
    [dict[str, Tree], dict[str, Array], dict[str, Any], Key[Array, ""]], Tree
]
Combine: TypeAlias = Function | Rule


@dataclass(frozen=True)
class _Stateless:
    """A function as a rule that has no state."""

    function: Function

    def init(self, names: tuple[str, ...]) -> tuple[()]:
        return ()

    def update(
        self,
        gradients: dict[str, Tree],
        losses: dict[str, Array],
        state: tuple[()],
        hyper: dict[str, Any],
        key: Key[Array, ""],
    ) -> tuple[Tree, tuple[()]]:
        return self.function(gradients, losses, hyper, key), ()


def as_rule(combine: Combine) -> Rule:
    return combine if isinstance(combine, Rule) else _Stateless(combine)


def by_task(losses: Array | Mapping[str, Array]) -> dict[str, Array]:
    """What an objective returns, where a rule needs one loss per task."""
    if not isinstance(losses, Mapping):
        raise ValueError(
            "combine= needs an objective that returns one loss per task, a mapping of name "
            f"to scalar, and this one returns an array of shape {losses.shape}"
        )
    return dict(losses)


def backbone_of(model: Tree) -> Tree:
    """What the tasks of a `Model` share."""
    return model.backbone


@dataclass(frozen=True, kw_only=True)
class AbstractRule(abc.ABC):
    """A rule that weights the gradients of the tasks.

    - `shared(model)`: the part of the model that all tasks use. All else is one task's own.
    - `beside`: losses of the objective that belong to no task, such as a penalty. Their gradients
      are added to the result as they are.
    """

    shared: Callable[[Tree], Tree] = backbone_of
    beside: tuple[str, ...] = ()

    @property
    @abc.abstractmethod
    def weights_losses(self) -> bool:
        """Whether a weight counts for the parameters of the task's own head too."""

    @abc.abstractmethod
    def begin(self, count: int) -> Any:
        """The state before the first step, for so many tasks."""

    @abc.abstractmethod
    def weigh(
        self, gram: Float[Array, "K K"], losses: Float[Array, " K"], state: Any, key: Key[Array, ""]
    ) -> tuple[Float[Array, " K"], Any]:
        """The weights of the tasks, and the state after this step.

        `gram` has the inner products of the tasks' gradients, up to one common factor.
        """

    def init(self, names: tuple[str, ...]) -> Any:
        return self.begin(len(self._tasks(names)))

    def update(
        self,
        gradients: dict[str, Tree],
        losses: dict[str, Array],
        state: Any,
        hyper: dict[str, Any],
        key: Key[Array, ""],
    ) -> tuple[Tree, Any]:
        names = self._tasks(gradients)
        rows = jnp.stack([flattened(self.shared(gradients[name])) for name in names])
        # Squares of small numbers would be zero in single precision; no rule sees the factor.
        largest = jnp.max(jnp.abs(rows), initial=0.0)
        scaled = rows / jnp.where(largest > 0.0, largest, 1.0)
        found = jnp.stack([losses[name] for name in names])
        weights, state = self.weigh(scaled @ scaled.T, found, state, key)
        whole = {name: weights[k] for k, name in enumerate(names)}
        added = _sum(gradients, whole if self.weights_losses else {})
        if not self.weights_losses:
            added = eqx.tree_at(
                self.shared,
                added,
                _sum({name: self.shared(one) for name, one in gradients.items()}, whole),
            )
        return added, state

    def _tasks(self, names: Sequence[str] | dict[str, Any]) -> list[str]:
        tasks = sorted(set(names) - set(self.beside))
        if missing := sorted(set(self.beside) - set(names)):
            raise ValueError(
                f"{type(self).__name__}: beside={self.beside} names {missing}, and the objective "
                f"returns the losses {sorted(names)}; name losses of the objective"
            )
        if not tasks:
            raise ValueError(
                f"{type(self).__name__}: every loss of the objective is named in "
                f"beside={self.beside}; leave the losses of the tasks out of it"
            )
        return tasks


def _sum(gradients: dict[str, Tree], weights: dict[str, Array]) -> Tree:
    """The sum of trees, each times its weight where it has one."""
    scaled = [
        jax.tree.map(lambda leaf, w=weights[name]: (w * leaf).astype(leaf.dtype), one)
        if name in weights
        else one
        for name, one in sorted(gradients.items())
    ]
    return jax.tree.map(lambda *leaves: sum(leaves[1:], start=leaves[0]), *scaled)
