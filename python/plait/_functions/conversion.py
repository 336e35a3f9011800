"""Conversions, and questions about dtypes and devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plait import _core, _ops
from plait import _dtype as dt
from plait._device import DeviceLike, current_gpu, open_device
from plait._device import device as Device
from plait._engine import spelling
from plait._engine.overriding import OVERRIDING, overridden_operator, overrides
from plait._engine.runtime import TensorBase, address, call, check, handles, is_tensor, number, own, wait_value
from plait._engine.warnings import warn
from plait._functions._checked import checked, made_method
from plait._functions._common import check_format, forget_layout, into, operand, store
from plait._functions._fast import does
from plait._layout import MemoryFormat, contiguous_format, preserve_format
from plait._tensors.arrays import from_numpy, tensor
from plait._tensors.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait._dtype import dtype as DType
    from plait._tensor import Number, Tensor
    from plait._tensors.storage import Storage

__all__ = [
    "angle", "clone", "detach_", "frombuffer", "is_complex", "is_floating_point", "is_nonzero", "is_same_size",
    "is_signed", "is_storage", "is_tensor", "numel", "positive", "result_type",
]  # fmt: skip


def _converted(t: Tensor, old: DType, dtype: DType) -> Tensor:
    if old.is_complex and not (dtype.is_complex or dtype is dt.bool_):
        warn(f"to: {dtype.name} keeps only the real parts of complex numbers; take them by .real if that is meant")
        t = _ops.real(t)
        if t.dtype is dtype:
            return _ops.clone(t)
    return _ops.to(t, dtype=dtype)


def _narrows(old: DType, new: DType) -> bool:
    return new is not old and new.itemsize <= old.itemsize


def _to(name: str, dtype: DType) -> Any:
    def method(self: Tensor, *, memory_format: MemoryFormat | None = None) -> Tensor:
        if memory_format is not None:
            check_format(name, memory_format)
        return self if (old := self.dtype) is dtype else _converted(self, old, dtype)

    method.__doc__ = f"Returns the tensor converted to {dtype.name}; itself if it is of that dtype."
    return made_method(method, name)


to_float, to_double, to_half = _to("float", dt.float32), _to("double", dt.float64), _to("half", dt.float16)
to_bfloat16, to_long, to_int = _to("bfloat16", dt.bfloat16), _to("long", dt.int64), _to("int", dt.int32)
to_bool, to_byte, to_char = _to("bool", dt.bool_), _to("byte", dt.uint8), _to("char", dt.int8)
to_short = _to("short", dt.int16)
to_cfloat, to_cdouble = _to("cfloat", dt.complex64), _to("cdouble", dt.complex128)

OLD_NAMES = {
    "FloatTensor": dt.float32, "DoubleTensor": dt.float64, "HalfTensor": dt.float16, "BFloat16Tensor": dt.bfloat16,
    "LongTensor": dt.int64, "IntTensor": dt.int32, "ShortTensor": dt.int16, "CharTensor": dt.int8,
    "ByteTensor": dt.uint8, "BoolTensor": dt.bool_, "ComplexFloatTensor": dt.complex64,
    "ComplexDoubleTensor": dt.complex128,
}  # fmt: skip


def type(self: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """Returns the name of the tensor's type, such as "plait.FloatTensor"; or the tensor converted to such a type."""
    if dtype is None:
        module = f"{spelling.package}.cuda" if self.device._kind == "gpu" else spelling.package
        return f"{module}." + next(n for n, d in OLD_NAMES.items() if d is self.dtype)
    if isinstance(dtype, str):
        module, _, name = dtype.rpartition(".")
        if name == "Tensor":  # the default type
            return _typed(self, dt.get_default_dtype(), module.endswith("cuda"), non_blocking)
        if name not in OLD_NAMES:
            raise ValueError(f"type: unknown type {dtype!r}, want a dtype or one of {', '.join(OLD_NAMES)}")
        return _typed(self, OLD_NAMES[name], module.endswith("cuda"), non_blocking)
    if (place := getattr(dtype, "place", None)) is not None:  # a type, such as plait.cuda.FloatTensor
        return _typed(self, dtype.dtype, place == "gpu", non_blocking)
    if TensorBase in getattr(dtype, "__mro__", ()):  # the class Tensor: the default type
        return _typed(self, dt.get_default_dtype(), False, non_blocking)
    return self.to(dtype)


