"""The collectives on tensors."""

from __future__ import annotations

import enum
from array import array
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from plait import _core
from plait._engine.runtime import address, check
from plait._tensor import Tensor
from plait.distributed._groups import ProcessGroup, get_group_rank, is_outside, nanoseconds, require, substituted
from plait.distributed._work import ReduceOp, Work, arrive

__all__ = [
    "all_gather",
    "all_gather_into_tensor",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "gather",
    "monitored_barrier",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
]


class Kind(enum.IntEnum):
    """The engine's numbers of the collectives."""

    ALL_REDUCE = 0
    BROADCAST = 1
    REDUCE = 2
    ALL_GATHER = 3
    REDUCE_SCATTER = 4
    ALL_TO_ALL = 5
    GATHER = 6
    SCATTER = 7
    SEND = 8
    RECV = 9


def tensors(name: str, values: Any) -> array[int]:
    """Returns the handles of a tensor or a sequence of tensors."""
    if isinstance(values, Tensor):
        values = (values,)
    if not isinstance(values, Sequence) or not all(isinstance(t, Tensor) for t in values):
        raise TypeError(f"{name}: want tensors, got {type(values).__name__}")
    return array("q", [t._h for t in values])


def begin(
    kind: Kind,
    group: ProcessGroup,
    ins: Any = (),
    outs: Any = (),
    op: int = ReduceOp.SUM,
    peer: int = 0,
    tag: int = 0,
    result: Any = None,
) -> Work:
    """Starts a collective."""
    name = kind.name.lower()
    i, o = tensors(name, ins), tensors(name, outs)
    if not isinstance(op, int):
        raise TypeError(f"{name}: want a ReduceOp, got {type(op).__name__}")
    group = substituted(group)
    handle = _core.bind_CollectiveStart(
        group._h, int(kind), int(op), peer, tag, address(i), len(i), address(o), len(o), 0
    )
    return Work(check(handle), result, name)


def _finish(work: Work, async_op: bool) -> Work | None:
    if async_op:
        return work
    arrive(work)
    return None


def root_of(group: Any, name: str, root: int | None, group_root: int | None) -> tuple[ProcessGroup, int]:
    """Returns the group, and the number in it of the root, given as a global number or as one of the group."""
    g = require(group, name)
    if (root is None) == (group_root is None):
        raise ValueError(f"{name}: want the root as a global rank or as one of the group, got {root} and {group_root}")
    given = root if group_root is None else group_root
    if not isinstance(given, int):
        raise TypeError(f"{name}: want the root as the number of a rank, got {given!r}")
    if group_root is not None:
        return g, group_root
    return g, root if group is None else get_group_rank(g, root)  # type: ignore[arg-type,return-value]


