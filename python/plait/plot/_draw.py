"""The parts that all drawings share: pictures, colours, axes, legends and notes."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape as _escape

# Of each pair the colour on a white page and on a dark one. Any two differ, for eyes without red, green or blue too,
# and each stands out from its page. The last is for what has no colour of its own.
COLOURS = [
    ("#006ef4", "#33baff"),
    ("#de3a00", "#d47c19"),
    ("#1e6f4c", "#398a55"),
    ("#be42aa", "#b066ba"),
    ("#a09343", "#f0e442"),
    ("#444260", "#6855f3"),
    ("#80868e", "#8b949e"),
]
OTHER = len(COLOURS) - 1
BACK = ("#ffffff", "#0d1117")
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # characters that XML cannot hold

# The class keeps the rules to this picture where a page holds the text of several.
_RULES = """
{p} .back {{ fill: {back} }} {p} .idle {{ fill: {idle} }} {p} .grid {{ stroke: {grid} }} {p} text {{ fill: {ink} }}
{p} .small {{ fill: {small} }} {p} .inside {{ fill: {back} }}
{p} .piece {{ stroke: {back}; stroke-width: 0.6 }} {p} .limit {{ stroke: {small}; stroke-dasharray: 5 4 }}
{colours}"""
_SHAPES = """
{p} .bar, {p} .dot {{ fill: currentColor }} {p} .later {{ fill-opacity: 0.8 }} {p} .faint {{ fill-opacity: 0.3 }}
{p} .line {{ fill: none; stroke: currentColor; stroke-width: 1.6; stroke-linejoin: round; stroke-linecap: round }}
{p} .raw {{ stroke-opacity: 0.35; stroke-width: 1 }} {p} .gap {{ stroke: currentColor; stroke-width: 1 }}
{p} .dash1 {{ stroke-dasharray: 7 4 }} {p} .dash2 {{ stroke-dasharray: 2 4 }}"""


def _style() -> str:
    def rules(shade: int) -> str:
        idle, grid, ink, small = (
            ("#eceff3", "#d0d7de", "#1f2328", "#57606a"),
            ("#21262d", "#30363d", "#e6edf3", "#9198a1"),
        )[shade]
        colours = " ".join(f".plait-plot .k{i} {{ color: {pair[shade]} }}" for i, pair in enumerate(COLOURS))
        return _RULES.format(
            p=".plait-plot", back=BACK[shade], idle=idle, grid=grid, ink=ink, small=small, colours=colours
        )

    return f"{rules(0)}{_SHAPES.format(p='.plait-plot')}\n@media (prefers-color-scheme: dark) {{{rules(1)} }}\n"


class Picture:
    """An SVG image, for light and dark pages. A notebook shows it; `str` returns its text, as `svg` is.

    Args:
        svg: the text
    """

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the image to a file.

        Raises:
            OSError: if the file cannot be written.
        """
        with open(path, "w", encoding="utf-8") as f:
            f.write(self.svg)

    def _repr_svg_(self) -> str:
        return self.svg

    def __str__(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<Picture: {len(self.svg)} characters of SVG>"


def escape(text: object) -> str:
    """Returns text that XML can hold: its marks escaped, and characters that it forbids replaced."""
    return _escape(_FORBIDDEN.sub("\ufffd", str(text)))


def number(value: float, digits: int = 4) -> str:
    """Returns a number as text."""
    return f"{value:.{digits}g}"


def bytes_unit(most: float) -> tuple[float, str]:
    """Returns the unit in which a number of bytes reads well, and its bytes."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if most >= size:
            return size, unit
    return 1, "B"


def seconds_unit(longest: float) -> tuple[float, str]:
    """Returns the unit in which a time in seconds reads well, and its seconds."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if longest >= size:
            return size, unit
    return 1e-6, "µs"


@dataclass
class Axis:
    """A range of values and the pixels from `start` to `end` that it stands for."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __post_init__(self) -> None:
        if self.low == self.high:  # one value lies in the middle
            room = abs(self.low) / 2 or (self.low if self.log else 0.5)
            self.low = max(self.low - room, -sys.float_info.max) or self.low
            self.high = min(self.high + room, sys.float_info.max)
        self._from, self._to = self._scaled(self.low), self._scaled(self.high)

    def _scaled(self, value: float) -> float:
        return math.log10(value) if self.log else value / 2  # half: the largest floats differ by no infinity

    def __call__(self, value: float) -> float:
        """Returns the pixel of a value."""
        wide = self._to - self._from
        share = (
            (self._scaled(value) - self._from) / wide if wide else 0.5
        )  # values may differ, and not their logarithms
        return self.start + share * (self.end - self.start)

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """Returns round values of the range, and how they are written: about `most` of them."""
        if self.log:
            first, last = math.ceil(self._from - 1e-9), math.floor(self._to + 1e-9)
            if last > first:
                every = -(-(last - first + 1) // most)
                return [(10.0**e, number(10.0**e)) for e in range(first, last + 1, every)]
        step = self._step(most)
        if not step:
            return [(v, number(v)) for v in (self.low, self.high)]
        places = range(math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9) + 1)
        largest = max(abs(self.low), abs(self.high)) / step
        if step >= 1 and largest * step < 1e7:
            return [(i * step, f"{i * step:,.0f}") for i in places if not self.log or i > 0]
        digits = 2 + math.floor(math.log10(max(1, largest)))
        return [(i * step, number(i * step, digits)) for i in places if not self.log or i > 0]

    def _step(self, most: int) -> float:
        """Returns the distance of ticks: 1, 2 or 5 times a power of ten; 0 where floats have none."""
        rough = 2 * (self.high / 2 - self.low / 2) / max(1, most)
        if not 1e-300 < rough < 1e300 or rough < 1e-15 * max(abs(self.low), abs(self.high)):
            return 0.0
        power = 10.0 ** math.floor(math.log10(rough))
        return next(f * power for f in (1, 2, 5, 10) if f * power >= rough * (1 - 1e-9))


def width_of(text: str, size: float = 12) -> float:
    """Returns about how many pixels wide a text is."""
    return 0.6 * size * len(text)


@dataclass
class Legend:
    """The names of colours: each with the number of its colour."""

    entries: list[tuple[str, int]]
    faint: frozenset[str] = frozenset()
    dashes: dict[str, int] = field(default_factory=dict)

    def rows(self, width: float) -> list[list[tuple[str, int, float]]]:
        """Returns the rows of names, colours and pixels from the left."""
        rows: list[list[tuple[str, int, float]]] = []
        at = width
        for name, colour in self.entries:
            long = 38 + width_of(name)
            if not rows or at + long > width:
                rows.append([])
                at = 0
            rows[-1].append((name, colour, at))
            at += long
        return rows


class Canvas:
    """Collects the elements of a picture.

    Args:
        width: pixels; the height is that of what is drawn, as `picture` is told
        title: what the picture shows
    """

    def __init__(self, width: int, title: str) -> None:
        self.width, self.title = width, title
        self.body: list[str] = []
        self.top = 12.0
        if title:
            self.text(14, 25, title, extra=' font-size="15" font-weight="600"')
            self.top = 36

    def text(self, x: float, y: float, text: str, kind: str = "", extra: str = "") -> None:
        """Writes a text whose baseline starts at a point."""
        names = f' class="{kind}"' if kind else ""
        self.body.append(f'<text x="{x:.1f}" y="{y:.1f}"{names}{extra}>{escape(text)}</text>')

    def path(self, d: str, kind: str) -> None:
        """Draws a path."""
        self.body.append(f'<path class="{kind}" d="{d}"/>')

    def bar(self, x: float, y: float, width: float, height: float, kind: str, title: str = "", label: str = "") -> None:
        """Draws a rectangle, with text that shows under the pointer, and inside if there is room."""
        shape = f'<rect class="{kind}" x="{x:.2f}" y="{y:.1f}" width="{width:.2f}" height="{height:.1f}"/>'
        if label and width > 4 + width_of(label, 11):
            middle = f'x="{x + width / 2:.2f}" y="{y + height / 2 + 4:.1f}"'
            shape += f'<text class="inside" {middle} font-size="11" text-anchor="middle">{escape(label)}</text>'
        self.body.append(f"<g><title>{escape(title)}</title>{shape}</g>" if title else shape)

    def legend(self, legend: Legend, left: float = 14) -> None:
        """Draws the names of colours below what stands, and goes on below them."""
        for row in legend.rows(self.width - left - 14):
            for name, colour, at in row:
                x, faint = left + at, " faint" if name in legend.faint else ""
                if legend.dashes:
                    self.path(f"M{x:.1f} {self.top + 6:.1f}h16", f"line k{colour} dash{legend.dashes[name]}")
                else:
                    self.bar(x, self.top, 12, 12, f"bar k{colour}{faint}")
                self.text(x + 20, self.top + 10, name, "small")
            self.top += 20
        self.top += 2

    def across(self, axis: Axis, top: float, bottom: float, label: str, ticks: int = 0) -> None:
        """Draws a horizontal axis below an area, with lines across the area, and goes on below."""
        for value, text in axis.ticks(ticks or max(2, int((axis.end - axis.start) / 90))):
            x = axis(value)
            self.path(f"M{x:.1f} {top:.1f}V{bottom:.1f}", "grid")
            self.text(x, bottom + 16, text, "small", ' text-anchor="middle"')
        self.text((axis.start + axis.end) / 2, bottom + 34, label, "small", ' text-anchor="middle"')
        self.top = bottom + 44

    def upright(self, axis: Axis, right: float, label: str, left: float) -> None:
        """Draws a vertical axis whose lines go from `left` to `right`."""
        for value, text in axis.ticks(max(2, int((axis.start - axis.end) / 45))):
            y = axis(value)
            self.path(f"M{left:.1f} {y:.1f}H{right:.1f}", "grid")
            self.text(left - 6, y + 4, text, "small", ' text-anchor="end"')
        middle = (axis.start + axis.end) / 2
        self.text(0, 0, label, "small", f' text-anchor="middle" transform="translate(18 {middle:.1f}) rotate(-90)"')

    def notes(self, notes: Iterable[str]) -> None:
        """Writes lines of small text."""
        for note in notes:
            self.text(14, self.top + 10, note, "small")
            self.top += 18

    def picture(self) -> Picture:
        """Returns the picture of what was drawn."""
        height = math.ceil(self.top) + 8
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="plait-plot" role="img" aria-label="{escape(self.title)}" '
            f'width="{self.width}" height="{height}" viewBox="0 0 {self.width} {height}" '
            'font-family="system-ui, sans-serif" font-size="12">'
        )
        back = f'<rect class="back" width="{self.width}" height="{height}" rx="6"/>'
        return Picture("\n".join([head, f"<style>{_style()}</style>", back, *self.body, "</svg>", ""]))


def margin(labels: Iterable[str]) -> float:
    """Returns the pixels that texts left of an axis need, with its label."""
    return 38 + max((width_of(t) for t in labels), default=0)


def coloured(totals: Mapping[str, float], taken: Iterable[int] = ()) -> dict[str, int]:
    """Returns a colour that is not taken for each of the names with the largest totals, and one for the others."""
    ranked = sorted(totals, key=lambda name: (-totals[name], name))
    free = sorted({*range(OTHER)} - {*taken})
    return {name: free[i] if i < len(free) else OTHER for i, name in enumerate(ranked)}


def entries(colours: dict[str, int]) -> list[tuple[str, int]]:
    """Returns the entries of a legend for names with colours; those that share the last one are together."""
    shown = [(name, c) for name, c in colours.items() if c != OTHER]
    rest = len(colours) - len(shown)
    return [*shown, *([(f"{rest} others", OTHER)] if rest else [])]


def size(function: str, width: object, height: object = 200) -> None:
    """Raises unless a picture's size is one."""
    for name, value in (("width", width), ("height", height)):
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"{function}: want {name} in whole pixels, got {value!r}")
        if not 160 <= value <= 20000:
            raise ValueError(f"{function}: want a {name} from 160 to 20000 pixels, got {value}")