def _typed(self: Tensor, dtype: DType, gpu: bool, queued: bool) -> Tensor:
    if gpu == (self.device._kind == "gpu"):
        return self.to(dtype)
    return self.to(current_gpu() if gpu else "cpu", dtype, non_blocking=queued)


def to(
    self: Tensor,
    device: DeviceLike | DType | Tensor | None = None,
    dtype: DType | bool | None = None,
    non_blocking: bool = False,
    copy: bool = False,
    *,
    memory_format: MemoryFormat | None = None,
    other: Tensor | None = None,
) -> Tensor:
    """Returns the tensor on another device or of another dtype; itself if nothing changes.

    Call it with a device, a dtype, both in this order, or a tensor whose device and dtype to take; then the other
    arguments follow.

    Args:
        self: the tensor
        device: where the result goes; a dtype or a tensor in its place is `dtype` or `other`
        dtype: of the result
        non_blocking: do not wait for a copy from a GPU to the host: who reads the result does; copies to a GPU are
            queued in any case
        copy: make a copy in any case
        memory_format: has no effect: new tensors lie row-major
        other: a tensor whose device and dtype to take
    """
    if memory_format is not None:
        check_format("to", memory_format)
    elif isinstance(device, dt.dtype) and dtype is other is None and not non_blocking and not copy:
        return self if (old := self.dtype) is device else _converted(self, old, device)
    where: Any = device
    first: Any
    if device is not None and not isinstance(device, Device | str | int):
        if isinstance(dtype, bool):  # the arguments behind a dtype or a tensor stand one place ahead
            non_blocking, copy = dtype, non_blocking or copy
            dtype = None
        if dtype is not None or other is not None:
            raise TypeError(f"to: want a device, got {device} and dtype={dtype}")
        where, first = None, device
        if overrides(first):
            return overridden_operator(to, self, first)  # type: ignore[no-any-return]
        if is_tensor(first):
            other = first
        else:
            dtype = first
    if other is not None:
        where, dtype = other.device, other.dtype
    out = self
    if where is not None:
        number = open_device(where)
        if number != check(_core.bind_TensorDevice(self._h)):
            # What gets smaller is converted first: fewer bytes move, and a GPU may not have the dtype.
            if dtype is not None and self.device._kind == "cpu" and _narrows(self.dtype, d := dt.as_dtype(dtype)):
                out = _converted(self, self.dtype, d)
            out = own(call(_core.bind_TensorToDevice, out._h, number, bool(non_blocking)))
    if dtype is not None and (d := dt.as_dtype(dtype)) is not (old := out.dtype):
        out = _converted(out, old, d)
    return _ops.clone(out) if copy and out is self else out


def type_as(self: Tensor, other: Tensor) -> Tensor:
    """Returns the tensor converted to the dtype of another."""
    if overrides(other):
        return overridden_operator(type_as, self, other)  # type: ignore[no-any-return]
    return self.to(other.dtype)


def cpu(self: Tensor, memory_format: MemoryFormat = preserve_format) -> Tensor:
    """Returns the tensor on a CPU device; itself if it is on one."""
    check_format("cpu", memory_format)
    return self if self.device.type == "cpu" else self.to("cpu")


def cuda(
    self: Tensor,
    device: DeviceLike | None = None,
    non_blocking: bool = False,
    memory_format: MemoryFormat = preserve_format,
) -> Tensor:
    """Returns the tensor on a GPU, the current one by default."""
    check_format("cuda", memory_format)
    return self.to("cuda" if device is None else device, non_blocking=non_blocking)


def pin_memory(self: Tensor, device: Any = None) -> Tensor:
    """Returns the tensor: memory is not pinned."""
    return self


