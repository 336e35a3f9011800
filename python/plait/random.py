"""Generators of random numbers under the names of a module."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from plait._device import DeviceLike, current_gpu, device, device_count
from plait._random import Position, default_generator, get_rng_state, initial_seed, manual_seed, seed, set_rng_state

__all__ = [
    "default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state",
]  # fmt: skip


@contextlib.contextmanager
def fork_rng(
    devices: Iterable[DeviceLike] | None = None,
    enabled: bool = True,
    _caller: str = "fork_rng",
    _devices_kw: str = "devices",
    device_type: str | None = None,
) -> Iterator[None]:
    """Inside, random numbers go on from where they are; afterwards, the calling rank's generators are as before.

    Args:
        devices: whose generators, besides that of cpu:0; every GPU's by default
        enabled: False makes this do nothing
        device_type: the type of devices given as numbers, GPUs by default
    """
    if not enabled:
        yield
        return
    where = device(device_type) if device_type else current_gpu()
    found = range(device_count(where)) if devices is None else devices
    named = (f"cpu:{d}" if isinstance(d, int) and where._kind == "cpu" else d for d in found)
    places = [device("cpu"), *map(device, named)]
    position = Position(places)
    try:
        yield
    finally:
        position.back()
