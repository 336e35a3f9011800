"""Stores do what PyTorch's do, in one process and in several, whoever else speaks or dies."""

import gc
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import plait.distributed as dist
import pytest
from plait.distributed._stores import _frames, _server
from plait.distributed._stores._table import Op

SHORT = timedelta(milliseconds=50)


def tcp(**options):
    return dist.TCPStore("127.0.0.1", 0, is_master=True, **options)


KINDS = {
    "tcp": lambda path: tcp(),
    "file": lambda path: dist.FileStore(str(path / "store")),
    "hash": lambda path: dist.HashStore(),
    "prefix": lambda path: dist.PrefixStore("some", dist.PrefixStore("other", tcp())),
}


@pytest.fixture(params=KINDS)
def store(request, tmp_path):
    return KINDS[request.param](tmp_path)


def test_values(store):
    store.set("a", "1")
    store.set("b", b"\x00\xff")
    store.set("é\0", "é")
    store.set("", "")
    assert [store.get(k) for k in ("a", "b", "é\0", "")] == [b"1", b"\x00\xff", "é".encode(), b""]
    store.set("a", "2")
    assert store.get("a") == b"2"
    store.append("l", "x")
    store.append("l", b"y")
    assert store.get("l") == b"xy"
    store.multi_set(["m", "n"], ["1", b"2"])
    assert store.multi_get(["n", "m"]) == [b"2", b"1"]
    assert store.multi_get([]) == []
    assert sorted(store.list_keys()) == ["", "a", "b", "l", "m", "n", "é\0"]
    assert store.num_keys() == 7
    big = bytes(range(256)) * 40_000
    store.set("big", big)
    assert store.get("big") == big
    assert store.clone().get("a") == b"2"
    assert store.has_extended_api()


def test_numbers(store):
    assert [store.add("n", 1), store.add("n", 41), store.add("n", -50), store.add("n", 0)] == [1, 42, -8, -8]
    assert store.get("n") == b"-8"
    store.set("n", "7")
    assert store.add("n", 2**62) == 2**62 + 7
    with pytest.raises(ValueError, match="does not fit in 64 bits"):
        store.add("n", 2**62)
    store.set("t", "12x")
    with pytest.raises(ValueError, match=r"add: the value of '.*t' is b'12x', want a whole number"):
        store.add("t", 1)
    assert store.get("t") == b"12x"
    assert store.add("n", 0) == 2**62 + 7  # an error leaves the store as it was, and of use


def test_compare_set_and_delete(store):
    assert store.compare_set("c", "no", "x") == b"no"
    assert not store.check(["c"])
    assert store.compare_set("c", "", "x") == b"x"
    assert store.compare_set("c", "x", "y") == b"y"
    assert store.compare_set("c", "x", "z") == b"y"
    assert store.delete_key("c")
    assert not store.delete_key("c")


def test_queues(store):
    store.queue_push("q", "1")
    store.queue_push("q", "2")
    assert store.queue_len("q") == 2
    assert store.check(["q"])
    assert [store.queue_pop("q"), store.queue_pop("q", block=False)] == [b"1", b"2"]
    with pytest.raises(dist.QueueEmptyError, match=r"queue_pop: the queue '.*q' is empty"):
        store.queue_pop("q", block=False)
    assert store.queue_len("q") == 0


def test_waits_end(store):
    store.set("a", "1")
    store.wait(["a"])
    store.wait([])
    assert store.check(["a"])
    assert not store.check(["a", "b"])
    with pytest.raises(dist.DistStoreError, match=r"wait: wait timeout after 0.02 s, keys: '.*a', '.*b'"):
        store.wait(["a", "b"], timedelta(milliseconds=20))
    store.set_timeout(SHORT)
    assert store.timeout == SHORT
    for wait in (lambda: store.get("b"), lambda: store.multi_get(["a", "b"]), lambda: store.queue_pop("b")):
        with pytest.raises(dist.DistStoreError, match=r"wait timeout after 0.05 s"):
            wait()
    assert issubclass(dist.DistStoreError, dist.DistError)


def test_waits_are_served(store):
    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(store.get, "a"), pool.submit(store.queue_pop, "q"), pool.submit(store.queue_pop, "q")]
        time.sleep(0.02)
        store.queue_push("q", "1")
        store.queue_push("q", "2")
        store.set("a", "v")
        assert found[0].result(60) == b"v"
        assert sorted(f.result(60) for f in found[1:]) == [b"1", b"2"]


def test_barrier(store):
    store.barrier("alone", 1)
    with pytest.raises(dist.DistStoreError):
        store.barrier("pair", 2, SHORT)
    with ThreadPoolExecutor(3) as pool:
        for f in [pool.submit(store.barrier, "three", 3) for _ in range(3)]:
            f.result(60)


