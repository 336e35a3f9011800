"""Schedules as data: lists of actions that can be validated, simulated, drawn and executed."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

from plait import _core
from plait._engine.runtime import address, check
from plait.plot import Picture, timeline

__all__ = ["Picture", "Schedule", "Span", "Timeline", "schedule_names"]

KINDS = ("F", "B", "I", "W")


class Span(NamedTuple):
    """A pass on a device and its times. Kinds are F (forward), B (backward), I and W (gradients of inputs, weights)."""

    device: int
    kind: str
    stage: int
    micro: int
    start: float
    end: float


class Timeline(_core.ObjectOwner):
    """The times of a schedule's passes, simulated by `Schedule.simulate` or measured. A notebook shows it as a picture.

    Attributes:
        time: the end of the last pass, in seconds if it was measured, otherwise in the unit of the costs
        bubble: the fraction of the devices' time in which they are idle
        live: by device, the peak number of activations; one micro-batch in one stage counts as one
        live_stage: the same by stage
        peak: by device, the peak bytes of activations, if the costs include them
    """

    def __init__(self, handle: int, unit: str = "") -> None:
        self._h, self._unit = handle, unit
        sizes = array("q", bytes(24))
        check(_core.bind_TimelineSizes(handle, address(sizes)))
        self._count, devices, stages = sizes
        totals, live = array("d", bytes(8 * (2 + devices))), array("q", bytes(8 * (devices + stages)))
        check(_core.bind_TimelineTotals(handle, address(totals), address(live)))
        self.time, self.bubble, self.peak = totals[0], totals[1], list(totals[2:])
        self.live, self.live_stage = list(live[:devices]), list(live[devices:])

    @property
    def name(self) -> str:
        """The schedule's name."""
        return _core.bind_TimelineName(self._h)

    @property
    def spans(self) -> list[Span]:
        """The passes of all devices, device by device."""
        what, when = array("q", bytes(32 * self._count)), array("d", bytes(16 * self._count))
        check(_core.bind_TimelineSpans(self._h, address(what), address(when)))
        rows = zip(*(what[i::4] for i in range(4)), when[::2], when[1::2], strict=True)
        return [Span(d, KINDS[k], s, m, start, end) for d, k, s, m, start, end in rows]

    def costs(self) -> dict[str, list[float]]:
        """Returns the stages' median times over the micro-batches, as arguments for `Schedule.simulate`."""
        n = len(self.live_stage)
        out = array("d", bytes(24 * n))
        check(_core.bind_TimelineCosts(self._h, address(out)))
        return {"forward": list(out[:n]), "input": list(out[n : 2 * n]), "weight": list(out[2 * n :])}

    def plot(self, *others: Timeline) -> Picture:
        """Draws this timeline, and others below it, with the same time scale."""
        return timeline(self, *others)

    def _repr_svg_(self) -> str:
        return self.plot().svg

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("Timeline: it belongs to the engine, and cannot be copied or saved")

    def __repr__(self) -> str:
        return f"<Timeline {self.name}: time {self.time:.4g}, bubble {100 * self.bubble:.1f} %>"


