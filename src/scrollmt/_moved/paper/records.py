"""Moved to `scrollmt.paper.arena.records`."""

from scrollmt._io.moved import alias

alias(__name__, "scrollmt.paper.arena.records")
