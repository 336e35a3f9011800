"""Element types."""

from __future__ import annotations

from typing import Any

import numpy as np

from plait import _core
from plait._engine import spelling
from plait._engine.runtime import check
from plait._errors import MissingFeatureError


class dtype:  # noqa: N801
    """The type of a tensor's elements, such as `plait.float32`."""

    __slots__ = ("_number", "is_complex", "is_floating_point", "is_signed", "itemsize", "name")
    _number: int
    name: str
    itemsize: int
    is_complex: bool  # whether elements are complex numbers
    is_floating_point: bool  # whether elements are floating-point numbers
    is_signed: bool  # whether elements can be negative

    def __init__(self, number: int, name: str) -> None:
        self._number = number
        self._describe(name, _core.bind_DtypeSize(number))

    def _describe(self, name: str, itemsize: int) -> None:
        self.name, self.itemsize = name, itemsize
        self.is_complex, self.is_floating_point = "complex" in name, "float" in name
        self.is_signed = name != "bool" and not name.startswith("uint")

    def __repr__(self) -> str:
        return f"{spelling.package}.{self.name}"

    def __reduce__(self) -> str:
        return "bool_" if self.name == "bool" else self.name


class AbsentDtype(dtype):
    """A dtype of PyTorch's that programs compare with, but of which there are no tensors, such as `plait.complex32`."""

    __slots__ = ()

    def __init__(self, name: str, itemsize: int) -> None:
        self._describe(name, itemsize)

    @property
    def _number(self) -> int:  # type: ignore[override]
        raise MissingFeatureError(
            f"plait.{self.name}: there are no tensors of this dtype, but of {', '.join(d.name for d in DTYPES)}"
        )


def _all() -> list[dtype]:
    out: list[dtype] = []
    while name := _core.bind_DtypeName(len(out)):
        out.append(dtype(len(out), name))
    return out


DTYPES = _all()
_by_name = {d.name: d for d in DTYPES}
bool_, uint8, uint16, uint32, uint64 = (_by_name[n] for n in ("bool", "uint8", "uint16", "uint32", "uint64"))
int8, int16, int32, int64 = (_by_name[n] for n in ("int8", "int16", "int32", "int64"))
float16, bfloat16, float32, float64 = (_by_name[n] for n in ("float16", "bfloat16", "float32", "float64"))
complex64, complex128 = (_by_name[n] for n in ("complex64", "complex128"))

ABSENT = {
    name: AbsentDtype(name, itemsize)
    for itemsize, names in (
        (1, "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn_x2"),
        (1, "qint8 quint8"),
        (4, "complex32 qint32"),
    )
    for name in names.split()
}
ABSENT["chalf"] = ABSENT["complex32"]

# NumPy has no bfloat16: such tensors are read as float32.
TO_NUMPY = {d: np.dtype(d.name) for d in DTYPES if d is not bfloat16}
FROM_NUMPY = {n: d for d, n in TO_NUMPY.items()}
_FROM_PYTHON = {bool: bool_, int: int64}


def as_dtype(value: Any) -> dtype:
    """Returns the dtype that a dtype, a Python type or a NumPy dtype names."""
    if isinstance(value, dtype):
        value._number  # noqa: B018  # raises where there are no such tensors
        return value
    if value is float:
        return get_default_dtype()
    if value is complex:
        return complex128 if get_default_dtype() is float64 else complex64
    try:
        if value in _FROM_PYTHON:
            return _FROM_PYTHON[value]
        return FROM_NUMPY[np.dtype(value)]
    except (TypeError, ValueError, KeyError):
        known = ", ".join(str(d) for d in DTYPES)
        raise TypeError(f"dtype must be one of {known}, got {value!r}") from None


def dtype_number(value: Any) -> int:
    """Returns the engine's number of a dtype, -1 for None."""
    if value is None:
        return -1
    try:
        return value._number
    except AttributeError:
        return as_dtype(value)._number


