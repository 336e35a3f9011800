"""Tensors from Python's numbers and NumPy's arrays, and arrays from tensors."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import numpy as np

from plait import _core, _ops
from plait import _dtype as dt
from plait._device import DeviceLike, cpu_number, device_of, open_device
from plait._engine.runtime import MAX_DIMS, address, call, check, is_tensor, own, wait_value
from plait._engine.warnings import warn
from plait._tensors.dlpack import from_dlpack
from plait._tensors.storage import Storage

if TYPE_CHECKING:
    from plait._tensor import Tensor


def tensor(
    data: Any,
    *,
    dtype: dt.dtype | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Returns a tensor with a copy of `data`: a number, nested sequences, a tensor, an array of NumPy's or with DLPack.

    Args:
        data: the values
        dtype: of the result; by default that of an array or tensor, the default dtype for Python floats, int64 for
            ints, bool for bools, the complex dtype with parts of the default dtype for complex numbers
        device: where the result goes; the default device, or that of a tensor
        requires_grad: whether the result collects its gradient
        pin_memory: has no effect
    """
    plain = dtype is None and (device is None or open_device(device) == check(_core.bind_DeviceDefault()))
    if plain and (numbers := _core.from_numbers(data)) is not None:
        out = numbers
    elif hasattr(data, "__dlpack__") and not isinstance(data, np.ndarray | np.generic):
        # of another library, or a tensor
        out = _taken(data).detach().to(device=device, dtype=dtype, copy=True)
    else:
        a = _as_array(data)
        if a.dtype == np.float64 and a.size and a.max() >= 1 << 63 and isinstance(data, list | tuple):
            a = _mixed(a, data, dtype)
        out = _from_array(a, dtype, device, isinstance(data, np.ndarray | np.generic) or _has_wide(a, data))
    if requires_grad:
        out.requires_grad = True
    return out


def _taken(data: Any) -> Tensor:
    """Returns a tensor, or one over the memory of an array with DLPack."""
    if is_tensor(data):
        return data
    return from_dlpack(data)


def _as_array(data: Any) -> np.ndarray:
    if isinstance(data, bytearray | memoryview | array):  # sequences of numbers too
        data = data.tolist() if not isinstance(data, bytearray) else list(data)
    if isinstance(data, list | tuple) and _holds_tensor(data):
        data = _plain(data)
    try:
        return np.asarray(data)
    except ValueError as error:
        raise ValueError(f"tensor: the sequences have different lengths: {error}") from None


def _has_wide(a: np.ndarray, data: Any) -> bool:
    """Returns whether one of the numbers is of a dtype of NumPy's that Python's numbers would be taken for."""
    if a.dtype not in (np.float64, np.complex128) or not isinstance(data, list | tuple):
        return False
    for _ in range(a.ndim - 1):
        data = [d for row in data for d in row]
    return not {np.float64, np.complex128}.isdisjoint(map(type, data))


def _holds_tensor(data: Any) -> bool:
    for _ in range(MAX_DIMS + 1):  # a sequence may contain itself
        if not isinstance(data, list | tuple) or not data:
            return is_tensor(data)
        data = data[0]
    raise _too_deep()


def _plain(data: Any, depth: int = 0) -> Any:
    if is_tensor(data):
        return data.tolist()
    if depth > MAX_DIMS:
        raise _too_deep()
    return [_plain(d, depth + 1) for d in data] if isinstance(data, list | tuple) else data


def _too_deep() -> ValueError:
    return ValueError(f"tensor: the sequences are nested more than {MAX_DIMS} deep, or one contains itself")


def _kind(a: np.ndarray) -> str:
    """Returns what elements are that NumPy has no number for, in Python's words."""
    if a.dtype.kind in "SU":
        return "bytes" if a.dtype.kind == "S" else "str"
    if a.dtype.kind != "O":
        return str(a.dtype)
    odd = [type(v).__name__ for v in a.flat if not isinstance(v, int | float | complex)]
    return odd[0] if odd else "int beyond 64 bits"


def _check_range(a: np.ndarray, wanted: dt.dtype | None) -> None:
    """Raises a ValueError if the result cannot hold one of Python's numbers; unsigned, negative ones wrap around."""
    if wanted is None and a.dtype.kind in "iu":
        wanted = dt.int64
    if wanted is None or wanted.is_floating_point or wanted.is_complex or a.dtype.kind not in "iuf":
        return
    most = dt.iinfo(wanted).max
    least = dt.iinfo(wanted).min if wanted.is_signed else -most
    if a.dtype.kind == "f" and wanted.itemsize == 8:  # least - 1 is no float
        inside = (a >= float(least)) & (a < float(most))
    else:
        inside = (a > least - 1) & (a < most + 1)
    if not inside.all():
        raise ValueError(f"tensor: {wanted.name} cannot hold the number {a[~inside].ravel()[0]}")


