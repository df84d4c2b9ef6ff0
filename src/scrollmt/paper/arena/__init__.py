"""The arena: jobs, the problems that they train on, where they run and how they are recorded."""

from scrollmt.paper.arena.sweep import Summary, compute

__all__ = ["Summary", "compute"]
