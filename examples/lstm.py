"""A language model of two LSTM layers on the source of a few modules of Python, one character at a time.

    python examples/lstm.py
    python examples/lstm.py --steps 2000 --hidden 512 --device gpu

The text is cut into as many streams as a batch has rows. Each step reads the next piece of every stream, and begins
with the state in which the last step ended: the network can remember more than a piece, though gradients end at its
start.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import textwrap
import typing

import plait
import plait.nn.functional as F
from plait import Tensor, nn

State = tuple[Tensor, Tensor]


class Model(nn.Module):
    """Scores of what follows each character, and the state to go on with."""

    def __init__(self, kinds: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(kinds, 64)
        self.lstm = nn.LSTM(64, hidden, num_layers=2, dropout=0.1, batch_first=True)
        self.head = nn.Linear(hidden, kinds)

    def forward(self, codes: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        output, state = self.lstm(self.embedding(codes), state)
        return self.head(output), state


@plait.no_grad()
def write(model: Model, alphabet: list[str], start: str, length: int, device: str) -> str:
    """Returns `start` and what the model writes after it. The state is all that it knows of what went before."""
    model.eval()
    text = start
    codes, state = plait.tensor([[alphabet.index(c) for c in start]], device=device), None
    for _ in range(length):
        scores, state = model(codes, state)
        codes = plait.multinomial(F.softmax(scores[:, -1] / 0.6, dim=-1), 1)
        text += alphabet[codes.item()]
    model.train()
    return text


def main(argv: list[str] | None = None) -> tuple[float, float]:
    """Trains, and returns the loss on held-out text at the start and at the end."""
    parser = argparse.ArgumentParser(description="A language model of LSTM layers.")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=32, help="streams of text")
    parser.add_argument("--length", type=int, default=64, help="characters of a piece")
    parser.add_argument("--hidden", type=int, default=192)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    if min(args.steps, args.batch) < 1:
        parser.error("steps and batch must be at least 1")
    plait.manual_seed(args.seed)

    text = "".join(inspect.getsource(module) for module in (argparse, inspect, textwrap, typing, ast))
    alphabet = sorted(set(text))
    number = {c: i for i, c in enumerate(alphabet)}
    codes = plait.tensor([number[c] for c in text])
    held_out, codes = codes[-8192:].to(args.device)[None], codes[:-8192]
    streams = codes[: len(codes) // args.batch * args.batch].view(args.batch, -1).to(args.device)
    print(f"{len(codes):,} characters of {len(alphabet)} kinds in {args.batch} streams")

    model = Model(len(alphabet), args.hidden).to(args.device)
    optimizer = plait.optim.Adam(model.parameters(), lr=args.lr)
    schedule = plait.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)

    @plait.no_grad()
    def validate() -> float:
        model.eval()
        scores, _ = model(held_out[:, :-1])
        model.train()
        return F.cross_entropy(scores.flatten(0, 1), held_out[0, 1:]).item()

    start, state, place = validate(), None, 0
    print(f"step 0: held-out loss {start:.3f}")
    for step in range(1, args.steps + 1):
        if place + args.length + 1 > streams.shape[1]:
            place, state = 0, None  # the streams end: they begin again
        piece = streams[:, place : place + args.length + 1]
        place += args.length
        scores, state = model(piece[:, :-1], state)
        state = tuple(s.detach() for s in state)
        loss = F.cross_entropy(scores.flatten(0, 1), piece[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % max(1, args.steps // 5) == 0:
            print(f"step {step}: loss {loss.item():.3f}, held-out loss {validate():.3f}", flush=True)
    end = validate()
    print(f"\n{write(model, alphabet, 'def ', 300, args.device)}")
    return start, end


if __name__ == "__main__":
    main()
