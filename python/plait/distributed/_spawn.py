"""`spawn`: runs a function on several ranks, which are threads of this process."""

from __future__ import annotations

import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from plait import _core
from plait._device import device as Device
from plait._device import device_of, open_device
from plait._engine.callbacks import collect
from plait._engine.rank import Rank, place, running
from plait._engine.runtime import address, check
from plait._errors import DistributedError, text_of
from plait.distributed._groups import nanoseconds
from plait.distributed._processes import ProcessWorld, join_processes, number_of
from plait.distributed._threads import RankThread, patch_threads


def spawn(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "thread",
    *,
    devices: Sequence[Any] | None = None,
    timeout: timedelta | float | None = None,
    grace_period: timedelta | float | None = None,
) -> SpawnContext | None:
    """Runs `fn(rank, *args)` on `nprocs` ranks. A rank is a thread with its own device, streams and random generator.

    If a rank raises, collectives in which other ranks wait for it raise an error that names it. Ctrl-C ends all
    collectives. A thread cannot be stopped from outside: if a rank does not end within the grace period after another
    rank has raised, its thread goes on, but all its collectives fail.

    In processes that a launcher started, each of which calls it, the rank that `fn` gets is its number in this process.
    `init_process_group` then makes a world of the ranks of all processes, those of the first process first; with
    `world_size=nprocs` it makes one of this process's ranks.

    Threads that a rank's code starts, and tasks that it submits to a `ThreadPoolExecutor`, belong to the rank. The rank
    ends after its threads that are no daemons.

    Args:
        fn: the function; its result is ignored
        args: the arguments of `fn` after the rank
        nprocs: the number of ranks
        join: whether to wait for the ranks
        daemon: has no effect
        start_method: has no effect, since ranks are threads
        devices: the ranks' devices, repeated if there are fewer than ranks; cpu:0, cpu:1, ... by default
        timeout: how long a rank waits for the others in a collective; 30 minutes by default
        grace_period: seconds to wait for the other ranks after one has raised; 30 by default

    Returns:
        None, or without `join` a `SpawnContext`.

    Raises:
        Exception: the first exception of a rank, with a note that names the rank.
    """
    if not callable(fn):
        raise TypeError(f"spawn: want a function, got {type(fn).__name__}")
    if not isinstance(nprocs, int) or isinstance(nprocs, bool):
        raise TypeError(f"spawn: want a whole number of ranks, got nprocs={nprocs!r}")
    if isinstance(args, str) or not isinstance(args, Sequence):
        raise TypeError(f"spawn: want a tuple of arguments, got {type(args).__name__}")
    if isinstance(devices, str | Device):
        raise TypeError(f"spawn: want a list of devices, got {devices!r}")
    if nprocs < 1:
        raise ValueError(f"spawn: want at least one rank, got nprocs={nprocs}")
    if devices is not None and not len(devices):
        raise ValueError("spawn: got an empty list of devices")
    chosen = (
        [Device("cpu", r) for r in range(nprocs)]
        if devices is None
        else [devices[r % len(devices)] for r in range(nprocs)]
    )
    grace = _seconds(grace_period)
    context = SpawnContext([open_device(d) for d in chosen], nanoseconds(timeout))
    with context._no_rank_goes_on():
        context._start(fn, tuple(args))
        if not join:
            return context
        context.join(grace_period=grace)
    return None


def _seconds(grace: timedelta | float | None) -> float:
    """Converts a grace period to seconds."""
    if grace is None:
        return 30.0
    if isinstance(grace, bool) or not isinstance(grace, timedelta | int | float):
        raise TypeError(f"grace_period: want a timedelta or seconds, got {type(grace).__name__}")
    seconds = grace.total_seconds() if isinstance(grace, timedelta) else float(grace)
    if not seconds >= 0:
        raise ValueError(f"grace_period: want a time that is not negative, got {grace!r}")
    return seconds


