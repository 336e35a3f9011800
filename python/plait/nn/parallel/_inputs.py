"""Helpers for nested inputs and outputs: tensors in tuples, lists, dicts and named tuples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from plait._device import device
from plait._engine.pytree import tree_map
from plait._tensor import Tensor


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yields the tensors of a nested value."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for v in value.values():
            yield from tensors_in(v)
    elif isinstance(value, list | tuple):
        for v in value:
            yield from tensors_in(v)


def to_device(value: Any, where: device) -> Any:
    """Returns a nested value with its tensors moved to a device. Gradients flow back."""
    return tree_map(lambda v: v.to(where) if isinstance(v, Tensor) else v, value)


def batch_size(inputs: Sequence[Any], kwargs: dict[str, Any], dim: int) -> int:
    """Returns the number of samples: the size of dimension `dim` of the first tensor that has it."""
    for t in tensors_in((*inputs, kwargs)):
        if t.ndim > (dim if dim >= 0 else -dim - 1):
            return int(t.shape[dim])
    return 0


def split_nested(value: Any, parts: int, cut: Callable[[Tensor], Sequence[Tensor]]) -> list[Any]:
    """Splits a nested value: `cut` splits each tensor, and every part gets the containers and all other values."""
    if isinstance(value, Tensor):
        return list(cut(value))
    if isinstance(value, dict):
        cuts = {k: split_nested(v, parts, cut) for k, v in value.items()}
        return [type(value)((k, v[i]) for k, v in cuts.items()) for i in range(parts)]
    if isinstance(value, list | tuple):
        lists = [split_nested(v, parts, cut) for v in value]
        return [_like(value, [v[i] for v in lists]) for i in range(parts)]
    return [value] * parts


def merge_nested(values: Sequence[Any], merge: Callable[[Sequence[Tensor]], Tensor]) -> Any:
    """Merges the outputs of replicas: `merge` joins tensors, containers are kept, other values become a list."""
    first = values[0]
    if isinstance(first, Tensor):
        return merge(values)
    if first is None:
        return None
    if isinstance(first, dict):
        if any(v.keys() != first.keys() for v in values):
            raise ValueError(f"gather: the replicas' dicts have different keys, {[list(v) for v in values]}")
        return type(first)((k, merge_nested([v[k] for v in values], merge)) for k in first)
    if isinstance(first, list | tuple):
        return _like(first, [merge_nested(v, merge) for v in zip(*values, strict=True)])
    return list(values)


def _like(value: Any, parts: list[Any]) -> Any:
    """Returns a list, tuple or named tuple of the type of `value`."""

    return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
