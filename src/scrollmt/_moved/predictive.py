"""Moved to `scrollmt.laws`."""

from scrollmt._io.moved import alias

alias(__name__, "scrollmt.laws")
