"""Random number generators of micro-batches."""

from __future__ import annotations

from plait import _core
from plait._device import get_default_device
from plait._engine.runtime import Owner, check
from plait._random import default_generator

__all__ = ["Fork", "forks"]


class Fork(_core.Scope):
    """The random state of one micro-batch. Inside `with fork:`, random functions use it."""

    _end = staticmethod(_core.bind_ModeSet)

    def __init__(self, seed: int) -> None:
        self._worker = Owner(check(_core.bind_WorkerNew(seed)))

    def _begin(self) -> int:
        before = _core.bind_ModeGet()
        check(_core.bind_ModeSet(_core.bind_WorkerMode(self._worker._h)))
        return before


def forks(n: int) -> list[Fork]:
    """Returns the random states of n micro-batches that a step of a pipeline uses.

    A loop that runs each micro-batch inside its fork drops the same activations as the pipeline. The forks derive from
    the generator of the default device, which advances by one.
    """
    generator = default_generator(get_default_device())
    made = [Fork(generator.fork(i)._position()[0]) for i in range(n)]
    seed, offset = generator._position()
    generator._move((seed, offset + 1))
    return made
