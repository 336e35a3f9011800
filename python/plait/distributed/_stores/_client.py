"""A store that a server keeps, for processes on several machines."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import weakref
from datetime import timedelta

from plait._errors import DistNetworkError, DistStoreError, QueueEmptyError
from plait.distributed._stores import _frames, _server
from plait.distributed._stores._store import DEFAULT_TIMEOUT, JOINED, Store, seconds_of, timed_out
from plait.distributed._stores._table import Op

ANSWER = 30.0  # seconds that an answer may take beyond the time that the operation waits
PAUSE = 0.05  # seconds between two attempts to connect


class TCPStore(Store):
    """A store whose keys are in the process of its master, which others reach by TCP.

    The master listens on the given host alone, so it must be an address of its machine, and one that the others can
    reach. Whoever can reach the port can read and write. The store ends with the master's object.

    Args:
        host_name: the host of the master
        port: the port there; 0 on the master for a free one, which `port` then says
        world_size: the number of workers, the master among them; None for any
        is_master: whether this process keeps the keys
        timeout: how long methods wait, and this one for the others; 300 seconds by default
        wait_for_workers: whether the master waits until `world_size` workers have come
        multi_tenant: whether other masters of this process with the same host and port share one server
        master_listen_fd: must be None
        use_libuv: has no effect

    Raises:
        DistNetworkError: if the master cannot listen, or cannot be reached.
        DistStoreError: if the others do not come.
    """

    libuvBackend = False  # noqa: N815

    def __init__(
        self,
        host_name: str,
        port: int,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: timedelta | float = DEFAULT_TIMEOUT,
        wait_for_workers: bool = True,
        multi_tenant: bool = False,
        master_listen_fd: int | None = None,
        use_libuv: bool = True,
    ) -> None:
        super().__init__()
        if not isinstance(host_name, str):
            raise TypeError(f"TCPStore: want a host that is a str, got {type(host_name).__name__}")
        if isinstance(port, bool) or not isinstance(port, int):
            raise TypeError(f"TCPStore: want a port that is a whole number, got {port!r}")
        if not (0 if is_master else 1) <= port < 2**16:
            raise ValueError(f"TCPStore: want a port below 65536{'' if is_master else ' and above 0'}, got {port}")
        if master_listen_fd is not None:
            raise NotImplementedError("TCPStore: master_listen_fd must be None")
        self._timeout = seconds_of(timeout, "TCPStore")
        self._server = _server.start(host_name, port, multi_tenant) if is_master else None
        if self._server:
            weakref.finalize(self, self._server.release)
        self._host, self._port = host_name, self._server.port if self._server else port
        self._pool = _Pool(self._host, self._port)
        weakref.finalize(self, self._pool.close)
        self._pool.give(self._pool.take(self._timeout))
        if world_size is not None and world_size > 0 and wait_for_workers:
            self._meet(world_size)

    def _meet(self, world_size: int) -> None:
        """Counts this worker, and on the master waits for all."""
        deadline = time.monotonic() + self._timeout
        here = int(self._run(Op.ADD, [JOINED, b"1"], self._timeout)[0])
        while self._server and here < world_size:
            if time.monotonic() > deadline:
                raise DistStoreError(
                    f"TCPStore: {here} of {world_size} workers have come to {self._host}:{self._port} within "
                    f"{self._timeout:g} s"
                )
            time.sleep(0.01)
            here = int(self._run(Op.ADD, [JOINED, b"0"], self._timeout)[0])

    @property
    def host(self) -> str:
        """The master's host."""
        return self._host

    @property
    def port(self) -> int:
        """The master's port."""
        return self._port

    def clone(self) -> Store:
        """Returns a client of the same master."""
        return TCPStore(self._host, self._port, timeout=self._timeout)

    def _run(self, op: Op, arguments: list[bytes], seconds: float) -> list[bytes]:
        question = _frames.pack(op, arguments, seconds)
        connection = self._pool.take()
        try:
            connection.settimeout(min(seconds + ANSWER, threading.TIMEOUT_MAX))
            connection.sendall(question)
            buffer = bytearray()
            while (answer := _frames.take(buffer)) is None:
                if not (part := connection.recv(1 << 18)):
                    raise ConnectionError("the master has ended")
                buffer += part
        except BaseException as error:
            connection.close()  # the answer may still come
            if isinstance(error, OSError):
                raise DistNetworkError(
                    f"{op.name.lower()}: no answer from the TCPStore at {self._host}:{self._port}: {error}"
                ) from None
            raise
        self._pool.give(connection)
        number, parts, _ = answer
        if number == _server.TIMED_OUT:
            raise timed_out(op, arguments, seconds)
        if number != _server.DONE:
            text = parts[0].decode("utf-8", "replace")
            raise QueueEmptyError(text) if number == _server.EMPTY else ValueError(text)
        return parts

    def __repr__(self) -> str:
        return f"TCPStore({self._host!r}, {self._port}, is_master={self._server is not None})"


class _Pool:
    """Connections to a master, one for each thread that asks at the same time."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._lock = threading.Lock()
        self._idle: list[socket.socket] = []
        self._process, self._closed = os.getpid(), False

    def take(self, patience: float = 0.0) -> socket.socket:
        """Returns a connection that nobody uses, or makes one. With patience it tries again for that many seconds."""
        if os.getpid() != self._process:  # a forked child, which must not speak on its parent's connections
            self._lock, self._idle, self._process = threading.Lock(), [], os.getpid()
        with self._lock:
            if self._idle:
                return self._idle.pop()
        deadline = time.monotonic() + patience
        while True:
            try:
                return self._connect(max(deadline - time.monotonic(), 0.001) if patience else ANSWER)
            except OSError as error:
                if time.monotonic() + PAUSE > deadline:
                    within = f" within {patience:g} s" if patience else ""
                    raise DistNetworkError(
                        f"TCPStore: no connection with {self._host}:{self._port}{within}: {error}"
                    ) from None
            time.sleep(PAUSE)

    def _connect(self, seconds: float) -> socket.socket:
        failed: Exception = OSError("it has no address")
        for family, address in _server.addresses(self._host, self._port):
            s = socket.socket(family, socket.SOCK_STREAM)
            try:
                s.settimeout(min(seconds, ANSWER))
                s.connect(address)
                if s.getsockname() == s.getpeername():
                    raise ConnectionRefusedError("nobody listens")  # a port of its own that TCP has met itself on
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                s.sendall(_frames.HELLO)
                got = b""
                while len(got) < len(_frames.HELLO) and (part := s.recv(len(_frames.HELLO) - len(got))):
                    got += part
                if got != _frames.HELLO:
                    raise DistNetworkError(
                        f"TCPStore: what answers at {self._host}:{self._port} is no TCPStore of this version"
                    )
                return s
            except BaseException as error:
                s.close()
                if not isinstance(error, OSError):
                    raise
                failed = error
        raise failed

    def give(self, connection: socket.socket) -> None:
        """Takes a connection back."""
        with self._lock:
            if not self._closed:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Closes the connections."""
        if os.getpid() != self._process:
            return
        with self._lock:
            self._closed, idle, self._idle = True, self._idle, []
        for s in idle:
            with contextlib.suppress(OSError):
                s.close()