def _mixed(a: np.ndarray, data: Any, dtype: dt.dtype | None) -> np.ndarray:
    """Returns integers that no integer of NumPy's holds together, which it made floats, as uint64 if wanted."""
    numbers = np.asarray(data, dtype=object)
    if dtype not in (None, dt.uint64) or not all(isinstance(v, int) for v in numbers.flat):
        return a
    if dtype is None:
        raise ValueError(f"tensor: int64 cannot hold the number {numbers.max()}")
    return (numbers % (1 << 64)).astype(np.uint64) if numbers.min() > -1 << 64 and numbers.max() < 1 << 64 else a


def _from_array(a: np.ndarray, dtype: dt.dtype | None, device: DeviceLike | None, typed: bool) -> Tensor:
    wanted = None if dtype is None else dt.as_dtype(dtype)
    if a.dtype.kind in "OSUVMm":
        raise TypeError(f"tensor: cannot make a tensor of {_kind(a)} elements")
    if not typed and a.size and wanted is not dt.bool_:
        _check_range(a, wanted)
        if a.dtype.kind == "u" and wanted is not dt.uint64:  # Python's integers above int64's, for floats
            a = a.astype(np.float64)
    if not typed and a.dtype == np.complex128:
        wanted = wanted or (dt.complex128 if dt.get_default_dtype() is dt.float64 else dt.complex64)
        if not wanted.is_complex:
            raise TypeError(f"tensor: {wanted.name} cannot hold complex numbers; take their real parts")
        with np.errstate(over="ignore"):
            a = a.astype(dt.TO_NUMPY[wanted])
    if not typed and a.dtype == np.float64:
        if (wanted or dt.get_default_dtype()) is dt.float32:
            with np.errstate(over="ignore"):
                a = a.astype(np.float32)
        wanted = wanted or dt.get_default_dtype()
    if not a.dtype.isnative:
        a = a.astype(a.dtype.newbyteorder("="))
    if a.dtype not in dt.FROM_NUMPY:
        known = ", ".join(str(n) for n in dt.FROM_NUMPY)
        raise TypeError(f"tensor: NumPy dtype {a.dtype} has no tensor dtype; convert it to one of {known}")
    a = np.ascontiguousarray(a).reshape(a.shape)
    shape = array("q", a.shape)
    number = -1 if device is None else open_device(device)
    own_dtype = dt.FROM_NUMPY[a.dtype]
    target = None
    if wanted is not None and wanted is not own_dtype and wanted.itemsize <= own_dtype.itemsize:
        goal = device_of(check(_core.bind_DeviceDefault()) if number < 0 else number)
        if goal._kind == "gpu":  # which may not have the array's dtype: it is converted before it goes there
            target, number = goal, open_device("cpu")
    out = own(
        call(
            _core.bind_TensorFromMemory, a.ctypes.data, a.nbytes, own_dtype._number, address(shape), len(shape), number
        )
    )
    if wanted is None or wanted is own_dtype:
        return out
    return out.to(wanted) if target is None else out.to(target, wanted)


def as_tensor(data: Any, dtype: dt.dtype | None = None, device: DeviceLike | None = None) -> Tensor:
    """Returns `data` as a tensor, without a copy for a tensor and for an array of a dtype that tensors have."""
    shared = _shared(data)
    if shared is None:
        return tensor(data, dtype=dtype, device=device)
    return shared if dtype is device is None else shared.to(device=device, dtype=dtype)


def _shared(data: Any) -> Tensor | None:
    """Returns a tensor with the memory of a tensor or an array; None for what is neither, or cannot be shared."""
    if isinstance(data, np.ndarray):
        shared = _wrapped(data)
        return tensor(data) if shared is None and data.flags.writeable and not data.size else shared
    return _taken(data) if hasattr(data, "__dlpack__") else None


