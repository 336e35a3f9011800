"""Streams and events of GPUs, by the names of scripts that overlap copies with work, or measure it."""

from __future__ import annotations

import contextlib
import time
from types import TracebackType
from typing import Any

from plait import _core
from plait._device import DeviceLike, current_gpu, open_device, synchronize
from plait._device import device as _device
from plait._engine.runtime import SLICE, Owner, check

__all__ = ["Event", "Stream", "StreamContext", "current_stream", "default_stream", "set_stream", "stream"]


class Event:
    """A place in the work of a GPU.

    Args:
        enable_timing: `record` also waits for the work before it and notes the time, for `elapsed_time`
        blocking: has no effect
        interprocess: has no effect
        external: has no effect
    """

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
    ) -> None:
        self._timing, self._time = enable_timing, 0.0
        self._event: Owner | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Puts the event behind what was launched so far."""
        device = (stream or current_stream()).device
        self._event = Owner(check(_core.bind_EventRecord(open_device(device))))
        if self._timing:
            self.synchronize()
            self._time = time.perf_counter()

    def query(self) -> bool:
        """Whether the work before the event is done."""
        return self._event is None or bool(check(_core.bind_EventWaitFor(self._event._h, 0)))

    def synchronize(self) -> None:
        """Waits until the work before the event is done."""
        while self._event is not None and not check(_core.bind_EventWaitFor(self._event._h, SLICE)):
            pass  # and let Ctrl-C through

    def wait(self, stream: Stream | None = None) -> None:
        """Makes a stream wait for the event, as it does by itself."""

    def elapsed_time(self, end_event: Event) -> float:
        """Returns the milliseconds between two recorded events with enable_timing."""
        for e in (self, end_event):
            if not e._timing or e._event is None:
                raise RuntimeError("elapsed_time: both events must be made with enable_timing=True, and recorded")
        return (end_event._time - self._time) * 1e3


class Stream:
    """The queue of a GPU's work. A GPU runs what a rank launches in order, so that all its streams are the same one."""

    def __init__(self, device: DeviceLike | None = None, priority: int = 0) -> None:
        self.device = current_gpu() if device is None else _device(device)
        self.priority = priority

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and open_device(self.device) == open_device(other.device)

    def __hash__(self) -> int:
        return hash(open_device(self.device))

    def synchronize(self) -> None:
        """Waits until the GPU is idle."""
        synchronize(self.device)

    def query(self) -> bool:
        """Whether the GPU is idle."""
        return self.record_event().query()

    def record_event(self, event: Event | None = None) -> Event:
        """Records an event, a new one by default, and returns it."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Makes the stream wait for an event, as it does by itself."""

    def wait_stream(self, stream: Stream) -> None:
        """Makes the stream wait for another of the GPU, as it does by itself."""


def stream(stream: Stream | None) -> Any:
    """Returns a context in which work goes onto a stream."""
    return current_stream() if stream is None else stream


def set_stream(stream: Stream) -> None:
    """Has no effect: a GPU has one stream."""


def current_stream(device: DeviceLike | None = None) -> Stream:
    """Returns the stream of a GPU, the current one by default."""
    return Stream(device)


default_stream = current_stream


class StreamContext(contextlib.nullcontext[None]):
    """A context in which work goes onto a stream, as it does by itself."""

    def __init__(self, stream: Stream | None) -> None:
        super().__init__()
        self.stream = stream
