"""Hooks that reduce the buckets of DistributedDataParallel. They run in the engine while backward goes on."""

from plait.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook, topk_hook

__all__ = ["default_hooks", "powerSGD_hook", "topk_hook"]
