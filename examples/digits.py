"""Classifies the handwritten digits that come with scikit-learn by a small convolutional network.

python examples/digits.py
python examples/digits.py --save digits.safetensors    # for go/serve, which answers requests with it
"""

from __future__ import annotations

import argparse

import plait
import plait.nn.functional as F
from plait import Tensor, nn
from plait.optim import AdamW
from plait.safetensors import save_file
from plait.utils.data import DataLoader, TensorDataset, random_split
from sklearn.datasets import load_digits


class Network(nn.Module):
    """Two convolutions, then two linear layers: [B, 1, 8, 8] to the scores [B, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Dropout(0.25), nn.Linear(32 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x))


@plait.no_grad()
def accuracy(model: Network, batches: DataLoader) -> float:
    """Returns the share of `batches` that the model names correctly."""
    model.eval()
    device = next(model.parameters()).device
    right = sum((model(x.to(device)).argmax(1).cpu() == y).sum().item() for x, y in batches)
    model.train()
    return right / len(batches.dataset)


def main(argv: list[str] | None = None) -> float:
    """Trains, and returns the accuracy on digits that were not trained on."""
    parser = argparse.ArgumentParser(description="Classifies handwritten digits.")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--save", help="a file for the parameters, such as digits.safetensors")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    if min(args.epochs, args.batch) < 1:
        parser.error("epochs and batch must be at least 1")
    plait.manual_seed(args.seed)

    images, labels = load_digits(return_X_y=True)
    x = plait.tensor(images, dtype=plait.float32).reshape(-1, 1, 8, 8) / 16
    dataset = TensorDataset(x, plait.tensor(labels))
    held_out = len(dataset) // 5
    training, test = random_split(dataset, [len(dataset) - held_out, held_out])
    training_batches = DataLoader(training, batch_size=args.batch, shuffle=True)
    test_batches = DataLoader(test, batch_size=256)

    model = Network().to(args.device)
    optimizer = AdamW(model.parameters(), lr=args.lr)
    for epoch in range(1, args.epochs + 1):
        total = 0.0
        for images, labels in training_batches:
            loss = F.cross_entropy(model(images.to(args.device)), labels.to(args.device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(labels)
        print(f"epoch {epoch:2}: loss {total / len(training):.4f}, accuracy {accuracy(model, test_batches):.2%}")
    if args.save:
        save_file(model.state_dict(), args.save)
        print(f"wrote {args.save}")
    return accuracy(model, test_batches)


if __name__ == "__main__":
    main()
