"""Choosing, gathering and scattering elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from plait import _ops
from plait._errors import ShapeError
from plait._functions._checked import checked
from plait._functions._common import into, is_complex_factor, numpy_names, operand, store
from plait._functions._fast import does
from plait._functions.order import nonzero

if TYPE_CHECKING:
    from plait._tensor import Number, Tensor

__all__ = [
    "as_strided_scatter", "cross", "fill", "gather", "index_add", "index_put", "index_put_", "index_reduce",
    "multinomial", "scatter", "scatter_reduce", "take_along_dim", "where",
]  # fmt: skip


@checked
@does(_ops.where)
def where(condition: Tensor, input: Any = None, other: Any = None, *, out: Tensor | None = None) -> Any:
    """Returns `input` where the condition holds and `other` elsewhere; with a condition alone, where it holds."""
    if input is None and other is None:
        return nonzero(condition, as_tuple=True)
    if input is None or other is None:
        raise TypeError("where: want input and other, or neither")
    return into(out, _ops.where, condition, input, other)


def where_method(self: Tensor, condition: Tensor, other: Any) -> Tensor:
    """Returns the tensor where the condition holds and `other` elsewhere."""
    return _ops.where(condition, self, other)


def _source(name: str, src: Any, value: Any) -> Any:
    if (src is None) == (value is None):
        raise TypeError(f"{name}: want src or value, got {'neither' if src is None else 'both'}")
    return value if src is None else src


_REDUCE = {"add": "sum", "multiply": "prod"}


def _scattered(
    in_place: bool, input: Tensor, dim: int, index: Tensor, src: Any, value: Any, reduce: str | None
) -> Tensor:
    name = "scatter_" if in_place else "scatter"
    source = _source(name, src, value)
    if reduce is None:
        return (_ops.scatter_ if in_place else _ops.scatter)(input, dim, index, source)
    if reduce not in _REDUCE:
        raise ValueError(f"{name}: reduce must be 'add' or 'multiply', got {reduce!r}")
    if isinstance(source, int | float | complex):
        value = source
        source = _ops.full(index.shape, fill_value=value, dtype=input.dtype, device=input.device)
    return (_ops.scatter_reduce_ if in_place else _ops.scatter_reduce)(input, dim, index, source, _REDUCE[reduce])


@numpy_names
@does(_ops.scatter)
def scatter(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Any = None,
    *,
    value: Any = None,
    reduce: str | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Returns the tensor with values, a tensor's or one number, written at indices along a dimension."""
    return store(out, _scattered(False, input, dim, index, src, value, reduce))


def scatter_(
    input: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: str | None = None
) -> Tensor:
    """Writes values at indices along a dimension; see `scatter`."""
    return _scattered(True, input, dim, index, src, value, reduce)


@checked
def scatter_reduce(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
    out: Tensor | None = None,
) -> Tensor:
    """Returns the tensor with values combined at indices along a dimension: sum, prod, mean, amax or amin."""
    return store(out, _ops.scatter_reduce(input, dim, index, src, reduce, include_self))


@checked
@does(_ops.index_add)
def index_add(
    input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Number = 1, out: Tensor | None = None
) -> Tensor:
    """Returns the tensor with alpha * source added at indices of a dimension."""
    if is_complex_factor("index_add", alpha, input, source):
        source, alpha = _ops.mul(source, alpha), 1
    return store(out, _ops.index_add(input, dim, index, source, alpha))


def index_add_(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Number = 1) -> Tensor:
    """Adds alpha * source at indices of a dimension."""
    if is_complex_factor("index_add_", alpha, input, source):
        source, alpha = _ops.mul(source, alpha), 1
    return _ops.index_add_(input, dim, index, source, alpha)


@checked
def index_put(input: Tensor, indices: Sequence[Tensor], values: Any, accumulate: bool = False) -> Tensor:
    """Returns the tensor with values written, or added, to the elements that index tensors and masks name."""
    return _ops.index_put(input, indices, values, accumulate)


