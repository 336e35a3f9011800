"""Threads that a rank's code starts belong to the rank.

`spawn` patches `threading.Thread.start` and `ThreadPoolExecutor.submit`, so that new threads and tasks inherit the rank
of the calling thread. A pool may serve several ranks, so its tasks have a rank, not its threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.thread import _worker  # type: ignore[attr-defined]
from contextlib import contextmanager
from functools import cache
from typing import Any

from plait import _core
from plait._engine.rank import Rank, place


class RankThread(threading.Thread):
    """The main thread of a rank: a daemon, for which Python does not wait, but whose own threads are no daemons."""

    working = False

    @property
    def daemon(self) -> bool:
        """True until the rank's function runs. New threads inherit the value then, which is False."""
        return not self.working

    @daemon.setter
    def daemon(self, _: bool) -> None:
        pass


@contextmanager
def in_rank(rank: Rank) -> Iterator[None]:
    """Inside, the calling thread belongs to the rank, with the modes of a new thread: gradients on, autocast off."""
    before, mode = place.rank, _core.bind_ModeGet()
    place.rank = rank
    _core.bind_ModeSet(_core.bind_RankMode(rank.context))
    try:
        yield
    finally:
        place.rank = before
        _core.bind_ModeSet(mode)


@cache
def patch_threads() -> None:
    """Patches threads and thread pools, so that new threads and tasks belong to the rank that starts them."""
    start, submit = threading.Thread.start, ThreadPoolExecutor.submit

    def start_in_rank(self: threading.Thread) -> None:
        rank = place.rank
        pool = getattr(self, "_target", None) is _worker
        if rank is None or pool or self.ident is not None or not rank.enter():
            start(self)
            return
        run = self.run

        def run_in_rank() -> None:
            del self.run  # type: ignore[method-assign]
            try:
                with in_rank(rank):
                    run()
            finally:
                rank.leave()

        self.run = run_in_rank  # type: ignore[method-assign]
        if not self.daemon:
            rank.await_thread(self)
            self.daemon = True  # the rank waits for it, so Python need not
        try:
            start(self)
        except BaseException:
            rank.leave()
            raise

    def submit_in_rank(self: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        rank = place.rank
        if rank is None:
            return submit(self, fn, *args, **kwargs)

        def task(*args: Any, **kwargs: Any) -> Any:
            if not rank.enter():
                raise RuntimeError(f"rank {rank.number} submitted this task to a pool and ended before it began")
            try:
                with in_rank(rank):
                    return fn(*args, **kwargs)
            finally:
                rank.leave()

        future = submit(self, task, *args, **kwargs)
        rank.await_task(future)
        return future

    threading.Thread.start = start_in_rank  # type: ignore[method-assign]
    ThreadPoolExecutor.submit = submit_in_rank  # type: ignore[assignment,method-assign]
