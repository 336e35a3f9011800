"""What the operations of stores do, to a table of keys and values."""

from __future__ import annotations

import re
from collections import deque
from enum import IntEnum

from plait._errors import QueueEmptyError

HIDDEN = b"\0"  # keys of stores' own begin with it
_NUMBER = re.compile(rb"\s*[+-]?[0-9]{1,19}\s*")


class Op(IntEnum):
    """An operation, with its number in messages and files."""

    SET = 1  # key, value, and more of both
    GET = 2  # keys
    ADD = 3  # key, number
    CHECK = 4  # keys
    WAIT = 5  # keys
    COMPARE_SET = 6  # key, expected, desired
    DELETE = 7  # key
    COUNT = 8
    APPEND = 9  # key, value
    LIST = 10
    PUSH = 11  # key, value
    POP = 12  # key
    POP_NOW = 13  # key
    LENGTH = 14  # key


CHANGES = {Op.SET, Op.ADD, Op.COMPARE_SET, Op.DELETE, Op.APPEND, Op.PUSH, Op.POP, Op.POP_NOW}
# How many arguments an operation wants; the others take any number, and SET an even one.
_ARGUMENTS = {
    Op.ADD: 2,
    Op.COMPARE_SET: 3,
    Op.DELETE: 1,
    Op.COUNT: 0,
    Op.APPEND: 2,
    Op.LIST: 0,
    Op.PUSH: 2,
    Op.POP: 1,
    Op.POP_NOW: 1,
    Op.LENGTH: 1,
}


class Table:
    """Keys, values and queues. The same operations in the same order make the same table."""

    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}
        self._queues: dict[bytes, deque[bytes]] = {}

    def apply(self, op: Op, arguments: list[bytes]) -> list[bytes] | None:
        """Runs an operation.

        Returns:
            The result, or None if it has to wait for what others do. Nothing has changed then.

        Raises:
            ValueError: if the arguments are wrong, or a value is no number. Nothing has changed.
            QueueEmptyError: if a queue is empty. Nothing has changed.
        """
        if len(arguments) != _ARGUMENTS.get(op, len(arguments)) or (op == Op.SET and len(arguments) % 2):
            raise ValueError(f"{op.name.lower()}: got {len(arguments)} arguments")
        values = self._values
        match op:
            case Op.SET:
                values.update(zip(arguments[::2], arguments[1::2], strict=True))
            case Op.GET:
                return [values[k] for k in arguments] if self._has(arguments) else None
            case Op.WAIT:
                return [] if self._has(arguments) else None
            case Op.CHECK:
                return [b"1" if self._has(arguments) else b"0"]
            case Op.ADD:
                return [self._add(*arguments)]
            case Op.COMPARE_SET:
                key, expected, desired = arguments
                if values.get(key, b"") == expected:
                    values[key] = desired
                return [values.get(key, expected)]
            case Op.DELETE:
                found = values.pop(arguments[0], None) is not None
                return [b"1" if self._queues.pop(arguments[0], None) or found else b"0"]
            case Op.COUNT:
                return [b"%d" % len({*values, *self._queues})]
            case Op.APPEND:
                values[arguments[0]] = values.get(arguments[0], b"") + arguments[1]
            case Op.LIST:
                return [k for k in {**values, **self._queues} if not k.startswith(HIDDEN)]
            case Op.PUSH:
                self._queues.setdefault(arguments[0], deque()).append(arguments[1])
            case Op.POP | Op.POP_NOW:
                return self._pop(arguments[0], op == Op.POP)
            case Op.LENGTH:
                return [b"%d" % len(self._queues.get(arguments[0], ()))]
        return []

    def _has(self, keys: list[bytes]) -> bool:
        return all(k in self._values or k in self._queues for k in keys)

    def _add(self, key: bytes, amount: bytes) -> bytes:
        value = self._values.get(key, b"0")
        for number in (value, amount):
            if not _NUMBER.fullmatch(number):
                raise ValueError(f"add: the value of {text(key)} is {number[:40]!r}, want a whole number")
        total = int(value) + int(amount)
        if not -(2**63) <= total < 2**63:
            raise ValueError(f"add: {text(key)} would be {total}, which does not fit in 64 bits")
        self._values[key] = b"%d" % total
        return self._values[key]

    def _pop(self, key: bytes, block: bool) -> list[bytes] | None:
        queue = self._queues.get(key)
        if not queue:
            if block:
                return None
            raise QueueEmptyError(f"queue_pop: the queue {text(key)} is empty")
        value = queue.popleft()
        if not queue:
            del self._queues[key]
        return [value]


def text(key: bytes) -> str:
    """Returns a key as messages show it."""
    return repr(key.decode("utf-8", "replace"))
