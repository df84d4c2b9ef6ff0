r"""A model: one backbone, and per task a head, a belief and a prior precision.

$$x \xrightarrow{\;\text{backbone}\;} \psi \xrightarrow{\;\text{belief}_k\;}
  (\mu_k^\top\psi,\; \psi^\top\Sigma_k\psi) \xrightarrow{\;\text{head}_k\;} m_k(y)$$

Tasks are keyed by name and share nothing but the features (`lem:compose`) and, where they are
coupled, the noise of their labels.
"""

from __future__ import annotations

import abc
import functools
import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PRNGKeyArray

from scrollmt._numerics.normal import LOG_SQRT_2PI
from scrollmt.adapters import mapped
from scrollmt.backbone import Columns, Dense
from scrollmt.beliefs import (
    NARROW,
    AbstractBelief,
    Choices,
    Point,
    Rows,
    Start,
    read_beliefs,
)
from scrollmt.couplings import Coupling, read_groups
from scrollmt.heads import AbstractHead, Gaussian

Backbone = Callable[[Float[Array, " D"]], Float[Array, " H"]]


@dataclass(frozen=True)
class PrecisionPrior:
    r"""A prior of a task's own prior precision: $\log\alpha \sim \mathcal{N}(\text{mean},
    \text{sd}^2)$."""

    mean: float
    sd: float

    def energy(self, log_precision: Float[Array, ""]) -> Float[Array, ""]:
        r"""$-\log\mathcal{N}(\log\alpha;\, \text{mean}, \text{sd}^2)$."""
        z = (log_precision - self.mean) / self.sd
        return LOG_SQRT_2PI + math.log(self.sd) + 0.5 * z * z


class Task(eqx.Module):
    """One observable: its likelihood, its belief and its prior precision.

    Without a `precision_prior` the objective has no term for the prior precision alone.
    """

    head: AbstractHead
    belief: AbstractBelief
    log_prior_precision: Float[Array, ""]
    precision_prior: PrecisionPrior | None = eqx.field(static=True, default=None)

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
        """`(mean, var)` of every task's latent line.

        The rows of all beliefs go through one product; roots of another shape take one more.
        """
        asked = {name: task.belief.rows() for name, task in self.tasks.items()}
        groups = self._groups(asked)
        read = self._reader(x, whole=len(groups) == 1)
        lines = {}
        for (_, triangular), names in groups.items():
            kinds = list(zip(*(asked[name] for name in names), strict=True))
            linear, square, roots = kinds
            # Beliefs without roots are in the group too, and their empty array has another shape.
            filled = [root for root in roots if len(root)] or roots[:1]
            together = map(jnp.concatenate, (linear, square, filled))
            answers = read(*together, triangular=triangular)
            # Where the responses to each task's rows end, for the three kinds of rows.
            ends = [np.cumsum([len(rows) for rows in kind])[:-1] for kind in kinds]
            shares = zip(*map(jnp.split, answers, ends), strict=True)
            for name, share in zip(names, shares, strict=True):
                lines[name] = self.tasks[name].belief.line(Rows(*share))
        return {name: lines[name] for name in asked}

    def _groups(self, asked: Mapping[str, Rows]) -> dict[tuple[int, bool], list[str]]:
        """Tasks whose roots have one shape; those without roots join the first group."""
        shapes = {
            name: (rows.roots.shape[1], self.tasks[name].belief.triangular)
            for name, rows in asked.items()
            if len(rows.roots)
        }
        first = next(iter(shapes.values()), (0, False))
        groups: dict[tuple[int, bool], list[str]] = {}
        for name in asked:
            groups.setdefault(shapes.get(name, first), []).append(name)
        return groups

    def _reader(
        self, x: Float[Array, "N D"], *, whole: bool
    ) -> Callable[..., tuple[Array, Array, Array]]:
        """How rows are read: all at once, or over columns that several reads share."""
        if not isinstance(self.backbone, Dense):
            return Columns(self.features(x).T, norm=False).read
        return functools.partial(self.backbone.read, x) if whole else self.backbone.columns(x).read


def build(
    backbone: Backbone,
    heads: Mapping[str, AbstractHead],
    *,
    features: int,
    belief: Choices,
    key: PRNGKeyArray,
    cov_floor: float,
    prior_precision: float | None = None,
    joint: Any = None,
    start: Start = NARROW,
) -> Model:
    """A model at its starting values: heads as given, beliefs and prior precisions at `start`.

    A given `prior_precision` takes the place of that of `start`.

    `belief` is a name, a belief class, one with options (`LowRank.of(rank=8)`), or a mapping of
    these by task.
    The noise of the Gaussian tasks named by `joint`, one group or several, may be correlated.
    """
    makers = read_beliefs(belief, heads)
    if prior_precision is not None:
        start = replace(start, prior_precision=prior_precision)
    log_precision = jnp.log(jnp.asarray(start.prior_precision, dtype=float))
    prior = None
    if start.precision_sd is not None:
        prior = PrecisionPrior(math.log(start.prior_precision), start.precision_sd)
    tasks = {}
    for (name, head), k in zip(
        sorted(heads.items()), jax.random.split(key, len(heads)), strict=True
    ):
        if head.point_only and not issubclass(makers[name].kind, Point):
            raise ValueError(
                f"task {name!r}: {head!r} has no closed form under a belief; "
                "use Ordinal(R), or belief='none'"
            )
        begun = makers[name](features, k, rows=head.rows, cov_floor=cov_floor, start=start)
        wanted = (features,) if head.rows == 1 else (head.rows, features)
        if begun.mu.shape != wanted:
            raise ValueError(
                f"task {name!r}: {head!r} reads a mean of shape {wanted}, and {makers[name]!r} "
                f"made one of shape {begun.mu.shape}; its init must take rows={head.rows}"
            )
        tasks[name] = Task(head, begun, log_precision, prior)
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
    prior = task.precision_prior
    if prior is not None:
        prior = replace(prior, mean=prior.mean - 2.0 * math.log(factor))
    mapped = Task(
        task.head.scaled(factor),
        task.belief.scaled(factor, scale_floor=scale_floor),
        task.log_prior_precision - 2.0 * jnp.log(factor),
        prior,
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
