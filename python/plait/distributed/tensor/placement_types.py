"""Where the parts of distributed tensors are, under PyTorch's name of the module."""

from plait._engine.missing_names import refusing as _refusing
from plait.distributed.tensor._placements import Partial, Placement, Replicate, Shard, _StridedShard

__all__ = ["Partial", "Placement", "Replicate", "Shard", "_StridedShard"]

__getattr__ = _refusing(
    __name__,
    "DTensorSpec TensorMeta",
    "a distributed tensor has its placements, its device_mesh, its shape and its dtype, and no other description",
)
