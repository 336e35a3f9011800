"""Ranks that are processes: this process's part in a world that a launcher started."""

from __future__ import annotations

import atexit
import sys
from array import array
from types import TracebackType

from plait import _core
from plait._engine.rank import Rank, here
from plait._engine.runtime import address, check
from plait._errors import text_of


class ProcessWorld:
    """The world of processes that this process has joined, whose ranks are the processes."""

    def __init__(self, timeout: int, heartbeat: int) -> None:
        """Joins. It waits for the other processes.

        Args:
            timeout: how long a rank waits for the others, in nanoseconds; 0 for the default
            heartbeat: how long a process may be silent; the same

        Raises:
            DistributedError: if MPI is missing or does not fit the launcher, or a process does not join.
        """
        groups = array("q", (0,))
        self._handle = check(_core.bind_WorldJoin(1, timeout, heartbeat, sys.prefix, address(groups)))
        self._rank: Rank = here()
        self._rank.handle = groups[0]
        self._rank.number = check(_core.bind_GroupRank(groups[0]))
        self._rank.size = check(_core.bind_GroupSize(groups[0]))
        self._before = sys.excepthook
        sys.excepthook = self._report
        atexit.register(self._leave)

    def _report(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Tells the other ranks that an exception ends this one."""
        try:
            self._before(kind, error, trace)  # writes the launcher's report, which comes before those of others
        finally:
            status = _core.bind_WorldAbort(self._handle, f"it raised {kind.__name__}: {text_of(error)}")
            if status < 0:
                _core.bind_ErrorRelease(status)

    def _leave(self) -> None:
        """Ends the rank, and waits for the others to come to their ends, for a limited time."""
        try:
            self._rank.finish()
        finally:
            self._rank.handle = 0
            if (status := _core.bind_WorldClose(self._handle)) < 0:
                _core.bind_ErrorRelease(status)


_world: ProcessWorld | None = None


def join_processes(timeout: int, heartbeat: int) -> None:
    """Makes this process a rank of the world that a launcher started. Later calls do nothing. See `ProcessWorld`."""
    global _world
    if _world is None:
        _world = ProcessWorld(timeout, heartbeat)
