"""GPUs under the name that scripts ask for them: counts, memory, seeds."""

from __future__ import annotations

from typing import Any, NamedTuple

from plait import _core
from plait._device import DeviceLike
from plait._device import current_gpu as _current_gpu
from plait._device import device as _device
from plait._device import device_count as _count
from plait._device import open_device as _open_device
from plait._device import synchronize as _synchronize
from plait._engine.missing_names import refusing as _refusing
from plait._engine.rank import here as _here
from plait._errors import OutOfMemoryError
from plait._functions.config import memory_stats as _memory_stats
from plait._functions.config import reset_peak_memory_stats as _reset_peak_memory_stats
from plait.cuda import _nvidia, nccl, nvtx
from plait.cuda.random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from plait.cuda.streams import Event, Stream, StreamContext, current_stream, default_stream, set_stream, stream

__all__ = [
    "Event",
    "OutOfMemoryError",
    "Stream",
    "StreamContext",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "empty_cache",
    "get_arch_list",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "ipc_collect",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "memory_usage",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
    "transfer_stats",
    "utilization",
]


def device_count() -> int:
    """Returns the number of GPUs."""
    return _count("gpu")


def is_available() -> bool:
    """Whether there is a GPU."""
    return device_count() > 0


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether GPUs compute in bfloat16: where there is one."""
    return is_available()


def is_initialized() -> bool:
    """Returns False: devices are opened at their first use."""
    return False


def init() -> None:
    """Has no effect: devices are opened at their first use."""


def current_device() -> int:
    """Returns the index of the GPU that `set_device` chose; at first that of the calling rank's, or 0."""
    return _here().current.get("gpu", 0)


def _index(d: Any) -> int:
    return d if isinstance(d, int) else _device(d).index or 0


def set_device(device: DeviceLike) -> None:
    """Chooses the GPU that a device without an index, and `Tensor.cuda()`, means on the calling rank."""
    _here().current["gpu"] = _index(device)


class device(_device):  # noqa: N801
    """A GPU, as a context manager: where tensors are made by default inside, and the current GPU."""

    __slots__ = ()

    def __init__(self, device: DeviceLike) -> None:
        super().__init__(_index(device))

    def _begin(self) -> tuple[dict[str, int], int, Any]:
        current = _here().current
        gpu = current.get("gpu", 0)
        before = current, gpu, super()._begin()
        current["gpu"] = self.index or 0
        return before

    def _end(self, before: tuple[dict[str, int], int, Any]) -> None:
        current, current["gpu"], default = before
        super()._end(default)


def _gpu(d: DeviceLike | None) -> DeviceLike:
    return _current_gpu() if d is None else _device(d)


def _opened(d: DeviceLike | None) -> int:
    """Opens a GPU, and returns its index."""
    _open_device(_gpu(d))
    index = d if isinstance(d, int) or d is None else _device(d).index
    return current_device() if index is None else index


def get_device_name(device: DeviceLike | None = None) -> str:
    """Returns the name of a GPU."""
    return _core.bind_DeviceDescription(_open_device(_gpu(device)))


class DeviceProperties(NamedTuple):
    """What a GPU is and can do; sizes are in bytes."""

    name: str
    is_software: bool  # computes on the CPU
    memory_limit: int  # what the device may hold; 0 for what the driver gives, which it does not say beforehand
    max_tensor_size: int
    max_workgroup_memory: int
    max_threads_per_workgroup: int
    max_workgroups: int  # along a side of a grid; longer grids fold
    total_memory: int  # 0 where the driver does not say
    multi_processor_count: int  # 0 where the driver does not say
    major: int  # of the compute capability; 0 where the driver does not say
    minor: int
    driver: str  # that runs the GPU: "cuda" or "webgpu"
    driver_reason: str  # why the other driver does not, as in "cuda: libcuda.so.1 is not installed"


def get_device_properties(device: DeviceLike | None = None) -> DeviceProperties:
    """Returns the name and the limits of a GPU, and which driver runs it."""
    number = _open_device(_gpu(device))
    size, shared, threads, groups, limit, software, memory, processors, major, minor = (
        _core.bind_DeviceLimit(number, i) for i in range(10)
    )
    return DeviceProperties(
        name=_core.bind_DeviceDescription(number),
        is_software=bool(software),
        memory_limit=limit,
        max_tensor_size=size,
        max_workgroup_memory=shared,
        max_threads_per_workgroup=threads,
        max_workgroups=groups,
        total_memory=memory,
        multi_processor_count=processors,
        major=major,
        minor=minor,
        driver=_core.bind_DeviceDriver(number),
        driver_reason=_core.bind_DeviceDriverReason(number),
    )


