"""The random generators of GPUs; the CPU's stay as they are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from plait import _core, _random
from plait._device import DeviceLike, current_gpu, device, device_count
from plait._engine.runtime import check

if TYPE_CHECKING:
    from plait._tensor import Tensor

__all__ = [
    "get_rng_state", "get_rng_state_all", "initial_seed", "manual_seed", "manual_seed_all", "seed", "seed_all",
    "set_rng_state", "set_rng_state_all",
]  # fmt: skip


def _gpu(d: DeviceLike) -> device:
    return current_gpu() if d == "cuda" else device(d)


def _gpus() -> list[device]:
    return [device(i) for i in range(device_count("gpu"))]


def get_rng_state(device: DeviceLike = "cuda") -> Tensor:
    """Returns the state of the calling rank's generator on a GPU, the current one by default."""
    return _random.get_rng_state(_gpu(device))


def set_rng_state(new_state: Tensor, device: DeviceLike = "cuda") -> None:
    """Moves the calling rank's generator on a GPU to a state that `get_rng_state` returned."""
    _random.set_rng_state(new_state, _gpu(device))


def get_rng_state_all() -> list[Tensor]:
    """Returns the states of the calling rank's generators on all GPUs."""
    return [get_rng_state(d) for d in _gpus()]


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    """Moves the calling rank's generators on all GPUs to states that `get_rng_state_all` returned."""
    for i, state in enumerate(new_states):
        set_rng_state(state, i)


def manual_seed(seed: int) -> None:
    """Restarts the calling rank's generator on the current GPU from a seed; without GPUs it does nothing."""
    if device_count("gpu"):
        _random.default_generator(current_gpu()).manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Restarts the calling rank's generators on all GPUs from a seed; without GPUs it does nothing."""
    check(_core.bind_ManualSeedKind("gpu", _random._signed(seed)))


def seed() -> None:
    """Restarts the calling rank's generator on the current GPU from a seed that the system chooses."""
    manual_seed(_random.system_seed())


def seed_all() -> None:
    """Restarts the calling rank's generators on all GPUs from a seed that the system chooses."""
    manual_seed_all(_random.system_seed())


def initial_seed() -> int:
    """Returns the seed that the calling rank's generator on the current GPU started from."""
    return _random.default_generator(current_gpu()).initial_seed()
