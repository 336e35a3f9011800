"""Classifies shapes by a residual network in mixed precision. The pictures are drawn as they are needed.

    python examples/resnet.py
    python examples/resnet.py --precision float16 --device gpu

Under `autocast` convolutions and matrix products take 16 bits; losses and norms keep 32. bfloat16 needs no more.
float16 has few exponents, so that small gradients would become zero: `GradScaler` multiplies the loss, and divides
the gradients before the step. On a GPU that has units for 16 bits both are faster; on most CPUs float32 is.
"""

from __future__ import annotations

import argparse
import time

import plait
import plait.nn.functional as F
from plait import Tensor, nn

KINDS = ("circle", "square", "triangle", "cross")


def draw(count: int, generator: plait.Generator, size: int) -> tuple[Tensor, Tensor]:
    """Returns pictures [N, 3, S, S] of bright shapes of any colour, place and size, with noise, and their kinds [N]."""
    random = plait.rand(count, 10, generator=generator)
    kinds = plait.randint(0, len(KINDS), (count,), generator=generator)
    line = plait.linspace(-1, 1, size)
    y, x = plait.meshgrid(line, line, indexing="ij")
    place, radius, angle = random[:, :2] * 0.8 - 0.4, random[:, 2] * 0.25 + 0.45, random[:, 3] - 0.5
    dx, dy = (((c - place[:, i, None, None]) / radius[:, None, None]) for i, c in enumerate((x, y)))
    cos, sin = plait.cos(angle)[:, None, None], plait.sin(angle)[:, None, None]
    u, v = cos * dx - sin * dy, sin * dx + cos * dy  # each picture in the axes of its shape
    low, high = plait.minimum(u.abs(), v.abs()), plait.maximum(u.abs(), v.abs())
    inside = plait.stack(
        [u * u + v * v < 0.8, high < 0.8, (v < 0.6) & (2 * u.abs() - v < 0.9), (low < 0.3) & (high < 1)]
    )
    mask = inside[kinds, plait.arange(count)][:, None].float()
    front, back = 0.5 + 0.5 * random[:, 4:7, None, None], 0.5 * random[:, 7:, None, None]
    pictures = mask * front + (1 - mask) * back
    return pictures + 0.1 * plait.randn(pictures.shape, generator=generator), kinds


class Block(nn.Module):
    """Two convolutions, and a way around them. `stride` halves the picture."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.around: nn.Module = nn.Identity()
        if stride != 1 or before != width:
            self.around = nn.Sequential(nn.Conv2d(before, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.around(x))


def resnet(kinds: int, widths: tuple[int, ...]) -> nn.Sequential:
    """Returns a residual network with a block for each width; each halves the picture, but for the first."""
    layers: list[nn.Module] = [nn.Conv2d(3, widths[0], 3, 1, 1, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU()]
    for i, (before, width) in enumerate(zip((widths[0], *widths), widths, strict=False)):
        layers.append(Block(before, width, stride=1 if i == 0 else 2))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], kinds))


def main(argv: list[str] | None = None) -> tuple[float, float, float]:
    """Trains, and returns the first and the last loss and the accuracy on new pictures."""
    parser = argparse.ArgumentParser(description="Classifies shapes by a residual network in mixed precision.")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--size", type=int, default=24, help="width and height of the pictures")
    parser.add_argument("--width", type=int, default=16, help="channels of the first block")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--precision", choices=("float32", "bfloat16", "float16"), default="bfloat16")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    if min(args.steps, args.batch) < 1:
        parser.error("steps and batch must be at least 1")
    plait.manual_seed(args.seed)
    pencil = plait.Generator().manual_seed(args.seed)

    model = resnet(len(KINDS), (args.width, 2 * args.width, 4 * args.width)).to(args.device)
    optimizer = plait.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4, nesterov=True)
    schedule = plait.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=args.lr, total_steps=args.steps)
    kind, precision = plait.device(args.device).type, getattr(plait, args.precision)
    scaler = plait.amp.GradScaler(kind, enabled=args.precision == "float16")
    losses: list[float] = []
    began = time.perf_counter()
    for step in range(1, args.steps + 1):
        x, y = (part.to(args.device) for part in draw(args.batch, pencil, args.size))
        with plait.autocast(kind, dtype=precision, enabled=args.precision != "float32"):
            loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
        losses.append(loss.item())
        if step % max(1, args.steps // 5) == 0:
            print(f"step {step}: loss {loss.item():.3f}, {time.perf_counter() - began:.1f} s", flush=True)

    model.eval()
    with plait.no_grad():
        x, y = (part.to(args.device) for part in draw(512, pencil, args.size))
        named = model(x).argmax(1)
    right = (named == y).float().mean().item()
    print(f"accuracy on new pictures: {right:.1%}; where a shape was taken for another:")
    counts = plait.bincount(y * len(KINDS) + named, minlength=len(KINDS) ** 2).view(len(KINDS), -1).tolist()
    print(" " * 10 + "".join(f"{k:>10}" for k in KINDS))
    for name, row in zip(KINDS, counts, strict=True):
        print(f"{name:>10}" + "".join(f"{n:>10}" for n in row))
    return losses[0], losses[-1], right


if __name__ == "__main__":
    main()
