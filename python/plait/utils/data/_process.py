"""Workers of `DataLoader` that are processes.

Each has a socket to this process. A thread here sends the requests, another receives the batches and notices when the
process has died. The process runs what a worker's thread runs, fed by a thread that receives the requests and ends
the process when this one is gone.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import queue
import random
import signal
import socket
import threading
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent import futures
from multiprocessing.context import BaseContext, SpawnContext
from multiprocessing.reduction import DupFd
from typing import Any

import numpy as np

from plait import _core
from plait._engine.rank import Rank, place
from plait._functions.config import set_num_threads
from plait._tensors.arrays import share_numpy
from plait._tensors.shared import REFUSED, opened
from plait.utils.data._shared import Packer, Segments, copied, pack_error, unpack_error
from plait.utils.data._worker import End, Fetch, Share, WorkerInfo, run_worker, set_process_info

GRACE = 5.0  # seconds that a worker has to end by itself
_POLL = 1.0  # seconds after which a worker that sends nothing is looked after


def checked_context(wanted: Any, num_workers: int) -> BaseContext:
    """Returns the context that a `multiprocessing_context` means.

    Raises:
        ValueError: for one that does not start processes afresh, or without workers.
        TypeError: for an object of another kind.
    """
    if num_workers == 0:
        raise ValueError("multiprocessing_context wants workers, got num_workers=0")
    if not isinstance(wanted, str | BaseContext):
        raise TypeError(f"multiprocessing_context: want 'spawn' or a context of multiprocessing's, got {wanted!r}")
    method = wanted if isinstance(wanted, str) else wanted.get_start_method()
    if method != "spawn":
        why = f": {REFUSED[method]}" if method in REFUSED else ""
        raise ValueError(f"multiprocessing_context: want 'spawn', or None for threads, got {method!r}{why}")
    return multiprocessing.get_context("spawn") if isinstance(wanted, str) else wanted


class Died:
    """A marker: the worker is dead, and answers no request any more."""


class ProcessShare(Share):
    """A process's share of one pass."""

    def __init__(self, tasks: queue.SimpleQueue[Any], number: int) -> None:
        super().__init__(tasks)
        self.number = number

    def request(self, what: Any) -> None:
        """Requests a batch."""
        self._tasks.put((self, copied(what)))

    def result(self, timeout: float) -> tuple[Any, BaseException | None]:
        """Waits for the next batch or its error."""
        batch, error = super().result(timeout)
        if batch is Died:
            self.results.put((batch, error))  # for what else has been requested
            # A new one each time, since a raised one keeps this worker, by the frames of its traceback.
            error = unpack_error(pack_error(error))  # type: ignore[arg-type]
        return batch, error


class _Payload:
    """What a worker works with. It is unpickled by the worker itself, which can report an error."""

    def __init__(self, parts: tuple[WorkerInfo, Fetch, Callable[[int], None] | None]) -> None:
        self._parts = parts
        self._segments = Segments()

    def __reduce__(self) -> Any:
        packer, memory = Packer(share=True), None
        places: list[tuple[int, int]] = []
        data = packer.pack(self._parts)
        if packer.arrays:
            _, file, places, _ = self._segments.fill(packer.arrays)
            assert file is not None
            memory = DupFd(file[0]), *file[1:]
        return _Pickled, (data, memory, places)


class _Pickled:
    """A payload in the worker's process."""

    def __init__(self, data: bytes, memory: Any, places: list[tuple[int, int]]) -> None:
        self._data, self._memory, self._places = data, memory, places

    def load(self) -> tuple[WorkerInfo, Fetch, Callable[[int], None] | None]:
        """Returns what the worker works with."""
        buffers = []
        if self._memory is not None:
            file, *which = self._memory
            memory = share_numpy(opened(file.detach(), *which))
            buffers = [memory[start:stop] for start, stop in self._places]
        return pickle.loads(self._data, buffers=buffers)


