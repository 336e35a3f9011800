"""What context managers restore at their end: kept by thread, since one object may be in use in several at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class _Entered(threading.local):
    def __init__(self) -> None:
        self.before: dict[int, list[int]] = {}


_entered = _Entered()


def enter(manager: object, before: int) -> None:
    """Notes what the manager, which the calling thread enters, has to restore."""
    _entered.before.setdefault(id(manager), []).append(before)


def leave(manager: object, restore: Callable[[int], Any]) -> Any:
    """Restores what the manager, which the calling thread leaves, has noted; first of all, since Ctrl-C may come."""
    stack = _entered.before[id(manager)]
    try:
        return restore(stack[-1])
    finally:
        stack.pop()
        if not stack:
            del _entered.before[id(manager)]
