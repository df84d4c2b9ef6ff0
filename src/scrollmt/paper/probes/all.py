"""Imports every probe, so that each is registered."""

from scrollmt.paper.probes import (
    ce_bias,
    corpus,
    cost,
    coupling,
    default,
    equivariance,
    oracle,
    precision,
)

__all__ = [
    "ce_bias",
    "corpus",
    "cost",
    "coupling",
    "default",
    "equivariance",
    "oracle",
    "precision",
]