def test_many_threads_count(store):
    with ThreadPoolExecutor(8) as pool:
        sums = list(pool.map(lambda _: store.add("n", 1), range(200)))
    assert sorted(sums) == list(range(1, 201))


@pytest.mark.parametrize(
    ("call", "error", "wants"),
    [
        (lambda s: s.set("c", 1), TypeError, "set: want a value that is a str or bytes, got int"),
        (lambda s: s.set(b"c", "1"), TypeError, "set: want a key that is a str, got bytes"),
        (lambda s: s.check("a"), TypeError, "check: want a list of keys, got str"),
        (lambda s: s.add("a", 1.5), TypeError, "add: want a whole number, got float"),
        (lambda s: s.add("a", 2**63), ValueError, "does not fit in 64 bits"),
        (lambda s: s.multi_set(["a"], []), dist.DistStoreError, "multi_set: got 1 keys and 0 values"),
        (lambda s: s.set_timeout(-1), ValueError, "want a time that is not negative"),
        (lambda s: s.set_timeout("1"), TypeError, "want a timedelta or seconds, got str"),
        (pickle.dumps, TypeError, "belongs to its process and cannot be pickled"),
    ],
)
def test_wrong_arguments(store, call, error, wants):
    with pytest.raises(error, match=wants):
        call(store)


def test_prefixes():
    inner = dist.HashStore()
    outer = dist.PrefixStore("p", inner)
    outer.set("k", "v")
    assert (inner.get("p/k"), outer.underlying_store, outer.list_keys()) == (b"v", inner, ["k"])
    with pytest.raises(TypeError, match="PrefixStore: want a Store, got dict"):
        dist.PrefixStore("p", {})


def test_stores_of_ones_own():
    class Own(dist.Store):
        def set(self, key, value):
            self.kept = (key, value)

    own = Own()
    dist.PrefixStore("p", own).set("k", "v")
    assert own.kept == ("p/k", "v")
    with pytest.raises(NotImplementedError, match="Own does not define get"):
        own.get("k")


def test_file_that_several_use(tmp_path):
    path = str(tmp_path / "store")
    first, second = dist.FileStore(path, 2), dist.FileStore(path, 2)
    text = f"import plait.distributed as d; s = d.FileStore({path!r}); s.set('child', 'é'); print(s.get('a'))"
    first.set("a", "1")
    said = subprocess.run([sys.executable, "-c", text], check=True, capture_output=True, text=True)
    assert said.stdout == "b'1'\n"
    assert second.multi_get(["child", "a"]) == ["é".encode(), b"1"]
    assert second.num_keys() == 3  # one is the store's own, as in PyTorch
    del first
    assert os.path.exists(path)
    del second
    assert not os.path.exists(path)  # the last worker has removed it


def test_file_whose_writer_has_died(tmp_path):
    path = tmp_path / "store"
    store = dist.FileStore(str(path))
    store.set("a", "1")
    with open(path, "ab") as f:
        f.write(_frames.pack(Op.SET, [b"b", b"2"])[:-1])
    assert not dist.FileStore(str(path)).check(["b"])
    store.set("c", "3")
    assert sorted(dist.FileStore(str(path)).list_keys()) == ["a", "c"]


@pytest.mark.parametrize("content", [b"no store at all, but some text of any length", struct.pack("<IBd", 13, 99, 0.0)])
def test_file_that_is_no_store(tmp_path, content):
    path = tmp_path / "store"
    path.write_bytes(content)
    with pytest.raises(dist.DistStoreError, match="is no file of a store, or damaged"):
        dist.FileStore(str(path)).get("a")
    assert path.read_bytes() == content
    with pytest.raises(dist.DistStoreError, match="No such file or directory"):
        dist.FileStore(str(tmp_path / "no" / "store")).set("a", "1")


def test_master_and_workers():
    with ThreadPoolExecutor(1) as pool:
        port = free_port()
        worker = pool.submit(dist.TCPStore, "127.0.0.1", port, 2, False, 60)  # waits until there is a master
        master = dist.TCPStore("127.0.0.1", port, 2, True, timedelta(seconds=60))
        store = worker.result(60)
    store.set("a", "1")
    assert (master.get("a"), master.num_keys(), master.list_keys()) == (b"1", 2, ["a"])
    assert (store.host, store.port, store.timeout) == ("127.0.0.1", port, timedelta(seconds=60))
    with pytest.raises(dist.DistStoreError, match=r"1 of 2 workers have come to 127.0.0.1:\d+ within 0.05 s"):
        tcp(world_size=2, timeout=SHORT)
    assert tcp(world_size=2, timeout=SHORT, wait_for_workers=False).port > 0


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_master_listens_on_its_host_alone():
    store = dist.TCPStore("127.0.0.2", 0, is_master=True)
    assert store.add("a", 1) == 1
    for other in ("127.0.0.1", "127.0.0.3"):
        with socket.socket() as s, pytest.raises(ConnectionRefusedError):
            s.connect((other, store.port))
    with pytest.raises(dist.DistNetworkError, match=r"cannot listen on '127.0.0.2', port \d+: Address already in use"):
        dist.TCPStore("127.0.0.2", store.port, is_master=True)
    with pytest.raises(dist.DistNetworkError, match="which must be an address of its machine"):
        dist.TCPStore("192.0.2.1", 0, is_master=True)


