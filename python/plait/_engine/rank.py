"""`Rank`, the state of one rank, and the rank of each thread."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from concurrent import futures
from typing import TYPE_CHECKING, Any

from plait import _core

if TYPE_CHECKING:
    from plait.distributed._groups import ProcessGroup
    from plait.distributed._spawn import SpawnContext


class Rank:
    """The state of one rank of this process."""

    def __init__(self, number: int = 0, size: int = 1, context: int = 0) -> None:
        self.number = number
        self.size = size
        self.current: dict[str, int] = {}  # by device type, the index of a device that is given without one
        self.handle = 0  # of the group of all ranks
        self.world: ProcessGroup | None = None  # the default group, after init_process_group
        self.groups: dict[int, ProcessGroup] = {}  # other groups, by handle
        self.waits: set[Callable[[], object]] = set()  # functions that wait for asynchronous work, called at the end
        self.context = context  # handle of the engine's context, for a rank of `spawn`
        self.error_raised = False  # the rank got a DistributedError, or its function has raised
        self.spawned: SpawnContext | None = None  # what started the rank, if `spawn` did
        self.passes = 0  # begun by models that exchange distributed tensors
        self.passing = False  # inside of one
        self.meshes: weakref.WeakSet[Any] = weakref.WeakSet()  # the meshes that it has made, without their slices
        self.across = False  # its world has ranks of other processes
        self._lock, self._inside = threading.Lock(), 1
        self._others = 0  # threads and tasks beside the rank's main thread
        self._threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()  # that the rank waits for
        self._tasks: weakref.WeakSet[futures.Future[Any]] = weakref.WeakSet()

    def enter(self) -> bool:
        """Registers a thread that works in the rank's context. Returns False if the rank has ended."""
        with self._lock:
            if self._inside == 0:
                return False
            self._inside += 1
            self._add_threads(1)
            return True

    def leave(self) -> None:
        """Unregisters a thread. The last one ends the rank's context."""
        with self._lock:
            self._inside -= 1
            if self._inside:
                self._add_threads(-1)
                return
        running.discard(self)
        _core.bind_RankEnd(self.context)

    def _add_threads(self, n: int) -> None:
        """Changes the engine's count of threads that make calls for the rank."""
        self._others += n
        if self.handle:
            _core.bind_GroupAddThreads(self.handle, n)

    def move(self, handle: int, number: int, size: int) -> None:
        """Makes the rank one of another world, of which `handle` is the group of all ranks."""
        with self._lock:
            if self.handle:
                _core.bind_GroupAddThreads(self.handle, -self._others)
            self.handle, self.number, self.size, self.across = handle, number, size, True
            _core.bind_GroupAddThreads(handle, self._others)

    def end(self) -> int:
        """Returns the handle of the rank's group and removes it from the rank."""
        with self._lock:
            handle, self.handle = self.handle, 0
            return handle

    def await_thread(self, thread: threading.Thread) -> None:
        """Makes the end of the rank wait for a thread."""
        with self._lock:
            self._threads.add(thread)

    def await_task(self, task: futures.Future[Any]) -> None:
        """Makes the end of the rank wait for a task of a thread pool."""
        with self._lock:
            self._tasks.add(task)
            self._add_threads(1)  # also while it waits for a thread
        task.add_done_callback(self._forget)

    def _forget(self, _: futures.Future[Any]) -> None:
        with self._lock:
            self._add_threads(-1)

    def join(self) -> None:
        """Waits for the rank's threads and tasks, and for those that they start."""
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
        """Waits for asynchronous work, such as saves and last collectives, and raises its first unreported error."""
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
    pass_group: Any = None  # the group handle of the current communication hook, see use_pass_group


# The calling thread's rank. Threads that a rank starts inherit it.
place = _Place()
running: set[Rank] = set()  # ranks of `spawn` that have not ended
_alone = Rank()


def here() -> Rank:
    """Returns the calling thread's rank. Threads outside of ranks share one rank, the only one of its world."""
    return place.rank or _alone


def main_rank() -> Rank:
    """Returns the rank of threads that belong to no rank of `spawn`."""
    return _alone
