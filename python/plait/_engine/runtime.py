"""What lies between Python and the compiled module: handles, arguments, statuses and the GIL.

Functions of `_core` take and return integers. Those that cannot wait keep the global interpreter lock; when a queue
they would have to wait for is nearly full they do nothing and return `BUSY`, and `settle` waits, without the lock, and
tries again. Other negative statuses name errors, which `settle` raises.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
from array import array
from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any, NoReturn, TypeGuard

from plait import _core
from plait._engine.overriding import overrides
from plait._errors import EXCEPTIONS, MEMORY, error_from

if TYPE_CHECKING:
    from plait._random import Generator
    from plait._tensor import Tensor

BUSY = -1
PACK = 100  # the kind of a status that is no error: saved values are to be packed
MAX_DIMS = 12


def _after_fork() -> None:
    """Makes every use of the engine in a forked child an error: its threads did not come along."""
    stubs = {getattr(_core, n): _nothing if n in _ENDS else _refuse for n in dir(_core) if n.startswith("bind_")}
    modules = [m for n, m in list(sys.modules.items()) if n.partition(".")[0] == "plait"]
    for space in map(vars, modules):  # functions of the engine are bound to names in many modules, `_core` among them
        for name, value in list(space.items()):
            if isinstance(value, BuiltinFunctionType) and value in stubs:
                space[name] = stubs[value]


# What only ends the life of something does nothing in a forked child, as the types of capi/extension do.
_ENDS = {"bind_TensorRelease", "bind_ObjectRelease", "bind_ErrorRelease", "bind_DevicesLeave"}


def _nothing(*_handle: int) -> int:
    return 0


def _refuse(*_args: object) -> NoReturn:
    raise RuntimeError(
        "plait cannot be used in a process forked after it was imported: its threads do not exist here; "
        'start processes with multiprocessing.get_context("spawn"), or use threads'
    )


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@atexit.register
def _leave_devices() -> None:
    """Waits for the GPUs' drivers when the interpreter ends: one that is at work then may crash the process."""
    _core.bind_DevicesLeave()


# The part of `Tensor` that the generated functions know: a handle `_h`, released with the object.
TensorBase = _core.TensorOwner
own: Callable[[int], Tensor] = _core.own  # makes the tensor that owns a handle


def is_tensor(obj: Any) -> TypeGuard[Tensor]:
    """Whether an object is a tensor."""
    return isinstance(obj, TensorBase)


class Owner(_core.ObjectOwner):
    """Owns the handle of an object of the engine for something that cannot be such an owner itself."""

    __slots__ = ()

    def __init__(self, handle: int) -> None:
        self._h = handle


def own_list(handle: int) -> tuple[Tensor, ...]:
    """Returns the tensors of a list object of the engine."""
    out = array("q", bytes(8 * _core.bind_ListLen(handle)))
    check(_core.bind_ListTake(handle, out.buffer_info()[0]))
    return tuple(own(h) for h in out)


def _no_packer(status: int) -> int:
    raise RuntimeError("saved values are to be packed, and no hooks on them exist")


_pack: Callable[[int], int] = _no_packer


def set_packer(pack: Callable[[int], int]) -> None:
    """Sets the function that packs saved values, for the process; the module of the hooks on them does so."""
    global _pack
    _pack = pack


def check(status: int) -> int:
    """Returns a status, or raises the error that it names."""
    if status >= 0:
        return status
    if _core.bind_ErrorKind(status) == PACK:
        return _pack(status)
    raise error_from(status)


def settle(status: int, function: Callable[..., int], *args: Any) -> int:
    """Deals with a negative status of `function(*args)`: waits and tries again, or raises the error."""
    reclaimed = False
    while status < 0:
        if status == BUSY:
            _core.bind_WaitForQueueSpace()
        elif _core.bind_ErrorKind(status) == PACK:
            return check(status)
        elif not reclaimed and _core.bind_ErrorKind(status) == MEMORY:
            # Python objects in cycles may hold tensors; the engine finds what else is not used any more.
            reclaimed = True
            _core.bind_ErrorRelease(status)
            gc.collect()
            wait_devices(range(_core.bind_DeviceOpenCount()))
            check(_core.bind_MemoryReclaim())
        else:
            raise error_from(status)
        status = function(*args)
    return status


_core.set_settler(settle)


def call(function: Callable[..., int], *args: Any) -> int:
    """Returns `function(*args)`, tried again or raised as `settle` says."""
    status = function(*args)
    return status if status >= 0 else settle(status, function, *args)


SLICE = 50_000_000  # nanoseconds that a wait takes before it lets Ctrl-C through


def wait_value(handle: int) -> None:
    """Waits until the value of a tensor is known, in slices that let Ctrl-C through."""
    if handle and not _core.bind_TensorReady(handle):
        while _core.bind_TensorWaitFor(handle, SLICE) == 0:
            pass


