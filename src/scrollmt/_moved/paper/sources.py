"""Moved to `scrollmt.paper.arena.sources`."""

from scrollmt._io.moved import alias

alias(__name__, "scrollmt.paper.arena.sources")
