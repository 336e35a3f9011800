"""Python's multiprocessing, whose processes share tensors, under PyTorch's names; and `spawn`, whose ranks are threads.

A tensor that goes to another process, as an argument of a `Process` or through a queue, a pipe or a pool, is over the
same memory there: sending moves it to memory that processes share, once what was launched on it is done. So are
parameters, modules and storages. Operations on such a tensor are done when they return, so locks order what processes
read and write.

Processes start afresh, by the method "spawn": a forked child would have none of the engine's threads.
"""

from __future__ import annotations

import multiprocessing as _multiprocessing
import pickle as _pickle
from collections.abc import Callable as _Callable
from collections.abc import Sequence as _Sequence
from multiprocessing import context as _context
from multiprocessing import queues as _queues
from multiprocessing.reduction import ForkingPickler as _ForkingPickler
from typing import Any as _Any

from plait._tensors.shared import KEPT as _KEPT  # the module has multiprocessing pickle tensors
from plait._tensors.shared import REFUSED as _REFUSED
from plait.distributed._spawn import SpawnContext, spawn
from plait.multiprocessing._started import ProcessContext, ProcessExitedException, ProcessRaisedException
from plait.multiprocessing._started import run as _run

__all__ = [
    "Array", "AuthenticationError", "Barrier", "BoundedSemaphore", "BufferTooShort", "Condition", "Event",
    "JoinableQueue", "Lock", "Manager", "Pipe", "Pool", "Process", "ProcessContext", "ProcessError",
    "ProcessExitedException", "ProcessRaisedException", "Queue", "RLock", "RawArray",
    "RawValue", "Semaphore", "SimpleQueue", "SpawnContext", "TimeoutError", "Value", "active_children",
    "allow_connection_pickling", "cpu_count", "current_process", "freeze_support", "get_all_sharing_strategies",
    "get_all_start_methods", "get_context", "get_logger", "get_sharing_strategy", "get_start_method", "log_to_stderr",
    "parent_process", "set_executable", "set_forkserver_preload", "set_sharing_strategy", "set_start_method", "spawn",
    "start_processes",
]  # fmt: skip


def _check_method(name: str, method: _Any) -> None:
    if method not in (None, "spawn"):
        why = f": {_REFUSED[method]}" if method in _REFUSED else ""
        raise ValueError(f"multiprocessing.{name}: want 'spawn', got {method!r}{why}")


class Process(_context.SpawnProcess):
    """A process, as `multiprocessing.Process`, that starts afresh: it imports the script, and then calls `target`."""

    @staticmethod
    def _Popen(process_obj: _Any) -> _Any:  # noqa: N802
        popen = _context.SpawnProcess._Popen(process_obj)  # type: ignore[attr-defined]
        popen.__dict__.pop(_KEPT, None)
        return popen


class _Message:
    """What is on a queue, pickled already."""

    def __init__(self, what: _Any) -> None:
        self._pickled = bytes(_ForkingPickler.dumps(what))

    def __reduce__(self) -> _Any:
        return _pickle.loads, (self._pickled,)


# Python's queues pickle in a thread of their own, later. Here a tensor has what it had when it was put on the queue,
# and who puts on it what cannot be sent gets the error.


class _Queue(_queues.Queue):  # type: ignore[type-arg]
    def put(self, obj: _Any, block: bool = True, timeout: float | None = None) -> None:
        super().put(_Message(obj), block, timeout)


class _JoinableQueue(_queues.JoinableQueue):  # type: ignore[type-arg]
    def put(self, obj: _Any, block: bool = True, timeout: float | None = None) -> None:
        super().put(_Message(obj), block, timeout)


class _Spawning(_context.SpawnContext):
    Process = Process

    def Queue(self, maxsize: int = 0) -> _Any:  # noqa: N802
        return _Queue(maxsize, ctx=self.get_context())

    def JoinableQueue(self, maxsize: int = 0) -> _Any:  # noqa: N802
        return _JoinableQueue(maxsize, ctx=self.get_context())

    def get_context(self, method: str | None = None) -> _Any:
        _check_method("get_context", method)
        return self

    def get_start_method(self, allow_none: bool = False) -> str:
        return "spawn"

    def set_start_method(self, method: str | None, force: bool = False) -> None:
        set_start_method(method, force)


