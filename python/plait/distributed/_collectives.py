"""Collectives on tensors, with the names and arguments of torch.distributed."""

from __future__ import annotations

import enum
from array import array
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from plait import _core
from plait._engine.runtime import address, check
from plait._tensor import Tensor
from plait.distributed._groups import (
    ProcessGroup,
    current_handle,
    get_group_rank,
    is_non_member,
    nanoseconds,
    resolve_group,
)
from plait.distributed._work import ReduceOp, Work, wait_for_ranks

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
    """The engine's number of each collective."""

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


_NO_HANDLES = array("q")
_SEQUENCES = list, tuple, Sequence
_NAMES = [kind.name.lower() for kind in Kind]  # by number, for errors


def tensor_handles(name: str, values: Any) -> array[int]:
    """Returns the handles of a tensor or of a sequence of tensors."""
    if isinstance(values, Tensor):
        return array("q", (values._h,))
    if values == ():
        return _NO_HANDLES
    if not isinstance(values, _SEQUENCES) or not all(isinstance(t, Tensor) for t in values):
        raise TypeError(f"{name}: want tensors, got {type(values).__name__}")
    return array("q", [t._h for t in values])


def start_collective(
    kind: Kind,
    group: ProcessGroup,
    ins: Any = (),
    outs: Any = (),
    op: int = ReduceOp.SUM,
    peer: int = 0,
    tag: int = 0,
    result: Any = None,
) -> Work:
    """Starts a collective and returns its handle. `result` is the value of its future."""
    name = _NAMES[kind]
    i, o = tensor_handles(name, ins), tensor_handles(name, outs)
    if not isinstance(op, int):
        raise TypeError(f"{name}: want a ReduceOp, got {type(op).__name__}")
    group = current_handle(group)
    handle = _core.bind_CollectiveStart(group._h, kind, op, peer, tag, address(i), len(i), address(o), len(o), 0)
    return Work(check(handle), result, name)


def _wait_unless_async(work: Work, async_op: bool) -> Work | None:
    """Returns the handle of an asynchronous collective. For a synchronous one it waits until all ranks have arrived."""
    if async_op:
        return work
    wait_for_ranks(work)
    return None


def resolve_root(group: Any, name: str, root: int | None, group_root: int | None) -> tuple[ProcessGroup, int]:
    """Returns the group and the root's rank in it. The root is given as global rank or as rank in the group."""
    g = resolve_group(group, name)
    if (root is None) == (group_root is None):
        raise ValueError(f"{name}: want the root as a global rank or as one of the group, got {root} and {group_root}")
    given = root if group_root is None else group_root
    if not isinstance(given, int):
        raise TypeError(f"{name}: want the root as the number of a rank, got {given!r}")
    if group_root is not None:
        return g, group_root
    return g, root if group is None else get_group_rank(g, root)  # type: ignore[arg-type,return-value]


def all_reduce(
    tensor: Tensor,
    op: int = ReduceOp.SUM,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    *,
    order: str = "rank",
) -> Work | None:
    """Reduces the ranks' tensors, of one shape and dtype, in place on every rank.

    Args:
        tensor: the tensor, or a list of tensors that are reduced together
        op: a `ReduceOp`
        group: the default group by default
        async_op: whether to return at once, with a handle
        order: "rank" joins in the order of the ranks, so that the bits are the same wherever they live. "node" joins
            the ranks of each process first and then the results of the processes: of processes with several ranks it
            sends less, and the bits depend on which ranks share a process
    """
    if order not in ("rank", "node"):
        raise ValueError(f'all_reduce: order: want "rank" or "node", got {order!r}')
    if is_non_member(group):
        return None
    g, by_node = resolve_group(group, "all_reduce"), int(order == "node")
    return _wait_unless_async(
        start_collective(Kind.ALL_REDUCE, g, tensor, op=op, tag=by_node, result=[tensor]), async_op
    )


