"""Places in the work of a device."""

from __future__ import annotations

import time
from typing import Any

from plait import _core
from plait._device import DeviceLike, device_count, open_device
from plait._device import device as make_device
from plait._engine.runtime import SLICE, Owner, check


class Event:
    """A place in the work of a device.

    Args:
        device: the GPU if there is one, and else the CPU, by default
        enable_timing: `record` also waits for the work before it and notes the time, for `elapsed_time`
        blocking: has no effect
        interprocess: has no effect
    """

    def __init__(
        self,
        device: DeviceLike | None = None,
        *,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
    ) -> None:
        kind = ("cuda" if device_count("gpu") else "cpu") if device is None else device
        self.device, self._timing, self._time = make_device(kind), enable_timing, 0.0
        self._event: Owner | None = None

    def record(self, stream: Any = None) -> None:
        """Puts the event behind what was launched so far."""
        self._event = Owner(
            check(_core.bind_EventRecord(open_device(self.device if stream is None else stream.device)))
        )
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

    def wait(self, stream: Any = None) -> None:
        """Makes a stream wait for the event, as it does by itself."""

    def elapsed_time(self, end_event: Event) -> float:
        """Returns the milliseconds between two recorded events with enable_timing."""
        for e in (self, end_event):
            if not e._timing or e._event is None:
                raise RuntimeError("elapsed_time: both events must be made with enable_timing=True, and recorded")
        return (end_event._time - self._time) * 1e3


Event.__module__ = "plait"
