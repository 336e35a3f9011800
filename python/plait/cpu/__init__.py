"""CPU devices under the names that PyTorch has for kinds of devices."""

from __future__ import annotations

from plait._device import DeviceLike, synchronize
from plait._device import device_count as _count

__all__ = ["current_device", "device_count", "is_available", "set_device", "synchronize"]


def is_available() -> bool:
    """Whether there is a CPU device: always."""
    return True


def device_count() -> int:
    """Returns how many CPU devices can be opened."""
    return _count("cpu")


def current_device() -> str:
    """Returns "cpu"."""
    return "cpu"


def set_device(device: DeviceLike) -> None:
    """Has no effect; see `plait.set_default_device`."""
