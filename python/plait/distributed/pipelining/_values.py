"""Packs the nested values that stages exchange into lists of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plait._tensor import Tensor
from plait.nn.parallel._inputs import _like, tensors_in


def pack(value: Any) -> tuple[list[Tensor], Callable[[list[Tensor]], Any]]:
    """Returns the tensors of a nested value, and a function that rebuilds the value with other tensors."""
    return list(tensors_in(value)), lambda tensors: _fill(value, iter(tensors))


def _fill(value: Any, tensors: Any) -> Any:
    if isinstance(value, Tensor):
        return next(tensors)
    if isinstance(value, dict):
        return type(value)((k, _fill(v, tensors)) for k, v in value.items())
    if isinstance(value, list | tuple):
        return _like(value, [_fill(v, tensors) for v in value])
    return value
