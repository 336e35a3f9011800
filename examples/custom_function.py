"""Operations of your own in Python: `autograd.Function` with a forward and a backward pass.

    python examples/custom_function.py

The first is a loss that hardly minds points far away; `gradcheck` compares its derivative with differences. The
second has a derivative that is none: weights of one bit have a slope of zero everywhere, so backward passes the
gradient straight through to the numbers of which they are the signs, and a network of one-bit weights learns to read
digits.
"""

from __future__ import annotations

import argparse

import plait
import plait.nn.functional as F
from plait import Tensor, nn
from plait.autograd import Function, gradcheck
from sklearn.datasets import load_digits


class Cauchy(Function):
    """log(1 + x^2), whose slope goes to zero far from zero."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.square().log1p()

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad * 2 * x / (1 + x * x)


class OneBit(Function):
    """The signs of weights [out, in], times the mean size of each row. Backward is as if nothing had happened."""

    @staticmethod
    def forward(ctx, weight: Tensor) -> Tensor:
        ctx.save_for_backward(weight)
        return weight.sign() * weight.abs().mean(1, keepdim=True)

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        (weight,) = ctx.saved_tensors
        return grad * (weight.abs() <= 1)


class OneBitLinear(nn.Linear):
    """A linear layer whose weights are of one bit when it computes."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, OneBit.apply(self.weight), self.bias)


def fit(robust: bool, device: str) -> float:
    """Returns the slope of a line through points of the line y = 2x, of which every fifth is spoiled."""
    generator = plait.Generator().manual_seed(0)
    x = plait.rand(200, generator=generator)
    y = 2 * x + 0.05 * plait.randn(200, generator=generator)
    y[::5] = 6 - 8 * x[::5]
    x, y = x.to(device), y.to(device)
    line = plait.zeros(2, device=device, requires_grad=True)
    optimizer = plait.optim.Adam([line], lr=0.05)
    for _ in range(300):
        error = line[0] * x + line[1] - y
        loss = (Cauchy.apply(error * 5) if robust else error.square()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return line[0].item()


def main(argv: list[str] | None = None) -> dict[str, float]:
    """Trains, and returns the slopes, and the accuracy of a network of one-bit weights."""
    parser = argparse.ArgumentParser(description="Operations with a backward pass in Python.")
    parser.add_argument("--steps", type=int, default=500, help="training steps of the network")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    if args.steps < 1:
        parser.error("steps must be at least 1")
    plait.manual_seed(args.seed)

    gradcheck(Cauchy.apply, plait.randn(5, dtype=plait.float64, requires_grad=True))  # raises if they differ
    print("the derivative of Cauchy is that of differences")
    squares, robust = fit(robust=False, device=args.device), fit(robust=True, device=args.device)
    print(f"slope of y = 2x with spoiled points: {squares:.2f} by squares, {robust:.2f} by Cauchy")

    digits = load_digits()
    x = plait.tensor(digits.data, dtype=plait.float32, device=args.device) / 16
    y = plait.tensor(digits.target, device=args.device)
    cut = len(y) * 4 // 5
    model = nn.Sequential(OneBitLinear(64, 256), nn.BatchNorm1d(256), nn.Tanh(), OneBitLinear(256, 10)).to(args.device)
    optimizer = plait.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(1, args.steps + 1):
        some = plait.randint(0, cut, (64,), device=args.device)
        loss = F.cross_entropy(model(x[some]), y[some])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 1 or step % max(1, args.steps // 5) == 0:
            print(f"step {step}: loss {loss.item():.3f}")
    model.eval()
    with plait.no_grad():
        right = (model(x[cut:]).argmax(1) == y[cut:]).float().mean().item()
    values = OneBit.apply(model[0].weight.detach())[0].unique().tolist()
    print(f"accuracy with weights of one bit: {right:.1%}; a row has the values {values[0]:.4f} and {values[1]:.4f}")
    return {"squares": squares, "robust": robust, "accuracy": right, "values": len(values)}


if __name__ == "__main__":
    main()