def test_masters_that_share():
    first = tcp(multi_tenant=True)
    second = dist.TCPStore("127.0.0.1", first.port, is_master=True, multi_tenant=True)
    first.set("a", "1")
    del first
    assert second.get("a") == b"1"


def test_no_master():
    with pytest.raises(dist.DistNetworkError, match=r"no connection with 127.0.0.1:\d+ within 0.05 s"):
        dist.TCPStore("127.0.0.1", free_port(), timeout=SHORT)
    with pytest.raises(dist.DistNetworkError, match="no connection with"):
        dist.TCPStore("no.such.host.invalid", 1234, timeout=SHORT)
    for port in (0, 70_000, -1):
        with pytest.raises(ValueError, match="want a port below 65536"):
            dist.TCPStore("127.0.0.1", port)
    with socket.socket() as s:  # somebody else listens there
        s.bind(("127.0.0.1", 0))
        s.listen()
        with ThreadPoolExecutor(1) as pool:
            store = pool.submit(dist.TCPStore, "127.0.0.1", s.getsockname()[1])
            with s.accept()[0] as other:
                other.sendall(b"HTTP/1.1 400 Bad Request")
                with pytest.raises(dist.DistNetworkError, match="is no TCPStore of this version"):
                    store.result(60)


def test_master_that_ends():
    master = tcp()
    store = dist.TCPStore("127.0.0.1", master.port)
    threads = threading.active_count()
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(store.get, "never")
        time.sleep(0.05)
        port = master.port
        del master
        with pytest.raises(dist.DistNetworkError, match=r"get: no answer from the TCPStore at 127.0.0.1:\d+"):
            found.result(60)
    assert threading.active_count() < threads  # its thread has ended
    with pytest.raises(dist.DistNetworkError):
        store.set("a", "1")
    assert dist.TCPStore("127.0.0.1", port, is_master=True).port == port  # and its port is free


RUBBISH = {
    "text": b"GET / HTTP/1.1\r\nHost: store\r\n\r\n",
    "zeros": bytes(1000),
    "length": _frames.HELLO + b"\xff" * 64,
    "operation": _frames.HELLO + _frames.pack(99, []),
    "short": _frames.HELLO + struct.pack("<IBd", 3, 1, 0.0),
    "parts": _frames.HELLO + struct.pack("<IBdI", 17, 1, 0.0, 2**31),
    "time": _frames.HELLO + struct.pack("<IBd", 13, 5, float("nan")),
    "two questions": _frames.HELLO + 2 * _frames.pack(Op.WAIT, [b"never"], 60.0),
}


@pytest.mark.parametrize("what", RUBBISH)
def test_rubbish_is_refused(what):
    store = tcp()
    store.set("a", "1")
    with socket.create_connection(("127.0.0.1", store.port)) as s:
        s.settimeout(60)
        s.sendall(RUBBISH[what])
        got = b""
        try:
            while part := s.recv(100):
                got += part
        except ConnectionResetError:
            pass
    assert got in (b"", _frames.HELLO)  # no answer, and closed
    assert store.get("a") == b"1"


def test_wrong_numbers_of_arguments_are_answered():
    store = tcp()
    for op in (Op.SET, Op.ADD, Op.COMPARE_SET, Op.DELETE, Op.APPEND, Op.PUSH, Op.POP, Op.LENGTH):
        with pytest.raises(ValueError, match="got 7 arguments"):
            store._run(op, [b"x"] * 7, 1)


def test_values_that_are_too_long(monkeypatch):
    store = tcp()
    store.append("a", "x" * 900)
    monkeypatch.setattr(_frames, "LIMIT", 1000)
    with pytest.raises(ValueError, match="is too long for a store, which takes 1000"):
        store.set("b", bytes(1000))
    store.append("a", "y" * 100)
    with pytest.raises(ValueError, match="is too long for a store, which takes 1000"):
        store.get("a")
    assert store.add("n", 1) == 1


def collecting(monkeypatch, owner, name, store):
    """Makes a function collect a store as garbage when it is next called."""
    whole, kept = getattr(owner, name), [store]

    def collect(*arguments):
        monkeypatch.setattr(owner, name, whole)
        cycle = [kept.pop()]
        cycle.append(cycle)
        del cycle
        gc.collect()
        return whole(*arguments)

    monkeypatch.setattr(owner, name, collect)


