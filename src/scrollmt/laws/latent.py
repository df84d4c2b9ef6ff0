r"""Laws of a number given a Gaussian latent line, as mixtures over the members of an ensemble.

    y_n | a ~ p(y | a; eta_m),    a ~ N(latent_mean_nm, latent_var_nm),    m uniform over 1 .. M

Shapes: ``latent_mean`` and ``latent_var`` are (N, M), the learned parameters eta of the noise (M,).
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from jaxtyping import Float

from scrollmt.laws.base import MemberWeights, Numbers
from scrollmt.laws.real import Members, RealLaw, members


class LatentLaw(RealLaw):
    """What Student-t and count laws have in common; `learned` names the parameters of the noise.

    `latent_mean` and `latent_var` are (N,), or (N, M) for an equal-weight mixture of M members; a
    learned parameter is a scalar or (M,). The constructor takes them in this order. An ensemble
    (`mix`) of equal weights is a law of this class: the CRPS of a `MixtureLaw` has about four
    digits, and its quantiles need many more evaluations. With weights it is a `MixtureLaw`.
    """

    learned: ClassVar[tuple[str, ...]]
    latent_mean: Members
    latent_var: Members

    def __init__(self, latent_mean: Numbers, latent_var: Numbers, *noise: Numbers) -> None:
        name = type(self).__name__
        mean, var = (
            members(latent_mean, name, "latent_mean"),
            members(latent_var, name, "latent_var"),
        )
        if var.shape != mean.shape or (var < 0.0).any():
            raise ValueError(
                f"{name}: latent_mean has shape {mean.shape}, latent_var has shape {var.shape}; "
                "they must agree, and variances are not negative"
            )
        # Laws are frozen for their users.
        object.__setattr__(self, "latent_mean", mean)
        object.__setattr__(self, "latent_var", var)
        for parameter, value in zip(self.learned, noise, strict=True):
            each = np.broadcast_to(np.asarray(value, np.float64), mean.shape[1:])
            object.__setattr__(self, parameter, each)

    @property
    @abc.abstractmethod
    def noise(self) -> tuple[Float[np.ndarray, " M"], ...]:
        """The learned parameters, in the order of `learned`."""

    def __len__(self) -> int:
        return len(self.latent_mean)

    def _rows(self, rows: np.ndarray) -> Self:
        return type(self)(self.latent_mean[rows], self.latent_var[rows], *self.noise)

    @classmethod
    def _mix(cls, laws: Sequence[Any], weights: MemberWeights | None) -> Any:
        counts = {law.latent_mean.shape[1] for law in laws}
        if weights is not None or len(counts) > 1:
            return super()._mix(laws, weights)
        return cls(
            np.concatenate([law.latent_mean for law in laws], axis=1),
            np.concatenate([law.latent_var for law in laws], axis=1),
            *(np.concatenate(each) for each in zip(*(law.noise for law in laws), strict=True)),
        )
