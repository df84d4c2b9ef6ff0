"""Moved to `scrollmt.windows.answers`."""

from scrollmt._io.moved import alias

alias(__name__, "scrollmt.windows.answers")
