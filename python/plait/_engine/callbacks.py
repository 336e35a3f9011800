"""Python values that the engine refers to: memory that tensors share, functions of hooks and nodes.

Python's collector does not see what the engine refers to. So a function that may well refer to the tensor that it is
registered on belongs to the tensor's object, where the collector sees it, and here is a weak reference to it; when the
object goes and others in the engine may still call the function, it comes here.
"""

from __future__ import annotations

from typing import Any
from weakref import ref

from plait import _core

_shared: dict[int, Any] = {}
_next_key = iter(range(1, 1 << 62, 2))  # even keys are of what C code keeps


def collect() -> None:
    """Lets go of arrays and functions that the engine no longer uses."""
    while keys := _core.dropped():
        for key in keys:
            _shared.pop(key, None)


def keep(value: Any) -> int:
    """Keeps a Python value that the engine refers to by the returned key, until the engine drops it."""
    key = next(_next_key)
    _shared[key] = value
    return key


def keep_with(t: Any, value: Any) -> int:
    """Does what `keep` does for a function that is registered on a tensor."""
    key = next(_next_key)
    try:
        held = t._held
    except AttributeError:
        held = t._held = {}
    for gone in [k for k in held if k not in _shared]:
        del held[gone]
    held[key] = _core.hold(_shared, key, value, t._h)
    _shared[key] = ref(held[key])
    return key


def kept(key: int) -> Any:
    """Returns the value with a key."""
    value = _shared[key]
    if not isinstance(value, ref):
        return value
    held = value()
    if held is None:
        raise RuntimeError("backward: a hook has gone with its tensor")
    return held.value


def kept_count() -> int:
    """Returns how many Python values the engine refers to."""
    collect()
    return len(_shared)
