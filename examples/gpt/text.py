"""The text that the GPT learns, and a picture of how it does."""

from __future__ import annotations

import argparse
import re
from itertools import pairwise

import plait
from plait import Tensor


class Text:
    """Python files as numbers, one for each character. The last tenth is held out."""

    def __init__(self, args: argparse.Namespace) -> None:
        files = sorted(args.text.glob("*.py"))
        text = "".join(p.read_text(encoding="utf-8", errors="replace") for p in files)[: args.characters]
        text = re.sub(r"[^\n -~]", "?", text)
        self.alphabet, self.context = sorted(set(text)), args.context
        codes = self.encode(text)
        cut = len(codes) * 9 // 10
        self.training, self.held_out = codes[:cut], codes[cut:]
        if len(self.held_out) <= self.context:
            raise SystemExit(f"{len(text)} characters of Python in {args.text}: too few to see {self.context} at once")

    def encode(self, text: str) -> Tensor:
        number = {c: i for i, c in enumerate(self.alphabet)}
        return plait.tensor([number[c] for c in text])

    def pieces(self, codes: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the pieces [B, T] that begin at `starts` [B], and the same moved on by one character."""
        places = starts[:, None] + plait.arange(self.context)
        return codes[places], codes[places + 1]

    def batch(self, size: int, generator: plait.Generator) -> tuple[Tensor, Tensor]:
        last = len(self.training) - self.context
        return self.pieces(self.training, plait.randint(0, last, (size,), generator=generator))


def curve(losses: list[float], columns: int = 64, rows: int = 10) -> str:
    """Returns a picture of losses in characters: each column has the mean of its steps."""
    columns = min(columns, len(losses))
    cuts = [i * len(losses) // columns for i in range(columns + 1)]
    means = [sum(losses[a:b]) / (b - a) for a, b in pairwise(cuts)]
    low, high = min(means), max(means)
    heights = [round((m - low) / max(high - low, 1e-9) * (rows - 1)) for m in means]
    lines = [
        f"{low + (high - low) * r / (rows - 1):5.2f} |" + "".join("*" if h == r else " " for h in heights).rstrip()
        for r in reversed(range(rows))
    ]
    return "\n".join([*lines, " " * 6 + "+" + "-" * columns, f"{'step 1':>13}{len(losses):>{max(5, columns - 6)}}"])
