"""What Plait runs on: `python -m plait.info` prints it, for bug reports."""

from __future__ import annotations

import os
import platform
import sys
from typing import Any

import numpy as np

from plait import _core
from plait._device import device_count, device_of, open_device
from plait._errors import ArgumentError, DeviceError
from plait._version import __version__

_SETTINGS = "PLAIT_"


def collect() -> dict[str, dict[str, Any]]:
    """Returns versions, devices, limits and settings, by heading."""
    devices: dict[str, Any] = {}
    for kind in ("cpu", "gpu"):
        for i in range(device_count(kind)):
            number = open_device(i if kind == "gpu" else f"{kind}:{i}")
            name, driver = _core.bind_DeviceDescription(number), _core.bind_DeviceDriver(number)
            held = f"{_bytes(_core.bind_MemoryReserved(number))} held"
            devices[str(device_of(number))] = ", ".join(filter(None, [name, driver, held]))
    try:
        open_device("gpu:0")
    except (DeviceError, ArgumentError) as error:
        devices["gpu"] = str(error).removeprefix("device: ")
    return {
        "versions": {
            "plait": __version__,
            "python": sys.version.split()[0],
            "numpy": np.__version__,
            "platform": platform.platform(),
            "processor": _processor(),
        },
        "devices": devices,
        "limits": {
            "threads": _core.bind_ThreadsGet(),
            "memory of CPU devices": _bytes(_core.bind_CpuMemoryLimit()),
            "matrix products": _core.bind_BlasDescribe(),
        },
        "settings": {name: value for name, value in sorted(os.environ.items()) if name.startswith(_SETTINGS)},
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return f"{names[0] if names else platform.processor() or platform.machine()}, {os.cpu_count()} logical cores"


def _bytes(n: int) -> str:
    return f"{n / (1 << 30):.2f} GiB"


def describe() -> str:
    """Returns what `collect` finds as text."""
    lines = []
    for heading, values in collect().items():
        lines.append(heading)
        width = max(map(len, values), default=0)
        lines += [f"  {name.ljust(width)}  {value}" for name, value in values.items()] or ["  none"]
    return "\n".join(lines)


if __name__ == "__main__":
    print(describe())