def broadcast(
    tensor: Tensor,
    src: int | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Copies the tensor of rank `src` to the tensors of all ranks."""
    if is_non_member(group):
        return None
    g, root = resolve_root(group, "broadcast", src, group_src)
    return _wait_unless_async(start_collective(Kind.BROADCAST, g, tensor, peer=root, result=[tensor]), async_op)


def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: int = ReduceOp.SUM,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Reduces the ranks' tensors, in place on rank `dst`."""
    if is_non_member(group):
        return None
    g, root = resolve_root(group, "reduce", dst, group_dst)
    return _wait_unless_async(start_collective(Kind.REDUCE, g, tensor, op=op, peer=root, result=[tensor]), async_op)


def all_gather(
    tensor_list: list[Tensor], tensor: Tensor, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """Writes the tensor of rank r to `tensor_list[r]` on every rank. The tensors may differ in size."""
    if is_non_member(group):
        return None
    g = resolve_group(group, "all_gather")
    return _wait_unless_async(start_collective(Kind.ALL_GATHER, g, tensor, tensor_list, result=tensor_list), async_op)


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """Writes the tensors of all ranks, of one size, one after the other to `output_tensor` on every rank."""
    if is_non_member(group):
        return None
    g = resolve_group(group, "all_gather_into_tensor")
    return _wait_unless_async(
        start_collective(Kind.ALL_GATHER, g, input_tensor, output_tensor, result=[output_tensor]), async_op
    )


def reduce_scatter(
    output: Tensor,
    input_list: list[Tensor],
    op: int = ReduceOp.SUM,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """Reduces the ranks' `input_list[r]` and writes the result to `output` on rank r."""
    if is_non_member(group):
        return None
    g = resolve_group(group, "reduce_scatter")
    return _wait_unless_async(
        start_collective(Kind.REDUCE_SCATTER, g, input_list, output, op=op, result=[output]), async_op
    )


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: int = ReduceOp.SUM, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """Reduces part r of the ranks' `input` and writes the result to `output` on rank r."""
    if is_non_member(group):
        return None
    g = resolve_group(group, "reduce_scatter_tensor")
    return _wait_unless_async(start_collective(Kind.REDUCE_SCATTER, g, input, output, op=op, result=[output]), async_op)


def all_to_all(
    output_tensor_list: list[Tensor],
    input_tensor_list: list[Tensor],
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """Writes `input_tensor_list[r]` of rank q to `output_tensor_list[q]` of rank r."""
    if is_non_member(group):
        return None
    g = resolve_group(group, "all_to_all")
    work = start_collective(Kind.ALL_TO_ALL, g, input_tensor_list, output_tensor_list, result=output_tensor_list)
    return _wait_unless_async(work, async_op)


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """Exchanges parts along dimension 0: sends part r of `input` to rank r, and receives part r of `output` from it."""
    if is_non_member(group):
        return None
    g = current_handle(resolve_group(group, "all_to_all_single"))

    def elements(t: Tensor, sizes: Sequence[int] | None) -> tuple[array[int], int]:
        if sizes is None or not len(sizes):
            return array("q"), -1
        row = t.numel() // t.shape[0] if t.dim() and t.shape[0] else 1
        return array("q", [n * row for n in sizes]), len(sizes)

    (outs, n_outs), (ins, n_ins) = elements(output, output_split_sizes), elements(input, input_split_sizes)
    handle = _core.bind_CollectiveAllToAllStart(g._h, output._h, input._h, address(outs), n_outs, address(ins), n_ins)
    return _wait_unless_async(Work(check(handle), [output], "all_to_all_single"), async_op)


def gather(
    tensor: Tensor,
    gather_list: list[Tensor] | None = None,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Writes the tensor of rank r to `gather_list[r]`, on rank `dst`, which is 0 by default."""
    if is_non_member(group):
        return None
    g, root = resolve_root(group, "gather", 0 if dst is None and group_dst is None else dst, group_dst)
    return _wait_unless_async(
        start_collective(Kind.GATHER, g, tensor, gather_list or (), peer=root, result=gather_list), async_op
    )


def scatter(
    tensor: Tensor,
    scatter_list: list[Tensor] | None = None,
    src: int | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Writes `scatter_list[r]` of rank `src`, which is 0 by default, to the tensor of rank r."""
    if is_non_member(group):
        return None
    g, root = resolve_root(group, "scatter", 0 if src is None and group_src is None else src, group_src)
    return _wait_unless_async(
        start_collective(Kind.SCATTER, g, scatter_list or (), tensor, peer=root, result=[tensor]), async_op
    )


def _start_barrier(g: ProcessGroup, note: str, timeout: timedelta | float | None) -> Work:
    """Starts an exchange without data, which every rank must join. `note` names it in error messages."""
    g = current_handle(g)
    return Work(check(_core.bind_ExchangeStart(g._h, note, 0, 0, nanoseconds(timeout))), name=note)


def barrier(
    group: ProcessGroup | None = None,
    async_op: bool = False,
    device_ids: Any = None,
    timeout: timedelta | float | None = None,
) -> Work | None:
    """Waits until every rank has called it. The default timeout is the group's."""
    if is_non_member(group):
        return None
    work = _start_barrier(resolve_group(group, "barrier"), "barrier", timeout)
    return _wait_unless_async(work, async_op)


def monitored_barrier(
    group: ProcessGroup | None = None, timeout: timedelta | float | None = None, wait_all_ranks: bool = False
) -> None:
    """Waits until every rank has called it. After the timeout, the error names every rank that has not."""
    if not is_non_member(group):
        wait_for_ranks(_start_barrier(resolve_group(group, "monitored_barrier"), "monitored_barrier", timeout))
