"""Communication hooks of FullyShardedDataParallel: averages, uncompressed or in a 16-bit dtype.

A hook gets a state, the flat unsharded gradients of a unit, and an output for this rank's shard of the average. With
`NO_SHARD` it gets no output, and averages the gradients in place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from plait._dtype import bfloat16, dtype, float16
from plait._tensor import Tensor
from plait.distributed._collectives import all_reduce, reduce_scatter_tensor
from plait.distributed._work import ReduceOp


@dataclass
class DefaultState:
    """The state of the default hooks.

    Args:
        process_group: the ranks to average over; the default group if None
    """

    process_group: Any = None


def allreduce_hook(state: DefaultState, grad: Tensor) -> None:
    """Averages the gradients of parameters that are not sharded."""
    all_reduce(grad, op=ReduceOp.AVG, group=state.process_group)


def reduce_scatter_hook(state: DefaultState, grad: Tensor, output: Tensor) -> None:
    """Averages the gradients and gives each rank its shard."""
    reduce_scatter_tensor(output, grad, op=ReduceOp.AVG, group=state.process_group)


def fp16_compress_hook(state: DefaultState, grad: Tensor, output: Tensor | None = None) -> None:
    """Averages the gradients in float16. Sums are computed in float32."""
    _compressed(state, grad, output, float16)


def bf16_compress_hook(state: DefaultState, grad: Tensor, output: Tensor | None = None) -> None:
    """Averages the gradients in bfloat16. Sums are computed in float32."""
    _compressed(state, grad, output, bfloat16)


def _compressed(state: DefaultState, grad: Tensor, output: Tensor | None, to: dtype) -> None:
    """Casts the gradients, averages them, and casts the result back."""
    small = grad.to(to)
    if output is None:
        allreduce_hook(state, small)
        grad.copy_(small)
        return
    part = output.to(to)
    reduce_scatter_hook(state, small, part)
    output.copy_(part)
