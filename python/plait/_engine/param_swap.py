"""Tensors in the places of a module's own for a while."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

Place = tuple[dict[str, Any], str, Any]  # a module's table, a name in it, and what is there meanwhile


class _Current(threading.local):
    places: tuple[Place, ...] = ()


_current = _Current()


def places() -> tuple[Place, ...]:
    """Returns what the calling thread has swapped now: a checkpoint runs its function again with the same."""
    return _current.places


@contextmanager
def swapped(values: Sequence[Place]) -> Iterator[None]:
    """Puts values in their places inside `with`."""
    before, kept = _current.places, []
    try:
        for table, name, value in values:
            kept.append((table, name, table[name]))
            table[name] = value
        _current.places = (*before, *values)
        yield
    finally:
        _current.places = before
        for table, name, own in reversed(kept):
            table[name] = own
