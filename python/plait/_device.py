"""Devices: where tensors live and operations run."""

from __future__ import annotations

import threading
from typing import Any

from plait import _core
from plait._engine.rank import here
from plait._engine.runtime import check, wait_devices
from plait._engine.warnings import warn
from plait._errors import ArgumentError

_numbers: dict[tuple[str, int], int] = {}
_drivers: dict[int, str] = {}  # of open GPUs, by index
_first_word = ""  # the first of "gpu" and "cuda" that the program gave a device


def gpu_word(spelt: str, driver: str, first: str) -> str:
    """Returns the type of a GPU: "cuda" under CUDA's driver, and otherwise as the program spells it.

    Args:
        spelt: the word that made the device, or nothing, as in `device(0)` and `tensor.device`
        driver: the name of the GPU's driver, or nothing if GPUs have not been looked for yet
        first: the word that the program used first for any device, or nothing
    """
    return "cuda" if driver == "cuda" else spelt or first or "gpu"


def _driver_of(index: int) -> str:
    """Returns the name of a GPU's driver; nothing if the process has not looked for GPUs yet."""
    return _drivers.get(index) or _core.bind_DeviceDriverOf(index)


def parse(type: Any, index: Any = None) -> tuple[str, str, int | None]:
    """Returns a device's kind, its word if it is a GPU with one, and its index."""
    if isinstance(type, int) and not isinstance(type, bool):
        type, index, word = "gpu", type, ""
    elif isinstance(type, str):
        word = type.partition(":")[0]
    else:
        raise TypeError(f"device: want a name such as 'cpu' or 'gpu:0', got {type.__class__.__name__} {type!r}")
    kind, colon, number = type.partition(":")
    if colon and (not number.isdigit() or index is not None):
        raise ArgumentError(f"device: {type!r} is not a type and an index such as 'gpu:0'")
    if index is not None and (not isinstance(index, int) or isinstance(index, bool) or index < 0):
        raise ArgumentError(f"device: want an index of 0 or more, got {index!r}")
    if kind not in ("cpu", "gpu", "cuda", "meta"):
        raise ArgumentError(f"device: unknown type {kind!r}, want cpu, gpu, cuda (the same as gpu) or meta")
    at = int(number) if colon else index
    return ("gpu", word, at) if kind in ("gpu", "cuda") else (kind, "", at)


class device(_core.Scope):  # noqa: N801
    """A device by type and index: `device("cpu")`, `device("gpu:1")`, `device("gpu", 1)`.

    Without an index it means the calling rank's own device, if it is of the type, or the GPU that `cuda.set_device`
    chose, and otherwise the first.

    "gpu" and "cuda" are the same devices, equal and with equal hashes. The type of a GPU that runs under CUDA's driver
    is "cuda". Under another driver it is the word that made the device; where the program gave none, as in `device(0)`
    and `tensor.device`, it is the word that the program gave a device first, "gpu" if there is none. Making or printing
    a device opens nothing and does not look for GPUs: until something else has done so, CUDA's are spelt that way too.

    As a context manager it is where tensors are made by default.

    Raises:
        ValueError: for a type other than cpu, gpu, cuda (which means gpu) and meta.
    """

    __slots__ = ("_kind", "_ordinal", "_word", "index")
    _kind: str  # "cpu", "gpu" or "meta"
    _word: str  # that the program gave a GPU: "gpu", "cuda" or nothing
    index: int | None
    _ordinal: int  # the engine's number, of a device with an index that has been used

    def __init__(self, type: str | device | int, index: int | None = None) -> None:
        global _first_word
        if isinstance(type, device):
            self._kind, self._word, self.index = type._kind, type._word, type.index
        else:
            self._kind, self._word, self.index = parse(type, index)
            _first_word = _first_word or self._word

    @property
    def type(self) -> str:
        """The device's type: "cpu", "gpu", "cuda" or "meta"."""
        if self._kind != "gpu":
            return self._kind
        return gpu_word(self._word, _driver_of(self._place()), _first_word)

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        return (
            f"device(type={self.type!r})" if self.index is None else f"device(type={self.type!r}, index={self.index})"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, device) and self._kind == other._kind and self._place() == other._place()

    def __hash__(self) -> int:
        return hash(self._kind)  # what no index means depends on the rank

    def _place(self) -> int:
        return here().current.get(self._kind, 0) if self.index is None else self.index

    def __reduce__(self) -> tuple[Any, ...]:
        return restored, (self._kind, self._word, self.index)

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


def restored(kind: str, word: str, index: int | None) -> device:
    """Returns a device whose word does not count as the program's first."""
    d = device(0 if kind == "gpu" else kind)
    d._word, d.index = word, index
    return d


def current_gpu() -> device:
    """Returns the calling rank's current GPU, without a word of its own."""
    return restored("gpu", "", None)


def wordless(name: str) -> device:
    """Returns the device with a name that is not the program's, such as the engine's or a file's."""
    kind, _, index = parse(name)
    return restored(kind, "", index)


def open_device(d: DeviceLike) -> int:
    """Returns the engine's number of a device, and opens it at its first use.

    Raises:
        DeviceError: if there is no such device.
    """
    d = d if isinstance(d, device) else device(d)
    place = d._place()
    number = _numbers.get((d._kind, place))
    if number is None:
        name = f"{d._kind}:{place}"
        with _lock:
            number = check(_core.bind_DeviceOpen(name))
            if missing := _core.bind_DeviceLibraryMissing(number):
                warn(f"{name} computes matrix products by slower kernels of its own: {missing}")
            _numbers[d._kind, place] = number
            _by_number[number] = device("meta") if d._kind == "meta" else wordless(name)
            if d._kind == "gpu":
                _drivers[place] = _core.bind_DeviceDriver(number)
    if d.index is not None:
        d._ordinal = number
    return number


def cpu_number() -> int:
    """Returns the engine's number of the calling rank's own CPU device, or of cpu:0."""
    number = _numbers.get(("cpu", here().current.get("cpu", 0)))
    return open_device("cpu") if number is None else number


def device_number(d: DeviceLike | None) -> int:
    """Returns the engine's number of a device, which is opened at its first use; -1 for None."""
    return -1 if d is None else open_device(d)


_by_number: dict[int, device] = {}


def device_of(number: int) -> device:
    """Returns the device with the engine's number."""
    d = _by_number.get(number)
    if d is None:
        d = _by_number[number] = wordless(_core.bind_DeviceName(number))
    return d


def get_default_device() -> device:
    """Returns where tensors are made by default: cpu:0, unless set otherwise."""
    return device_of(check(_core.bind_DeviceDefault()))


def set_default_device(device: DeviceLike | None) -> None:
    """Sets where tensors of the calling rank are made by default; None means cpu:0."""
    check(_core.bind_DeviceSetDefault(-1 if device is None else open_device(device)))


def device_count(type: str | device = "cpu") -> int:
    """Returns how many devices of a type can be opened."""
    return _core.bind_DeviceCount(type._kind if isinstance(type, device) else parse(type)[0])


def synchronize(device: DeviceLike | None = None) -> None:
    """Waits until a device, or every device, has done what was launched, in a rank what the rank launched.

    Raises:
        RuntimeError: the first error that nobody has read.
    """
    number = -1 if device is None else open_device(device)
    wait_devices(range(_core.bind_DeviceOpenCount()) if number < 0 else (number,))
    check(_core.bind_DeviceSynchronize(number))