def share_memory_(self: Tensor) -> Tensor:
    """Moves the tensor's memory, with all tensors on it, to where other processes can use it; returns the tensor.

    NumPy arrays keep the memory that they have, which is no longer the tensor's. Has no effect on a GPU's tensor.

    Raises:
        NotImplementedError: for sparse tensors, those on the meta device and distributed ones.
    """
    if self.device._kind == "gpu":
        return self
    wait_value(self._h)
    call(_core.bind_TensorShare, self._h)
    wait_value(self._h)
    return self


def is_shared(self: Tensor) -> bool:
    """Whether other processes can use the memory, once it is sent to them; of a GPU's tensor True, as in PyTorch."""
    return self.device._kind == "gpu" or bool(check(_core.bind_TensorIsShared(self._h)))


def record_stream(self: Tensor, s: Any) -> None:
    """Has no effect: memory is given back when the work that uses it is done, on whatever stream."""


def get_device(self: Tensor) -> int:
    """Returns the index of the GPU that the tensor is on, -1 for a CPU device."""
    return -1 if self.device.type == "cpu" else (self.device.index or 0)


@checked
def is_storage(obj: Any) -> bool:
    """Whether an object is a storage."""
    return isinstance(obj, Storage)


@checked
def is_floating_point(input: Tensor) -> bool:
    """Whether the elements are floating-point numbers."""
    return input.dtype.is_floating_point


@checked
def is_complex(input: Tensor) -> bool:
    """Whether the elements are complex numbers."""
    return input.dtype.is_complex


@checked
def is_signed(input: Tensor) -> bool:
    """Whether the elements can be negative."""
    return input.dtype.is_signed


@checked
def is_nonzero(input: Tensor) -> bool:
    """Whether the only element is not zero; waits for it.

    Raises:
        RuntimeError: if there is not exactly one element.
    """
    return bool(input)


@checked
def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape."""
    return input.shape == other.shape


def is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Whether two tensors are the same memory in the same layout."""
    same = self.shape == tensor.shape and self.stride() == tensor.stride() and self.dtype is tensor.dtype
    return same and self.device == tensor.device and self.data_ptr() == tensor.data_ptr()


def never(name: str, what: str) -> Callable[[Any], bool]:
    """Returns a method that says of every tensor that it is not something."""

    def method(self: Tensor) -> bool:
        return False

    method.__doc__ = f"Whether {what}: never."
    return made_method(method, name)


@checked
def numel(input: Tensor) -> int:
    """Returns the number of elements."""
    return input.numel()


@checked
def result_type(
    tensor: Tensor | Number | None = None,
    other: Tensor | Number | None = None,
    *,
    scalar: Number | None = None,
    scalar1: Number | None = None,
    scalar2: Number | None = None,
) -> DType:
    """Returns the dtype of the result of arithmetic on two tensors or numbers, each under one of the names."""
    given = [v for v in (tensor, other, scalar, scalar1, scalar2) if v is not None]
    if len(given) != 2:
        raise TypeError(f"result_type: want two tensors or numbers, got {len(given)}")
    pair = [operand(v, "result_type") for v in given]
    if not any(isinstance(v, TensorBase) for v in given):
        kinds = [number(v)[0] for v in given]
        return dt.get_default_dtype() if -1 in kinds else dt.bool_ if kinds == [-3, -3] else dt.int64
    operands = handles(pair)
    return dt.DTYPES[check(_core.bind_ResultDtype(address(operands), 2))]


def storage(self: Tensor) -> Storage:
    """Returns the memory behind the tensor, in elements."""
    return Storage(self, False)


def untyped_storage(self: Tensor) -> Storage:
    """Returns the memory behind the tensor, in bytes."""
    return Storage(self, True)


@checked
def detach_(input: Tensor) -> Tensor:
    """Takes the tensor out of the graph: it becomes a leaf that requires no gradient."""
    fresh = input.detach()
    input._h, fresh._h = fresh._h, input._h
    forget_layout(input)
    return input


def apply_(self: Tensor, callable: Callable[[Any], Any]) -> Tensor:
    """Replaces each element by what a Python function returns for it; slow, on the host."""
    return _from_host(self, [callable(v) for v in _ops.ravel(self.detach()).tolist()])