def wait_values(handles: Iterable[int]) -> None:
    """Does what `wait_value` does for several tensors; 0 stands for none."""
    for h in handles:
        wait_value(h)


def wait_devices(numbers: Iterable[int]) -> None:
    """Waits until the current streams of devices have done what was launched, in slices that let Ctrl-C through."""
    for n in numbers:
        event = check(_core.bind_EventRecord(n))
        try:
            while _core.bind_EventWaitFor(event, SLICE) == 0:
                pass
        finally:
            _core.bind_ObjectRelease(event)


def address(buffer: array[Any]) -> int:
    """Returns where the elements of an array lie."""
    return buffer.buffer_info()[0]


def int_list(values: Any) -> array[int]:
    """Returns an int, or integers in a sequence or in the only element of one, as an array of int64."""
    kind = type(values)
    if (kind is tuple or kind is list) and values and type(values[0]) is int:
        try:
            return array("q", values)
        except TypeError:
            return array("q", [_index(v) for v in values])
    if isinstance(values, int):
        return array("q", (values,))
    try:
        n = len(values)
    except TypeError:  # of another library, or a tensor without dimensions
        return array("q", (_index(values),))
    if n == 1 and not isinstance(values[0], int) and hasattr(values[0], "__len__"):
        if getattr(values[0], "shape", None) == ():  # a tensor without dimensions has no length
            return array("q", (_index(values[0]),))
        values = values[0]
    if isinstance(values, str | bytes | bytearray):  # which an array would take for its memory
        raise TypeError(f"want integers, got {type(values).__name__} {values!r}")
    values = sized(values)
    try:
        return array("q", values)
    except TypeError:
        return array("q", [_index(v) for v in values])


def sized(values: Any) -> Any:
    """Returns the elements of a sequence, of which there must be as many as it says: others might never end."""
    if isinstance(values, list | tuple) or not hasattr(values, "__len__"):
        return values
    n = len(values)
    out = list(islice(values, n + 1))
    if len(out) != n:
        found = "more" if len(out) > n else len(out)
        raise TypeError(f"want a sequence, got {type(values).__name__} of length {n} with {found} elements")
    return out


def _index(value: Any) -> int:
    return value.__index__()


def float_list(values: Any) -> array[float]:
    """Returns a number or a sequence of numbers as an array of float64."""
    if isinstance(values, int | float):
        return array("d", (values,))
    if isinstance(values, str | bytes | bytearray):
        raise TypeError(f"want numbers, got {type(values).__name__} {values!r}")
    return array("d", sized(values))


def handles(tensors: Any) -> array[int]:
    """Returns the handles of tensors in a sequence, or in the only element of one; 0 for None."""
    if len(tensors) == 1 and not isinstance(tensors[0], TensorBase) and tensors[0] is not None:
        tensors = tensors[0]
    return array("q", [0 if t is None else t._h for t in sized(tensors)])


class _Numbers(threading.local):
    """The tensors that stood for the thread's last large integers and complex numbers, more than an operation takes."""

    def __init__(self) -> None:
        self.last: deque[Tensor] = deque(maxlen=64)


_numbers = _Numbers()


def number(value: Any) -> tuple[int, float]:
    """Returns what stands for a plain number in the place of a tensor: its kind, or a handle, and its value."""
    if isinstance(value, bool):
        return -3, float(value)
    if isinstance(value, float):
        return -1, value
    if isinstance(value, int):
        if -(1 << 53) <= value <= 1 << 53:
            return -2, float(value)
        if not -(1 << 63) <= value < 1 << 63:
            raise OverflowError(f"{value} does not fit 64 bits")
        h = check(_core.bind_TensorNumber(-2, 0.0, value))
        _numbers.last.append(own(h))
        return h, 0.0
    if isinstance(value, complex):
        h = check(_core.bind_TensorComplexNumber(value.real, value.imag))
        _numbers.last.append(own(h))
        return h, 0.0
    if overrides(value):  # asked for its dtype, it may note that
        raise TypeError
    kind = getattr(getattr(value, "dtype", None), "kind", None)
    if kind in ("b", "i", "u", "f", "c") and getattr(value, "ndim", None) == 0:
        return number(value.item())
    raise TypeError


def generator_handle(generator: Generator | None) -> int:
    """Returns the handle of a generator, 0 for None."""
    return 0 if generator is None else generator._h


__all__ = [
    "BUSY",
    "EXCEPTIONS",
    "MAX_DIMS",
    "Owner",
    "TensorBase",
    "address",
    "call",
    "check",
    "float_list",
    "generator_handle",
    "handles",
    "int_list",
    "is_tensor",
    "number",
    "own",
    "own_list",
    "set_packer",
    "settle",
    "sized",
    "wait_devices",
    "wait_value",
    "wait_values",
]
