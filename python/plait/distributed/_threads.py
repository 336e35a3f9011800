"""The threads that a rank's own code starts belong to the rank, as those of a process belong to it.

`spawn` asks for this: from then on `threading.Thread.start` and `ThreadPoolExecutor.submit` pass the calling thread's
rank on. A pool may serve several ranks, so it is the task that belongs to the rank that submitted it, not the pool's
thread.
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
    """The thread of a rank. Python does not wait for it, as for a daemon; but the threads that it starts are none."""

    working = False

    @property
    def daemon(self) -> bool:
        """Whether Python does not wait for the thread, and what threads that it starts have for theirs."""
        return not self.working

    @daemon.setter
    def daemon(self, _: bool) -> None:
        pass


@contextmanager
def inside(rank: Rank) -> Iterator[None]:
    """Makes the calling thread one of the rank, as a new thread is: with gradients, without autocast."""
    before, mode = place.rank, _core.bind_ModeGet()
    place.rank = rank
    _core.bind_ModeSet(_core.bind_RankMode(rank.context))
    try:
        yield
    finally:
        place.rank = before
        _core.bind_ModeSet(mode)


@cache
def pass_ranks_on() -> None:
    """Has threads and the tasks of pools belong to the rank that starts them."""
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
                with inside(rank):
                    run()
            finally:
                rank.leave()

        self.run = run_in_rank  # type: ignore[method-assign]
        if not self.daemon:
            rank.await_thread(self)
            self.daemon = True  # the rank waits; if it cannot end, Python need not wait for ever
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
                with inside(rank):
                    return fn(*args, **kwargs)
            finally:
                rank.leave()

        future = submit(self, task, *args, **kwargs)
        rank.await_task(future)
        return future

    threading.Thread.start = start_in_rank  # type: ignore[method-assign]
    ThreadPoolExecutor.submit = submit_in_rank  # type: ignore[assignment,method-assign]
