"""What runs when: lanes of spans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from plait.plot._draw import (
    OTHER,
    Axis,
    Canvas,
    Legend,
    Picture,
    coloured,
    entries,
    number,
    seconds_unit,
    size,
    width_of,
)
from plait.profiler import Event, profile

PASSES = {"F": ("forward", 0), "B": ("backward", 2), "I": ("input gradient", 3), "W": ("weight gradient", 4)}
WAITS = "waits for others"
NARROW = 0.5  # pixels; spans that are narrower are drawn together


@dataclass
class Piece:
    """What runs from a start to an end; the pieces with the same name have the same colour."""

    start: float
    end: float
    name: str
    label: str
    text: str
    style: str = ""


@dataclass
class Panel:
    """Lanes, and the one scale of their times: seconds, or a unit that nobody named."""

    title: str
    unit: str
    lanes: dict[str, list[Piece]]
    colours: dict[str, int] | None = None
    notes: list[str] = field(default_factory=list)


def _events(events: Sequence[Event]) -> Panel:
    """Returns the lanes of what a profile collected: ranges of the host's threads first, then streams of devices."""
    ranks = len({e.rank for e in events if not e.is_range}) > 1
    streams: dict[tuple[int, str], set[int]] = {}
    for e in events:
        streams.setdefault((e.rank, e.device), set()).add(e.stream)

    def lane(e: Event) -> str:
        among = sorted(streams[e.rank, e.device])
        if e.is_range:
            return "host" if len(among) == 1 else f"host, thread {among.index(e.stream)}"
        stream = f", stream {e.stream}" if len(among) > 1 else ""
        return f"{f'rank {e.rank}, ' if ranks else ''}{e.device}{stream}"

    begin = min((e.start for e in events), default=0.0)
    lanes: dict[str, list[Piece]] = {}
    for e in sorted(events, key=lambda e: (not e.is_range, e.rank, e.device, e.stream, e.start, -e.duration)):
        start = (e.start - begin) * 1e-6
        text = e.name if e.shapes is None else f"{e.name} of {', '.join(str(list(s)) for s in e.shapes)}"
        lanes.setdefault(lane(e), []).append(Piece(start, start + e.duration * 1e-6, e.name, e.name, text))
    return Panel("Operations of each device", "s", lanes)


def _passes(spans: Sequence[Any], title: str, unit: str) -> Panel:
    """Returns the lanes of a pipeline's passes, one for each device."""
    lanes: dict[str, list[Piece]] = {f"device {d}": [] for d in range(max((s.device for s in spans), default=-1) + 1)}
    first: dict[int, int] = {}
    for s in spans:
        first[s.device] = min(s.stage, first.get(s.device, s.stage))
    for s in spans:
        name = PASSES[s.kind][0]
        text = f"{s.stage}{s.kind}{s.micro}: {name} of micro-batch {s.micro} in stage {s.stage}"
        style = " later" if s.stage > first[s.device] else ""
        lanes[f"device {s.device}"].append(Piece(s.start, s.end, name, str(s.micro), text, style))
    named = {PASSES[k][0]: PASSES[k][1] for k in PASSES if any(s.kind == k for s in spans)}
    return Panel(title, unit, lanes, named)


def _calls(record: Any) -> Panel:
    """Returns the lanes of a flight record: of each rank, and each group if there are several, the calls."""
    found = record.to_dict()
    several = len({o["group_id"] for o in found["operations"]}) > 1
    known = [t for o in found["operations"] for t in (o["called_ns"], o["started_ns"]) if t]
    begin, now = min(known, default=0), found["time_ns"]
    lanes: dict[str, list[Piece]] = {}
    unknown = 0
    for o in sorted(found["operations"], key=lambda o: (o["rank"], o["group"], o["seq"])):
        name = f"rank {o['rank']}" + (f", {o['group']}" if several else "")
        lane = lanes.setdefault(name, [])
        called, started, ended = o["called_ns"], o["started_ns"], o["ended_ns"]
        if not (called or started):
            unknown += 1
            continue
        what = f"{o['name']} #{o['seq']} of {o['group']}, {o['bytes']} B, {o['state']}"
        if o.get("error"):
            what += f": {o['error']}"
        if called:
            until = started or ended or now
            lane.append(Piece((called - begin) / 1e9, (until - begin) / 1e9, WAITS, "", f"{what}: waits", " faint"))
        if started:
            span = (started - begin) / 1e9, ((ended or now) - begin) / 1e9
            lane.append(Piece(*span, o["name"], o["name"], what))
    notes = [f"{unknown} calls whose times are not known are not drawn"] if unknown else []
    return Panel("Collectives and messages of each rank", "s", lanes, None, notes)


def _panel(what: Any, unit: str) -> Panel:
    from plait.distributed.flight_records import FlightRecord
    from plait.distributed.pipelining import Schedule, Span, Timeline

    if isinstance(what, Schedule):
        what = what.simulate()
    if isinstance(what, Timeline):
        after = f" {what._unit}" if what._unit else ""
        title = f"{what.name}: {number(what.time)}{after}, bubble {100 * what.bubble:.1f} %"
        return _passes(what.spans, title, what._unit)
    if isinstance(what, FlightRecord):
        return _calls(what)
    if isinstance(what, profile):
        return _events(what.events())
    if isinstance(what, Iterable) and not isinstance(what, str | Mapping):
        rows = list(what)
        if all(isinstance(r, Event) for r in rows):
            return _events(rows)
        if all(isinstance(r, Span) for r in rows):
            return _passes(rows, "Passes of each device", unit)
    raise TypeError(
        "timeline: want a profile or its events, a Schedule, a Timeline or its spans, or a flight record, got "
        f"{type(what).__name__}"
    )


