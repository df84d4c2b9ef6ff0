"""A backbone for problems whose features are given."""

from __future__ import annotations

import equinox as eqx
from jaxtyping import Array, Float


class Given(eqx.Module):
    """Features that are the inputs."""

    def __call__(self, x: Float[Array, " H"]) -> Float[Array, " H"]:
        return x