class SpawnContext:
    """The running ranks of a `spawn`, which `join` waits for."""

    def __init__(self, devices: list[int], timeout: int) -> None:
        self._devices = devices
        self._groups = array("q", bytes(8 * len(devices)))
        check(_core.bind_WorldNew(len(devices), timeout, address(self._groups)))
        self._errors: list[tuple[int, BaseException]] = []
        self._lock = threading.Lock()
        self._failed_at = 0.0  # time of the first failure
        self._threads: list[threading.Thread] = []
        self._running = len(devices)  # ranks that have not ended
        self._joining = threading.Lock()
        self._world: ProcessWorld | None = None  # with the ranks of other processes
        self._not_joined: BaseException | None = None  # why there is none

    def join_processes(self, rank: Rank, timeout: int, heartbeat: int, communicator: Any) -> None:
        """Makes a rank one of the world of all processes. The first to come joins it for all of this process."""
        index = rank.number
        with self._joining:
            if self._not_joined is not None:
                raise self._not_joined
            try:
                if self._world is None:
                    # The process stays in a world of its own, so that others like this one can follow.
                    join_processes(timeout, heartbeat, communicator)
                    self._world = ProcessWorld(len(self._devices), timeout, heartbeat, number_of(communicator))
            except BaseException as error:
                self._not_joined = error
                raise
        handle = self._world.groups[index]
        rank.move(handle, check(_core.bind_GroupRank(handle)), check(_core.bind_GroupSize(handle)))
        check(_core.bind_GroupDetectDeadlocks(handle, rank.context))

    @property
    def size(self) -> int:
        """The number of ranks of this process."""
        return len(self._devices)

    def local_rank(self, rank: Rank) -> int:
        """Returns a rank's number in this process."""
        return rank.number if self._world is None else rank.number - check(_core.bind_GroupRank(self._world.groups[0]))

    def _start(self, fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Starts the ranks' threads."""
        patch_threads()
        mode, n = _core.bind_ModeGet(), len(self._devices)
        self._threads = [
            RankThread(target=self._run, args=(r, n, self._devices[r], mode, fn, args), name=f"rank {r}")
            for r in range(n)
        ]
        try:
            for t in self._threads:
                t.start()
        except BaseException as error:  # a lack of threads, or Ctrl-C
            self._abort(f"the ranks could not all be started: {type(error).__name__}: {text_of(error)}")
            for t, handle in zip(self._threads, self._groups, strict=True):
                if t.ident is None:
                    _core.bind_GroupClose(handle)
                    _core.bind_ObjectRelease(handle)
            raise

    @contextmanager
    def _no_rank_goes_on(self) -> Iterator[None]:
        """Inside, Ctrl-C and what else a signal's handler raises ends all collectives, so that the ranks end too."""
        try:
            yield
        except BaseException:
            self._abort("the program was interrupted")
            raise

    def _run(
        self, number: int, size: int, device: int, mode: int, fn: Callable[..., Any], args: tuple[Any, ...]
    ) -> None:
        """Runs one rank on its thread, from creating its context to leaving its groups."""
        threading.current_thread().working = True  # type: ignore[attr-defined]
        handle = self._groups[number]
        before = _core.bind_ModeGet()
        rank = None
        try:
            context = check(_core.bind_RankNew(number, device))
            rank = Rank(number, size, context)
            self._begin(rank, handle, device, mode)
        except BaseException as error:
            self._leave_groups(number, self._record_error(number, error))
            if rank is not None:
                self._end(rank, before)
            return
        why = "it has returned"
        try:
            fn(number, *args)
        except BaseException as error:
            why = self._record_error(number, error)
            rank.error_raised = True
        collect()  # hooks may be the last to refer to modules, whose memory is freed while the rank's streams are there
        try:
            if why == "it has returned":
                rank.join()
            rank.finish()
        except BaseException as error:
            if why == "it has returned":
                why = self._record_error(number, error)
        finally:
            rank.end()
            self._leave_groups(number, why)
            self._end(rank, before)

    def _leave_groups(self, number: int, why: str) -> None:
        """Ends a rank in its worlds, and this process's part in the world of all processes after its last rank."""
        with self._lock:
            self._running -= 1
            last, world = not self._running, self._world
        for group in (self._groups[number], *([world.groups[number]] if world else [])):
            _core.bind_GroupAbort(group, why)
            _core.bind_GroupClose(group)
            _core.bind_ObjectRelease(group)
        if last and world:
            world.close()

    def _begin(self, rank: Rank, handle: int, device: int, mode: int) -> None:
        """Makes the calling thread a rank's."""
        _core.bind_ModeSet(mode)
        _core.bind_ModeSet(_core.bind_RankMode(rank.context))
        place.rank = rank
        rank.spawned = self
        running.add(rank)
        own = device_of(device)
        rank.current[own._kind] = own.index or 0
        rank.handle = handle
        check(_core.bind_GroupDetectDeadlocks(handle, rank.context))

    def _end(self, rank: Rank, before: int) -> None:
        """Makes the calling thread no rank's again, and leaves the rank's groups."""
        place.rank = None
        _core.bind_ModeSet(before)
        rank.leave()

    def _record_error(self, number: int, error: BaseException) -> str:
        """Records the error of a rank, and returns the reason that the other ranks get."""
        with self._lock:
            self._failed_at = self._failed_at or time.monotonic()
            self._errors.append((number, error))
        return f"it raised {type(error).__name__}: {text_of(error)}"

    def join(self, timeout: float | None = None, grace_period: timedelta | float | None = None) -> bool:
        """Waits for the ranks and returns whether all have ended. Raises the first error of a rank.

        Args:
            timeout: seconds after which to return; None waits without limit
            grace_period: seconds to wait for the other ranks after one has raised; 30 by default. The error gets a note
                for each rank that has not ended by then, with its current line
        """
        grace = _seconds(grace_period)
        end = None if timeout is None else time.monotonic() + timeout
        with self._no_rank_goes_on():
            while alive := [t for t in self._threads if t.is_alive()]:
                now = time.monotonic()
                if self._failed_at and now >= self._failed_at + grace:
                    break
                if end is not None and now >= end:
                    return False
                # Short waits, since Ctrl-C cannot interrupt a wait without a limit.
                limits = [end, self._failed_at + grace if self._failed_at else None]
                alive[0].join(min([0.05, *(at - now for at in limits if at is not None)]))
        if self._errors:
            # A DistributedError on other ranks only follows from the first rank's own error.
            own = [e for e in self._errors if not isinstance(e[1], DistributedError)]
            number, error = (own or self._errors)[0]
            error.add_note(f"raised on rank {number} of {len(self._threads)}")
            for t in alive:
                error.add_note(f"{t.name} has not ended {grace:g} s after that and is left behind{_current_line(t)}")
            if alive:
                self._abort(f"rank {number} raised {type(error).__name__}, and the job is over")
            raise error
        return True

    def _abort(self, why: str) -> None:
        """Fails the collectives of all ranks."""
        for handle in (*self._groups, *(self._world.groups if self._world else ())):
            if (status := _core.bind_GroupAbort(handle, why)) < 0:  # the rank has ended
                _core.bind_ErrorRelease(status)


def _current_line(thread: threading.Thread) -> str:
    """Returns the function, file and line that a thread is in, for error messages."""
    frame = sys._current_frames().get(thread.ident or 0)
    return f", in {frame.f_code.co_name}, {frame.f_code.co_filename}:{frame.f_lineno}" if frame else ""
