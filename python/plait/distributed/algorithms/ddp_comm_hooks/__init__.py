"""Communication hooks of DistributedDataParallel. They run inside the engine, beside backward."""

from plait.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook, topk_hook

__all__ = ["default_hooks", "powerSGD_hook", "topk_hook"]
