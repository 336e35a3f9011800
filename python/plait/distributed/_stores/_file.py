"""A store in a file that processes share."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
import weakref
from typing import Any

from plait._errors import DistStoreError
from plait.distributed._stores import _frames
from plait.distributed._stores._store import JOINED, LEFT, Store, timed_out
from plait.distributed._stores._table import CHANGES, Op, Table

FIRST_POLL, LAST_POLL = 0.001, 0.05  # seconds between two looks at the file


class FileStore(Store):
    """A store in a file, which all processes see, on a file system that supports locks.

    Args:
        file_name: the file. It is made if it is not there; one that another run has left behind has that run's keys
        world_size: the number of workers. The file is removed when so many have ended; -1 to keep it

    Raises:
        DistStoreError: if the file cannot be used.
    """

    def __init__(self, file_name: str, world_size: int = -1) -> None:
        super().__init__()
        if not isinstance(world_size, int) or isinstance(world_size, bool):
            raise TypeError(f"FileStore: want a whole number of workers, got {world_size!r}")
        self._path = os.path.abspath(os.fspath(file_name))
        self._journal = _Journal(self._path)
        if world_size > 0:
            self._run(Op.ADD, [JOINED, b"1"], 0)
            weakref.finalize(self, _leave, self._journal, world_size, os.getpid())

    @property
    def path(self) -> str:
        """The file."""
        return self._path

    def _run(self, op: Op, arguments: list[bytes], seconds: float) -> list[bytes]:
        deadline, pause = time.monotonic() + seconds, FIRST_POLL
        while (result := self._journal.apply(op, arguments)) is None:
            if (left := deadline - time.monotonic()) <= 0:
                raise timed_out(op, arguments, seconds)
            time.sleep(min(pause, left))
            pause = min(pause * 1.5, LAST_POLL)
        return result

    def __repr__(self) -> str:
        return f"FileStore({self._path!r})"


class _Journal:
    """A file with the operations that have changed a table, in order, and the table."""

    def __init__(self, path: str) -> None:
        self._path, self._lock = path, threading.Lock()
        self._table, self._read, self._file = Table(), 0, (0, 0)

    def apply(self, op: Op, arguments: list[bytes]) -> list[bytes] | None:
        """Runs an operation on what the file has, and writes it down if it changes that. See `Table.apply`."""
        _thread.applies = True
        try:
            # Opened each time: a lock belongs to the open file, which processes that fork would share.
            with self._lock, open(self._path, "a+b", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                self._catch_up(file)
                result = self._table.apply(op, arguments)
                if result is not None and op in CHANGES:
                    self._write(file, _frames.pack(op, arguments))
                return result
        except OSError as error:
            raise DistStoreError(f"FileStore: {self._path}: {error.strerror or error}") from None
        finally:
            _thread.applies = False
            while _thread.leavers:
                _leave(*_thread.leavers.pop())

    def _catch_up(self, file: Any) -> None:
        """Runs the operations that others have written since."""
        status = os.fstat(file.fileno())
        if (status.st_dev, status.st_ino) != self._file or status.st_size < self._read:  # another file by now
            self._table, self._read, self._file = Table(), 0, (status.st_dev, status.st_ino)
        buffer, start = bytearray(), self._read
        while part := os.pread(file.fileno(), 1 << 20, start + len(buffer)):
            buffer += part
        if not buffer:
            return
        whole = len(buffer)
        try:
            while (record := _frames.take(buffer)) is not None:
                self._table.apply(Op(record[0]), record[1])
                self._read = start + whole - len(buffer)
        except ValueError as error:
            raise DistStoreError(f"FileStore: {self._path} is no file of a store, or damaged: {error}") from None
        if buffer:
            file.truncate(self._read)  # the writer of a part of a record has died, since it would hold the lock

    def _write(self, file: Any, record: bytes) -> None:
        try:
            written = 0
            while written < len(record):
                written += os.write(file.fileno(), record[written:])
        except OSError:
            file.truncate(self._read)  # no part of it stays, on a full disk, and the table is read again
            self._file = (0, 0)
            raise
        self._read += len(record)

    def remove(self) -> None:
        """Removes the file."""
        with contextlib.suppress(OSError):
            os.unlink(self._path)


class _Thread(threading.local):
    """What a thread is doing. While it applies an operation, another store's garbage may be collected in it."""

    def __init__(self) -> None:
        self.applies = False
        self.leavers: list[tuple[_Journal, int, int]] = []  # they wait until it holds no lock


_thread = _Thread()


def _leave(journal: _Journal, world_size: int, process: int) -> None:
    """Counts a worker that ends. The last one removes the file."""
    if os.getpid() != process:
        return  # a forked child, whose copy was not counted
    if _thread.applies:
        _thread.leavers.append((journal, world_size, process))
        return
    with contextlib.suppress(DistStoreError, ValueError):
        left = journal.apply(Op.ADD, [LEFT, b"1"])
        if left and int(left[0]) >= world_size:
            journal.remove()
