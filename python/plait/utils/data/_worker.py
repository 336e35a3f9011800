"""Workers of `DataLoader`: threads that prepare batches ahead of the reader. `_process` has those that are processes.

Workers take turns, and each returns its batches in order, so the order of batches does not depend on timing. Each
worker has its own random generators. Several passes over the loader may use a worker at the same time; each has a
`Share` of the worker.
"""

from __future__ import annotations

import contextlib
import copy
import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from plait import _core
from plait._engine.rank import Rank, place
from plait.utils.data.dataset import IterableDataset

__all__ = ["WorkerInfo", "get_worker_info"]

Fetch = Callable[[Any, Iterator[Any] | None, Any], Any]
SIGNALS = 1.0  # seconds after which a wait ends for signals


@dataclass
class WorkerInfo:
    """A worker's number, the number of workers, the worker's seed, and its dataset."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


class _Local(threading.local):
    info: WorkerInfo | None = None


_local = _Local()


def get_worker_info() -> WorkerInfo | None:
    """Returns the `WorkerInfo` of the calling thread, or process; None outside of workers."""
    return _local.info


def set_process_info(info: WorkerInfo) -> None:
    """Makes the process a worker."""
    _Local.info = info


class End:
    """A marker: the end of a worker's samples; as a request, the start of a pass."""


class Share:
    """A worker's share of one pass: its requests and its batches."""

    def __init__(self, tasks: queue.SimpleQueue[Any]) -> None:
        self._tasks = tasks
        self.results: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        self.samples: Iterator[Any] | None = None  # of an IterableDataset; only the worker uses this and the following
        self.ended = False
        self.failed: BaseException | None = None

    def request(self, what: Any) -> None:
        """Requests a batch."""
        self._tasks.put((self, what))

    def result(self, timeout: float) -> tuple[Any, BaseException | None]:
        """Waits for the next batch or its error."""
        if timeout:
            return self.results.get(timeout=timeout)
        try:
            while True:  # Python sees a signal that has come just before a wait only at its end
                with contextlib.suppress(queue.Empty):
                    return self.results.get(timeout=SIGNALS)
        except KeyboardInterrupt as interrupt:
            raise interrupt from None  # not from the end of the wait


class Worker:
    """A thread that prepares batches on request, and ends when this object is freed.

    Args:
        info: the worker's number, seed and dataset
        fetch: returns a batch, given the dataset, its iterator and the sampler's indices
        init: the user's `worker_init_fn`, called first with the worker's number
    """

    def __init__(self, info: WorkerInfo, fetch: Fetch, init: Callable[[int], None] | None) -> None:
        if isinstance(info.dataset, IterableDataset):
            info.dataset = copy.copy(info.dataset)
        self.info = info
        self.tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
        # No finaliser in Python, where Ctrl-C could be lost; and made before the thread, which Ctrl-C may leave alone.
        end = weakref.ref(self, self.tasks.put)
        args = (info, fetch, init, self.tasks, _core.bind_ModeGet(), place.rank, end)
        self.thread = threading.Thread(target=run_worker, args=args, daemon=True, name=f"DataLoader worker {info.id}")
        self.thread.start()

    def share(self) -> Share:
        """Starts a pass on this worker."""
        share = Share(self.tasks)
        share.request(End)
        return share

    def stop(self) -> None:
        """Ends the thread after its current request."""
        self.tasks.put(None)

    def alive(self) -> bool:
        """Whether the worker takes requests: a thread does."""
        return True


def run_worker(
    info: WorkerInfo,
    fetch: Fetch,
    init: Callable[[int], None] | None,
    tasks: queue.SimpleQueue[Any],
    mode: int,
    rank: Rank | None,
    _end: weakref.ref[Worker] | None,
) -> None:
    """The body of a worker's thread, or process."""
    _local.info = info
    place.rank = rank
    _core.bind_ModeSet(mode)
    failed: BaseException | None = None
    context = 0
    try:
        context = _core.bind_WorkerNew(info.seed)
        _core.bind_ModeSet(_core.bind_WorkerMode(context))
        if init is not None:
            init(info.id)
    except BaseException as error:
        failed = _add_note(error, info.id)
    while isinstance(task := tasks.get(), tuple):
        share, what = task
        if what is End:
            share.failed = failed
            if failed is None and isinstance(info.dataset, IterableDataset):
                try:
                    share.samples = iter(info.dataset)
                except BaseException as error:
                    share.failed = _add_note(error, info.id)
        elif share.failed is not None:
            share.results.put((None, share.failed))
        elif share.ended:
            share.results.put((End, None))
        else:
            try:
                batch = fetch(info.dataset, share.samples, what)
            except BaseException as error:
                share.results.put((None, _add_note(error, info.id)))
            else:
                share.ended = batch is End
                share.results.put((batch, None))
                del batch
        del task, share
    _core.bind_ModeSet(mode)
    _core.bind_ObjectRelease(context)


def _add_note(error: BaseException, worker: int) -> BaseException:
    error.add_note(f"raised in DataLoader worker {worker}")
    return error
