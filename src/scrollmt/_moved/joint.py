"""Moved to `scrollmt.laws.joint`."""

from scrollmt._io.moved import alias

alias(__name__, "scrollmt.laws.joint")