class _Link:
    """This process's end: what the two threads of a worker share."""

    def __init__(self, worker: int, process: Any, connection: Any) -> None:
        self.worker, self.process, self.connection = worker, process, connection
        self.shares: weakref.WeakValueDictionary[int, ProcessShare] = weakref.WeakValueDictionary()
        self.freed: deque[int] = deque()
        self.began = self.stopped = False
        self.failed: BaseException | None = None
        self._lock, self._sending = threading.Lock(), threading.Lock()

    def send(self, message: Any) -> None:
        """Sends a message, unless the process is gone: the thread that receives says why."""
        with self._sending, contextlib.suppress(OSError):
            self.connection.send(message)

    def close(self) -> None:
        """Closes the socket. A message that is being sent fails."""
        with contextlib.suppress(OSError), socket.fromfd(self.connection.fileno(), socket.AF_UNIX, 0) as s:
            s.shutdown(socket.SHUT_RDWR)
        with self._sending:  # or it would be sent to the next file with this number
            self.connection.close()

    def fail(self, error: BaseException) -> None:
        """Gives all shares, and those to come, an error."""
        with self._lock:
            self.failed = self.failed or error
            for share in list(self.shares.values()):
                share.results.put((Died, self.failed))

    def add(self, share: ProcessShare) -> None:
        """Notes a share, whose batches will come."""
        with self._lock:
            self.shares[share.number] = share
            if self.failed is not None:
                share.results.put((Died, self.failed))

    def numbers(self) -> list[int]:
        """Returns the numbers of the shares that are in use."""
        with self._lock:
            return list(self.shares.keys())

    def why_ended(self) -> BaseException:
        """Returns the error of a worker that has ended by itself."""
        self.process.join(GRACE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        code = self.process.exitcode
        how = f"was killed by {signal.Signals(-code).name}" if code and code < 0 else f"exited with code {code}"
        message = f"DataLoader: worker {self.worker} (process {self.process.pid}) {how}"
        if code == -signal.SIGKILL:
            message += "; the system does that when memory runs out"
        elif not self.began:
            message += (
                " before it began; what it printed says more. A script that starts processes does so below "
                "`if __name__ == '__main__':`, since each process imports it"
            )
        return RuntimeError(message)


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Blocks Ctrl-C in the calling thread, so that a process that it starts is not interrupted before it is set up."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class ProcessWorker:
    """A process that prepares batches on request, and ends when this object is freed.

    Args:
        context: of multiprocessing's, which starts the process
        info: the worker's number, seed and dataset
        fetch: returns a batch, given the dataset, its iterator and the sampler's indices
        init: the user's `worker_init_fn`, called first with the worker's number
    """

    def __init__(
        self, context: SpawnContext, info: WorkerInfo, fetch: Fetch, init: Callable[[int], None] | None
    ) -> None:
        self.info = info
        self.tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._passes = 0
        here, there = context.Pipe()
        name = f"DataLoader worker {info.id}"
        payload = _Payload((info, fetch, init))
        self.process = context.Process(target=_work, args=(there, payload), name=name, daemon=True)
        try:
            with _without_interrupts():
                self.process.start()
        except Exception as error:
            here.close()
            error.add_note("DataLoader: processes get the dataset, collate_fn and worker_init_fn pickled; threads, "
                           "which multiprocessing_context=None starts, get them as they are")  # fmt: skip
            raise
        finally:
            there.close()
        self._link = _Link(info.id, self.process, here)
        end = weakref.ref(self, self.tasks.put)
        for target, args in ((_send, (self.tasks, end)), (_receive, (_core.bind_ModeGet(), place.rank))):
            threading.Thread(target=target, args=(self._link, *args), daemon=True, name=name).start()

    def share(self) -> ProcessShare:
        """Starts a pass on this worker."""
        self._passes += 1
        share = ProcessShare(self.tasks, self._passes)
        self._link.add(share)
        share.request(End)
        return share

    def stop(self) -> None:
        """Ends the process after its current request."""
        self.tasks.put(None)

    def alive(self) -> bool:
        """Whether the process takes requests."""
        return self._link.failed is None


def start_workers(
    context: SpawnContext, infos: list[WorkerInfo], fetch: Fetch, init: Callable[[int], None] | None
) -> list[ProcessWorker]:
    """Starts workers side by side: one takes its time to import what it needs."""
    place_here, mode = place.rank, _core.bind_ModeGet()

    def start(info: WorkerInfo) -> ProcessWorker:
        place.rank = place_here
        _core.bind_ModeSet(mode)
        return ProcessWorker(context, info, fetch, init)

    with futures.ThreadPoolExecutor(len(infos), "DataLoader") as pool:
        return list(pool.map(start, infos))


def _send(link: _Link, tasks: queue.SimpleQueue[Any], _end: weakref.ref[ProcessWorker]) -> None:
    """The body of the thread that sends requests."""
    known: set[int] = set()
    while isinstance(task := tasks.get(), tuple):
        share, what = task
        known.add(share.number)
        dropped = known.difference(link.numbers())
        known -= dropped
        freed = [link.freed.popleft() for _ in range(len(link.freed))]
        link.send((share.number, what, freed, dropped))
        del task, share
    link.stopped = True
    link.send(None)


def _receive(link: _Link, mode: int, rank: Rank | None) -> None:
    """The body of the thread that receives batches."""
    place.rank = rank
    _core.bind_ModeSet(mode)
    memory: dict[int, np.ndarray] = {}
    try:
        while True:
            while not link.connection.poll(_POLL):
                if not link.process.is_alive():  # a child of its own may hold the socket open
                    raise EOFError
            number, body, error, segment = pickle.loads(link.connection.recv_bytes())
            if number is None and error is not None:
                raise unpack_error(error)
            link.began = True
            if number is None:
                continue
            batch, buffers = None, []
            if segment is not None:
                which, file, places, gone = segment
                for n in gone:
                    del memory[n]
                if file is not None:
                    memory[which] = _received(link.connection, *file)
                buffers = [memory[which][start:stop] for start, stop in places]
            try:
                if error is None:
                    batch = pickle.loads(body, buffers=buffers)
                out = (batch, None if error is None else unpack_error(error))
            except BaseException as unpickling:
                unpickling.add_note(f"raised by what came from DataLoader worker {link.worker}")
                out = (None, unpickling)
            if segment is not None:
                link.freed.append(segment[0])
            share = link.shares.get(number)
            if share is not None:
                share.results.put(out)
            del share, out, batch, buffers
    except (EOFError, OSError):
        ended = link.why_ended()
        if not link.stopped:
            link.fail(ended)
    except BaseException as failed:  # before its first request
        link.fail(failed)
        link.process.join(GRACE)
    link.close()


def _received(connection: Any, *which: int) -> np.ndarray:
    with socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as s:
        _, (fd,), _, _ = socket.recv_fds(s, 1, 1)
    return share_numpy(opened(fd, *which))


# --- in the worker's process ---


class _Replies:
    """The results of a share: they are sent to the other process, by the thread that makes them."""

    segments = Segments()

    def __init__(self, connection: Any, number: int | None, worker: int) -> None:
        self._connection, self._number, self._worker = connection, number, worker

    def put(self, result: tuple[Any, BaseException | None]) -> None:
        """Sends a batch or its error."""
        batch, error = result
        body, segment, file = b"", None, None
        if error is None:
            packer = Packer()
            try:
                body = packer.pack(batch)
                if packer.arrays:
                    which, file, places, gone = self.segments.fill(packer.arrays)
                    segment = (which, file and file[1:], places, gone)
            except Exception as unfit:
                unfit.add_note(f"raised in DataLoader worker {self._worker} by sending a batch")
                error = unfit
        if isinstance(error, SystemExit):
            raise error
        packed = None if error is None else pack_error(_with_text(error))
        try:
            self._connection.send_bytes(pickle.dumps((self._number, body, packed, segment)))
            if file is not None:
                with socket.fromfd(self._connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as s:
                    socket.send_fds(s, [b"0"], [file[0]])
        except ConnectionError:
            os._exit(1)  # the other process is gone


def _with_text(error: BaseException) -> BaseException:
    """Adds to an exception its traceback, which does not travel."""
    notes = list(getattr(error, "__notes__", ()))
    if not any(n.startswith("Traceback") for n in notes):  # it may be sent for several requests
        error.__notes__ = []
        text = "".join(traceback.format_exception(error))
        error.__notes__ = [*notes, text.rstrip()]
    return error


def _work(connection: Any, payload: _Pickled) -> None:
    """The body of a worker's process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the other process decides what Ctrl-C ends
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    try:
        info, fetch, init = payload.load()
    except BaseException as error:
        error.add_note("raised in a DataLoader worker by unpickling the dataset, collate_fn or worker_init_fn; what "
                       "they are made of has to be in a module, or in a script that can be imported")  # fmt: skip
        _Replies(connection, None, 0).put((None, error))
        return
    _Replies(connection, None, info.id).put((None, None))
    tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_serve, args=(connection, tasks, info.id), daemon=True).start()
    set_process_info(info)
    set_num_threads(1)  # the workers share the processors
    random.seed(info.seed)
    np.random.seed(np.random.SeedSequence(info.seed).generate_state(4))
    run_worker(info, fetch, init, tasks, _core.bind_ModeGet(), None, None)


def _serve(connection: Any, tasks: queue.SimpleQueue[Any], worker: int) -> None:
    """The body of the thread that receives requests."""
    shares: dict[int, Share] = {}
    try:
        while (message := connection.recv()) is not None:
            number, what, freed, dropped = message
            for n in dropped:
                del shares[n]
            _Replies.segments.freed.extend(freed)
            if number not in shares:
                shares[number] = Share(tasks)
                shares[number].results = _Replies(connection, number, worker)  # type: ignore[assignment]
            shares[number].request(pickle.loads(what))
    except (EOFError, OSError):
        os._exit(1)  # the other process is gone
    tasks.put(None)
    threading.Event().wait(GRACE)
    os._exit(1)  # its dataset is still at work, and nobody waits for it
