"""Profiles: what operations ran on which stream, when and for how long."""

from __future__ import annotations

import enum
import functools
import gzip
import json
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from plait import _core
from plait._device import synchronize
from plait._engine.runtime import check
from plait._functions._checked import overridable

F = TypeVar("F", bound=Callable[..., Any])


class ProfilerActivity(enum.Enum):
    """What a profile may collect. Streams of all devices are always collected."""

    CPU = "cpu"
    CUDA = "cuda"


class ProfilerAction(enum.Enum):
    """What a profile does in a step of the program, as a schedule says."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """Returns a schedule for `profile`: cycles of steps that are passed over, and steps that are collected.

    Args:
        wait: steps at the start of a cycle that are passed over
        warmup: steps after these that are passed over too
        active: steps at the end of a cycle that are collected
        repeat: the number of cycles, 0 for no end
        skip_first: steps before the first cycle
        skip_first_wait: if not 0, the first cycle has no `wait`
    """
    if min(wait, warmup, repeat, skip_first) < 0 or active < 1:
        raise ValueError(
            f"schedule: want wait, warmup, repeat and skip_first of at least 0, and active of at least 1, "
            f"got wait={wait}, warmup={warmup}, active={active}, repeat={repeat}, skip_first={skip_first}"
        )
    length = wait + warmup + active

    def action(step: int) -> ProfilerAction:
        step -= skip_first
        if step < 0:
            return ProfilerAction.NONE
        cycle, place = divmod(step + (wait if skip_first_wait else 0), length)
        if (repeat and cycle >= repeat) or place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if place < length - 1 else ProfilerAction.RECORD_AND_SAVE

    return action


def tensorboard_trace_handler(
    dir_name: str | os.PathLike[str],
    worker_name: str | None = None,
    use_gzip: bool = False,
    use_python_export: bool = False,
) -> Callable[[profile], None]:
    """Returns a function for `on_trace_ready` that writes each trace into a file of a folder.

    Args:
        dir_name: the folder, which is made if it is not there
        worker_name: the start of the file's name; by default the machine's name and the process's number
        use_gzip: compress the files
        use_python_export: has no effect
    """
    worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"

    def write(done: profile) -> None:
        os.makedirs(dir_name, exist_ok=True)
        path = os.path.join(dir_name, f"{worker}.{time.time_ns()}.pt.trace.json")
        done.export_chrome_trace(path)
        if use_gzip:
            with open(path, "rb") as plain, gzip.open(f"{path}.gz", "wb") as packed:
                shutil.copyfileobj(plain, packed)
            os.remove(path)

    return write


@dataclass(frozen=True)
class Event:
    """One execution of an operation, or one range named by `record_function`. Times are in microseconds."""

    name: str
    device: str
    stream: int
    rank: int
    start: float
    duration: float
    kernel: str = ""
    shapes: tuple[tuple[int, ...], ...] | None = None
    is_range: bool = False


@dataclass
class EventAverage:
    """All executions of one operation together. Times are in microseconds."""

    key: str
    device: str
    input_shapes: tuple[tuple[int, ...], ...] | None = None
    count: int = 0
    total: float = 0.0
    shortest: float = float("inf")
    longest: float = 0.0
    is_range: bool = False

    @property
    def cpu_time_total(self) -> float:
        """The time on CPU devices, and of ranges, which the host measures."""
        return self.total if self.is_range or self.device.startswith("cpu") else 0.0

    @property
    def device_time_total(self) -> float:
        """The time on other devices."""
        return self.total - self.cpu_time_total

    @property
    def cpu_time(self) -> float:
        """The time of one execution on CPU devices."""
        return self.cpu_time_total / self.count

    self_cpu_time_total = cpu_time_total
    cuda_time_total = self_cuda_time_total = self_device_time_total = device_time_total


_ORDERS: dict[str, Callable[[EventAverage], Any]] = {
    "count": lambda a: a.count,
    "time_total": lambda a: a.total,
    "cpu_time": lambda a: a.cpu_time,
    **{
        f"{own}{kind}_time_total": functools.partial(lambda kind, a: getattr(a, f"{kind}_time_total"), kind)
        for own in ("", "self_")
        for kind in ("cpu", "cuda", "device")
    },
}


class EventList(list[EventAverage]):
    """Averages of a profile."""

    def total_average(self) -> EventAverage:
        """Returns the operations, without ranges, together."""
        return functools.reduce(_merged, (a for a in self if not a.is_range), EventAverage("total", "cpu"))

    def table(self, sort_by: str | None = None, row_limit: int = 100, max_name_column_width: int = 55) -> str:
        """Returns a table as text.

        Args:
            sort_by: count, time_total, cpu_time_total, device_time_total or cpu_time, the greatest first; by default
                in the order of first execution
            row_limit: rows at most; -1 for all
            max_name_column_width: characters of a name at most
        """
        rows: list[EventAverage] = list(self)
        if sort_by is not None:
            if sort_by not in _ORDERS:
                raise ValueError(f"table: cannot sort by {sort_by!r}, want one of {', '.join(_ORDERS)}")
            rows.sort(key=_ORDERS[sort_by], reverse=True)
        whole = self.total_average().total
        shaped = any(a.input_shapes is not None for a in rows)
        head = ["name", "device", "calls", "total", "share", "mean", "min", "max", *(["shapes"] if shaped else [])]
        lines = [head]
        for a in rows if row_limit < 0 else rows[:row_limit]:
            name = a.key if len(a.key) <= max_name_column_width else a.key[: max_name_column_width - 3] + "..."
            share = "" if a.is_range or not whole else f"{100 * a.total / whole:.1f}%"
            times = [_time(t) for t in (a.total / a.count, a.shortest, a.longest)]
            line = [name, a.device, str(a.count), _time(a.total), share, *times]
            lines.append([*line, str([list(s) for s in a.input_shapes or ()])] if shaped else line)
        widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
        left = (0, 1, len(head) - 1 if shaped else 0)
        text = [
            "  ".join(
                c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True))
            )
            for line in lines
        ]
        text.insert(1, "  ".join("-" * w for w in widths))
        return "\n".join([*(line.rstrip() for line in text), f"operations: {_time(whole)}"])

    def __str__(self) -> str:
        return self.table()


def _time(microseconds: float) -> str:
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= size:
            return f"{microseconds / size:.3f} {unit}"
    return f"{microseconds:.3f} us"


def _merged(into: EventAverage, a: EventAverage) -> EventAverage:
    into.count += a.count
    into.total += a.total
    into.shortest, into.longest = min(into.shortest, a.shortest), max(into.longest, a.longest)
    return into


@dataclass
class _Ranges:
    """The ranges of the profile that is being collected."""

    owner: profile
    events: list[Event] = field(default_factory=list)
    lock: Any = field(default_factory=threading.Lock)


_active: _Ranges | None = None
_RECORDS = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


class profile:  # noqa: N801
    """Collects what runs while it is open: `with profile() as p: ...`, then `p.key_averages().table()`.

    Entering and leaving wait for all devices, so that the work inside is there, whole, and nothing else.

    Args:
        activities: has no effect, everything is collected
        record_shapes: keep the shapes of inputs
        schedule: says of each step, which `step` ends, whether to collect it; `schedule(...)` makes one. By default all
            is collected
        on_trace_ready: called with the profile at its end, and at the end of each cycle of a schedule
        profile_memory: not collected, as what the arguments behind it ask for
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[profile], Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: Any = None,
        acc_events: bool = False,
        custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
    ) -> None:
        self._schedule = schedule or (lambda step: ProfilerAction.RECORD)
        self._collects = False
        self.step_num = 0
        self._shapes, self._ready = record_shapes, on_trace_ready
        self._events: list[Event] = []

    def start(self) -> None:
        """Begins the first step, and to collect if the schedule says so.

        Raises:
            RuntimeError: if another profile is being collected.
        """
        self.step_num = 0
        self._action = self._schedule(0)
        if self._action in _RECORDS:
            self._begin()

    def _begin(self) -> None:
        global _active
        synchronize()
        check(_core.bind_ProfileStart(self._shapes))
        _active = _Ranges(self)
        self._collects = True

    def stop(self) -> None:
        """Ends the collection; a second call does nothing."""
        global _active
        if not self._collects:
            return
        self._collects = False
        ranges, _active = _active, None
        assert ranges
        try:
            synchronize()
        finally:
            handle = check(_core.bind_ProfileStop())
            rows = json.loads(_core.bind_ProfileExecutions(handle))
            _core.bind_ObjectRelease(handle)
            self._events = sorted([*map(_event, rows), *ranges.events], key=lambda e: e.start)
        if self._ready is not None:
            self._ready(self)

    def step(self) -> None:
        """Ends a step of the program, and begins the next one."""
        before, self.step_num = self._action, self.step_num + 1
        self._action = self._schedule(self.step_num)
        if before is ProfilerAction.RECORD_AND_SAVE or self._action not in _RECORDS:
            self.stop()
        if self._action in _RECORDS and not self._collects:
            self._begin()

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __str__(self) -> str:
        return self.key_averages().table()

    def events(self) -> list[Event]:
        """Returns what was collected, by time."""
        return list(self._events)

    def key_averages(self, group_by_input_shape: bool = False) -> EventList:
        """Returns the events of each operation, or range, on each kind of device together.

        Args:
            group_by_input_shape: keep operations on different shapes apart; needs `record_shapes`
        """
        averages: dict[Any, EventAverage] = {}
        for e in self._events:
            shapes = e.shapes if group_by_input_shape else None
            key = e.name, e.device, shapes, e.is_range
            a = averages.setdefault(key, EventAverage(e.name, e.device, shapes, is_range=e.is_range))
            _merged(a, EventAverage("", "", None, 1, e.duration, e.duration, e.duration))
        return EventList(averages.values())

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes the events as JSON for chrome://tracing and ui.perfetto.dev."""
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"traceEvents": list(self._trace()), "displayTimeUnit": "ms"}, file)

    def _trace(self) -> Iterator[dict[str, Any]]:
        devices: dict[str, int] = {}
        threads: set[tuple[str, int]] = set()
        for e in self._events:
            pid = devices.setdefault(e.device, len(devices))
            if (e.device, e.stream) not in threads:
                threads.add((e.device, e.stream))
                kind = "thread" if e.is_range else "stream"
                where = {"ph": "M", "pid": pid, "tid": e.stream}
                yield {**where, "name": "process_name", "args": {"name": e.device}}
                yield {**where, "name": "thread_name", "args": {"name": f"{kind} {e.stream} of rank {e.rank}"}}
            arguments: dict[str, Any] = {"kernel": e.kernel} if e.kernel else {}
            if e.shapes is not None:
                arguments["Input Dims"] = e.shapes
            yield {
                "ph": "X",
                "cat": "user_annotation" if e.is_range else "cpu_op",
                "name": e.name,
                "pid": pid,
                "tid": e.stream,
                "ts": e.start,
                "dur": e.duration,
                "args": arguments,
            }