@checked
def index_put_(input: Tensor, indices: Sequence[Tensor], values: Any, accumulate: bool = False) -> Tensor:
    """Writes, or adds, values to the elements that index tensors and masks name."""
    return _ops.index_put_(input, indices, values, accumulate)


@checked
def index_reduce(
    input: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
    out: Tensor | None = None,
) -> Tensor:
    """Returns the tensor with slices combined at indices of a dimension: prod, mean, amax or amin."""
    return store(out, _ops.index_reduce(input, dim, index, source, reduce, include_self))


@numpy_names
@does(_ops.gather)
def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False, out: Tensor | None = None) -> Tensor:
    """Returns the elements at indices along a dimension; `sparse_grad` has no effect."""
    return into(out, _ops.gather, input, dim, index)


@numpy_names
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None, *, out: Tensor | None = None) -> Tensor:
    """Returns the elements at indices along a dimension, of the flat tensor by default.

    Args:
        input: the elements
        indices: along the dimension; negative ones count from its end
        dim: the dimension; None means that of the flat tensor, where indices are not negative
        out: where the result goes
    """
    if dim is not None:
        indices = _ops.where(_ops.lt(indices, 0), indices + input.shape[dim], indices)
    return store(out, _ops.take_along_dim(input, indices, dim))


@checked
def fill(input: Tensor, value: Any) -> Tensor:
    """Returns a copy with every element set to a value."""
    return _ops.fill_(_ops.empty_like(input), operand(value, "fill"))


def fill_diagonal_(input: Tensor, fill_value: Number, wrap: bool = False) -> Tensor:
    """Sets the diagonal; with `wrap` that of a tall matrix goes on after a row."""
    n = len(input.shape)
    if n < 2:
        raise ShapeError(f"fill_diagonal_: want at least two dimensions, got shape {list(input.shape)}")
    if n > 2 and len(set(input.shape)) > 1:
        raise ShapeError(f"fill_diagonal_: all sizes must be equal, got shape {list(input.shape)}")
    length, step = min(input.shape), sum(input.stride())
    if wrap and n == 2 and input.shape[0] > input.shape[1]:
        columns = input.shape[1]
        length = (input.shape[0] * columns + columns) // (columns + 1)
        if not input.is_contiguous():
            raise RuntimeError("fill_diagonal_: wrap wants a contiguous matrix")
    if length:
        _ops.fill_(_ops.as_strided(input, (length,), (step,)), fill_value)
    return input


@checked
def as_strided_scatter(input: Tensor, src: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """Returns a contiguous copy with `src` where `as_strided` of the tensor would lie: positions are the storage's."""
    length = input.untyped_storage().nbytes() // input.element_size()
    start = input.storage_offset()
    places = _ops.arange(0, end=length, device=input.device)
    at = _ops.as_strided(places, size, stride, start if storage_offset is None else storage_offset)
    if list(at.shape) != list(src.shape):
        raise ShapeError(f"as_strided_scatter: src has shape {list(src.shape)}, want {list(at.shape)}")
    if not src.numel():
        return _ops.clone(input)
    # The element of src, if any, that each element of the storage, and so of the tensor, is replaced by.
    which = _ops.index_put(
        _ops.full_like(places, -1), [_ops.ravel(at)], _ops.arange(0, end=src.numel(), device=src.device)
    )
    which = _ops.as_strided(which, input.shape, input.stride(), start)
    return _ops.where(_ops.lt(which, 0), input, _ops.take(src, _ops.clamp(which, min=0)))


@checked
@does(_ops.cross)
def cross(input: Tensor, other: Tensor, dim: int | None = None, *, out: Tensor | None = None) -> Tensor:
    """Returns the products of vectors of three elements along a dimension, by default the first of size 3."""
    if dim is None:
        dim = next((i for i, n in enumerate(input.shape) if n == 3), -1)
    return store(out, _ops.cross(input, other, dim))


@checked
def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, *, generator: Any = None, out: Tensor | None = None
) -> Tensor:
    """Returns indices drawn with the probabilities that the rows weigh."""
    return store(out, _ops.multinomial(input, num_samples, replacement, generator=generator))
