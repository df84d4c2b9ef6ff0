"""Moved to `scrollmt.laws.transformed`."""

from scrollmt._io.moved import alias

alias(__name__, "scrollmt.laws.transformed")