def get_device_capability(device: DeviceLike | None = None) -> tuple[int, int]:
    """Returns the compute capability of a GPU, as (9, 0) is an H100's; (0, 0) where the driver does not say."""
    said = get_device_properties(device)
    return said.major, said.minor


def get_arch_list() -> list[str]:
    """Returns what kernels are compiled for, as ["sm_90"]: what the GPUs under CUDA's driver are, since that is done at
    run time. Without such a GPU it is empty.
    """
    said = [get_device_properties(i) for i in range(device_count())]
    return sorted({f"sm_{p.major}{p.minor}" for p in said if p.driver == "cuda"}, key=lambda name: int(name[3:]))


def mem_get_info(device: DeviceLike | None = None) -> tuple[int, int]:
    """Returns the bytes of a GPU that are free, whichever process uses the others, and how many it has.

    Raises:
        NotImplementedError: for a GPU that does not run under CUDA's driver.
    """
    return _nvidia.memory(_opened(device))


def utilization(device: DeviceLike | None = None) -> int:
    """Returns in how many percent of the last moments a GPU has computed, for any process.

    Raises:
        NotImplementedError: for a GPU that does not run under CUDA's driver.
    """
    return _nvidia.rates("utilization", _opened(device))[0]


def memory_usage(device: DeviceLike | None = None) -> int:
    """Returns in how many percent of the last moments a GPU has read or written its memory, for any process.

    Raises:
        NotImplementedError: for a GPU that does not run under CUDA's driver.
    """
    return _nvidia.rates("memory_usage", _opened(device))[1]


def transfer_stats(device: DeviceLike | None = None) -> dict[str, int]:
    """Returns what a GPU has moved and run since it was opened.

    Returns:
        A dict with the transfers "to_device" and "from_device", their bytes "to_device.bytes" and "from_device.bytes",
        the kernels run, "dispatches", the batches in which they went to the GPU, "submits", and the elementwise calls
        that another one's kernel ran with its own, "fused".
    """
    number = _open_device(_gpu(device))
    names = ("to_device", "from_device", "to_device.bytes", "from_device.bytes", "dispatches", "submits", "fused")
    return {name: _core.bind_DeviceTraffic(number, i) for i, name in enumerate(names)}


def synchronize(device: DeviceLike | None = None) -> None:
    """Waits until a GPU is idle; without GPUs it returns at once."""
    if is_available():
        _synchronize(_gpu(device))


def empty_cache() -> None:
    """Gives cached memory of all GPUs back to the system."""
    for i in range(device_count()):
        _core.bind_MemoryEmptyCache(_open_device(i))


def ipc_collect() -> None:
    """Has no effect: no memory is shared with other processes."""


def memory_stats(device: DeviceLike | None = None) -> dict[str, int]:
    """Returns what `plait.memory_stats` does of a GPU; nothing where there is none."""
    return _memory_stats(_gpu(device)) if is_available() else {}


def memory_summary(device: DeviceLike | None = None, abbreviated: bool = False) -> str:
    """Returns a table of the bytes that `memory_stats` says."""
    return "\n".join(f"{name:24} {n:>16,}" for name, n in memory_stats(device).items())


def memory_allocated(device: DeviceLike | None = None) -> int:
    """Returns the bytes in use on a GPU, 0 where there is none."""
    return memory_stats(device).get("current", 0)


def max_memory_allocated(device: DeviceLike | None = None) -> int:
    """Returns the largest number of bytes that were in use on a GPU."""
    return memory_stats(device).get("peak", 0)


def memory_reserved(device: DeviceLike | None = None) -> int:
    """Returns the bytes that a GPU holds, caches included."""
    return memory_stats(device).get("reserved", 0)


max_memory_reserved = memory_reserved


def reset_peak_memory_stats(device: DeviceLike | None = None) -> None:
    """Makes the bytes in use on a GPU now their peak."""
    if is_available():
        _reset_peak_memory_stats(_gpu(device))


def __getattr__(name: str) -> Any:
    if name.endswith("Tensor"):
        from plait._tensors.legacy_types import GPU_TYPES

        if name in GPU_TYPES:
            return GPU_TYPES[name]
    return _graphs(name)


_graphs = _refusing(
    __name__,
    "CUDAGraph graph graph_pool_handle is_current_stream_capturing make_graphed_callables",
    "graphs are not captured by hand; plait.compile(step) records a step and replays it",
)
