"""Communication hooks for FullyShardedDataParallel."""

from plait.distributed.algorithms._comm_hooks import default_hooks

__all__ = ["default_hooks"]
