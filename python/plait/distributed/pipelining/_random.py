"""Random number generators of micro-batches."""

from __future__ import annotations

from typing import Any

from plait import _core
from plait._device import get_default_device
from plait._engine.context_stack import enter, leave
from plait._engine.runtime import check
from plait._random import default_generator

__all__ = ["Fork", "forks"]


class Fork(_core.ObjectOwner):
    """The random state of one micro-batch. Inside `with fork:`, random functions use it."""

    def __init__(self, seed: int) -> None:
        self._h = check(_core.bind_WorkerNew(seed))

    def __enter__(self) -> Fork:
        before = _core.bind_ModeGet()
        enter(self, before)
        try:
            check(_core.bind_ModeSet(_core.bind_WorkerMode(self._h)))
            return self
        except BaseException:
            leave(self, _core.bind_ModeSet)
            raise

    def __exit__(self, *_: Any) -> None:
        leave(self, _core.bind_ModeSet)


def forks(n: int) -> list[Fork]:
    """Returns the random states of n micro-batches that a step of a pipeline uses.

    A loop that runs each micro-batch inside its fork drops the same activations as the pipeline. The forks derive from
    the generator of the default device, which advances by one.
    """
    generator = default_generator(get_default_device())
    made = [Fork(generator.fork(i).get_state()[0]) for i in range(n)]
    seed, offset = generator.get_state()
    generator.set_state((seed, offset + 1))
    return made