def _levels(lane: list[Piece], near: float) -> list[list[Piece]]:
    """Returns a lane's pieces in rows in which none overlaps another by more than `near`: ranges, and those within."""
    rows: list[list[Piece]] = []
    ends: list[float] = []
    for p in sorted(lane, key=lambda p: (p.start, -p.end)):
        row = next((i for i, end in enumerate(ends) if end <= p.start + near), len(rows))
        if row == len(rows):
            rows.append([])
            ends.append(0.0)
        rows[row].append(p)
        ends[row] = p.end
    return rows


def _joined(row: list[Piece], scale: float, colours: dict[str, int]) -> Iterator[tuple[Piece, int]]:
    """Yields the pieces to draw and how many each stands for: narrow ones of the same look and place are one."""
    narrow: dict[tuple[int, str], tuple[int, list[Piece]]] = {}
    for p in row:
        if (p.end - p.start) * scale >= NARROW:
            yield p, 1
            continue
        column, key = int(p.start * scale / NARROW), (colours.get(p.name, OTHER), p.style)
        held = narrow.get(key)
        if held and held[0] == column:
            held[1].append(p)
            continue
        if held:
            yield held[1][0], len(held[1])
        narrow[key] = column, [p]
    for _, pieces in narrow.values():
        yield pieces[0], len(pieces)


def timeline(*runs: Any, title: str = "", unit: str = "", width: int = 900) -> Picture:
    """Draws what runs when: a lane for each device, stream or rank, and its operations, passes or calls in time.

    What is drawn can be a `profiler.profile`, or events of one; a `pipelining.Schedule`, as `simulate` predicts it; a
    `Timeline`, or spans of one; or the record of `distributed.flight_recorder`, in which what a rank waits for others
    is pale. A tooltip has the times of each piece. Pieces narrower than half a pixel are drawn together.

    Args:
        runs: what to draw, one below the other with one scale, or a dict of them by title
        title: the title of the whole picture
        unit: "s" if the times of `pipelining.Span`s are in seconds; they have no unit otherwise
        width: in pixels

    Raises:
        TypeError: if there is something else than these.
        ValueError: if there is nothing to draw, or some times are seconds and some have no unit.
    """
    size("timeline", width)
    if unit not in ("", "s"):
        raise ValueError(f'timeline: want unit "s" or "", got {unit!r}')
    panels = []
    for run in runs:
        if isinstance(run, Mapping):
            for name, what in run.items():
                panels.append(_panel(what, unit))
                panels[-1].title = str(name)
        else:
            panels.append(_panel(run, unit))
    if not panels:
        raise ValueError("timeline: want at least one profile, schedule, timeline or flight record")
    if len({p.unit for p in panels if p.lanes}) > 1:
        raise ValueError("timeline: want times in one unit, got some in seconds and some, of schedules, without a unit")

    totals: dict[str, float] = {}
    fixed: dict[str, int] = {}
    for panel in panels:
        if panel.colours is None:
            for p in (p for lane in panel.lanes.values() for p in lane if p.name != WAITS):
                totals[p.name] = totals.get(p.name, 0.0) + p.end - p.start
        else:
            fixed |= panel.colours
    colours = {**fixed, **coloured(totals, fixed.values())}
    waits = any(p.name == WAITS for panel in panels for lane in panel.lanes.values() for p in lane)
    longest = max((p.end for panel in panels for lane in panel.lanes.values() for p in lane), default=0.0)
    one, name = seconds_unit(longest) if panels[0].unit == "s" else (1.0, "")

    canvas = Canvas(width, title)
    legend = entries(colours) + ([(WAITS, OTHER)] if waits else [])
    if legend:
        canvas.legend(Legend(legend, frozenset({WAITS})))
    left = 24 + max((width_of(lane) for panel in panels for lane in panel.lanes), default=40)
    along = Axis(0, longest / one or 1.0, left, width - 32.0)
    scale = (along.end - along.start) / (longest or 1.0)  # pixels of a time
    joined, y = 0, canvas.top
    for panel in panels:
        y += 20
        canvas.text(14, y, panel.title, extra=' font-size="13" font-weight="600"')
        y += 8
        for lane, pieces in panel.lanes.items():
            rows = _levels(pieces, NARROW / scale) or [[]]
            high = 20 if len(rows) == 1 else 15
            canvas.text(14, y + 14, lane, "small")
            for row in rows:
                canvas.bar(left, y, along.end - left, high, "idle")
                for p, count in _joined(row, scale, colours):
                    x = along(p.start / one)
                    wide = max((p.end - p.start) * scale, NARROW)
                    joined += count if count > 1 else 0
                    times = f"{number(p.start / one)} to {number(p.end / one)}{f' {name}' if name else ''}"
                    at = f"at {number(p.start / one)} {name}"
                    text = f"{p.text}, {times}" if count == 1 else f"{count} pieces, first {p.name}, {at}"
                    edge = " piece" if wide > 3 else ""
                    kind = f"bar{edge} k{colours.get(p.name, OTHER)}{p.style}"
                    canvas.bar(x, y, wide, high, kind, text, p.label if count == 1 else "")
                y += high + 1
            y += 3
        if not panel.lanes:
            canvas.text(left, y + 14, "nothing was collected", "small")
            y += 24
        y += 4
    canvas.across(along, y, y + 4, f"time ({name})" if name else "time", 9)
    notes = [note for panel in panels for note in panel.notes]
    if joined:
        notes.append(f"{joined} pieces narrower than half a pixel are drawn together")
    canvas.notes(notes)
    return canvas.picture()
