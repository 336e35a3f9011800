"""Draws docs/pictures/pipelines.svg, the picture of the README: two pipelines as a dated report recorded them.

python internal/docs/picture.py
"""

from __future__ import annotations

import re
from pathlib import Path

from plait import plot
from plait.distributed.pipelining import Span

ROOT = Path(__file__).resolve().parents[2]
REPORT = ROOT / "benchmarks/reports/2026-11-22-pipeline-gpt.md"
PICTURE = ROOT / "docs/pictures/pipelines.svg"
SECTION, GPUS, CHUNKS = "## Four GPUs", 4, 8
SCHEDULES = [("1f1b", "1F1B"), ("zb-v", "ZB-V, zero bubble")]


def row(schedule: str) -> tuple[str, str, str]:
    """Returns a schedule's predicted and measured milliseconds and its measured bubble from the report's table."""
    section = REPORT.read_text("utf-8").split(SECTION + "\n")[1]
    line = re.search(rf"^\| {schedule}, {CHUNKS} micro-batches \|(.*)\|$", section, re.M)
    cells = [cell.strip() for cell in line[1].split("|")]
    return cells[0], cells[1], cells[4]


def spans(schedule: str) -> list[Span]:
    """Returns what the GPUs did and from when to when, in seconds, as the report's timeline has it."""
    timeline = REPORT.parent / REPORT.stem / f"{GPUS}-gpus-{schedule}.svg"
    measured = timeline.read_text("utf-8").partition("measured")[2]
    rows = re.split(r"<text [^>]*>device \d+</text>", measured)[1:]
    action = r"<title>(\d+)([FBIW])(\d+): [^<]*, ([\d.e-]+) to ([\d.e-]+)</title>"
    return [
        Span(gpu, kind, int(stage), int(micro), float(begin), float(end))
        for gpu, row in enumerate(rows)
        for stage, kind, micro, begin, end in re.findall(action, row)
    ]


def picture() -> str:
    """Returns the picture: a panel for each schedule, a lane for each GPU, and one axis of time for all."""
    panels = {}
    for name, label in SCHEDULES:
        predicted, measured, bubble = row(name)
        idle = bubble.replace(" %", "%")
        panels[f"{label}: {measured} ms a step, GPUs idle {idle} of the time; predicted: {predicted} ms"] = spans(name)
    return str(plot.timeline(panels, unit="s"))


if __name__ == "__main__":
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(picture(), "utf-8")