def map_(self: Tensor, other: Tensor, callable: Callable[[Any, Any], Any]) -> Tensor:
    """Replaces each element by what a Python function returns for it and another's; slow, on the host."""
    second = _ops.ravel(_ops.expand(other.detach(), self.shape)).tolist()
    first = _ops.ravel(self.detach()).tolist()
    return _from_host(self, [callable(a, b) for a, b in zip(first, second, strict=True)])


def _from_host(t: Tensor, values: list[Any]) -> Tensor:
    made = tensor(values, dtype=t.dtype, device=t.device)
    return _ops.copy_(t, _ops.reshape(made, t.shape))


@checked
@does(_ops.clone)
def clone(input: Tensor, *, memory_format: MemoryFormat | None = None) -> Tensor:
    """Returns a copy."""
    check_format("clone", memory_format)
    return _ops.clone(input)


def contiguous(self: Tensor, memory_format: MemoryFormat = contiguous_format) -> Tensor:
    """Returns the tensor row-major without gaps; itself if it is so."""
    if memory_format is not contiguous_format:
        check_format("contiguous", memory_format)
    return self if _core.bind_TensorIsContiguous(self._h) == 1 else _ops.contiguous(self)


def copy_(self: Tensor, other: Any, non_blocking: bool = False) -> Tensor:
    """Sets the elements to those of another tensor, broadcast and converted, from any device."""
    if isinstance(other, TensorBase) and not OVERRIDING and _core.device(self) is _core.device(other) is not None:
        return _ops.copy_(self, other)  # type: ignore[arg-type]
    if overrides(other):
        return overridden_operator(copy_, self, other, *((non_blocking,) if non_blocking else ()))  # type: ignore[no-any-return]
    source = operand(other, "copy_")
    if isinstance(other, TensorBase) and _core.bind_TensorDevice(other._h) != _core.bind_TensorDevice(self._h):
        source = source.to(self.device, non_blocking=non_blocking)
    return _ops.copy_(self, source)


@checked
def positive(input: Tensor) -> Tensor:
    """Returns the tensor."""
    if input.dtype is dt.bool_:
        raise TypeError("positive: bools have no sign")
    return input


@checked
def conj(input: Tensor) -> Tensor:
    """Returns the conjugates of complex numbers; a real tensor as it is."""
    return _ops.conj(input) if input.dtype.is_complex else input


@checked
def conj_physical(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Returns the conjugates of complex numbers; a real tensor as it is."""
    return store(out, conj(input))


@checked
def conj_physical_(input: Tensor) -> Tensor:
    """Replaces complex numbers by their conjugates, and returns the tensor."""
    return input.copy_(_ops.conj(input)) if input.dtype.is_complex else input


@checked
def adjoint(input: Tensor) -> Tensor:
    """Returns the tensor with the last two dimensions exchanged and complex numbers conjugated."""
    return conj(_ops.mT(input))


@checked
def real(input: Tensor) -> Tensor:
    """Returns a view of the real parts of complex numbers; a real tensor as it is."""
    return input.real


@checked
def resolve_conj(input: Tensor) -> Tensor:
    """Returns the tensor: conjugates are always computed."""
    return input


@checked
def resolve_neg(input: Tensor) -> Tensor:
    """Returns the tensor."""
    return input


def is_pinned(self: Tensor, device: DeviceLike | None = None) -> bool:
    """Whether the memory is pinned: never."""
    return False


@checked
def angle(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Returns the angles in the complex plane, in radians: of real numbers pi for negative ones, else 0."""
    return into(out, _ops.angle, input)


@checked
def frombuffer(buffer: Any, *, dtype: DType, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Tensor:
    """Returns a vector over the memory of a buffer, shared if it can be written to."""
    import numpy as np

    a = np.frombuffer(buffer, dt.raw_numpy(dtype), count, offset)
    out = from_numpy(a) if a.flags.writeable else tensor(a)
    if dtype is dt.bfloat16:
        out = out.view(dtype)
    out.requires_grad = requires_grad
    return out


def wait(t: Tensor) -> Tensor:
    """Waits until a tensor's value is known and returns the tensor."""
    wait_value(t._h)
    return t
