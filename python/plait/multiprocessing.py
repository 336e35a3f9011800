"""`spawn`, as torch.multiprocessing spells it: ranks are threads, and tensors are shared between them as they are."""

from __future__ import annotations

import multiprocessing as _multiprocessing
from typing import Any as _Any

from plait._errors import MissingFeatureError as _MissingFeatureError
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


def __getattr__(name: str) -> _Any:
    if name.startswith("_") or not hasattr(_multiprocessing, name):
        raise AttributeError(f"plait.multiprocessing has no attribute {name!r}")
    raise _MissingFeatureError(
        f"plait.multiprocessing.{name}: ranks are threads, which spawn(fn, nprocs=n) starts and which share memory; "
        "for processes without tensors there is Python's own multiprocessing"
    )
