"""Types of elements, and what there is to choose from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import plait
from plait._dtype import as_dtype
from plait._tensor import Tensor

if TYPE_CHECKING:
    from plait._device import DeviceLike, device
    from plait._dtype import dtype as DType

__all__ = ["__array_namespace_info__", "astype", "can_cast", "finfo", "iinfo", "isdtype", "result_type"]

_SIGNED, _UNSIGNED = ("int8", "int16", "int32", "int64"), ("uint8", "uint16", "uint32", "uint64")
_FLOATING = ("float32", "float64")
_COMPLEX = ("complex64", "complex128")
_KINDS: dict[str, tuple[str, ...]] = {
    "bool": ("bool",),
    "signed integer": _SIGNED,
    "unsigned integer": _UNSIGNED,
    "integral": _SIGNED + _UNSIGNED,
    "real floating": _FLOATING,
    "complex floating": _COMPLEX,
    "numeric": _SIGNED + _UNSIGNED + _FLOATING + _COMPLEX,
}


def astype(x: Tensor, dtype: DType, /, *, copy: bool = True, device: DeviceLike | None = None) -> Tensor:
    """Returns an array with its elements converted; itself only if copy is False and nothing changes."""
    out = x.to(dtype=dtype, device=x.device if device is None else device)
    return plait.clone(out) if copy and out is x else out


def can_cast(from_: DType | Tensor, to: DType, /) -> bool:
    """Whether a dtype promotes to another."""
    source = from_.dtype if isinstance(from_, Tensor) else from_
    return plait.promote_types(source, to) is to


def isdtype(dtype: DType, kind: Any) -> bool:
    """Whether a dtype is another, is of a kind such as "integral", or is one of several of these."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, str):
        if kind not in _KINDS:
            raise ValueError(f"isdtype: unknown kind {kind!r}, want one of {', '.join(_KINDS)}")
        return dtype.name in _KINDS[kind]
    return dtype is kind


def result_type(*arrays_and_dtypes: Any) -> DType:
    """Returns the dtype to which arrays, dtypes and numbers promote."""
    if not arrays_and_dtypes:
        raise ValueError("result_type: want at least one array, dtype or number")
    found: Any = None
    for value in arrays_and_dtypes:
        if not isinstance(value, bool | int | float | complex):
            dtype = value.dtype if isinstance(value, Tensor) else value
            found = dtype if found is None else plait.promote_types(found, dtype)
    if found is None:
        raise ValueError("result_type: want at least one array or dtype")
    numbers = [v for v in arrays_and_dtypes if isinstance(v, bool | int | float | complex)]
    for number in numbers:
        found = plait.result_type(plait.empty(1, dtype=found), number)  # type: ignore[arg-type]
    return found


class FloatLimits(NamedTuple):
    """The limits of a floating-point dtype."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


class IntegerLimits(NamedTuple):
    """The limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: DType


def finfo(type: DType | Tensor, /) -> FloatLimits:
    """Returns the limits of a floating-point dtype, or of an array's."""
    dtype = type.dtype if isinstance(type, Tensor) else type
    f = plait.finfo(dtype)
    return FloatLimits(f.bits, f.eps, f.max, f.min, f.smallest_normal, dtype)


def iinfo(type: DType | Tensor, /) -> IntegerLimits:
    """Returns the limits of an integer dtype, or of an array's."""
    dtype = type.dtype if isinstance(type, Tensor) else type
    i = plait.iinfo(dtype)
    return IntegerLimits(i.bits, i.max, i.min, dtype)


class Info:
    """What the namespace offers: devices, dtypes, and which of them are taken by default."""

    def capabilities(self) -> dict[str, Any]:
        """Returns which optional features are there."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 12}

    def default_device(self) -> device:
        """Returns where new arrays go."""
        return plait.get_default_device()

    def default_dtypes(self, *, device: DeviceLike | None = None) -> dict[str, DType]:
        """Returns the dtypes of arrays made without one."""
        return {
            "real floating": plait.get_default_dtype(),
            "complex floating": as_dtype(complex),
            "integral": plait.int64,
            "indexing": plait.int64,
        }

    def dtypes(self, *, device: DeviceLike | None = None, kind: Any = None) -> dict[str, DType]:
        """Returns the standard's dtypes that are there, all or those of a kind or of several."""
        found = {n: getattr(plait, n) for n in ("bool", *_KINDS["numeric"])}
        return {n: d for n, d in found.items() if kind is None or isdtype(d, kind)}

    def devices(self) -> list[device]:
        """Returns the devices there are."""
        gpus = [plait.device(i) for i in range(plait.cuda.device_count())]
        return [plait.device("cpu", i) for i in range(plait.cpu.device_count())] + gpus


def __array_namespace_info__() -> Info:  # noqa: N807
    """Returns what the namespace offers."""
    return Info()
