"""The server of a TCPStore: a thread that keeps the table and answers messages."""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import threading
import time
import weakref
from dataclasses import dataclass, field

from plait._engine.rank import place
from plait._errors import DistNetworkError, QueueEmptyError
from plait.distributed._stores import _frames
from plait.distributed._stores._table import CHANGES, Op, Table

DONE, TIMED_OUT, WRONG, EMPTY = range(4)  # numbers of answers
GREETING = 10.0  # seconds that a new connection has to say who it is
PORTS = 20  # how many ports are tried that must be free on several addresses
_NO_ADDRESS = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}  # of this machine, though others of the host may be


@dataclass(eq=False)
class _Client:
    """A connection."""

    socket: socket.socket
    opened: float
    greeted: bool = False
    got: bytearray = field(default_factory=bytearray)
    unsent: bytearray = field(default_factory=bytearray)
    waiting: tuple[Op, list[bytes]] | None = None  # an operation that waits
    deadline: float = 0.0  # of it


class Server:
    """Listens on the addresses of one host name, and serves clients until it is closed."""

    def __init__(self, host: str, port: int) -> None:
        """Starts it.

        Raises:
            DistNetworkError: if it cannot listen there.
        """
        self._listeners = _listen(host, port)
        self.port: int = self._listeners[0].getsockname()[1]
        self._table = Table()
        self._clients: set[_Client] = set()
        self._wake, self._woken = socket.socketpair()
        self._closing, self._users, self._process = False, 1, os.getpid()
        self._selector = selectors.DefaultSelector()
        for s in (*self._listeners, self._woken):
            s.setblocking(False)
            self._selector.register(s, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="TCPStore", daemon=True)
        before, place.rank = place.rank, None  # it serves all ranks, whichever has started it
        try:
            self._thread.start()
        finally:
            place.rank = before
        forked = weakref.WeakMethod(self._forked)
        os.register_at_fork(after_in_child=lambda: (f := forked()) and f())

    def use(self) -> bool:
        """Counts one more who needs it, besides whoever has made it, or returns False if it has ended."""
        with _lock:
            if self._users:
                self._users += 1
            return self._users > 0

    def release(self) -> None:
        """Counts one less, and closes it if that was the last."""
        if os.getpid() == self._process:
            with _lock:
                self._users -= 1
                last = self._users == 0
            if last:
                self.close()

    def close(self) -> None:
        """Ends the thread and closes all connections. Clients that wait get an error."""
        self._closing = True
        with contextlib.suppress(OSError):
            self._wake.send(b"x")
        if threading.current_thread() is not self._thread:  # in which the last store may be garbage that is collected
            self._thread.join()
        self._wake.close()

    def _forked(self) -> None:
        """Closes a forked child's copies of the sockets, in which there is no thread to serve them."""
        for s in (*self._listeners, self._wake, self._woken, *(c.socket for c in self._clients)):
            with contextlib.suppress(OSError):
                os.close(s.detach())

    def _serve(self) -> None:
        try:
            while not self._closing:
                self._turn()
        finally:
            for s in (*self._listeners, self._woken, *(c.socket for c in self._clients)):
                s.close()
            self._selector.close()

    def _turn(self) -> None:
        """Waits for something to happen, and does what is to be done."""
        for key, events in self._selector.select(self._pause()):
            client = key.data
            if client is None:
                if key.fileobj is not self._woken:
                    self._accept(key.fileobj)  # type: ignore[arg-type]
                continue
            try:
                if events & selectors.EVENT_READ:
                    self._receive(client)
                if events & selectors.EVENT_WRITE:
                    self._send(client)
            except (OSError, ValueError):  # it has died, or is no client
                self._drop(client)
        now = time.monotonic()
        for client in tuple(self._clients):
            if client.waiting and now >= client.deadline:
                client.waiting = None
                self._reply(client, TIMED_OUT, [])
            elif not client.greeted and now > client.opened + GREETING:
                self._drop(client)

    def _pause(self) -> float | None:
        ends = [c.deadline if c.waiting else c.opened + GREETING for c in self._clients if c.waiting or not c.greeted]
        return max(min(ends) - time.monotonic(), 0) if ends else None

    def _accept(self, listener: socket.socket) -> None:
        try:
            s = listener.accept()[0]
        except OSError:
            time.sleep(0.01)  # such as too many open files
            return
        s.setblocking(False)
        with contextlib.suppress(OSError):
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client = _Client(s, time.monotonic())
        self._clients.add(client)
        self._selector.register(s, selectors.EVENT_READ, client)

    def _drop(self, client: _Client) -> None:
        if client in self._clients:
            self._clients.remove(client)
            self._selector.unregister(client.socket)
            client.socket.close()

    def _receive(self, client: _Client) -> None:
        """Reads what has come, and runs the operations in it.

        Raises:
            ValueError: if it is nothing that a client says.
        """
        try:
            part = client.socket.recv(1 << 18)
        except BlockingIOError:
            return
        if not part:
            raise ValueError("the client has gone")
        client.got += part
        if not client.greeted:
            hello = _frames.HELLO
            if client.got[: len(hello)] != hello[: len(client.got)]:
                raise ValueError("a stranger")
            if len(client.got) < len(hello):
                return
            del client.got[: len(hello)]
            client.greeted = True
            client.unsent += hello
            self._send(client)
        while client.waiting is None and (message := _frames.take(client.got)) is not None:
            number, arguments, seconds = message
            client.deadline = time.monotonic() + seconds
            self._run(client, Op(number), arguments)
        if client.waiting and client.got:
            raise ValueError("a client waits for an answer before it asks again")

    def _run(self, client: _Client, op: Op, arguments: list[bytes]) -> None:
        """Runs an operation, or makes its client wait, and then those operations that had waited for it."""
        if not self._try(client, op, arguments):
            client.waiting = (op, arguments)
        elif op in CHANGES:
            again = True
            while again:  # until none gets on, since a pop may free others
                again = False
                for other in tuple(self._clients):
                    if other.waiting and self._try(other, *other.waiting):
                        again = True

    def _try(self, client: _Client, op: Op, arguments: list[bytes]) -> bool:
        """Runs an operation and answers, or returns False if it has to wait."""
        try:
            result = self._table.apply(op, arguments)
        except QueueEmptyError as error:
            number, result = EMPTY, [str(error).encode()]
        except ValueError as error:
            number, result = WRONG, [str(error).encode()]
        else:
            if result is None:
                return False
            number = DONE
        client.waiting = None
        self._reply(client, number, result)
        return True

    def _reply(self, client: _Client, number: int, parts: list[bytes]) -> None:
        try:
            client.unsent += _frames.pack(number, parts)
        except ValueError as error:  # too long
            client.unsent += _frames.pack(WRONG, [str(error).encode()])
        try:
            self._send(client)
        except OSError:
            self._drop(client)

    def _send(self, client: _Client) -> None:
        """Sends as much as the connection takes."""
        with contextlib.suppress(BlockingIOError):
            while client.unsent:
                del client.unsent[: client.socket.send(memoryview(client.unsent).toreadonly()[: 1 << 18].tobytes())]
        if client in self._clients:
            write = selectors.EVENT_WRITE if client.unsent else 0
            self._selector.modify(client.socket, selectors.EVENT_READ | write, client)


