"""What lies between Python and the compiled module: handles, arguments, statuses and the GIL.

Functions of `_core` take and return integers. Those that cannot wait keep the global interpreter lock; when a queue
they would have to wait for is nearly full they do nothing and return `BUSY`, and `settle` waits, without the lock, and
tries again. Other negative statuses name errors, which `settle` raises.
"""

from __future__ import annotations

import atexit
import inspect
import os
import reprlib
import sys
import threading
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any, NoReturn, TypeGuard

from plait import _core
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


def check(status: int) -> int:
    """Returns a status, or raises the error that it names."""
    if status >= 0:
        return status
    if _core.bind_ErrorKind(status) == PACK:
        from plait._saved import pack_waiting

        return pack_waiting(status)
    raise error_from(status)


def settle(status: int, function: Callable[..., int], *args: Any) -> int:
    """Deals with a negative status of `function(*args)`: waits and tries again, or raises the error."""
    reclaimed = False
    while status < 0:
        if status == BUSY:
            _core.bind_MakeRoom()
        elif _core.bind_ErrorKind(status) == PACK:
            return check(status)
        elif not reclaimed and _core.bind_ErrorKind(status) == MEMORY:
            # Python objects in cycles may hold tensors; the engine finds what else is not used any more.
            reclaimed = True
            _core.bind_ErrorRelease(status)
            import gc

            gc.collect()
            wait_devices(range(_core.bind_DeviceOpenCount()))
            check(_core.bind_MemoryReclaim())
        else:
            raise error_from(status)
        status = function(*args)
    return status


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
    if isinstance(values, int):
        return array("q", (values,))
    try:
        n = len(values)
    except TypeError:  # of another library, or a tensor without dimensions
        return array("q", (_index(values),))
    if n == 1 and not isinstance(values[0], int) and hasattr(values[0], "__len__"):
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
    """The tensors that stood for the thread's last large integers, more than an operation takes."""

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
    kind = getattr(getattr(value, "dtype", None), "kind", None)
    if kind in ("b", "i", "u", "f") and getattr(value, "ndim", None) == 0:
        return number(value.item())
    raise TypeError


def dtype_number(dtype: Any) -> int:
    """Returns the engine's number of a dtype, -1 for None."""
    if dtype is None:
        return -1
    try:
        return dtype._number
    except AttributeError:
        from plait._dtype import as_dtype

        return as_dtype(dtype)._number


def device_number(device: Any) -> int:
    """Returns the engine's number of a device, which is opened at its first use; -1 for None."""
    if device is None:
        return -1
    from plait._device import open_device

    return open_device(device)


def generator_handle(generator: Generator | None) -> int:
    """Returns the handle of a generator, 0 for None."""
    return 0 if generator is None else generator._h


_WANTED: dict[str, Callable[[Any], bool]] = {
    "Tensor": lambda v: isinstance(v, TensorBase),
    "Number": lambda v: isinstance(v, int | float) or getattr(v, "ndim", None) == 0,
    "Sequence[Tensor]": lambda v: isinstance(v, Sequence) and all(isinstance(t, TensorBase) for t in v),
    "Sequence[int]": lambda v: _are(v, lambda i: hasattr(i, "__index__")),
    "Sequence[float]": lambda v: _are(v, lambda i: isinstance(i, int | float)),
    "int": lambda v: hasattr(v, "__index__"),
    "float": lambda v: isinstance(v, int | float),
    "bool": lambda v: True,
    "str": lambda v: isinstance(v, str),
    "Generator": lambda v: hasattr(v, "_h") and not isinstance(v, TensorBase),
    "None": lambda v: v is None,
}


def _are(values: Any, right: Callable[[Any], bool]) -> bool:
    if not isinstance(values, Iterable) or isinstance(values, str | bytes | bytearray):
        return False
    try:
        return all(map(right, sized(values)))
    except TypeError:
        return False


def wrong_argument(function: Callable[..., Any], name: str, arguments: dict[str, Any]) -> TypeError | None:
    """Returns the error that says which argument of a function is not of the annotated type, if one is not."""
    for p in inspect.signature(function).parameters.values():
        if p.name not in arguments or not isinstance(p.annotation, str):
            continue
        value = arguments[p.name]
        wanted = [w.strip() for w in p.annotation.split("|")]
        values = [value]
        if p.kind is p.VAR_POSITIONAL:
            values = list(value[0]) if len(value) == 1 and isinstance(value[0], list | tuple) else list(value)
        known = [_WANTED[w] for w in wanted if w in _WANTED]
        for v in values:
            if known and len(known) == len(wanted) and not any(w(v) for w in known):
                shown = _shown(v)
                return TypeError(f"{name}: {p.name} must be {' or '.join(wanted)}, got {type(v).__name__} {shown}")
    return None


def _shown(value: Any) -> str:
    """Returns a value in at most 60 characters, however deep or long it is."""
    brief = reprlib.Repr()
    brief.maxlist = brief.maxtuple = brief.maxdict = brief.maxset = 20
    brief.maxstring = brief.maxlong = brief.maxother = 60
    shown = brief.repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."


def misuse(name: str, arguments: dict[str, Any], error: Exception) -> Exception:
    """Returns the error that says which argument of a generated function has the wrong type."""
    from plait import _ops
    from plait._mistakes import is_callers

    if is_callers(error):
        return error
    if (wrong := wrong_argument(getattr(_ops, name), name, arguments)) is not None:
        return wrong
    if isinstance(error, OverflowError):
        return OverflowError(f"{name}: {error}")
    if isinstance(error, NotImplementedError):  # a feature that is missing is an AttributeError too
        return error
    return TypeError(f"{name}: {error}")


__all__ = [
    "BUSY",
    "EXCEPTIONS",
    "MAX_DIMS",
    "Owner",
    "TensorBase",
    "address",
    "call",
    "check",
    "device_number",
    "dtype_number",
    "float_list",
    "generator_handle",
    "handles",
    "int_list",
    "is_tensor",
    "misuse",
    "number",
    "own",
    "own_list",
    "settle",
    "sized",
    "wait_devices",
    "wait_value",
    "wait_values",
    "wrong_argument",
]
