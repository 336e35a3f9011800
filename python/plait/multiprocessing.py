"""`spawn`, as torch.multiprocessing spells it: ranks are threads, and tensors are shared between them as they are.

`get_context("spawn")` is Python's own, for processes.
"""

from __future__ import annotations

import multiprocessing as _multiprocessing

from plait._engine.missing_names import refusing as _refusing
from plait.distributed._spawn import SpawnContext, spawn

__all__ = [
    "SpawnContext",
    "cpu_count",
    "freeze_support",
    "get_all_sharing_strategies",
    "get_context",
    "get_sharing_strategy",
    "get_start_method",
    "set_sharing_strategy",
    "set_start_method",
    "spawn",
]

cpu_count = _multiprocessing.cpu_count


def get_start_method(allow_none: bool = False) -> str:
    """Returns "thread": how ranks are started."""
    return "thread"


def get_context(method: str | None = None) -> _multiprocessing.context.BaseContext:
    """Returns Python's own context "spawn", with which a `DataLoader` has processes. Its queues copy tensors.

    Raises:
        ValueError: for another method: a forked child has none of the engine's threads.
    """
    if method != "spawn":
        raise ValueError(f"multiprocessing.get_context: want 'spawn', got {method!r}; a forked child has none of the "
                         "engine's threads")  # fmt: skip
    return _multiprocessing.get_context(method)


def get_all_sharing_strategies() -> set[str]:
    """Returns {"file_descriptor"}: what workers of a `DataLoader` send tensors by."""
    return {"file_descriptor"}


def get_sharing_strategy() -> str:
    """Returns "file_descriptor"."""
    return "file_descriptor"


def set_sharing_strategy(new_strategy: str) -> None:
    """Has no effect: there is one strategy, which leaves no files behind."""


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
