"""Messages between a TCPStore and its server, and records of a FileStore: a number and a list of byte strings.

A message is its length, the number, a time in seconds, and the strings, each behind its length.
"""

from __future__ import annotations

import struct

HELLO = b"plaitst\x01"  # begins each connection, and its answer
LIMIT = 1 << 30  # bytes of a message
_HEAD = struct.Struct("<IBd")
_SIZE = struct.Struct("<I")


def pack(number: int, parts: list[bytes], seconds: float = 0.0) -> bytes:
    """Returns a message.

    Raises:
        ValueError: if it is too long.
    """
    body = b"".join(piece for part in parts for piece in (_SIZE.pack(min(len(part), 2**32 - 1)), part))
    if len(body) > LIMIT - _HEAD.size:
        raise ValueError(f"a message of {len(body)} bytes is too long for a store, which takes {LIMIT}")
    return _HEAD.pack(_HEAD.size + len(body), number, seconds) + body


def take(buffer: bytearray) -> tuple[int, list[bytes], float] | None:
    """Removes the first message from a buffer and returns it, or None if there is no whole one.

    Raises:
        ValueError: if what the buffer has is no message.
    """
    if len(buffer) < _HEAD.size:
        return None
    size, number, seconds = _HEAD.unpack_from(buffer)
    if not _HEAD.size <= size <= LIMIT or not seconds >= 0:
        raise ValueError("not a message of a store")
    if len(buffer) < size:
        return None
    parts, at = [], _HEAD.size
    while at < size:
        if at + _SIZE.size > size:
            raise ValueError("a message of a store is cut short")
        (length,) = _SIZE.unpack_from(buffer, at)
        at += _SIZE.size
        if at + length > size:
            raise ValueError("a message of a store is cut short")
        parts.append(bytes(buffer[at : at + length]))
        at += length
    del buffer[:size]
    return number, parts, seconds
