"""Ranks as threads of this process."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from plait import _core
from plait._device import device as Device
from plait._device import device_of, open_device
from plait._errors import DistributedError
from plait._rank import Rank, place
from plait._runtime import address, check
from plait.distributed._groups import nanoseconds


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
) -> SpawnContext | None:
    """Runs `fn(rank, *args)` on `nprocs` ranks, each a thread with a device, streams and random numbers of its own.

    Inside, `init_process_group()` finds the thread's rank. When one rank raises, the collectives in which others wait
    for it raise too and name it; Ctrl-C ends all of them.

    Args:
        fn: the function; its results are lost
        args: what it gets after the rank
        nprocs: the number of ranks
        join: whether to wait for all of them
        daemon: has no effect
        start_method: has no effect: ranks are threads
        devices: of the ranks, taken in turn; cpu:0, cpu:1, ... by default. Several ranks may share one
        timeout: how long a rank waits for the others in a collective; 30 minutes by default

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
    context = SpawnContext(fn, tuple(args), [open_device(d) for d in chosen], nanoseconds(timeout))
    if not join:
        return context
    while not context.join():
        pass
    return None


class SpawnContext:
    """Ranks that run."""

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...], devices: list[int], timeout: int) -> None:
        n = len(devices)
        self._groups = array("q", bytes(8 * n))
        check(_core.bind_WorldNew(n, timeout, address(self._groups)))
        self._errors: list[tuple[int, BaseException]] = []
        self._lock = threading.Lock()
        mode = _core.bind_ModeGet()
        self._threads = [
            threading.Thread(target=self._run, args=(r, n, devices[r], mode, fn, args), name=f"rank {r}", daemon=True)
            for r in range(n)
        ]
        for t in self._threads:
            t.start()

    def _run(
        self, number: int, size: int, device: int, mode: int, fn: Callable[..., Any], args: tuple[Any, ...]
    ) -> None:
        handle = self._groups[number]
        context = _core.bind_RankNew(number, device)
        _core.bind_ModeSet(mode)
        before = _core.bind_ModeGet()
        _core.bind_ModeSet(_core.bind_RankMode(context))
        place.rank = rank = Rank(number, size)
        own = device_of(device)
        rank.current[own.type] = own.index or 0
        rank.handle = handle
        why = "it has returned"
        try:
            fn(number, *args)
        except BaseException as error:
            why = f"it raised {type(error).__name__}: {error}"
            with self._lock:
                self._errors.append((number, error))
        try:
            rank.finish()
        except BaseException as error:
            if why == "it has returned":
                why = f"it raised {type(error).__name__}: {error}"
                with self._lock:
                    self._errors.append((number, error))
        finally:
            _core.bind_GroupAbort(handle, why)
            _core.bind_GroupClose(handle)
            _core.bind_ObjectRelease(handle)
            place.rank = None
            _core.bind_ModeSet(before)
            _core.bind_RankEnd(context)

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Waits for the ranks and raises the first error of one; returns whether all have ended.

        Args:
            timeout: seconds after which to return
            grace_period: has no effect
        """
        try:
            for t in self._threads:
                # In slices: a wait without a limit would keep Ctrl-C out.
                while t.is_alive():
                    t.join(0.05 if timeout is None else min(timeout, 0.05))
                    if timeout is not None:
                        timeout -= 0.05
                        if timeout <= 0 and t.is_alive():
                            return False
        except KeyboardInterrupt:
            for handle in self._groups:
                _core.bind_GroupAbort(handle, "the program was interrupted")
            raise
        if self._errors:
            # What others say about a rank that failed follows from its own error.
            own = [e for e in self._errors if not isinstance(e[1], DistributedError)]
            number, error = (own or self._errors)[0]
            error.add_note(f"raised on rank {number} of {len(self._threads)}")
            raise error
        return True
