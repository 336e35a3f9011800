"""Hooks that average the gradients of FullyShardedDataParallel, as they are or rounded to half the bytes.

A hook gets a state, the gradients of all ranks' rows in one dimension, and where to put this rank's part of their
average; where parameters are not divided, only the gradients, to be averaged in place.
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
    """The state of the hooks.

    Args:
        process_group: the ranks; the default group if None
    """

    process_group: Any = None


def allreduce_hook(state: DefaultState, grad: Tensor) -> None:
    """Averages the gradients of parameters that are not divided."""
    all_reduce(grad, op=ReduceOp.AVG, group=state.process_group)


def reduce_scatter_hook(state: DefaultState, grad: Tensor, output: Tensor) -> None:
    """Averages the gradients and gives each rank its part."""
    reduce_scatter_tensor(output, grad, op=ReduceOp.AVG, group=state.process_group)


def fp16_compress_hook(state: DefaultState, grad: Tensor, output: Tensor | None = None) -> None:
    """Averages the gradients rounded to float16; sums are made in float32."""
    _compressed(state, grad, output, float16)


def bf16_compress_hook(state: DefaultState, grad: Tensor, output: Tensor | None = None) -> None:
    """Averages the gradients rounded to bfloat16; sums are made in float32."""
    _compressed(state, grad, output, bfloat16)


def _compressed(state: DefaultState, grad: Tensor, output: Tensor | None, to: dtype) -> None:
    small = grad.to(to)
    if output is None:
        allreduce_hook(state, small)
        grad.copy_(small)
        return
    part = output.to(to)
    reduce_scatter_hook(state, small, part)
    output.copy_(part)
