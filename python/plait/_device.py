"""Devices: where tensors live and operations run."""

from __future__ import annotations

import threading
from typing import Any

from plait import _core
from plait._engine.rank import here
from plait._engine.runtime import check, wait_devices
from plait._errors import ArgumentError

# PyTorch's word for a GPU means ours.
_ALIASES = {"cuda": "gpu"}
_numbers: dict[str, int] = {}


class device(_core.Scope):  # noqa: N801
    """A device by type and index: `device("cpu")`, `device("gpu:1")`, `device("gpu", 1)`.

    Without an index it means the calling rank's own device, if it is of the type, or the GPU that `cuda.set_device`
    chose, and otherwise the first.

    As a context manager it is where tensors are made by default. Making one opens nothing.

    Raises:
        ValueError: for a type other than cpu, gpu, cuda (which means gpu) and meta.
    """

    __slots__ = ("index", "type")
    type: str
    index: int | None

    def __init__(self, type: str | device | int, index: int | None = None) -> None:
        if isinstance(type, device):
            self.type, self.index = type.type, type.index
        else:
            if isinstance(type, int) and not isinstance(type, bool):
                index = type
                type = "gpu"
            if not isinstance(type, str):
                raise TypeError(f"device: want a name such as 'cpu' or 'gpu:0', got {type.__class__.__name__} {type!r}")
            kind, colon, number = type.partition(":")
            if colon and (not number.isdigit() or index is not None):
                raise ArgumentError(f"device: {type!r} is not a type and an index such as 'gpu:0'")
            if index is not None and (not isinstance(index, int) or isinstance(index, bool) or index < 0):
                raise ArgumentError(f"device: want an index of 0 or more, got {index!r}")
            self.type = _ALIASES.get(kind, kind)
            self.index = int(number) if colon else index
            if self.type not in ("cpu", "gpu", "meta"):
                raise ArgumentError(f"device: unknown type {kind!r}, want cpu, gpu, cuda (the same as gpu) or meta")

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        return (
            f"device(type={self.type!r})" if self.index is None else f"device(type={self.type!r}, index={self.index})"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, device) and self.type == other.type and self._place() == other._place()

    def __hash__(self) -> int:
        return hash(self.type)  # what no index means depends on the rank

    def _place(self) -> int:
        return here().current.get(self.type, 0) if self.index is None else self.index

    def __reduce__(self) -> tuple[Any, ...]:
        return device, (self.type, self.index)

    def _begin(self) -> Any:
        before = check(_core.bind_DeviceDefault())
        try:
            check(_core.bind_DeviceSetDefault(open_device(self)))
        except BaseException:  # Ctrl-C: the block does not run
            _core.bind_DeviceSetDefault(before)
            raise
        return before

    def _end(self, before: Any) -> None:
        check(_core.bind_DeviceSetDefault(before))


DeviceLike = device | str | int

_lock = threading.Lock()


def open_device(d: DeviceLike) -> int:
    """Returns the engine's number of a device, and opens it at its first use.

    Raises:
        DeviceError: if there is no such device.
    """
    d = d if isinstance(d, device) else device(d)
    name = f"{d.type}:{d._place()}"
    number = _numbers.get(name)
    if number is None:
        with _lock:
            number = _numbers[name] = check(_core.bind_DeviceOpen(name))
            _by_number[number] = device("meta") if d.type == "meta" else device(name)
    return number


def device_number(d: DeviceLike | None) -> int:
    """Returns the engine's number of a device, which is opened at its first use; -1 for None."""
    return -1 if d is None else open_device(d)


_by_number: dict[int, device] = {}


def device_of(number: int) -> device:
    """Returns the device with the engine's number."""
    d = _by_number.get(number)
    if d is None:
        d = _by_number[number] = device(_core.bind_DeviceName(number))
    return d


def get_default_device() -> device:
    """Returns where tensors are made by default: cpu:0, unless set otherwise."""
    return device_of(check(_core.bind_DeviceDefault()))


def set_default_device(device: DeviceLike | None) -> None:
    """Sets where tensors of the calling rank are made by default; None means cpu:0."""
    check(_core.bind_DeviceSetDefault(-1 if device is None else open_device(device)))


def device_count(type: str = "cpu") -> int:
    """Returns how many devices of a type can be opened."""
    return _core.bind_DeviceCount(device(type).type)


def synchronize(device: DeviceLike | None = None) -> None:
    """Waits until a device, or every device, has done what was launched, in a rank what the rank launched.

    Raises:
        RuntimeError: the first error that nobody has read.
    """
    number = -1 if device is None else open_device(device)
    wait_devices(range(_core.bind_DeviceOpenCount()) if number < 0 else (number,))
    check(_core.bind_DeviceSynchronize(number))
