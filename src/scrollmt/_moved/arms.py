"""Moved to `scrollmt.paper.arms`."""

from pkgutil import iter_modules

from scrollmt._io.moved import alias
from scrollmt.paper import arms

for module in iter_modules(arms.__path__):
    alias(f"{__name__}.{module.name}", f"scrollmt.paper.arms.{module.name}")
alias(__name__, "scrollmt.paper.arms")
