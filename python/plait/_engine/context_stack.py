"""What context managers restore at their end: kept by thread, since one object may be in use in several at once."""

from __future__ import annotations

import threading


class _Entered(threading.local):
    def __init__(self) -> None:
        self.before: dict[int, list[int]] = {}


_entered = _Entered()


def enter(manager: object, before: int) -> None:
    """Notes what the manager, which the calling thread enters, has to restore."""
    _entered.before.setdefault(id(manager), []).append(before)


def leave(manager: object) -> int:
    """Returns what the manager, which the calling thread leaves, has to restore."""
    stack = _entered.before[id(manager)]
    before = stack.pop()
    if not stack:
        del _entered.before[id(manager)]
    return before
