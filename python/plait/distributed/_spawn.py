"""Ranks as threads of this process."""

from __future__ import annotations

import sys
import threading
import time
from array import array
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from plait import _core
from plait._device import device as Device
from plait._device import device_of, open_device
from plait._engine.rank import Rank, place, running
from plait._engine.runtime import address, check
from plait._errors import DistributedError, text_of
from plait.distributed._groups import nanoseconds
from plait.distributed._threads import RankThread, pass_ranks_on


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
    """Runs `fn(rank, *args)` on `nprocs` ranks, each a thread with a device, streams and random numbers of its own.

    Inside, `init_process_group()` finds the thread's rank. When one rank raises, the collectives in which others wait
    for it raise too and name it; Ctrl-C ends all of them. A thread cannot be ended from outside: a rank that has not
    ended some time after another one raised is left behind, and can take part in nothing any more.

    Threads that a rank's code starts belong to the rank, and so do tasks that it submits to a `ThreadPoolExecutor`. The
    rank ends when its threads have, unless they are daemons.

    Args:
        fn: the function; its results are lost
        args: what it gets after the rank
        nprocs: the number of ranks
        join: whether to wait for all of them
        daemon: has no effect
        start_method: has no effect: ranks are threads
        devices: of the ranks, taken in turn; cpu:0, cpu:1, ... by default. Several ranks may share one
        timeout: how long a rank waits for the others in a collective; 30 minutes by default
        grace_period: how long to wait for the others when a rank has raised, in seconds; 30 by default

    Returns:
        None, or without `join` what joins the ranks.

    Raises:
        Exception: the first that a rank raised, with a note that says which.
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
    context = SpawnContext(fn, tuple(args), [open_device(d) for d in chosen], nanoseconds(timeout))
    if not join:
        return context
    context.join(grace_period=grace)
    return None


def _seconds(grace: timedelta | float | None) -> float:
    if grace is None:
        return 30.0
    if isinstance(grace, bool) or not isinstance(grace, timedelta | int | float):
        raise TypeError(f"grace_period: want a timedelta or seconds, got {type(grace).__name__}")
    seconds = grace.total_seconds() if isinstance(grace, timedelta) else float(grace)
    if not seconds >= 0:
        raise ValueError(f"grace_period: want a time that is not negative, got {grace!r}")
    return seconds


class SpawnContext:
    """Ranks that run."""

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...], devices: list[int], timeout: int) -> None:
        n = len(devices)
        self._groups = array("q", bytes(8 * n))
        check(_core.bind_WorldNew(n, timeout, address(self._groups)))
        self._errors: list[tuple[int, BaseException]] = []
        self._lock = threading.Lock()
        self._failed = 0.0  # when the first rank did
        pass_ranks_on()
        mode = _core.bind_ModeGet()
        self._threads: list[threading.Thread] = [
            RankThread(target=self._run, args=(r, n, devices[r], mode, fn, args), name=f"rank {r}") for r in range(n)
        ]
        for t in self._threads:
            t.start()

    def _run(
        self, number: int, size: int, device: int, mode: int, fn: Callable[..., Any], args: tuple[Any, ...]
    ) -> None:
        threading.current_thread().working = True  # type: ignore[attr-defined]
        handle = self._groups[number]
        try:
            context = check(_core.bind_RankNew(number, device))
        except BaseException as error:
            _core.bind_GroupAbort(handle, self._note(number, error))
            _core.bind_GroupClose(handle)
            _core.bind_ObjectRelease(handle)
            return
        _core.bind_ModeSet(mode)
        before = _core.bind_ModeGet()
        _core.bind_ModeSet(_core.bind_RankMode(context))
        place.rank = rank = Rank(number, size)
        rank.context = context
        running.add(rank)
        own = device_of(device)
        rank.current[own.type] = own.index or 0
        rank.handle = handle
        why = "it has returned"
        try:
            check(_core.bind_GroupDetectDeadlocks(handle, context))
            fn(number, *args)
        except BaseException as error:
            why = self._note(number, error)
            rank.told = True
        try:
            if why == "it has returned":
                rank.join()
            rank.finish()
        except BaseException as error:
            if why == "it has returned":
                why = self._note(number, error)
        finally:
            rank.end()
            _core.bind_GroupAbort(handle, why)
            _core.bind_GroupClose(handle)
            _core.bind_ObjectRelease(handle)
            place.rank = None
            _core.bind_ModeSet(before)
            rank.leave()

    def _note(self, number: int, error: BaseException) -> str:
        """Keeps the error of a rank, and returns what the others are told."""
        with self._lock:
            self._failed = self._failed or time.monotonic()
            self._errors.append((number, error))
        return f"it raised {type(error).__name__}: {text_of(error)}"

    def join(self, timeout: float | None = None, grace_period: timedelta | float | None = None) -> bool:
        """Waits for the ranks and raises the first error of one; returns whether all have ended.

        Args:
            timeout: seconds after which to return
            grace_period: how long to wait for the others when a rank has raised, in seconds; 30 by default. The error
                has a note for each that has not ended then, which says where it is
        """
        grace = _seconds(grace_period)
        end = None if timeout is None else time.monotonic() + timeout
        try:
            while alive := [t for t in self._threads if t.is_alive()]:
                now = time.monotonic()
                if self._failed and now >= self._failed + grace:
                    break
                if end is not None and now >= end:
                    return False
                # In slices: a wait without a limit would keep Ctrl-C out.
                limits = [end, self._failed + grace if self._failed else None]
                alive[0].join(min([0.05, *(at - now for at in limits if at is not None)]))
        except KeyboardInterrupt:
            self._abort("the program was interrupted")
            raise
        if self._errors:
            # What others say about a rank that failed follows from its own error.
            own = [e for e in self._errors if not isinstance(e[1], DistributedError)]
            number, error = (own or self._errors)[0]
            error.add_note(f"raised on rank {number} of {len(self._threads)}")
            for t in alive:
                error.add_note(f"{t.name} has not ended {grace:g} s after that and is left behind{_where(t)}")
            if alive:
                self._abort(f"rank {number} raised {type(error).__name__}, and the job is over")
            raise error
        return True

    def _abort(self, why: str) -> None:
        """Ends the part of all ranks in their groups."""
        for handle in self._groups:
            _core.bind_GroupAbort(handle, why)


def _where(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)
    return f", in {frame.f_code.co_name}, {frame.f_code.co_filename}:{frame.f_lineno}" if frame else ""
