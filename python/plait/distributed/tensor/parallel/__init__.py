"""Tensor parallelism: the parameters of a module's layers, divided among the ranks of a mesh.

Names are those of torch.distributed.tensor.parallel.
"""

from plait.distributed.tensor.parallel._loss import loss_parallel
from plait.distributed.tensor.parallel._parallelize import parallelize_module
from plait.distributed.tensor.parallel._ready import ready_plan
from plait.distributed.tensor.parallel._styles import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
)

__all__ = [
    "ColwiseParallel",
    "ParallelStyle",
    "PrepareModuleInput",
    "PrepareModuleInputOutput",
    "PrepareModuleOutput",
    "RowwiseParallel",
    "SequenceParallel",
    "loss_parallel",
    "parallelize_module",
    "ready_plan",
]
