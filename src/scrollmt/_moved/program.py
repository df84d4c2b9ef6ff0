"""Moved to `scrollmt._fitting.step`."""

from scrollmt._io.moved import alias

alias(__name__, "scrollmt._fitting.step")
