"""DLPack: tensors to and from other libraries without a copy."""

from __future__ import annotations

import ctypes
from array import array
from typing import TYPE_CHECKING, Any

from plait import _core, _ops
from plait import _dtype as dt
from plait._device import DeviceLike, open_device
from plait._engine.callbacks import collect, keep
from plait._engine.runtime import Owner, address, call, check, own, wait_value

if TYPE_CHECKING:
    from plait._tensor import Tensor

# DLPack's numbers of kinds of elements, with their bits.
_DTYPES = {
    (0, 8): dt.int8,
    (0, 16): dt.int16,
    (0, 32): dt.int32,
    (0, 64): dt.int64,
    (1, 8): dt.uint8,
    (1, 16): dt.uint16,
    (1, 32): dt.uint32,
    (1, 64): dt.uint64,
    (2, 16): dt.float16,
    (2, 32): dt.float32,
    (2, 64): dt.float64,
    (4, 16): dt.bfloat16,
    (5, 64): dt.complex64,
    (5, 128): dt.complex128,
    (6, 8): dt.bool_,
}
_CPU = 1
_READ_ONLY = 1  # a flag


class _Device(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("id", ctypes.c_int32))


class _DType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _Version(ctypes.Structure):
    _fields_ = (("major", ctypes.c_uint32), ("minor", ctypes.c_uint32))


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("version", _Version),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    )


_OLD, _NEW = b"dltensor", b"dltensor_versioned"
_STRUCTURES: dict[bytes, Any] = {_OLD: _Managed, _NEW: _Versioned}

# Capsules go by address.
_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_SetName", ctypes.pythonapi))
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
_DESTRUCTOR = _core.bind_DlpackDestructor()


def dlpack_device(t: Tensor) -> tuple[int, int]:
    """Returns DLPack's number of the kind of a tensor's device, and its index."""
    if t.device.type != "cpu":
        raise BufferError(f"dlpack: the memory of {t.device} cannot be shared; use cpu() first")
    return _CPU, 0  # all CPU devices are the host


def to_capsule(
    t: Tensor,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
    stream: Any = None,
) -> Any:
    """Returns a capsule with a tensor's memory, for another library to take; see `Tensor.__dlpack__`."""
    if t.requires_grad:
        raise BufferError("dlpack: the tensor requires a gradient, which others would not know of; use detach() first")
    if stream not in (None, -1):
        raise BufferError(f"dlpack: memory of the host has no streams, got stream {stream!r}")
    if dl_device is not None and tuple(dl_device) != (_CPU, 0):
        raise BufferError(f"dlpack: tensors go to the host's memory alone, kind 1 and index 0, got {tuple(dl_device)}")
    if t.device.type != "cpu":
        if copy is False or dl_device is None:
            dlpack_device(t)
        t = t.to(device="cpu")
    elif copy:
        t = _ops.clone(t)
    wait_value(t._h)
    name = _OLD if max_version is None or max_version[0] < 1 else _NEW
    return _new(check(_core.bind_DlpackNew(t._h, name == _NEW, bool(copy))), name, _DESTRUCTOR)


def from_dlpack(ext_tensor: Any, *, device: DeviceLike | None = None, copy: bool | None = None) -> Tensor:
    """Returns a tensor over the memory of another library's array.

    Args:
        ext_tensor: an array with `__dlpack__`, or a capsule
        device: where the result goes
        copy: True for a copy in any case, False for none in any case; memory that is read-only is copied by default

    Raises:
        BufferError: for memory that the host cannot address, and where a copy is needed but not wanted.
        TypeError: for elements of a dtype that tensors do not have.
    """
    where = None if device is None else open_device(device)
    capsule = ext_tensor
    if hasattr(ext_tensor, "__dlpack__"):
        kind, _ = ext_tensor.__dlpack_device__()
        if kind != _CPU:
            raise BufferError(
                f"from_dlpack: the memory is on a device of kind {int(kind)}, want the host's, kind {_CPU}"
            )
        try:
            capsule = ext_tensor.__dlpack__(max_version=(1, 0))
        except TypeError:  # it is older than versions
            capsule = ext_tensor.__dlpack__()
    out, writable = _take(capsule)
    if copy is False and not (writable and (where is None or where == check(_core.bind_TensorDevice(out._h)))):
        raise BufferError("from_dlpack: the memory is read-only or elsewhere, and copy=False forbids a copy")
    if copy or not writable:
        out = _ops.clone(out)
    return out if where is None else out.to(device=device)


def _take(capsule: Any) -> tuple[Tensor, bool]:
    name = next((n for n in _STRUCTURES if type(capsule).__name__ == "PyCapsule" and _valid(id(capsule), n)), None)
    if name is None:
        raise TypeError(
            f"from_dlpack: want an array with __dlpack__, or its unused capsule, got {type(capsule).__name__}"
        )
    managed = _STRUCTURES[name].from_address(_pointer(id(capsule), name))
    if name == _NEW and managed.version.major > 1:
        raise BufferError(f"from_dlpack: version {managed.version.major} of DLPack, want 0 or 1")
    t = managed.tensor
    if t.device.type != _CPU:
        raise BufferError(
            f"from_dlpack: the memory is on a device of kind {t.device.type}, want the host's, kind {_CPU}"
        )
    code = (t.dtype.code, t.dtype.bits)
    if code not in _DTYPES or t.dtype.lanes != 1:
        raise TypeError(f"from_dlpack: elements of kind {code[0]} with {code[1]} bits have no tensor dtype")
    dtype = _DTYPES[code]
    shape = [t.shape[i] for i in range(t.ndim)]
    strides = [t.strides[i] for i in range(t.ndim)] if t.strides else _row_major(shape)
    at = (t.data or 0) + t.byte_offset
    if at % dtype.itemsize:
        raise BufferError(f"from_dlpack: the memory at {at:#x} is not aligned to elements of {dtype.itemsize} bytes")
    _rename(id(capsule), _USED[name])  # it is ours now
    # With this object, once the tensor is gone, the memory is given back.
    taken = Owner(_core.bind_DlpackTake(ctypes.addressof(managed), managed.deleter)) if managed.deleter else None
    if 0 in shape:
        return _ops.empty(*shape, dtype=dtype, device="cpu"), True
    collect()
    low = sum(min(0, (n - 1) * s) for n, s in zip(shape, strides, strict=True))
    high = sum(max(0, (n - 1) * s) for n, s in zip(shape, strides, strict=True))
    sizes, steps = array("q", shape), array("q", strides)
    size = dtype.itemsize
    arguments = (
        at + low * size,
        (high - low + 1) * size,
        dtype._number,
        address(sizes),
        address(steps),
        len(shape),
        -low,
    )
    out = own(call(_core.bind_TensorWrap, *arguments, keep(taken), open_device("cpu")))
    return out, name == _OLD or not managed.flags & _READ_ONLY


_USED = {name: b"used_" + name for name in _STRUCTURES}


def _row_major(shape: list[int]) -> list[int]:
    strides, step = [0] * len(shape), 1
    for i in range(len(shape) - 1, -1, -1):
        strides[i], step = step, step * shape[i]
    return strides


def to_dlpack(tensor: Tensor) -> Any:
    """Returns a capsule with a tensor's memory, of the form from before DLPack had versions."""
    return to_capsule(tensor)


__all__ = ["dlpack_device", "from_dlpack", "to_capsule", "to_dlpack"]
