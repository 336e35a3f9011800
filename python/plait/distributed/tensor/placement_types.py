"""Where the parts of distributed tensors are, under PyTorch's name of the module."""

from plait._engine.missing_names import refusing as _refusing
from plait.distributed.tensor._placements import Partial, Placement, Replicate, Shard

__all__ = ["Partial", "Placement", "Replicate", "Shard"]

__getattr__ = _refusing(
    __name__,
    "DTensorSpec TensorMeta _StridedShard",
    "ranks have whole parts of distributed tensors: Shard, Replicate and Partial say which",
)
