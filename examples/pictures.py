"""Runs some of the examples and draws what they made: the pictures of README.md.

python examples/pictures.py
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import cartpole
import diffusion
import plait
import resnet
import vae
from plait import Tensor, plot

FOLDER = Path(__file__).parent / "pictures"
STYLE = """
.back { fill: #ffffff } .ink { fill: #1f2328 } .dots { stroke: #5b8fd0; stroke-width: 2.6; stroke-linecap: round }
@media (prefers-color-scheme: dark) {
.back { fill: #0d1117 } .ink { fill: #e6edf3 } }
"""


def svg(width: int, height: int, body: Iterable[str]) -> str:
    """Returns a picture that suits light and dark pages."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
    back = f'<rect class="back" width="{width}" height="{height}" rx="6"/>'
    return "\n".join([head, f"<style>{STYLE}</style>", back, *body, "</svg>", ""])


def clouds(path: list[Tensor], points: int = 400, size: int = 140) -> str:
    """Returns a panel for each moment of points [N, 2] on their way."""
    dots = [
        f"M{(i + 0.5 + x / 4.4) * size:.0f} {(0.5 - y / 4.4) * size:.0f}h0"
        for i, moment in enumerate(path)
        for x, y in moment[:points].tolist()
        if max(abs(x), abs(y)) < 2.1
    ]
    return svg(size * len(path), size, [f'<path class="dots" d="{"".join(dots)}"/>'])


def digits(pictures: Tensor, columns: int = 16, size: int = 5) -> str:
    """Returns pictures [N, 64] of digits side by side, in rows."""
    shades: dict[int, str] = {}
    for i, picture in enumerate((pictures.clamp(0, 1) * 16).round().long().tolist()):
        left, top = i % columns * 9 * size + size, i // columns * 9 * size + size
        for place, ink in enumerate(picture):
            square = f"M{left + place % 8 * size} {top + place // 8 * size}h{size}v{size}h-{size}z"
            shades[ink] = shades.get(ink, "") + square
    body = [f'<path class="ink" opacity="{ink / 16:g}" d="{d}"/>' for ink, d in sorted(shades.items()) if ink]
    rows = -(-len(pictures) // columns)
    return svg(columns * 9 * size + size, rows * 9 * size + size, body)


def curve(values: list[float]) -> str:
    """Returns a curve of how long a pole stands, after each update."""
    title = f"For how many of {cartpole.TIME} steps a pole stands, in the mean"
    return str(plot.losses(values, title=title, x="update", y="steps", width=640, height=180))


def shapes(pictures: Tensor, size: int = 4) -> str:
    """Returns coloured pictures [N, 3, S, S] side by side."""
    body, side = [f'<g stroke-width="{size}">'], pictures.shape[-1]
    for i, picture in enumerate((pictures.clamp(0, 1) * 15).round().long().permute(0, 2, 3, 1).tolist()):
        for y, row in enumerate(picture):
            for x, (r, g, b) in enumerate(row):
                place = f"M{(i * (side + 2) + x + 1) * size} {(y + 1.5) * size:g}h{size}"
                body.append(f'<path d="{place}" stroke="#{r:x}{g:x}{b:x}"/>')
    return svg((side + 2) * len(pictures) * size, (side + 2) * size, [*body, "</g>"])


def draw() -> dict[str, str]:
    """Returns the pictures by name, of runs with the examples' own sizes."""
    return {
        "cartpole": curve(cartpole.main([])),
        "diffusion": clouds(diffusion.main([])[-1]),
        "resnet": shapes(resnet.draw(8, plait.Generator().manual_seed(3), size=16)[0]),
        "vae": digits(vae.main([])[-1][:32]),
    }


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, picture in draw().items():
        (FOLDER / f"{name}.svg").write_text(picture, "utf-8")
