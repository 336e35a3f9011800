"""New tensors like others: of the same shape, and methods for others of the same dtype and device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from plait import _ops
from plait._autograd import batch as _batch
from plait._functions._checked import checked, overridable
from plait._functions._common import check_format
from plait._functions._fast import does
from plait._functions.creation import Sizes, empty_strided, finished, number_of
from plait._layout import Size
from plait._tensors.arrays import tensor
from plait._tensors.beside import beside
from plait._tensors.storage import Storage

if TYPE_CHECKING:
    from plait._device import DeviceLike
    from plait._dtype import dtype as DType
    from plait._layout import Layout, MemoryFormat
    from plait._random import Generator
    from plait._tensor import Number, Tensor

__all__ = [
    "empty_like", "full_like", "ones_like", "rand_like", "randint_like", "randn_like", "zeros_like",
]  # fmt: skip


@checked
@does(_ops.zeros_like)
def zeros_like(
    input: Tensor,
    *,
    memory_format: MemoryFormat | None = None,
    dtype: DType | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Returns what `zeros` does, with the shape, dtype and device of a tensor unless others are given."""
    check_format("zeros_like", memory_format)
    made = _ops.zeros_like(input, dtype=dtype, device=device)
    return finished("zeros_like", made, None, layout, requires_grad)


@checked
@does(_ops.ones_like)
def ones_like(
    input: Tensor,
    *,
    memory_format: MemoryFormat | None = None,
    dtype: DType | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Returns what `ones` does, with the shape, dtype and device of a tensor unless others are given."""
    check_format("ones_like", memory_format)
    made = _ops.ones_like(input, dtype=dtype, device=device)
    return finished("ones_like", made, None, layout, requires_grad)


@checked
@does(_ops.empty_like)
def empty_like(
    input: Tensor,
    *,
    memory_format: MemoryFormat | None = None,
    dtype: DType | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Returns what `empty` does, with the shape, dtype and device of a tensor unless others are given."""
    check_format("empty_like", memory_format)
    made = _ops.empty_like(input, dtype=dtype, device=device)
    return finished("empty_like", made, None, layout, requires_grad)


@checked
@does(_ops.rand_like)
def rand_like(
    input: Tensor,
    *,
    generator: Generator | None = None,
    memory_format: MemoryFormat | None = None,
    dtype: DType | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Returns what `rand` does, with the shape, dtype and device of a tensor unless others are given."""
    check_format("rand_like", memory_format)
    made = _ops.rand_like(input, dtype=dtype, device=device, generator=generator)
    return finished("rand_like", made, None, layout, requires_grad)


@checked
@does(_ops.randn_like)
def randn_like(
    input: Tensor,
    *,
    generator: Generator | None = None,
    memory_format: MemoryFormat | None = None,
    dtype: DType | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Returns what `randn` does, with the shape, dtype and device of a tensor unless others are given."""
    check_format("randn_like", memory_format)
    made = _ops.randn_like(input, dtype=dtype, device=device, generator=generator)
    return finished("randn_like", made, None, layout, requires_grad)


@checked
@does(_ops.full_like)
def full_like(
    input: Tensor,
    fill_value: Number | Tensor,
    *,
    memory_format: MemoryFormat | None = None,
    dtype: DType | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Returns one value with the shape, dtype and device of a tensor."""
    check_format("full_like", memory_format)
    made = _ops.full_like(input, number_of(fill_value), dtype=dtype, device=device)
    return finished("full_like", made, None, layout, requires_grad)


@checked
@does(_ops.randint_like)
def randint_like(
    input: Tensor,
    low: int | Tensor | None = None,
    high: int | Tensor | None = None,
    *,
    generator: Generator | None = None,
    memory_format: MemoryFormat | None = None,
    dtype: DType | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Returns random integers from low to before high with the shape of a tensor; with one bound, from 0."""
    check_format("randint_like", memory_format)
    if high is None or low is None:
        low, high = 0, low if high is None else high
    if high is None:
        raise TypeError("randint_like: want high, got nothing")
    made = _ops.randint_like(
        input, number_of(low), high=number_of(high), dtype=dtype, device=device, generator=generator
    )
    return finished("randint_like", made, None, layout, requires_grad)


def _like(made: Tensor, self: Tensor) -> Tensor:
    """Returns a new tensor batched as a tensor is, and distributed if that is."""
    return _batch.filled_like(beside(self, made), self)


def new_zeros(
    self: Tensor,
    size: Sizes = (),
    *more: int,
    dtype: DType | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Returns what `zeros` does, of the tensor's dtype and on its device unless others are given."""
    where = self.device if device is None else device
    made = _ops.zeros(size, *more, dtype=dtype or self.dtype, device=where)
    return finished("new_zeros", _like(made, self), None, layout, requires_grad)


def new_ones(
    self: Tensor,
    size: Sizes = (),
    *more: int,
    dtype: DType | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Returns what `ones` does, of the tensor's dtype and on its device unless others are given."""
    where = self.device if device is None else device
    made = _ops.ones(size, *more, dtype=dtype or self.dtype, device=where)
    return finished("new_ones", _like(made, self), None, layout, requires_grad)


def new_empty(
    self: Tensor,
    size: Sizes = (),
    *more: int,
    dtype: DType | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Returns what `empty` does, of the tensor's dtype and on its device unless others are given."""
    where = self.device if device is None else device
    made = _ops.empty(size, *more, dtype=dtype or self.dtype, device=where)
    return finished("new_empty", _like(made, self), None, layout, requires_grad)


def new_full(
    self: Tensor,
    size: Sizes,
    fill_value: Number | Tensor,
    *,
    dtype: DType | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Returns one value, of the tensor's dtype and on its device unless others are given."""
    where = self.device if device is None else device
    made = _ops.full(size, fill_value=number_of(fill_value), dtype=dtype or self.dtype, device=where)
    return finished("new_full", _like(made, self), None, layout, requires_grad)


@overridable
def new_tensor(
    self: Tensor,
    data: Any,
    dtype: DType | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    *,
    layout: Layout | None = None,
) -> Tensor:
    """Returns a tensor with a copy of data, of this one's dtype and on its device unless others are given."""
    made = tensor(data, dtype=dtype or self.dtype, device=self.device if device is None else device)
    return finished("new_tensor", made, None, layout, requires_grad)


def new(self: Tensor, *data: Any, device: DeviceLike | None = None) -> Tensor:
    """Returns a tensor of this one's dtype and on its device, with a copy of data, or of the given sizes with undefined
    values, or with the memory of a storage.
    """
    if len(data) == 1 and isinstance(data[0], Storage):
        return data[0].elements(self.dtype)
    if len(data) == 1 and not isinstance(data[0], int | Size):
        return new_tensor(self, data[0], device=device)
    return _ops.empty(*(data or (0,)), dtype=self.dtype, device=self.device if device is None else device)


def new_empty_strided(
    self: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: DType | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Returns what `empty_strided` does, of the tensor's dtype and on its device unless others are given."""
    where = self.device if device is None else device
    made = empty_strided(size, stride, dtype=dtype or self.dtype, device=where)
    return finished("new_empty_strided", _like(made, self), None, layout, requires_grad)
