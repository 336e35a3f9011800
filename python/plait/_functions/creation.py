"""New tensors of given sizes: filled, and counted.

They have in common: `out` is a tensor for the result, which says its dtype; `requires_grad` makes the result a leaf
that collects its gradient; `layout` can only be `plait.strided`; `pin_memory` and `memory_format` change nothing, since
memory is not pinned and new tensors lie row-major.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from plait import _dtype as dt
from plait import _ops
from plait._engine.runtime import is_tensor
from plait._functions._checked import checked
from plait._functions._common import check_format, check_layout, store
from plait._functions._fast import does
from plait._layout import Layout, MemoryFormat

if TYPE_CHECKING:
    from plait._device import DeviceLike
    from plait._dtype import dtype as DType
    from plait._tensor import Number, Tensor

__all__ = [
    "arange", "empty", "empty_permuted", "empty_strided", "eye", "full", "linspace", "logspace", "ones", "range",
    "scalar_tensor", "tril_indices", "triu_indices", "vander", "zeros",
]  # fmt: skip

Sizes = int | Sequence[int]


def finished(name: str, made: Tensor, out: Tensor | None, layout: Any, requires_grad: bool) -> Tensor:
    """Returns a new tensor as the options say that all functions have."""
    check_layout(name, layout)
    made = store(out, made)
    if requires_grad:
        made.requires_grad = True
    return made


def dtype_for(out: Tensor | None, dtype: DType | None) -> DType | None:
    return dtype if dtype is not None or out is None else out.dtype


@checked
@does(_ops.zeros)
def zeros(
    size: Sizes = (),
    *more: int,
    out: Tensor | None = None,
    dtype: DType | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Returns zeros of the given sizes, of the default dtype: `zeros(2, 3)` or `zeros((2, 3))`.

    Args:
        size: the sizes, one by one or in a sequence
        more: the other sizes, where they are given one by one
        out: where the result goes
        dtype: of the result
        layout: can only be `plait.strided`
        device: where the result goes
        pin_memory: has no effect: memory is not pinned
        requires_grad: whether the result collects its gradient
    """
    made = _ops.zeros(size, *more, dtype=dtype_for(out, dtype), device=device)
    return finished("zeros", made, out, layout, requires_grad)


