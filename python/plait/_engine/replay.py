"""What the package tells a recording of calls that the thread makes: see `plait.compile`."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from plait import _core

if TYPE_CHECKING:
    from plait.optim._engine import EngineOptimizer


class Recording:
    """A recording in progress: the optimisers that have stepped in it, and the hyperparameters that they had before."""

    def __init__(self, before: dict[EngineOptimizer, list[tuple[float, ...]]]) -> None:
        self.before = before
        self.stepped: list[EngineOptimizer] = []


class _Thread(threading.local):
    recording: Recording | None = None


thread = _Thread()


def note_step(optimizer: EngineOptimizer) -> None:
    """Tells the thread's recording, if it makes one, that an optimiser steps."""
    recording = thread.recording
    if recording is None:
        return
    if optimizer not in recording.stepped:
        recording.stepped.append(optimizer)
    if recording.before.get(optimizer, optimizer._sent) != optimizer._sent:
        refuse("the step changes hyperparameters of an optimiser: change them between steps")


def refuse(reason: str) -> None:
    """Refuses the thread's recording, if it makes one: a replay would not do again what the reason says."""
    if thread.recording is not None:
        _core.bind_ReplayRefuse(reason)
