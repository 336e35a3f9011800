"""Collectives as functions with gradients: what is differentiated is the sum of all ranks' losses.

A backward pass makes collectives too, so that every rank has to make one, over nodes in the same order. Each function
returns new tensors and leaves its inputs alone; the tensors that some get for their results are written to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plait import _ops
from plait._tensor import Tensor
from plait.autograd.function import Function
from plait.distributed import _collectives as collectives
from plait.distributed._groups import ProcessGroup, get_group_rank, require
from plait.distributed._work import ReduceOp

__all__ = [
    "all_gather",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "broadcast",
    "gather",
    "reduce",
    "reduce_scatter",
    "scatter",
]


def _linear(name: str, op: int, *inputs: Tensor) -> int:
    """Returns an operation of reductions through which gradients flow, or where none is wanted any."""
    if op not in (ReduceOp.SUM, ReduceOp.AVG) and any(t.requires_grad for t in inputs):
        raise NotImplementedError(
            f"{name}: gradients flow through ReduceOp.SUM and ReduceOp.AVG, got {ReduceOp(op).name}; use detach()"
        )
    return op


def _back(group: ProcessGroup) -> ProcessGroup:
    """Returns the handle for a gradient: between those of other nodes a reducer makes calls on the group itself."""
    return group._for_backward()._for("a gradient")


def _mine(group: ProcessGroup, rank: int) -> bool:
    return get_group_rank(group, rank) == group.rank()


class _AllReduce(Function):
    @staticmethod
    def forward(ctx: Any, op: int, group: ProcessGroup, tensor: Tensor) -> Tensor:
        ctx.op, ctx.group = op, group
        out = _ops.clone(tensor).contiguous()
        collectives.all_reduce(out, op, group)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return None, None, _AllReduce.apply(ctx.op, _back(ctx.group), grad)


class _Broadcast(Function):
    @staticmethod
    def forward(ctx: Any, src: int, group: ProcessGroup, tensor: Tensor) -> Tensor:
        ctx.src, ctx.group = src, group
        out = _ops.clone(tensor).contiguous()
        collectives.broadcast(out, src, group)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        total = _Reduce.apply(ctx.src, ReduceOp.SUM, _back(ctx.group), grad)
        return None, None, total if _mine(ctx.group, ctx.src) else total * 0


class _Reduce(Function):
    @staticmethod
    def forward(ctx: Any, dst: int, op: int, group: ProcessGroup, tensor: Tensor) -> Tensor:
        ctx.dst, ctx.op, ctx.group = dst, op, group
        out = _ops.clone(tensor).contiguous()
        collectives.reduce(out, dst, op, group)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        of_all = _Broadcast.apply(ctx.dst, _back(ctx.group), grad)
        return None, None, None, of_all / ctx.group.size() if ctx.op == ReduceOp.AVG else of_all


class _Gather(Function):
    @staticmethod
    def forward(ctx: Any, dst: int, group: ProcessGroup, tensor: Tensor) -> tuple[Tensor, ...]:
        ctx.dst, ctx.group = dst, group
        parts = [_ops.zeros_like(tensor) for _ in range(group.size())]
        collectives.gather(tensor.contiguous(), parts if _mine(group, dst) else None, dst, group)
        return tuple(parts)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return None, None, _Scatter.apply(ctx.dst, _back(ctx.group), *grads)


class _Scatter(Function):
    @staticmethod
    def forward(ctx: Any, src: int, group: ProcessGroup, *tensors: Tensor) -> Tensor:
        ctx.src, ctx.group = src, group
        out = _ops.zeros_like(tensors[group.rank()])
        collectives.scatter(out, [t.contiguous() for t in tensors] if _mine(group, src) else None, src, group)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return None, None, *_Gather.apply(ctx.src, _back(ctx.group), grad)


class _AllGather(Function):
    @staticmethod
    def forward(ctx: Any, group: ProcessGroup, shapes: Sequence[Any], tensor: Tensor) -> tuple[Tensor, ...]:
        ctx.group = group
        parts = [_ops.empty(tuple(s), dtype=tensor.dtype, device=tensor.device) for s in shapes]
        collectives.all_gather(parts, tensor.contiguous(), group)
        return tuple(parts)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        out = _ops.empty_like(grads[ctx.group.rank()])
        return None, None, _ReduceScatter.apply(ReduceOp.SUM, _back(ctx.group), out, *grads)


class _ReduceScatter(Function):
    @staticmethod
    def forward(ctx: Any, op: int, group: ProcessGroup, output: Tensor, *tensors: Tensor) -> Tensor:
        ctx.op, ctx.group, ctx.shapes = op, group, [t.shape for t in tensors]
        collectives.reduce_scatter(output, [t.contiguous() for t in tensors], op, group)
        return output.detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        if ctx.op == ReduceOp.AVG:
            grad = grad / ctx.group.size()
        return None, None, None, *_AllGather.apply(_back(ctx.group), ctx.shapes, grad)


class _AllToAll(Function):
    @staticmethod
    def forward(ctx: Any, group: ProcessGroup, outputs: Sequence[Tensor], *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.group, ctx.shapes = group, [t.shape for t in tensors]
        collectives.all_to_all(list(outputs), [t.contiguous() for t in tensors], group)
        return tuple(t.detach() for t in outputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        outputs = [_ops.empty(tuple(s), dtype=grads[0].dtype, device=grads[0].device) for s in ctx.shapes]
        return None, None, *_AllToAll.apply(_back(ctx.group), outputs, *grads)


class _AllToAllSingle(Function):
    @staticmethod
    def forward(ctx: Any, group: ProcessGroup, output: Tensor, to: Any, of: Any, tensor: Tensor) -> Tensor:
        ctx.group, ctx.shape, ctx.to, ctx.of = group, tensor.shape, to, of
        collectives.all_to_all_single(output, tensor.contiguous(), to, of, group)
        return output.detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        output = _ops.empty(tuple(ctx.shape), dtype=grad.dtype, device=grad.device)
        return None, None, None, None, _AllToAllSingle.apply(_back(ctx.group), output, ctx.of, ctx.to, grad)


def all_reduce(tensor: Tensor, op: int = ReduceOp.SUM, group: Any = None) -> Tensor:
    """Returns the reduction of all ranks' tensors, of one shape and dtype.

    Raises:
        NotImplementedError: if a gradient is wanted and op is neither SUM nor AVG.
    """
    return _AllReduce.apply(_linear("all_reduce", op, tensor), require(group, "all_reduce"), tensor)


def broadcast(tensor: Tensor, src: int, group: Any = None) -> Tensor:
    """Returns the tensor of rank `src`, which gets the gradients of all; the others give one of the same shape."""
    return _Broadcast.apply(src, require(group, "broadcast"), tensor)


def reduce(tensor: Tensor, dst: int, op: int = ReduceOp.SUM, group: Any = None) -> Tensor:
    """Returns the reduction of all ranks' tensors on rank `dst`, and elsewhere a copy of the rank's own.

    Raises:
        NotImplementedError: if a gradient is wanted and op is neither SUM nor AVG.
    """
    return _Reduce.apply(dst, _linear("reduce", op, tensor), require(group, "reduce"), tensor)


def gather(tensor: Tensor, dst: int = 0, group: Any = None) -> tuple[Tensor, ...]:
    """Returns the tensors of all ranks, of one shape, on rank `dst`, and zeros elsewhere."""
    return _Gather.apply(dst, require(group, "gather"), tensor)


def scatter(tensors: Sequence[Tensor], src: int = 0, group: Any = None) -> Tensor:
    """Returns the tensor that rank `src` has for this rank; the others give tensors of the same shapes."""
    return _Scatter.apply(src, require(group, "scatter"), *tensors)


def all_gather(tensor: Tensor, group: Any = None) -> tuple[Tensor, ...]:
    """Returns the tensors of all ranks, of one shape."""
    g = require(group, "all_gather")
    return _AllGather.apply(g, [tensor.shape] * g.size(), tensor)


def reduce_scatter(output: Tensor, input_list: Sequence[Tensor], op: int = ReduceOp.SUM, group: Any = None) -> Tensor:
    """Returns the reduction of all ranks' `input_list[r]` on rank r, in the memory of `output`.

    Raises:
        NotImplementedError: if a gradient is wanted and op is neither SUM nor AVG.
    """
    op = _linear("reduce_scatter", op, *input_list)
    return _ReduceScatter.apply(op, require(group, "reduce_scatter"), output, *input_list)


def all_to_all(
    output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: Any = None
) -> tuple[Tensor, ...]:
    """Returns what the ranks have for this one: `input_tensor_list[r]` goes to rank r.

    Args:
        output_tensor_list: whose memory the results have
        input_tensor_list: one tensor for each rank
        group: the ranks; the default group if not given
    """
    return _AllToAll.apply(require(group, "all_to_all"), output_tensor_list, *input_tensor_list)


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Any = None,
) -> Tensor:
    """Returns the parts that the ranks have for this one, one after the other along dimension 0.

    Args:
        output: whose memory the result has
        input: whose part r along dimension 0 goes to rank r
        output_split_sizes: of the parts that come, in rows; equal ones by default
        input_split_sizes: of the parts that go
        group: the ranks; the default group if not given
    """
    g = require(group, "all_to_all_single")
    return _AllToAllSingle.apply(g, output, output_split_sizes, input_split_sizes, input)
