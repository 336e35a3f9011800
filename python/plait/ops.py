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
            from plait._dispatch.operations import packet  # which most programs do without

            return packet(name)
        raise MissingFeatureError(f"plait.ops.{self._name}.{name}: there is no such operation")


def load_library(path: str | os.PathLike[str]) -> None:
    """Raises OSError: an extension that was compiled for PyTorch needs its C++ library."""
    raise OSError(f"load_library: {os.fspath(path)}: an extension compiled for PyTorch does not run on Plait")


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"plait.ops has no attribute {name!r}")
    return _Namespace(name)
