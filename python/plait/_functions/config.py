"""Settings and questions about the machine: threads, memory, compilation, switches that have no effect here."""

from __future__ import annotations

from array import array
from typing import Any

from plait import _core
from plait._device import DeviceLike, device, open_device
from plait._dtype import dtype, set_default_dtype
from plait._engine.precision import matmul_precision, set_matmul_precision
from plait._engine.runtime import address, check, is_tensor
from plait._functions._checked import checked
from plait._functions.conversion import OLD_NAMES

__all__ = [
    "are_deterministic_algorithms_enabled", "get_deterministic_debug_mode", "get_device_module",
    "get_float32_matmul_precision", "get_num_interop_threads", "get_num_threads",
    "is_deterministic_algorithms_warn_only_enabled", "is_warn_always_enabled", "memory_stats",
    "reset_peak_memory_stats", "set_default_tensor_type", "set_deterministic_debug_mode",
    "set_float32_matmul_precision", "set_flush_denormal", "set_num_interop_threads", "set_num_threads",
    "set_warn_always", "typename", "use_deterministic_algorithms",
]  # fmt: skip

_CATEGORIES = ("activations", "parameters", "gradients", "optimiser", "communication", "buffers", "workspace")


@checked
def get_num_threads() -> int:
    """Returns how many threads the CPU devices share."""
    return _core.bind_ThreadsGet()


@checked
def set_num_threads(num: int) -> None:
    """Sets how many threads the CPU devices share.

    Raises:
        ValueError: if num is less than 1.
    """
    if isinstance(num, bool) or not isinstance(num, int):
        raise TypeError(f"set_num_threads: want an integer, got {type(num).__name__} {num!r}")
    check(_core.bind_ThreadsSet(num))


@checked
def get_num_interop_threads() -> int:
    """Returns 1: each device runs its operations in order."""
    return 1


@checked
def set_num_interop_threads(num: int) -> None:
    """Has no effect: each device runs its operations in order."""


@checked
def memory_stats(on: DeviceLike | None = None, rank: int | None = None) -> dict[str, int]:
    """Returns the bytes in use on a device now and at their peak, in all and by category.

    Args:
        on: the device; the default device if None
        rank: of one rank only

    Returns:
        A dict with "current", "peak", "reserved" (what the device holds from the system, caches included), and
        "current.parameters", "peak.parameters" and so on for activations, parameters, gradients, optimiser,
        communication, buffers and workspace, which is what kernels need while they run.
    """
    number = check(_core.bind_DeviceDefault()) if on is None else open_device(on)
    who = -1 if rank is None else rank
    current, peak = array("q", (0,)), array("q", (0,))
    out: dict[str, int] = {}
    for i, name in enumerate(("", *(f".{c}" for c in _CATEGORIES))):
        check(_core.bind_MemoryUsed(number, who, i - 1, address(current), address(peak)))
        out[f"current{name}"], out[f"peak{name}"] = current[0], peak[0]
    out["reserved"] = _core.bind_MemoryReserved(number)
    return out


@checked
def reset_peak_memory_stats(on: DeviceLike | None = None) -> None:
    """Makes the bytes in use on a device now their peak."""
    check(_core.bind_MemoryResetPeak(check(_core.bind_DeviceDefault()) if on is None else open_device(on)))


@checked
def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Has no effect: results are the same in every run, for any number of threads."""


@checked
def are_deterministic_algorithms_enabled() -> bool:
    """Returns True: results are the same in every run, for any number of threads."""
    return True


@checked
def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Returns False."""
    return False


@checked
def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """Has no effect: results are the same in every run."""


@checked
def get_deterministic_debug_mode() -> int:
    """Returns 2, which means that only deterministic operations run."""
    return 2


@checked
def set_float32_matmul_precision(precision: str) -> None:
    """Sets how precisely later matrix products of float32 are computed, in the whole process.

    With "highest", which holds at first, they are computed in float32. With "high" and "medium", NVIDIA GPUs round
    the factors to TF32, which has 10 bits of mantissa, and add up in float32; other devices still compute in float32.
    `backends.cuda.matmul.allow_tf32` says the same. Convolutions do not change: see `backends.cudnn.allow_tf32`.
    Another word has no effect and warns.
    """
    if not isinstance(precision, str):
        raise TypeError(f"set_float32_matmul_precision: want a string, got {type(precision).__name__} {precision!r}")
    set_matmul_precision(precision)


@checked
def get_float32_matmul_precision() -> str:
    """Returns how precisely matrix products of float32 are computed: "highest", "high" or "medium"."""
    return matmul_precision()


@checked
def set_flush_denormal(mode: bool) -> bool:
    """Returns False: small numbers are kept."""
    return False


@checked
def set_default_tensor_type(t: Any) -> None:
    """Sets the default dtype by the old name of a type, such as "plait.DoubleTensor"."""
    set_default_dtype(t if isinstance(t, dtype) else OLD_NAMES[str(t).rpartition(".")[2]])


@checked
def get_device_module(on: DeviceLike | None = None) -> Any:
    """Returns the module for a kind of device: plait.cpu or plait.cuda."""
    import plait

    return plait.cpu if on is None or device(on).type == "cpu" else plait.cuda


@checked
def typename(obj: Any) -> str:
    """Returns the name of an object's type, such as "plait.FloatTensor"."""
    if is_tensor(obj):
        return obj.type()
    cls = type(obj)
    return f"{cls.__module__}.{cls.__qualname__}" if cls.__module__ != "builtins" else cls.__name__


@checked
def is_warn_always_enabled() -> bool:
    """Returns False: a warning shows once."""
    return False


@checked
def set_warn_always(b: bool) -> None:
    """Has no effect."""
