"""Marks Python functions that stand for communication hooks of the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Hook = Callable[[Any, Any], Any]


def engine_hook(name: str, compress: str = "") -> Callable[[Hook], Hook]:
    """Marks a function as the hook `name` of the engine, on buckets cast to `compress` ("fp16" or "bf16") if given."""

    def mark(function: Hook) -> Hook:
        function._engine = (name, compress)  # type: ignore[attr-defined]
        return function

    return mark


def engine_only() -> Any:
    """Raises an error, since a hook of the engine cannot be called from Python."""
    raise RuntimeError("the hook runs in the engine: give it to DistributedDataParallel.register_comm_hook")
