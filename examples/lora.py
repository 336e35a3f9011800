"""LoRA: a network that was trained for one task learns another by small additions to its frozen weights.

    python examples/lora.py
    python examples/lora.py --rank 8 --steps 500

A network learns scikit-learn's digits. Then it shall read them turned on their side and inverted, of which it knows
nothing. Every weight W [out, in] stays as it is, and gets the product of two thin matrices to its side, B A with B
[out, r] and A [r, in]: only they are trained and stored. In the end they are added to the weights, and the network
has its old shape.
"""

from __future__ import annotations

import argparse
import math

import plait
import plait.nn.functional as F
from plait import Tensor, nn
from sklearn.datasets import load_digits


class LoRA(nn.Module):
    """A linear layer that is frozen, and an addition of low rank that is trained, and is zero at first."""

    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        device = layer.weight.device
        self.a = nn.Parameter(plait.empty(rank, layer.in_features, device=device))
        self.b = nn.Parameter(plait.zeros(layer.out_features, rank, device=device))
        nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + 2 * (x @ self.a.T @ self.b.T)

    @plait.no_grad()
    def merged(self) -> nn.Linear:
        """Returns the layer with the addition in its weights."""
        self.layer.weight += 2 * self.b @ self.a
        return self.layer


def adapt(model: nn.Module, rank: int) -> None:
    """Puts a LoRA in place of every linear layer below `model`."""
    for name, child in list(model.named_children()):
        if isinstance(child, nn.Linear):
            setattr(model, name, LoRA(child, rank))
        else:
            adapt(child, rank)


def merge(model: nn.Module) -> None:
    """Undoes `adapt`: the layers are linear again, and do what they have learned."""
    for name, child in list(model.named_children()):
        if isinstance(child, LoRA):
            setattr(model, name, child.merged())
        else:
            merge(child)


@plait.no_grad()
def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    return (model(x).argmax(1) == y).float().mean().item()


def train(model: nn.Module, x: Tensor, y: Tensor, steps: int, lr: float) -> list[float]:
    """Trains what requires gradients, and returns the losses."""
    optimizer = plait.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=lr)
    losses = []
    for _ in range(steps):
        some = plait.randint(0, len(x), (64,), device=x.device)
        loss = F.cross_entropy(model(x[some]), y[some])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main(argv: list[str] | None = None) -> dict[str, float]:
    """Trains twice, and returns the accuracies on held-out digits, and the numbers of parameters."""
    parser = argparse.ArgumentParser(description="A network learns another task by LoRA.")
    parser.add_argument("--steps", type=int, default=300, help="training steps of each task")
    parser.add_argument("--rank", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    if min(args.steps, args.rank) < 1:
        parser.error("steps and rank must be at least 1")
    plait.manual_seed(args.seed)

    digits = load_digits()
    x = plait.tensor(digits.images, dtype=plait.float32, device=args.device) / 16
    y = plait.tensor(digits.target, device=args.device)
    old, new = x.flatten(1), 1 - x.rot90(1, (1, 2)).flatten(1)
    cut = len(y) * 4 // 5
    width = args.width
    model = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)).to(
        args.device
    )
    losses = train(model, old[:cut], y[:cut], args.steps, lr=2e-3)
    every = sum(p.numel() for p in model.parameters())
    print(f"digits: {every:,} parameters, loss {losses[0]:.3f} -> {losses[-1]:.3f}")
    said = {"old task": accuracy(model, old[cut:], y[cut:]), "before": accuracy(model, new[cut:], y[cut:])}

    adapt(model, args.rank)
    few = sum(p.numel() for p in model.parameters() if p.requires_grad)
    losses = train(model, new[:cut], y[:cut], args.steps, lr=5e-3)
    said["after"] = accuracy(model, new[cut:], y[cut:])
    with plait.no_grad():
        apart = model(new[cut:])
        merge(model)
        difference = (model(new[cut:]) - apart).abs().max().item()
    print(f"turned and inverted: {few:,} parameters, loss {losses[0]:.3f} -> {losses[-1]:.3f}")
    for what, share in said.items():
        print(f"accuracy, {what}: {share:.1%}")
    merged = sum(p.numel() for p in model.parameters())
    print(f"merged, the network has {merged:,} parameters; outputs differ by {difference:.0e}")
    return {**said, "all": every, "trained": few, "difference": difference}


if __name__ == "__main__":
    main()
