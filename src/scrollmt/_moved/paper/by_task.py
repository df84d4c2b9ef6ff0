"""Moved to `scrollmt.paper.tables.by_task`."""

from scrollmt._io.moved import alias

alias(__name__, "scrollmt.paper.tables.by_task")
