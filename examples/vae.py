"""A variational autoencoder that learns to draw handwritten digits, those that come with scikit-learn.

    python examples/vae.py
    python examples/vae.py --epochs 200 --latent 12

The encoder gives each picture a cloud of codes: means and variances. The decoder turns a code drawn from the cloud
back into the picture. The loss has a term for the picture, and one that keeps the clouds near the normal
distribution, from which new codes are drawn at the end: their pictures are digits that nobody wrote.
"""

from __future__ import annotations

import argparse

import plait
import plait.nn.functional as F
from plait import Tensor, nn
from plait.distributions import Normal, kl_divergence
from plait.utils.data import DataLoader, TensorDataset
from sklearn.datasets import load_digits


class VAE(nn.Module):
    """Pictures [B, 64] to scores of their points [B, 64], and the clouds that the codes are drawn from."""

    def __init__(self, latent: int, hidden: int = 256) -> None:
        super().__init__()
        self.latent = latent
        self.encoder = nn.Sequential(nn.Linear(64, hidden), nn.SiLU(), nn.Linear(hidden, 2 * latent))
        self.decoder = nn.Sequential(
            nn.Linear(latent, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, 64)
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Normal]:
        mean, scale = self.encoder(x).chunk(2, dim=1)
        cloud = Normal(mean, F.softplus(scale) + 1e-4)
        return self.decoder(cloud.rsample()), cloud  # rsample: gradients pass through the draw

    @plait.no_grad()
    def draw(self, count: int) -> Tensor:
        """Returns `count` new pictures [B, 64], of points from 0 to 1."""
        device = self.decoder[0].weight.device
        return self.decoder(plait.randn(count, self.latent, device=device)).sigmoid()


def show(pictures: Tensor) -> str:
    """Returns pictures [B, 64] side by side, in characters: the more ink, the darker."""
    shades = " .:-=+*#%@"
    levels = (pictures.clamp(0, 1) * (len(shades) - 1)).round().long().view(-1, 8, 8).tolist()
    return "\n".join("  ".join("".join(2 * shades[v] for v in p[row]) for p in levels) for row in range(8))


def main(argv: list[str] | None = None) -> tuple[float, float, Tensor]:
    """Trains, and returns the mean loss of the first and of the last epoch, and new pictures [512, 64]."""
    parser = argparse.ArgumentParser(description="A variational autoencoder of handwritten digits.")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--latent", type=int, default=8, help="numbers of a code")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    if min(args.epochs, args.batch) < 1:
        parser.error("epochs and batch must be at least 1")
    plait.manual_seed(args.seed)

    pictures = plait.tensor(load_digits().data, dtype=plait.float32) / 16
    batches = DataLoader(TensorDataset(pictures), batch_size=args.batch, shuffle=True)
    model = VAE(args.latent).to(args.device)
    optimizer = plait.optim.Adam(model.parameters(), lr=args.lr)
    normal = Normal(plait.zeros((), device=args.device), plait.ones((), device=args.device))
    means: list[float] = []
    for epoch in range(1, args.epochs + 1):
        drawing = nearness = 0.0
        for (batch,) in batches:
            x = batch.to(args.device)
            scores, cloud = model(x)
            picture = F.binary_cross_entropy_with_logits(scores, x, reduction="sum") / len(x)
            near = kl_divergence(cloud, normal).sum(1).mean()
            optimizer.zero_grad()
            (picture + near).backward()
            optimizer.step()
            drawing += picture.item() / len(batches)
            nearness += near.item() / len(batches)
        means.append(drawing + nearness)
        if epoch == 1 or epoch % max(1, args.epochs // 6) == 0:
            print(f"epoch {epoch:3}: loss {means[-1]:.2f}, of the picture {drawing:.2f}, of the cloud {nearness:.2f}")

    with plait.no_grad():
        again = model(pictures[:8].to(args.device))[0].sigmoid()
    new = model.draw(512).cpu()
    print(f"\nEight digits, and what comes out of their codes:\n\n{show(pictures[:8])}\n\n{show(again.cpu())}")
    print(f"\nNew ones:\n\n{show(new[:8])}")
    print(f"\nshare of ink: {new.mean().item():.3f}, of the digits {pictures.mean().item():.3f}")
    return means[0], means[-1], new


if __name__ == "__main__":
    main()
