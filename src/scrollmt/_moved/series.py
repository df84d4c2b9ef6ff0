"""Moved to `scrollmt._data.series`."""

from scrollmt._io.moved import alias

alias(__name__, "scrollmt._data.series")
