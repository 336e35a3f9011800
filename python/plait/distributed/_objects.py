"""Collectives on Python objects, which are pickled. Use them only between ranks that you trust.

With `weights_only`, which must be the same on every rank, objects are written by `plait.save` instead. Reading them
then creates only tensors, numbers, strings and containers.
"""

from __future__ import annotations

import io
import pickle
from array import array
from typing import Any

from plait import _core
from plait._dtype import int64, uint8
from plait._engine.runtime import address, check
from plait._ops import empty
from plait._tensors.arrays import tensor
from plait.distributed._collectives import resolve_root
from plait.distributed._groups import ProcessGroup, current_handle, get_global_rank, is_non_member, resolve_group
from plait.distributed._peers import irecv, isend
from plait.distributed._work import Work, wait_for_ranks
from plait.serialization import load, save

__all__ = [
    "all_gather_object",
    "broadcast_object_list",
    "gather_object",
    "recv_object_list",
    "scatter_object_list",
    "send_object_list",
]


def exchange(g: ProcessGroup, note: str, payload: bytes) -> list[bytes]:
    """Sends `payload` to all ranks and returns the payloads of all ranks. `note` names the call in error messages."""
    data, g = array("B", payload), current_handle(g)
    work = Work(check(_core.bind_ExchangeStart(g._h, note, address(data), len(data), 0)), name=note)
    wait_for_ranks(work)
    out = []
    for r in range(g.size()):
        got = array("B", bytes(check(_core.bind_WorkPayloadSize(work._h, r))))
        check(_core.bind_WorkPayload(work._h, r, address(got), len(got)))
        out.append(got.tobytes())
    return out


def all_gather_object(
    object_list: list[Any], obj: Any, group: ProcessGroup | None = None, weights_only: bool = False
) -> None:
    """Writes the object of rank r to `object_list[r]` on every rank."""
    if is_non_member(group):
        return
    g = resolve_group(group, "all_gather_object")
    _check_length("all_gather_object", object_list, g.size())
    object_list[:] = [
        _deserialize(b, weights_only) for b in exchange(g, "all_gather_object", _serialize(obj, weights_only))
    ]


def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    group_dst: int | None = None,
    weights_only: bool = False,
) -> None:
    """Writes the object of rank r to `object_gather_list[r]` on rank `dst`, 0 by default."""
    if is_non_member(group):
        return
    g, root = resolve_root(group, "gather_object", 0 if dst is None and group_dst is None else dst, group_dst)
    if g.rank() == root:
        _check_length("gather_object", object_gather_list, g.size())
    got = exchange(g, f"gather_object(root {root})", _serialize(obj, weights_only))
    if g.rank() == root and object_gather_list is not None:
        object_gather_list[:] = [_deserialize(b, weights_only) for b in got]


def broadcast_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: ProcessGroup | None = None,
    device: Any = None,
    group_src: int | None = None,
    weights_only: bool = False,
) -> None:
    """Replaces the objects of every rank by those of rank `src`, 0 by default."""
    if is_non_member(group):
        return
    g, root = resolve_root(group, "broadcast_object_list", 0 if src is None and group_src is None else src, group_src)
    mine = _serialize(list(object_list), weights_only) if g.rank() == root else b""
    got = _deserialize(exchange(g, f"broadcast_object_list(root {root})", mine)[root], weights_only)
    _check_length("broadcast_object_list", object_list, len(got))
    object_list[:] = got


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: ProcessGroup | None = None,
    group_src: int | None = None,
    weights_only: bool = False,
) -> None:
    """Writes object r of rank `src`, 0 by default, to the first element of rank r's output list."""
    if is_non_member(group):
        return
    g, root = resolve_root(group, "scatter_object_list", 0 if src is None and group_src is None else src, group_src)
    mine = b""
    if g.rank() == root:
        _check_length("scatter_object_list", scatter_object_input_list, g.size())
        mine = pickle.dumps([_serialize(o, weights_only) for o in scatter_object_input_list or ()])
    if not scatter_object_output_list:
        raise ValueError("scatter_object_list: the output list must have a place for the object")
    parts = pickle.loads(exchange(g, f"scatter_object_list(root {root})", mine)[root])
    scatter_object_output_list[0] = _deserialize(parts[g.rank()], weights_only)


def send_object_list(
    object_list: list[Any],
    dst: int | None = None,
    group: ProcessGroup | None = None,
    device: Any = None,
    group_dst: int | None = None,
    use_batch: bool = False,
    weights_only: bool = False,
) -> None:
    """Sends objects to rank `dst`, which must call `recv_object_list`."""
    data = array("B", _serialize(list(object_list), weights_only))
    size = tensor([len(data)])
    content = tensor(data, dtype=uint8)
    for t in (size, content):
        work = isend(t, dst, group, _OBJECT_TAG, group_dst)
        if work is not None:
            work.wait()


def recv_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: ProcessGroup | None = None,
    device: Any = None,
    group_src: int | None = None,
    use_batch: bool = False,
    weights_only: bool = False,
) -> int:
    """Receives objects from rank `src`, or from the first rank that sends, and returns the sender's global rank."""
    if is_non_member(group):
        return -1
    g = resolve_group(group, "recv_object_list")
    size = empty(1, dtype=int64)
    work = irecv(size, src, group, _OBJECT_TAG, group_src)
    assert work is not None
    work.wait()
    sender = work.source_rank()
    content = empty(int(size.item()), dtype=uint8)
    second = irecv(content, None, g, _OBJECT_TAG, sender)
    assert second is not None
    second.wait()
    got = _deserialize(content.numpy().tobytes(), weights_only)
    _check_length("recv_object_list", object_list, len(got))
    object_list[:] = got
    return get_global_rank(g, sender)


def _serialize(obj: Any, weights_only: bool) -> bytes:
    if not weights_only:
        return pickle.dumps(obj)
    file = io.BytesIO()
    save(obj, file)
    return file.getvalue()


def _deserialize(data: bytes, weights_only: bool) -> Any:
    if not weights_only:
        return pickle.loads(data)
    return load(io.BytesIO(data))


_OBJECT_TAG = -1  # the tag of send_object_list; user tags are 0 or more


def _check_length(name: str, places: list[Any] | None, n: int) -> None:
    if not isinstance(places, list) or len(places) != n:
        got = f"one of {len(places)}" if isinstance(places, list) else type(places).__name__
        raise ValueError(f"{name}: want a list with places for {n} objects, got {got}")
