"""Functions that name hooks of the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Hook = Callable[[Any, Any], Any]


def engine_hook(name: str, compress: str = "") -> Callable[[Hook], Hook]:
    """Says which hook of the engine a function stands for."""

    def mark(function: Hook) -> Hook:
        function._engine = (name, compress)  # type: ignore[attr-defined]
        return function

    return mark


def refuse() -> Any:
    """Raises the error of a hook that is called by hand."""
    raise RuntimeError("the hook runs in the engine: give it to DistributedDataParallel.register_comm_hook")
