"""Sends and receives between two ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plait._tensor import Tensor
from plait.distributed._collectives import Kind, start_collective
from plait.distributed._groups import ProcessGroup, get_global_rank, get_group_rank, is_non_member, resolve_group
from plait.distributed._work import Work, wait_for_ranks

__all__ = ["P2POp", "batch_isend_irecv", "irecv", "isend", "recv", "send"]


def _resolve_peer(group: Any, name: str, peer: int | None, group_peer: int | None) -> tuple[ProcessGroup, int]:
    """Returns the group and the rank of the peer in it; -1 means any. `peer` is a global rank."""
    g = resolve_group(group, name)
    if group_peer is not None:
        if peer is not None:
            raise ValueError(f"{name}: want a global rank or one of the group, got both {peer} and {group_peer}")
        return g, group_peer
    if peer is None:
        return g, -1
    return g, peer if group is None else get_group_rank(g, peer)


def isend(
    tensor: Tensor,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> Work | None:
    """Sends a tensor to rank `dst`, which must receive with the same tag."""
    if is_non_member(group):
        return None
    g, peer = _resolve_peer(group, "isend", dst, group_dst)
    return start_collective(Kind.SEND, g, tensor, peer=peer, tag=tag, result=[tensor])


def irecv(
    tensor: Tensor,
    src: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
    group_src: int | None = None,
) -> Work | None:
    """Receives into a tensor from rank `src`, or from the first rank that sends."""
    if is_non_member(group):
        return None
    g, peer = _resolve_peer(group, "irecv", src, group_src)
    return start_collective(Kind.RECV, g, (), tensor, peer=peer, tag=tag, result=[tensor])


def send(
    tensor: Tensor,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> None:
    """Sends a tensor like `isend`, and waits until the other rank has called `recv`."""
    work = isend(tensor, dst, group, tag, group_dst)
    if work is not None:
        wait_for_ranks(work)


def recv(
    tensor: Tensor,
    src: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
    group_src: int | None = None,
) -> int:
    """Receives like `irecv`, waits, and returns the sender's global rank; -1 if this rank is not in the group."""
    work = irecv(tensor, src, group, tag, group_src)
    if work is None:
        return -1
    work.wait()
    return get_global_rank(resolve_group(group, "recv"), work.source_rank())


class P2POp:
    """One `isend` or `irecv` of `batch_isend_irecv`."""

    def __init__(
        self,
        op: Callable[..., Work | None],
        tensor: Tensor,
        peer: int | None = None,
        group: ProcessGroup | None = None,
        tag: int = 0,
        group_peer: int | None = None,
    ) -> None:
        if op not in (isend, irecv):
            raise ValueError("P2POp: want isend or irecv")
        self.op, self.tensor, self.peer, self.group, self.tag, self.group_peer = (
            op,
            tensor,
            peer,
            group,
            tag,
            group_peer,
        )


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Work]:
    """Starts several sends and receives and returns their `Work` handles."""
    if not p2p_op_list or not all(isinstance(p, P2POp) for p in p2p_op_list):
        raise ValueError("batch_isend_irecv: want a list of P2POp")
    works = [p.op(p.tensor, p.peer, p.group, p.tag, p.group_peer) for p in p2p_op_list]
    return [w for w in works if w is not None]
