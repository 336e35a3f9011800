"""`spawn`, as torch.multiprocessing spells it: ranks are threads, and tensors are shared between them as they are."""

from __future__ import annotations

from plait.distributed._spawn import SpawnContext, spawn

__all__ = ["SpawnContext", "spawn"]
