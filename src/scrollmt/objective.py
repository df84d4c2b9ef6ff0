r"""The composed objective: log scores of every task plus one prior term per task.

$$F_\text{MT} = \sum_k \Bigl[-\sum_n w_{kn} \log m_{k,n}(y_n^{(k)})
  - \log \int p_{\alpha_k}(w)\, q_k(w)\, dw\Bigr]$$

(`eq:fmt`; each bracket is the shared-cavity loss `eq:bethe` of one task, `lem:compose`).
Terms stay elementwise until the last moment. A row's weight multiplies its data term; a
missing label is a row with weight zero, so its term and its gradient vanish exactly.

A task with a `precision_prior` has $-\log\mathcal{N}(\log\alpha_k;\, m_k, s_k^2)$ in its prior term
too; the paper's objective has none.

Tasks that are coupled by their noise share one joint term per row. By the chain rule it is a sum
over those tasks, each scored given the observed labels of the coupled ones before it; their
weights agree in every row, so that the weight is that of the row's joint term.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from scrollmt.heads import AbstractHead
from scrollmt.model import AbstractModel, Task

# All that is done to data works on both kinds of arrays, which have no type in common.
if TYPE_CHECKING:
    from typing import Any as _Stored
else:
    _Stored = Array | np.ndarray


class Data(eqx.Module):
    """Windows as the objective sees them: inputs, labels and weights by task.

    NumPy arrays and memory maps are accepted; they are copied to a device when they are used.
    """

    x: Float[_Stored, "N D"]
    y: dict[str, _Stored]
    weight: dict[str, Float[_Stored, " N"]]

    def __len__(self) -> int:
        return int(self.x.shape[-2])

    def take(self, rows: Array) -> Data:
        taken: Data = jax.tree.map(lambda leaf: leaf[rows], self)
        return taken


def data_terms(model: AbstractModel, data: Data) -> dict[str, Float[Array, " N"]]:
    r"""$-w_{kn}\log m_{k,n}(y_n)$ for every task and window, in nats."""
    tasks = model.tasks
    read = {
        name: (tasks[name].head, mean, var) for name, (mean, var) in model.project(data.x).items()
    }
    for coupling in model.couplings:
        read |= coupling.in_turn(read, data.y, data.weight)
    return {
        name: -data.weight[name] * head.log_predictive(filled_labels(data, name, head), mean, var)
        for name, (head, mean, var) in read.items()
    }


def filled_labels(data: Data, name: str, head: AbstractHead) -> Array:
    """Labels with the head's own fill where the weight is zero, wherever the data come from.

    A label that the head holds impossible would make the term of weight zero a NaN.
    """
    y, weight = jnp.asarray(data.y[name]), jnp.asarray(data.weight[name])
    seen = (weight > 0.0).reshape(*weight.shape, *(1,) * (y.ndim - weight.ndim))
    return jnp.where(seen, y, jnp.asarray(head.missing_fill, y.dtype))


def prior_term(task: Task) -> Float[Array, ""]:
    """The overlap of the belief with its prior, and the prior of the precision if there is one.

    A belief without a prior term, the point estimate, leaves its precision without use: the term of
    the precision then has its lowest value where the precision starts.
    """
    overlap = task.belief.overlap(task.prior_precision)
    return overlap if task.precision_prior is None else overlap + precision_term(task)


def precision_term(task: Task) -> Float[Array, ""]:
    """The energy of the prior precision under its own prior; zero where it has none."""
    if task.precision_prior is None:
        return jnp.zeros_like(task.log_prior_precision)
    return task.precision_prior.energy(task.log_prior_precision)


def shared_cavity(model: AbstractModel, data: Data, name: str) -> Float[Array, ""]:
    """The single-task loss of one observable: its data terms and its prior term."""
    return jnp.sum(data_terms(model, data)[name]) + prior_term(model.tasks[name])


def task_losses(
    model: AbstractModel, data: Data, *, data_scale: float | Array = 1.0
) -> dict[str, Float[Array, ""]]:
    """The shared-cavity loss of every task by name, for a rule that treats tasks differently."""
    return {
        name: data_scale * jnp.sum(terms) + prior_term(model.tasks[name])
        for name, terms in data_terms(model, data).items()
    }


def composed(
    model: AbstractModel,
    data: Data,
    *,
    data_scale: float | Array = 1.0,
    task_weight: Mapping[str, float | Array] | None = None,
) -> Float[Array, ""]:
    """The plain sum over tasks of their shared-cavity losses.

    `data_scale` is N over the batch size for a minibatch, so that the expected gradient
    is that of the full objective. `task_weight` exists for comparators; the method's own
    weights are all one.
    """
    total = jnp.zeros(())
    for name, loss in task_losses(model, data, data_scale=data_scale).items():
        total = total + (loss if task_weight is None else task_weight[name] * loss)
    return total


def composed_objective(
    model: AbstractModel, data: Data, hyper: dict[str, Any], data_scale: float | Array
) -> Float[Array, ""]:
    """The composed objective plus the penalty on the backbone, as `fit` takes it."""
    penalty: Array = hyper["backbone_l2"] * backbone_penalty(model)
    return composed(model, data, data_scale=data_scale) + penalty


def backbone_penalty(model: AbstractModel) -> Float[Array, ""]:
    """Half the squared norm of the backbone's weight matrices; biases have no penalty."""
    leaves = jax.tree.leaves(eqx.filter(model.backbone, eqx.is_inexact_array))
    squares: list[Array] = [jnp.sum(w * w) for w in leaves if w.ndim >= 2]
    total = sum(squares, start=jnp.zeros(()))
    return 0.5 * total


def mean_nll(
    model: AbstractModel, data: Data, bound: float | None = None
) -> dict[str, Float[Array, ""]]:
    """Mean NLL of each task over its observed windows; zero for a task that has none.

    With a `bound`, no label counts for more nats than that.
    """
    means = {}
    for name, terms in data_terms(model, data).items():
        weight = data.weight[name]
        counted = terms if bound is None else jnp.minimum(terms, bound * weight)
        means[name] = jnp.sum(counted) / jnp.maximum(jnp.sum(weight), np.finfo(terms.dtype).tiny)
    return means


def validation_nll(model: AbstractModel, data: Data) -> Float[Array, ""]:
    """Mean NLL of each task over its observed windows, added over tasks."""
    return sum(mean_nll(model, data).values(), start=jnp.zeros(()))


@dataclass(frozen=True)
class TaskScores:
    """Validation NLL of every group of tasks, and last that of all of them, for `fit` to watch.

    Each group keeps the parameters that are best for itself, so that a label of one task cannot
    stop the training of another. `bound` is the most that one label counts, in nats of the scaled
    targets. A group without validation labels takes what is best for all.
    """

    groups: tuple[tuple[str, ...], ...]
    bound: float | None = None

    def __call__(self, model: AbstractModel, data: Data) -> Float[Array, " J"]:
        means = mean_nll(model, data, self.bound)
        total = sum(means.values(), start=jnp.zeros(()))
        own = []
        for group in self.groups:
            labelled = sum(jnp.sum(data.weight[name]) for name in group) > 0
            score = sum((means[name] for name in group), start=jnp.zeros(()))
            own.append(jnp.where(labelled, score, total))
        return jnp.stack([*own, total])
