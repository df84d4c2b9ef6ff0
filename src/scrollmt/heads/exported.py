"""What a head writes into an ONNX graph: the arguments of its law, and how members are mixed.

A head returns one of these kinds for each member of an ensemble (`AbstractHead.onnx_outputs`). All
values are float64, in the user's units. Shapes: N windows, R classes, C components,
M members.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self, final

import numpy as np

from scrollmt._numerics.graph import Value, concatenated, log_bucket_mass, stack
from scrollmt.laws import Cut


class Exported(abc.ABC):
    """The arguments of one member's law as tensors."""

    @classmethod
    @abc.abstractmethod
    def mixed(
        cls, members: Sequence[Self], weights: np.ndarray, *, moments: bool
    ) -> dict[str, Value]:
        """The outputs of a task by name, for the members selected for it.

        Weights add to one. With `moments` a law of a normal value has two moments only.
        """

    def cut(self, cut: Cut) -> ExportedClasses | None:
        """The law of classes that a number is cut into; None without such a form."""
        return None

    def as_mixture(self) -> ExportedMixture | None:
        """The law as one of normal components; None where it is none."""
        return None


@final
@dataclass(frozen=True)
class ExportedClasses(Exported):
    """Log masses (N, R); of members it is the masses that are averaged."""

    log_probs: Value

    @classmethod
    def mixed(
        cls, members: Sequence[Self], weights: np.ndarray, *, moments: bool
    ) -> dict[str, Value]:
        tables = stack(one.log_probs for one in members) + np.log(weights)
        log_probs = tables.total("ReduceLogSumExp")
        return {"log_probs": log_probs, "probs": log_probs.apply("Exp")}


@final
@dataclass(frozen=True)
class ExportedNormal(Exported):
    """Mean and variance (N,) of a normal value; `prefix` is put before the names of outputs.

    `mean` and `sd` are those of the mixture. Of several members, `means`, `sds` (N, M) and
    `weights` (M,) are the mixture itself.
    """

    mean: Value
    var: Value
    prefix: str = ""

    def as_mixture(self) -> ExportedMixture | None:
        if self.prefix:
            return None
        mean = self.mean.column()
        return ExportedMixture(mean, self.var.column(), mean * 0.0)

    def cut(self, cut: Cut) -> ExportedClasses | None:
        mixture = self.as_mixture()
        return None if mixture is None else mixture.cut(cut)

    @classmethod
    def mixed(
        cls, members: Sequence[Self], weights: np.ndarray, *, moments: bool
    ) -> dict[str, Value]:
        means, variances = stack(one.mean for one in members), stack(one.var for one in members)
        centre = (means * weights).total()
        apart = means - centre.column()
        var = ((variances + apart * apart) * weights).total()
        outputs = {"mean": centre, "sd": var.apply("Sqrt")}
        if len(members) > 1 and not moments:
            shares = means.graph.constant(weights, float)
            components = {"means": means, "sds": variances.apply("Sqrt"), "weights": shares}
            outputs |= {name: value.apply("Identity") for name, value in components.items()}
        return {f"{members[0].prefix}{name}": value for name, value in outputs.items()}


@final
@dataclass(frozen=True)
class ExportedMixture(Exported):
    """Means and variances (N, C) of normal components, and the logarithms of their shares.

    `mean` and `sd` are those of the mixture; `means`, `sds` and `weights`, the mixture itself, are
    (N, M C) for M members.
    """

    means: Value
    variances: Value
    log_weights: Value

    def as_mixture(self) -> ExportedMixture:
        return self

    def cut(self, cut: Cut) -> ExportedClasses:
        ends = [-np.inf, *cut.edges, np.inf]
        bands = list(pairwise(ends))[:: -1 if cut.falling else 1]
        spread = self.variances.apply("Sqrt")
        masses = []
        for low, high in bands:
            sides = ((end - self.means) / spread for end in (low, high))
            mass = log_bucket_mass(*sides) + self.log_weights
            masses.append(mass.total("ReduceLogSumExp"))
        return ExportedClasses(stack(masses))

    @classmethod
    def mixed(
        cls, members: Sequence[Self], weights: np.ndarray, *, moments: bool
    ) -> dict[str, Value]:
        means = concatenated([one.means for one in members])
        variances = concatenated([one.variances for one in members])
        logs = [one.log_weights + np.log(w) for one, w in zip(members, weights, strict=True)]
        shares = concatenated(logs).apply("Exp")
        centre = (means * shares).total()
        apart = means - centre.column()
        var = ((variances + apart * apart) * shares).total()
        return {
            "mean": centre,
            "sd": var.apply("Sqrt"),
            "means": means,
            "sds": variances.apply("Sqrt"),
            "weights": shares,
        }


@final
@dataclass(frozen=True)
class ExportedLatent(Exported):
    """Mean and variance (N,) of the latent line, and the learned parameters of the noise by name.

    Of M members `latent_mean` and `latent_var` are (N, M), learned parameters and `weights` (M,).
    """

    mean: Value
    var: Value
    learned: Mapping[str, float]

    @classmethod
    def mixed(
        cls, members: Sequence[Self], weights: np.ndarray, *, moments: bool
    ) -> dict[str, Value]:
        graph = members[0].mean.graph
        learned = {
            name: graph.constant([one.learned[name] for one in members], float).apply("Identity")
            for name in members[0].learned
        }
        means, variances = stack(one.mean for one in members), stack(one.var for one in members)
        shares = graph.constant(weights, float).apply("Identity")
        return {"latent_mean": means, "latent_var": variances, "weights": shares, **learned}


def mixed(members: Sequence[Exported], weights: np.ndarray, *, moments: bool) -> dict[str, Value]:
    """The outputs of a task; members of unlike kinds are written as normal components."""
    kinds = {type(one) for one in members}
    if len(kinds) == 1:
        return type(members[0]).mixed(members, weights, moments=moments)
    mixtures = [one.as_mixture() for one in members]
    normal = [one for one in mixtures if one is not None]
    if len(normal) < len(mixtures):
        names = sorted(kind.__name__ for kind in kinds)
        raise ValueError(f"laws of the kinds {names} cannot be mixed in an ONNX graph")
    return ExportedMixture.mixed(normal, weights, moments=moments)