def all_reduce(tensor: Tensor, op: int = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """Replaces `tensor`, on every rank, by the reduction of all ranks' tensors, of one shape and dtype."""
    if is_outside(group):
        return None
    return _finish(begin(Kind.ALL_REDUCE, require(group, "all_reduce"), tensor, op=op, result=[tensor]), async_op)


def broadcast(
    tensor: Tensor, src: int | None = None, group: Any = None, async_op: bool = False, group_src: int | None = None
) -> Work | None:
    """Replaces `tensor`, on every rank, by that of rank `src`."""
    if is_outside(group):
        return None
    g, root = root_of(group, "broadcast", src, group_src)
    return _finish(begin(Kind.BROADCAST, g, tensor, peer=root, result=[tensor]), async_op)


def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: int = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Replaces `tensor`, on rank `dst`, by the reduction of all ranks' tensors."""
    if is_outside(group):
        return None
    g, root = root_of(group, "reduce", dst, group_dst)
    return _finish(begin(Kind.REDUCE, g, tensor, op=op, peer=root, result=[tensor]), async_op)


def all_gather(tensor_list: list[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False) -> Work | None:
    """Writes the tensor of rank r to `tensor_list[r]`, on every rank. The ranks' tensors may differ in size."""
    if is_outside(group):
        return None
    g = require(group, "all_gather")
    return _finish(begin(Kind.ALL_GATHER, g, tensor, tensor_list, result=tensor_list), async_op)


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """Writes the tensors of all ranks, of one size, one after the other to `output_tensor`."""
    if is_outside(group):
        return None
    g = require(group, "all_gather_into_tensor")
    return _finish(begin(Kind.ALL_GATHER, g, input_tensor, output_tensor, result=[output_tensor]), async_op)


def reduce_scatter(
    output: Tensor, input_list: list[Tensor], op: int = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Writes the reduction of all ranks' `input_list[r]` to the `output` of rank r."""
    if is_outside(group):
        return None
    g = require(group, "reduce_scatter")
    return _finish(begin(Kind.REDUCE_SCATTER, g, input_list, output, op=op, result=[output]), async_op)


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: int = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Writes the reduction of part r of all ranks' `input` to the `output` of rank r."""
    if is_outside(group):
        return None
    g = require(group, "reduce_scatter_tensor")
    return _finish(begin(Kind.REDUCE_SCATTER, g, input, output, op=op, result=[output]), async_op)


def all_to_all(
    output_tensor_list: list[Tensor], input_tensor_list: list[Tensor], group: Any = None, async_op: bool = False
) -> Work | None:
    """Writes `input_tensor_list[r]` of rank q to `output_tensor_list[q]` of rank r."""
    if is_outside(group):
        return None
    g = require(group, "all_to_all")
    work = begin(Kind.ALL_TO_ALL, g, input_tensor_list, output_tensor_list, result=output_tensor_list)
    return _finish(work, async_op)


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Exchanges parts along dimension 0: part r of `input` goes to rank r, part r of `output` comes from it."""
    if is_outside(group):
        return None
    g = substituted(require(group, "all_to_all_single"))

    def elements(t: Tensor, sizes: Sequence[int] | None) -> tuple[array[int], int]:
        if sizes is None or not len(sizes):
            return array("q"), -1
        row = t.numel() // t.shape[0] if t.dim() and t.shape[0] else 1
        return array("q", [n * row for n in sizes]), len(sizes)

    (outs, n_outs), (ins, n_ins) = elements(output, output_split_sizes), elements(input, input_split_sizes)
    handle = _core.bind_CollectiveAllToAllStart(g._h, output._h, input._h, address(outs), n_outs, address(ins), n_ins)
    return _finish(Work(check(handle), [output], "all_to_all_single"), async_op)


def gather(
    tensor: Tensor,
    gather_list: list[Tensor] | None = None,
    dst: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Writes the tensor of rank r to `gather_list[r]`, on rank `dst`, which is 0 by default."""
    if is_outside(group):
        return None
    g, root = root_of(group, "gather", 0 if dst is None and group_dst is None else dst, group_dst)
    return _finish(begin(Kind.GATHER, g, tensor, gather_list or (), peer=root, result=gather_list), async_op)


def scatter(
    tensor: Tensor,
    scatter_list: list[Tensor] | None = None,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Writes `scatter_list[r]` of rank `src`, which is 0 by default, to the tensor of rank r."""
    if is_outside(group):
        return None
    g, root = root_of(group, "scatter", 0 if src is None and group_src is None else src, group_src)
    return _finish(begin(Kind.SCATTER, g, scatter_list or (), tensor, peer=root, result=[tensor]), async_op)


def _wait_for_all(g: ProcessGroup, note: str, timeout: timedelta | float | None) -> Work:
    g = substituted(g)
    return Work(check(_core.bind_ExchangeStart(g._h, note, 0, 0, nanoseconds(timeout))), name=note)


def barrier(
    group: Any = None, async_op: bool = False, device_ids: Any = None, timeout: timedelta | float | None = None
) -> Work | None:
    """Waits until every rank has called it, for the group's time by default."""
    if is_outside(group):
        return None
    work = _wait_for_all(require(group, "barrier"), "barrier", timeout)
    return _finish(work, async_op)


def monitored_barrier(
    group: Any = None, timeout: timedelta | float | None = None, wait_all_ranks: bool = False
) -> None:
    """Waits until every rank has called it; the error at the timeout names every rank that has not."""
    if not is_outside(group):
        arrive(_wait_for_all(require(group, "monitored_barrier"), "monitored_barrier", timeout))
