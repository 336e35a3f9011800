"""Differentiable collectives. Gradients are those of the sum of all ranks' losses.

Backward runs collectives, too, so every rank must run backward, through the same collectives in the same order. The
functions return new tensors and do not change their inputs. Some write their result to a given output tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plait import _ops
from plait._tensor import Tensor
from plait.autograd.function import Function
from plait.distributed import _collectives as collectives
from plait.distributed._groups import ProcessGroup, get_group_rank, resolve_group
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


def _check_differentiable(name: str, op: int, *inputs: Tensor) -> int:
    """Returns `op`. Raises an error if an input requires a gradient and the reduction has none."""
    if op not in (ReduceOp.SUM, ReduceOp.AVG) and any(t.requires_grad for t in inputs):
        raise NotImplementedError(
            f"{name}: gradients flow through ReduceOp.SUM and ReduceOp.AVG, got {ReduceOp(op).name}; use detach()"
        )
    return op


def _backward_group(group: ProcessGroup) -> ProcessGroup:
    """Returns a second group for collectives in backward, since a reducer may use the group itself at the same time."""
    return group._for_backward()._for("a gradient")


def _is_this_rank(group: ProcessGroup, rank: int) -> bool:
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
        return None, None, _AllReduce.apply(ctx.op, _backward_group(ctx.group), grad)


class _Broadcast(Function):
    @staticmethod
    def forward(ctx: Any, src: int, group: ProcessGroup, tensor: Tensor) -> Tensor:
        ctx.src, ctx.group = src, group
        out = _ops.clone(tensor).contiguous()
        collectives.broadcast(out, src, group)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        total = _Reduce.apply(ctx.src, ReduceOp.SUM, _backward_group(ctx.group), grad)
        return None, None, total if _is_this_rank(ctx.group, ctx.src) else total * 0


class _Reduce(Function):
    @staticmethod
    def forward(ctx: Any, dst: int, op: int, group: ProcessGroup, tensor: Tensor) -> Tensor:
        ctx.dst, ctx.op, ctx.group = dst, op, group
        out = _ops.clone(tensor).contiguous()
        collectives.reduce(out, dst, op, group)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        of_all = _Broadcast.apply(ctx.dst, _backward_group(ctx.group), grad)
        return None, None, None, of_all / ctx.group.size() if ctx.op == ReduceOp.AVG else of_all


class _Gather(Function):
    @staticmethod
    def forward(ctx: Any, dst: int, group: ProcessGroup, tensor: Tensor) -> tuple[Tensor, ...]:
        ctx.dst, ctx.group = dst, group
        parts = [_ops.zeros_like(tensor) for _ in range(group.size())]
        collectives.gather(tensor.contiguous(), parts if _is_this_rank(group, dst) else None, dst, group)
        return tuple(parts)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return None, None, _Scatter.apply(ctx.dst, _backward_group(ctx.group), *grads)


class _Scatter(Function):
    @staticmethod
    def forward(ctx: Any, src: int, group: ProcessGroup, *tensors: Tensor) -> Tensor:
        ctx.src, ctx.group = src, group
        out = _ops.zeros_like(tensors[group.rank()])
        collectives.scatter(out, [t.contiguous() for t in tensors] if _is_this_rank(group, src) else None, src, group)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return None, None, *_Gather.apply(ctx.src, _backward_group(ctx.group), grad)


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
        return None, None, _ReduceScatter.apply(ReduceOp.SUM, _backward_group(ctx.group), out, *grads)


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
        return None, None, None, *_AllGather.apply(_backward_group(ctx.group), ctx.shapes, grad)


class _AllToAll(Function):
    @staticmethod
    def forward(ctx: Any, group: ProcessGroup, outputs: Sequence[Tensor], *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.group, ctx.shapes = group, [t.shape for t in tensors]
        collectives.all_to_all(list(outputs), [t.contiguous() for t in tensors], group)
        return tuple(t.detach() for t in outputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        outputs = [_ops.empty(tuple(s), dtype=grads[0].dtype, device=grads[0].device) for s in ctx.shapes]
        return None, None, *_AllToAll.apply(_backward_group(ctx.group), outputs, *grads)


class _AllToAllSingle(Function):
    @staticmethod
    def forward(ctx: Any, group: ProcessGroup, output: Tensor, to: Any, of: Any, tensor: Tensor) -> Tensor:
        ctx.group, ctx.shape, ctx.to, ctx.of = group, tensor.shape, to, of
        collectives.all_to_all_single(output, tensor.contiguous(), to, of, group)
        return output.detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        output = _ops.empty(tuple(ctx.shape), dtype=grad.dtype, device=grad.device)
        return None, None, None, None, _AllToAllSingle.apply(_backward_group(ctx.group), output, ctx.of, ctx.to, grad)


def all_reduce(tensor: Tensor, op: int = ReduceOp.SUM, group: ProcessGroup | None = None) -> Tensor:
    """Returns the reduction of all ranks' tensors, of one shape and dtype.

    Raises:
        NotImplementedError: if a gradient is wanted and op is neither SUM nor AVG.
    """
    return _AllReduce.apply(_check_differentiable("all_reduce", op, tensor), resolve_group(group, "all_reduce"), tensor)


def broadcast(tensor: Tensor, src: int, group: ProcessGroup | None = None) -> Tensor:
    """Returns the tensor of rank `src`, which gets the sum of the gradients. Other ranks pass one of the same shape."""
    return _Broadcast.apply(src, resolve_group(group, "broadcast"), tensor)


def reduce(tensor: Tensor, dst: int, op: int = ReduceOp.SUM, group: ProcessGroup | None = None) -> Tensor:
    """Returns the reduction of all ranks' tensors on rank `dst`, and a copy of the rank's own tensor elsewhere.

    Raises:
        NotImplementedError: if a gradient is wanted and op is neither SUM nor AVG.
    """
    return _Reduce.apply(dst, _check_differentiable("reduce", op, tensor), resolve_group(group, "reduce"), tensor)


def gather(tensor: Tensor, dst: int = 0, group: ProcessGroup | None = None) -> tuple[Tensor, ...]:
    """Returns the tensors of all ranks, of one shape, on rank `dst`, and zeros elsewhere."""
    return _Gather.apply(dst, resolve_group(group, "gather"), tensor)


def scatter(tensors: Sequence[Tensor], src: int = 0, group: ProcessGroup | None = None) -> Tensor:
    """Returns `tensors[r]` of rank `src` on rank r. The other ranks pass tensors of the same shapes."""
    return _Scatter.apply(src, resolve_group(group, "scatter"), *tensors)


def all_gather(tensor: Tensor, group: ProcessGroup | None = None) -> tuple[Tensor, ...]:
    """Returns the tensors of all ranks, of one shape."""
    g = resolve_group(group, "all_gather")
    return _AllGather.apply(g, [tensor.shape] * g.size(), tensor)


def reduce_scatter(
    output: Tensor, input_list: Sequence[Tensor], op: int = ReduceOp.SUM, group: ProcessGroup | None = None
) -> Tensor:
    """Returns the reduction of all ranks' `input_list[r]` on rank r, written to `output`.

    Raises:
        NotImplementedError: if a gradient is wanted and op is neither SUM nor AVG.
    """
    op = _check_differentiable("reduce_scatter", op, *input_list)
    return _ReduceScatter.apply(op, resolve_group(group, "reduce_scatter"), output, *input_list)


def all_to_all(
    output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: ProcessGroup | None = None
) -> tuple[Tensor, ...]:
    """Sends `input_tensor_list[r]` to rank r, and returns the tensors that the ranks sent to this one.

    Args:
        output_tensor_list: the tensors that the results are written to
        input_tensor_list: one tensor for each rank
        group: the ranks; the default group if not given
    """
    return _AllToAll.apply(resolve_group(group, "all_to_all"), output_tensor_list, *input_tensor_list)


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: ProcessGroup | None = None,
) -> Tensor:
    """Sends part r of `input` to rank r, and returns the parts that the ranks sent to this one, concatenated.

    Args:
        output: the tensor that the result is written to
        input: the tensor to split along dimension 0
        output_split_sizes: the rows of the received parts; equal by default
        input_split_sizes: the rows of the sent parts; equal by default
        group: the ranks; the default group if not given
    """
    g = resolve_group(group, "all_to_all_single")
    return _AllToAllSingle.apply(g, output, output_split_sizes, input_split_sizes, input)
