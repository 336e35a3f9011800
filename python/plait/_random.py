"""Random generators: counter-based, so the same seed gives the same numbers on every device."""

from __future__ import annotations

import operator
import os
import threading
from array import array
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from plait import _core
from plait._device import DeviceLike, device, device_of, open_device
from plait._device import device as make_device
from plait._dtype import uint8
from plait._engine.runtime import address, check, is_tensor
from plait._errors import ShapeError
from plait._tensors.arrays import from_numpy

if TYPE_CHECKING:
    from plait._tensor import Tensor

STATE_BYTES = 16  # of a generator's state: seed and position


class Generator(_core.ObjectOwner):
    """A sequence of random numbers (Philox): `Generator().manual_seed(0)`."""

    __slots__ = ("device",)

    def __init__(self, device: DeviceLike = "cpu", *, _handle: int | None = None) -> None:
        self.device: make_device = make_device(device)
        self._h = check(_core.bind_GeneratorNew(0)) if _handle is None else _handle

    def manual_seed(self, seed: int) -> Generator:
        """Moves to the start of the seed's sequence and returns self."""
        check(_core.bind_GeneratorSeed(self._h, _signed(seed)))
        return self

    def seed(self) -> int:
        """Moves to the start of a sequence that the system chooses and returns its seed."""
        value = system_seed()
        self.manual_seed(value)
        return value

    def initial_seed(self) -> int:
        """Returns the seed of the sequence."""
        return self._position()[0] & (1 << 64) - 1

    def get_state(self) -> Tensor:
        """Returns the seed and the position in its sequence, as a tensor of 16 bytes on the CPU."""
        return from_numpy(np.array(self._position(), "<i8").view(np.uint8))

    def set_state(self, new_state: Tensor) -> None:
        """Moves to a state that `get_state` returned."""
        if not is_tensor(new_state) or new_state.dtype is not uint8 or new_state.device.type != "cpu":
            what = f"{new_state.dtype} on {new_state.device}" if is_tensor(new_state) else type(new_state).__name__
            raise TypeError(f"set_state: want a tensor of bytes on the CPU, as get_state returns, got {what}")
        if new_state.shape != (STATE_BYTES,):
            got = list(new_state.shape)
            raise ShapeError(f"set_state: want shape [{STATE_BYTES}], as get_state returns, got {got}")
        seed, offset = np.frombuffer(new_state.numpy().tobytes(), "<i8").tolist()
        self._move((seed, offset))

    def _position(self) -> tuple[int, int]:
        state = array("q", (0, 0))
        check(_core.bind_GeneratorState(self._h, address(state)))
        return state[0], state[1]

    def _move(self, position: tuple[int, int]) -> None:
        check(_core.bind_GeneratorSetState(self._h, *position))

    def fork(self, key: int) -> Generator:
        """Returns a generator whose sequence depends on this one's state and on `key` alone; this one does not move."""
        return Generator(self.device, _handle=check(_core.bind_GeneratorFork(self._h, key)))


def system_seed() -> int:
    """Returns a seed that the system chooses."""
    return int.from_bytes(os.urandom(7), "little")


def _signed(seed: int) -> int:
    value = operator.index(seed)
    if not -(1 << 63) <= value < 1 << 64:
        raise ValueError(f"manual_seed: a seed has 64 bits, got {seed}, want one from -2**63 to 2**64 - 1")
    return value - (1 << 64) if value >> 63 > 0 else value


class _Kept(threading.local):
    """The thread's last owner of a handle of the default generator, which lives for a call that uses it."""

    owner: Generator


_kept = _Kept()


class DefaultGenerator(Generator):
    """The generator that the calling rank uses where none is given: on the CPU, or a device that it is called with."""

    __slots__ = ()

    def __init__(self) -> None:
        self.device = make_device("cpu")

    @property
    def _h(self) -> int:  # type: ignore[override]
        _kept.owner = self()
        return _kept.owner._h

    def __call__(self, on: DeviceLike = "cpu") -> Generator:
        """Returns the generator that the calling rank uses on a device where none is given."""
        number = open_device(on)
        return Generator(device_of(number), _handle=check(_core.bind_GeneratorDefault(number)))


default_generator = DefaultGenerator()


def manual_seed(seed: int) -> Generator:
    """Restarts every generator of the calling rank from `seed`, and returns that of the CPU."""
    check(_core.bind_ManualSeed(_signed(int(seed))))
    return default_generator()


def seed() -> int:
    """Restarts every generator of the calling rank from a seed that the system chooses, and returns it."""
    value = system_seed()
    manual_seed(value)
    return value


def initial_seed() -> int:
    """Returns the seed that the calling rank's generators started from."""
    return default_generator().initial_seed()


def get_rng_state(on: DeviceLike = "cpu") -> Tensor:
    """Returns the state of the calling rank's generator on a device, as a tensor of 16 bytes on the CPU."""
    return default_generator(on).get_state()


def set_rng_state(new_state: Tensor, on: DeviceLike = "cpu") -> None:
    """Moves the calling rank's generator on a device to a state that `get_rng_state` returned."""
    default_generator(on).set_state(new_state)


__all__ = [
    "Generator",
    "default_generator",
    "device",
    "get_rng_state",
    "initial_seed",
    "manual_seed",
    "seed",
    "set_rng_state",
]


class Position:
    """Where the generators of devices stand, so that they can go back there."""

    def __init__(self, devices: Iterable[device]) -> None:
        self._positions = {d: default_generator(d)._position() for d in devices}

    def now(self) -> Position:
        """Returns where the same generators stand now."""
        return Position(self._positions)

    def left(self) -> bool:
        """Reports whether numbers have been drawn since."""
        return any(default_generator(d)._position() != position for d, position in self._positions.items())

    def back(self) -> None:
        """Takes back what has been drawn since."""
        for d, position in self._positions.items():
            default_generator(d)._move(position)
