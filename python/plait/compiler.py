"""What scripts tell PyTorch's compiler. There is none: functions run as they are."""

from __future__ import annotations

from typing import Any

__all__ = [
    "allow_in_graph", "cudagraph_mark_step_begin", "disable", "is_compiling", "is_dynamo_compiling", "reset",
]  # fmt: skip


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Returns a function as it is; also a decorator with arguments."""
    return fn if fn is not None else lambda function: function


def allow_in_graph(fn: Any) -> Any:
    """Returns a function, or a list of some, as it is."""
    return fn


def is_compiling() -> bool:
    """Returns False: there is no compiler."""
    return False


is_dynamo_compiling = is_compiling


def reset() -> None:
    """Has no effect: nothing was compiled."""


def cudagraph_mark_step_begin() -> None:
    """Has no effect: nothing was captured."""
