"""Moved to `scrollmt.paper.arena.jobs`."""

from scrollmt._io.moved import alias

alias(__name__, "scrollmt.paper.arena.jobs")
