"""The kind of device that training runs on, whichever it is: GPUs where there are any."""

from __future__ import annotations

from plait import cuda as _cuda
from plait._device import DeviceLike
from plait._device import current_gpu as _current_gpu
from plait._device import device as _device

__all__ = [
    "current_accelerator",
    "current_device_index",
    "current_stream",
    "device_count",
    "device_index",
    "empty_cache",
    "is_available",
    "max_memory_allocated",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_peak_memory_stats",
    "set_device_index",
    "set_stream",
    "synchronize",
]

device_count, is_available, synchronize = _cuda.device_count, _cuda.is_available, _cuda.synchronize
empty_cache, memory_stats, memory_allocated = _cuda.empty_cache, _cuda.memory_stats, _cuda.memory_allocated
max_memory_allocated, memory_reserved = _cuda.max_memory_allocated, _cuda.memory_reserved
reset_peak_memory_stats, current_stream, set_stream = (
    _cuda.reset_peak_memory_stats,
    _cuda.current_stream,
    _cuda.set_stream,
)
current_device_index = current_device_idx = _cuda.current_device


def current_accelerator(check_available: bool = False) -> _device | None:
    """Returns the current GPU without its index, or None where there is none."""
    return _current_gpu() if is_available() else None


def set_device_index(device: DeviceLike) -> None:
    """Chooses the GPU that a device without an index means on the calling rank."""
    _cuda.set_device(device)


class device_index:  # noqa: N801
    """A context manager: the GPU that a device without an index means inside, on the calling rank.

    Args:
        device: its index, or None for the one that is current anyway
    """

    def __init__(self, device: int | None, /) -> None:
        self._index = device
        self._before: list[int] = []

    def __enter__(self) -> None:
        self._before.append(current_device_index())
        if self._index is not None:
            set_device_index(self._index)

    def __exit__(self, *raised: object) -> None:
        before = self._before.pop()
        if self._index is not None:
            set_device_index(before)
