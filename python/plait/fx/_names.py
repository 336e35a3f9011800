"""Names: of functions as programs import them, and of nodes."""

from __future__ import annotations

import builtins
import keyword
import operator
import re
import sys
from collections import defaultdict
from collections.abc import Callable
from enum import Enum
from types import ModuleType
from typing import Any

import plait
import plait.nn.functional
from plait import _device, _dtype, _layout

# The modules whose functions have public names, in the order in which names are looked for.
_PUBLIC = ("plait", "plait.nn.functional", "plait.special", "plait.linalg", "plait.fft", "plait.func", "plait.nn.init")

_found: dict[int, tuple[Any, str]] = {}


def top() -> tuple[str, ModuleType]:
    """Returns the name that the package has in programs, `torch` after `plait.torch.install()`, and the module."""
    door = sys.modules.get("plait.torch")
    if door is not None and door.installed():
        return "torch", sys.modules["torch"]
    return "plait", plait


def _look_up(function: Any) -> str:
    name = getattr(function, "__name__", "") or "<none>"
    modules = [m for m in map(sys.modules.get, _PUBLIC) if m is not None]
    for module in modules:
        if getattr(module, name, None) is function:
            return f"{module.__name__}.{name}"
    for module in modules:
        for other, value in vars(module).items():
            if value is function and other[0] != "_":
                return f"{module.__name__}.{other}"
    return ""


def public_name(function: Any) -> str:
    """Returns the name under which a function of the package can be imported; "" if it has none."""
    known = _found.get(id(function))
    if known is None or known[0] is not function:
        known = _found[id(function)] = (function, _look_up(function))
    return known[1]


def qualified_name(function: Callable[..., Any]) -> str:
    """Returns a function's name with its module, as it is shown: `operator.add`, `torch.relu` after `install()`."""
    if public := public_name(function):
        return public.replace("plait", top()[0], 1)
    name = getattr(function, "__name__", type(function).__name__)
    if getattr(builtins, name, None) is function:
        return f"builtins.{name}"
    if getattr(operator, name, None) is function:
        return f"operator.{name}"
    module = getattr(function, "__module__", None)
    if module == "plait" or (module or "").startswith("plait."):
        return f"{module}.{getattr(function, '__qualname__', name)}".replace("plait", top()[0], 1)
    return f"{module}.{name}" if module else name


def shown(value: Any, name_of: Callable[[Any], str] = qualified_name) -> str:
    """Returns an argument as an expression.

    Args:
        value: the argument
        name_of: returns the expression for a function or a class
    """
    if isinstance(value, tuple | list) and not hasattr(value, "_fields"):
        parts = ", ".join(shown(v, name_of) for v in value)
        if isinstance(value, list):
            return f"[{parts}]"
        return f"({parts},)" if len(value) == 1 else f"({parts})"
    if isinstance(value, tuple):
        return f"{name_of(type(value))}({', '.join(shown(v, name_of) for v in value)})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {shown(v, name_of)}" for k, v in value.items()) + "}"
    if isinstance(value, slice | range):
        parts = ", ".join(shown(v, name_of) for v in (value.start, value.stop, value.step))
        return f"{type(value).__name__}({parts})"
    if isinstance(value, _dtype.dtype):
        return f"{top()[0]}.{value.name}"
    if isinstance(value, _layout.Layout | _layout.MemoryFormat):
        return f"{top()[0]}.{repr(value).rpartition('.')[2]}"
    if isinstance(value, _device.device):
        return repr(value)
    if isinstance(value, Enum):
        return f"{name_of(type(value))}.{value.name}"
    if isinstance(value, type) or (callable(value) and hasattr(value, "__name__")):
        return name_of(value)
    return repr(value)


_SUFFIX = re.compile(r"(.*)_(\d+)$")
_TAKEN = {"inf", "nan", "device", "NoneType", "torch", "plait", "self"}


def snake_case(name: str) -> str:
    """Returns a name of a class as one of a variable."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


class Namespace:
    """Gives names that are identifiers, none twice, and none that Python or generated code has."""

    def __init__(self) -> None:
        self._owners: dict[Any, str] = {}
        self._used: set[str] = set()
        self._last: defaultdict[str, int] = defaultdict(int)

    def create_name(self, candidate: str, obj: Any) -> str:
        """Returns a name like the candidate; the same again for the same object, unless that is None."""
        if obj is not None and obj in self._owners:
            return self._owners[obj]
        candidate = re.sub(r"[^0-9a-zA-Z_]+", "_", candidate) or "_unnamed"
        if candidate[0].isdigit():
            candidate = f"_{candidate}"
        match = _SUFFIX.match(candidate)
        base, number = (match[1], int(match[2])) if match else (candidate, 0)
        candidate = f"{base}_{number}" if match else base
        number = number or self._last[base]
        while candidate in self._used or self._illegal(candidate, obj):
            number += 1
            candidate = f"{base}_{number}"
        self._used.add(candidate)
        self._last[base] = number
        if obj is not None:
            self._owners[obj] = candidate
        return candidate

    def rename(self, obj: Any, name: str) -> None:
        """Gives an object a name that has been created for nobody."""
        self._owners[obj] = name
        self._used.add(name)

    def _illegal(self, name: str, obj: Any) -> bool:
        if keyword.iskeyword(name) or name in _TAKEN:
            return True
        return hasattr(builtins, name) and getattr(builtins, name) is not obj
