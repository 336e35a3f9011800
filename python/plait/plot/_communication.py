"""Bytes that ranks, or host and device, hand to each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plait.plot._draw import (
    Axis,
    Canvas,
    Legend,
    Picture,
    bytes_unit,
    coloured,
    entries,
    margin,
    number,
    seconds_unit,
    size,
    width_of,
)

BINS = 60
WAYS = ("operation", "rank", "time")


def _text(count: float) -> str:
    one, unit = bytes_unit(count)
    return f"{number(count / one)} {unit}"


def _calls(record: Any) -> list[dict[str, Any]]:
    from plait.distributed.flight_records import FlightRecord

    if not isinstance(record, FlightRecord):
        raise TypeError(
            "communication: want the record of flight_recorder, or a dict of bytes by name, got "
            f"{type(record).__name__}"
        )
    return record.operations


def _counters(given: Mapping[Any, Any]) -> dict[str, float]:
    """Returns the bytes by name; where some names end in ".bytes", those are bytes and others are not."""
    mixed = {n: v for n, v in given.items() if str(n).endswith(".bytes")}
    given = {str(n).removesuffix(".bytes"): v for n, v in mixed.items()} or given
    for name, count in given.items():
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise TypeError(f"communication: want a whole number of bytes for {name!r}, got {count!r}")
    return {str(name): float(count) for name, count in given.items()}


def _bars(canvas: Canvas, rows: dict[str, dict[str, float]], colours: dict[str, int], ends: dict[str, str]) -> None:
    """Draws a horizontal bar for each row: its parts by name, and a text at its end."""
    most = max((sum(parts.values()) for parts in rows.values()), default=0.0)
    one, unit = bytes_unit(most)
    left = 26 + max((width_of(name) for name in rows), default=60)
    room = 14 + max((width_of(text) for text in ends.values()), default=0)
    along = Axis(0, most / one or 1.0, left, max(left + 40, canvas.width - 14 - room))
    top, high = canvas.top + 4, 20
    bottom = top + (high + 6) * max(1, len(rows))
    canvas.across(along, top, bottom, f"bytes ({unit})")
    for i, (row, parts) in enumerate(rows.items()):
        y, x = top + i * (high + 6) + 3, along.start
        canvas.text(14, y + 14, row, "small")
        for name, count in parts.items():
            end = x + along(count / one) - along.start
            canvas.bar(x, y, end - x, high, f"bar k{colours[name]}", f"{row}: {name}, {_text(count)}")
            x = end
        canvas.text(x + 6, y + 14, ends[row], "small")
    if not rows:
        canvas.text((along.start + along.end) / 2, top + 18, "no calls", "small", ' text-anchor="middle"')


def _moments(canvas: Canvas, calls: list[dict[str, Any]], colours: dict[str, int], height: int) -> None:
    """Draws columns of the bytes of calls that start in equal parts of the time."""
    when = [o["started_ns"] or o["called_ns"] for o in calls]
    begin, end = min(when, default=0), max(when, default=0)
    part = max(1, -(-(end - begin + 1) // BINS))
    sums: list[dict[str, float]] = [{} for _ in range(BINS)]
    for o, at in zip(calls, when, strict=True):
        parts = sums[(at - begin) // part]
        parts[o["name"]] = parts.get(o["name"], 0.0) + o["bytes"]
    most = max(sum(parts.values()) for parts in sums)
    one, unit = bytes_unit(most)
    second, name = seconds_unit(part * BINS / 1e9)
    top, bottom = canvas.top + 4, canvas.top + 4 + height
    up = Axis(0, most / one or 1.0, bottom, top + 8)
    left = margin(text for _, text in up.ticks(6))
    along = Axis(0, part * BINS / 1e9 / second, left, canvas.width - 24.0)
    canvas.upright(up, along.end, f"bytes ({unit}) in {number(part / 1e9 / second, 3)} {name}", left)
    canvas.across(along, top, bottom, f"time ({name})")
    wide = (along.end - left) / BINS
    for i, parts in enumerate(sums):
        y = bottom
        for operation, count in parts.items():
            above = y - (bottom - up(count / one))
            canvas.bar(left + i * wide, above, wide - 1, y - above, f"bar k{colours[operation]}",
                       f"{operation}, {_text(count)}")  # fmt: skip
            y = above
    if not calls:
        canvas.text((left + along.end) / 2, (top + bottom) / 2, "no calls", "small", ' text-anchor="middle"')


def communication(
    record: Any, *, by: str = "operation", title: str = "Communication", width: int = 900, height: int = 260
) -> Picture:
    """Draws how many bytes were handed over: by operation, by rank, or over time.

    The bytes are those of the tensors that ranks give to collectives and messages, all ranks together: what they cost
    on a wire depends on the algorithm. A flight record has the last calls of each rank in each group only.

    Args:
        record: the record of `distributed.flight_recorder`; or a dict of bytes by name, or what
            `plait.cuda.transfer_stats` returned, of which those are drawn that are bytes
        by: "operation", "rank", or "time", at which calls start
        title: the picture's title
        width: in pixels
        height: of the area with `by="time"`, in pixels

    Raises:
        TypeError: if there is something else than these.
        ValueError: if `by` is something else, or a dict is to be drawn by rank or time, which it does not have.
    """
    size("communication", width, height)
    rows: dict[str, dict[str, float]]
    if by not in WAYS:
        raise ValueError(f"communication: want by to be one of {', '.join(WAYS)}, got {by!r}")
    if isinstance(record, Mapping):
        if by != "operation":
            raise ValueError(f"communication: a dict of bytes has no {by}; want a flight record for by={by!r}")
        counts = _counters(record)
        canvas = Canvas(width, title)
        rows = {name: {name: count} for name, count in counts.items()}
        _bars(canvas, rows, dict.fromkeys(counts, 0), {name: _text(count) for name, count in counts.items()})
        return canvas.picture()

    calls = _calls(record)
    totals: dict[str, float] = {}
    for o in calls:
        totals[o["name"]] = totals.get(o["name"], 0.0) + o["bytes"]
    colours = coloured(totals)
    timed = [o for o in calls if o["started_ns"] or o["called_ns"]]
    canvas = Canvas(width, title)
    if by != "operation" and colours:
        canvas.legend(Legend(entries(colours)))
    if by == "time":
        _moments(canvas, timed, colours, height)
    elif by == "rank":
        rows = {f"rank {r}": {} for r in sorted({o["rank"] for o in calls})}
        for o in calls:
            parts = rows[f"rank {o['rank']}"]
            parts[o["name"]] = parts.get(o["name"], 0.0) + o["bytes"]
        _bars(canvas, rows, colours, {row: _text(sum(parts.values())) for row, parts in rows.items()})
    else:
        numbers = {name: sum(o["name"] == name for o in calls) for name in totals}
        ends = {n: f"{_text(totals[n])} in {c} call{'s' if c != 1 else ''}" for n, c in numbers.items()}
        _bars(canvas, {name: {name: totals[name]} for name in colours}, colours, ends)
    notes = []
    if by == "time" and len(timed) < len(calls):
        notes.append(f"{len(calls) - len(timed)} calls whose times are not known are not drawn")
    failed = sum(o["state"] == "failed" for o in calls)
    if failed:
        notes.append(f"{failed} of {len(calls)} calls failed; their bytes are in")
    canvas.notes(notes)
    return canvas.picture()