Place = Callable[[float], float]
Points = Sequence[tuple[float, float | None]]


def thinned(points: Points, place: Place) -> list[list[int]]:
    """Returns which points a line needs at most, as pieces between gaps; a gap is a point whose value is None.

    Of the points of a column of pixels these are the first, the lowest, the highest and the last. Gaps between more
    points of one column than that are narrower than a pixel, and not kept.
    """
    pieces: list[list[int]] = [[]]
    bucket: list[int] = []

    def cut() -> None:
        if pieces[-1]:
            pieces.append([])

    def flush() -> None:
        kept = bucket
        if len(bucket) > 4:
            values = [(v, i) for i in bucket if (v := points[i][1]) is not None]
            if not values:
                return cut()
            kept = sorted({values[0][1], min(values)[1], max(values)[1], values[-1][1]})
            if kept[0] != bucket[0]:
                cut()
        for i in kept:
            if points[i][1] is None:
                cut()
            else:
                pieces[-1].append(i)
        if kept[-1] != bucket[-1]:
            cut()
        return None

    column = None
    for i, (x, _) in enumerate(points):
        at = int(place(x))
        if at != column:
            if bucket:
                flush()
            bucket, column = [], at
        bucket.append(i)
    if bucket:
        flush()
    return [p for p in pieces if p]