class Schedule(_core.ObjectOwner):
    """The order of the passes on each device, such as `Schedule("1f1b", devices=4, micro_batches=8)`.

    `str` returns it as text, with one line of actions for each device, such as `0F0,0F1,0B0`: stage, kind and
    micro-batch. `Schedule.parse` reads it. The kinds are F (forward) and B (backward), which may be split into I and W,
    the gradients of inputs and of weights.

    Args:
        name: gpipe, 1f1b, interleaved, looped-bfs, zb-h1 or zb-v
        devices: the number of devices
        micro_batches: the number of micro-batches
        stages_per_device: for schedules that allow several; 2 by default, 1 for zb-h1

    Raises:
        ValueError: for an unknown name, or a number of stages that the schedule does not allow.
    """

    def __init__(
        self,
        name: str,
        devices: int = 1,
        micro_batches: int = 1,
        stages_per_device: int | None = None,
        *,
        _handle: int | None = None,
    ) -> None:
        if _handle is None:
            _handle = check(_core.bind_PipelineSchedule(str(name), devices, micro_batches, stages_per_device or 0))
        self._h = _handle
        sizes = array("q", bytes(24))
        check(_core.bind_PipelineSizes(self._h, address(sizes)))
        self.stages, self.micro_batches, self.devices = sizes

    @staticmethod
    def parse(text: str) -> Schedule:
        """Reads a schedule from text, where empty actions are bubbles. Raises ValueError unless it is valid."""
        s = Schedule("", _handle=check(_core.bind_PipelineParse(text)))
        s.validate()
        return s

    def validate(self) -> None:
        """Raises ValueError unless every pass is there once and the order does not deadlock."""
        check(_core.bind_PipelineValidate(self._h))

    @property
    def splits(self) -> bool:
        """Whether backward is split into the gradients of inputs and of weights."""
        return "I" in str(self).partition("\n")[2]

    @property
    def placement(self) -> list[int]:
        """The index of the device of each stage."""
        out = array("q", bytes(8 * self.stages))
        check(_core.bind_PipelineDevices(self._h, address(out)))
        return list(out)

    def first(self, micro_batches: int) -> Schedule:
        """Returns the schedule for the first micro-batches only."""
        return Schedule("", _handle=check(_core.bind_PipelineFirst(self._h, micro_batches)))

    def with_transfers(self) -> Schedule:
        """Returns the schedule with its sends and receives, in an order that does not deadlock if sends block."""
        return Schedule("", _handle=check(_core.bind_PipelineTransfers(self._h)))

    def _costs(
        self,
        costs: dict[str, Sequence[float] | float | None],
        overlap: bool = True,
        ties: Sequence[tuple[Sequence[int], float]] = (),
    ) -> array[float]:
        if overlap and not ties and all(v is None for v in costs.values()):
            return array("d")
        if costs["rest"] is None:
            costs["rest"] = costs["saved"]
        out = array("d")
        for name, value in costs.items():
            n = self.stages - 1 if name == "link" else self.stages
            given: Any = (0.0 if name == "link" else 1.0) if value is None else value
            values = [float(given)] * n if isinstance(given, int | float) else [float(v) for v in given]
            if len(values) != n:
                raise ValueError(f"simulate: want {n} numbers in {name}, got {len(values)}")
            out.extend(values)
        out.append(not overlap)
        for stages, time in ties:
            out.extend((float(time), len(stages), *stages))
        return out

    def simulate(
        self,
        forward: Sequence[float] | float | None = None,
        input: Sequence[float] | float | None = None,
        weight: Sequence[float] | float | None = None,
        link: Sequence[float] | float | None = None,
        saved: Sequence[float] | float | None = None,
        rest: Sequence[float] | float | None = None,
        overlap: bool = True,
        ties: Sequence[tuple[Sequence[int], float]] = (),
    ) -> Timeline:
        """Predicts time, bubble and memory. Costs are lists by stage, or one number for all stages; 1 by default.

        Args:
            forward: the time of a forward pass
            input: the time of the gradient of a stage's input
            weight: the time of the gradients of a stage's weights; a full backward pass takes the sum of both
            link: the time of a transfer between a stage and the next; 0 by default
            saved: the bytes of a micro-batch's activations in a stage
            rest: the bytes of them that the gradients of the weights need; all by default
            overlap: whether devices compute during transfers; if not, as on GPUs with one queue, a transfer takes half
                of its time from the sending device and half from the receiving device
            ties: for each parameter that stages on several devices share, the stages and the time of the transfer of
                its gradient to the first stage's device, at the end of a step

        Raises:
            ValueError: if the number of costs is wrong, a cost is negative, or there is no such stage.
        """
        costs = self._costs(
            {"forward": forward, "input": input, "weight": weight, "saved": saved, "rest": rest, "link": link},
            overlap,
            ties,
        )
        return Timeline(check(_core.bind_PipelineSimulate(self._h, address(costs), len(costs))))

    def check_memory(
        self, limits: Sequence[float] | float, saved: Sequence[float] | float | None = None, rest: Any = None
    ) -> None:
        """Raises ValueError if a device's activations exceed its limit. The error names the action and the peak.

        Args:
            limits: by device, or one number for all; in activations, or in bytes if `saved` is given
            saved: the bytes of a micro-batch's activations in a stage
            rest: the bytes of them that the gradients of the weights need
        """
        costs = self._costs(
            {"forward": None, "input": None, "weight": None, "saved": saved, "rest": rest, "link": None}
        )
        most = array("d", [float(limits)] * self.devices if isinstance(limits, int | float) else limits)
        check(_core.bind_PipelineCheckMemory(self._h, address(costs), len(costs), address(most), len(most)))

    def plot(self, **costs: Any) -> Picture:
        """Draws the result of `simulate`."""
        return self.simulate(**costs).plot()

    def _repr_svg_(self) -> str:
        return self.plot().svg

    def __str__(self) -> str:
        return _core.bind_PipelineText(self._h)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Schedule.parse, (str(self),)

    @property
    def name(self) -> str:
        """The schedule's name."""
        return str(self).partition("\n")[0][2:]

    def __repr__(self) -> str:
        size = f"{self.stages} stages on {self.devices} devices, {self.micro_batches} micro-batches"
        return f"<Schedule {self.name}: {size}>"


def schedule_names() -> list[str]:
    """Returns the names that `Schedule` accepts."""
    return _core.bind_PipelineNames().split()


def placement(name: str, devices: int, stages_per_device: int | None) -> list[int]:
    """Returns the device of each stage in a schedule with the given name."""
    chunks = check(_core.bind_PipelineChunks(name, stages_per_device or 0))
    out = array("q", bytes(8 * devices * chunks))
    check(_core.bind_PipelinePlace(name, devices, chunks, address(out)))
    return list(out)
