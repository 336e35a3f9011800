"""New arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import plait
from plait._tensor import Tensor
from plait._tensors.arrays import is_buffer

if TYPE_CHECKING:
    from plait._device import DeviceLike
    from plait._dtype import dtype as DType

__all__ = [
    "arange",
    "asarray",
    "empty",
    "empty_like",
    "eye",
    "full",
    "full_like",
    "linspace",
    "ones",
    "ones_like",
    "zeros",
    "zeros_like",
]


def asarray(
    obj: Any, /, *, dtype: DType | None = None, device: DeviceLike | None = None, copy: bool | None = None
) -> Tensor:
    """Returns an array of values; copy=True makes a copy in any case, False in none.

    Raises:
        ValueError: if copy is False and the values need one.
    """
    values = np.asarray(memoryview(obj)) if is_buffer(obj) else obj
    return plait.asarray(values, dtype=dtype, device=device, copy=copy)


def arange(
    start: float,
    /,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: DType | None = None,
    device: DeviceLike | None = None,
) -> Tensor:
    """Returns start, start + step, ... before stop; with one bound, from 0."""
    low, high = (0, start) if stop is None else (start, stop)
    if step == 0:
        raise ValueError("arange: step must not be 0")
    if (high - low) / step <= 0:
        whole = all(isinstance(v, int) for v in (low, high, step))
        return plait.empty(0, dtype=dtype or (plait.int64 if whole else None), device=device)
    return plait.arange(low, high, step, dtype=dtype, device=device)


def linspace(
    start: float,
    stop: float,
    /,
    num: int,
    *,
    dtype: DType | None = None,
    device: DeviceLike | None = None,
    endpoint: bool = True,
) -> Tensor:
    """Returns num numbers evenly apart from start to stop, which is one of them if `endpoint`."""
    if endpoint:
        return plait.linspace(start, stop, num, dtype=dtype, device=device)
    return plait.linspace(start, stop, num + 1, dtype=dtype, device=device)[:-1]


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: DType | None = None,
    device: DeviceLike | None = None,
) -> Tensor:
    """Returns a matrix with ones on its k-th diagonal and zeros elsewhere."""
    n_cols = n_rows if n_cols is None else n_cols
    if k == 0:
        return plait.eye(n_rows, n_cols, dtype=dtype, device=device)
    k = max(-n_rows, min(k, n_cols))  # there is no diagonal beyond
    rows, columns = plait.arange(n_rows, device=device), plait.arange(n_cols, device=device)
    return (columns - rows[:, None] == k).to(dtype or plait.get_default_dtype())


def full(shape: Any, fill_value: Any, *, dtype: DType | None = None, device: DeviceLike | None = None) -> Tensor:
    """Returns one value in a shape."""
    return plait.full(_shape(shape), fill_value, dtype=dtype, device=device)


def full_like(x: Tensor, /, fill_value: Any, *, dtype: DType | None = None, device: DeviceLike | None = None) -> Tensor:
    """Returns one value in the shape of an array."""
    return plait.full_like(x, fill_value, dtype=dtype, device=device)


def _shape(shape: Any) -> Any:
    return (shape,) if isinstance(shape, int) else shape


def _new(name: str) -> Any:
    make = getattr(plait, name)

    def function(shape: Any, *, dtype: DType | None = None, device: DeviceLike | None = None) -> Tensor:
        return make(_shape(shape), dtype=dtype, device=device)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = make.__doc__.split(".")[0].split(",")[0] + ", a number or a tuple."
    return function


def _like(name: str) -> Any:
    make = getattr(plait, name)

    def function(x: Tensor, /, *, dtype: DType | None = None, device: DeviceLike | None = None) -> Tensor:
        return make(x, dtype=dtype, device=device)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = make.__doc__
    return function


empty, ones, zeros = _new("empty"), _new("ones"), _new("zeros")
empty_like, ones_like, zeros_like = _like("empty_like"), _like("ones_like"), _like("zeros_like")
