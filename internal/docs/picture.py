"""Draws docs/pictures/pipelines.svg, the picture of the README: two pipelines as a dated report recorded them.

python internal/docs/picture.py
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REPORT = ROOT / "benchmarks/reports/2026-11-22-pipeline-gpt.md"
PICTURE = ROOT / "docs/pictures/pipelines.svg"
SECTION, GPUS, CHUNKS = "## Four GPUs", 4, 8
SCHEDULES = [("1f1b", "1F1B"), ("zb-v", "ZB-V, zero bubble")]
COLOURS = {"forward": "blue", "backward": "green", "input gradient": "teal", "weight gradient": "gold"}

LEFT, WIDTH, ROW, GAP = 58, 900, 20, 3
STYLE = """
.back { fill: #ffffff } .idle { fill: #eceff3 } text { fill: #1f2328 } .small { fill: #57606a }
.blue { fill: #5b8fd0 } .green { fill: #5cab63 } .teal { fill: #4fb3a0 } .gold { fill: #dfae45 }
@media (prefers-color-scheme: dark) {
.back { fill: #0d1117 } .idle { fill: #21262d } text { fill: #e6edf3 } .small { fill: #9198a1 } }
"""


def row(schedule: str) -> tuple[str, str, str]:
    """Returns a schedule's predicted and measured milliseconds and its measured bubble from the report's table."""
    section = REPORT.read_text("utf-8").split(SECTION + "\n")[1]
    line = re.search(rf"^\| {schedule}, {CHUNKS} micro-batches \|(.*)\|$", section, re.M)
    cells = [cell.strip() for cell in line[1].split("|")]
    return cells[0], cells[1], cells[4]


def spans(schedule: str) -> list[list[tuple[str, float, float]]]:
    """Returns what each GPU did and from when to when, in seconds, as the report's timeline has it."""
    timeline = REPORT.parent / REPORT.stem / f"{GPUS}-gpus-{schedule}.svg"
    measured = timeline.read_text("utf-8").partition("measured")[2]
    rows = re.split(r"<text [^>]*>device \d+</text>", measured)[1:]
    action = r"<title>\w+: ([a-z ]+) of micro-batch \d+ in stage \d+, ([\d.e-]+) to ([\d.e-]+)</title>"
    return [[(kind, float(begin), float(end)) for kind, begin, end in re.findall(action, row)] for row in rows]


def picture() -> str:
    """Returns the picture: a panel for each schedule, a row for each GPU, and one axis of time for all."""
    panels = [(label, row(name), spans(name)) for name, label in SCHEDULES]
    longest = max(end for _, _, gpus in panels for gpu in gpus for _, _, end in gpu)
    scale = (WIDTH - LEFT - 12) / longest
    body, y = [], 8
    for label, (predicted, measured, bubble), gpus in panels:
        y += 18
        body.append(
            f'<text x="12" y="{y}"><tspan font-weight="600" font-size="15">{label}</tspan>'
            f'<tspan dx="10">{measured} ms a step, GPUs idle {bubble.replace(" %", "%")} of the time</tspan>'
            f'<tspan dx="10" class="small">predicted: {predicted} ms</tspan></text>'
        )
        y += 10
        for number, gpu in enumerate(gpus):
            body.append(f'<text x="12" y="{y + 14}" class="small">GPU {number}</text>')
            body.append(f'<rect class="idle" x="{LEFT}" y="{y}" width="{longest * scale:.1f}" height="{ROW}"/>')
            for kind, begin, end in gpu:
                x, width = LEFT + begin * scale, max((end - begin) * scale - 0.6, 0.4)
                body.append(f'<rect class="{COLOURS[kind]}" x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW}"/>')
            y += ROW + GAP
        y += 12
    x = LEFT
    for kind, colour in COLOURS.items():
        body.append(f'<rect class="{colour}" x="{x}" y="{y}" width="12" height="12"/>')
        body.append(f'<text x="{x + 18}" y="{y + 11}" class="small">{kind}</text>')
        x += 40 + 7 * len(kind)
    height = y + 24
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        'font-family="system-ui, sans-serif" font-size="13">'
    )
    back = f'<rect class="back" width="{WIDTH}" height="{height}" rx="6"/>'
    return "\n".join([head, f"<style>{STYLE}</style>", back, *body, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(picture(), "utf-8")
