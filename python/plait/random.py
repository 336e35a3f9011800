"""Generators of random numbers under the names of a module."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from plait._device import DeviceLike, device, device_count
from plait._random import default_generator, get_rng_state, initial_seed, manual_seed, seed, set_rng_state

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
    kind = device(device_type or "cuda").type
    found = range(device_count(kind)) if devices is None else devices
    places = [device("cpu"), *(device(kind, d) if isinstance(d, int) else device(d) for d in found)]
    states = [(p, get_rng_state(p)) for p in places]
    try:
        yield
    finally:
        for place, state in states:
            set_rng_state(state, place)
