"""Streams and events of GPUs, by the names of scripts that overlap copies with work, or measure it."""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import Any

from plait._device import DeviceLike, current_gpu, open_device, synchronize
from plait._device import device as _device
from plait._event import Event as AnyEvent

__all__ = ["Event", "Stream", "StreamContext", "current_stream", "default_stream", "set_stream", "stream"]


class Event(AnyEvent):
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
        super().__init__("cuda", enable_timing=enable_timing)

    def record(self, stream: Stream | None = None) -> None:
        """Puts the event behind what was launched so far."""
        super().record(stream or current_stream())


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
