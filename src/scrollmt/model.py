r"""A model: one backbone, and per task a head, a belief and a prior precision.

$$x \xrightarrow{\;\text{backbone}\;} \psi \xrightarrow{\;\text{belief}_k\;}
  (\mu_k^\top\psi,\; \psi^\top\Sigma_k\psi) \xrightarrow{\;\text{head}_k\;} m_k(y)$$

Tasks are keyed by name and share nothing but the features (`lem:compose`) and, where they are
coupled, the noise of their labels.
"""

from __future__ import annotations

import abc
import functools
import zlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PRNGKeyArray

from scrollmt.adapters import mapped
from scrollmt.backbone import Columns, Dense
from scrollmt.beliefs import BELIEFS, NARROW, AbstractBelief, Point, Rows, Start
from scrollmt.couplings import Coupling, read_groups
from scrollmt.heads import AbstractHead, Gaussian

Backbone = Callable[[Float[Array, " D"]], Float[Array, " H"]]


class Task(eqx.Module):
    """One observable: its likelihood, its belief and its prior precision."""

    head: AbstractHead
    belief: AbstractBelief
    log_prior_precision: Float[Array, ""]

    @property
    def prior_precision(self) -> Float[Array, ""]:
        return jnp.exp(self.log_prior_precision)


class AbstractModel(eqx.Module):
    """What objectives and scores ask of a model."""

    # Stored by one kind of model and computed by another. For readers and type checkers alone:
    # a dataclass would take a property for the default value of the field of that name.
    if TYPE_CHECKING:

        @property
        @abc.abstractmethod
        def backbone(self) -> Backbone: ...
        @property
        @abc.abstractmethod
        def tasks(self) -> dict[str, Task]: ...
        @property
        @abc.abstractmethod
        def couplings(self) -> tuple[Coupling, ...]: ...

    @abc.abstractmethod
    def project(self, x: Float[Array, "N D"]) -> dict[str, tuple[Array, Array]]:
        """`(mean, var)` of every task's latent line."""


class Model(AbstractModel):
    """A backbone shared by named tasks, some of which may be coupled by their noise."""

    backbone: Backbone
    tasks: dict[str, Task]
    couplings: tuple[Coupling, ...] = ()

    def features(self, x: Float[Array, "N D"]) -> Float[Array, "N H"]:
        return mapped(self.backbone, x)

    def project(self, x: Float[Array, "N D"]) -> dict[str, tuple[Array, Array]]:
        """`(mean, var)` of every task's latent line, the rows of all beliefs in one product."""
        asked = {name: task.belief.rows() for name, task in self.tasks.items()}
        read = self._reader(x)(
            *map(jnp.concatenate, zip(*asked.values(), strict=True)),
            triangular=all(task.belief.triangular for task in self.tasks.values()),
        )
        # Where the responses to each task's rows end, for the three kinds of rows.
        ends = [np.cumsum([len(r) for r in kind]) for kind in zip(*asked.values(), strict=True)]
        shares = zip(*(jnp.split(a, e[:-1]) for a, e in zip(read, ends, strict=True)), strict=True)
        return {
            name: self.tasks[name].belief.line(Rows(*share))
            for name, share in zip(asked, shares, strict=True)
        }

    def _reader(self, x: Float[Array, "N D"]) -> Callable[..., tuple[Array, Array, Array]]:
        if isinstance(self.backbone, Dense):
            return functools.partial(self.backbone.read, x)
        return Columns(self.features(x).T, norm=False).read


def build(
    backbone: Backbone,
    heads: Mapping[str, AbstractHead],
    *,
    features: int,
    belief: str,
    key: PRNGKeyArray,
    cov_floor: float,
    prior_precision: float = 1.0,
    joint: Any = None,
    start: Start = NARROW,
) -> Model:
    """A model at its starting values: heads as given, beliefs at `start`.

    The noise of the Gaussian tasks named by `joint`, one group or several, may be correlated.
    """
    if belief not in BELIEFS:
        raise ValueError(f"unknown belief {belief!r}; choose from {list(BELIEFS)}")
    family = BELIEFS[belief]
    tasks = {}
    for (name, head), k in zip(
        sorted(heads.items()), jax.random.split(key, len(heads)), strict=True
    ):
        if head.rows > 1 and family is not Point:
            raise ValueError(
                f"task {name!r}: {head!r} has no closed form under a belief; "
                "use Ordinal(R), or belief='none'"
            )
        begun = family.init(features, k, rows=head.rows, cov_floor=cov_floor, start=start)
        tasks[name] = Task(head, begun, jnp.log(jnp.asarray(prior_precision, dtype=float)))
    return Model(backbone, tasks, tuple(map(Coupling, read_groups(joint, heads))))


def rescale_task(model: Model, name: str, factor: float, *, scale_floor: bool = False) -> Model:
    r"""The scale map of `prop:scale`: the model of `factor` times a Gaussian task's targets.

    $(\mu, \Sigma, \sigma_\text{obs}^2, \alpha) \mapsto (c\mu, c^2\Sigma,
    c^2\sigma_\text{obs}^2, \alpha/c^2)$. With the floor at zero, or scaled along, the
    composed objective rises by exactly $(N + H)\log c$.
    """
    if name not in model.tasks:
        raise ValueError(f"unknown task {name!r}; the model has {sorted(model.tasks)}")
    if not factor > 0.0:
        raise ValueError(f"the factor must be > 0, got {factor}")
    task = model.tasks[name]
    if not isinstance(task.head, Gaussian):
        raise ValueError(
            f"task {name!r} is {task.head!r}: only a Gaussian task has units to rescale"
        )
    mapped = Task(
        task.head.scaled(factor),
        task.belief.scaled(factor, scale_floor=scale_floor),
        task.log_prior_precision - 2.0 * jnp.log(factor),
    )
    # A correlation has no units, so the couplings stay as they are.
    return Model(model.backbone, {**model.tasks, name: mapped}, model.couplings)


def start_keys(key: PRNGKeyArray, label: str, starts: int = 1) -> list[Key[Array, " 3"]]:
    """For each start, the keys of the backbone's weights, of the beliefs, and of the runs.

    They go by the label of an architecture, so that it starts alike whichever others are tried
    beside it.
    """
    tagged = jax.random.fold_in(key, zlib.crc32(label.encode()))
    return [jax.random.split(one, 3) for one in jax.random.split(tagged, starts)]
