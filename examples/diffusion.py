"""Denoising diffusion: learns to turn noise into points of a spiral.

    python examples/diffusion.py
    python examples/diffusion.py --steps 5000 --width 256 --device gpu

Data become noise in 100 small steps, each of which is known. A network learns to say, at any of them, which noise was
added. Then new noise is led back: a hundred times a little of the noise that the network sees is taken away.
"""

from __future__ import annotations

import argparse
import math

import plait
import plait.nn.functional as F
from plait import Tensor, nn

TIMES = 100
BETA = plait.linspace(1e-3, 0.1, TIMES)  # how much noise each step adds
KEPT = (1 - BETA).cumprod(0)  # how much of the data, squared, is left after it
SHOWN = (32, 16, 8, 4, 0)  # most of a shape comes late


def spiral(count: int, generator: plait.Generator | None = None) -> Tensor:
    """Returns points [N, 2] of a spiral, a little beside the line."""
    turn = plait.rand(count, generator=generator).sqrt() * 3 * math.pi
    points = plait.stack([turn * turn.cos(), turn * turn.sin()], dim=1) / (2 * math.pi)
    return points + 0.03 * plait.randn(count, 2, generator=generator)


class Denoiser(nn.Module):
    """Says which noise [B, 2] was added to points [B, 2] until times [B]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.enter, self.leave = nn.Linear(2, width), nn.Linear(width, 2)
        self.time = nn.Embedding(TIMES, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(3))

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        h = self.enter(x)
        for layer in self.layers:
            h = h + layer(F.silu(h + self.time(t)))
        return self.leave(F.silu(h))


@plait.no_grad()
def sample(model: Denoiser, count: int, device: str, generator: plait.Generator | None = None) -> list[Tensor]:
    """Returns points [N, 2] on their way from noise to data: at the start, and after the times SHOWN."""
    x = plait.randn(count, 2, generator=generator).to(device)
    path = [x.cpu()]
    for t in reversed(range(TIMES)):
        beta, kept = BETA[t].item(), KEPT[t].item()
        noise = model(x, plait.full((count,), t, device=device))
        x = (x - beta / math.sqrt(1 - kept) * noise) / math.sqrt(1 - beta)
        if t > 0:
            x = x + math.sqrt(beta) * plait.randn(count, 2, generator=generator).to(device)
        if t in SHOWN:
            path.append(x.cpu())
    return path


def distance(points: Tensor, data: Tensor) -> float:
    """Returns how far the points are from the nearest of the data, in the mean."""
    return plait.cdist(points, data).min(1).values.mean().item()


def show(points: Tensor, columns: int = 60, rows: int = 24) -> str:
    """Returns a picture of points in characters."""
    lines = [[" "] * columns for _ in range(rows)]
    for x, y in points.tolist():
        column, row = round((x / 3.6 + 0.5) * columns), round((0.5 - y / 3.6) * rows)
        if 0 <= column < columns and 0 <= row < rows:
            lines[row][column] = "o"
    return "\n".join("".join(line).rstrip() for line in lines)


def main(argv: list[str] | None = None) -> tuple[float, float, float, list[Tensor]]:
    """Trains. Returns the first and the last loss, the mean distance of new points from the spiral, and their path."""
    parser = argparse.ArgumentParser(description="Denoising diffusion of points in the plane.")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    if min(args.steps, args.batch) < 1:
        parser.error("steps and batch must be at least 1")
    plait.manual_seed(args.seed)

    model = Denoiser(args.width).to(args.device)
    optimizer = plait.optim.AdamW(model.parameters(), lr=args.lr)
    schedule = plait.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    losses: list[float] = []
    for step in range(1, args.steps + 1):
        data, noise, t = spiral(args.batch), plait.randn(args.batch, 2), plait.randint(0, TIMES, (args.batch,))
        kept = KEPT[t][:, None]
        noisy = kept.sqrt() * data + (1 - kept).sqrt() * noise
        loss = F.mse_loss(model(noisy.to(args.device), t.to(args.device)), noise.to(args.device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if step % max(1, args.steps // 6) == 0:
            recent = losses[-200:]
            print(f"step {step}: loss {sum(recent) / len(recent):.3f}", flush=True)

    path = sample(model, 1000, args.device)
    data = spiral(4000)
    before, after, own = distance(path[0], data), distance(path[-1], data), distance(spiral(1000), data)
    print(f"\n{show(path[-1])}\n")
    print(f"mean distance from the spiral: noise {before:.3f}, samples {after:.3f}, the spiral's own points {own:.3f}")
    recent = losses[-200:]
    return losses[0], sum(recent) / len(recent), after, path


if __name__ == "__main__":
    main()
