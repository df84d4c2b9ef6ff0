"""Moved to `scrollmt._numerics.quadrature`."""

from scrollmt._io.moved import alias

alias(__name__, "scrollmt._numerics.quadrature")
