"""`DistributedSampler`, at PyTorch's path."""

from plait.utils.data.sampler import DistributedSampler

__all__ = ["DistributedSampler"]
