"""Imports every probe, so that each is registered."""

from scrollmt.paper.probes import default

__all__ = ["default"]
