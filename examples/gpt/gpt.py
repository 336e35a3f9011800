"""A small GPT, and what training it takes. The scripts beside this file train it in different ways."""

from __future__ import annotations

import argparse
import math

import plait
import plait.nn.functional as F
from plait import Tensor, nn
from plait.optim import AdamW
from plait.optim.lr_scheduler import LambdaLR
from text import Text


class Block(nn.Module):
    """One layer: attention to the places before, then a network that looks at each place by itself."""

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__()
        width, self.size, self.dropout = args.width, args.width // args.heads, args.dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(args.dropout)

    def forward(self, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        # The features of a head lie together, so that ranks can divide the heads.
        q, k, v = self.qkv(self.norm1(x)).view(b, t, -1, 3, self.size).permute(3, 0, 2, 1, 4).unbind(0)
        dropout = self.dropout if self.training else 0.0
        seen = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.drop(self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh")))


class Start(nn.Module):
    """Turns characters and their places into vectors."""

    def __init__(self, kinds: int, args: argparse.Namespace) -> None:
        super().__init__()
        self.characters, self.places = nn.Embedding(kinds, args.width), nn.Embedding(args.context, args.width)

    def forward(self, codes: Tensor) -> Tensor:
        return self.characters(codes) + self.places(plait.arange(codes.shape[1], device=codes.device))


class GPT(nn.Module):
    """Scores [B, T, kinds] of what follows each character of a text [B, T]."""

    def __init__(self, kinds: int, args: argparse.Namespace) -> None:
        super().__init__()
        self.start = Start(kinds, args)
        self.blocks = nn.Sequential(*(Block(args) for _ in range(args.layers)))
        self.norm, self.head = nn.LayerNorm(args.width), nn.Linear(args.width, kinds, bias=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, codes: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.start(codes))))


def loss_of(scores: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(scores.flatten(0, 1), targets.to(scores.device).flatten())


def optimizer_of(model: nn.Module, args: argparse.Namespace) -> tuple[AdamW, LambdaLR]:
    """Returns AdamW, and a rate that rises for a twentieth of the steps and then falls along a cosine."""
    warm_up = max(1, args.steps // 20)

    def rate(step: int) -> float:
        done = (step - warm_up) / max(1, args.steps - warm_up)
        return (step + 1) / warm_up if step < warm_up else 0.05 + 0.475 * (1 + math.cos(math.pi * done))

    optimizer = AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95))
    return optimizer, LambdaLR(optimizer, rate)


@plait.no_grad()
def validate(model: nn.Module, text: Text, device: str) -> float:
    """Returns the mean loss on 128 pieces of the text that is held out."""
    starts = plait.arange(128) * (len(text.held_out) - text.context - 1) // 127
    x, y = text.pieces(text.held_out, starts)
    model.eval()
    losses = [loss_of(model(a.to(device)), b).item() for a, b in zip(x.split(32), y.split(32), strict=True)]
    model.train()
    return sum(losses) / len(losses)


@plait.no_grad()
def write(model: nn.Module, text: Text, start: str, length: int, device: str, temperature: float = 0.7) -> str:
    """Returns `start` and what the model writes after it, a character at a time, each drawn by its scores."""
    model.eval()
    codes = text.encode(start)[None].to(device)
    for _ in range(length):
        scores = model(codes[:, -text.context :])[:, -1] / temperature
        drawn = plait.multinomial(F.softmax(scores, dim=-1), 1)
        codes = plait.cat([codes, drawn.to(device)], dim=1)
    model.train()
    return "".join(text.alphabet[i] for i in codes[0].tolist())
