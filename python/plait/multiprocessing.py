"""`spawn`, as torch.multiprocessing spells it: ranks are threads, and tensors are shared between them as they are."""

from __future__ import annotations

import multiprocessing as _multiprocessing

from plait._engine.missing_names import refusing as _refusing
from plait.distributed._spawn import SpawnContext, spawn

__all__ = ["SpawnContext", "cpu_count", "freeze_support", "get_start_method", "set_start_method", "spawn"]

cpu_count = _multiprocessing.cpu_count


def get_start_method(allow_none: bool = False) -> str:
    """Returns "thread": how ranks are started."""
    return "thread"


def set_start_method(method: str | None, force: bool = False) -> None:
    """Has no effect: ranks are threads."""


def freeze_support() -> None:
    """Has no effect: ranks are threads."""


__getattr__ = _refusing(
    __name__,
    " ".join(n for n in dir(_multiprocessing) if n[0] != "_"),
    "ranks are threads, which spawn(fn, nprocs=n) starts and which share memory; for processes without tensors there "
    "is Python's own multiprocessing",
)
