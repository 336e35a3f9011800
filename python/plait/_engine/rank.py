"""Which rank a thread belongs to."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from concurrent import futures
from typing import TYPE_CHECKING, Any

from plait import _core

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
        self.context = 0  # of the engine's, for a rank that `spawn` started
        self.error_raised = False  # the rank got a DistributedError, or its function has raised
        self._lock, self._inside = threading.Lock(), 1
        self._threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()  # that the rank waits for
        self._tasks: weakref.WeakSet[futures.Future[Any]] = weakref.WeakSet()

    def enter(self) -> bool:
        """Counts a thread in, which may then work in the rank's context. False once the rank is over."""
        with self._lock:
            if self._inside == 0:
                return False
            self._inside += 1
            self._add_threads(1)
            return True

    def leave(self) -> None:
        """Counts a thread out. The last one ends the context, which none may be in."""
        with self._lock:
            self._inside -= 1
            if self._inside:
                self._add_threads(-1)
                return
        running.discard(self)
        _core.bind_RankEnd(self.context)

    def _add_threads(self, n: int) -> None:
        """Tells the engine that more threads, or fewer, make calls for the rank."""
        if self.handle:
            _core.bind_GroupAddThreads(self.handle, n)

    def end(self) -> int:
        """Returns the handle of the rank's group for the last time."""
        with self._lock:
            handle, self.handle = self.handle, 0
            return handle

    def await_thread(self, thread: threading.Thread) -> None:
        """Has the end of the rank wait for a thread."""
        with self._lock:
            self._threads.add(thread)

    def await_task(self, task: futures.Future[Any]) -> None:
        """Has the end of the rank wait for a task that was given to a pool."""
        with self._lock:
            self._tasks.add(task)
            self._add_threads(1)  # although it has no thread yet
        task.add_done_callback(self._forget)

    def _forget(self, _: futures.Future[Any]) -> None:
        with self._lock:
            self._add_threads(-1)

    def join(self) -> None:
        """Waits for threads and tasks, and for those that they start."""
        while True:
            with self._lock:
                threads = [t for t in self._threads if t.is_alive()]
                tasks = [t for t in self._tasks if not t.done()]
            if not threads and not tasks:
                return
            for t in threads:
                t.join()
            futures.wait(tasks)

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
    pass_group: Any = None  # the handle on its group for the collectives of a communication hook


# What a thread knows of its rank; threads that a rank starts have the same.
place = _Place()
running: set[Rank] = set()  # ranks that `spawn` started and that are not over
_alone = Rank()


def here() -> Rank:
    """Returns the rank that the calling thread belongs to. Threads that belong to none share a world of one."""
    return place.rank or _alone