def _event(row: dict[str, Any]) -> Event:
    shapes = None if row["shapes"] is None else tuple(tuple(s or ()) for s in row["shapes"])
    start, duration = row["start"] / 1000, (row["end"] - row["start"]) / 1000
    return Event(row["op"], row["device"], row["stream"], row["rank"], start, duration, row["kernel"], shapes)


def _profiler_enabled() -> bool:
    """Returns whether a profile is being collected."""
    return _active is not None


def _disable_profiler() -> None:
    """Ends the collection of the profile that is being collected."""
    if _active is not None:
        _active.owner.stop()


def kineto_available() -> bool:
    """Returns True: profiles are there, as PyTorch's are where that library is."""
    return True


class record_function:  # noqa: N801
    """Names a range of the program in profiles: `with record_function("forward"):`, or as a decorator.

    The range is that of the calling thread: operations it launches may run later.
    """

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name
        self._starts: list[tuple[_Ranges | None, int]] = []

    def __enter__(self) -> record_function:
        self._starts.append((_active, _core.bind_ProfileNow()))
        return self

    def __exit__(self, *_: object) -> None:
        ranges, start = self._starts.pop()
        if ranges is None or ranges is not _active:
            return
        duration = (_core.bind_ProfileNow() - start) / 1000
        event = Event(self.name, "host", threading.get_native_id(), 0, start / 1000, duration, is_range=True)
        with ranges.lock:
            ranges.events.append(event)

    def __call__(self, function: F) -> F:
        """Decorates a function."""

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with record_function(self.name):
                return function(*args, **kwargs)

        return wrapped  # type: ignore[return-value]


# --- ranges as functions, which graphs can call: PyTorch's torch.ops.profiler ---


def _record_function_enter(name: str, args: str | None = None) -> record_function:
    """Begins a range and returns what ends it."""
    return record_function(name, args).__enter__()


@overridable
def _record_function_exit(handle: record_function) -> None:
    """Ends a range."""
    handle.__exit__()


__all__ = [
    "Event", "EventAverage", "EventList", "ProfilerAction", "ProfilerActivity", "kineto_available", "profile",
    "record_function", "schedule", "tensorboard_trace_handler",
]  # fmt: skip
