"""Imports every probe, so that each is registered."""

from scrollmt.paper.probes import default, oracle

__all__ = ["default", "oracle"]
