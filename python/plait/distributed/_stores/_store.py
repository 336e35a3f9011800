"""The methods of stores, a store in this process, and one that adds a prefix to keys."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from plait._errors import DistStoreError
from plait.distributed._stores._table import CHANGES, HIDDEN, Op, Table, text

DEFAULT_TIMEOUT = timedelta(seconds=300)


def seconds_of(timeout: timedelta | float, name: str) -> float:
    """Converts a timeout, a timedelta or seconds."""
    if isinstance(timeout, bool) or not isinstance(timeout, timedelta | int | float):
        raise TypeError(f"{name}: timeout: want a timedelta or seconds, got {type(timeout).__name__}")
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)
    if not seconds >= 0 or not math.isfinite(seconds):
        raise ValueError(f"{name}: timeout: want a time that is not negative, got {timeout!r}")
    return seconds


def timed_out(op: Op, arguments: list[bytes], seconds: float) -> DistStoreError:
    """Returns the error of an operation that has waited in vain."""
    keys = ", ".join(text(k) for k in arguments[:8]) + (", ..." if len(arguments) > 8 else "")
    return DistStoreError(f"{op.name.lower()}: wait timeout after {seconds:g} s, keys: {keys}")


def _key(key: Any, name: str) -> bytes:
    if not isinstance(key, str):
        raise TypeError(f"{name}: want a key that is a str, got {type(key).__name__}")
    return key.encode("utf-8", "surrogateescape")


def _keys(keys: Any, name: str) -> list[bytes]:
    if isinstance(keys, str | bytes) or not isinstance(keys, Sequence):
        raise TypeError(f"{name}: want a list of keys, got {type(keys).__name__}")
    return [_key(k, name) for k in keys]


def _value(value: Any, name: str) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"{name}: want a value that is a str or bytes, got {type(value).__name__}")


class Store:
    """Keys and values that ranks share. A subclass may define the methods anew.

    Values are str or bytes, and come back as bytes. Methods that wait raise `DistStoreError` after the timeout, which
    is 300 seconds at first.
    """

    def __init__(self) -> None:
        self._timeout = DEFAULT_TIMEOUT.total_seconds()

    def _run(self, op: Op, arguments: list[bytes], seconds: float) -> list[bytes]:
        """Runs an operation, and waits for at most some seconds until it can be done."""
        raise NotImplementedError(f"{type(self).__name__} does not define {op.name.lower()}")

    def set(self, key: str, value: str | bytes) -> None:
        """Sets a key to a value."""
        self._run(Op.SET, [_key(key, "set"), _value(value, "set")], self._timeout)

    def get(self, key: str) -> bytes:
        """Returns a key's value, and waits until it has one."""
        return self._run(Op.GET, [_key(key, "get")], self._timeout)[0]

    def add(self, key: str, amount: int) -> int:
        """Adds to a number, which is 0 at first, and returns the sum.

        Raises:
            ValueError: if the key's value is no whole number, or the sum does not fit in 64 bits.
        """
        if isinstance(amount, bool) or not isinstance(amount, int):
            raise TypeError(f"add: want a whole number, got {type(amount).__name__}")
        if not -(2**63) <= amount < 2**63:
            raise ValueError(f"add: {amount} does not fit in 64 bits")
        return int(self._run(Op.ADD, [_key(key, "add"), b"%d" % amount], self._timeout)[0])

    def check(self, keys: Sequence[str]) -> bool:
        """Returns whether all keys have values, without waiting."""
        return self._run(Op.CHECK, _keys(keys, "check"), self._timeout) == [b"1"]

    def wait(self, keys: Sequence[str], timeout: timedelta | float | None = None) -> None:
        """Waits until all keys have values; for the store's timeout by default."""
        limit = self._timeout if timeout is None else seconds_of(timeout, "wait")
        self._run(Op.WAIT, _keys(keys, "wait"), limit)

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        """Sets a key if its value is the expected one, or if it has none and that is empty. Returns the value then.

        If there is none, the expected value is returned.
        """
        values = [_value(v, "compare_set") for v in (expected_value, desired_value)]
        return self._run(Op.COMPARE_SET, [_key(key, "compare_set"), *values], self._timeout)[0]

    def delete_key(self, key: str) -> bool:
        """Removes a key, and returns whether it was there."""
        return self._run(Op.DELETE, [_key(key, "delete_key")], self._timeout) == [b"1"]

    def num_keys(self) -> int:
        """Returns the number of keys. One of the store's own, by which workers are counted, is among them."""
        return int(self._run(Op.COUNT, [], self._timeout)[0])

    def append(self, key: str, value: str | bytes) -> None:
        """Appends to a key's value, which is empty at first."""
        self._run(Op.APPEND, [_key(key, "append"), _value(value, "append")], self._timeout)

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """Returns the values of several keys, and waits until all have one."""
        return self._run(Op.GET, _keys(keys, "multi_get"), self._timeout)

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Sets several keys at once."""
        names, contents = _keys(keys, "multi_set"), [_value(v, "multi_set") for v in values]
        if len(names) != len(contents):
            raise DistStoreError(f"multi_set: got {len(names)} keys and {len(contents)} values")
        pairs = [part for pair in zip(names, contents, strict=True) for part in pair]
        self._run(Op.SET, pairs, self._timeout)

    def queue_push(self, key: str, value: str | bytes) -> None:
        """Adds a value to the end of a queue."""
        self._run(Op.PUSH, [_key(key, "queue_push"), _value(value, "queue_push")], self._timeout)

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        """Removes the first value of a queue and returns it.

        Args:
            key: of the queue
            block: whether to wait for a value; otherwise an empty queue raises `QueueEmptyError`
        """
        return self._run(Op.POP if block else Op.POP_NOW, [_key(key, "queue_pop")], self._timeout)[0]

    def queue_len(self, key: str) -> int:
        """Returns how many values a queue has."""
        return int(self._run(Op.LENGTH, [_key(key, "queue_len")], self._timeout)[0])

    def list_keys(self) -> list[str]:
        """Returns the keys, in no particular order."""
        return [k.decode("utf-8", "surrogateescape") for k in self._run(Op.LIST, [], self._timeout)]

    def barrier(self, key: str, world_size: int, timeout: timedelta | float | None = None) -> None:
        """Waits until `world_size` callers have come to the barrier of that name."""
        if self.add(f"{key}/num_members", 1) == world_size:
            self.set(f"{key}/last_member", "1")
        self.wait([f"{key}/last_member"], self._timeout if timeout is None else timeout)

    def set_timeout(self, timeout: timedelta | float) -> None:
        """Sets how long methods wait."""
        self._timeout = seconds_of(timeout, "set_timeout")

    @property
    def timeout(self) -> timedelta:
        """How long methods wait."""
        return timedelta(seconds=self._timeout)

    def has_extended_api(self) -> bool:
        """Returns whether the store has append, multi_get and multi_set, as all have."""
        return True

    def clone(self) -> Store:
        """Returns another handle on the same keys, with a connection of its own if it is a client of a server."""
        return self

    def __reduce__(self) -> Any:
        raise TypeError(f"a {type(self).__name__} belongs to its process and cannot be pickled")


class HashStore(Store):
    """A store in the memory of this process, for ranks that are threads."""

    def __init__(self) -> None:
        super().__init__()
        self._table = Table()
        self._changed = threading.Condition()

    def _run(self, op: Op, arguments: list[bytes], seconds: float) -> list[bytes]:
        deadline = time.monotonic() + seconds
        with self._changed:
            while (result := self._table.apply(op, arguments)) is None:
                if not self._changed.wait(min(deadline - time.monotonic(), threading.TIMEOUT_MAX)):
                    raise timed_out(op, arguments, seconds)
            if op in CHANGES:
                self._changed.notify_all()
        return result


class PrefixStore(Store):
    """A store whose keys are those of another one, behind a prefix and a slash."""

    def __init__(self, prefix: str, store: Store) -> None:
        if not isinstance(prefix, str):
            raise TypeError(f"PrefixStore: want a prefix that is a str, got {type(prefix).__name__}")
        if not isinstance(store, Store):
            raise TypeError(f"PrefixStore: want a Store, got {type(store).__name__}")
        self._prefix, self._store = prefix, store

    @property
    def underlying_store(self) -> Store:
        """The other store."""
        return self._store

    def _of(self, key: str, name: str) -> str:
        _key(key, name)
        return f"{self._prefix}/{key}"

    def _all(self, keys: Sequence[str], name: str) -> list[str]:
        _keys(keys, name)
        return [f"{self._prefix}/{k}" for k in keys]

    def set(self, key: str, value: str | bytes) -> None:
        self._store.set(self._of(key, "set"), value)

    def get(self, key: str) -> bytes:
        return self._store.get(self._of(key, "get"))

    def add(self, key: str, amount: int) -> int:
        return self._store.add(self._of(key, "add"), amount)

    def check(self, keys: Sequence[str]) -> bool:
        return self._store.check(self._all(keys, "check"))

    def wait(self, keys: Sequence[str], timeout: timedelta | float | None = None) -> None:
        names = self._all(keys, "wait")
        if timeout is None:
            self._store.wait(names)
        else:
            self._store.wait(names, timeout)

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        return self._store.compare_set(self._of(key, "compare_set"), expected_value, desired_value)

    def delete_key(self, key: str) -> bool:
        return self._store.delete_key(self._of(key, "delete_key"))

    def num_keys(self) -> int:
        """Returns the number of keys of the other store."""
        return self._store.num_keys()

    def append(self, key: str, value: str | bytes) -> None:
        self._store.append(self._of(key, "append"), value)

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        return self._store.multi_get(self._all(keys, "multi_get"))

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        self._store.multi_set(self._all(keys, "multi_set"), values)

    def queue_push(self, key: str, value: str | bytes) -> None:
        self._store.queue_push(self._of(key, "queue_push"), value)

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        return self._store.queue_pop(self._of(key, "queue_pop"), block)

    def queue_len(self, key: str) -> int:
        return self._store.queue_len(self._of(key, "queue_len"))

    def list_keys(self) -> list[str]:
        start = f"{self._prefix}/"
        return [k.removeprefix(start) for k in self._store.list_keys() if k.startswith(start)]

    def set_timeout(self, timeout: timedelta | float) -> None:
        """Sets how long methods of the other store wait."""
        self._store.set_timeout(timeout)

    @property
    def timeout(self) -> timedelta:
        return self._store.timeout

    def barrier(self, key: str, world_size: int, timeout: timedelta | float | None = None) -> None:
        self._store.barrier(self._of(key, "barrier"), world_size, timeout)

    def clone(self) -> Store:
        return PrefixStore(self._prefix, self._store.clone())


JOINED, LEFT = HIDDEN + b"joined", HIDDEN + b"left"  # keys under which stores count their workers
