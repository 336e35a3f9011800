"""Curves of numbers that a run measures in its steps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from plait.plot._draw import OTHER, Axis, Canvas, Legend, Picture, margin, number, size, thinned

Series = list[tuple[float, float]]


def _series(values: Any, name: str) -> Series:
    """Returns the steps and values of a run."""
    where = f" of {name!r}" if name else ""
    if hasattr(values, "tolist"):  # a tensor or an array
        if len(values.shape) != 1:
            raise ValueError(f"losses: want a row of numbers{where}, got the shape {list(values.shape)}")
        values = values.tolist()
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise TypeError(f"losses: want a row of numbers{where}, or {{name: numbers}}, got {type(values).__name__}")
    found: Series = []
    for i, value in enumerate(values):
        pair = isinstance(value, tuple | list) and len(value) == 2
        step, loss = value if pair else (i, value)
        try:
            if isinstance(step, str) or isinstance(loss, str):
                raise TypeError
            point = float(step), float(loss)
        except (TypeError, ValueError, OverflowError, RuntimeError) as e:
            raise TypeError(f"losses: want numbers{where}, or pairs of step and number, got {value!r} at {i}") from e
        if not math.isfinite(point[0]):
            raise ValueError(f"losses: want finite steps{where}, got {step!r} at {i}")
        if found and point[0] < found[-1][0]:
            raise ValueError(f"losses: want steps{where} in their order, got {step!r} after {number(found[-1][0])}")
        found.append(point)
    return found


def _smoothed(series: Series, smooth: float) -> Series:
    """Returns averages in which a value weighs `smooth` times as much as the next; of what is not finite, itself."""
    total = weight = 0.0
    out = []
    for x, v in series:
        if math.isfinite(v):
            total, weight = smooth * total + (1 - smooth) * v, smooth * weight + (1 - smooth)
            out.append((x, total / weight))
        else:
            out.append((x, v))
    return out


def _notes(name: str, series: Series, log: bool, x: str) -> list[str]:
    """Returns what is said of values that a curve cannot show."""
    of = f"{name}: " if name else ""
    found = []
    broken = [at for at, v in series if not math.isfinite(v)]
    low = [at for at, v in series if log and math.isfinite(v) and v <= 0]
    for steps, what in ((broken, "NaN or infinite"), (low, "not above 0, and not on a logarithmic scale")):
        if steps:
            are = "is" if len(steps) == 1 else "are"
            first = f"{'' if len(steps) == 1 else 'the first '}at {x} {steps[0]:.15g}"
            found.append(f"{of}{len(steps)} of {len(series)} values {are} {what}, {first}")
    return found


def losses(
    values: Any,
    *,
    smooth: float = 0.0,
    log: bool = False,
    title: str = "Loss",
    x: str = "step",
    y: str = "loss",
    width: int = 900,
    height: int = 380,
) -> Picture:
    """Draws losses, or other numbers, against the steps of a run.

    Values that are NaN or infinite are gaps, marked on the axis and counted below it. Of very many values those are
    drawn that a pixel can show, peaks among them.

    Args:
        values: the numbers of a run, a list, a tensor or an array; steps count from 0, or are given as pairs (step,
            number). For several runs a dict of them by name
        smooth: from 0, for none, to below 1: how much a value weighs in the average, compared with the next one. The
            values themselves are drawn faintly behind
        log: whether the scale of the values is logarithmic; values that are not above 0 are gaps
        title: the picture's title
        x: what steps are
        y: what the numbers are, with their unit
        width: in pixels
        height: of the area of the curves, in pixels

    Raises:
        TypeError: if there is something else than numbers.
        ValueError: if steps are not in order, or `smooth` is not in its range.
    """
    size("losses", width, height)
    if not isinstance(smooth, int | float) or not 0 <= smooth < 1:
        raise ValueError(f"losses: want smooth from 0 to below 1, got {smooth!r}")
    given = values if isinstance(values, Mapping) else {"": values}
    runs = {str(name): _series(v, str(name)) for name, v in given.items()}
    lines = {name: _smoothed(s, smooth) if smooth else s for name, s in runs.items()}

    def shown(v: float) -> bool:
        return math.isfinite(v) and (v > 0 or not log)

    canvas = Canvas(width, title)
    colours = {name: i % OTHER for i, name in enumerate(runs)}
    dashes = {name: i // OTHER % 3 for i, name in enumerate(runs)}  # more runs than colours
    if any(runs):
        canvas.legend(Legend(list(colours.items()), dashes=dashes))
    drawn = [v for s in runs.values() for _, v in s if shown(v)]
    steps = [at for s in runs.values() for at, _ in s]
    top = canvas.top + 4
    bottom = top + height
    up = Axis(min(drawn, default=1 if log else 0), max(drawn, default=10 if log else 1), bottom - 4, top + 4, log)
    left = margin(text for _, text in up.ticks(6))
    right = width - 36.0
    along = Axis(min(steps, default=0), max(steps, default=1), left + 4, right - 4)
    canvas.upright(up, right, f"{y}, logarithmic" if log else y, left)
    canvas.across(along, top, bottom, x)
    notes = [] if drawn else [f"no values{' that can be drawn' if steps else ''}"]
    for name, series in runs.items():
        kind = f"k{colours[name]}"
        for line, style in ((series, "line raw"), (lines[name], "line")) if smooth else ((series, "line"),):
            points = [(at, v if shown(v) else None) for at, v in line]
            for piece in thinned(points, along):
                places = [f"{along(line[i][0]):.1f} {up(line[i][1]):.1f}" for i in piece]
                if len(piece) > 1:
                    canvas.path(f"M{'L'.join(places)}", f"{style} {kind} dash{dashes[name]}")
                else:
                    cx, cy = places[0].split()
                    canvas.body.append(f'<circle class="dot {kind}" cx="{cx}" cy="{cy}" r="2.4"/>')
        gaps = sorted({int(along(at)) for at, v in series if not shown(v)})
        if gaps:
            canvas.path("".join(f"M{at} {bottom:.1f}v-8" for at in gaps), f"gap {kind}")
        notes += _notes(name, series, log, x)
    if smooth and drawn:
        notes.append(f"smoothed by {smooth:g}; the values themselves are faint")
    canvas.notes(notes)
    return canvas.picture()
