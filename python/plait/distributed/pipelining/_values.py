"""What goes from stage to stage: tensors, alone or in tuples, lists and dicts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plait._tensor import Tensor
from plait.nn.parallel._inputs import _like, tensors_in


def pack(value: Any) -> tuple[list[Tensor], Callable[[list[Tensor]], Any]]:
    """Returns the tensors in a nested value, and the function that makes such a value of others."""
    return list(tensors_in(value)), lambda tensors: _filled(value, iter(tensors))


def _filled(value: Any, tensors: Any) -> Any:
    if isinstance(value, Tensor):
        return next(tensors)
    if isinstance(value, dict):
        return type(value)((k, _filled(v, tensors)) for k, v in value.items())
    if isinstance(value, list | tuple):
        return _like(value, [_filled(v, tensors) for v in value])
    return value