_lock = threading.RLock()  # a store that is collected as garbage, at any line of the lock's holder, is released there
_tenants: weakref.WeakValueDictionary[tuple[str, int], Server] = weakref.WeakValueDictionary()


def start(host: str, port: int, shared: bool) -> Server:
    """Starts a server, which `Server.release` ends.

    Args:
        host: where it listens
        port: the same; 0 for a free one
        shared: whether one that the process has there already, of any rank, will do, if that was started shared too
    """
    with _lock:
        found = _tenants.get((host, port)) if shared and port else None
        if found is not None and found.use():
            return found
        server = Server(host, port)
        if shared:
            _tenants[host, server.port] = server
        return server


def addresses(host: str, port: int) -> list[tuple[socket.AddressFamily, tuple[str, int]]]:
    """Returns the addresses of a host."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found))  # type: ignore[misc]


def _listen(host: str, port: int) -> list[socket.socket]:
    """Returns sockets that listen on all addresses of a host, at one port. 0 means any."""
    error: Exception | None = None
    for _ in range(1 if port else PORTS):
        made: list[socket.socket] = []
        taken = port
        try:
            for family, address in addresses(host, port):
                try:
                    s = socket.socket(family, socket.SOCK_STREAM)
                except OSError as missing:  # such as IPv6 that the machine does not have
                    error = missing
                    continue
                try:
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    if family == socket.AF_INET6:
                        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                    s.bind((address[0], taken, *address[2:]))
                    s.listen(1024)
                except OSError as failed:
                    s.close()
                    if failed.errno not in _NO_ADDRESS:
                        raise
                    error = failed
                    continue
                made.append(s)
                taken = s.getsockname()[1]
            if made:
                return made
        except OSError as failed:
            error = failed
        for s in made:
            s.close()
    reason = f"{error.strerror or error}" if isinstance(error, OSError) else "it has no address"
    raise DistNetworkError(
        f"TCPStore: cannot listen on {host!r}, port {port}: {reason}. The master listens on the host that it is given "
        "alone, which must be an address of its machine"
    )