def test_stores_collected_while_others_start(monkeypatch):
    collecting(monkeypatch, _server, "_listen", tcp())
    with ThreadPoolExecutor() as pool:
        assert pool.submit(tcp).result(60).add("a", 1) == 1


def test_stores_collected_by_a_server(monkeypatch):
    last = [tcp()]
    with socket.create_connection(("127.0.0.1", last[0].port)) as s:
        monkeypatch.setattr(_server.Server, "_receive", lambda server, client: last.clear())
        s.sendall(b"x")
        s.settimeout(60)
        with pytest.raises(ConnectionResetError):
            s.recv(1)
    monkeypatch.undo()
    assert tcp().add("a", 1) == 1


def test_stores_of_a_file_collected_while_another_is_used(tmp_path, monkeypatch):
    path = str(tmp_path / "store")
    first = dist.FileStore(path, 2)
    collecting(monkeypatch, type(first._journal), "_catch_up", dist.FileStore(path, 2))
    with ThreadPoolExecutor() as pool:
        assert pool.submit(first.add, "a", 1).result(60) == 1
    assert os.path.exists(path)
    del first
    assert not os.path.exists(path)


def test_strangers_who_say_nothing_are_dropped(monkeypatch):
    monkeypatch.setattr(_server, "GREETING", 0.05)
    store = tcp()
    with socket.create_connection(("127.0.0.1", store.port)) as s:
        s.settimeout(60)
        assert s.recv(1) == b""
    assert store.add("a", 1) == 1


def test_clients_that_die():
    """One waits, one reads a long answer, one is in the middle of a question."""
    store = tcp()
    store.set("big", bytes(20_000_000))
    text = (
        "import sys, threading, time, plait.distributed as d\n"
        "s = d.TCPStore('127.0.0.1', int(sys.argv[1]))\n"
        "threading.Thread(target=s.get, args=('never',), daemon=True).start()\n"
        "a, b = s._pool.take(), s._pool.take()\n"
        "from plait.distributed._stores import _frames\n"
        "a.sendall(_frames.pack(2, [b'big'], 9.0)); b.sendall(_frames.pack(1, [b'big', b'x'])[:-1])\n"
        "time.sleep(0.1); s.set('there', '1'); time.sleep(60)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", text, str(store.port)])
    store.wait(["there"], 60)
    child.send_signal(signal.SIGKILL)
    child.wait()
    store.set("never", "1")
    assert len(store.get("big")) == 20_000_000


def test_forked_child_has_connections_of_its_own():
    text = (
        "import os, sys\n"
        "import plait.distributed as d\n"
        "s = d.TCPStore('127.0.0.1', 0, is_master=True)\n"
        "s.set('a', '1')\n"
        "pid = os.fork()\n"
        "if not pid:\n"
        "    s.set('b', s.get('a') + b'2')\n"
        "    sys.exit(0)\n"
        "assert os.waitpid(pid, 0)[1] == 0\n"
        "print(s.get('b'))\n"
    )
    said = subprocess.run([sys.executable, "-W", "ignore", "-c", text], check=True, capture_output=True, text=True)
    assert said.stdout == "b'12'\n", said.stderr


def test_ranks_that_are_threads(tmp_path):
    """The server outlives the rank whose code has started it, and serves all."""
    seen = []

    def work(rank, port):
        store = dist.TCPStore("localhost", port, 2, rank == 0)
        dist.init_process_group("gloo", store=dist.PrefixStore("x", store), rank=rank, world_size=2)
        store.add("sum", rank + 1)
        store.barrier("all", 2)
        seen.append((store.get("sum"), store))
        dist.barrier()
        dist.destroy_process_group()

    dist.spawn(work, args=(free_port(),), nprocs=2)
    assert [s for s, _ in seen] == [b"3", b"3"]
    assert [s.add("sum", 1) for _, s in seen] == [4, 5]


@pytest.mark.parametrize(
    ("options", "error", "wants"),
    [
        ({"store": 3}, TypeError, "want a Store, got int"),
        ({}, ValueError, "a store wants rank and world_size beside it, got rank -1 of -1"),
        ({"rank": 0}, ValueError, "a store wants rank and world_size"),
        ({"rank": 0, "world_size": 1, "init_method": "env://"}, ValueError, "want a store or an init_method, got both"),
        ({"rank": 0, "world_size": 2}, ValueError, "no launcher started this process.*plait.distributed.run"),
        ({"rank": 1, "world_size": 1}, ValueError, "this is rank 0 of 1, got rank 1 of 1"),
    ],
)
def test_store_of_a_process_group(options, error, wants):
    with pytest.raises(error, match=wants):
        dist.init_process_group("gloo", **{"store": dist.HashStore()} | options)
    assert not dist.is_initialized()


def test_store_of_a_process_that_is_alone():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    dist.destroy_process_group()
