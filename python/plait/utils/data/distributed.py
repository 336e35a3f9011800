"""Samplers for ranks."""

from plait.utils.data.sampler import DistributedSampler

__all__ = ["DistributedSampler"]
