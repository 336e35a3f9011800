"""Ranges and marks under NVTX's names. They are those of `plait.profiler`, and cheap where nothing is profiled."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator
from typing import Any

from plait.profiler import record_function

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]

_numbers = itertools.count(1)
_started: dict[int, record_function] = {}  # by number; an entry is one thread's until it ends


class _Thread(threading.local):
    def __init__(self) -> None:
        self.open: list[record_function] = []


_thread = _Thread()


def _begin(msg: str) -> record_function:
    made = record_function(str(msg))
    made.__enter__()
    return made


def range_push(msg: str) -> int:
    """Begins a range of the calling thread. Returns how many it is inside of."""
    _thread.open.append(_begin(msg))
    return len(_thread.open) - 1


def range_pop() -> int:
    """Ends the calling thread's last range. Returns how many it was inside of, -1 where there was none."""
    if _thread.open:
        _thread.open.pop().__exit__()
        return len(_thread.open)
    return -1


def range_start(msg: str) -> int:
    """Begins a range that may overlap others. Returns its number."""
    number = next(_numbers)
    _started[number] = _begin(msg)
    return number


def range_end(range_id: int) -> None:
    """Ends the range with a number, by the same thread or another."""
    if (found := _started.pop(range_id, None)) is not None:
        found.__exit__()


def mark(msg: str) -> None:
    """Marks a moment: a range without length."""
    _begin(msg).__exit__()


@contextlib.contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """Names what is inside `with range(msg):`, or a decorated function; `msg.format(*args, **kwargs)` is the name."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
