"""What NVIDIA's driver says of a GPU beside the engine: free memory, and how busy it is."""

from __future__ import annotations

import ctypes
import functools
import threading
from typing import Any

from plait import _core

_lock = threading.Lock()


def _library(name: str, init: str, *args: int) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        raise RuntimeError(f"{name}, which comes with NVIDIA's driver, cannot be opened: {error}") from None
    _call(library, init, *args)
    return library


@functools.cache
def _cuda() -> ctypes.CDLL:
    return _library("libcuda.so.1", "cuInit", 0)


@functools.cache
def _nvml() -> ctypes.CDLL:
    return _library("libnvidia-ml.so.1", "nvmlInit_v2")


def _call(library: ctypes.CDLL, name: str, *args: Any) -> None:
    if status := getattr(library, name)(*args):
        raise RuntimeError(f"{name} failed with status {status}")


def _ordinal(name: str, index: int) -> int:
    """Returns CUDA's number of a GPU, which is the engine's: the engine lists those first.

    Raises:
        NotImplementedError: for a GPU under another driver.
    """
    if (driver := _core.bind_DeviceDriverOf(index)) != "cuda":
        raise NotImplementedError(f"cuda.{name}: gpu:{index} runs under {driver or 'no driver'}, which does not say")
    return index


def memory(index: int) -> tuple[int, int]:
    """Returns the bytes of a GPU that are free, whoever uses the others, and all of them."""
    ordinal, cuda = _ordinal("mem_get_info", index), _cuda()
    context, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
    _call(cuda, "cuDevicePrimaryCtxRetain", ctypes.byref(context), ordinal)
    try:
        _call(cuda, "cuCtxPushCurrent_v2", context)
        try:
            _call(cuda, "cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        finally:
            _call(cuda, "cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
    finally:
        _call(cuda, "cuDevicePrimaryCtxRelease_v2", ordinal)
    return free.value, total.value


class _Rates(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


def rates(name: str, index: int) -> tuple[int, int]:
    """Returns of the last moments the percentages in which a GPU computed, and in which its memory was used."""
    ordinal = _ordinal(name, index)
    bus, handle, found = ctypes.create_string_buffer(32), ctypes.c_void_p(), _Rates()
    _call(_cuda(), "cuDeviceGetPCIBusId", bus, len(bus), ordinal)
    with _lock:
        _call(_nvml(), "nvmlDeviceGetHandleByPciBusId_v2", bus, ctypes.byref(handle))
        _call(_nvml(), "nvmlDeviceGetUtilizationRates", handle, ctypes.byref(found))
    return found.gpu, found.memory
