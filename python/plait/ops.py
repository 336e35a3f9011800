"""Operations of `plait.library.custom_op` by name: `plait.ops.namespace.name`.

Of PyTorch's own there are ranges of profiles, and in the namespace `aten` the functions by the names of its overloads.
"""

from __future__ import annotations

import os
from typing import Any

from plait import profiler as _profiler
from plait._errors import MissingFeatureError
from plait.library import OPERATIONS

_OWN = {
    ("profiler", "_record_function_enter"): _profiler._record_function_enter,
    ("profiler", "_record_function_exit"): _profiler._record_function_exit,
}


_aten: dict[str, _Function] = {}


class _Function:
    """A function by PyTorch's inner name, `aten.add`, or an overload of it, `aten.add.Tensor`.

    Names that are no function's or method's here can be compared, and used as keys; a call raises.
    """

    def __init__(self, name: str, overload: str = "") -> None:
        self.__name__, self._overload = name, overload

    def __getattr__(self, name: str) -> _Function:
        if self._overload or name.startswith("__"):
            raise AttributeError(f"plait.ops.{self} has no attribute {name!r}")
        found = self.__dict__[name] = _Function(self.__name__, name)
        return found

    def __repr__(self) -> str:
        return ".".join(filter(None, ("aten", self.__name__, self._overload)))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        import plait

        function = getattr(plait, self.__name__, None) or getattr(plait.Tensor, self.__name__, None)
        if function is None:
            raise MissingFeatureError(f"plait.ops.{self}: there is no such operation")
        return function(*args, **kwargs)


class _Namespace:
    """The operations of a namespace."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if (self._name, name) in _OWN:
            return _OWN[self._name, name]
        if (self._name, name) in OPERATIONS:
            return OPERATIONS[self._name, name]
        if self._name == "aten" and not name.startswith("__"):
            return _aten.setdefault(name, _Function(name))
        raise MissingFeatureError(f"plait.ops.{self._name}.{name}: there is no such operation")


def load_library(path: str | os.PathLike[str]) -> None:
    """Raises OSError: an extension that was compiled for PyTorch needs its C++ library."""
    raise OSError(f"load_library: {os.fspath(path)}: an extension compiled for PyTorch does not run on Plait")


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"plait.ops has no attribute {name!r}")
    return _Namespace(name)