def asarray(
    obj: Any,
    *,
    dtype: dt.dtype | None = None,
    device: DeviceLike | None = None,
    copy: bool | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    """Returns `obj` as a tensor.

    Args:
        obj: a tensor, an array of NumPy's or with DLPack, a buffer or storage, whose bytes are numbers of `dtype`, or
            else what `tensor` takes
        dtype: of the result; by default that of obj
        device: where the result goes; by default where obj is
        copy: True for a copy in any case, False for none in any case; by default memory is shared where it can be
        requires_grad: whether the result collects its gradient; by default as obj does

    Raises:
        ValueError: where a copy is needed but not wanted.
    """
    bits = False
    if isinstance(obj, Storage):
        obj = obj.elements(dtype)
    elif is_buffer(obj):
        obj = np.asarray(memoryview(obj)) if dtype is None else np.frombuffer(obj, dt.raw_numpy(dtype))
        if bits := dtype is dt.bfloat16:
            dtype = dt.int16
    shared = _shared(obj)
    out = tensor(obj, dtype=dtype, device=device) if shared is None else shared.to(device=device, dtype=dtype)
    if copy and shared is not None and out is shared:
        out = _ops.clone(out)
    if copy is False and out is not shared:
        raise ValueError(f"asarray: copy=False forbids the copy that a {type(obj).__name__} needs here")
    if bits:
        out = out.view(dt.bfloat16)
    if requires_grad is None or requires_grad == out.requires_grad:
        return out
    return out.detach().requires_grad_(requires_grad)


def is_buffer(obj: Any) -> bool:
    """Whether an object is memory, such as a bytearray, and neither an array nor a tensor."""
    if isinstance(obj, np.ndarray | np.generic) or is_tensor(obj):
        return False
    try:
        memoryview(obj)
    except TypeError:
        return False
    return True


def to_numpy(t: Tensor) -> np.ndarray:
    """Waits for the elements and returns a copy of them; of bfloat16 ones as float32."""
    dtype = t.dtype
    if dtype is dt.bfloat16:
        t, dtype = _ops.to(t.detach(), dtype=dt.float32), dt.float32
    if not t.is_contiguous():
        t = _ops.contiguous(t.detach())
    out = np.empty(t.shape, dt.TO_NUMPY[dtype])
    wait_value(t._h)
    check(_core.bind_TensorRead(t._h, out.__array_interface__["data"][0], out.nbytes))
    return out


def to_list(t: Tensor) -> Any:
    """Waits for the elements and returns them as nested lists, or as a number where there are no dimensions."""
    if (elements := _core.peek_all(t)) is None:
        wait_value(t._h)
        elements = _core.peek_all(t)
    return to_numpy(t).tolist() if elements is None else elements


class _Export(_core.ObjectOwner):
    """Keeps a tensor's memory for an array that shares it."""

    __slots__ = ("__array_struct__",)
    __array_struct__: object  # a capsule

    def __init__(self, t: Tensor) -> None:
        wait_value(t._h)
        self._h = check(_core.bind_TensorExport(t._h))


def lent_array(t: Tensor) -> np.ndarray | None:
    """Returns an array over the memory of a tensor; None where that takes a wait or a copy, or cannot be."""
    lent = _core.lend(t, _Export)
    return None if lent is None else np.asarray(lent)


def share_numpy(t: Tensor, force: bool = False) -> np.ndarray:
    """Returns what `Tensor.numpy` says."""
    if force:
        t = t.detach()
        if t.device.type != "cpu" or t.dtype is dt.bfloat16:
            return to_numpy(t)
    if (array := lent_array(t)) is not None:
        return array
    export = _Export(t)
    number, requires_grad, export.__array_struct__ = _core.array_struct(t)
    if requires_grad:
        raise RuntimeError(
            "numpy: the tensor requires a gradient, which the array would not know of; use detach().numpy()"
        )
    if export.__array_struct__ is not None:
        return np.asarray(export)
    if dt.DTYPES[number] is dt.bfloat16:
        raise TypeError("numpy: NumPy has no bfloat16; use to(plait.float32).numpy()")
    return to_numpy(t)  # there is no memory to share


def from_numpy(ndarray: np.ndarray) -> Tensor:
    """Returns a tensor on the CPU that shares the memory of an array: on the calling rank's own CPU device, or cpu:0.

    A read-only array, such as one over `bytes`, is copied, with a warning: a tensor can be written to.

    Raises:
        TypeError: for a dtype that tensors do not have.
        ValueError: for strides that are no multiples of the elements' size.
    """
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(f"from_numpy: want an array, got {type(ndarray).__name__}")
    if (shared := _wrapped(ndarray)) is not None:
        return shared
    if ndarray.dtype not in dt.FROM_NUMPY:
        names = ", ".join(str(n) for n in dt.FROM_NUMPY)
        raise TypeError(f"from_numpy: NumPy dtype {ndarray.dtype} has no tensor dtype, want one of {names}")
    if not ndarray.flags.writeable:
        warn("from_numpy: the array is read-only; the tensor, which can be written to, has a copy of it")
    elif ndarray.ndim > MAX_DIMS:
        raise ValueError(f"from_numpy: got an array of {ndarray.ndim} dimensions, want at most {MAX_DIMS}")
    elif ndarray.size:
        raise ValueError(
            f"from_numpy: strides {ndarray.strides} and address must be multiples of the elements' "
            f"{ndarray.itemsize} bytes"
        )
    return tensor(ndarray)


def _wrapped(ndarray: np.ndarray) -> Tensor | None:
    """Returns a tensor over the memory of an array; None where a tensor cannot have it."""
    shared = _core.wrap_array(ndarray, cpu_number())
    if type(shared) is int:
        check(shared)
    return shared