@checked
@does(_ops.ones)
def ones(
    size: Sizes = (),
    *more: int,
    out: Tensor | None = None,
    dtype: DType | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Returns ones of the given sizes; arguments are those of `zeros`."""
    made = _ops.ones(size, *more, dtype=dtype_for(out, dtype), device=device)
    return finished("ones", made, out, layout, requires_grad)


@checked
@does(_ops.empty)
def empty(
    size: Sizes = (),
    *more: int,
    out: Tensor | None = None,
    dtype: DType | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    memory_format: MemoryFormat | None = None,
) -> Tensor:
    """Returns a tensor of the given sizes with undefined values; arguments are those of `zeros`."""
    check_format("empty", memory_format)
    made = _ops.empty(size, *more, dtype=dtype_for(out, dtype), device=device)
    return finished("empty", made, out, layout, requires_grad)


@checked
def empty_strided(
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: DType | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Returns a tensor with the given sizes and strides and undefined values."""
    if len(size) != len(stride):
        raise ValueError(
            f"empty_strided: got {len(size)} sizes {tuple(size)} and {len(stride)} strides {tuple(stride)}"
        )
    n = 0 if 0 in size else 1 + sum((k - 1) * s for k, s in zip(size, stride, strict=True))
    made = _ops.as_strided(_ops.empty(n, dtype=dtype, device=device), size, stride)
    return finished("empty_strided", made, None, layout, requires_grad)


@checked
def empty_permuted(
    size: Sequence[int],
    physical_layout: Sequence[int],
    *,
    dtype: DType | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Returns a tensor with undefined values whose dimensions lie in memory in the given order, outermost first."""
    made = _ops.empty([size[d] for d in physical_layout], dtype=dtype, device=device)
    made = _ops.permute(made, [list(physical_layout).index(d) for d in _count(len(size))])
    return finished("empty_permuted", made, None, layout, requires_grad)


_count = range  # which is a function of this module below


def number_of(v: Any) -> Any:
    return v.item() if is_tensor(v) else v


@checked
@does(_ops.full)
def full(
    size: Sizes,
    fill_value: Number | Tensor,
    *,
    out: Tensor | None = None,
    dtype: DType | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Returns a tensor of the given sizes with one value, which also says its dtype: bool, int64 or the default."""
    wanted = dtype_for(out, dtype) or _of_value(fill_value)
    made = _ops.full(size, fill_value=number_of(fill_value), dtype=wanted, device=device)
    return finished("full", made, out, layout, requires_grad)


def _of_value(value: Any) -> DType:
    if is_tensor(value):
        return value.dtype
    if isinstance(value, bool):
        return dt.bool_
    if isinstance(value, complex) or getattr(getattr(value, "dtype", None), "kind", "f") == "c":
        return dt.as_dtype(complex)
    whole = isinstance(value, int) or getattr(getattr(value, "dtype", None), "kind", "f") in "iu"
    return dt.int64 if whole else dt.get_default_dtype()


@checked
def scalar_tensor(
    s: Number,
    *,
    dtype: DType | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Returns a 0-d tensor of the default dtype."""
    made = _ops.full((), fill_value=s, dtype=dtype or dt.get_default_dtype(), device=device)
    return finished("scalar_tensor", made, None, layout, requires_grad)


@checked
@does(_ops.arange, names={"start": "end"}, start=0, step=1)
@does(_ops.arange)
def arange(
    start: Number | Tensor | None = None,
    end: Number | Tensor | None = None,
    step: Number | Tensor = 1,
    *,
    out: Tensor | None = None,
    dtype: DType | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Returns start, start + step, ... before end: `arange(end)`, `arange(start, end)`, `arange(start, end, step)`.

    Its dtype is int64 if all arguments are integers, else the default.
    """
    if start is None and end is None:
        raise TypeError("arange: want an end, got nothing")
    if end is None or start is None:
        start, end = 0, start if end is None else end
    made = _ops.arange(
        number_of(start), end=number_of(end), step=number_of(step), dtype=dtype_for(out, dtype), device=device
    )
    return finished("arange", made, out, layout, requires_grad)


@checked
def range(
    start: Number | Tensor = 0,
    end: Number | Tensor | None = None,
    step: Number | Tensor = 1,
    *,
    out: Tensor | None = None,
    dtype: DType | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Returns start, start + step, ... up to and with end; `arange` is what Python's range does."""
    if end is None:
        start, end = 0, start
    last, by = number_of(end), number_of(step)
    wanted = dtype_for(out, dtype) or dt.get_default_dtype()
    made = _ops.arange(number_of(start), end=last + by / 2, step=by, dtype=wanted, device=device)
    return finished("range", made, out, layout, requires_grad)


@checked
@does(_ops.linspace)
def linspace(
    start: Number | Tensor,
    end: Number | Tensor,
    steps: int,
    *,
    out: Tensor | None = None,
    dtype: DType | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Returns `steps` numbers from start to end, evenly apart."""
    made = _spaced("linspace", number_of(start), number_of(end), steps, dtype_for(out, dtype), device)
    return finished("linspace", made, out, layout, requires_grad)


def _spaced(
    name: str, start: Any, end: Any, steps: int, dtype: DType | None, device: DeviceLike | None, *base: float
) -> Tensor:
    if not isinstance(start, complex) and not isinstance(end, complex):
        return getattr(_ops, name)(start, end, steps, *base, dtype=dtype, device=device)
    d = dtype or dt.promote_types(dt.get_default_dtype(), dt.complex64)
    if not d.is_complex:
        raise TypeError(f"{name}: {d} cannot hold the numbers between {start} and {end}, want a complex dtype")
    parts = dt.complex_parts(d)
    re = _ops.linspace(start.real, end.real, steps, dtype=parts, device=device)
    made = _ops.complex(re, _ops.linspace(start.imag, end.imag, steps, dtype=parts, device=device))
    power: Any = _ops.pow  # of complex numbers too
    return power(complex(*base), made) if base else made


@checked
def logspace(
    start: Number | Tensor,
    end: Number | Tensor,
    steps: int,
    base: float = 10.0,
    *,
    out: Tensor | None = None,
    dtype: DType | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Returns `steps` powers of `base`, with exponents evenly apart from start to end."""
    made = _spaced("logspace", number_of(start), number_of(end), steps, dtype_for(out, dtype), device, base)
    return finished("logspace", made, out, layout, requires_grad)


@checked
@does(_ops.eye, m=-1)
def eye(
    n: int,
    m: int | None = None,
    *,
    out: Tensor | None = None,
    dtype: DType | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Returns a matrix of n rows and m columns with ones on the diagonal and zeros elsewhere."""
    if m is not None and m < 0:
        raise ValueError(f"eye: the number of columns must not be negative, got {m}")
    made = _ops.eye(n, -1 if m is None else m, dtype=dtype_for(out, dtype), device=device)
    return finished("eye", made, out, layout, requires_grad)


@checked
def tril_indices(
    row: int,
    col: int,
    offset: int = 0,
    *,
    dtype: DType | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Returns the coordinates of the elements on and below a diagonal, in two rows."""
    made = _ops.tril_indices(row, col, offset, dtype=dtype, device=device)
    return finished("tril_indices", made, None, layout, requires_grad)


@checked
def triu_indices(
    row: int,
    col: int,
    offset: int = 0,
    *,
    dtype: DType | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Returns the coordinates of the elements on and above a diagonal, in two rows."""
    made = _ops.triu_indices(row, col, offset, dtype=dtype, device=device)
    return finished("triu_indices", made, None, layout, requires_grad)


@checked
def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """Returns the matrix of powers of the elements of a vector."""
    return _ops.vander(x, -1 if N is None else N, increasing)
