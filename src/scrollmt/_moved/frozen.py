"""Moved to `scrollmt.laws.frozen`. `scrollmt.frozen` is also the function, which stays callable."""

import sys
from types import ModuleType
from typing import Any, final

from scrollmt._io.moved import alias


@final
class _CallableModule(ModuleType):
    def __call__(self, law: Any) -> Any:
        return self.__dict__["frozen"](law)


alias(__name__, "scrollmt.laws.frozen")
sys.modules[__name__].__class__ = _CallableModule
