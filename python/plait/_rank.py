"""Which rank a thread belongs to."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plait.distributed._groups import ProcessGroup


class Rank:
    """One rank of this process, and its groups."""

    def __init__(self, number: int = 0, size: int = 1) -> None:
        self.number = number
        self.size = size
        self.current: dict[str, int] = {}  # the index that a device without one means, by type; 0 for other types
        self.handle = 0  # of the group of all ranks that were started together
        self.world: ProcessGroup | None = None  # the default group, after init_process_group
        self.groups: dict[int, ProcessGroup] = {}  # that were made from it
        self.waits: set[Callable[[], object]] = set()  # for what goes on beside the rank and needs its groups

    def finish(self) -> None:
        """Waits for what goes on beside the rank, and raises the first error that nobody has been told of."""
        failed = None
        for wait in tuple(self.waits):
            self.waits.discard(wait)
            try:
                wait()
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise failed


class _Place(threading.local):
    rank: Rank | None = None


# What a thread knows of its rank; helper threads that a rank starts set it to the same.
place = _Place()
_alone = Rank()


def here() -> Rank:
    """Returns the rank that the calling thread belongs to. Threads that belong to none share a world of one."""
    return place.rank or _alone