def get_default_dtype() -> dtype:
    """Returns the dtype of new floating-point tensors."""
    return DTYPES[_core.bind_DtypeDefault()]


def set_default_dtype(d: dtype) -> None:
    """Sets the dtype of new floating-point tensors of the calling rank.

    Raises:
        TypeError: if `d` is not a floating-point dtype.
    """
    check(_core.bind_DtypeSetDefault(as_dtype(d)._number))


def promote_types(type1: dtype, type2: dtype) -> dtype:
    """Returns the dtype to which tensors of two dtypes promote."""
    return DTYPES[check(_core.bind_PromoteDtypes(as_dtype(type1)._number, as_dtype(type2)._number))]


def can_cast(from_: dtype, to: dtype) -> bool:
    """Whether a dtype is converted to another in place: to one of the same or a higher kind, as bool to floats."""

    def rank(d: dtype) -> int:
        return 3 if d.is_complex else 2 if d.is_floating_point else 0 if d is bool_ else 1

    return rank(as_dtype(from_)) <= rank(as_dtype(to))


def complex_parts(d: dtype) -> dtype:
    """Returns the dtype of the real and imaginary parts of a complex dtype, and others as they are."""
    return {complex64: float32, complex128: float64}.get(d, d)


def raw_numpy(value: Any) -> np.dtype[Any]:
    """Returns NumPy's dtype for the elements of a dtype in memory: of bfloat16 that of their bits, int16."""
    d = as_dtype(value)
    return TO_NUMPY[int16 if d is bfloat16 else d]


# The limits of dtypes that NumPy lacks: eps, max, tiny, resolution.
_LIMITS = {
    "bfloat16": (2.0**-7, 3.3895313892515355e38, 2.0**-126, 0.01),
    "float8_e4m3fn": (2.0**-3, 448.0, 2.0**-6, 1.0),
    "float8_e4m3fnuz": (2.0**-3, 240.0, 2.0**-7, 1.0),
    "float8_e5m2": (2.0**-2, 57344.0, 2.0**-14, 1.0),
    "float8_e5m2fnuz": (2.0**-2, 57344.0, 2.0**-15, 1.0),
}


class finfo:  # noqa: N801
    """The limits of a floating-point dtype: bits, eps, max, min, tiny, smallest_normal, resolution.

    Those of a complex dtype are its parts'.
    """

    def __init__(self, type: dtype | None = None) -> None:
        d = type if isinstance(type, dtype) else as_dtype(type) if type is not None else get_default_dtype()
        if d.is_complex and not isinstance(d, AbsentDtype):
            d = complex_parts(d)
        if not d.is_floating_point or (isinstance(d, AbsentDtype) and d.name not in _LIMITS):
            raise TypeError(f"finfo: want a floating-point dtype, got {d}")
        self.dtype, self.bits = d.name, 8 * d.itemsize
        if d.name in _LIMITS:
            self.eps, self.max, self.tiny, self.resolution = _LIMITS[d.name]
        else:
            info = np.finfo(TO_NUMPY[d])
            self.eps, self.max, self.tiny = float(info.eps), float(info.max), float(info.tiny)
            self.resolution = 10.0**-info.precision
        self.min, self.smallest_normal = -self.max, self.tiny

    def __repr__(self) -> str:
        names = ("resolution", "min", "max", "eps", "smallest_normal", "tiny")
        return f"finfo({', '.join(f'{n}={getattr(self, n):g}' for n in names)}, dtype={self.dtype})"


class iinfo:  # noqa: N801
    """The limits of an integer dtype: bits, min, max."""

    def __init__(self, type: dtype) -> None:
        d = type if isinstance(type, dtype) else as_dtype(type)
        if not d.name.startswith(("int", "uint")):
            raise TypeError(f"iinfo: want an integer dtype, got {d}")
        info = np.iinfo(d.name)
        self.dtype, self.bits, self.min, self.max = d.name, info.bits, int(info.min), int(info.max)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"
