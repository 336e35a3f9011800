"""What tests compare with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from plait import _ops
from plait._dtype import dtype as DType
from plait._dtype import promote_types
from plait._engine.runtime import is_tensor
from plait._tensor import Tensor
from plait._tensors.arrays import tensor, to_numpy

__all__ = ["assert_close"]

# rtol and atol by dtype; others are compared exactly.
_TOLERANCES = {
    "float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7),
    "complex64": (1.3e-6, 1e-5), "complex128": (1e-7, 1e-7),
}  # fmt: skip


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """Raises an AssertionError unless |actual - expected| <= atol + rtol * |expected| everywhere.

    Args:
        actual: a tensor, number or array, or such in nested sequences and mappings
        expected: the same
        allow_subclasses: whether the classes of tensors and numbers may differ
        rtol: by default what the dtypes allow: 1.3e-6 for float32, 0 for integers
        atol: by default what the dtypes allow: 1e-5 for float32, 0 for integers; give both or none
        equal_nan: whether NaN is close to NaN
        check_device: whether devices must agree
        check_dtype: whether dtypes must agree
        check_layout: has no effect
        check_stride: whether strides must agree
        msg: the message of the error, or what makes one of the usual one
    """
    if (rtol is None) != (atol is None):
        raise ValueError(f"assert_close: give both rtol and atol or none, got rtol={rtol} and atol={atol}")

    def fail(where: str, text: str) -> None:
        text = f"{where}: {text}" if where else text
        raise AssertionError(text if msg is None else msg(text) if callable(msg) else msg)

    def compare(a: Any, e: Any, where: str) -> None:
        if isinstance(a, Mapping) and isinstance(e, Mapping):
            if a.keys() != e.keys():
                fail(where, f"keys differ, got {sorted(map(str, a))} and {sorted(map(str, e))}")
            for k in a:
                compare(a[k], e[k], f"{where}[{k!r}]")
        elif _sequence(a) and _sequence(e):
            if len(a) != len(e):
                fail(where, f"lengths differ, got {len(a)} and {len(e)}")
            for i, (x, y) in enumerate(zip(a, e, strict=True)):
                compare(x, y, f"{where}[{i}]")
        else:
            if not allow_subclasses and type(a) is not type(e):
                fail(where, f"types differ, got {type(a).__name__} and {type(e).__name__}")
            x, y = _as_tensor(a), _as_tensor(e)
            for what, check in (("device", check_device), ("dtype", check_dtype and is_tensor(a) and is_tensor(e))):
                if check and getattr(x, what) != getattr(y, what):
                    fail(where, f"{what}s differ, got {getattr(x, what)} and {getattr(y, what)}")
            if x.shape != y.shape:
                fail(where, f"shapes differ, got {list(x.shape)} and {list(y.shape)}")
            if check_stride and x.stride() != y.stride():
                fail(where, f"strides differ, got {x.stride()} and {y.stride()}")
            if text := _difference(x, y, rtol, atol, equal_nan):
                fail(where, text)

    compare(actual, expected, "")


def _sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _as_tensor(value: Any) -> Tensor:
    if is_tensor(value):
        return value.detach()
    if isinstance(value, bool | int | float | complex | np.ndarray | np.generic):
        return tensor(np.asarray(value))
    raise TypeError(f"assert_close: want tensors, arrays or numbers, got {type(value).__name__}")


def _difference(x: Tensor, y: Tensor, rtol: float | None, atol: float | None, equal_nan: bool) -> str:
    """Returns how two tensors of one shape differ, nothing if they are close."""
    dtype: DType = promote_types(x.dtype, y.dtype)
    if rtol is None or atol is None:
        pairs = [_TOLERANCES.get(d.name, (0.0, 0.0)) for d in (x.dtype, y.dtype)]
        rtol, atol = max(p[0] for p in pairs), max(p[1] for p in pairs)
    a, e = to_numpy(_ops.to(x, dtype=dtype)), to_numpy(_ops.to(y, dtype=dtype))
    wide: Any = np.complex128 if dtype.is_complex else np.float64
    if dtype.is_floating_point or dtype.is_complex:
        a, e = a.astype(wide), e.astype(wide)
    close = np.isclose(a, e, rtol=rtol, atol=atol, equal_nan=equal_nan) if rtol or atol else a == e
    if not (rtol or atol) and equal_nan and (dtype.is_floating_point or dtype.is_complex):
        close |= np.isnan(a) & np.isnan(e)
    if close.all():
        return ""
    with np.errstate(all="ignore"):
        off = np.abs(a.astype(wide) - e.astype(wide))
        relative = off / np.abs(e.astype(wide))
    bad = np.where(close, 0, np.nan_to_num(off, nan=np.inf))
    at = np.unravel_index(int(bad.argmax()), bad.shape)
    place = tuple(int(i) for i in at)
    return (
        f"{int((~close).sum())} of {close.size} elements are not close; the largest difference, {off[at]:.6g}, "
        f"{relative[at]:.3g} of what is expected, is at {place}: got {a[at]} and {e[at]} "
        f"(rtol {rtol}, atol {atol})"
    )
