"""Splits: views of the parts of a tensor along a dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from plait import _ops
from plait._functions._checked import checked
from plait._functions._common import flat, numpy_names

if TYPE_CHECKING:
    from plait._tensor import Tensor

__all__ = ["dsplit", "hsplit", "split", "tensor_split", "unsafe_split", "vsplit"]


@checked
def unsafe_split(input: Tensor, split_size: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Returns what `split` does."""
    return split(input, split_size, dim)


@checked
def split(tensor: Tensor, split_size_or_sections: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Returns views along a dimension: of one size, the last perhaps smaller, or of the given sizes."""
    if isinstance(split_size_or_sections, int):
        return _ops.split(tensor, split_size_or_sections, dim)
    return _ops.split_with_sizes(tensor, split_size_or_sections, dim)


def split_method(self: Tensor, split_size: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Returns views along a dimension: of one size, the last perhaps smaller, or of the given sizes."""
    return split(self, split_size, dim)


@numpy_names
def tensor_split(
    input: Tensor,
    tensor_indices_or_sections: Tensor | int | Sequence[int] | None = None,
    dim: int = 0,
    *,
    sections: int | None = None,
    indices: Sequence[int] | None = None,
    indices_or_sections: Tensor | int | Sequence[int] | None = None,
) -> tuple[Tensor, ...]:
    """Returns views along a dimension: a number of them of about one size, or cut before the given indices.

    Args:
        input: the tensor
        tensor_indices_or_sections: how many views, or where to cut, as a number, a sequence or a tensor
        dim: the dimension
        sections: how many, by its own name
        indices: where to cut, by its own name
        indices_or_sections: the documented name of both
    """
    at = _cuts("tensor_split", tensor_indices_or_sections, sections, indices, indices_or_sections)
    return _split_at(input, at, dim)


def _cuts(name: str, *values: Any) -> Any:
    """Returns the only argument that is given of those that say where to cut."""
    given = [v for v in values if v is not None]
    if len(given) != 1:
        raise TypeError(f"{name}: want sections or indices, got {'neither' if not given else 'both'}")
    return given[0]


def _split_at(input: Tensor, at: Any, dim: int) -> tuple[Tensor, ...]:
    if hasattr(at, "tolist"):
        at = at.tolist()
    return _ops.tensor_split(input, at, dim) if isinstance(at, int) else _ops.tensor_split_at(input, at, dim)


@checked
def hsplit(
    input: Tensor,
    indices_or_sections: int | Sequence[int] | None = None,
    *more: int,
    sections: int | None = None,
    indices: Sequence[int] | None = None,
) -> tuple[Tensor, ...]:
    """Returns what `tensor_split` does along the columns, or the only dimension."""
    if not input.shape:
        raise ValueError("hsplit: want at least one dimension, got a 0-d tensor")
    at = _cuts("hsplit", flat(indices_or_sections, more), sections, indices)
    return _even("hsplit", input, at, 0 if len(input.shape) == 1 else 1)


@checked
def vsplit(
    input: Tensor,
    indices_or_sections: int | Sequence[int] | None = None,
    *more: int,
    sections: int | None = None,
    indices: Sequence[int] | None = None,
) -> tuple[Tensor, ...]:
    """Returns what `tensor_split` does along the rows."""
    if len(input.shape) < 2:
        raise ValueError(f"vsplit: want at least two dimensions, got shape {list(input.shape)}")
    return _even("vsplit", input, _cuts("vsplit", flat(indices_or_sections, more), sections, indices), 0)


@checked
def dsplit(
    input: Tensor,
    indices_or_sections: int | Sequence[int] | None = None,
    *more: int,
    sections: int | None = None,
    indices: Sequence[int] | None = None,
) -> tuple[Tensor, ...]:
    """Returns what `tensor_split` does along the third dimension."""
    if len(input.shape) < 3:
        raise ValueError(f"dsplit: want at least three dimensions, got shape {list(input.shape)}")
    return _even("dsplit", input, _cuts("dsplit", flat(indices_or_sections, more), sections, indices), 2)


def _even(name: str, input: Tensor, at: Any, dim: int) -> tuple[Tensor, ...]:
    if isinstance(at, int) and (at < 1 or input.shape[dim] % at):
        raise ValueError(f"{name}: size {input.shape[dim]} of dimension {dim} cannot be cut into {at} equal parts")
    return _split_at(input, at, dim)
