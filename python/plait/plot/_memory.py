"""Memory of a device over time, by what it is for."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from plait._device import DeviceLike, get_default_device
from plait._functions.config import memory_stats
from plait.plot._draw import Axis, Canvas, Legend, Picture, bytes_unit, margin, number, seconds_unit, size, thinned

CATEGORIES = ("parameters", "buffers", "gradients", "optimiser", "activations", "communication", "workspace")
Sample = tuple[float, Mapping[str, int]]


class MemoryLog:
    """Takes samples of a device's memory counters, for `memory`: `with MemoryLog(every=0.01) as log:`.

    The counters are those of `plait.memory_stats`: what the program has in use at that point of its calls, whatever the
    device has run by then.

    Args:
        device: the device; the default device if None
        rank: of one rank only
        every: seconds between samples, which a thread takes inside `with`; None if `take` alone does

    Raises:
        ValueError: if `every` is not above 0.
    """

    def __init__(
        self, device: DeviceLike | None = None, *, rank: int | None = None, every: float | None = None
    ) -> None:
        if every is not None and not (isinstance(every, int | float) and every > 0):
            raise ValueError(f"MemoryLog: want every above 0 seconds, or None, got {every!r}")
        self._device = get_default_device() if device is None else device
        self._rank, self._every = rank, every
        self._samples: list[Sample] = []
        self._begin = time.perf_counter()
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None
        memory_stats(self._device, rank)  # an unknown device is an error here

    def take(self) -> None:
        """Takes a sample."""
        self._samples.append((time.perf_counter() - self._begin, memory_stats(self._device, self._rank)))

    @property
    def samples(self) -> list[Sample]:
        """The samples: seconds since the log was made, and the counters."""
        return list(self._samples)

    def _run(self) -> None:
        try:
            while not self._end.wait(self._every):
                self.take()
        except Exception as e:
            self._failure = e

    def __enter__(self) -> MemoryLog:
        self.take()
        if self._every is not None:
            self._end.clear()
            self._thread = threading.Thread(target=self._run, name="plait.plot.MemoryLog", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            self._end.set()
            thread.join()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        self.take()

    def __len__(self) -> int:
        return len(self._samples)


def _samples(what: Any) -> tuple[list[Sample], bool]:
    """Returns times and counters, and whether the times are seconds; otherwise they count samples."""
    if isinstance(what, MemoryLog):
        return what.samples, True
    if not isinstance(what, Sequence) or isinstance(what, str):
        raise TypeError(f"memory: want a MemoryLog or a list of what memory_stats returned, got {type(what).__name__}")
    for i, stats in enumerate(what):
        if not isinstance(stats, Mapping) or not {"current", "peak", *(f"current.{c}" for c in CATEGORIES)} <= {*stats}:
            raise TypeError(f"memory: want what plait.memory_stats returned in each sample, got {stats!r} at {i}")
    return [(float(i), stats) for i, stats in enumerate(what)], False


def memory(samples: Any, *, title: str = "Memory in use", width: int = 900, height: int = 300) -> Picture:
    """Draws the memory of a device over time, by what it is for, and its peak.

    The areas are samples of counters, each until the next one: what came and went between two is not in them, but in
    the peak, a broken line, which is the counter's since the last `reset_peak_memory_stats`.

    Args:
        samples: a `MemoryLog`, or a list of what `plait.memory_stats` returned, as after each step; a dict of them by
            name for several devices or ranks, with one scale
        title: the picture's title
        width: in pixels
        height: of each area, in pixels

    Raises:
        TypeError: if there is something else than samples.
        ValueError: if some samples have times and some have none.
    """
    size("memory", width, height)
    given = samples if isinstance(samples, Mapping) else {"": samples}
    if {"current", "peak"} <= {*given}:
        raise TypeError("memory: want a list of what memory_stats returned, got one of them")
    runs = {str(name): _samples(s) for name, s in given.items()}
    if len({timed for rows, timed in runs.values() if rows}) > 1:
        raise ValueError("memory: want only MemoryLogs or only lists of samples, got both")
    rows = [stats for taken, _ in runs.values() for _, stats in taken]
    used = [c for c in CATEGORIES if any(stats[f"current.{c}"] for stats in rows)]
    most = max((max(s["current"], s["peak"]) for s in rows), default=0)
    one, unit = bytes_unit(most)
    times = [at for taken, _ in runs.values() for at, _ in taken]
    second, clock = seconds_unit(max(times, default=1)) if any(t for _, t in runs.values()) else (1.0, "")

    canvas = Canvas(width, title)
    colours = {c: CATEGORIES.index(c) for c in used}
    if used:
        canvas.legend(Legend(list(colours.items())))
    right = width - 36.0
    for name, (taken, _) in runs.items():
        if name:
            canvas.text(14, canvas.top + 14, name, extra=' font-size="13" font-weight="600"')
            canvas.top += 20
        top, bottom = canvas.top + 4, canvas.top + 4 + height
        up = Axis(0, most / one or 1.0, bottom, top + 20)
        left = margin(text for _, text in up.ticks(6))
        along = Axis(min(times, default=0) / second, max(times, default=1) / second, left, right)
        canvas.upright(up, right, f"memory ({unit})", left)
        canvas.across(along, top, bottom, f"time ({clock})" if clock else "sample")
        points = [(at / second, float(stats["current"])) for at, stats in taken]
        kept = [i for piece in thinned(points, along) for i in piece]
        base = [0] * len(kept)
        for category in used:
            above = [b + taken[i][1][f"current.{category}"] for b, i in zip(base, kept, strict=True)]
            if any(a > b for a, b in zip(above, base, strict=True)):
                xs = [along(points[i][0]) for i in kept]
                canvas.path(
                    f"M{_stairs(xs, [up(v / one) for v in above], right)}"
                    f"L{_stairs(xs, [up(v / one) for v in base], right, back=True)}Z",
                    f"bar k{colours[category]}",
                )
            base = above
        if taken:
            peak = taken[-1][1]["peak"]
            y = up(peak / one)
            canvas.path(f"M{left:.1f} {y:.1f}H{right:.1f}", "limit")
            text = f"peak {number(peak / one)} {unit}"
            canvas.text(right - 4, y - 4, text, "small", ' text-anchor="end"')
        else:
            canvas.text((left + right) / 2, (top + bottom) / 2, "no samples", "small", ' text-anchor="middle"')
    return canvas.picture()


def _stairs(xs: list[float], ys: list[float], right: float, back: bool = False) -> str:
    """Returns the corners of stairs: each value holds until the next sample, the last one for a moment."""
    ends = [*xs[1:], min(right, xs[-1] + 1) if len(xs) > 1 else right]
    corners = [f"{x:.1f} {y:.1f}" for start, end, y in zip(xs, ends, ys, strict=True) for x in (start, end)]
    return "L".join(reversed(corners) if back else corners)
