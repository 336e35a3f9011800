"""Python values that the engine refers to: memory that tensors share, functions of hooks and nodes."""

from __future__ import annotations

from array import array
from typing import Any

from plait import _core
from plait._runtime import address

_shared: dict[int, Any] = {}
_next_key = iter(range(1, 1 << 62))


def collect() -> None:
    """Lets go of arrays and functions that the engine no longer uses."""
    keys = array("q", bytes(8 * 64))
    while n := _core.bind_Dropped(address(keys), len(keys)):
        for key in keys[:n]:
            _shared.pop(key, None)


def keep(value: Any) -> int:
    """Keeps a Python value that the engine refers to by the returned key, until the engine drops it."""
    key = next(_next_key)
    _shared[key] = value
    return key


def kept(key: int) -> Any:
    """Returns the value with a key."""
    return _shared[key]


def kept_count() -> int:
    """Returns how many Python values the engine refers to."""
    collect()
    return len(_shared)