_spawning = _Spawning()

ProcessError, BufferTooShort = _context.ProcessError, _context.BufferTooShort
TimeoutError, AuthenticationError = _context.TimeoutError, _context.AuthenticationError
active_children, current_process = _multiprocessing.active_children, _multiprocessing.current_process
cpu_count, parent_process = _multiprocessing.cpu_count, _multiprocessing.parent_process
freeze_support, set_executable = _spawning.freeze_support, _spawning.set_executable
get_logger, log_to_stderr = _spawning.get_logger, _spawning.log_to_stderr
allow_connection_pickling = _spawning.allow_connection_pickling
set_forkserver_preload = _spawning.set_forkserver_preload
Array, Value, RawArray, RawValue = _spawning.Array, _spawning.Value, _spawning.RawArray, _spawning.RawValue
Lock, RLock, Condition, Event = _spawning.Lock, _spawning.RLock, _spawning.Condition, _spawning.Event
Semaphore, BoundedSemaphore, Barrier = _spawning.Semaphore, _spawning.BoundedSemaphore, _spawning.Barrier
Queue, JoinableQueue, SimpleQueue = _spawning.Queue, _spawning.JoinableQueue, _spawning.SimpleQueue
Pipe, Pool, Manager = _spawning.Pipe, _spawning.Pool, _spawning.Manager


def get_context(method: str | None = None) -> _context.SpawnContext:
    """Returns what has `Process`, `Queue`, `Pool` and the others of this module, whose processes start afresh.

    Raises:
        ValueError: for a method other than "spawn".
    """
    _check_method("get_context", method)
    return _spawning


def get_all_start_methods() -> list[str]:
    """Returns ["spawn"]."""
    return ["spawn"]


def get_start_method(allow_none: bool = False) -> str:
    """Returns "spawn": how a `Process` starts. The ranks of `spawn` are threads all the same."""
    return "spawn"


def set_start_method(method: str | None, force: bool = False) -> None:
    """Makes "spawn" the method of Python's own `multiprocessing` too. Here it always is.

    Raises:
        ValueError: for another method.
        RuntimeError: if a method is set already, without `force`.
    """
    _check_method("set_start_method", method)
    _multiprocessing.set_start_method(method, force)


def get_all_sharing_strategies() -> set[str]:
    """Returns {"file_descriptor"}: a file without a name, of which each process has a descriptor per storage."""
    return {"file_descriptor"}


def get_sharing_strategy() -> str:
    """Returns "file_descriptor"."""
    return "file_descriptor"


def set_sharing_strategy(new_strategy: str) -> None:
    """Has no effect: there is one strategy, which leaves no files behind."""


def start_processes(
    fn: _Callable[..., _Any],
    args: _Sequence[_Any] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Runs `fn(number, *args)` in `nprocs` processes. `spawn` does so on ranks, which are threads.

    If one fails, the others are ended.

    Args:
        fn: the function, which the processes import; its result is ignored
        args: the arguments of `fn` after the number
        nprocs: the number of processes
        join: whether to wait for them
        daemon: whether they end with the process that started them
        start_method: must be "spawn"

    Returns:
        None, or without `join` a `ProcessContext`.

    Raises:
        ValueError: for another method.
        ProcessRaisedException: if `fn` raised in a process.
        ProcessExitedException: if a process ended with another status than 0.
    """
    _check_method("start_processes", start_method)
    processes, errors = [], []
    for number in range(nprocs):
        error, there = Pipe(duplex=False)
        process = Process(target=_run, args=(fn, number, tuple(args), there), daemon=daemon)
        process.start()
        there.close()
        processes.append(process)
        errors.append(error)
    context = ProcessContext(processes, errors)
    if not join:
        return context
    while not context.join():
        pass
    return None
